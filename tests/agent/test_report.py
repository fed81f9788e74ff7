"""The final report: torchrun's lines where torchrun has them, and what it lacks."""

from __future__ import annotations

import re

from remuster.agent.report import failures, render
from remuster.health.evidence import ErrorFile, NodeEvidence, RankExit, RoundEvidence
from remuster.health.verdict import judge

TRACE = 'Traceback (most recent call last):\n  File "/w/train.py", line 7, in main\n    step()\nValueError: boom'
GLOO = "RuntimeError: [gloo/transport/tcp/pair.cc:537] Connection closed by peer [10.0.3.11]:39001"


def evidence(*, stopped_root: bool = False) -> RoundEvidence:
    error = ErrorFile("ValueError: boom", TRACE, 1_770_000_000, "/logs/1/error.json")
    root = RankExit(
        1, 1, 8344, -6, 3.0, stopped_root, error, (*TRACE.split("\n"), "terminate called without an active")
    )
    a = NodeEvidence("node-a", (RankExit(0, 0, 8343, 1, 4.0, tail=(GLOO,)), root), 5)
    b = NodeEvidence("node-b", (RankExit(2, 0, 77, -15, 1.0, stopping=True), RankExit(3, 1, 78, 0, 1.0)), 6)
    return RoundEvidence(2, (a, b), (("node-a", 2), ("node-b", 2)))


def report(some: RoundEvidence, entry: str = "train.py", ended: str = "") -> str:
    verdict = judge(some)
    return render(entry, verdict, failures(some, verdict), ended)


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


def test_what_torchrun_does_not_say() -> None:
    text = report(evidence(), ended="no restarts are allowed (--max-restarts 0)")
    assert "  rank 1 on node-a ended with signal 6 (SIGABRT): the program raised an exception: ValueError: boom" in text
    assert "  class     : user_exception (family user)" in text
    assert "  node      : node-a\n" in text
    assert "  line      : ValueError: boom" in text
    assert "  no retry  : no restarts are allowed (--max-restarts 0)" in text
    assert "Last lines of rank 1 on node-a:\n  Traceback (most recent call last):" in text
    assert "Victims (they ended because of it):\n  rank 0 on node-a: exit status 1\n" in text
    assert "What to do:\n  Read the traceback of this rank." in text
    assert "rank 2" not in text, "it was stopped by us: no failure, no victim"


def test_the_last_line_is_the_exception_that_wrappers_look_for() -> None:
    last = report(evidence(), "-m my.module").rstrip("\n").split("\n")[-1]
    assert last.startswith("ChildFailedError: -m my.module FAILED: rank 1 on node-a ended")


def test_others_that_failed_by_themselves_are_failures() -> None:
    text = "ModuleNotFoundError: No module named 'x'"
    facts = tuple(RankExit(i, i, 100 + i, 1, 1.0 + i, tail=(text,)) for i in range(40))
    lines = report(RoundEvidence(1, (NodeEvidence("n", facts, 1),), (("n", 40),))).split("\n")
    assert "  rank      : 1 (local_rank: 1)" in lines
    assert "  and 7 more" in lines
    assert "Victims (they ended because of it):" not in lines


def test_a_signal_without_words() -> None:
    some = RoundEvidence(1, (NodeEvidence("n", (RankExit(0, 0, 30517, -9, 1.0),), 1),), (("n", 1),))
    text = report(some)
    assert "  traceback : Signal 9 (SIGKILL) received by PID 30517" in text
    assert "  error_file: <N/A>" in text
    assert "  time      : <N/A>" in text
    status = RoundEvidence(1, (NodeEvidence("n", (RankExit(0, 0, 1, 7, 1.0, wall=1_770_000_000),), 1),), (("n", 1),))
    assert "To enable traceback see: https://pytorch.org" in report(status)
    assert "  exitcode  : 7 (pid: 1)\n" in report(status)
    assert "  time      : 2026-" in report(status)


def test_a_hung_root_that_we_stopped_is_shown() -> None:
    wait = "RuntimeError: [gloo/unbound_buffer.cc:81] Timed out waiting 8000ms for recv operation to complete"
    facts = (RankExit(0, 0, 1, 1, 9.0, tail=(wait,)), RankExit(1, 1, 2, -15, 9.5, stopping=True, tail=("epoch 3",)))
    text = report(RoundEvidence(1, (NodeEvidence("n", facts, 1),), (("n", 2),)))
    assert "  rank      : 1 (local_rank: 1)" in text
    assert "Last lines of rank 1 on n:\n  epoch 3" in text
    assert "  rank 0 on n: exit status 1" in text


def test_a_lost_node_has_no_rank() -> None:
    text = report(RoundEvidence(1, (), (("a", 1), ("b", 1)), ("b",)))
    assert "[0]:\n  host      : b\n  traceback : b was lost: no lease, and no word of its own" in text
    assert "  node      : b (the fault lies there)" in text


def test_untrusted_text_cannot_write_to_the_terminal() -> None:
    facts = (RankExit(0, 0, 1, 1, 9.0, error=ErrorFile("\x1b[2Jgone\x07"), tail=("\x1b]0;x\x07bad",)),)
    assert not re.search(r"[\x00-\x08\x0b-\x1f]", report(RoundEvidence(1, (NodeEvidence("n", facts, 1),), (("n", 1),))))
