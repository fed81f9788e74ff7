"""Scenarios from other launchers' bug reports about output, each named after its row in the project's list.

Each docstring says what was broken in a copy of the product to see the test fail.
"""

from __future__ import annotations

import json

import pytest
from command.cluster import Cluster, Place

pytestmark = pytest.mark.process

LINES = 20_000
TALKER = f"""
import os
if os.environ["RANK"] == "1":
    for i in range({LINES}): print(f"line {{i}} of many", flush=False)
    os.write(2, b"and the last words")
    os.write(1, b"the end")
    os._exit(1)
import time; time.sleep(60)
"""


def talk(place: Place, *more: str) -> None:
    """Let rank 1 print many lines and leave without a flush of anything; look for its last byte in all three places."""
    line = ("--tee", "3", "--duplicate-stdout-filters", "the end", *more)
    node = place.command("--nproc-per-node", "2", *line, place.script("t.py", TALKER), merge=True)
    assert node.exit_code() == 1, node.say()
    written = b"".join(b"line %d of many\n" % i for i in range(LINES)) + b"the end"
    attempt = node.run_dir / "attempt_0"
    assert (attempt / "1" / "stdout.log").read_bytes() == written
    assert (attempt / "1" / "stderr.log").read_bytes() == b"and the last words"
    assert (attempt / "filtered_stdout.log").read_bytes() == b"[default1]:the end\n"
    shown = node.out.split(b"\n")
    mine = [line.removeprefix(b"[default1]:") for line in shown if line.startswith(b"[default1]:")]
    assert sorted(mine) == sorted([*written.split(b"\n"), b"and the last words"])
    report = next(i for i, line in enumerate(shown) if line.endswith(b"t.py FAILED"))
    assert shown.index(b"[default1]:the end") < report
    assert shown.index(b"[default1]:and the last words") < report


@pytest.mark.parametrize("writer", ["rank", "agent"])
def test_b12_the_last_byte_is_everywhere_before_the_report(place: Place, writer: str) -> None:
    """Red when the console is not drained before the report (``_run``), or the copies are not (``copied``)."""
    talk(place, "--log-writer", writer)


@pytest.mark.drill
@pytest.mark.timeout(300)
def test_b12_fifty_times(place: Place) -> None:
    for _ in range(50):
        talk(place)


FAILER = """
import os, sys, time
from pathlib import Path
rank, attempt, desk = os.environ["RANK"], os.environ["TORCHELASTIC_RESTART_COUNT"], Path(sys.argv[1])
print("hello of", rank, "in", attempt)
(desk / f"{rank}.{attempt}").touch()
while rank == "3" and len(list(desk.glob(f"*.{attempt}"))) < 4: time.sleep(0.01)
if rank == "3":
    print("shard 7 is unreadable in", attempt, file=sys.stderr)
    sys.exit(4)
time.sleep(60)
"""


def test_b15_the_root_ranks_last_lines_are_in_the_report_though_it_is_filtered(cluster: Cluster) -> None:
    """Red when the prefix is torchrun's with several nodes (``prefix``), when a rank that is not shown gets no last
    lines (``_with_words``), and when an attempt's directory is used again (``attempt_directory``)."""
    line = ("--nnodes", "2", "--nproc-per-node", "2", "--tee", "3", "--local-ranks-filter", "0", "--max-restarts", "1")
    script = cluster.script("t.py", FAILER)
    nodes = [cluster.start(number, *line, "--rank-order", "hostname", script, cluster.desk) for number in (2, 3)]
    assert [node.exit_code() for node in nodes] == [4, 4], cluster.say()
    for number, node in enumerate(nodes):
        rank = 2 * number
        name = f"127.0.0.{2 + number}"
        shown = node.out.decode().splitlines()
        assert shown == [f"[{name} rank{rank}][default0]:hello of {rank} in {attempt}" for attempt in (0, 1)], shown
        before, bar, report = node.err.partition("t.py FAILED")
        assert bar, node.say()
        assert "shard 7" not in before
        assert "Last lines of rank 3 on 127.0.0.3:\n  shard 7 is unreadable in 1\n" in report
        for attempt in (0, 1):
            files = node.run_dir / f"attempt_{attempt}"
            for local in (0, 1):
                hello = f"hello of {rank + local} in {attempt}\n"
                assert (files / str(local) / "stdout.log").read_text() == hello
    for attempt in (0, 1):
        kept = nodes[1].run_dir / f"attempt_{attempt}" / "1" / "stderr.log"
        assert kept.read_text() == f"shard 7 is unreadable in {attempt}\n"


def test_each_attempt_has_its_own_copies_of_lines_though_the_next_one_is_short(place: Place) -> None:
    """Red when the copies of the round before are not ended (``_copy``), or not waited for (``copied``)."""
    many = 500_000
    text = (
        "import os, sys\n"
        "n = os.environ['TORCHELASTIC_RESTART_COUNT']\n"
        f"os.write(2, b'nothing\\n' + b'loss\\n' * ({many} * (n == '0')) + f'the last loss {{n}}'.encode())\n"
        "sys.exit(n == '0')\n"
    )
    line = ("--max-restarts", "1", "-t", "2", "--local-ranks-filter", "7", "--duplicate-stderr-filters", "loss")
    node = place.command(*line, place.script("t.py", text))
    assert node.exit_code() == 0, node.say()
    first, second = [(node.run_dir / f"attempt_{n}" / "filtered_stderr.log").read_text() for n in (0, 1)]
    assert first == "[default0]:loss\n" * many + "[default0]:the last loss 0\n"
    assert second == "[default0]:the last loss 1\n"
    assert "[default0]:" not in node.err  # the filter of ranks is the console's alone


def test_events_are_shown_when_they_are_asked_for(place: Place) -> None:
    """Red when ``Notes`` is not told of it."""
    node = place.command("--event-log-handler", "console", place.script("t.py", "print('hi')"))
    assert node.exit_code() == 0, node.say()
    shown = [json.loads(line) for line in node.err.splitlines() if line.startswith("{")]
    assert shown == node.events()
    assert [event["event"] for event in shown if event["event"] in ("start", "done", "exit")] == [
        "start",
        "done",
        "exit",
    ]
