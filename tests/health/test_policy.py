"""Retry or not, who pays, and the exit code: tables."""

from __future__ import annotations

import pytest

from remuster.health.classes import all_classes, find
from remuster.health.policy import FREE_ROUNDS, Facts, Limits, Memory, Response, exit_code, respond
from remuster.health.verdict import PLANNED, Verdict

NEVER_YET = Memory()


def verdict(
    cls: str,
    *,
    status: int = 1,
    exception: str = "",
    own: bool = True,
    mark: str = "m",
    fault: bool = False,
    alone: bool = False,
) -> Verdict:
    family = "none" if cls in PLANNED else find(cls).family
    return Verdict(
        cls,
        family,
        "a",
        0,
        0,
        status,
        "s",
        exception=exception,
        own_exit=own,
        fingerprint=mark,
        node_fault=fault or alone,
        compared=alone,
    )


def answer(
    v: Verdict,
    *,
    restarts: int | None = 3,
    memory: Memory = NEVER_YET,
    step: int = -1,
    charged: int = 0,
    started: bool = True,
) -> Response:
    return respond(v, memory, Limits(restarts), Facts(step, charged, started))


# (verdict, retry, who pays) with restarts allowed, everything started, nothing remembered
FIRST_TIME = [
    (verdict("success", status=0), False, ""),
    (verdict("user_args", status=2), False, ""),
    (verdict("user_args", exception="ValueError"), False, ""),
    (verdict("user_syntax", exception="SyntaxError"), False, ""),
    (verdict("user_import", exception="ModuleNotFoundError"), False, ""),
    (verdict("user_import", exception="ModuleNotFoundError", alone=True), True, "node"),  # on one node only
    (verdict("env_library_mismatch", exception="ImportError", alone=True), True, "node"),
    (verdict("env_library_mismatch", exception="ImportError"), False, ""),
    (verdict("user_interrupt", status=-2, exception="KeyboardInterrupt"), False, ""),
    (verdict("time_limit", status=143), False, ""),
    (verdict("user_exception", exception="ValueError"), True, "user"),
    (verdict("user_data_error", exception="KeyError"), True, "user"),
    (verdict("user_shape", exception="RuntimeError"), True, "user"),
    (verdict("cuda_oom", exception="OutOfMemoryError"), True, "oom"),
    (verdict("nan_loss", exception="AssertionError"), True, "numerical"),
    (verdict("nan_loss", status=17), False, ""),  # no traceback, and the list says no
    (verdict("rdzv_closed", status=1), False, ""),
    (verdict("resource_limit", status=126), False, ""),
    (verdict("gpu_ecc", exception="RuntimeError"), True, "hardware"),
    (verdict("node_lost", status=0, own=False), True, "node"),
    (verdict("peer_lost"), True, "network"),
    (verdict("rank_hang", status=-15, own=False), True, "hang"),
    (verdict("killed_unknown", status=-9, own=False), True, "unknown"),
    (verdict("exit_unknown", status=7), True, "unknown"),
    (verdict("fs_transient", exception="OSError"), True, "storage"),
    (verdict("disk_full_or_io", exception="OSError"), False, ""),  # as full for the next attempt
    (verdict("disk_full_or_io", exception="OSError", fault=True), True, "storage"),
    (verdict("disk_full_local", exception="OSError"), True, "storage"),
    (verdict("rdzv_lost", own=False), True, "rendezvous"),
    (verdict("port_in_use", exception="RuntimeError"), True, ""),
    (verdict("preempted", status=143), True, ""),
    (verdict("launcher_killed_by_srun", status=143), True, ""),
    (verdict("leave", status=0, own=False), True, ""),
]


@pytest.mark.parametrize(("v", "retry", "charge"), FIRST_TIME, ids=[f"{v.cls}-{v.status}" for v, _, _ in FIRST_TIME])
def test_first_time(v: Verdict, retry: bool, charge: str) -> None:
    response = answer(v)
    assert (response.retry, response.charge) == (retry, charge), response.reason
    assert response.reason
    assert "\n" not in response.reason


@pytest.mark.parametrize(("v", "retry", "charge"), FIRST_TIME, ids=[f"{v.cls}-{v.status}" for v, _, _ in FIRST_TIME])
def test_by_default_nothing_that_costs_is_retried(v: Verdict, retry: bool, charge: str) -> None:
    assert answer(v, restarts=0).retry == (retry and not charge)


def test_max_restarts_bounds_what_is_charged() -> None:
    lost = verdict("node_lost", own=False)
    assert answer(lost, restarts=2, charged=1).retry
    refused = answer(lost, restarts=2, charged=2)
    assert not refused.retry
    assert "--max-restarts 2" in refused.reason
    assert answer(lost, restarts=None, charged=999).retry
    assert answer(verdict("preempted"), restarts=0, charged=9).retry


def test_the_same_failure_without_progress_stops() -> None:
    boom = verdict("user_exception", exception="ValueError", mark="x")
    first = answer(boom, step=100)
    assert first.memory == Memory("x", 100, 0, 1)
    again = answer(boom, memory=first.memory, step=100)
    assert not again.retry
    assert "no newer verified checkpoint" in again.reason
    assert answer(boom, memory=first.memory, step=101).retry, "there was progress"
    other = verdict("user_exception", exception="ValueError", mark="y")
    assert answer(other, memory=first.memory, step=100).retry
    assert answer(other, memory=first.memory, step=100).memory == Memory("y", 100, 0, 2)


def test_checkpoints_that_could_not_be_looked_at_are_no_way_back() -> None:
    kept = answer(verdict("gpu_ecc"), memory=Memory("x", 100, 0, 1), step=-1).memory
    assert kept.step == 100
    assert answer(verdict("gpu_ecc"), memory=kept, step=100).memory.row == 3, "no progress since"


def test_a_row_of_failures_ends_with_progress_and_not_with_what_is_free() -> None:
    memory, rows = NEVER_YET, list[int]()
    for cls, step in (
        ("gpu_ecc", -1), ("gpu_ecc", -1), ("killed_unknown", -1), ("node_lost", -1), ("preempted", -1),
        ("rank_hang", -1), ("gpu_ecc", 50), ("gpu_ecc", 50), ("killed_unknown", 60), ("gpu_ecc", 60),
    ):  # fmt: skip
        memory = answer(verdict(cls, own=False), restarts=None, memory=memory, step=step).memory
        rows.append(memory.row)
    assert rows == [1, 2, 2, 2, 2, 3, 1, 2, 0, 1]


@pytest.mark.parametrize(
    "cls", ["node_lost", "gpu_ecc", "peer_lost", "killed_unknown", "fs_transient", "collective_timeout"]
)
def test_what_came_from_outside_is_never_the_same_again(cls: str) -> None:
    v = verdict(cls, own=False, mark="x")
    assert answer(v, memory=Memory("x", -1, 0)).retry


@pytest.mark.parametrize("cls", ["segfault", "exit_unknown", "gpu_app_fault", "cuda_oom", "ckpt_corrupt"])
def test_what_the_program_does_is(cls: str) -> None:
    v = verdict(cls, exception="E", mark="x")
    assert not answer(v, memory=Memory("x", -1, 0)).retry


@pytest.mark.parametrize(
    ("v", "charge"),
    [
        (verdict("node_lost", own=False), ""),
        (verdict("store_unreachable"), ""),
        (verdict("killed_unknown", status=-9, own=False), ""),
        (verdict("exit_unknown", status=1, own=False), ""),  # a start that was refused
        (verdict("user_exception", exception="ValueError"), "user"),
        (verdict("exit_unknown", status=7), "unknown"),
        (verdict("segfault", status=-11), "unknown"),
    ],
    ids=lambda v: v.cls if isinstance(v, Verdict) else v,
)
def test_before_all_ranks_had_started(v: Verdict, charge: str) -> None:
    response = answer(v, started=False)
    assert (response.retry, response.charge) == (True, charge)


def test_a_script_that_dies_at_once_gets_no_free_retries() -> None:
    memory, rounds = NEVER_YET, 0
    boom = verdict("user_exception", exception="ValueError")
    while (response := answer(boom, memory=memory, started=False, charged=rounds)).retry:
        memory, rounds = response.memory, rounds + 1
    assert rounds == 1


def test_free_rounds_in_a_row_are_counted_and_then_charged() -> None:
    memory, charges = Memory("old", 5), list[str]()
    for _ in range(FREE_ROUNDS + 1):
        response = answer(verdict("leave", own=False), memory=memory, restarts=1)
        assert response.retry
        memory = response.memory
        charges.append(response.charge)
    assert charges == [""] * FREE_ROUNDS + ["rendezvous"]
    assert memory.free == 0
    assert memory.fingerprint == "old", "a charged change of nodes is not the last failure"
    assert not answer(verdict("leave", own=False), memory=Memory(free=FREE_ROUNDS), restarts=0).retry


def test_a_round_ended_for_a_newcomer_costs_nothing_and_changes_nothing() -> None:
    for memory in (Memory(), Memory("mark", 7, FREE_ROUNDS, 3)):
        response = answer(verdict("admit", own=False), memory=memory, restarts=0)
        assert (response.retry, response.charge, response.memory) == (True, "", memory)


def test_a_charged_round_ends_a_row_of_free_ones() -> None:
    assert answer(verdict("node_lost", own=False), memory=Memory(free=3)).memory.free == 0


@pytest.mark.parametrize(
    ("cls", "status", "code"),
    [
        ("success", 0, 0),
        ("user_exception", 1, 1),
        ("user_exception", 42, 42),
        ("user_args", 2, 2),
        ("user_args", 127, 127),
        ("user_interrupt", -2, 130),
        ("user_exception", -6, 134),
        ("killed_unknown", -9, 137),
        ("segfault", -11, 139),
        ("exit_unknown", 69, 1),
        ("exit_unknown", 70, 1),
        ("exit_unknown", 75, 1),
        ("exit_unknown", 255, 255),
        ("exit_unknown", 0, 1),
        ("exit_unknown", 300, 1),
        ("nan_loss", 17, 17),
        ("cuda_oom", 1, 1),
        ("ckpt_corrupt", 1, 1),
        ("gpu_app_fault", 1, 1),
        ("nccl_usage_mismatch", 3, 3),
        ("gpu_ecc", 1, 75),
        ("peer_lost", 1, 75),
        ("node_lost", 0, 75),
        ("fs_transient", 1, 75),
        ("rank_hang", -15, 75),
        ("preempted", 143, 75),
        ("time_limit", 143, 75),
        ("leave", 0, 75),
        ("rdzv_lost", 1, 69),
        ("port_in_use", 1, 69),
    ],
)
def test_exit_codes(cls: str, status: int, code: int) -> None:
    assert exit_code(verdict(cls, status=status)) == code
    assert answer(verdict(cls, status=status)).exit_code == code


def test_every_class_has_an_exit_code() -> None:
    for name in all_classes():
        for status in (-300, -9, 0, 1, 75, 256):
            assert 0 <= exit_code(verdict(name, status=status)) < 256
