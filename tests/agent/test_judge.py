"""One failed round through all judgements: what it costs, what comes back, and what a person is told."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from remuster.agent.judge import Allowance, Judgement, weigh
from remuster.health import wire
from remuster.health.evidence import Fact, RankExit
from remuster.health.observed import REENTRY, Early, Reentry
from remuster.rendezvous.budget import OTHERS, parse
from remuster.rendezvous.gate import Blame
from remuster.rendezvous.leader_words import Conclude, Stamps
from remuster.rendezvous.records import (
    Cause,
    Incarnation,
    Job,
    Member,
    Memory,
    NodeId,
    Paid,
    Phase,
    Roster,
    Round,
    Suspect,
)
from remuster.rendezvous.reentered import Reentered
from remuster.rendezvous.snapshot import Report

NOW = 1_795_951_311
A = NodeId("a")
ROSTER = Roster(Round(3), (Member(A, Incarnation(7), "m", 1, "10.0.0.1"),))
JOB = Job(Phase.STOPPING, Round(3), 1, 1, "one", formed=Round(3))
FAMILIES = ("hardware", "node", "storage", "unknown", "user")
ECC = "RuntimeError: CUDA error: uncorrectable ECC error encountered"


def ended(job: Job, words: str, status: int = 1, mark: str = "") -> Conclude:
    tail = ("Traceback (most recent call last):", f'  File "/t.py", line 3, in step{mark}', words) if words else ()
    facts = wire.encode((RankExit(0, 0, 4711, status, 9.0, tail=tail),))
    return Conclude(Round(3), job, ROSTER, ((A, Report(facts, 5)),), (), True, False, (), Stamps(), "round 3 ended")


def story(allowance: Allowance, *failures: tuple[str, int, int]) -> list[Judgement]:
    """Play failures of one job: (last words, newest step, seconds since the start)."""
    job, out = JOB, list[Judgement]()
    for i, (words, step, after_s) in enumerate(failures):
        made = weigh(ended(job, words, mark=str(i)), allowance, step, NOW + after_s)
        out.append(made)
        job = replace(job, spent=made.charge.spent, charged=made.charge.charged, memory=made.charge.memory)
    return out


def test_the_last_retries_are_announced() -> None:
    made = story(Allowance(3, parse("hardware=5", FAMILIES)), *[(ECC, -1, 0)] * 4)
    assert [one.retry for one in made] == [True, True, True, False]
    assert [dict(one.left) for one in made] == [
        {"hardware": 4, "launch": 2},
        {"hardware": 3, "launch": 1},
        {"hardware": 2, "launch": 0},
        {},
    ]
    assert "last" not in made[0].reason
    assert made[1].reason.endswith("; the last restart of this launch is left")
    assert made[2].reason.endswith("; this is the last restart of this launch")
    assert made[3].reason == "all 3 restarts of this launch are used up (--max-restarts 3)"
    made = story(Allowance(None, parse("hardware=2", FAMILIES)), *[(ECC, -1, 0)] * 3)
    assert made[0].reason.endswith("; the last retry of family hardware is left")
    assert made[1].reason.endswith("; this is the last retry of family hardware")
    assert "the budget of family hardware is spent: 2 of 2 retries" in made[2].outcome.sentence


def test_progress_gives_back_to_the_family_and_not_to_the_launch() -> None:
    made = story(Allowance(4, parse("hardware=1", FAMILIES)), *((ECC, step, 0) for step in (10, 20, 30, 30)))
    assert [one.retry for one in made] == [True, True, True, False]
    assert [one.refunded for one in made] == ["", "hardware", "hardware", ""]
    assert "one retry of family hardware is given back for progress" in made[1].reason
    assert made[2].charge.spent == (("hardware", 1),)
    assert made[2].charge.charged == 3, "a launch's own bound is torchrun's: it counts every restart"
    assert [one.retry for one in story(Allowance(2, ()), *((ECC, step, 0) for step in (10, 20, 30)))] == [1, 1, 0]


def test_a_directory_that_cannot_be_read_earns_nothing() -> None:
    made = story(Allowance(None, parse("hardware=2", FAMILIES)), *((ECC, step, 0) for step in (10, -1, 10)))
    assert [one.refunded for one in made] == ["", "", ""]
    assert [one.retry for one in made] == [True, True, False]


def test_a_window_is_paid_by_the_clock_of_the_event() -> None:
    allowance = Allowance(None, parse("hardware=2/1h", FAMILIES))
    made = story(allowance, (ECC, 1, 0), (ECC, 2, 60), (ECC, 3, 120), (ECC, 4, -9999), (ECC, 5, 3600))
    assert [one.retry for one in made] == [True, True, False, False, True]
    assert made[1].charge.memory.times == (Paid("hardware", (NOW, NOW + 60)),)
    assert "within 1h (--retry-budget hardware=2/1h); the next is allowed in 58m" in made[2].reason
    assert made[2].charge.memory.times == made[1].charge.memory.times


def test_what_one_node_alone_shows_is_tried_without_it_and_paid_for_by_node() -> None:
    """Also where the user's own errors get no retry; the same again, elsewhere, is the program's and ends the job."""
    import_error = "ModuleNotFoundError: No module named 'flash_attn'"
    two = Roster(Round(3), (*ROSTER.members, Member(NodeId("b"), Incarnation(8), "n", 1, "10.0.0.2")))
    stopped = wire.encode((RankExit(1, 0, 4712, -15, 9.1, stopping=True),))
    ask = ended(JOB, import_error)
    ask = ask._replace(roster=two, evidence=(*ask.evidence, (NodeId("b"), Report(stopped, 6))))
    made = weigh(ask, Allowance(3, parse("user=0", FAMILIES)), -1, NOW)
    assert (made.retry, made.family, made.blame) == (True, "node", Blame("a", check=True, aside=True))
    job = replace(JOB, spent=made.charge.spent, charged=1, memory=made.charge.memory)
    again = weigh(ask._replace(job=job), Allowance(3, parse("user=0", FAMILIES)), -1, NOW)
    assert not again.retry
    assert again.reason.startswith("the same failure again")


def test_families_that_the_budget_does_not_name() -> None:
    failures = [(f"{kind}: x", -1, 0) for kind in ("ValueError", "KeyError", "TypeError", "IndexError")]
    alone = story(Allowance(None, parse("hardware=9", FAMILIES), OTHERS), *failures)
    assert sum(one.retry for one in alone) == OTHERS
    assert "family user is spent: 3 of 3" in alone[OTHERS].reason


def test_a_full_disk_is_not_tried_again() -> None:
    (made,) = story(Allowance(None, ()), ("OSError: [Errno 28] No space left on device: '/shared/out'", 5, 0))
    assert (made.verdict.cls, made.retry) == ("disk_full_or_io", False)
    assert made.outcome.exit_code == 75


@pytest.mark.parametrize("memory", [Memory("x", 7, 2, "node", 3, (Paid("node", (NOW,)),))])
def test_what_is_done_or_free_pays_nothing_and_forgets_nothing(memory: Memory) -> None:
    job = replace(JOB, spent=(("node", 1),), charged=1, memory=memory)
    done = weigh(ended(job, "", 0)._replace(done=True), Allowance(3, ()), 99, NOW)
    assert (done.charge.spent, done.charge.charged, done.charge.memory) == (job.spent, 1, memory)
    joins = replace(job, cause=Cause("admit", "b", 8))  # a round that was ended for a newcomer
    admit = weigh(ended(joins, "ValueError: its peers were stopped"), Allowance(0, ()), 7, NOW)
    assert (admit.verdict.cls, admit.retry, admit.family, admit.charge.charged) == ("admit", True, "", 1)
    assert admit.charge.memory == memory
    later = weigh(ended(joins, "ValueError: its peers were stopped"), Allowance(0, ()), 99, NOW)
    assert later.charge.memory == memory._replace(row=0), "progress ends a row of failures"
    free = weigh(ended(job, "", 0)._replace(all_started=False, lost=(A,), evidence=()), Allowance(0, ()), 99, NOW)
    assert (free.retry, free.family, free.left, free.refunded) == (True, "", (), "")
    assert free.charge.memory == memory._replace(free=3)


@pytest.mark.parametrize(
    ("ask", "cls", "sentence"),
    [
        (ended(JOB, "", 0)._replace(done=True, evidence=()), "notice", "b was given notice of a stop, and every rank"),
        (ended(JOB, "", 0), "notice", "b was given notice of a stop, and every rank exited 0"),
        (ended(JOB, ECC), "gpu_ecc", "rank 0 on a ended with exit status 1"),
    ],
    ids=["all ended well", "stopped, and ended well", "failed"],
)
def test_after_a_notice_nothing_is_retried_or_paid_for(ask: Conclude, cls: str, sentence: str) -> None:
    job = replace(JOB, notice="b", spent=(("hardware", 1),), charged=1)
    made = weigh(ask._replace(job=job), Allowance(9, ()), 7, NOW)
    assert (made.retry, made.family, made.charge.spent, made.charge.charged) == (False, "", job.spent, 1)
    assert (made.outcome.exit_code, made.verdict.cls) == (75, cls)
    assert made.verdict.sentence.startswith(sentence)
    assert made.outcome.sentence.endswith("as b was given notice: not charged, and worth another start")


# --- rounds that had resumed ------------------------------------------------------------------------------------------
NAN = "RuntimeError: loss is nan"
CHOSEN = json.dumps({"path": "/c/step-150", "name": "step-150", "step": 150, "refused": []}).encode()
ASTRAY = Early(0, 8.0, "rank 0 said step 1 first: it does not go on from checkpoint step-150 (step 150)", REENTRY)
STOPPED = RankExit(0, 0, 4711, -15, 9.0, stopping=True)


def resumed(*facts: Fact, job: Job = JOB, said: Reentered | None = None) -> Conclude:
    """Return the end of a round that had re-entered from step 150."""
    ask = ended(job, "")._replace(evidence=((A, Report(wire.encode(facts), 5)),))
    return ask._replace(history=((Round(3), CHOSEN),), reentered=said)


def failed(words: str) -> RankExit:
    trace = ("Traceback (most recent call last):", '  File "/t.py", line 3, in step', words)
    return RankExit(0, 0, 4711, 1, 9.0, tail=trace)


def test_ranks_that_do_not_go_on_speak_against_their_checkpoint_once() -> None:
    made = weigh(resumed(ASTRAY, STOPPED), Allowance(3, ()), 150, NOW)
    assert (made.verdict.cls, made.verdict.family, made.retry, made.family) == (
        *("ckpt_corrupt", "checkpoint", True, "checkpoint"),
    )
    assert made.verdict.sentence.endswith(ASTRAY.why)
    assert (made.suspect.name, made.suspect.step) == ("step-150", 150)
    assert made.reason.startswith(
        "step-150 is suspect: the next older checkpoint is tried, once, charged to checkpoint"
    )
    again = replace(JOB, suspects=(Suspect("step-200", 200, 2),))
    made = weigh(resumed(ASTRAY, STOPPED, job=again), Allowance(3, ()), 150, NOW)
    assert (made.retry, made.outcome.exit_code, made.suspect.name) == (False, 1, "step-150")
    assert made.reason == (
        "step-200 (round 2) had been given up before, and the older step-150 is no better: the fault lies elsewhere"
    )
    settled = replace(JOB, suspects=(Suspect("step-200", -1, 0),))
    assert weigh(resumed(ASTRAY, STOPPED, job=settled), Allowance(3, ()), 150, NOW).retry


def test_the_older_checkpoint_is_tried_within_the_budget() -> None:
    made = weigh(resumed(ASTRAY, STOPPED), Allowance(0, ()), 150, NOW)
    assert (made.retry, made.suspect.name) == (False, "step-150")
    made = weigh(resumed(ASTRAY, STOPPED), Allowance(None, parse("checkpoint=0", ("checkpoint",))), 150, NOW)
    assert not made.retry


@pytest.mark.parametrize(
    ("steps", "said", "suspect"),
    [
        (0, None, True),
        (20, None, True),
        (21, None, False),  # it had gone on well
        (10, Reentered(5, "steps, loss"), False),
        (-1, None, False),  # nobody says how far it had come
        (None, None, False),
    ],
)
def test_numbers_that_go_wrong_soon_speak_against_the_checkpoint(
    steps: int | None, said: Reentered | None, suspect: bool
) -> None:
    so_far = (Reentry(0, steps),) if steps is not None else ()
    before = replace(
        JOB, memory=Memory(weigh(resumed(failed(NAN)), Allowance(3, ()), 150, NOW).verdict.fingerprint, 150)
    )
    made = weigh(resumed(failed(NAN), *so_far, job=before, said=said), Allowance(3, ()), 150, NOW)
    assert made.verdict.cls == "nan_loss"
    assert (made.suspect.name, made.retry) == (("step-150", True) if suspect else ("", False))


@pytest.mark.parametrize(("steps", "suspect"), [(-1, True), (0, True), (1, False)])
def test_a_checkpoint_that_cannot_be_loaded_is_suspect_whether_ranks_say_steps_or_not(
    steps: int, suspect: bool
) -> None:
    """Behind a first step it may be anything that was read, or the one that was being saved."""
    torn = "RuntimeError: PytorchStreamReader failed reading zip archive: failed finding central directory"
    made = weigh(resumed(failed(torn), Reentry(0, steps)), Allowance(3, ()), 150, NOW)
    assert (made.verdict.cls, made.retry, made.suspect.name) == ("ckpt_corrupt", True, "step-150" if suspect else "")


def test_who_has_saved_since_had_loaded_it() -> None:
    """A silent script runs for hours and then finds something else torn: nothing that it saved is given up."""
    torn = "RuntimeError: PytorchStreamReader failed reading zip archive: failed finding central directory"
    seen = replace(JOB, memory=Memory(step=150))
    made = weigh(resumed(failed(torn), Reentry(0, -1), job=seen), Allowance(3, ()), 900, NOW)
    assert (made.verdict.cls, made.retry, made.suspect.name) == ("ckpt_corrupt", True, "")
    seen = replace(JOB, memory=Memory(step=900))  # newer ones were there before, and passed over
    made = weigh(resumed(failed(torn), Reentry(0, -1), job=seen), Allowance(3, ()), 900, NOW)
    assert made.suspect.name == "step-150"


TORN = "EOFError: Ran out of input"


@pytest.mark.parametrize(
    ("call", "words", "spared"),
    [
        ("load_checkpoint", TORN, ""),
        ("step", TORN, ""),
        ("step", "RuntimeError: unexpected EOF, expected 8 more bytes: /c/step-150/model.pt", ""),
        ("build_dataset", "RuntimeError: unexpected EOF, expected 8 more bytes: /c/step-150/model.pt", ""),
        ("build_dataset", TORN, "the error was raised in t.py:build_dataset"),
        ("step", "_pickle.UnpicklingError: Failed to interpret file '/d/tokens.npy' as a pickle", "'/d/tokens.npy'"),
    ],
)
def test_what_was_torn_must_be_the_checkpoint(call: str, words: str, spared: str) -> None:
    """A data cache that is torn would cost a good checkpoint, and the next older one as well."""
    trace = ("Traceback (most recent call last):", f'  File "/t.py", line 3, in {call}', words)
    later = ("Traceback (most recent call last):", '  File "/t.py", line 3, in build_dataset', TORN)
    other = RankExit(1, 1, 4712, 1, 9.5, tail=later)
    ask = resumed(RankExit(0, 0, 4711, 1, 9.0, tail=trace), other, Reentry(0, 0))
    made = weigh(ask, Allowance(3, ()), 150, NOW)
    assert (made.verdict.cls, made.retry, made.family) == ("ckpt_corrupt", True, "checkpoint")
    assert made.suspect.name == ("" if spared else "step-150")
    assert ("step-150 is not suspect, as the error" in made.reason) == bool(spared)
    assert spared in made.reason


def test_ranks_that_did_not_go_on_speak_against_it_whatever_was_torn_then() -> None:
    trace = ("Traceback (most recent call last):", '  File "/t.py", line 3, in build_dataset', TORN)
    ask = resumed(RankExit(0, 0, 4711, 1, 9.0, tail=trace), Reentry(0, 5, True, "rank 0 said step 1 first"))
    made = weigh(ask, Allowance(3, ()), 150, NOW)
    assert made.suspect.name == "step-150"
    assert "not suspect" not in made.reason


def test_what_else_ends_a_round_that_had_resumed_speaks_against_nothing() -> None:
    made = weigh(resumed(failed(ECC), Reentry(0, 2)), Allowance(3, ()), 150, NOW)
    assert made.suspect.path == ""
    made = weigh(resumed(failed(ECC), Reentry(0, 5, True, "rank 0 said step 1 first")), Allowance(3, ()), 150, NOW)
    assert (made.verdict.family, made.suspect.step) == ("hardware", 150), "but that its ranks were seen to be elsewhere"
    assert weigh(ended(JOB, NAN), Allowance(3, ()), -1, NOW).suspect.path == "", "it had started from nothing"
