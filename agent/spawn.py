"""Execute the guardian: once by the young agent, and again by the grown one when a guardian was killed.

posix_spawn only: the grown agent has threads and must not fork. The guardian is started without site, user
environment or the product's package, so nothing of an installation can slow it down or break it.
"""

from __future__ import annotations

import _socket
import fcntl
import os
import sys

from .rank import DISMISSED

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

_FD = 3  # the guardian's end of the socket, in the guardian
_ABOVE = 10  # a number that is not _FD, or the duplicate would keep close-on-exec
_PROGRAM = (
    "import sys; m = type(sys)('nodeguard'); m.__path__ = [{folder!r}]; sys.modules['nodeguard'] = m; "
    "from nodeguard.guardian import main; main({fd}, {agent})"
)


def spawn_guardian(environ: Mapping[str, str]) -> tuple[int, int]:
    """Start a guardian whose ranks' environment starts from ``environ``; return its pid and the agent's socket."""
    ours, theirs = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
    program = _PROGRAM.format(folder=os.path.dirname(os.path.abspath(__file__)), fd=_FD, agent=os.getpid())
    high = fcntl.fcntl(theirs.fileno(), fcntl.F_DUPFD_CLOEXEC, _ABOVE)
    theirs.close()
    try:
        pid = os.posix_spawn(
            sys.executable,
            [sys.executable, "-I", "-S", "-E", "-c", program],
            environ,
            file_actions=[(os.POSIX_SPAWN_DUP2, high, _FD)],
            setsigmask=DISMISSED,  # a Ctrl-C before it has left the terminal's group must not end it
        )
    except OSError:
        ours.close()
        raise
    finally:
        os.close(high)
    return pid, ours.detach()
