"""The job machine's part about the resume point: chosen, and agreed on by every member before a round begins. Pure.

Called by ``leader.py`` when a round could close; ``agreement.py`` weighs what the nodes answer.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from . import writes
from .agreement import (
    Agreement,
    Bar,
    Verdict,
    apart_words,
    awaiting,
    left_out,
    looked_again,
    passed_over,
    refused,
    sights,
    unanswered,
    unseen,
    waits_for,
    weigh,
)
from .asked import HOOKS, Asked, Sight
from .leader_state import Decision, Leader, submit
from .leader_words import Resumed, SelectResume, Wake
from .parts import short, shortage, spans, stranded, without_part
from .records import Member, NodeId, Outcome, Roster
from .snapshot import Who
from .suspects import below, objections
from .writes import Seen


def settle(s: Leader, seen: Seen, roster: Roster, at: float) -> tuple[Leader, Decision | None]:
    """Have the resume point chosen and agreed on; without a decision it stands, and the round may close."""
    n, chosen = seen.job.round, s.resumed
    if chosen is None or chosen.round != n:
        if s.asked == ("resume", n):
            return s, (s, ())
        return s, _choose(s, seen, roster)
    if chosen.outcome is not None:
        return s, _fail(s, seen, chosen.outcome)
    if chosen.world not in (0, roster.world_size):  # somebody came or went since: as many files may not be there
        why = f"round {n} is of {roster.world_size} ranks now, not {chosen.world}; looking again"
        return s, _again(s, left_out(s.agreement, ()), at, why)
    me = (s.own.node, s.own.inc)
    others = [m for m in roster.members if m.who != me]
    if chosen.question is None:
        return s, None
    a, parted = s.agreement, bool(chosen.question.part and chosen.question.name)
    if not chosen.question.name and a.unable:  # there are some, and none of them for all
        if any(bar.who == me for bar in a.unable):
            return s, _fail(s, seen, stranded(a.unable))
        return s, _without(s, a.unable, at)
    asked = chosen.question._replace(token=s.token, number=a.number)
    if others and (seen.job.asked is None or seen.job.asked.mark != asked.mark):
        return s, submit(s, seen, writes.ask(s.view.keys, s.own, s.token, seen, asked))
    found = sights(s.view.reports("looked", n), asked)
    to_run = spans(roster) if parted else {}

    def lacks(m: Member, sight: Sight) -> str:
        return short(to_run[m.who], sight.ranks) if parted else ""

    v = weigh(asked, others, found, (name for name, _ in chosen.refused), lacks)
    s = replace(s, agreement=awaiting(a, v, at))
    if mute := unanswered(s.agreement, v, at - s.limits.look_s):
        return s, _without(s, mute, at)
    if v.silent:
        until = min(since for _, since in s.agreement.since) + s.limits.look_s
        return s, (s, (Wake(until, f"round {n}: waiting for {waits_for(v, asked)}"),))
    return _follow(s, seen, roster, Weighed(chosen, asked, v, found, parted), at)


class Weighed(NamedTuple):
    """What was chosen and asked, when all have answered."""

    chosen: Resumed
    asked: Asked
    v: Verdict
    found: dict[Who, Sight]
    parted: bool  # each node is to hold its own ranks' files alone


def _follow(s: Leader, seen: Seen, roster: Roster, w: Weighed, at: float) -> tuple[Leader, Decision | None]:
    """Go by what the answers come to."""
    me, (chosen, asked, v, found, parted) = (s.own.node, s.own.inc), w
    last = s.view.roster(seen.job)
    lack = shortage(roster, me, chosen.held, v, found, last) if parted else None
    if lack is not None and (lack.torn or lack.own):
        a = without_part(s.agreement, asked, lack, chosen.refused)
        return s, _again(s, a, at, f"{asked.name[:64]} is passed over: {a.against[-1][1]}")
    if v.unable:
        older = None if asked.format == HOOKS else refused(s.agreement, asked, v, chosen.refused)
        if older is None:
            return s, _without(s, v.unable, at)
        return s, _again(s, older, at, f"{asked.name[:64]} is passed over: {older.against[-1][1]}")
    if v.newer and not s.agreement.hints:
        name, _, node = v.newer[0]
        return s, _again(s, looked_again(s.agreement, v), at, f"node {node[:64]} has {name[:64]}; looking again")
    names = {m.node for m in last.members} if last is not None and last.place(*me) is not None else set[NodeId]()
    torn = any(node in names for *_, node in v.parts)  # this node lacks it, who was there as others saved: see parts.py
    if not asked.name and (v.newer or (v.parts and not torn)):
        return s, _fail(s, seen, unseen(s.own.node, v))
    if v.newer:
        s = replace(s, resumed=chosen._replace(refused=(*passed_over(v), *chosen.refused)))
    return s, None


def _choose(s: Leader, seen: Seen, roster: Roster) -> Decision:
    n, a = seen.job.round, s.agreement
    why = f"round {n} is about to close"
    against = (*objections(seen.job), *a.against)
    ask = SelectResume(n, seen.job.attempt, roster, s.view.history(), why, against, a.within, a.hints, below(seen.job))
    return replace(s, asked=("resume", n)), (ask,)


def _fail(s: Leader, seen: Seen, outcome: Outcome) -> Decision:
    return submit(s, seen, writes.fail(s.view.keys, s.own, s.token, seen, outcome, None))


def _again(s: Leader, a: Agreement, at: float, why: str) -> Decision:
    """Choose anew, in the next moment: the members may be others."""
    return replace(s, resumed=None, agreement=a), (Wake(at, why),)


def _without(s: Leader, who: tuple[Bar, ...], at: float) -> Decision:
    """Ask anew without some nodes: about the same checkpoint where it was the newest of all, for it is verified."""
    a, chosen, unable = left_out(s.agreement, who), s.resumed, s.agreement.unable
    s, wake = _again(s, a, at, f"{apart_words(a)}; left out of the round")
    question = None if chosen is None else chosen.question
    stands = question is not None and question.format != HOOKS and not question.part  # a part depends on who comes
    return (replace(s, resumed=chosen) if stands and not unable else s), wake
