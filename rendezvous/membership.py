"""Who runs in a round, in which place, and who joins how. Pure; called by the leader and by a joining agent.

Ranks are sticky: survivors keep their place, holes are filled in join order. A node that takes a hole must have the
slots of the one it replaces; growth beyond the last size takes anybody.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from .records import Job, Member, Outcome, Phase, Roster, Round

REMEMBERED = 8  # launches; an agent that is later than that by so many is somebody else's trouble
_AGAIN = (
    "to go on with this run id give all nodes the same new launch_id=NAME in --rdzv-conf (with --fresh for a new "
    "budget), or choose another --rdzv-id"
)


class Standing(NamedTuple):
    """How a joiner enters: the round it is ready for, and the job record it writes with its join, if any."""

    ready: Round
    new: Job | None = None


class Over(NamedTuple):
    """The run has ended and this launch may not begin it again."""

    outcome: Outcome
    sentence: str


def standing(job: Job | None, fresh_job: Job, fresh: bool) -> Standing | Over:
    """Decide how to join, given ``job`` as read and the record that this launch would begin with."""
    if job is None:
        return Standing(Round(1), fresh_job)
    if job.phase is Phase.FORMING:
        return Standing(job.round)
    if not job.phase.over:
        return Standing(Round(job.round + 1))
    outcome = job.outcome or Outcome(0, "the job is done")
    if fresh_job.launch in (job.launch, *job.past):
        return Over(outcome, f"this launch has already ended: {outcome.sentence}; {_AGAIN}")
    if job.phase is Phase.DONE and not fresh:
        return Over(outcome, "this run id is done; choose another --rdzv-id, or give --fresh to run it again")
    n = Round(job.round + 1)
    return Standing(
        n,
        replace(
            fresh_job,
            round=n,
            first=n,
            formed=job.formed,
            past=(job.launch, *job.past)[:REMEMBERED],
            spent=() if fresh else job.spent,
            memory=fresh_job.memory if fresh else job.memory,
        ),
    )


class Candidate(NamedTuple):
    """A node that is ready for the round, with the revision at which it joined."""

    member: Member
    joined: int


def choose(last: Roster | None, ready: tuple[Candidate, ...], most: int) -> Roster:
    """Return members in rank order and spares; the caller sets the round and checks the minimum.

    ``last`` is the roster of the last formed round, or None when nobody's place is to be kept.
    """
    order = sorted(ready, key=lambda c: (c.joined, c.member.node))
    waiting = [c.member for c in order]
    places = list(last.members) if last is not None else []
    seats: list[Member | None] = [next((m for m in waiting if m.who == place.who), None) for place in places]
    kept = {m.who for m in seats if m is not None}
    waiting = [m for m in waiting if m.who not in kept]
    holes = [i for i, seat in enumerate(seats) if seat is None]
    for i in sorted(holes, key=lambda i: not any(m.node == places[i].node for m in waiting)):
        fits = [m for m in waiting if m.slots == places[i].slots]
        fit = next((m for m in fits if m.node == places[i].node), fits[0] if fits else None)
        if fit is not None and sum(s is not None for s in seats) < most:
            seats[i] = fit
            waiting.remove(fit)
    growth = max(0, most - len(places))
    members = [m for m in seats if m is not None][:most] + waiting[:growth]
    chosen = {m.who for m in members}
    return Roster(Round(0), tuple(members), tuple(c.member for c in order if c.member.who not in chosen))
