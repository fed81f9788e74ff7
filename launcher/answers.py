"""What a command prints when it has been asked something: nobody may be there to read it, and no room for it.

``remuster explain … | head`` is no defect, and neither is a full disk. Not for jobs: their output is the agent's.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable

UNREAD = 141  # exit code: 128 + SIGPIPE, as for any program whose reader has gone
UNWRITTEN = 75  # exit code: this machine cannot do it now


def give(answer: Callable[[], int]) -> int:
    """Let a command answer on stdout; return its exit code."""
    try:
        code = answer()
        if sys.stdout is not None:  # pyright: ignore[reportUnnecessaryComparison]  # None where it was closed
            sys.stdout.flush()
        return code
    except OSError as error:
        if error.filename is not None or error.errno not in (errno.EPIPE, errno.ENOSPC, errno.EDQUOT):
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC), 1)  # for what waits in the buffer
        if error.errno == errno.EPIPE:
            return UNREAD
        print(f"remuster: the answer cannot be written: {error.strerror}", file=sys.stderr)
        return UNWRITTEN
