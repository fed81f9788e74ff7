"""The job machine's part about re-entry: has a round that resumed recovered? Pure.

Called by ``leader.py`` in R(n). Recovered is more than started: every member has said that its ranks go on from the
checkpoint as they should, and the first newer checkpoint has been verified. Nothing of it is written into the store but
the members' reports, so a leader that takes over comes to the same, and verifies for itself.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from .leader_state import Decision, Leader
from .leader_words import ProofSeen, Prove
from .records import Roster, Round
from .reentered import Reentered, together
from .writes import Seen


class Proof(NamedTuple):
    """Where the proof of a round stands; ``step`` is that of the checkpoint that was verified, None until then."""

    round: Round
    pending: bool = True  # an answer is on its way
    looks: int = 0  # that found none
    step: int | None = None


def said_together(s: Leader, roster: Roster) -> Reentered | None:
    """Return what all members say of the re-entry; None when one of them has said nothing yet."""
    reports = s.view.reports("reentered", roster.round)
    found = (reports.get(m.who) for m in roster.members)
    return together(None if report is None else report.value for report in found)


def prove(s: Leader, seen: Seen, roster: Roster) -> Decision:
    """Have a first newer checkpoint looked for once all members' steps agree."""
    n, point, proof = seen.job.round, seen.job.resume, s.proof
    if point is None or not point.path:
        return s, ()
    if proof is not None and proof.round == n and (proof.pending or proof.step is not None):
        return s, ()
    said = said_together(s, roster)
    if said is None:
        return s, ()
    looks = proof.looks if proof is not None and proof.round == n else 0
    why = f"round {n}: {said.steps} steps after step {point.step} agree ({said.by}); the next checkpoint is awaited"
    ask = Prove(n, seen.job.attempt, roster.world_size, point.step, said, s.view.history(), looks, why)
    return replace(s, proof=Proof(n, looks=looks)), (ask,)


def recovered(s: Leader, n: Round) -> bool:
    """Tell whether this leader has seen round ``n`` recover."""
    return s.proof is not None and s.proof.round == n and s.proof.step is not None


def proof_seen(proof: Proof | None, event: ProofSeen) -> Proof | None:
    """Take in what the shell found."""
    if proof is None or proof.round != event.round:
        return proof
    return proof._replace(pending=False, looks=proof.looks + 1, step=event.step)
