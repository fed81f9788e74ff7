"""remuster: launch training on many GPUs, say why it failed, and muster it again from a verified checkpoint.

The face of the import name. It imports nothing of the launcher: a training script that writes ``import remuster``
pays for the standard library's leaf modules only, and names are loaded when they are first used.
"""

from __future__ import annotations

TYPE_CHECKING = False  # typing's own costs 4 ms; checkers know the bare name
if TYPE_CHECKING:
    from .worker import ResumePoint as ResumePoint
    from .worker import heartbeat as heartbeat
    from .worker import resume_point as resume_point
    from .worker import stop_requested as stop_requested

__version__ = "0.1.0"
__all__ = ["ResumePoint", "__version__", "heartbeat", "resume_point", "stop_requested"]


def __getattr__(name: str) -> object:
    if name in ("resume_point", "ResumePoint", "heartbeat", "stop_requested"):
        from . import worker

        found: object = getattr(worker, name)
        globals()[name] = found  # the next use, in a loop over steps perhaps, does not come here
        return found
    raise AttributeError(f"module 'remuster' has no attribute {name!r}")
