"""The bundle of a failure: what is in it, that it is private and bounded, and which ones stay."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest
from small_disk import small_disk

from remuster.agent import bundle, testimony
from remuster.health.evidence import Fact, Fenced, GuardianDied, RankExit
from remuster.health.observed import Bundle, KernelLine, Lacked

FACTS = (
    RankExit(5, 1, 71, -6, 3.5, tail=("boom",)),
    RankExit(4, 0, 70, 1, 2.5),
    RankExit(6, 2, 72, -15, 3.6, stopping=True),
    KernelLine(2.4, "NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus."),
)


@pytest.fixture
def case(tmp_path: Path) -> bundle.Case:
    places = {}
    for rank in (4, 5, 6):
        places[rank] = tmp_path / "attempt_0" / str(rank)
        places[rank].mkdir(parents=True)
        (places[rank] / "stderr.log").write_bytes(b"words of %d\n" % rank)
        (places[rank] / "stdout.log").write_bytes(b"")
    (places[4] / "error.json").write_text("{}")
    return bundle.Case("node-a", "run", 3, 1, places)


def keep(run_dir: Path, case: bundle.Case, facts: tuple[Fact, ...]) -> Path:
    place = bundle.make(run_dir, case.attempt)
    bundle.fill(place, case, facts)
    return place


def read(path: Path) -> Any:
    return json.loads(path.read_text())


def test_it_tells_who_ended_first_and_how_all_ended(tmp_path: Path, case: bundle.Case) -> None:
    kept = keep(tmp_path, case, FACTS)
    told = read(kept / "evidence.json")
    assert kept == tmp_path / "bundles" / "attempt-001"
    assert told["first_abnormal"] == {"rank": 4, "status": 1, "at_s": 2.5}
    assert told["exit_codes"] == {"4": 1, "5": -6, "6": -15}
    assert [fact["is"] for fact in told["facts"]] == ["exit", "exit", "exit", "kernel"]
    assert set(read(kept / "node.json")) >= {"memory", "disks", "load", "kernel", "uptime_s"}


@pytest.mark.parametrize("fact", [Fenced(9.0), GuardianDied(9.0)])
@pytest.mark.parametrize(("before", "first"), [((), None), ((RankExit(5, 1, 12, 3, 1.0),), 5)])
def test_ranks_that_were_killed_with_their_lease_did_not_end_by_themselves(
    tmp_path: Path, case: bundle.Case, fact: Fact, before: tuple[Fact, ...], first: int | None
) -> None:
    told = read(keep(tmp_path, case, (*before, RankExit(4, 0, 11, -9, 8.9), fact)) / "evidence.json")
    assert (told["first_abnormal"] or {"rank": None})["rank"] == first


def test_it_holds_what_the_ranks_wrote_and_nothing_for_what_is_empty(tmp_path: Path, case: bundle.Case) -> None:
    kept = keep(tmp_path, case, FACTS)
    assert (kept / "rank-5.stderr").read_bytes() == b"words of 5\n"
    names = {path.name for path in kept.iterdir()}
    assert names == {
        "evidence.json",
        "node.json",
        "rank-4.stderr",
        "rank-4.error.json",
        "rank-5.stderr",
        "rank-6.stderr",
    }


def test_it_is_this_users_alone(tmp_path: Path, case: bundle.Case) -> None:
    kept = keep(tmp_path, case, FACTS)
    assert stat.S_IMODE(kept.stat().st_mode) == stat.S_IMODE(kept.parent.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in kept.iterdir()} == {0o600}


def test_the_end_of_a_long_log_is_kept(tmp_path: Path, case: bundle.Case) -> None:
    (case.directories[4] / "stdout.log").write_bytes(b"x" * (2 * bundle.TAIL_BYTES) + b"the end")
    kept = keep(tmp_path, case, FACTS)
    raw = (kept / "rank-4.stdout").read_bytes()
    assert len(raw) == bundle.TAIL_BYTES
    assert raw.endswith(b"the end")


def test_it_is_bounded_and_ranks_that_failed_by_themselves_come_first(
    tmp_path: Path, case: bundle.Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bundle, "MOST_BYTES", 25)
    kept = keep(tmp_path, case, FACTS)
    assert (kept / "rank-4.stderr").read_bytes() == b"words of 4\n"
    assert (kept / "rank-5.stderr").exists()
    assert not (kept / "rank-6.stderr").exists() or (kept / "rank-6.stderr").stat().st_size < 11


def test_what_a_rank_has_put_in_place_of_its_files_holds_nobody_up(tmp_path: Path, case: bundle.Case) -> None:
    log = case.directories[4] / "stderr.log"
    log.unlink()
    os.mkfifo(log)
    (case.directories[5] / "stderr.log").unlink()
    (case.directories[5] / "stderr.log").symlink_to("/etc/passwd")
    kept = keep(tmp_path, case, FACTS)
    assert not (kept / "rank-4.stderr").exists()
    assert not (kept / "rank-5.stderr").exists()


def test_dumps_are_kept_whole_or_not_at_all(tmp_path: Path, case: bundle.Case) -> None:
    small, large = tmp_path / "trace_rank_4", tmp_path / "trace_rank_5"
    small.write_bytes(b"dump")
    with large.open("wb") as file:
        file.truncate(bundle.DUMP_BYTES + 1)
    old = tmp_path / "trace_rank_6"
    old.write_bytes(b"of another round")
    os.utime(old, (1.0, 1.0))
    dumps = (small, large, old, tmp_path / "none")
    kept = keep(tmp_path, case._replace(dumps=dumps, since=1000.0), FACTS)
    assert (kept / "dump-trace_rank_4").read_bytes() == b"dump"
    assert not (kept / "dump-trace_rank_5").exists()
    assert not (kept / "dump-trace_rank_6").exists()


def test_a_dump_that_cannot_be_kept_costs_no_other(tmp_path: Path, case: bundle.Case) -> None:
    """Names of any length, and two of one name. Red when the first trouble ends all, or a name is taken as it is."""
    long, twin, other = tmp_path / f"{'x' * 250}_4", tmp_path / "dump_5", tmp_path / "sub" / "dump_5"
    other.parent.mkdir()
    for path in (long, twin, other):
        path.write_bytes(path.parent.name.encode() or b"?")
    kept = keep(tmp_path, case._replace(dumps=(long, twin, other)), FACTS)
    dumps = sorted(path.name for path in kept.glob("dump-*"))
    assert dumps == ["dump-1-dump_5", "dump-dump_5", f"dump-{'x' * (bundle.LONGEST - 2)}_4"]
    assert (kept / "dump-1-dump_5").read_bytes() == b"sub"


def test_a_dump_of_somebody_elses_is_not_taken(tmp_path: Path, case: bundle.Case) -> None:
    """torch's default is a name in /tmp, where all may write. Red when nobody asks whose it is."""
    if os.geteuid() != 0:
        pytest.skip("giving a file away needs root")
    planted = tmp_path / "trace_rank_4"
    planted.write_bytes(b"planted")
    os.chown(planted, 12345, 12345)
    assert not list(keep(tmp_path, case._replace(dumps=(planted,)), FACTS).glob("dump-*"))


def test_on_a_full_disk_all_that_has_room_is_kept_whole_and_the_reason_is_told(tmp_path: Path) -> None:
    """Red when the first file without room ends all, when part of one stays, or when old ones are not removed first."""
    with small_disk(tmp_path / "disk", mebibytes=1) as disk:
        words = disk / "attempt_0" / "4"
        words.mkdir(parents=True)
        (words / "stderr.log").write_bytes(b"boom\n")
        dump, small = tmp_path / "dump_4", tmp_path / "dump_5"
        dump.write_bytes(bytes(1020 << 10))
        small.write_bytes(b"small")
        case = bundle.Case("node-a", "run", 3, 1, {4: words}, (dump, small))
        old = [bundle.make(disk, attempt) for attempt in range(12)]
        (old[3] / "dump-x").write_bytes(bytes(1000 << 10))
        for i, path in enumerate(old):
            os.utime(path, (i, i))
        place = bundle.make(disk, 12)
        with pytest.raises(OSError, match="No space left"):
            bundle.fill(place, case, FACTS)
        assert {path.name for path in place.iterdir()} == {"evidence.json", "node.json", "rank-4.stderr", "dump-dump_5"}
        assert not old[3].exists()


def test_an_earlier_bundle_is_never_written_to(tmp_path: Path, case: bundle.Case) -> None:
    first = keep(tmp_path, case, FACTS)
    before = (first / "evidence.json").read_bytes()
    second = keep(tmp_path, case, FACTS[1:])
    assert second.name == "attempt-001.1"
    assert (first / "evidence.json").read_bytes() == before


def test_the_first_ones_and_the_last_ones_stay(tmp_path: Path, case: bundle.Case) -> None:
    made = []
    for attempt in range(14):
        made.append(keep(tmp_path, case._replace(attempt=attempt), ()))
        os.utime(made[-1], (attempt, attempt))
    left = sorted(path.name for path in (tmp_path / "bundles").iterdir())
    expected = [0, 1, *range(14 - bundle.LAST, 14)]
    assert left == [f"attempt-{attempt:03d}" for attempt in expected]


def test_no_room_is_said_and_costs_nothing_else(tmp_path: Path) -> None:
    ends = testimony.Ends({}, {})
    (tmp_path / "bundles").write_text("a file in its place")
    told, place = testimony.describe(FACTS, ends, (tmp_path, 1))
    assert (told, type(place)) == (FACTS, Lacked)
    (tmp_path / "bundles").unlink()
    assert testimony.describe(FACTS, ends, (tmp_path, 1)) == (FACTS, Bundle(str(tmp_path / "bundles" / "attempt-001")))
    assert testimony.describe(FACTS, ends, None) == (FACTS, None)
