"""The node check's readings: files laid out as the kernel does, real children, and times that run out."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import pytest

from remuster.agent import node_check
from remuster.agent.gpu_start import driver_here
from remuster.agent.node_check import Looking, Wish
from remuster.health.node_check import Finding, State, conclude

QUIET = Looking(lambda _: lambda _: None, lambda _: None)


def look(wish: Wish, around: Looking = QUIET) -> tuple[Finding, ...]:
    return asyncio.run(node_check.check_node(wish, around))


def program(tmp_path: Path, text: str) -> str:
    """Make a program that stands for the ranks' interpreter, or for a site's check."""
    path = tmp_path / "program"
    path.write_text(f"#!{sys.executable}\n{text}")
    path.chmod(0o700)
    return str(path)


def test_this_host_can_take_part(tmp_path: Path) -> None:
    found = look(Wish(tmp_path / "not" / "made" / "yet", {}))
    assert {finding.check for finding in found} >= {"disk", "shm", "limits", "clock"}
    assert conclude(found).passed is not False


@pytest.mark.parametrize(
    ("text", "state", "says"),
    [
        ("print('all well')", State.OK, "all well"),
        ("import sys; sys.exit('the fan is dead')", State.BAD, "the fan is dead"),
        ("import sys; sys.exit(3)", State.BAD, "exit status 3"),
        ("import sys; sys.exit(127)", State.UNKNOWN, "exit status 127"),
        ("import os; os.kill(os.getpid(), 9)", State.UNKNOWN, "exit status -9"),
    ],
)
def test_the_sites_own_command(tmp_path: Path, text: str, state: State, says: str) -> None:
    found = look(Wish(tmp_path, {}, command=(program(tmp_path, text),)))
    (finding,) = (f for f in found if f.check == "plugin")
    assert (finding.state, finding.text) == (state, says)


def test_a_command_that_is_not_there_lets_pass(tmp_path: Path) -> None:
    assert conclude(look(Wish(tmp_path, {}, command=("/no/such/check",)))).passed is not False


def test_gpus_that_should_be_there_and_are_not(tmp_path: Path) -> None:
    if driver_here(os.environ):
        pytest.skip("this machine has an NVIDIA driver")
    assert conclude(look(Wish(tmp_path, {}, gpus=8))).passed is False


TESTS = """
import json, sys, time
print("UserWarning: not JSON", file=sys.stderr)
for line in {lines!r}:
    print(json.dumps(line), file=sys.stderr, flush=True)
{end}
"""
HUNG = "time.sleep(600)"


@pytest.mark.parametrize(
    ("lines", "end", "passed", "says"),
    [
        ([{"begin": "memory of cuda:0"}, {"check": "memory", "what": "cuda:0", "state": "ok", "text": "held"}],
         "", True, ""),
        ([{"begin": "memory of cuda:1"}, {"check": "memory", "what": "cuda:1", "state": "bad", "text": "3 bytes"}],
         "", False, "cuda:1: 3 bytes"),
        ([{"begin": "memory of cuda:1"}], HUNG, False, "memory of cuda:1: it did not end within"),
        ([{"begin": "memory of cuda:1"}], "sys.exit(139)", False, "status 139"),
        ([], HUNG, None, "did not end within"),  # the import of torch hangs: who knows why
        ([{"begin": "memory of cpu"}], HUNG, None, "did not end within"),
        ([{"check": "x", "what": "y", "state": "splendid", "text": "z"}], "", None, "y: z"),
    ],
)  # fmt: skip
def test_the_tests_answer(tmp_path: Path, lines: list[object], end: str, passed: bool | None, says: str) -> None:
    python = program(tmp_path, TESTS.format(lines=lines, end=end))
    found = look(Wish(tmp_path, {}, python, deep=True, deep_s=1.0 if end == HUNG else 30.0))
    answer = conclude(f for f in found if f.check not in ("clock",))
    assert answer.passed is passed
    assert says in answer.sentence


def test_children_are_told_to_be_spared_and_leave_nothing(tmp_path: Path) -> None:
    pids: list[tuple[int, ...]] = []
    look(Wish(tmp_path, {}, command=(program(tmp_path, "pass"),)), Looking(lambda _: pids.append, lambda _: None))
    assert len(pids) == 2
    assert len(pids[0]) == 1
    assert pids[1] == ()


def test_installed_checks_are_run_in_an_interpreter_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = tmp_path / "site_check-1.dist-info"
    made.mkdir()
    (made / "METADATA").write_text("Name: site-check\nVersion: 1\n")
    points = "\n".join(f"{name} = site_check:{name}" for name in ("fine", "sick", "broken"))
    (made / "entry_points.txt").write_text(f"[remuster.node_checks]\n{points}\n")
    (tmp_path / "site_check.py").write_text(
        "def fine(): print('noise')\ndef sick(): return 'fan 3 is dead'\ndef broken(): raise OSError('no sensor')\n"
    )
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{Path(node_check.__file__).parents[2]}")
    found = {f.what: (f.state, f.text) for f in look(Wish(tmp_path, {}, installed=True)) if f.check == "plugin"}
    assert found == {
        "fine": (State.OK, "passed"),
        "sick": (State.BAD, "fan 3 is dead"),
        "broken": (State.UNKNOWN, "OSError: no sensor"),
    }
    assert "site_check" not in sys.modules
