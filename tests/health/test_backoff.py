"""How long the next try waits: tables over the data, and what the policy makes of rows of failures."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuster.health.backoff import CAP_S, JITTER, STORM, Rows, next_try_s
from remuster.health.classes import all_classes, find
from remuster.health.policy import Facts, Limits, Memory, Response, respond
from remuster.health.verdict import PLANNED, Verdict

NOTHING_YET = Memory()


def answer(cls: str, memory: Memory = NOTHING_YET, *, step: int = -1, lasted_s: float | None = 300.0) -> Response:
    family = "none" if cls in PLANNED else find(cls).family
    verdict = Verdict(cls, family, "a", 0, 0, 1, "s", own_exit=True, fingerprint=str(memory))
    return respond(verdict, memory, Limits(None), Facts(step, 99, True, lasted_s, "seed"))


def row(cls: str, count: int, lasted_s: float = 300.0) -> list[int]:
    """Return how long each of ``count`` failures in a row makes the next try wait."""
    memory, out = Memory(), list[int]()
    for _ in range(count):
        response = answer(cls, memory, lasted_s=lasted_s)
        memory = response.memory
        out.append(response.wait_s)
    return out


def within(wait_s: int, middle_s: float) -> bool:
    return middle_s * (1 - JITTER) - 0.5 <= wait_s <= middle_s * (1 + JITTER) + 0.5


@pytest.mark.parametrize("cls", ["fs_transient", "external_service", "dns_failure"])
def test_what_says_back_off_waits_from_its_first_failure_and_longer_each_time(cls: str) -> None:
    found = row(cls, 9)
    assert all(within(wait, min(5 * 2**i, CAP_S)) for i, wait in enumerate(found)), found
    assert found[-1] >= CAP_S * (1 - JITTER)


@pytest.mark.parametrize("cls", ["peer_lost", "nccl_remote_error", "store_unreachable", "fs_mount_lost"])
def test_others_of_these_families_go_on_at_once_the_first_time(cls: str) -> None:
    """One broken link is mostly the cascade of something that is over; a second one is not."""
    found = row(cls, 4)
    assert found[0] == 0
    assert all(within(wait, 5 * 2**i) for i, wait in enumerate(found[1:])), found


def test_progress_and_other_families_end_a_row() -> None:
    memory = answer("fs_transient", Memory(step=5, backed=6), step=5).memory
    assert memory.backed == 7
    progress = answer("fs_transient", memory, step=6)
    assert (progress.memory.backed, within(progress.wait_s, 5)) == (1, True)
    assert answer("gpu_lost", memory, step=5).memory.backed == 0


@pytest.mark.parametrize("cls", ["killed_unknown", "node_lost", "gpu_lost", "port_in_use", "rank_hang"])
def test_a_storm_of_any_family_is_slowed_down(cls: str) -> None:
    assert row(cls, 6, lasted_s=12.0)[:2] == [0, 0], "none of these ran so short"
    found = row(cls, 8, lasted_s=3.0)
    assert found[: STORM - 1].count(0) >= 2
    assert all(wait >= 2 for wait in found[STORM - 1 :]), found
    assert max(found[: STORM - 1]) <= 2, "the crash loop's own pause is shorter"


@pytest.mark.parametrize("lasted_s", [12.0, 600.0])
def test_a_round_that_ran_a_while_ends_a_storm(lasted_s: float) -> None:
    assert answer("killed_unknown", Memory(quick=9), lasted_s=lasted_s).memory.quick == 0
    assert answer("killed_unknown", Memory(quick=9), lasted_s=None).memory.quick == 9, "nobody saw how long it ran"
    assert answer("killed_unknown", Memory(step=1, quick=9), step=2, lasted_s=1.0).memory.quick == 0


@pytest.mark.parametrize("cls", ["leave", "admit"])
@pytest.mark.parametrize("free", [0, 4, 5, 9])
def test_what_is_planned_never_waits(cls: str, free: int) -> None:
    memory = Memory(free=free, row=9, backed=9, quick=9)
    response = answer(cls, memory, lasted_s=1.0)
    assert (response.retry, response.wait_s, response.memory.quick) == (True, 0, 9)


def test_a_crash_loop_is_slowed_down_as_well() -> None:
    assert row("user_data_error", 1) == [0]
    waits = [next_try_s("user", "one retry", Rows(0, 0, n), "x") for n in range(11)]
    assert waits == [0, 0, 0, 1, 2, 4, 8, 16, 32, 60, 60]


def test_the_wait_is_said() -> None:
    response = answer("fs_transient")
    assert response.reason == f"fs_transient: worth another try, charged to storage; next try in {response.wait_s} s"
    assert "next try" not in answer("gpu_lost").reason
    stop = respond(Verdict("fs_transient", "storage", "a"), Memory(), Limits(0), Facts(seed="seed"))
    assert (stop.retry, stop.wait_s) == (False, 0)


def test_jobs_that_failed_together_come_apart() -> None:
    waits = {next_try_s("storage", "retry with back-off", Rows(5, 0, 0), f"launch-{i}/3/x") for i in range(64)}
    assert len(waits) > 30


FAMILIES = st.sampled_from(sorted({c.family for c in all_classes().values()}))
ACTIONS = st.sampled_from(sorted({c.action for c in all_classes().values()}))
COUNT = st.integers(0, 2**63)


@given(FAMILIES, ACTIONS, st.builds(Rows, COUNT, COUNT, COUNT), st.text())
def test_it_is_bounded_and_the_same_for_the_same_facts(family: str, action: str, rows: Rows, seed: str) -> None:
    wait = next_try_s(family, action, rows, seed)
    assert 0 <= wait <= CAP_S * (1 + JITTER)
    assert wait == next_try_s(family, action, rows, seed)
    assert next_try_s(family, action, Rows(0, 0, 0), seed) == 0
