"""Which rank is elsewhere than the others, from what nodes gathered about living ranks. Pure; for ``waiting.py``.

Three kinds are compared: positions in collectives (what torch's flight recorder left), stacks, and silences. None of
them needs two nodes' clocks. One odd rank is a suspect; of several nothing follows, unless they are all of one node.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple, TypeVar

from .evidence import RoundEvidence
from .observed import Position, Silence, Stack

_F = TypeVar("_F", Position, Silence, Stack)

LOOKED = 8  # innermost frames in which a collective is looked for
MARGIN_S, MARGIN = 1.0, 0.05  # by which a silence must be longer than the next to mean something
_COLLECTIVE = re.compile(
    r"all_?reduce|all_?gather|reduce_?scatter|broadcast|barrier|all_?to_?all|[Ww]ait$|synchronize|_?recv|_?send$"
)
_STUCK = ("stopped", "traced", "waiting for a device or a server")  # states of a process, as the kernel gives them


class Suspect(NamedTuple):
    """A rank that is elsewhere: why, and by which source it is known."""

    rank: int
    why: str
    source: str


def suspect(evidence: RoundEvidence, home: Mapping[int, str], waited: Collection[int] = ()) -> Suspect | None:
    """Return the rank that the facts point at, the most telling kind of fact first; None when none does.

    Ranks that ``waited`` say so themselves: wherever they are now, on their way out perhaps, they were in a collective.
    """
    return (
        _by_position(_of(evidence, Position), home)
        or _by_state(_of(evidence, Stack))
        or _by_stack(_of(evidence, Stack), home, waited)
    )


def silent(evidence: RoundEvidence) -> Suspect | None:
    """Return the rank whose step is the lowest, or that is silent for longest while the others wait for it."""
    found = {fact.rank: fact for fact in _of(evidence, Silence)}
    if not found:
        return None
    by_step = sorted((s for s in found.values() if s.step >= 0), key=lambda s: (s.step, s.rank))
    if len(by_step) > 1 and len(by_step) == len(found) and by_step[0].step < by_step[1].step:
        s = by_step[0]
        return Suspect(s.rank, f"its last step was {s.step}, the others were further", s.by)
    by_time = sorted(found.values(), key=lambda s: (-s.silent_s, s.rank))
    first = by_time[0]
    if len(by_time) == 1 or first.silent_s - by_time[1].silent_s > max(MARGIN_S, MARGIN * first.silent_s):
        step = f" after step {first.step}" if first.step >= 0 else ""
        allowed = f"it was silent for {first.silent_s:.0f} s{step}, allowed are {first.allowed_s:.0f} s"
        return Suspect(first.rank, allowed, first.by)
    return None


def _of(evidence: RoundEvidence, kind: type[_F]) -> list[_F]:
    nodes = sorted(evidence.nodes, key=lambda node: (node.order, node.node))
    return [fact for node in nodes for fact in node.facts if isinstance(fact, kind)]


def _by_position(positions: Iterable[Position], home: Mapping[int, str]) -> Suspect | None:
    groups: dict[str, dict[int, Position]] = defaultdict(dict)
    for p in positions:
        groups[p.group][p.rank] = p
    behind: dict[int, tuple[Position, Position]] = {}  # the rank's, and that of the one that is furthest
    waiting: set[int] = set()
    for group in groups.values():
        furthest = max(group.values(), key=lambda p: (p.enqueued, -p.rank))
        least = min(p.enqueued for p in group.values())
        if least == furthest.enqueued:
            continue
        for rank, p in group.items():
            if p.enqueued == least:
                behind.setdefault(rank, (p, furthest))
            elif p.completed < p.enqueued:
                waiting.add(rank)
    free = sorted(rank for rank in behind if rank not in waiting)
    if free and (len(free) == 1 or len({home.get(rank) for rank in free}) == 1):
        p, furthest = behind[free[0]]
        what = f" ({furthest.operation})" if furthest.operation else ""
        group_name = f" of group {p.group}" if p.group else ""
        more = f"; so had {len(free) - 1} more of its node" if len(free) > 1 else ""
        why = f"it had enqueued {p.enqueued} collectives{group_name}, the others {furthest.enqueued}{what}{more}"
        return Suspect(free[0], why, "flight recorder")
    return None if behind else _unfinished(groups)


def _unfinished(groups: Mapping[str, Mapping[int, Position]]) -> Suspect | None:
    """All have enqueued the same: the one rank on which less of it has completed."""
    found: dict[int, str] = {}
    for group in groups.values():
        order = sorted(group.values(), key=lambda p: (p.completed, p.rank))
        if len(order) > 1 and order[0].completed < order[1].completed:
            p = order[0]
            what = f" ({p.operation})" if p.operation else ""
            found[p.rank] = f"it had completed {p.completed} collectives{what}, the others {order[1].completed}"
    if len(found) != 1:
        return None
    ((rank, why),) = found.items()
    return Suspect(rank, why, "flight recorder")


def _by_state(stacks: Iterable[Stack]) -> Suspect | None:
    """The one process that does not even run, as the kernel says; only where nothing better could be asked of it."""
    stuck = {s.rank: state for s in stacks if s.by == "proc" and s.frames for state in _STUCK if state in s.frames[0]}
    if len(stuck) != 1:
        return None
    ((rank, state),) = stuck.items()
    return Suspect(rank, f"its process is {state}", "stacks")


def _by_stack(stacks: Iterable[Stack], home: Mapping[int, str], waited: Collection[int]) -> Suspect | None:
    taken = {s.rank: s for s in stacks if s.frames and s.by != "proc"}
    if len(taken) < 2:
        return None
    inside = {rank for rank, s in taken.items() if any(_COLLECTIVE.search(_function(f)) for f in s.frames[:LOOKED])}
    inside |= taken.keys() & set(waited)
    elsewhere = sorted(taken.keys() - inside)
    if inside and elsewhere and (len(elsewhere) == 1 or len({home.get(rank) for rank in elsewhere}) == 1):
        s = taken[elsewhere[0]]
        return Suspect(s.rank, f"it was in {_place(s)}, the others in a collective", "stacks")
    for key in (_place_without_line, _place):
        places = Counter(key(s) for s in taken.values())
        alone = [s for s in taken.values() if places[key(s)] == 1 and s.rank not in waited]
        if len(alone) == 1 and len(places) == 2 and len(taken) > 2:
            other = next(_place(s) for s in taken.values() if s is not alone[0])
            return Suspect(alone[0].rank, f"it was in {_place(alone[0])}, the others in {other}", "stacks")
    return None


def _place(s: Stack) -> str:
    return s.frames[0][-160:]


def _place_without_line(s: Stack) -> str:
    return re.sub(r":\d{1,9} ", " ", _place(s))


def _function(frame: str) -> str:
    return frame.rsplit(" ", 1)[-1]
