"""Memory counters from trees of real files, as the two versions of cgroups and containers lay them out."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from remuster.agent.linux import boottime
from remuster.agent.oom import OomCounters
from remuster.agent.sources import Begun, RankHere
from remuster.health.observed import Lacked, OomKill
from remuster.rendezvous.records import Round

M = 1 << 20
RANKS = (RankHere(4, 0, 100, Path(), {}), RankHere(5, 1, 101, Path(), {}))
BEGUN = Begun(Round(1), boottime(), RANKS)


class Tree:
    """/proc and a cgroup mount, in a folder."""

    def __init__(self, folder: Path, version: int, root: str = "/") -> None:
        self.proc, self.top, self.version = folder / "proc", folder / "cgroup", version
        kind = "cgroup2 cgroup2 rw" if version == 2 else "cgroup cgroup rw,memory"
        (self.proc / "self").mkdir(parents=True)
        (self.proc / "self" / "mountinfo").write_text(
            f"22 1 0:3 / /proc rw - proc proc rw\n30 1 0:5 {root} {self.top} rw,relatime - {kind}\n"
        )

    def process(self, pid: int | str, path: str) -> None:
        (self.proc / str(pid)).mkdir(exist_ok=True)
        other = "9:name=systemd:/\n" if self.version == 1 else ""
        line = f"0::{path}\n" if self.version == 2 else f"4:memory:{path}\n0::/\n"
        (self.proc / str(pid) / "cgroup").write_text(other + line)

    def group(self, path: str, kills: int, limit: int | None = None, peak: int = 0) -> None:
        folder = self.top / path.strip("/")
        folder.mkdir(parents=True, exist_ok=True)
        if self.version == 2:
            (folder / "memory.events").write_text(f"low 0\nhigh 0\nmax 7\noom 9\noom_kill {kills}\noom_group_kill 0\n")
            (folder / "memory.max").write_text("max\n" if limit is None else f"{limit}\n")
            (folder / "memory.peak").write_text(f"{peak}\n")
        else:
            (folder / "memory.oom_control").write_text(f"oom_kill_disable 0\nunder_oom 0\noom_kill {kills}\n")
            (folder / "memory.limit_in_bytes").write_text(f"{9223372036854771712 if limit is None else limit}\n")
            (folder / "memory.max_usage_in_bytes").write_text(f"{peak}\n")


@pytest.mark.parametrize("version", [1, 2])
async def test_all_ranks_in_the_agents_cgroup(tmp_path: Path, version: int) -> None:
    tree = Tree(tmp_path, version)
    for pid in ("self", 100, 101):
        tree.process(pid, "/job/step")
    tree.group("/job", 3, 64 * M)
    tree.group("/job/step", 3, None, 50 * M)
    source = OomCounters(str(tree.proc))
    source.begin(BEGUN)
    assert await source.facts() == (OomKill("node", 0, 64 * M, 50 * M),), "that nothing was counted is known, too"
    tree.group("/job/step", 5, None, 64 * M)
    assert await source.facts() == (OomKill("node", 2, 64 * M, 64 * M),)
    await source.close()


async def test_a_cgroup_for_each_rank_below_the_agents(tmp_path: Path) -> None:
    tree = Tree(tmp_path, 2)
    for pid, path in (("self", "/job"), (100, "/job/r4"), (101, "/job/r5")):
        tree.process(pid, path)
        tree.group(path, 0, 32 * M)
    source = OomCounters(str(tree.proc))
    source.begin(BEGUN)
    assert await source.facts() == (OomKill("node", 0, 32 * M),)
    tree.group("/job/r5", 1, 16 * M, 16 * M)
    tree.group("/job", 1, 32 * M)
    assert await source.facts() == (OomKill("rank 5", 1, 16 * M, 16 * M),), "counted once"
    tree.group("/job", 2, 32 * M)
    assert len(await source.facts()) == 2, "and one of something else"
    await source.close()


async def test_the_memory_controller_ends_above_the_ranks(tmp_path: Path) -> None:
    """As with the cgroup that the guardian makes: memory is not delegated into it."""
    tree = Tree(tmp_path, 2)
    tree.process("self", "/job")
    for rank in RANKS:
        tree.process(rank.pid, "/job/remuster-x-1")
    (tree.top / "job" / "remuster-x-1").mkdir(parents=True)
    tree.group("/job", 0)
    source = OomCounters(str(tree.proc))
    source.begin(BEGUN)
    assert await source.facts() == (OomKill("node", 0),)
    await source.close()


@pytest.mark.parametrize(("root", "path"), [("/docker/abc", "/docker/abc"), ("/", "/"), ("/", "/../..")])
async def test_a_container_sees_its_own_cgroup_at_the_mount(tmp_path: Path, root: str, path: str) -> None:
    tree = Tree(tmp_path, 1, root)
    tree.process("self", path)
    tree.group("/", 1, 8 * M)
    source = OomCounters(str(tree.proc))
    source.begin(BEGUN)
    assert await source.facts() == (OomKill("node", 0, 8 * M),)
    await source.close()


async def test_without_cgroups_the_machine_counts_and_without_that_it_is_said(tmp_path: Path) -> None:
    tree = Tree(tmp_path, 2)
    tree.process("self", "/")
    (tree.proc / "vmstat").write_text("pgpgin 5\noom_kill 2\n")
    source = OomCounters(str(tree.proc))
    source.begin(BEGUN)
    assert await source.facts() == (OomKill("machine", 0),)
    (tree.proc / "vmstat").write_text("oom_kill 3\n")
    assert await source.facts() == (OomKill("machine", 1),)
    os.unlink(tree.proc / "vmstat")
    source.begin(BEGUN)
    (fact,) = await source.facts()
    assert isinstance(fact, Lacked)
    await source.close()


async def test_the_real_counters() -> None:
    """Whatever this machine has: it counts, by one way or another."""
    source = OomCounters()
    source.begin(Begun(Round(1), boottime(), (RankHere(0, 0, os.getpid(), Path(), {}),)))
    (fact,) = await source.facts()
    assert isinstance(fact, OomKill)
    await source.close()
