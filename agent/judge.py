"""Joins the judgements: evidence → verdict → what to do → who pays. Pure; called on the leading agent.

The verdict is ``health``'s, the budget ``rendezvous``'s; they meet here as plain values. One failed round is charged
once: the answer goes into the very transaction that ends the round.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..health import policy, wire
from ..health.errors import BadEvidence
from ..health.evidence import Fact, Fault, NodeEvidence, RoundEvidence
from ..health.verdict import Verdict, judge
from ..rendezvous.budget import Counts, charge
from ..rendezvous.leader import Conclude
from ..rendezvous.records import Memory, Outcome
from ..rendezvous.writes import Charge

SENTENCE = 300  # characters of a sentence in the job record, which stays below 1 KB


@dataclass(frozen=True, slots=True)
class Allowance:
    """What this launch may spend. ``max_restarts`` None: not bounded by number."""

    max_restarts: int | None
    budget: Counts


@dataclass(frozen=True, slots=True)
class Judgement:
    """A round's verdict and what follows from it."""

    evidence: RoundEvidence
    verdict: Verdict
    retry: bool
    reason: str  # why it is retried, free of charge or not; or why not
    family: str  # that pays; '' = free
    charge: Charge
    outcome: Outcome


def weigh(ask: Conclude, allowance: Allowance, newest_step: int) -> Judgement:
    """Judge how a round ended; ``newest_step`` is that of the newest committed checkpoint, -1 without any."""
    evidence = _evidence(ask)
    job = ask.job
    if ask.done:
        verdict = Verdict("success", "none", sentence="every rank exited 0")
        same = Charge(job.spent, job.charged, job.memory)
        return Judgement(evidence, verdict, False, "all ranks are done", "", same, Outcome(0, "every rank exited 0"))
    verdict = judge(evidence)
    memory = policy.Memory(job.memory.fingerprint, job.memory.step, job.memory.free)
    facts = policy.Facts(newest_step, job.charged, ask.all_started)
    answer = policy.respond(verdict, memory, policy.Limits(allowance.max_restarts), facts)
    retry, reason, spent = answer.retry, answer.reason, job.spent
    if retry and answer.charge:
        spent, refused = charge(job.spent, answer.charge, allowance.budget)
        if refused is not None:
            retry, reason = False, refused
    paid = retry and bool(answer.charge)
    kept = Memory(answer.memory.fingerprint, answer.memory.step, answer.memory.free)
    return Judgement(
        evidence,
        verdict,
        retry,
        reason,
        answer.charge if paid else "",
        Charge(spent, job.charged + paid, kept),
        Outcome(answer.exit_code, f"{verdict.sentence}; {reason}"[:SENTENCE], verdict.cls, verdict.node, verdict.rank),
    )


def _evidence(ask: Conclude) -> RoundEvidence:
    nodes = tuple(NodeEvidence(node, _facts(report.value), report.order) for node, report in ask.evidence)
    members = tuple((m.node, m.slots) for m in ask.roster.members)
    return RoundEvidence(ask.round, nodes, members, ask.lost, ask.all_started)


def _facts(raw: bytes) -> tuple[Fact, ...]:
    try:
        return wire.decode(raw)
    except BadEvidence as error:
        return (Fault(f"its evidence cannot be read: {error}"),)
