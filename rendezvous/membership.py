"""Who runs in a round, in which place, and who joins how. Pure; called by the leader and by a joining agent.

Ranks are sticky: survivors keep their place, holes are filled in join order. A node that takes a hole must have the
slots of the one it replaces; growth beyond the last size takes anybody. The first round of a later launch takes whoever
comes, and seats nodes of the last round where they sat: what they keep on their disks is of their old ranks. Where
nodes ask for their places (static), each has the one it asks for, or none. By host name the same nodes are chosen, and
stand in the order of their names.
"""

from __future__ import annotations

import re
from dataclasses import replace
from enum import Enum
from itertools import islice
from typing import NamedTuple

from .records import Job, Member, Outcome, Phase, Roster, Round, Terms
from .suspects import of_another_launch

NAMED = 3  # places or nodes that a sentence lists; it must fit into the job record

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
            blamed=job.blamed,
            suspects=() if fresh else of_another_launch(job.suspects),
        ),
    )


class Order(Enum):
    """In which order the nodes of a round stand: ``--rank-order``."""

    STICKY = "sticky"
    HOSTNAME = "hostname"


class Candidate(NamedTuple):
    """A node that is ready for the round, with the revision at which it joined."""

    member: Member
    joined: int


def choose(last: Roster | None, ready: tuple[Candidate, ...], most: int, by: Order = Order.STICKY) -> Roster:
    """Return members in rank order and spares; the caller sets the round and checks the minimum and ``vacant``.

    ``last`` is the roster of the last formed round, or None when nobody's place is to be kept.
    """
    order = [c.member for c in sorted(ready, key=lambda c: (c.joined, c.member.node))]
    asked = any(m.place >= 0 for m in order)
    members = _by_place(last, order, most) if asked else _sticky(last, order, most)
    if by is Order.HOSTNAME and not asked:
        members.sort(key=lambda m: _natural(m.node))
    chosen = {m.who for m in members}
    return Roster(Round(0), tuple(members), tuple(m for m in order if m.who not in chosen))


def _sticky(last: Roster | None, order: list[Member], most: int) -> list[Member]:
    waiting = list(order)
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
    return [m for m in seats if m is not None][:most] + waiting[:growth]


def returned(last: Roster, chosen: Roster) -> Roster:
    """Return members of a launch's first round in the places that their nodes had in the round before, by name."""
    if any(m.place >= 0 for m in chosen.members):
        return chosen
    sat = {m.node: place for place, m in enumerate(last.members[: len(chosen.members)])}
    seats = {sat[m.node]: m for m in chosen.members if m.node in sat}
    rest = iter([m for m in chosen.members if m.node not in sat])
    return chosen._replace(members=tuple(seats.get(i) or next(rest) for i in range(len(chosen.members))))


def _natural(name: str) -> tuple[list[str | int], str]:
    """Return a key by which node2 comes before node10."""
    parts = re.split("([0-9]+)", name[:256])  # text and digits in turn, so that like meets like
    return [int(part) if i % 2 else part for i, part in enumerate(parts)], name


def _by_place(last: Roster | None, order: list[Member], most: int) -> list[Member]:
    """Give each place to the one that sat there, else to a later start of that node, else to the first that asks."""
    sat = {m.place: m for m in last.members} if last is not None else {}
    asking: dict[int, list[Member]] = {}
    for m in order:
        if 0 <= m.place < most:
            asking.setdefault(m.place, []).append(m)
    members: list[Member] = []
    for place in sorted(asking):
        members += _heirs(asking[place], sat.get(place))[:1]
    return members


def _heirs(asking: list[Member], before: Member | None) -> list[Member]:
    if before is None:
        return asking
    fits = [m for m in asking if m.slots == before.slots]
    return sorted(fits, key=lambda m: (m.who != before.who, m.node != before.node))


def vacant(chosen: Roster, least: int, most: int) -> tuple[int, ...]:
    """Return the first few places that are missing for a round to begin; none where nodes do not ask for places.

    All are needed when the size is fixed, else only the first, which hosts the ranks' store.
    """
    if all(m.place < 0 for m in chosen.members + chosen.spares):
        return ()
    taken = {m.place for m in chosen.members}
    needed = (place for place in range(most if least == most else 1) if place not in taken)
    return tuple(islice(needed, NAMED + 1))


def lack(chosen: Roster, places: tuple[int, ...]) -> str:
    """Say which of ``places`` nobody can take, and which several nodes ask for; '' when there is nothing to say."""
    asking: dict[int, list[Member]] = {}
    for m in chosen.members + chosen.spares:
        if m.place >= 0:
            asking.setdefault(m.place, []).append(m)
    said: list[str] = []
    unasked = [place for place in places if place not in asking]
    if unasked:
        said.append(f"no node with --node-rank {listed([str(place) for place in unasked])} yet")
    for place in [place for place in places if place in asking][:1]:
        who = asking[place][0]
        said.append(
            f"{who.node[:64]} with --node-rank {place} has another number of ranks than the node it would replace"
        )
    for place in [place for place, several in sorted(asking.items()) if len(several) > 1][:1]:
        names = listed([m.node[:64] for m in asking[place]])
        said.append(f"--node-rank {place} is given by {names}")
    return "; ".join(said)


def listed(names: list[str]) -> str:
    """Say a few names, and that there are more."""
    shown = names[:NAMED] + ["more"] * (len(names) > NAMED)
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"


def disagreement(given: tuple[tuple[str, str], ...], there: Terms) -> str:
    """Say in what a joining node was given something else than the node that began the launch; '' when in nothing."""
    here, said = dict(given), dict(there.said)
    if set(here) != set(said):
        odd = min(set(here) ^ set(said))[:64]
        return (
            f"the run (begun by node {there.by[:64]}) was begun by another version of remuster, which compares other "
            f"things than this one ({odd!r} is one of them); install the same version on all nodes"
        )
    for name, value in given:
        if value != said[name]:
            return (
                f"this node was given {name} {value}, the run (begun by node {there.by[:64]}) has {said[name][:300]}; "
                "give all nodes the same command line, or this one another --rdzv-id"
            )
    return ""
