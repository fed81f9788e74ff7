"""Starts the process that reads NVIDIA's driver (``gpu_child.py``), where there can be one. Loaded with the start.

That is before the first rank, so that an XID is heard from its first moment on, and it costs the start one
posix_spawn. Nobody listens until ``gpu_watch.py`` is loaded; what the process says waits in the socket.
"""

from __future__ import annotations

import _socket
import fcntl
import os
import signal
import sys
from collections.abc import Mapping
from typing import NamedTuple

from .rank import DISMISSED

LIBRARY = "libnvidia-ml.so.1"
WAIT_S = 10.0  # for an event, before the process looks at all GPUs by itself
# As the last of all (19, SCHED_IDLE) it stands still for seconds, or for good, where data loaders take every core.
NICE = 5
_DEVICES = ("/dev/nvidiactl", "/dev/dxg")  # made by the driver, and given to containers that may use it; of WSL
_FD = 3  # the child's end of the socket, in the child
_ABOVE = 10  # a number that is not _FD, or the duplicate would keep close-on-exec
_PROGRAM = (
    "import sys; sys.path += [p for p in {path!r} if p not in sys.path]; "
    "m = type(sys)('gpuwatcher'); m.__path__ = [{folder!r}]; sys.modules['gpuwatcher'] = m; "
    "from gpuwatcher.gpu_child import main; main({fd}, {agent}, {wait_s})"
)


class GpuChild(NamedTuple):
    """The process, and our end of its socket (SOCK_SEQPACKET, one JSON object a record)."""

    pid: int
    fd: int


def driver_here(environ: Mapping[str, str]) -> bool:
    """Tell whether the driver may be there: its control device, or its library on LD_LIBRARY_PATH. A few stats."""
    if any(map(os.path.exists, _DEVICES)):
        return True
    folders = environ.get("LD_LIBRARY_PATH", "").split(":")
    return any(os.path.exists(os.path.join(folder, LIBRARY)) for folder in folders if folder)


def start(environ: Mapping[str, str], wait_s: float = WAIT_S) -> GpuChild | None:
    """Start the process where ``driver_here``; None where not, or when there is no process to be had.

    Ranks that start beside it go first: it is nicer than they are.
    """
    if not driver_here(environ):
        return None
    folder = os.path.dirname(os.path.abspath(__file__))
    path = [os.path.abspath(p) for p in sys.path if p]
    program = _PROGRAM.format(path=path, folder=folder, fd=_FD, agent=os.getpid(), wait_s=wait_s)
    ours, theirs = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
    high = fcntl.fcntl(theirs.fileno(), fcntl.F_DUPFD_CLOEXEC, _ABOVE)
    theirs.close()
    try:
        pid = os.posix_spawn(
            sys.executable,
            [sys.executable, "-I", "-S", "-E", "-c", program],
            environ,
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
                (os.POSIX_SPAWN_DUP2, 1, 2),  # a library of the driver's may talk
                (os.POSIX_SPAWN_DUP2, high, _FD),
            ],
            setpgroup=0,  # no Ctrl-C ends it
            setsigmask=DISMISSED,  # nor what srun or systemd sends to all processes of a step: it ends with the agent
        )
        os.setpriority(os.PRIO_PROCESS, pid, os.getpriority(os.PRIO_PROCESS, 0) + NICE)  # the launcher may be nice too
    except OSError:
        ours.close()
        return None
    finally:
        os.close(high)
    return GpuChild(pid, ours.detach())


def end(child: GpuChild) -> None:
    """End a process that nobody has listened to."""
    os.kill(child.pid, signal.SIGKILL)
    os.close(child.fd)
