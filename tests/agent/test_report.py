"""The final report: the verdict first, torchrun's lines where torchrun has them, and what it lacks; on one screen."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from remuster.agent import colour
from remuster.agent.rank_ranges import named
from remuster.agent.report import COLUMNS, LINES, Case, render
from remuster.health.evidence import ErrorFile, NodeEvidence, RankExit, RoundEvidence
from remuster.health.observed import Bundle, Gpu, KernelLine, Lacked, Stack
from remuster.health.verdict import judge

TRACE = 'Traceback (most recent call last):\n  File "/w/train.py", line 7, in main\n    step()\nValueError: boom'
GLOO = "RuntimeError: [gloo/transport/tcp/pair.cc:537] Connection closed by peer [10.0.3.11]:39001"
RECORD = "node-a: /logs/run_0badcafe/attempts/attempt-000.json, and in each node's run directory"
OUTPUT = tuple(f"step {i} of a line that is longer than any terminal is wide {'=' * 60}" for i in range(90))


def evidence(*, stopped_root: bool = False) -> RoundEvidence:
    error = ErrorFile("ValueError: boom", TRACE, 1_770_000_000, "/logs/1/error.json")
    tail = ("about to read", *TRACE.split("\n"), "terminate called without an active")
    root = RankExit(1, 1, 8344, -6, 3.0, stopped_root, error, tail, logs="/logs/run_0badcafe/attempt_0/1")
    a = NodeEvidence("node-a", (RankExit(0, 0, 8343, 1, 4.0, tail=(GLOO,)), root), 5)
    b = NodeEvidence("node-b", (RankExit(2, 0, 77, -15, 1.0, stopping=True), RankExit(3, 1, 78, 0, 1.0)), 6)
    return RoundEvidence(2, (a, b), (("node-a", 2), ("node-b", 2)))


def report(some: RoundEvidence, entry: str = "train.py", ended: str = "", spent: str = "") -> str:
    return render(Case(entry, some, judge(some), ended, spent=spent, record=RECORD))


def alone(*facts: RankExit, slots: int = 1) -> RoundEvidence:
    return RoundEvidence(1, (NodeEvidence("n", facts, 1),), (("n", slots),))


def test_the_verdict_is_the_first_line() -> None:
    lines = report(evidence()).split("\n")
    assert lines[:2] == [
        "", "rank 1 on node-a ended with signal 6 (SIGABRT): the program raised an exception: ValueError: boom",
    ]  # fmt: skip


def test_torchruns_layout() -> None:
    lines = report(evidence()).split("\n")
    title = lines.index("train.py FAILED")
    width = len("  traceback : Traceback (most recent call last):")  # torchrun: the longest line, at most 60
    assert lines[title - 1] == "=" * width
    assert lines[title + 1 : title + 5] == [
        "-" * width, "Failures:", "  <NO_OTHER_FAILURES>", "-" * width,
    ]  # fmt: skip
    root = lines.index("Root Cause (first observed failure):")
    assert lines[root + 1] == "[0]:"
    assert re.fullmatch(r"  time      : 2026-\d\d-\d\d_\d\d:\d\d:\d\d", lines[root + 2])
    assert lines[root + 3 : root + 8] == [
        "  host      : node-a",
        "  rank      : 1 (local_rank: 1)",
        "  exitcode  : -6 (pid: 8344)  (SIGABRT)",
        "  error_file: /logs/1/error.json",
        "  traceback : Traceback (most recent call last):",
    ]
    assert lines[root + 8] == '    File "/w/train.py", line 7, in main'
    assert lines[root + 10] == "  ValueError: boom"
    assert lines[root + 11] == "=" * width


def test_what_torchrun_does_not_say() -> None:
    text = report(
        evidence(), ended="no restarts are allowed (--max-restarts 0)", spent="0 of 0 restarts of this launch"
    )
    below = text[text.index("Root Cause") :].split("\n")[11:]
    assert below[1:] == [
        "Last lines of rank 1 on node-a:",  # without the traceback, which stands above
        "  about to read",
        "  terminate called without an active",
        "Victims   : rank 0 ended because of it; rank 2 stopped by us (SIGTERM); rank 3 had exited 0 before",
        "Class     : user_exception (family user)",
        "Logs      : node-a: /logs/run_0badcafe/attempt_0/1/stdout.log, stderr.log",
        f"Record    : {RECORD}",
        "No retry  : no restarts are allowed (--max-restarts 0)",
        "Spent     : 0 of 0 restarts of this launch",
        "What to do: Read the traceback of this rank.",
        below[-2],
        "",
    ]


def test_where_living_ranks_were_the_odd_one_first() -> None:
    seen = evidence()
    first, *rest = seen.nodes
    inside = ("torch/distributed_c10d.py:2501 all_reduce", "t.py:4 step")
    odd = Stack(1, "py-spy", (f"/{'long/' * 40}loader.py:9 fetch",))
    nodes = (first._replace(facts=(*first.facts, Stack(0, "py-spy", inside), odd, Stack(3, "py-spy", inside))), *rest)
    lines = report(seen._replace(nodes=nodes)).split("\n")
    place = next(i for i, line in enumerate(lines) if line.startswith("Stacks    : rank 1 at …"))
    assert lines[place].endswith("/loader.py:9 fetch")
    assert lines[place + 1] == "            ranks 0,3 at torch/distributed_c10d.py:2501 all_reduce"
    assert max(len(line) for line in lines[place : place + 2]) <= COLUMNS


def test_where_the_bundle_of_the_root_is() -> None:
    seen = evidence()
    first, *rest = seen.nodes
    nodes = (first._replace(facts=(*first.facts, Bundle("/logs/run/bundles/attempt-000"))), *rest)
    assert "\nBundle    : node-a: /logs/run/bundles/attempt-000\n" in report(seen._replace(nodes=nodes))


def test_the_last_line_is_the_exception_that_wrappers_look_for() -> None:
    last = report(evidence(), "-m my.module").rstrip("\n").split("\n")[-1]
    assert last.startswith("ChildFailedError: -m my.module FAILED: rank 1 on node-a ended")


def test_others_that_failed_by_themselves_are_failures() -> None:
    text = "ModuleNotFoundError: No module named 'x'"
    facts = tuple(RankExit(i, i, 100 + i, 1 + (i == 30), 1.0 + i, tail=(text,)) for i in range(40))
    lines = report(alone(*facts, slots=40)).split("\n")
    first = lines.index("[1]:")
    assert lines[first + 3] == "  rank      : 1 (local_rank: 1)"
    assert lines[first + 7] == "  and ranks 2-39, by themselves too: exit status 1 (37 of them)"
    assert not [line for line in lines if line.startswith("Victims")]


def test_a_signal_without_words() -> None:
    text = report(alone(RankExit(0, 0, 30517, -9, 1.0)))
    assert "  traceback : Signal 9 (SIGKILL) received by PID 30517" in text
    assert "  error_file: <N/A>" in text
    assert "  time      : <N/A>" in text
    status = alone(RankExit(0, 0, 1, 7, 1.0, wall=1_770_000_000))
    assert "To enable traceback see: https://pytorch.org" in report(status)
    assert "  exitcode  : 7 (pid: 1)\n" in report(status)
    assert "  time      : 2026-" in report(status)


def test_a_hung_root_that_we_stopped_is_shown() -> None:
    wait = "RuntimeError: [gloo/unbound_buffer.cc:81] Timed out waiting 8000ms for recv operation to complete"
    facts = (RankExit(0, 0, 1, 1, 9.0, tail=(wait,)), RankExit(1, 1, 2, -15, 9.5, stopping=True, tail=("epoch 3",)))
    text = report(alone(*facts, slots=2))
    assert "  rank      : 1 (local_rank: 1)" in text
    assert "Last lines of rank 1 on n:\n  epoch 3" in text
    assert f"Line      : {wait}\n" in text
    assert "Victims   : rank 0 ended because of it\n" in text


def test_a_lost_node_has_no_rank() -> None:
    stopped = NodeEvidence("a", (RankExit(0, 0, 1, -15, 1.0, stopping=True),), 3)
    text = report(RoundEvidence(1, (stopped,), (("a", 1), ("b", 8)), ("b",)))
    assert "[0]:\n  host      : b\n  traceback : b was lost: no lease, and no word of its own" in text
    assert "Class     : node_lost (family node); the fault is the node\n" in text
    assert "Victims   : rank 0 stopped by us (SIGTERM); ranks 1-8 lost with their node\n" in text


def test_a_gpu_is_named_and_what_speaks_against_it() -> None:
    uuid = "GPU-5d5ba0d6-d33d-2b2c-524d-9e3d8d2b8a77"
    xid = KernelLine(8.5, "NVRM: Xid (PCI:0000:3b:00): 48, pid=1, name=python, An uncorrectable double bit error (DBE)")
    node = NodeEvidence("n", (RankExit(0, 0, 1, 1, 9.0), xid, Gpu(uuid, "0000:3b:00.0", 2, (0,), ((48, 8.5),))), 1)
    text = report(RoundEvidence(1, (node,), (("n", 1),)))
    assert "Class     : gpu_ecc (family hardware); the fault is the node\n" in text
    assert f"GPU       : {uuid}\n" in text
    assert "Line      : NVRM: Xid (PCI:0000:3b:00): 48, pid=1" in text
    assert f"Evidence  : nvml, n: XID 48 on {uuid}\n" in text


def test_what_is_not_certain_is_said_with_what_lacked() -> None:
    text = report(
        RoundEvidence(1, (NodeEvidence("n", (RankExit(0, 0, 1, -9, 9.0), Lacked("kernel log", "not allowed")), 1),), ())
    )
    assert "Class     : killed_unknown (family unknown); a guess\n" in text
    assert "Lacked    : kernel log on n: not allowed\n" in text


def test_untrusted_text_cannot_write_to_the_terminal() -> None:
    facts = (RankExit(0, 0, 1, 1, 9.0, error=ErrorFile("\x1b[2Jgone\x07"), tail=("\x1b]0;x\x07bad",), logs="/\x1b[2J"),)
    assert not re.search(r"[\x00-\x08\x0b-\x1f]", report(alone(*facts)))


# --- it fits a screen -------------------------------------------------------------------------------------------------
def stopped(first: int, last: int) -> list[RankExit]:
    return [RankExit(i, i % 8, 100 + i, -15, 5.0, stopping=True, tail=OUTPUT) for i in range(first, last + 1)]


def one_rank(world: int) -> RoundEvidence:
    """A rank in the middle raises with a traceback as deep as they come, one peer cries, the rest is stopped by us."""
    frames = "".join(f'  File "/w/m{i}.py", line {i}\n' for i in range(80))
    error = ErrorFile(
        "ValueError: boom", f"Traceback (most recent call last):\n{frames}ValueError: boom", 1, "/l/e.json"
    )
    root = RankExit(3, 3, 103, 1, 1.0, error=error, tail=OUTPUT, logs="/l")
    ends = [*stopped(0, 1), RankExit(2, 2, 102, 1, 2.0, tail=(GLOO,)), root, *stopped(4, world - 1)]
    return by_node(ends)


def all_alike(world: int) -> RoundEvidence:
    tail = (*OUTPUT, "ModuleNotFoundError: No module named 'apex'")
    return by_node([RankExit(i, i % 8, 100 + i, 1, 1.0 + i, tail=tail, logs="/l") for i in range(world)])


def one_by_one(world: int) -> RoundEvidence:
    """Every second rank cries for the first, the others are stopped: the worst for a list of ranks."""
    root = RankExit(0, 0, 100, 1, 0.5, tail=(*OUTPUT, *TRACE.split("\n")), logs="/l")
    ends = [RankExit(i, i % 8, i, 1, 2.0, tail=(GLOO,)) if i % 2 else stopped(i, i)[0] for i in range(1, world)]
    return by_node([root, *ends])


def node_lost(world: int) -> RoundEvidence:
    some = by_node(stopped(0, world - 9))
    return some._replace(members=(*some.members, ("gone", 8)), lost=("gone",))


def by_node(ends: list[RankExit]) -> RoundEvidence:
    starts = range(0, len(ends), 8)
    nodes = tuple(NodeEvidence(f"node-{i // 8:03d}", tuple(ends[i : i + 8]), 5 + i) for i in starts)
    return RoundEvidence(1, nodes, tuple((node.node, len(node.facts)) for node in nodes))


SCREENS: dict[tuple[Callable[[int], RoundEvidence], int], str] = {
    (one_rank, 8): "rank 2 ended because of it; ranks 0-1,4-7 stopped by us (SIGTERM)",
    (one_rank, 800): "rank 2 ended because of it; ranks 0-1,4-799 stopped by us (SIGTERM)",
    (all_alike, 8): "",
    (all_alike, 800): "ranks 256-799 ended because of it",  # whose words nobody reads
    (one_by_one, 8): "ranks 1,3,5 and 1 more ended because of it; ranks 2,4,6 stopped by us (SIGTERM)",
    (one_by_one, 800): "ranks 1,3,5 and 397 more ended because of it; ranks 2,4,6 and 396 more stopped by us (SIGTERM)",
    (node_lost, 8): "ranks 0-7 lost with their node",
    (node_lost, 800): "ranks 0-791 stopped by us (SIGTERM); ranks 792-799 lost with their node",
}


@pytest.mark.parametrize(("make", "world"), SCREENS)
def test_it_fits_a_screen(make: Callable[[int], RoundEvidence], world: int) -> None:
    victims = SCREENS[make, world]
    long = "rank_hang: worth another try, but " + "all restarts of this launch are used up; " * 9
    lines = report(make(world), "a/" * 70 + "train.py", long, "3 of 3 restarts of this launch; " * 9).split("\n")
    rows = sum(1 + max(0, len(line) - 1) // COLUMNS for line in lines)  # the last line is for programs, and whole
    assert rows <= LINES
    assert max(map(len, lines[:-2])) <= COLUMNS
    assert lines[-2].endswith(judge(make(world)).sentence)
    assert [line for line in lines if line.startswith("Victims")] == ([f"Victims   : {victims}"] if victims else [])
    assert "Root Cause (first observed failure):" in lines
    assert lines[-2].startswith("ChildFailedError: a/a/")
    assert [line for line in lines if line.startswith("What to do: ")]


def test_paths_are_for_copying_and_never_cut() -> None:
    deep = "/scratch" * 30
    facts = RankExit(0, 0, 1, 1, 9.0, error=ErrorFile("E", "", 0, f"{deep}/error.json"), logs=deep)
    text = report(alone(facts))
    assert f"  error_file: {deep}/error.json\n" in text
    assert f"Logs      : n: {deep}/stdout.log, stderr.log\n" in text


def test_of_a_deep_script_the_heading_has_the_end_and_the_last_line_all() -> None:
    entry = "/scratch" * 30 + "/train.py"
    lines = report(alone(RankExit(0, 0, 1, 1, 9.0)), entry).split("\n")
    (heading,) = (line for line in lines if line.endswith("train.py FAILED"))
    assert (heading[0], len(heading)) == ("…", 110)
    assert lines[-2].startswith(f"ChildFailedError: {entry} FAILED: ")


RANGES = {
    (3,): "rank 3",
    (1, 0): "ranks 0-1",
    (0, 1, 2, 4, 5, 9, 9): "ranks 0-2,4-5,9",
    (*range(0, 40, 2),): "ranks 0,2,4,6,8,10,12,14 and 12 more",
    (*range(800),): "ranks 0-799",
}


@pytest.mark.parametrize("ranks", RANGES)
def test_ranks_are_named_by_ranges(ranks: tuple[int, ...]) -> None:
    assert named(ranks) == RANGES[ranks]


# --- colour -----------------------------------------------------------------------------------------------------------
TERMINALS = [
    ({"TERM": "xterm-256color"}, True, True),
    ({"TERM": "xterm"}, False, False),
    ({"TERM": "dumb"}, True, False),
    ({}, True, False),
    ({"TERM": "xterm", "NO_COLOR": "1"}, True, False),
    ({"TERM": "xterm", "NO_COLOR": ""}, True, True),  # no-color.org: not when it is empty
]


@pytest.mark.parametrize(("environ", "terminal", "wanted"), TERMINALS)
def test_colour_is_for_terminals_that_have_it(environ: dict[str, str], terminal: bool, wanted: bool) -> None:
    assert colour.wanted(environ, terminal) is wanted


def test_colour_changes_no_word() -> None:
    text = report(evidence())
    shown = colour.painted(text)
    assert re.sub(r"\x1b\[[0-9;]*m", "", shown) == text
    assert shown.split("\n")[1].startswith("\x1b[1;31mrank 1 on node-a")
    assert "\x1b[1mWhat to do:\x1b[0m Read" in shown
