"""Labelled logs in shapes of the world outside: every class, many launchers and loggers, decoys; and mutations of them.

The texts are composed after those of public sources, named in labels.csv. Where the labels of the first folder need a
kernel log, the answer from text alone stands in ``test_logs``; here such a case only must not change its answer.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import cycle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from labelled_logs import Case, cases, verdict_on

from remuster.health.classes import all_classes, find

SHAPES = cases("shapes")
EVERY = [*SHAPES, *cases("logs")]
ANSWERS = {case.path: (verdict := verdict_on(case)).cls + f" of {verdict.rank}" for case in EVERY}
KERNEL_ONLY = {"gpu_ecc_contained", "host_memory_ecc"}  # no rank's text can tell them

OTHERS = (  # what other ranks write meanwhile, on one console
    "[rank61]: step 1207 loss 2.03 lr 3e-4",
    "61: step 1207/20000 loss: 2.03",
    "[default61]: iteration 1208/ 20000 | lm loss: 2.031 | grad norm: 1.01",
)
PREFIXES = {
    "rank": "[rank7]: ",
    "torchrun": "[default3]:",
    "containerd": "2026-03-11T04:02:00.123456789Z stderr F ",
    "clock": "2026-03-11 04:02:00,123 ",
    "syslog": "Mar 11 04:12:31 node-a4 python[30517]: ",
    "srun": "3: ",
    "compose": "worker-1  | ",
    "mpirun": "[1,3]<stderr>:",
    "ray": "(RayTrainWorker pid=1187, ip=10.0.0.8) ",
    "pdsh": "node-a2: ",
    "kubectl": "[pod/train-worker-1/trainer] ",
    "two": "3: [default3]:",
}


def lines(change: Callable[[str], str]) -> Callable[[str], str]:
    return lambda text: "\n".join(change(line) for line in text.split("\n"))


def interleaved(text: str) -> str:
    other = cycle(OTHERS)
    return "\n".join(f"{next(other)}\n{line}" for line in text.split("\n")) + "\n" + "\n".join(OTHERS)


def elsewhere(text: str) -> str:
    """Other directories: of the program and of the environment it runs in."""
    text = re.sub(r"/(home/u(?:ser)?|src|app|repo|workspace)/", r"/srv/team-7/\1/x1/", text)
    return re.sub(r"/opt/(?:env|conda|venv)/", "/fsx/envs/py312_cu128/", text)


def other_numbers(text: str) -> str:
    """Other pids, addresses, ports, source lines, stamps: numbers that mean nothing."""
    text = re.sub(r"\b(pid[=: ]{1,2}|PID )\d+", r"\g<1>4194303", text)
    text = re.sub(r"\b10\.\d+\.\d+\.\d+", "172.16.31.8", text)
    text = re.sub(r"\b0x[0-9a-f]+", "0x7fffdeadbeef", text)
    text = re.sub(r"(line |\.(?:cpp|cc|hpp|cu|py):)\d+", r"\g<1>9999", text)
    return re.sub(r"\[([EWF])\d{3,4} \d\d:\d\d:\d\d\.\d+", r"[\g<1>1231 23:59:59.999999999", text)


BETWEEN = "other ranks between"
MUTATIONS: dict[str, Callable[[str], str]] = {
    **{f"prefix {name}": lines(lambda line, before=prefix: before + line) for name, prefix in PREFIXES.items()},
    "crlf": lines(lambda line: line + "\r"),
    "colour at the end": lines(lambda line: line + "\x1b[0m"),
    "coloured lines": lines(lambda line: f"\x1b[31m\x1b[1m{line}\x1b[0m"),
    "trailing blanks": lines(lambda line: line + "   "),
    "empty lines": lines(lambda line: line + "\n"),
    "doubled lines": lines(lambda line: f"{line}\n{line}"),
    "other directories": elsewhere,
    "other numbers": other_numbers,
    "other hosts": lambda text: re.sub(r"\bnode-[a-z]\d\b", "gpu-worker-17.cluster.local", text),
    BETWEEN: interleaved,
    "a bar between": lambda text: text.replace("\n", "\n\r 12%|#2        | 61/500 [00:10<01:11,  6.1it/s]\r\n"),
    "no end of line": lambda text: text.rstrip("\n"),
    "text before": lambda text: "INFO starting\n" * 90 + "a line cut in the mid\n" + text,
}
LONG = {"text before"}  # more of it would push the end out of what is read


@pytest.mark.parametrize("case", SHAPES, ids=[case.path.name for case in SHAPES])
def test_the_root_class_is_the_label(case: Case) -> None:
    verdict = verdict_on(case)
    if set(case.statuses) == {0}:
        assert verdict.rank == -1, verdict.sentence
        return
    assert verdict.cls == case.cls, verdict.sentence
    if case.root_rank:
        assert verdict.rank == int(case.root_rank)
    assert case.retryable in find(verdict.cls).retryable.split("/")
    assert case.node_fault in find(verdict.cls).node_fault.split("/")


def test_every_class_that_text_can_tell_is_among_them() -> None:
    assert {case.cls for case in SHAPES} == set(all_classes()) - KERNEL_ONLY


@pytest.mark.parametrize("change", MUTATIONS.values(), ids=MUTATIONS)
def test_what_says_nothing_changes_nothing(change: Callable[[str], str]) -> None:
    wrong = {}
    for case in EVERY:
        verdict = verdict_on(case, change)
        if f"{verdict.cls} of {verdict.rank}" != ANSWERS[case.path]:
            wrong[case.path.name] = (ANSWERS[case.path], verdict.cls, verdict.line[:80])
    assert not wrong


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(EVERY), st.lists(st.sampled_from(sorted(set(MUTATIONS) - LONG)), max_size=3, unique=True))
def test_several_changes_at_once_change_nothing(case: Case, names: list[str]) -> None:
    def change(text: str) -> str:
        for name in sorted(names, key=BETWEEN.__eq__):  # a prefix that all lines share names the rank: theirs is last
            text = MUTATIONS[name](text)
        return text

    verdict = verdict_on(case, change)
    assert f"{verdict.cls} of {verdict.rank}" == ANSWERS[case.path]


@pytest.mark.parametrize("case", SHAPES, ids=[case.path.name for case in SHAPES])
def test_the_front_may_be_cut_off(case: Case) -> None:
    """Half of what stands before the deciding line goes, and half of the last line of that stays."""
    decided = verdict_on(case)

    def cut(text: str) -> str:
        every = text.split("\n")
        place = next((i for i, line in enumerate(every) if decided.line and decided.line.strip() in line), 0)
        gone, kept = every[: place // 2], every[place // 2 :]
        return "\n".join([gone[-1][len(gone[-1]) // 2 :], *kept]) if gone else text

    verdict = verdict_on(case, cut)
    assert (verdict.cls, verdict.rank) == (decided.cls, decided.rank)
