"""A checkpoint of which each node holds the files of its own ranks alone: can the round load it? Pure.

Each node has judged its part by the format's rules and says whose files those are. The round can load it when every
node holds those of the ranks that it is to run. Where that is not so, it matters why: what nobody ever had all of was
torn in its save, and is passed over like any other; what is spread otherwise, or lay on a node that is gone, is
progress that must not be begun anew from nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import NamedTuple

from .agreement import AGAIN, CLASS, STORAGE, Agreement, Bar, Verdict, lacking, merged, objected, spoken
from .asked import Asked, Found, Held, Ranges, Sight
from .records import NodeId, Outcome, Roster
from .snapshot import Who

PLACES = "Where the same nodes are to run others' ranks now, give each its old place (--node-rank)"

Span = tuple[int, int]
"""The first and the last of a member's ranks."""


class Shortage(NamedTuple):
    """Who cannot load the files of its ranks."""

    bars: tuple[Bar, ...]
    own: tuple[Bar, ...]  # the leader's own, if it is one of them
    torn: bool  # its save was interrupted: nobody ever had all of it


def spans(roster: Roster) -> dict[Who, Span]:
    """Return the ranks that each member is to run."""
    out: dict[Who, Span] = {}
    first = 0
    for m in roster.members:
        out[m.who] = first, first + m.slots - 1
        first += m.slots
    return out


def short(own: Span, held: Ranges) -> str:
    """Say which of its ranks' files a member has not got, or ""."""
    if _holds(held, own):
        return ""
    has = f"the files of {_said(held)}" if held else "no rank's files"
    return f"it is to run {_said((own,))}, and holds {has}"


def shortage(
    roster: Roster, own: Who, held: Held, v: Verdict, found: Mapping[Who, Sight], last: Roster | None
) -> Shortage | None:
    """Return who cannot load a part; None when everybody can. ``last``: the last round formed."""
    to_run = spans(roster)
    if held.wrote and held.wrote != roster.world_size:  # its files say so, whether the leader is a member or not
        what = f"{held.wrote} ranks wrote it, each node its own, and {roster.world_size} are to come"
        mine = (lacking(own, what),)
        return Shortage((*mine, *v.unable), mine, any(found[bar.who].found is Found.DIFFERS for bar in v.unable))
    why = short(to_run[own], held.ranks) if own in to_run else ""
    lacks = (lacking(own, why),) if why else ()
    bars = (*lacks, *v.unable)
    if not bars:
        return None
    sight = {**found, own: Sight((0, 0), Found.CAN, ranks=held.ranks)}
    return Shortage(bars, lacks, _interrupted([bar.who for bar in bars], to_run, sight, _ran(last, to_run, sight)))


def _ran(last: Roster | None, members: Iterable[Who], sight: Mapping[Who, Sight]) -> dict[Who, Span]:
    """Return the ranks of the last round's members; nobody's where none of those who hold a part was one of them.

    Then a round before that wrote it.
    """
    there = {m.node for m in last.members} if last is not None else set[NodeId]()
    held = any(node in there for node, inc in members if (node, inc) in sight and sight[node, inc].ranks)
    return spans(last) if last is not None and held else {}


def _interrupted(
    barred: list[Who], to_run: Mapping[Who, Span], sight: Mapping[Who, Sight], ran: Mapping[Who, Span]
) -> bool:
    """Say that what lies on the nodes is what an interrupted save leaves. ``ran``: ranks of the last round's members.

    A bad file says so; or that nothing lies on a member of the last round, which others came to save in; or that its
    directory is another's, too, and what it has run is nowhere. Else what a node lacks may lie on another, or have lain
    on one that is gone: not so if some have too few and all have only their own, nor if all have one directory.
    """
    for who in barred:
        if sight[who].found is Found.DIFFERS or (who in ran and not sight[who].ranks):
            return True
        if ran.get(who) == to_run.get(who) and _is_shared(who, to_run[who], sight):
            return True
    here = [sight[who].ranks for who in to_run]
    if not any(sight[who].ranks for who in barred):
        return False
    own = all(_within(sight[who].ranks, to_run[who]) for who in to_run)
    return own or all(_overlap(a, b) for a, b in pairwise(here))


def _is_shared(who: Who, own: Span, sight: Mapping[Who, Sight]) -> bool:
    """Say that a node's directory is another one's, too, and that nobody has what it lacks."""
    here = sight[who].ranks
    others = [one.ranks for other, one in sight.items() if other != who]
    return any(_overlap(here, held) for held in others) and not any(_holds(held, own) for held in others)


def without_part(a: Agreement, asked: Asked, lack: Shortage, passed: tuple[tuple[str, str], ...]) -> Agreement:
    """Look for an older one; what the leader itself cannot load keeps the round from beginning from nothing."""
    a = objected(a, asked, spoken(lack.bars), passed)
    return a if lack.torn else a._replace(unable=merged(a.unable, lack.own))


def stranded(bars: tuple[Bar, ...]) -> Outcome:
    """End the job: the node that chooses cannot load what its nodes hold parts of."""
    return Outcome(STORAGE, f"the nodes hold parts of a checkpoint: {spoken(bars)}. {AGAIN}. {PLACES}", CLASS)


def _holds(held: Ranges, own: Span) -> bool:
    return any(low <= own[0] and own[1] <= high for low, high in held)


def _within(held: Ranges, own: Span) -> bool:
    return all(own[0] <= low and high <= own[1] for low, high in held)


def _overlap(one: Ranges, other: Ranges) -> bool:
    return any(a <= d and c <= b for a, b in one for c, d in other)


def _said(rows: Ranges) -> str:
    if len(rows) == 1 and rows[0][0] == rows[0][1]:
        return f"rank {rows[0][0]}"
    return "ranks " + ", ".join(f"{a}" if a == b else f"{a} to {b}" for a, b in rows[:8])
