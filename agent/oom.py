"""How many processes the kernel has killed for want of memory since the ranks were started; a source of evidence.

Read from the cgroups that hold the ranks and from the agent's own, before and after: version 2 counts in
``memory.events`` (of a cgroup and all below it), version 1 in ``memory.oom_control`` (of the killed process's own).
Without either, /proc/vmstat counts for the whole machine. That nothing was counted is evidence too: a SIGKILL came from
elsewhere then. Counters rise before the signal is sent (mm/oom_kill.c), so they are there when a rank is found dead.
"""

from __future__ import annotations

import asyncio
import os
from typing import NamedTuple

from ..health.evidence import Fact
from ..health.observed import Lacked, OomKill
from .files import FileThread
from .sources import Begun

NODE, MACHINE = "node", "machine"
UNLIMITED = 1 << 60  # version 1 says so with a number beyond any memory


class Group(NamedTuple):
    """A cgroup that counts: its directory, the mount's own directory, and which version it is of."""

    path: str
    top: str
    version: int


class Counted(NamedTuple):
    """The counters as they stood: by scope the cgroup and its kills. Empty where nobody counts."""

    kills: tuple[tuple[str, Group | None, int], ...]


class OomCounters:
    """The counters of one node's ranks. ``proc`` is for tests that have a tree of their own."""

    name = "memory counters"

    def __init__(self, proc: str = "/proc") -> None:
        self._proc = proc
        self._files = FileThread("memory counters")
        self._before: asyncio.Task[Counted] | None = None

    def begin(self, begun: Begun) -> None:
        """Read the counters, on a thread, a moment after the ranks were started."""
        self._before = asyncio.create_task(self._count(begun))

    async def inspect(self) -> None:
        """Nothing: counters are read when the ranks are dead."""

    async def facts(self) -> tuple[Fact, ...]:
        """Return what was killed in the cgroups of the ranks, and, all the same when nothing was, in the node's."""
        if self._before is None:
            return ()
        await asyncio.wait({self._before})
        before = self._before.result()
        if not before.kills:
            return (Lacked(self.name, "no cgroup here counts who is killed for want of memory, nor does /proc/vmstat"),)
        return _risen(before, self._proc)  # a few files of the kernel's memory: sooner read than a thread is woken

    async def close(self) -> None:
        """Read no more."""
        if self._before is not None:
            self._before.cancel()
        self._files.close()

    async def _count(self, begun: Begun) -> Counted:
        try:
            return await self._files.run(_count, tuple((rank.rank, rank.pid) for rank in begun.ranks), self._proc)
        except (OSError, TimeoutError):
            return Counted(())
        finally:
            self._files.close()


def _count(ranks: tuple[tuple[int, int], ...], proc: str) -> Counted:
    """Find the cgroups and read their counters. Blocks, for less than a millisecond."""
    mounts = _mounts(_text(f"{proc}/self/mountinfo"))
    scopes: dict[Group, str] = {}
    own = _group(_text(f"{proc}/self/cgroup"), mounts)
    if own is not None:
        scopes[own] = NODE
    for rank, pid in ranks:
        group = _group(_text(f"{proc}/{pid}/cgroup"), mounts)
        if group is not None:
            scopes[group] = f"rank {rank}" if group not in scopes else NODE
    kills = [(scope, group, count) for group, scope in scopes.items() if (count := _kills(group)) is not None]
    if not kills and (count := _field(_text(f"{proc}/vmstat"), "oom_kill")) is not None:
        return Counted(((MACHINE, None, count),))
    return Counted(tuple(kills))


def _risen(before: Counted, proc: str) -> tuple[Fact, ...]:
    found: list[OomKill] = []
    for scope, group, then in before.kills:
        now = _kills(group) if group is not None else _field(_text(f"{proc}/vmstat"), "oom_kill")
        kills = max(0, (now or 0) - then)
        found.append(OomKill(scope, kills, *(_sizes(group) if group is not None else ())))
    ranks = [fact for fact in found if fact.kills and fact.scope.startswith("rank ")]
    others = [fact for fact in found if not fact.scope.startswith("rank ")]
    explained = sum(fact.kills for fact in ranks)
    # Version 2 counts a rank's kill in the node's cgroup above it once more.
    return (*ranks, *(fact for fact in others if not explained or fact.kills > explained))


def _kills(group: Group) -> int | None:
    name = "memory.events" if group.version == 2 else "memory.oom_control"
    return _field(_text(f"{group.path}/{name}"), "oom_kill")


def _sizes(group: Group) -> tuple[int, int]:
    """Return the least limit of the cgroup and those above it, and the most that it has used; 0 = not known."""
    limit, peak = ("memory.max", "memory.peak") if group.version == 2 else (
        "memory.limit_in_bytes", "memory.max_usage_in_bytes",
    )  # fmt: skip
    limits: list[int] = []
    path = group.path
    while len(path) >= len(group.top):
        limits.append(_number(f"{path}/{limit}"))
        path = os.path.dirname(path)
    return min((n for n in limits if 0 < n < UNLIMITED), default=0), _number(f"{group.path}/{peak}")


def _group(lines: str, mounts: dict[int, tuple[str, str]]) -> Group | None:
    """Return the cgroup with a memory controller that a process is in, by its /proc/PID/cgroup."""
    paths: dict[int, str] = {}
    for line in lines.splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if "memory" in controllers.split(","):
            paths[1] = path
        elif number == "0" and not controllers:
            paths[2] = path
    for version in (1, 2):
        if version not in paths or version not in mounts:
            continue
        root, top = mounts[version]
        path = paths[version].rstrip("/")
        if root != "/":  # a container: the mount begins at its own cgroup
            path = path.removeprefix(root) if path == root or path.startswith(root + "/") else ""
        path = "" if path.startswith("/..") else path
        while True:  # of version 2 the memory controller may end above
            group = Group(top + path, top, version)
            if _kills(group) is not None:
                return group
            if not path:
                break
            path = path.rpartition("/")[0]
    return None


def _mounts(table: str) -> dict[int, tuple[str, str]]:
    """Return root and place of the cgroup mounts that have memory, by version (proc(5))."""
    found: dict[int, tuple[str, str]] = {}
    for line in table.splitlines():
        before, _, after = line.partition(" - ")
        fields, kind = before.split(" "), after.split(" ")
        if len(fields) < 5 or len(kind) < 3:
            continue
        if kind[0] == "cgroup2":
            found.setdefault(2, (fields[3], fields[4]))
        elif kind[0] == "cgroup" and "memory" in kind[2].split(","):
            found.setdefault(1, (fields[3], fields[4]))
    return found


def _text(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def _number(path: str) -> int:
    text = _text(path).strip()
    return int(text) if text.isascii() and text.isdigit() else 0


def _field(text: str, name: str) -> int | None:
    for line in text.splitlines():
        key, _, value = line.partition(" ")
        if key == name and value.isdigit():
            return int(value)
    return None
