"""A checkpoint of which each node holds the files of its own ranks alone: can the round load it? Pure.

Each node has judged its part by the format's rules and says whose files those are. The round can load it when every
node holds those of the ranks that it is to run. Where that is not so, it matters why: what nobody ever had all of was
torn in its save, and is passed over like any other; what is spread otherwise, or lay on a node that is gone, is
progress that must not be begun anew from nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Mapping
from typing import NamedTuple

from .agreement import AGAIN, CLASS, STORAGE, Agreement, Bar, Verdict, lacking, merged, objected, spoken
from .asked import Asked, Found, Held, Ranges, Sight
from .records import Member, Outcome, Roster
from .snapshot import Who

PLACES = "Where the same nodes are to run others' ranks now, give each its old place (--node-rank)"


class Shortage(NamedTuple):
    """Who cannot load the files of its ranks."""

    bars: tuple[Bar, ...]
    own: tuple[Bar, ...]  # the leader's own, if it is one of them
    torn: bool  # its save was interrupted: nobody ever had all of it


def short(roster: Roster, m: Member, held: Ranges) -> str:
    """Say which of its ranks' files a member has not got, or ""."""
    first, last = _ranks_of(roster, m)
    if any(low <= first and last <= high for low, high in held):
        return ""
    has = f"the files of {_said(held)}" if held else "no rank's files"
    return f"it is to run {_said(((first, last),))}, and holds {has}"


def shortage(
    roster: Roster, own: Who, held: Held, v: Verdict, found: Mapping[Who, Sight], last: Collection[Who]
) -> Shortage | None:
    """Return who cannot load a part; None when everybody can. ``last``: the members of the last round formed."""
    members = {m.who: m for m in roster.members}
    mine: tuple[Bar, ...] = ()
    if held.wrote and held.wrote != roster.world_size:  # a spare that chooses says so for the members
        why = f"{held.wrote} ranks wrote it, each node its own, and {roster.world_size} are to come"
        mine = (lacking(own, why),)
    elif own in members and (why := short(roster, members[own], held.ranks)):
        mine = (lacking(own, why),)
    bars = (*mine, *v.unable)
    if not bars:
        return None
    sight = {**found, own: Sight((0, 0), Found.CAN, ranks=held.ranks)}
    seen = [sight[who].ranks for who in members if who != own]
    one_directory = bool(seen) and all(_overlap(held.ranks, ranks) for ranks in seen)
    names = {node for node, _ in last}
    if not any(node in names for node, inc in members if sight[node, inc].ranks):  # an earlier round wrote it
        last = ()
    alike = held.wrote in (0, roster.world_size) and all(
        _own(roster, m, sight[who].ranks) for who, m in members.items()
    )
    torn = any(
        _interrupted(roster, members[bar.who], sight[bar.who], last, alike) for bar in bars if bar.who in members
    )
    return Shortage(bars, mine, one_directory or torn)


def _interrupted(roster: Roster, m: Member, sight: Sight, last: Container[Who], alike: bool) -> bool:
    """Say that what a node holds is what an interrupted save leaves: a bad file, too few of its own, or nothing.

    Nothing says so only of one that has been a member all along; another one may have come in place of who has it. Too
    few say so only where it is ``alike``: written by as many ranks as are to come, on the same places.
    """
    if sight.found is Found.DIFFERS:
        return True
    if not sight.ranks:
        return m.who in last
    return alike and bool(short(roster, m, sight.ranks))


def _own(roster: Roster, m: Member, held: Ranges) -> bool:
    first, last = _ranks_of(roster, m)
    return all(first <= low and high <= last for low, high in held)


def _ranks_of(roster: Roster, m: Member) -> tuple[int, int]:
    place = roster.place(*m.who)
    first = 0 if place is None else roster.first_rank(place)
    return first, first + m.slots - 1


def without_part(a: Agreement, asked: Asked, lack: Shortage, passed: tuple[tuple[str, str], ...]) -> Agreement:
    """Look for an older one; what the leader itself cannot load keeps the round from beginning from nothing."""
    a = objected(a, asked, spoken(lack.bars), passed)
    return a if lack.torn else a._replace(unable=merged(a.unable, lack.own))


def stranded(bars: tuple[Bar, ...]) -> Outcome:
    """End the job: the node that chooses cannot load what its nodes hold parts of."""
    return Outcome(STORAGE, f"the nodes hold parts of a checkpoint: {spoken(bars)}. {AGAIN}. {PLACES}", CLASS)


def _overlap(one: Ranges, other: Ranges) -> bool:
    return any(a <= d and c <= b for a, b in one for c, d in other)


def _said(rows: Ranges) -> str:
    if len(rows) == 1 and rows[0][0] == rows[0][1]:
        return f"rank {rows[0][0]}"
    return "ranks " + ", ".join(f"{a}" if a == b else f"{a} to {b}" for a, b in rows[:8])
