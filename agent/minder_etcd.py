"""The etcd process below the minder: started, killed, and asked why it ended. Works in the store's private folder.

It dies with the minder, whatever that dies of, and takes no setting from the environment: an ETCD_ variable of the
user's would move its data or its port, and a proxy's would come between it and itself.
"""

from __future__ import annotations

import os
import resource
import signal

from ..rendezvous.embedded import CLIENT, PEER, etcd_arguments, etcd_version, too_old, why_not
from .linux import boottime, die_with_parent
from .minder_folder import tail

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import NoReturn

LOG = "etcd.log"
PROCESSORS = "4"  # of a machine that is there for its ranks
_ASK_S = 10.0  # for --version, of a program that may be anything
_CANNOT_RUN = 126
_UNFIT = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")


class EtcdProcess:
    """One etcd on one data folder; ``status`` is how the last process ended, None while it runs."""

    def __init__(self, binary: str, addresses: tuple[str, ...], port: int) -> None:
        self.binary = binary
        self.status: int | None = 0
        self.ended_s = 0.0
        self._addresses = addresses
        self._port = port
        self._pid = 0
        self._token = os.urandom(8).hex()

    def start(self, *, private: bool = False) -> None:
        """Start it; ``private`` without any port."""
        for name in (CLIENT, PEER):
            if os.path.lexists(name):
                os.unlink(name)  # a killed one leaves them, and etcd does not listen over them
        if os.path.exists(LOG):
            os.truncate(LOG, 0)
        argv = [self.binary, *etcd_arguments(() if private else self._addresses, self._port, self._token)]
        env = _environment(os.environ)
        minder = os.getpid()
        self.status = None
        self._pid = os.fork()
        if self._pid == 0:
            _become(argv, env, minder)

    def note_end(self, pid: int, status: int) -> None:
        """Hear of a child's end, which may be its own."""
        if pid == self._pid:
            self._end_family()
            self.status, self.ended_s = status, boottime()

    def kill(self) -> None:
        """End it and wait until it has ended. SIGKILL: what it holds has no value any more, or is safe in its files."""
        if self.status is None:
            os.kill(self._pid, signal.SIGKILL)
            self.note_end(*os.waitpid(self._pid, 0))

    def why_ended(self) -> str:
        """Say why it ended, as a sentence."""
        code = os.waitstatus_to_exitcode(self.status or 0)
        ended = f"by signal {-code}" if code < 0 else f"with exit status {code}"
        return why_not(self.binary, etcd_version(_words(self.binary)), tail(LOG), ended)

    def why_unfit(self) -> str:
        """Ask a program that does not serve what it is; say why it will not do, nothing for an etcd that is slow."""
        version = etcd_version(_words(self.binary))
        return why_not(self.binary, None, tail(LOG), "") if version is None else too_old(self.binary, version)

    def _end_family(self) -> None:
        """End what a wrapper has left: a script that did not exec."""
        try:
            os.killpg(self._pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            return


def _environment(environ: Mapping[str, str]) -> dict[str, str]:
    env = {
        name: value for name, value in environ.items() if not name.startswith("ETCD_") and name.lower() not in _UNFIT
    }
    env.setdefault("GOMAXPROCS", PROCESSORS)
    if os.uname().machine == "aarch64":
        env["ETCD_UNSUPPORTED_ARCH"] = "arm64"  # 3.4 has to be told
    return env


def _become(argv: list[str], env: Mapping[str, str], minder: int) -> NoReturn:
    try:
        die_with_parent(signal.SIGKILL)
        if os.getppid() != minder:
            os._exit(_CANNOT_RUN)
        os.setpgid(0, 0)
        log = os.open(LOG, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        os.dup2(log, 1)
        os.dup2(log, 2)
        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # an agent is a connection
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        os.execve(argv[0], argv, env)  # noqa: S606
    except OSError as error:
        os.write(2, f"{argv[0]} cannot be run: {error.strerror}\n".encode())
    finally:
        os._exit(_CANNOT_RUN)


def _words(binary: str) -> str:
    """Return what ``binary --version`` says: only asked when something is wrong, so its imports are not paid before."""
    import subprocess

    try:
        done = subprocess.run(
            [binary, "--version"], stdin=subprocess.DEVNULL, capture_output=True, timeout=_ASK_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout[:4096].decode(errors="replace")
