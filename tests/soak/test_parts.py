"""The soak's own parts: its plan is repeated by its seed, and its eyes see what they are there for."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from itertools import islice
from pathlib import Path

import pytest
from command.processes import until
from soak.growth import Sample, grown, trend
from soak.plan import Kind, bursts
from soak.report import Hit, Report, RunReport

WRAPPER = Path(__file__).with_name("one_world.py")
STAYS = "import sys\nprint('here', sys.argv, flush=True)\nsys.stdin.read()\n"


@pytest.mark.parametrize("members", [1, 3])
def test_a_seed_is_a_plan(members: int) -> None:
    plan = list(islice(bursts("seed", members), 200))
    assert plan == list(islice(bursts("seed", members), 200))
    assert plan != list(islice(bursts("another", members), 200))
    assert max(sum(fault.kind.of_store for fault in burst.faults) for burst in plan) == 1
    assert {len(burst.faults) for burst in plan} == {1, 2, 3}
    counts = Counter(fault.kind for burst in plan for fault in burst.faults)
    assert len(counts) == (11 if members == 3 else 9)
    assert max(counts.values()) <= 2 * min(counts.values()) + 2


def ranks(tmp_path: Path, *rounds: int) -> list[subprocess.Popen[bytes]]:
    """Start a rank of each of these rounds, one after the other; each lives until its stdin is closed."""
    (tmp_path / "t.py").write_text(STAYS)
    started = []
    for n in rounds:
        env = {
            **os.environ,
            "REMUSTER_ROUND": str(n),
            "REMUSTER_ATTEMPT": str(n - 1),
            "RANK": "0",
            "REMUSTER_NODE": "a",
        }
        argv = [sys.executable, str(WRAPPER), str(tmp_path / "world"), str(tmp_path / "t.py"), "--flag"]
        process = subprocess.Popen(argv, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        started.append(process)
        assert process.stdout is not None
        assert b"t.py', '--flag']" in process.stdout.readline()
    return started


@pytest.mark.parametrize(
    ("rounds", "seen"), [((3, 3), ""), ((3, 4), "round 4 rank 0"), ((4, 3), "round 3 rank 0"), ((9, 2, 9), "round 2")]
)
def test_two_rounds_alive_at_once_are_seen(tmp_path: Path, rounds: tuple[int, ...], seen: str) -> None:
    started = ranks(tmp_path, *rounds)
    overlaps = tmp_path / "world.overlaps"
    assert (overlaps.read_text() if overlaps.exists() else "").startswith(seen)
    assert overlaps.exists() == bool(seen)
    assert len((tmp_path / "world.starts").read_text().splitlines()) == len(rounds)
    for process in started:
        process.communicate(timeout=20)


def test_a_dead_rank_is_not_alive(tmp_path: Path) -> None:
    """Killed or ended, and though nobody has reaped it yet."""
    (first,) = ranks(tmp_path, 1)
    first.kill()
    until(lambda: b") Z " in Path(f"/proc/{first.pid}/stat").read_bytes(), "it is dead")
    (second,) = ranks(tmp_path, 2)
    assert not (tmp_path / "world.overlaps").exists()
    for process in (first, second):
        process.communicate(timeout=20)


def life(rss: list[int], fds: list[int] | None = None) -> list[Sample]:
    return [Sample(float(n), n, kib, fds[n] if fds else 20, 13) for n, kib in enumerate(rss)]


def test_growth_is_seen_and_steps_are_not() -> None:
    noise = [(n * 7919) % 60 for n in range(60)]
    assert trend(life([40_000] * 13)) is None
    for rss in (
        [40_000 + x for x in noise],
        [30_000 + 2000 * min(n, 8) for n in range(60)],  # warming up
        [40_000 + 6000 * (n > 30) for n in range(60)],  # it leads for the first time
        [40_000 + 10 * n + noise[n] for n in range(60)],  # what it remembers of a round
    ):
        found = trend(life(rss))
        assert found is not None
        assert grown(found) == []
    for rss in ([40_000 + 120 * n + noise[n] for n in range(60)], [40_000 + 20_000 * (n > 30) for n in range(60)]):
        found = trend(life(rss))
        assert found is not None
        assert len(grown(found)) == 1
        assert "KiB of memory" in grown(found)[0]
    found = trend(life([40_000] * 60, [20 + n // 5 for n in range(60)]))
    assert found is not None
    assert grown(found) == ["10 descriptors in 48 rounds; 6 are allowed"]


def test_the_summary_of_a_soak_that_failed_says_so() -> None:
    report = Report("cafe", 60.0, "a date", ("2 cores",), ("two nodes",))
    report.verdict = "FAILED: two rounds were alive at once."
    run = RunReport(members=1, witness=2, rounds=3)
    run.hits = [
        Hit(Kind.RANK, 1.0, 1, 0.0, next_s=4.0),
        Hit(Kind.RANK, 9.0, 2, 0.0, next_s=8.0),
        Hit(Kind.RANK, 9.0, 2, 0.0, alone=False, next_s=80.0),
        Hit(Kind.NODE, 20.0, 2, 3.0),
    ]
    report.runs.append(run)
    text = report.render()
    assert "**FAILED: two rounds were alive at once.** 4 faults, 1 runs, 3 rounds." in text
    assert "| a rank killed | 3 | 2 | 2 |  | 6.0 | 8.0 |" in text
    assert "| a whole node killed, started again later | 1 | 1 | 0 | 3.0 |  |  |" in text
