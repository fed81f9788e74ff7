"""Execute the guardian, once by the young agent and again by the grown one when it was killed; and the revoker.

posix_spawn only: the grown agent has threads and must not fork. The guardian is started without site, user
environment or the product's package, so nothing of an installation can slow it down or break it. The revoker, which the
keeper executes when its agent was killed, speaks to the store: it also finds what the keeper could import.
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
# Without asyncio's TLS, which nothing here uses: the others wait while this is imported.
_REVOKER = (
    "import sys; sys.path += [p for p in {path!r} if p not in sys.path]; sys.modules['ssl'] = None; "
    "m = type(sys)('leaserevoker'); m.__path__ = [{root!r}]; sys.modules['leaserevoker'] = m; "
    "from leaserevoker.agent.revoker import main; sys.exit(main({lease}, {status}, {end_s}))"
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


def spawn_revoker(letter: bytes, lease: int, status: int, end_s: float, environ: Mapping[str, str]) -> int:
    """Start a revoker of ``lease``, whose agent ended with ``status``, to be done by ``end_s``; return its pid."""
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    program = _REVOKER.format(path=[p for p in sys.path if p], root=root, lease=lease, status=status, end_s=end_s)
    file = os.memfd_create("letter")
    try:
        os.write(file, letter)
        os.lseek(file, 0, os.SEEK_SET)
        return os.posix_spawn(
            sys.executable,
            [sys.executable, "-I", "-S", "-E", "-c", program],
            environ,
            file_actions=[
                (os.POSIX_SPAWN_DUP2, file, 0),
                (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
            ],
            setpgroup=0,  # no Ctrl-C ends it
            setsigmask=(),
        )
    finally:
        os.close(file)
