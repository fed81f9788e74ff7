"""What a training script may import to work with its launcher. Standard library only, nothing of the launcher."""

from .beat import heartbeat
from .notice import stop_requested
from .resume import ResumePoint, resume_point

__all__ = ["ResumePoint", "heartbeat", "resume_point", "stop_requested"]
