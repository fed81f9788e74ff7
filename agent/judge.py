"""Joins the judgements: evidence → verdict → what to do → who pays. Pure; called on the leading agent.

The verdict is ``health``'s, the budget ``rendezvous``'s; they meet here as plain values. One failed round is charged
once: the answer goes into the very transaction that ends the round.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..health import exit_map, policy, wire
from ..health.errors import BadEvidence
from ..health.evidence import Fact, Fault, NodeEvidence, RankExit, RoundEvidence
from ..health.exit_map import Action, Mapped
from ..health.loaded import elsewhere
from ..health.observed import REENTRY, Early, Reentry
from ..health.own_signatures import NONE, OwnSignatures
from ..health.reentry import MOST
from ..health.suspicion import suspicion
from ..health.verdict import Verdict, after_notice, judge
from ..rendezvous.budget import Account, Bound, Due, Receipt, pay
from ..rendezvous.gate import NOBODY, Blame
from ..rendezvous.history import entry_of
from ..rendezvous.leader_words import Conclude
from ..rendezvous.records import MAX_PAUSE_S, Memory, Outcome, ResumePoint
from ..rendezvous.suspects import counting
from ..rendezvous.writes import Charge

LAUNCH = "launch"  # beside the names of families: what --max-restarts bounds
SENTENCE = 300  # characters of a sentence in the job record, which every agent reads at every phase


@dataclass(frozen=True, slots=True)
class Allowance:
    """What this launch may spend. ``max_restarts`` None: not bounded by number; ``others`` None: nor such families."""

    max_restarts: int | None
    budget: tuple[Bound, ...]
    others: int | None = None  # bounds each family that the budget does not name
    exit_map: tuple[Mapped, ...] = ()  # what the program's own exit codes mean
    own: OwnSignatures = NONE  # what the site says of lines and XIDs


@dataclass(frozen=True, slots=True)
class Judgement:
    """A round's verdict and what follows from it."""

    evidence: RoundEvidence
    verdict: Verdict
    retry: bool
    reason: str  # why it is retried, free of charge or not; or why not
    family: str  # that pays; '' = free
    refunded: str  # the family that was given a charge back; '' = none
    left: tuple[tuple[str, int], ...]  # what may still be paid for: (the family or LAUNCH, how often)
    charge: Charge
    outcome: Outcome
    wait_s: int = 0  # before the next round forms
    blame: Blame = NOBODY
    suspect: ResumePoint = ResumePoint()  # where it re-entered, if that is to be passed over from now on


def weigh(ask: Conclude, allowance: Allowance, newest_step: int, now: int) -> Judgement:
    """Judge how a round ended, when the wall clock says ``now``.

    ``newest_step`` is that of the newest published checkpoint, -1 without any.
    """
    evidence, job = _evidence(ask), ask.job
    if job.notice:
        return _noticed(ask, evidence, allowance.own)
    if ask.done:
        verdict = Verdict("success", "none", sentence="every rank exited 0")
        same = Charge(job.spent, job.charged, job.memory)
        outcome = Outcome(0, "every rank exited 0")
        return Judgement(evidence, verdict, False, "all ranks are done", "", "", (), same, outcome)
    verdict, before = judge(evidence, allowance.own), job.memory
    mapped = exit_map.meaning(allowance.exit_map, verdict, evidence)
    verdict = verdict if mapped is None else exit_map.reread(verdict, mapped)
    memory = policy.Memory(before.fingerprint, before.step, before.free, before.row, before.backed, before.quick)
    seed = f"{job.launch}/{ask.round}/{verdict.fingerprint}"
    suspect, spared = _suspect(ask, evidence, verdict, newest_step if newest_step > before.step else -1)
    tried = tuple(f"{one.name} (round {one.round})" for one in counting(job.suspects))
    facts = policy.Facts(
        newest_step, job.charged, ask.all_started, _lasted_s(ask), seed, suspect.name or suspect.path, tried
    )
    answer = policy.respond(verdict, memory, policy.Limits(allowance.max_restarts), facts, mapped)
    receipt = Receipt(Account(job.spent, before.family, before.times))
    retry, reason = answer.retry, answer.reason
    if retry and answer.charge:
        due = Due(answer.charge, now, newest_step > before.step)
        receipt = pay(receipt.account, due, allowance.budget, allowance.others)
        if receipt.refused:
            retry, reason = False, receipt.refused
    paid = answer.charge if retry else ""
    charged = job.charged + bool(paid)
    left = _left(paid, receipt, None if allowance.max_restarts is None else allowance.max_restarts - charged)
    reason = "; ".join((reason, *spared, *_last_ones(left, receipt.refunded)))
    kept, (spent, last, times) = answer.memory, receipt.account
    charge = Charge(
        spent,
        charged,
        Memory(kept.fingerprint, kept.step, kept.free, last, kept.row, times, kept.backed, kept.quick),
    )
    said = f"{verdict.sentence}; {reason}"[:SENTENCE]
    outcome = Outcome(answer.exit_code, said, verdict.cls, verdict.node, verdict.rank)
    wait_s = min(answer.wait_s, MAX_PAUSE_S) if retry else 0
    blame = _blame(verdict, mapped, evidence)
    return Judgement(
        evidence, verdict, retry, reason, paid, receipt.refunded, left, charge, outcome, wait_s, blame, suspect
    )


def _suspect(ask: Conclude, evidence: RoundEvidence, verdict: Verdict, saved: int) -> tuple[ResumePoint, list[str]]:
    """Return where the round re-entered, if its end speaks against that; a point without a path if not, and why not.

    That is so when ranks were seen not to go on as before, when they could not load it before any step, and when
    numbers went wrong within their first steps, before they were seen to go on. Who has ``saved`` a newer
    step since the last failure had loaded it, whether it says steps or not.
    """
    found = entry_of(ask.history, ask.round)
    path, name, step = str(found.get("path") or ""), str(found.get("name") or ""), found.get("step")
    if not path or not isinstance(step, int):
        return ResumePoint(), []
    facts = [fact for node in evidence.nodes for fact in node.facts]
    told = [fact for fact in facts if isinstance(fact, Reentry)]
    speaks = any(isinstance(fact, Early) and fact.sign == REENTRY for fact in facts) or any(r.refuted for r in told)
    if not speaks and ask.reentered is None:
        said = max((one.said for one in told), default=-1)
        soon = {"numerical": 0 <= said <= MOST, "checkpoint": said <= 0 and saved <= step}
        speaks = soon.get(verdict.family, False)
        if speaks and (other := _read_elsewhere(evidence, verdict, path)):
            return ResumePoint(), [f"{name or path} is not suspect, as {other}"]
    return ResumePoint(path, step, name=name) if speaks else ResumePoint(), []


def _read_elsewhere(evidence: RoundEvidence, verdict: Verdict, path: str) -> str:
    """Say why what was torn is something else than the checkpoint at ``path``; '' where nothing says so."""
    if verdict.family != "checkpoint":
        return ""
    facts = (fact for node in evidence.nodes if node.node == verdict.node for fact in node.facts)
    ends = (fact for fact in facts if isinstance(fact, RankExit) and fact.rank == verdict.rank)
    return next((why for end in ends if (why := elsewhere(end, verdict.line, path))), "")


def _blame(verdict: Verdict, mapped: Mapped | None, evidence: RoundEvidence) -> Blame:
    """Return which node must be checked before it takes part again, and whether others are taken before it."""
    elsewhere = mapped is not None and mapped.action is Action.ELSEWHERE
    if not verdict.node or not (verdict.node_fault or elsewhere):
        return NOBODY
    aside = elsewhere or verdict.compared or suspicion(verdict, evidence) is True
    return Blame(verdict.node, verdict.node_fault, aside)


def _lasted_s(ask: Conclude) -> float | None:
    """Return how long the round ran, where its leader has seen both ends."""
    formed, stopping = ask.stamps.formed, ask.stamps.stopping
    return None if formed is None or stopping is None else stopping - formed


def spending(made: Judgement, allowance: Allowance) -> str:
    """Say what the job has spent by now, who pays for this round, and what is left."""
    most = "" if allowance.max_restarts is None else f" of {allowance.max_restarts}"
    bounds = {bound.family: bound.text for bound in allowance.budget}
    families = ", ".join(
        f"{family} {n}{f' (--retry-budget {bounds[family]})' if family in bounds else ''}"
        for family, n in made.charge.spent
    )
    said = [f"{made.charge.charged}{most} restarts of this launch"]
    said += [f"over the job's life {families}"] if families else []
    said += [f"charged to {made.family} now"] if made.family else []
    said += [f"{name} {n} left" for name, n in made.left]
    return "; ".join(said)


def _noticed(ask: Conclude, evidence: RoundEvidence, own: OwnSignatures) -> Judgement:
    """End the launch, whatever its ranks made of the notice: a scheduler wanted it, and nobody is to pay for that."""
    job = ask.job
    verdict = after_notice(evidence, job.notice, ask.done, own)
    reason = f"the launch ends here, as {job.notice[:64]} was given notice: not charged, and worth another start"
    said = f"{verdict.sentence}; {reason}"[:SENTENCE]
    outcome = Outcome(policy.REQUEUE, said, verdict.cls, verdict.node, verdict.rank)
    same = Charge(job.spent, job.charged, job.memory)
    return Judgement(evidence, verdict, False, reason, "", "", (), same, outcome)


def _left(paid: str, receipt: Receipt, restarts: int | None) -> tuple[tuple[str, int], ...]:
    """Return what bounds still leave after a charge; nothing after none."""
    found = ((paid, receipt.left), (LAUNCH, restarts)) if paid else ()
    return tuple((name, left) for name, left in found if left is not None)


def _last_ones(left: tuple[tuple[str, int], ...], refunded: str) -> list[str]:
    """Say what is given back, and of what one retry is left or none."""
    said = [f"one retry of family {refunded} is given back for progress"] if refunded else []
    for name, n in left:
        what = "the last restart of this launch" if name == LAUNCH else f"the last retry of family {name}"
        said += [f"this is {what}"] if n == 0 else [f"{what} is left"] if n == 1 else []
    return said


def _evidence(ask: Conclude) -> RoundEvidence:
    nodes = tuple(NodeEvidence(node, _facts(report.value), report.order) for node, report in ask.evidence)
    members = tuple((m.node, m.slots) for m in ask.roster.members)
    cause = ask.job.cause
    admitted = cause.node if cause is not None and cause.kind == "admit" else ""
    return RoundEvidence(ask.round, nodes, members, ask.lost, ask.all_started, admitted)


def _facts(raw: bytes) -> tuple[Fact, ...]:
    try:
        return wire.decode(raw)
    except BadEvidence as error:
        return (Fault(f"its evidence cannot be read: {error}"),)
