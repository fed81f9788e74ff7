"""Who is to blame: tables over rounds of several nodes, and laws over any evidence."""
# ruff: noqa: E501  messages as they are written upstream

from __future__ import annotations

import errno
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from remuster.health.classes import all_classes, families, find
from remuster.health.evidence import (
    AgentDied,
    ErrorFile,
    Fact,
    Fault,
    Fenced,
    GuardianDied,
    Left,
    NodeEvidence,
    RankExit,
    RoundEvidence,
    StartError,
)  # fmt: skip
from remuster.health.fingerprint import fingerprint, normal
from remuster.health.verdict import NOTES, READ_RANKS, judge
from remuster.health.words import advice, cause

TB = "Traceback (most recent call last):\n"
KEY = TB + "KeyError: 'text'"
BOOM = TB + "ValueError: boom"
OOM = TB + "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 7.81 GiB."
ECC = TB + "RuntimeError: CUDA error: uncorrectable ECC error encountered"
REMOTE = (
    TB
    + "torch.distributed.DistBackendError: NCCL error in: x\nncclRemoteError: A call failed possibly due to a network"
)
GLOO = TB + "RuntimeError: [gloo/transport/tcp/pair.cc:537] Connection closed by peer [10.0.3.11]:39001"
GLOO_WAIT = (
    TB
    + "RuntimeError: [gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting 8000ms for recv operation to complete"
)
CONNECT = "torch.distributed.DistNetworkError: The client socket has timed out after 60000ms while trying to connect to (a, 1)."
PORT = "RuntimeError: The server socket has failed to listen on any local network address."
IMPORT = TB + "ModuleNotFoundError: No module named 'flash_attn'"
PREEMPTED = "slurmstepd: error: *** STEP 608.0 ON a CANCELLED AT 2026-03-11T02:06:12 DUE TO PREEMPTION ***"


def watchdog(seq: int, enqueued: int = -1, group: str = "0") -> str:
    text = f"[Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum={seq}, OpType=ALLREDUCE, NumelIn=9)"
    more = f"\n[PG ID 0 PG GUID {group}(default_pg) Rank 0]  failure: last enqueued work: {enqueued}, last completed work: 1"
    return text + (more if enqueued >= 0 else "")


def ended(rank: int, status: int, text: str = "", *, at_s: float = 0.0, stopping: bool = False) -> RankExit:
    return RankExit(rank, rank % 2, 100 + rank, status, at_s or 10.0 + rank, stopping, tail=tuple(text.split("\n")))


def stopped(rank: int, status: int = -15, text: str = "") -> RankExit:
    return ended(rank, status, text, stopping=True)


def round_of(
    *nodes: tuple[Fact, ...], lost: tuple[str, ...] = (), slots: int = 2, started: bool = True
) -> RoundEvidence:
    """Nodes a, b, … in the order in which their words arrived; lost ones are members too."""
    names = [chr(ord("a") + i) for i in range(len(nodes))]
    spoken = tuple(NodeEvidence(name, facts, 10 + i) for i, (name, facts) in enumerate(zip(names, nodes, strict=True)))
    members = tuple((name, slots) for name in [*names, *lost])
    return RoundEvidence(4, spoken, members, lost, started)


# name: (evidence, class, node, rank)
CASES: dict[str, tuple[RoundEvidence, str, str, int]] = {
    "nothing": (round_of(), "exit_unknown", "", -1),
    "all well": (round_of((ended(0, 0), ended(1, 0))), "success", "", -1),
    "one well, one not": (round_of((ended(0, 0), ended(1, 1, KEY))), "user_data_error", "a", 1),
    # m1, B27
    "exception, then abort at teardown": (
        round_of((ended(0, -6, BOOM + "\nterminate called without an active exception"),)), "user_exception", "a", 0),
    # m2, B26
    "the silent rank of two": (round_of((ended(0, 1, GLOO_WAIT), stopped(1))), "rank_hang", "a", 1),
    "the silent rank on another node": (round_of((ended(0, 1, GLOO_WAIT),), (stopped(1),), slots=1), "rank_hang", "b", 1),
    "two silent ranks: nobody is blamed": (
        round_of((ended(0, 1, GLOO_WAIT), stopped(1)), (stopped(2),), slots=2), "collective_timeout", "a", 0),
    "a rank that was done did not hang": (round_of((ended(0, 1, GLOO_WAIT), ended(1, 0))), "collective_timeout", "a", 0),
    "lowest sequence number": (round_of((ended(0, -6, watchdog(9)), ended(1, -6, watchdog(8))), slots=2), "rank_hang", "a", 1),
    "same number, least enqueued": (
        round_of((ended(0, -6, watchdog(9, 12)), ended(1, -6, watchdog(9, 9))), slots=2), "rank_hang", "a", 1),
    "numbers of different groups": (
        round_of((ended(0, -6, watchdog(9, 12, "0")), ended(1, -6, watchdog(8, 9, "1")))), "collective_timeout", "a", 0),
    "accused in monitoredBarrier": (
        round_of((ended(0, 1, TB + "RuntimeError: Ranks 3 failed to pass monitoredBarrier in 10 ms"), stopped(1)),
                 (stopped(2), stopped(3))), "rank_hang", "b", 3),
    # m01: ten minutes earlier, in an except handler, stopped by us
    "an explicit error in a stopped rank beats timeouts": (
        round_of((ended(0, -6, watchdog(9)), stopped(1)), (stopped(2, -15, OOM), stopped(3))), "cuda_oom", "b", 2),
    "a user error in a stopped rank beats victims": (
        round_of((ended(0, 1, GLOO), stopped(1)), (stopped(2, 1, KEY),)), "user_data_error", "b", 2),
    "of explicit errors that of a rank which was not being stopped": (
        round_of((stopped(0, -15, OOM),), (ended(2, 1, ECC),)), "gpu_ecc", "b", 2),
    "but no kill": (round_of((ended(0, -9), stopped(1)), (stopped(2, 1, BOOM),)), "killed_unknown", "a", 0),
    "victims first, the error later": (
        round_of((ended(0, 1, REMOTE), ended(1, 1, GLOO)), (ended(2, -6, KEY), stopped(3))), "user_data_error", "b", 2),
    "only victims": (round_of((ended(0, 1, GLOO),), (ended(2, 1, GLOO),)), "peer_lost", "a", 0),
    "a bare kill among victims": (round_of((ended(0, 1, GLOO), ended(1, -9))), "killed_unknown", "a", 1),
    "a crash among victims": (round_of((ended(0, -6, REMOTE),), (ended(2, -11),)), "segfault", "b", 2),
    "a bare exit among waiters": (round_of((ended(0, -6, watchdog(9)), ended(1, 7))), "exit_unknown", "a", 1),
    "hardware before a general exception": (round_of((ended(0, 1, BOOM),), (ended(2, 1, ECC),)), "gpu_ecc", "b", 2),
    "of two explicit errors the first": (
        round_of((ended(0, 1, OOM, at_s=9), ended(1, 1, ECC, at_s=5)), (ended(2, 1, OOM, at_s=1),)), "gpu_ecc", "a", 1),
    "an exception of its own among waiters": (
        round_of((ended(0, -6, watchdog(9)), ended(1, -6, BOOM + "\n" + watchdog(9))), (ended(2, -6, watchdog(9)),)),
        "user_exception", "a", 1),
    "an exception after its own wait, none behind": (
        round_of((ended(0, -6, watchdog(9)), ended(1, -6, watchdog(9) + "\n" + BOOM)), (ended(2, -6, watchdog(9)),)),
        "user_exception", "a", 1),
    "an exception after its own wait, and another rank behind": (
        round_of((ended(0, -6, watchdog(9)), ended(1, -6, watchdog(9) + "\n" + BOOM)), (ended(2, -6, watchdog(8)),)),
        "rank_hang", "b", 2),
    "an exception after its own wait, and itself behind": (
        round_of((ended(0, -6, watchdog(9)), ended(1, -6, watchdog(8) + "\n" + BOOM)), (ended(2, -6, watchdog(9)),)),
        "user_exception", "a", 1),
    "exceptions of all after their waits": (
        round_of((ended(0, -6, watchdog(9) + "\n" + BOOM), ended(1, -6, watchdog(8) + "\n" + BOOM))), "rank_hang", "a", 1),
    "the port, not those who could not connect": (
        round_of((ended(0, 1, CONNECT),), (ended(2, 1, PORT),)), "port_in_use", "b", 2),
    "the scheduler over what its signals did": (
        round_of((ended(0, 1, BOOM),), (ended(2, 143, PREEMPTED),)), "preempted", "b", 2),
    "lost node over victims": (round_of((ended(0, 1, GLOO), stopped(1)), lost=("z",)), "node_lost", "z", -1),
    "lost node over timeouts": (round_of((ended(0, -6, watchdog(9)),), lost=("z",)), "node_lost", "z", -1),
    "lost node over network errors": (round_of((ended(0, 1, CONNECT),), lost=("z",)), "node_lost", "z", -1),
    "lost node over bare deaths": (round_of((ended(0, -11), ended(1, 1)), lost=("z",)), "node_lost", "z", -1),
    "an explicit error over a lost node": (round_of((ended(0, 1, KEY),), lost=("z",)), "user_data_error", "a", 0),
    "one fenced": (round_of((Fenced(9.0), stopped(0, -9)), (ended(2, 1, GLOO),)), "node_lost", "a", -1),
    "all fenced": (round_of((Fenced(9.0),), (Fenced(9.0),)), "rdzv_lost", "a", -1),
    "guardian": (round_of((GuardianDied(3.0), ended(0, -9)), (ended(2, 1, GLOO),)), "killed_unknown", "a", -1),
    "agent": (round_of((AgentDied(-9),), (ended(2, 1, GLOO),)), "killed_unknown", "a", -1),
    "an agent that failed": (round_of((), (AgentDied(70),)), "node_lost", "b", -1),
    "an agent that crashed": (round_of((), (AgentDied(-11),)), "node_lost", "b", -1),
    "an explicit error over a dead agent": (round_of((AgentDied(-9),), (ended(2, 1, KEY),)), "user_data_error", "b", 2),
    "left": (round_of((Left(15), stopped(0)), (ended(2, 1, GLOO),)), "leave", "a", -1),
    "left by itself": (round_of((Left(0, "Slurm has taken a from job 7"),)), "leave", "a", -1),
    "left before somebody failed": (round_of((Left(15),), (ended(2, 1, KEY),)), "leave", "a", -1),
    "failed before somebody left": (round_of((ended(0, 1, KEY),), (Left(15),)), "user_data_error", "a", 0),
    "failed on the node that left": (round_of((ended(0, 1, KEY), Left(15), stopped(1))), "user_data_error", "a", 0),
    "no program": (round_of((StartError(0, 0, errno.ENOENT, "pyhton"),), (StartError(2, 0, errno.ENOENT, "pyhton"),)),
                   "user_args", "a", 0),
    "no program on one node": (round_of((StartError(0, 0, errno.ENOENT, "/opt/py"),), (stopped(2), stopped(3))),
                               "node_mount_missing", "a", 0),
    "no processes left": (round_of((StartError(0, 0, errno.EAGAIN, "python"),)), "resource_limit", "a", 0),
    "fault of the agent": (round_of((Fault("no log directory: [Errno 28] No space left on device: '/tmp/x'"),)),
                           "disk_full_local", "a", -1),
    "fault of a class": (round_of((Fault("port 29500 is taken", "rdzv_closed"),)), "rdzv_closed", "a", -1),
    "fault of no known class": (round_of((Fault("it is", "no_such_class"),)), "exit_unknown", "a", -1),
    "fault without a sign": (round_of((Fault("the start was refused"),)), "exit_unknown", "a", -1),
}  # fmt: skip


def test_a_round_that_was_ended_for_a_newcomer_has_not_failed() -> None:
    """What ranks cried when their peers were stopped is not what ended it; it is in the record all the same."""
    evidence = round_of((stopped(0, -15), stopped(1, 0)), (ended(2, 1, KEY), ended(3, 1, GLOO)))._replace(admitted="c")
    verdict = judge(evidence)
    assert (verdict.cls, verdict.family, verdict.node, verdict.rank) == ("admit", "none", "c", -1)
    assert verdict.sentence == "the round was ended so that c can join"
    assert any("rank 2 on b" in note for note in verdict.unused)


@pytest.mark.parametrize("name", CASES)
def test_root(name: str) -> None:
    evidence, cls, node, rank = CASES[name]
    verdict = judge(evidence)
    assert (verdict.cls, verdict.node, verdict.rank) == (cls, node, rank), verdict.sentence


@pytest.mark.parametrize("name", CASES)
def test_the_sentence_is_one_line_and_names_all(name: str) -> None:
    verdict = judge(CASES[name][0])
    assert "\n" not in verdict.sentence
    assert not verdict.node or verdict.node in verdict.sentence
    assert verdict.rank < 0 or f"rank {verdict.rank} on {verdict.node}" in verdict.sentence
    assert verdict.family == ("none" if verdict.cls == "leave" else find(verdict.cls).family)


def test_a_sentence() -> None:
    verdict = judge(round_of((ended(0, 1, OOM), ended(1, -6, REMOTE)), (ended(2, 1, GLOO), stopped(3))))
    assert verdict.sentence == (
        "rank 0 on a ended with exit status 1: out of GPU memory: torch.OutOfMemoryError: CUDA out of memory. "
        "Tried to allocate 7.81 GiB."
    )
    assert verdict.victims == (("a", 1, -6), ("b", 2, 1))
    assert verdict.line.startswith("torch.OutOfMemoryError")
    assert (verdict.local_rank, verdict.status, verdict.own_exit, verdict.exception) == (0, 1, True, "OutOfMemoryError")
    assert "1 ranks ended because they were stopped" in verdict.unused


def test_ranks_that_fail_alike_are_no_victims() -> None:
    assert judge(round_of((ended(0, 1, IMPORT), ended(1, 1, IMPORT)))).victims == ()
    assert judge(round_of((ended(0, 7), ended(1, 7)))).victims == ()


def test_words_of_a_start_that_failed() -> None:
    verdict = judge(CASES["no program"][0])
    assert verdict.sentence == "rank 0 on a could not be started: pyhton: No such file or directory"
    assert verdict.status == 127
    assert judge(CASES["no program on one node"][0]).sentence.endswith("(on b it started)")
    assert judge(round_of((StartError(0, 0, errno.EACCES, "./x"),))).status == 126


@pytest.mark.parametrize("text", [IMPORT, TB + "FileNotFoundError: [Errno 2] No such file or directory: '/data/x'"])
def test_only_one_node_of_several(text: str) -> None:
    alone = judge(round_of((ended(0, 1, text), ended(1, 1, text)), (stopped(2), stopped(3))))
    assert alone.node_fault
    assert "seen only on a" in alone.sentence
    everywhere = judge(round_of((ended(0, 1, text),), (ended(2, 1, text),)))
    single = judge(round_of((ended(0, 1, text), stopped(1))))
    assert not everywhere.node_fault
    assert not single.node_fault


def test_own_exit() -> None:
    assert judge(round_of((ended(0, 7),))).own_exit
    assert judge(round_of((ended(0, -11),))).own_exit
    assert not judge(round_of((ended(0, -9),))).own_exit
    assert not judge(round_of((stopped(0, 1, OOM), ended(1, 1, GLOO)))).own_exit


def test_fingerprint_is_the_same_for_other_numbers_ranks_and_paths() -> None:
    def mark(rank: int, pid: int, path: str) -> str:
        text = f'{TB}  File "/w/train.py", line {pid}, in step\nRuntimeError: [rank{rank}]: block 0x{pid:x} of {path} took {pid}.5 s'
        return judge(round_of((ended(rank, 1, text),), slots=8)).fingerprint

    assert mark(0, 71, "/tmp/tmpa1b2/x") == mark(5, 9900, "/tmp/torch_q/y")
    assert mark(0, 71, "/data/a") != mark(0, 71, "/data/b")
    assert judge(round_of((ended(0, 7),))).fingerprint == judge(round_of((ended(0, 0), ended(1, 7)))).fingerprint
    assert judge(round_of((ended(0, 7),))).fingerprint != judge(round_of((ended(0, 8),))).fingerprint
    assert normal("job 3f2504e0-4f89-41d3-9a0c-0305e82c3301 at 10.0.0.1") == "job # at #.#.#.#"
    assert len(fingerprint("c", "E", "f", "x" * 10**6)) < 40


def test_many_ranks_are_judged_in_bounded_time_and_the_unread_are_never_the_root() -> None:
    slots = 8
    nodes = tuple(
        NodeEvidence(f"n{i:03}", tuple(ended(i * slots + j, -6, watchdog(9)) for j in range(slots)), i)
        for i in range(80)
    )
    evidence = RoundEvidence(1, nodes, tuple((node.node, slots) for node in nodes))
    verdict = judge(evidence)
    assert verdict.cls == "collective_timeout"
    assert any(f"{80 * slots - READ_RANKS} ranks were not read" in note or "more" in note for note in verdict.unused)
    assert len(verdict.unused) <= NOTES + 2


# --- laws -------------------------------------------------------------------------------------------------------------
TEXTS = [
    KEY,
    BOOM,
    OOM,
    ECC,
    REMOTE,
    GLOO,
    GLOO_WAIT,
    CONNECT,
    PORT,
    IMPORT,
    PREEMPTED,
    watchdog(9),
    watchdog(8, 9),
    "",
]
statuses = st.sampled_from([0, 1, 2, 7, -6, -9, -11, -15, 137, 255]) | st.integers(-70, 260)
ends = st.builds(
    RankExit,
    st.integers(0, 12),
    st.integers(0, 3),
    st.integers(1, 99),
    statuses,
    st.floats(0, 99),
    st.booleans(),
    st.none() | st.builds(ErrorFile, st.sampled_from(TEXTS) | st.text(max_size=40), st.just("")),
    st.sampled_from(TEXTS).map(lambda text: tuple(text.split("\n"))) | st.lists(st.text(max_size=30)).map(tuple),
)
some_facts = st.one_of(
    ends,
    st.builds(StartError, st.integers(0, 9), st.integers(0, 3), st.sampled_from([2, 13, 24, 999]), st.text(max_size=9)),
    st.builds(Fenced, st.floats(0, 9)),
    st.builds(GuardianDied, st.floats(0, 9)),
    st.builds(AgentDied, st.integers(-70, 300)),
    st.builds(Left, st.integers(0, 64), st.text(max_size=30)),
    st.builds(Fault, st.text(max_size=30)),
)
rounds = st.builds(
    lambda facts, orders, lost: RoundEvidence(
        2,
        tuple(NodeEvidence(f"n{i}", tuple(f), o) for i, (f, o) in enumerate(zip(facts, orders, strict=False))),
        (*((f"n{i}", 2) for i in range(len(facts))), *((name, 2) for name in lost)),
        tuple(lost),
    ),
    st.lists(st.lists(some_facts, max_size=4), max_size=4),
    st.lists(st.integers(0, 3), min_size=4, max_size=4),
    st.lists(st.sampled_from(["x", "y"]), unique=True, max_size=2),
)


@settings(max_examples=300, deadline=None)
@given(rounds, st.randoms(use_true_random=False))
def test_judge_is_total_deterministic_and_blind_to_node_order(evidence: RoundEvidence, rnd: random.Random) -> None:
    verdict = judge(evidence)
    shuffled = list(evidence.nodes)
    rnd.shuffle(shuffled)
    assert judge(evidence._replace(nodes=tuple(shuffled))) == verdict
    assert verdict.cls in all_classes() or verdict.cls == "leave"
    assert "\n" not in verdict.sentence
    assert verdict.sentence


@settings(max_examples=200, deadline=None)
@given(rounds)
def test_who_ended_well_or_was_stopped_without_words_is_never_blamed_for_an_exit(evidence: RoundEvidence) -> None:
    verdict = judge(evidence)
    by_place = {(n.node, f.rank): f for n in evidence.nodes for f in n.facts if isinstance(f, RankExit)}
    for node, rank, status in verdict.victims:
        assert status != 0
        assert (node, rank) in by_place
    if verdict.cls != "rank_hang" and (verdict.node, verdict.rank) in by_place:
        assert verdict.status != 0


def test_every_class_has_words() -> None:
    for name in [*all_classes(), "leave"]:
        assert cause(name)
        assert not cause(name).endswith(".")
        assert advice(name) or name in ("success", "leave", "user_interrupt")
    assert "none" not in families()
    assert len(families()) == 14
