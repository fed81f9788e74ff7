"""Names of files → which rank, node, stream and attempt: tables."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuster.health.layout import Kind, Place, natural, places


def found(*paths: str) -> list[Place]:
    return list(places(paths))


@pytest.mark.parametrize(
    ("path", "node", "rank", "local", "stream"),
    [
        ("rank0.log", "", 0, -1, ""),
        ("rank_3.err", "", 3, -1, "stderr"),
        ("train_2026-03-11_rank12_17.log", "", 12, -1, ""),
        ("3/stderr.log", "", -1, 3, "stderr"),
        ("global_rank7.out", "", 7, -1, "stdout"),
        ("node1-rank3.log", "node1", 3, -1, ""),
        ("node1/rank3.log.gz", "node1", 3, -1, ""),
        ("node2/local_rank_5.txt", "node2", -1, 5, ""),
        ("job.8812.task2.err", "", 2, -1, "stderr"),
        ("slurm-8812.out", "", -1, -1, "stdout"),
        ("r2-report.log", "", -1, -1, ""),
        ("log_r2.txt", "", 2, -1, ""),
        ("run_ab12cd34/attempt_2/7/stdout.log", "", -1, 7, "stdout"),
    ],
)
def test_an_output(path: str, node: str, rank: int, local: int, stream: str) -> None:
    (place,) = found(path)
    assert (place.kind, place.node, place.rank, place.local_rank) == (Kind.OUTPUT, node, rank, local)
    assert place.stream == stream


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("dmesg.log", Kind.KERNEL),
        ("node1/kern.log.1", Kind.KERNEL),
        ("journalctl-k.txt", Kind.KERNEL),
        ("demesg-of-mine.log", Kind.OUTPUT),
        ("pids.txt", Kind.PIDS),
        ("x_ab/attempt_0/1/error.json", Kind.ERROR),
        ("x_ab/attempts/attempt-003.json", Kind.RECORD),
        ("events.jsonl", Kind.OTHER),
        ("train.py", Kind.OTHER),
        ("model.safetensors", Kind.OTHER),
        (".hidden", Kind.OTHER),
        ("config.json", Kind.OTHER),
    ],
)
def test_a_kind(path: str, kind: Kind) -> None:
    assert found(path)[0].kind is kind


def test_one_number_that_differs_is_the_rank() -> None:
    assert [place.rank for place in found("slurm-77-10.out", "slurm-77-2.out", "slurm-77-0.out")] == [0, 2, 10]
    assert [place.rank for place in found("a-1.out", "a-1.err", "a-2.out", "a-2.err")] == [1, 1, 2, 2]


def test_two_numbers_that_differ_are_node_and_local_rank() -> None:
    got = found("gpu-7-0.log", "gpu-7-1.log", "gpu-8-0.log", "gpu-8-1.log")
    assert [(place.node, place.local_rank) for place in got] == [
        ("node7", 0), ("node7", 1), ("node8", 0), ("node8", 1)
    ]  # fmt: skip


def test_a_master_is_rank_0_beside_its_workers() -> None:
    got = found("job-master-0.log", "job-worker-0.log", "job-worker-1.log")
    assert [place.rank for place in got] == [0, 1, 2]
    assert [place.rank for place in found("job-worker-0.log", "job-worker-1.log")] == [0, 1]


def test_order_is_that_of_numbers() -> None:
    assert sorted(["rank10", "rank9", "rank1"], key=natural) == ["rank1", "rank9", "rank10"]


@pytest.mark.parametrize("name", ["\u00b2", "x_ab/attempt_0/\u00b2/stderr.log", "\u00b2/a.log", "rank\u0663.log"])
def test_what_python_alone_calls_a_digit_is_a_character(name: str) -> None:
    """Red when ``isdigit`` stands before an ``int``: \u00b2 is one, and no number."""
    assert len(found(name)) == 1


@given(st.lists(st.text(alphabet="ab019/._-rank\u00e9\u00b2\u0663", max_size=40), max_size=8))
def test_any_names_do(names: list[str]) -> None:
    assert len(places(names)) == len(names)
