"""Hosts on one machine: each a network, UTS, IPC, PID and mount namespace with its own address, names and boot id.

For the drills; root only, needs util-linux, iproute2 and iptables. No state is kept anywhere: a host lives as long as
its pid 1, which the kernel kills when the process that made it dies, however it dies, and what belongs to the host
(interfaces, rules, mounts, processes) goes with it. Only an empty cgroup can stay behind; the next lab removes it.
All hosts share the kernel, so CLOCK_BOOTTIME is common to them, and its file systems but for /dev/shm, /run and /proc.
"""

from __future__ import annotations

import ctypes
import itertools
import os
import shutil
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from drills.sight import PATIENCE_S, Process, children, link_of, look, title, until

T = TypeVar("T")

TOOLS = ("setpriv", "unshare", "nsenter", "ip", "iptables")
NETWORK = "10.77.0"  # inside the fabric alone: two labs never meet
_CGROUP_MOUNTS = ("/sys/fs/cgroup/unified", "/sys/fs/cgroup")
_CGROUP = "drill-lab-"
_DELAY = Path(__file__).with_name("delay.py")
_NEW_NET = 0x40000000
_SPACES = ("net", "uts", "ipc", "pid")
_DIE_WITH_US = ("setpriv", "--pdeathsig", "KILL")
_FABRIC = (
    "ip link set lo up; ip link add br0 type bridge forward_delay 0; ip link set br0 up; echo up; exec sleep infinity"
)
# Ignoring SIGCHLD, which exec keeps, makes the kernel reap whatever pid 1 adopts.
_INIT = """
set -e
hostname "$NAME"
mount -t tmpfs -o mode=1777 tmpfs /dev/shm
mount -t tmpfs -o mode=755 tmpfs /run
mount --bind "$HOSTS" /etc/hosts
mount --bind "$ETC/boot_id" /proc/sys/kernel/random/boot_id
[ ! -e /etc/machine-id ] || mount --bind "$ETC/machine-id" /etc/machine-id
echo here
read go
ip link set lo up
ip addr add "$ADDRESS/24" dev eth0
ip link set eth0 up
echo up
trap '' CHLD
exec sleep infinity
"""


def why_not() -> str:
    """Return why no lab can be built here, '' when one can."""
    if os.geteuid() != 0:
        return "drills need root and namespaces: run make drills as root"
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    if missing:
        return f"drills need root and namespaces, and {', '.join(missing)} (util-linux, iproute2, iptables)"
    tries = ["unshare", "--net", "--pid", "--fork", "--mount-proc", "true"]
    tried = subprocess.run(tries, capture_output=True, check=False)
    return "" if tried.returncode == 0 else f"drills need root and namespaces: {tried.stderr.decode().strip()}"


class Host:
    """One host. Made by ``Lab.host``; up until it is crashed."""

    def __init__(self, lab: Lab, name: str, number: int) -> None:
        self.name = name
        self.address = f"{NETWORK}.{number}"
        self._lab = lab
        self._number = number
        self._etc = lab.directory / name
        self._etc.mkdir()
        (self._etc / "machine-id").write_text(uuid.uuid4().hex + "\n")
        self._cgroup = lab.cgroup / name if lab.cgroup else None
        self._links = itertools.count()
        self._link = ""
        self._spawned: list[subprocess.Popen[bytes]] = []
        self._unshare: subprocess.Popen[bytes] | None = None
        self._delayer: subprocess.Popen[bytes] | None = None
        self.init = 0  # its pid 1, seen from outside

    @property
    def up(self) -> bool:
        return self._unshare is not None

    def boot(self) -> None:
        """Start the host, with a new boot id."""
        assert not self.up, f"{self.name} is up"
        (self._etc / "boot_id").write_text(f"{uuid.uuid4()}\n")
        if self._cgroup:
            self._cgroup.mkdir(exist_ok=True)
        env = {
            **os.environ,
            "NAME": self.name,
            "ADDRESS": self.address,
            "ETC": str(self._etc),
            "HOSTS": str(self._lab.names),
        }
        namespaces = ("--net", "--uts", "--ipc", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc")
        with (self._etc / "init.log").open("ab") as log:
            self._unshare = subprocess.Popen(
                [*_DIE_WITH_US, "unshare", *namespaces, "sh", "-c", _INIT],
                env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, start_new_session=True,
            )  # fmt: skip
        _hear(self._unshare, b"here\n", self.name)
        (self.init,) = children(self._unshare.pid)
        self._link = f"v{self._number}.{next(self._links)}"
        # The address of the interface stays the same over a reboot: nobody has a stale ARP entry.
        mac = f"02:4c:00:00:00:{self._number:02x}"
        self._lab.fabric(
            f"ip link add {self._link} type veth peer name eth0 address {mac} netns {self.init} && "
            f"ip link set {self._link} master br0 up"
        )
        assert self._unshare.stdin is not None
        self._unshare.stdin.write(b"go\n")
        self._unshare.stdin.close()
        _hear(self._unshare, b"up\n", self.name)
        for kind in _SPACES:
            self._lab.spaces.append(os.open(f"/proc/{self.init}/ns/{kind}", os.O_RDONLY | os.O_CLOEXEC))

    def crash(self) -> None:
        """Lose power: the link goes first, so that no FIN or RST leaves, then everything at once."""
        assert self._unshare is not None, f"{self.name} is down"
        self._end_delay()
        self._lab.fabric(f"ip link del {self._link}")
        os.kill(self.init, signal.SIGKILL)
        self._wake_waiters()
        self._unshare.wait()
        assert self._unshare.stdout is not None
        self._unshare.stdout.close()
        self._unshare = None
        for spawned in self._spawned:
            spawned.wait(PATIENCE_S)
        self._spawned.clear()
        _remove_cgroup(self._cgroup)

    def kill(self) -> None:
        """SIGKILL every process but pid 1 at once, until none is left; the kernel says goodbye to their peers."""
        # One call: killed one by one, those that still live would have time for a last word.
        until(lambda: not self.processes() or self.sh("kill -KILL -1 2>/dev/null || true"), f"{self.name} is empty")

    def processes(self) -> list[Process]:
        """Return what lives on this host besides its pid 1, without the dead."""
        space = os.readlink(f"/proc/{self.init}/ns/pid")
        pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
        here = [pid for pid in pids if pid != self.init and link_of(f"/proc/{pid}/ns/pid") == space]
        return [process for process in map(look, here) if process is not None]

    def freeze(self) -> None:
        """SIGSTOP everything on this host but pid 1."""
        for process in self.processes():
            process.signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """SIGCONT everything, the ranks first and their keeper last: the worst order."""
        for process in reversed(self.processes()):
            process.signal(signal.SIGCONT)
        self._wake_waiters()

    def _wake_waiters(self) -> None:
        for waiter in self._spawned:
            waiter.send_signal(signal.SIGCONT)  # nsenter stops when what it waits for does

    def spawn(
        self, argv: Sequence[str], env: Mapping[str, str], output: Path
    ) -> tuple[subprocess.Popen[bytes], Process]:
        """Start a command here; return what waits for it (its exit code) and the process itself."""
        with output.open("ab") as file:
            waiter = subprocess.Popen(
                [*_DIE_WITH_US, *self._enter("-p"), *argv],
                env=env, stdin=subprocess.DEVNULL, stdout=file, stderr=file, start_new_session=True,
            )  # fmt: skip
        self._spawned.append(waiter)
        space = os.readlink(f"/proc/{self.init}/ns/pid")

        def inside() -> int:
            # nsenter forks before it executes: the child is the command only once it has another name
            found = [
                p
                for p in children(waiter.pid)
                if link_of(f"/proc/{p}/ns/pid") == space and title(p) != title(waiter.pid)
            ]
            return found[0] if found else -1 if waiter.poll() is not None else 0

        pid = until(inside, f"{argv[0]} starts on {self.name}")
        assert pid > 0, f"{argv[0]} did not start on {self.name}: {output.read_text()[-2000:]}"
        return waiter, Process(pid, title(pid))

    def sh(self, script: str, env: Mapping[str, str] | None = None) -> str:
        """Run a shell script here as root, wait for it, and return what it printed."""
        return _run([*self._enter("-p"), "sh", "-ec", script], env)

    def _enter(self, *more: str) -> list[str]:
        assert self.up, f"{self.name} is down"
        enter = ["nsenter", "-t", str(self.init), "-n", "-u", "-i", "-m", *more, "--"]
        if self._cgroup is None:
            return enter
        return ["sh", "-c", f'echo 0 > "{self._cgroup}/cgroup.procs"; exec "$@"', "sh", *enter]

    # --- the network --------------------------------------------------------------------------------------------------
    def cut(self, *, incoming: bool = True, outgoing: bool = True) -> None:
        """Drop packets silently, both ways or one way."""
        self._rules(*["INPUT -i eth0"] * incoming, *["OUTPUT -o eth0"] * outgoing)

    def cut_from(self, other: Host) -> None:
        """Drop packets between this host and ``other`` alone."""
        self._rules(f"INPUT -s {other.address}", f"OUTPUT -d {other.address}")

    def unplug(self) -> None:
        """Take the carrier away."""
        self._lab.fabric(f"ip link set {self._link} down")

    def lose(self, share: float) -> None:
        """Drop this share of packets by chance, of those that come and of those that go."""
        chance = f"-m statistic --mode random --probability {share}"
        self._rules(f"INPUT -i eth0 {chance}", f"OUTPUT -o eth0 {chance}")

    def delay(self, delay_s: float) -> None:
        """Hold each packet that goes for ``delay_s``."""
        enter = ("nsenter", "-t", str(self.init), "-n", "--")
        self._delayer = subprocess.Popen(
            [*_DIE_WITH_US, *enter, sys.executable, "-S", "-E", str(_DELAY), str(delay_s)],
            stdout=subprocess.PIPE, start_new_session=True,
        )  # fmt: skip
        _hear(self._delayer, b"ready\n", f"the delay of {self.name}")
        self._run_net("iptables -w -t mangle -A OUTPUT -o eth0 -j NFQUEUE --queue-num 0 --queue-bypass")

    def heal(self) -> None:
        """Undo what was done to the network of this host."""
        self._run_net("iptables -F; iptables -t mangle -F")
        self._end_delay()
        self._lab.fabric(f"ip link set {self._link} up")

    def _end_delay(self) -> None:
        if self._delayer is not None:
            self._delayer.kill()
            self._delayer.wait()
            assert self._delayer.stdout is not None
            self._delayer.stdout.close()
            self._delayer = None

    def _rules(self, *rules: str) -> None:
        self._run_net("; ".join(f"iptables -w -I {rule} -j DROP" for rule in rules))

    def _run_net(self, script: str) -> None:
        _run(["nsenter", "-t", str(self.init), "-n", "--", "sh", "-ec", script])

    def close(self) -> None:
        """Remove the host, whatever state it is in."""
        if self._unshare is not None and self._link:
            self.crash()
        elif self._unshare is not None:  # its boot failed
            self._unshare.kill()
            self._unshare.wait()


class Lab:
    """A fabric, one bridge in a network namespace of its own, and the hosts on it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.names = directory / "hosts"  # everybody's /etc/hosts
        self.hosts: dict[str, Host] = {}
        self.spaces: list[int] = []  # the namespaces of all hosts until now, held so that no number is given again
        self.cgroup = _make_cgroup()
        self._fabric = subprocess.Popen(
            [*_DIE_WITH_US, "unshare", "--net", "sh", "-ec", _FABRIC], stdout=subprocess.PIPE, start_new_session=True
        )
        _hear(self._fabric, b"up\n", "the fabric")
        _run(
            ["nsenter", "-t", str(self._fabric.pid), "-n", "--", "ip", "addr", "add", f"{NETWORK}.250/24", "dev", "br0"]
        )
        self._inside = ThreadPoolExecutor(1, initializer=_enter_network, initargs=(self._fabric.pid,))

    def host(self, *names: str) -> list[Host]:
        """Make hosts and boot them; each knows the names of all."""
        made = [Host(self, name, len(self.hosts) + i) for i, name in enumerate(names, 1)]
        self.hosts |= {host.name: host for host in made}
        lines = ["127.0.0.1 localhost", *(f"{host.address} {host.name}" for host in self.hosts.values())]
        self.names.write_text("\n".join(lines) + "\n")  # in place: the hosts that are up see it
        for host in made:
            host.boot()
        return made

    def fabric(self, script: str) -> None:
        """Run a shell script in the fabric's network."""
        _run(["nsenter", "-t", str(self._fabric.pid), "-n", "--", "sh", "-ec", script])

    def inside(self, call: Callable[[], T]) -> T:
        """Call this process's own code on a thread that stands in the fabric's network."""
        return self._inside.submit(call).result(PATIENCE_S)

    def close(self) -> None:
        """Remove everything."""
        for host in self.hosts.values():
            host.close()
        self._inside.shutdown(wait=False, cancel_futures=True)
        self._fabric.kill()
        self._fabric.wait()
        assert self._fabric.stdout is not None
        self._fabric.stdout.close()
        _remove_cgroup(self.cgroup)

    def check_gone(self) -> None:
        """See, once it is closed, that nobody is left in a namespace of a host, and no mount or disk of this lab."""
        spaces = {os.readlink(f"/proc/self/fd/{fd}") for fd in self.spaces}
        until(lambda: not self._left(spaces), lambda: f"left behind: {self._left(spaces)}", 5.0)
        while self.spaces:
            os.close(self.spaces.pop())

    def _left(self, spaces: set[str]) -> list[str]:
        here = str(self.directory)
        disks = {path: path.read_text().strip() for path in Path("/sys/block").glob("loop*/loop/backing_file")}
        return [
            *(link for pid in os.listdir("/proc") if pid.isdigit() for kind in _SPACES
              if (link := link_of(f"/proc/{pid}/ns/{kind}")) in spaces),
            *(line for line in Path("/proc/self/mountinfo").read_text().splitlines() if here in line),
            *(f"{path}: {file}" for path, file in disks.items() if here in file),
            *([str(self.cgroup)] if self.cgroup and self.cgroup.exists() else []),
        ]  # fmt: skip


def _enter_network(pid: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    with open(f"/proc/{pid}/ns/net") as file:
        if libc.setns(file.fileno(), _NEW_NET) != 0:  # of this thread alone
            raise OSError(ctypes.get_errno(), "setns")


def _run(argv: Sequence[str], env: Mapping[str, str] | None = None) -> str:
    done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 0, f"{' '.join(argv)}: {done.stderr.strip() or done.returncode}"
    return done.stdout


def _hear(process: subprocess.Popen[bytes], line: bytes, what: str) -> None:
    assert process.stdout is not None
    heard = process.stdout.readline()
    assert heard == line, f"{what} did not come up: {heard!r}, exit code {process.poll()}"


def _make_cgroup() -> Path | None:
    """Make this lab's cgroup v2, where each host has one, and remove those of labs that were killed."""
    mount = next((Path(m) for m in _CGROUP_MOUNTS if Path(m, "cgroup.procs").exists()), None)
    if mount is None or not os.access(mount, os.W_OK):
        return None
    for old in mount.glob(f"{_CGROUP}*"):
        if not Path("/proc", old.name.split("-")[2]).exists():
            _remove_cgroup(old)
    made = mount / f"{_CGROUP}{os.getpid()}-{uuid.uuid4().hex[:8]}"
    made.mkdir()
    return made


def _remove_cgroup(path: Path | None) -> None:
    if path is None or not path.exists():
        return
    kill = path / "cgroup.kill"
    if kill.exists():
        kill.write_text("1")
    for folder, _, _ in os.walk(path, topdown=False):
        until(lambda folder=folder: _removed(folder), f"{folder} is empty")


def _removed(folder: str) -> bool:
    try:
        os.rmdir(folder)
    except OSError:
        return not os.path.exists(folder)
    return True
