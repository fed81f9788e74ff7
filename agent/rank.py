"""The child side of the guardian's fork: from the guardian's copy to the user's program. Standard library leaf modules.

Everything that can hang (opening a log on a network file system, say) happens here and never in the guardian. What goes
wrong is told through a pipe that exec closes: ``<local rank> <errno> <step>`` in one line.
"""

from __future__ import annotations

import errno
import os
import signal

from . import cgroup
from .linux import die_with_parent

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import NoReturn

# Ignored by the guardian, or by every Python: a dismissed signal survives exec and the rank would be deaf to it.
DISMISSED = (
    signal.SIGINT,
    signal.SIGTERM,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGTSTP,
    signal.SIGTTIN,
    signal.SIGTTOU,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGXCPU,
    signal.SIGALRM,
)
_ALSO_RESET = (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGCHLD)
_CANNOT_RUN, _NOT_FOUND = 126, 127  # as a shell's


class Order:
    """How to start one rank; ``env`` is relative to what the guardian was started with, None unsets."""

    __slots__ = ("argv", "cpus", "cwd", "deaf_to", "env", "inc", "local_rank", "round", "stderr", "stdin", "stdout")

    def __init__(
        self,
        round: int,
        inc: int,
        local_rank: int,
        argv: list[str],
        env: Mapping[str, str | None],
        cwd: str | None,
        stdout: str | None,
        stderr: str | None,
        stdin: str,
        cpus: tuple[int, ...],
        deaf_to: tuple[int, ...],
    ) -> None:
        self.round = round
        self.inc = inc
        self.local_rank = local_rank
        self.argv = argv
        self.env = env
        self.cwd = cwd
        self.stdout = stdout
        self.stderr = stderr
        self.stdin = stdin
        self.cpus = cpus  # what it may run on; none: what the guardian may
        self.deaf_to = deaf_to


def become(order: Order, guardian: int, errors: int, group: str | None, environ: Mapping[str, str]) -> NoReturn:
    """Turn this fork of ``guardian``, whose environment is ``environ``, into the rank; never returns, come what may."""
    step = "start"
    number = errno.EINVAL
    try:
        die_with_parent(signal.SIGKILL)
        if os.getppid() != guardian:
            os._exit(_CANNOT_RUN)
        os.setsid()
        for signum in DISMISSED + _ALSO_RESET:
            signal.signal(signum, signal.SIG_IGN if signum in order.deaf_to else signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        if group is not None:
            cgroup.enter(group)
        step = "stdin"
        if order.stdin == "null":
            _place(os.open(os.devnull, os.O_RDONLY), 0)
        step = "stdout"
        _append(order.stdout, 1)
        step = "stderr"
        _append(order.stderr, 2)
        _bind(order.cpus)
        step = "cwd"
        if order.cwd is not None:
            os.chdir(order.cwd)
        step = "exec"
        _exec(order.argv, _changed(environ, order.env))
    except OSError as error:
        number = error.errno or errno.EINVAL
    except (ValueError, TypeError, IndexError):
        number = errno.EINVAL  # a null byte, or an empty command line
    finally:
        try:
            os.write(errors, f"{order.local_rank} {number} {step}\n".encode())
        finally:
            os._exit(_NOT_FOUND if number == errno.ENOENT else _CANNOT_RUN)


def _place(fd: int, at: int) -> None:
    os.dup2(fd, at)
    if fd != at:
        os.close(fd)


def _bind(cpus: tuple[int, ...]) -> None:
    """Stay on these CPUs. A rank that cannot, as they were taken away meanwhile, says so and runs where it may."""
    try:
        if cpus:
            os.sched_setaffinity(0, cpus)
    except OSError as error:
        line = f"remuster: this rank is not bound to CPUs {', '.join(map(str, cpus))}: {error.strerror}\n"
        try:
            os.write(2, line.encode())
        except OSError:
            return


def _append(path: str | None, at: int) -> None:
    if path is not None:
        _place(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOCTTY | os.O_CLOEXEC, 0o600), at)


def _changed(environ: Mapping[str, str], changes: Mapping[str, str | None]) -> dict[str, str]:
    env = dict(environ)
    for name, value in changes.items():
        if value is None:
            env.pop(name, None)
        else:
            env[name] = value
    return env


def _exec(argv: list[str], env: dict[str, str]) -> None:
    """Execute a path as it is and a bare name along the rank's own PATH, as execvpe does; raises when none runs."""
    if os.sep in argv[0]:
        os.execve(argv[0], argv, env)  # noqa: S606  (a shell would reinterpret the user's words)
    refused: OSError = FileNotFoundError(errno.ENOENT, argv[0])
    for folder in env.get("PATH", os.defpath).split(os.pathsep):
        refused = _try(os.path.join(folder, argv[0]), argv, env) or refused
    raise refused


def _try(path: str, argv: list[str], env: dict[str, str]) -> OSError | None:
    """Execute ``path``; return why the search goes on when it is not there, or not for us."""
    try:
        os.execve(path, argv, env)  # noqa: S606
    except (FileNotFoundError, NotADirectoryError):
        return None
    except PermissionError as error:
        return error
