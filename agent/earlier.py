"""Looks whether an earlier launch has left its copy beside the checkpoints, before this one joins. Small.

Called by ``main.py`` at every start that has checkpoints; most first starts find nothing, and need not wait for the
modules that read a copy (``mirror.py``).
"""

from __future__ import annotations

import os

from .files import FileThread
from .node_state import Kept
from .spec import JobSpec


async def earlier(spec: JobSpec, files: FileThread) -> Kept:
    """Return what a launch goes on from whose store knows nothing of the run; or why that cannot be told."""
    if spec.checkpoint_dir is None or spec.new_run:
        return Kept()
    try:
        await files.run(os.lstat, spec.checkpoint_dir / ".remuster")
    except FileNotFoundError:
        return Kept()
    except (OSError, TimeoutError):
        pass  # what is wrong is said below, in full
    from .mirror import read

    return await read(files, spec.checkpoint_dir, spec.run_id)
