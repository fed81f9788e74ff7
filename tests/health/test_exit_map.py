"""``--exit-code-map``: what is taken, what is refused in words, and what it changes about a failure."""

from __future__ import annotations

import contextlib
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuster.health.classes import all_classes
from remuster.health.evidence import NodeEvidence, RankExit, RoundEvidence
from remuster.health.exit_map import Action, Mapped, meaning, parse, reread
from remuster.health.policy import Facts, Limits, Memory, Response, respond
from remuster.health.verdict import Verdict, judge

BUG = ("Traceback (most recent call last):", '  File "t.py", line 3, in step', "ValueError: a bug")


def test_what_is_taken() -> None:
    assert parse(" 17=stop, 16 = retry-elsewhere,14=gpu_lost,93=stop,sigusr1=retry,ABRT=gpu_ecc,-11=stop") == (
        Mapped(-11, "stop"),
        Mapped(-10, "retry"),
        Mapped(-6, "gpu_ecc"),
        Mapped(14, "gpu_lost"),
        Mapped(16, "retry-elsewhere"),
        Mapped(17, "stop"),
        Mapped(93, "stop"),
    )
    assert Mapped(-6, "gpu_ecc").text == "-6=gpu_ecc"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "'' is not CODE=ACTION"),
        ("16", "'16' is not CODE=ACTION"),
        ("16=retry,,", "'' is not CODE=ACTION"),
        ("0=stop", "0 is how a rank ends well"),
        ("256=stop", "'256' is no exit status"),
        ("-65=stop", "'-65' is no exit status"),
        ("-0=stop", "0 is how a rank ends well"),
        ("1_6=stop", "'1_6' is no exit status"),
        ("SIGNAL=stop", "'SIGNAL' is no exit status"),
        ("16=stop,16=retry", "'16' is given twice"),
        ("-9=stop,KILL=retry", "'KILL' is given twice"),
        ("16=halt", "'halt' is no action and no class"),
        ("16=retry_elsewhere", "did you mean retry-elsewhere?"),
        ("16=gpu_lots", "did you mean gpu_lost?"),
        ("16=success", "'success' is no action"),
        (",".join(f"{n}=stop" for n in range(1, 66)), "65 entries, more than 64"),
    ],
)
def test_what_is_refused(text: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=re.escape(sentence)):
        parse(text)


@given(st.text(alphabet="0123456789-=,SIGKILstoprey ", max_size=30))
def test_anything_else_is_a_sentence(text: str) -> None:
    with contextlib.suppress(ValueError):
        found = parse(text)
        assert parse(",".join(one.text for one in found)) == found


def ended(*exits: RankExit) -> RoundEvidence:
    return RoundEvidence(3, (NodeEvidence("a", exits, 5),), (("a", len(exits)),))


def end(status: int, *, tail: tuple[str, ...] = (), stopping: bool = False, rank: int = 0) -> RankExit:
    return RankExit(rank, rank, 4711, status, 9.0 + rank, stopping, tail=tail)


def decided(text: str, evidence: RoundEvidence, memory: Memory, restarts: int | None) -> tuple[Verdict, Response]:
    verdict = judge(evidence)
    mapped = meaning(parse(text), verdict, evidence)
    verdict = verdict if mapped is None else reread(verdict, mapped)
    return verdict, respond(verdict, memory, Limits(restarts), Facts(), mapped)


ROWS = [
    # map, root's status and last lines, (retried, who pays, class)
    ("17=stop", end(17), (False, "", "exit_unknown")),
    ("17=stop", end(16), (True, "unknown", "exit_unknown")),  # another code
    ("17=stop", end(17, tail=BUG), (False, "", "user_exception")),
    ("2=retry", end(2), (True, "user", "user_args")),  # no restart helps it, elsewhere
    ("16=retry-elsewhere", end(16), (True, "unknown", "exit_unknown")),
    ("14=gpu_lost", end(14), (True, "hardware", "gpu_lost")),
    ("14=gpu_lost", end(14, tail=BUG), (True, "hardware", "gpu_lost")),
    ("14=user_args", end(14), (False, "", "user_args")),
    ("ABRT=gpu_ecc", end(-6), (True, "hardware", "gpu_ecc")),
    ("KILL=stop", end(-9), (False, "", "killed_unknown")),
    ("KILL=stop", end(-9, stopping=True), (True, "unknown", "exit_unknown")),  # we killed it
]


@pytest.mark.parametrize(("text", "root", "expected"), ROWS)
def test_what_it_changes(text: str, root: RankExit, expected: tuple[bool, str, str]) -> None:
    verdict, response = decided(text, ended(root), Memory(), 9)
    assert (response.retry, response.charge, verdict.cls) == expected


def test_the_sentence_of_what_was_found_stays() -> None:
    verdict, response = decided("14=gpu_lost", ended(end(14, tail=BUG)), Memory(), 9)
    assert "ValueError: a bug (exit status 14 means gpu_lost here: --exit-code-map)" in verdict.sentence
    assert verdict.node_fault
    assert response.reason == "gpu_lost: worth another try, charged to hardware"
    _, response = decided("17=stop", ended(end(17)), Memory(), 9)
    assert (response.reason, response.exit_code) == ("exit status 17 means stop (--exit-code-map)", 17)
    _, response = decided("17=retry", ended(end(17)), Memory(), 9)
    assert response.reason == "exit status 17 means retry (--exit-code-map), charged to unknown"


def test_it_is_the_root_whose_code_counts() -> None:
    evidence = ended(end(1, tail=BUG), end(17, rank=1))
    verdict, response = decided("17=stop", evidence, Memory(), 9)
    assert (verdict.rank, verdict.cls, response.retry) == (0, "user_exception", True)


def test_a_retry_is_made_though_it_is_the_same_failure_and_is_bounded_all_the_same() -> None:
    verdict, first = decided("16=retry", ended(end(16)), Memory(), 2)
    again = decided("16=retry", ended(end(16)), Memory(verdict.fingerprint), 2)[1]
    assert (first.retry, again.retry) == (True, True)
    assert not decided("17=retry", ended(end(16)), Memory(verdict.fingerprint), 2)[1].retry
    assert not decided("16=retry", ended(end(16)), Memory(), 0)[1].retry


def test_every_class_can_be_mapped_to() -> None:
    for name in set(all_classes()) - {"success"}:
        (mapped,) = parse(f"42={name}")
        verdict = reread(Verdict("exit_unknown", "unknown", "a", 0), mapped)
        assert (verdict.cls, verdict.family) == (name, all_classes()[name].family)
    assert not {action.value for action in Action} & set(all_classes())
