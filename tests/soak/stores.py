"""An etcd of one durable member or of three, what is done to it, and what it holds. Not a test module."""

from __future__ import annotations

import base64
import contextlib
import signal
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from etcd_server import EtcdServer, find_etcd, find_etcds, free_ports

from remuster.rendezvous.store import prefix_end

FORGETFUL = ("3.5.0", "3.5.1", "3.5.2")  # killed in the midst of a commit they skip a write (etcd issue 13766)
MENDED = (3, 5, 13)  # from then on a leader that was suspended revokes nothing when it wakes up (etcd issue 15247)
ENDING_S = 20.0
ANSWER_S = 5.0
READY_S = 60.0
TIMERS = ("--heartbeat-interval", "50", "--election-timeout", "500")  # those of EtcdServer are too short for a busy day


class Status(NamedTuple):
    """A member's word about its data; sizes in bytes."""

    revision: int
    used: int
    disk: int
    version: str

    @property
    def numbers(self) -> tuple[int, ...]:
        return tuple(int(number) for number in self.version.split("-")[0].split("."))


class Member(EtcdServer):
    """One etcd that can be ended at any moment."""

    def end(self) -> None:
        """SIGKILL it; where that may cost what was acknowledged, a store that no job can live with, SIGTERM it."""
        assert self._process is not None
        forgetful = [path for version, path in find_etcds().items() if version in FORGETFUL]
        self._process.send_signal(signal.SIGTERM if find_etcd() in forgetful else signal.SIGKILL)
        self._process.wait(ENDING_S)
        self._process = None


class SoakStore:
    """``size`` members that are killed, suspended and brought back; at any time one outage at most."""

    def __init__(self, folder: Path, size: int) -> None:
        ports = free_ports(2 * size)
        peers = ports[size:]
        cluster = ",".join(f"m{i}=http://127.0.0.1:{peer}" for i, peer in enumerate(peers))
        self.members = [
            Member(folder / f"m{i}", ports[i], peers[i], name=f"m{i}", cluster=cluster, extra=TIMERS)
            for i in range(size)
        ]
        self.endpoints = ",".join(f"127.0.0.1:{port}" for port in ports[:size])
        self._down: list[Member] = []
        self._stopped: list[Member] = []

    def start(self) -> None:
        """Start all members, on the data that they have, and wait until each answers."""
        for member in self.members:
            member.spawn()
        self.wait_ready()

    def wait_ready(self) -> None:
        """Wait until each member answers."""
        for member in self.members:
            member.wait_ready(READY_S)

    def kill(self, members: Sequence[Member]) -> None:
        for member in members:  # in turn: those that are asked together hand the lead to each other for seconds
            member.end()
        self._down += members

    def suspend(self, members: Sequence[Member]) -> None:
        for member in members:
            member.stop()
        self._stopped += members

    def may_stand_still(self) -> list[Member]:
        """Return the members of which one may be suspended alone; none while the others have not answered yet.

        The leader may not, where it would revoke the leases of healthy nodes when it wakes up.
        """
        try:
            old = self.status().numbers < MENDED
            return [member for member in self.members if not (old and member.is_leader())]
        except OSError:
            return []

    def restore(self) -> None:
        """Start those that were killed, continue those that were suspended; waits for nothing."""
        for member in self._down:
            member.spawn()
        for member in self._stopped:
            member.cont()
        self._down, self._stopped = [], []

    def rest(self) -> None:
        """End all members until the next start."""
        self.kill(self.members)
        self._down = []

    def close(self) -> None:
        """End all members, whatever state they are in."""
        for member in self.members:
            member.close()
        self._down, self._stopped = [], []

    def say(self) -> str:
        """Return the last words of each member."""
        logs = ((m.directory.name, (m.directory / "log").read_text(errors="replace")[-1500:]) for m in self.members)
        return "\n".join(f"--- etcd {name}\n{text}" for name, text in logs)

    # --- what it holds ------------------------------------------------------------------------------------------------
    def ask(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """Ask the first member that answers; OSError when none does."""
        *others, last = self.members
        for member in others:
            with contextlib.suppress(OSError):
                return member.post(path, body, timeout_s=ANSWER_S)
        return last.post(path, body, timeout_s=ANSWER_S)

    def tree(self, prefix: str) -> dict[str, bytes]:
        """Return all keys below ``prefix``, without it."""
        start, end = (base64.b64encode(key.encode()).decode() for key in (prefix, prefix_end(prefix)))
        found = self.ask("kv/range", {"key": start, "range_end": end}).get("kvs", [])
        pairs = ((base64.b64decode(kv["key"]).decode(), base64.b64decode(kv.get("value", ""))) for kv in found)
        return {key.removeprefix(prefix): value for key, value in pairs}

    def keys(self, prefix: str) -> Counter[str]:
        """Count the keys below ``prefix`` by kind."""
        return Counter(key.partition("/")[0].lstrip("~") for key in self.tree(prefix))

    def leases(self) -> int:
        """Count the leases that live."""
        return len(self.ask("lease/leases", {}).get("leases", []))

    def status(self) -> Status:
        """Return what a member says of itself."""
        found = self.ask("maintenance/status", {})
        revision = int(found["header"]["revision"])
        return Status(revision, int(found["dbSizeInUse"]), int(found["dbSize"]), found["version"])

    def compact(self) -> None:
        """Forget all earlier revisions, as an operator's etcd does by itself from time to time."""
        self.ask("kv/compaction", {"revision": self.status().revision})
