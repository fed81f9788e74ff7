"""Whether every node of a round can load the checkpoint that it is to re-enter from, and what follows if not. Pure.

The leader's choice is one node's view of a directory. It counts when each other member has said that it can load it;
else the next older one that those who cannot have too is asked for. Where none is left for all, who cannot load any is
left out of the round, and with too few without it the job ends: to begin from nothing would throw away what one node
holds. An answer counts for the one question that it names, so a leader that dies takes its questions with it.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping
from typing import NamedTuple

from .asked import Asked, Found, Sight, decode_sight
from .errors import BadRecord
from .membership import NAMED, listed
from .records import Member, NodeId, Outcome
from .snapshot import Report, Who

STORAGE = 75  # exit code: worth a requeue
CLASS = "fs_transient"
NO_ANSWER = "gave no answer in time on whether it can load a checkpoint; is its file system away?"
AGAIN = "No rank was started: start again when every node can read it"
ELSEWHERE = "; is its mount away, or is the directory local to each node?"
NOT_FOR_ALL = "a node that cannot load a newer one has not got it"


class Bar(NamedTuple):
    """Why one node cannot take part in a round that loads a checkpoint."""

    who: Who
    why: str
    absent: bool = False  # what it should load is not there, where another node has it


class Agreement(NamedTuple):
    """How far the nodes have come with the resume point of a round."""

    number: int = 1  # of the question that is to be asked next, or stands
    since: tuple[tuple[Who, float], ...] = ()  # since when each one is waited for that has not answered
    against: tuple[tuple[str, str], ...] = ()  # checkpoints that some node cannot load, and why not
    within: tuple[str, ...] | None = None  # what those who cannot have instead: the next one must be one of these
    unable: tuple[Bar, ...] = ()  # who could not load some of those, and why
    apart: tuple[Bar, ...] = ()  # who is left out of this round for it
    hints: tuple[tuple[str, int, NodeId], ...] = ()  # newer ones that others have, and who; looked for once again


class Verdict(NamedTuple):
    """What the answers to a question come to."""

    silent: tuple[Member, ...] = ()  # who has not answered
    unable: tuple[Bar, ...] = ()
    unsure: tuple[Bar, ...] = ()  # its file system gives no answer
    within: tuple[str, ...] = ()  # older ones that all who are unable have
    newer: tuple[tuple[str, int, NodeId], ...] = ()  # that others have, and the leader has neither chosen nor refused
    parts: tuple[tuple[str, int, NodeId], ...] = ()  # where it found none: of which others hold a part, the newest


def nothing_short(_m: Member, _sight: Sight) -> str:
    """Say that a node lacks nothing: where all of a checkpoint must be everywhere, it has looked for all of it."""
    return ""


def lacking(who: Who, what: str) -> Bar:
    """Bar a node that has not got what it should load."""
    return Bar(who, f"node {who[0][:64]} lacks it: {what}", absent=True)


def sights(reports: Mapping[Who, Report], asked: Asked) -> dict[Who, Sight]:
    """Return the answers to one question; those to another one, and what is none, are passed over."""
    out: dict[Who, Sight] = {}
    for who, report in reports.items():
        try:
            sight = decode_sight(report.value)
        except BadRecord:
            continue
        if sight.mark == asked.mark:
            out[who] = sight
    return out


def weigh(
    asked: Asked,
    others: Iterable[Member],
    found: Mapping[Who, Sight],
    known: Iterable[str],
    short: Callable[[Member, Sight], str] = nothing_short,
) -> Verdict:
    """Weigh the answers of the other members; ``known`` names what the leader has refused for itself.

    ``short`` says which files of its own ranks a node lacks that has found nothing wrong.
    """
    silent: list[Member] = []
    unable: list[Bar] = []
    unsure: list[Bar] = []
    newer: dict[str, tuple[str, int, NodeId]] = {}
    parts: dict[str, tuple[str, int, NodeId]] = {}
    within: list[str] | None = None
    mine = {asked.name, *known}
    for m in others:
        sight = found.get(m.who)
        if sight is None:
            silent.append(m)
            continue
        if sight.found is Found.UNKNOWN:
            unsure.append(Bar(m.who, f"node {m.node[:64]} cannot tell: {sight.why}"))
        elif bar := _bar(m, sight, short):
            unable.append(bar)
            older = [name for name, step in sight.steps if step <= asked.step and name != asked.name]
            within = older if within is None else [name for name in within if name in older]
        for name, step in sight.steps:
            if step > asked.step and name not in mine:
                newer.setdefault(name, (name, step, m.node))
        for name, step in () if asked.name else sight.parts:
            if name not in mine:
                parts.setdefault(name, (name, step, m.node))
    newest, parted = (tuple(sorted(of.values(), key=lambda hint: -hint[1])) for of in (newer, parts))
    return Verdict(tuple(silent), tuple(unable), tuple(unsure), tuple(within or ()), newest, parted)


def _bar(m: Member, sight: Sight, short: Callable[[Member, Sight], str]) -> Bar | None:
    """Say why a node cannot load a checkpoint, and tell what is missing there from what is bad there; None: it can."""
    if sight.found is Found.CAN:
        what = short(m, sight)
        return lacking(m.who, what) if what else None
    if sight.found is Found.LACKS:
        return lacking(m.who, sight.why)
    return Bar(m.who, f"node {m.node[:64]} has a bad one, or another: {sight.why}")


def spoken(bars: tuple[Bar, ...]) -> str:
    """Say who is barred and why."""
    more = f"; and {len(bars) - NAMED} more nodes" if len(bars) > NAMED else ""
    return "; ".join(bar.why for bar in bars[:NAMED]) + more


def _guessed(bars: tuple[Bar, ...]) -> str:
    """Say who is barred and why, and what may be behind it."""
    return spoken(bars) + (ELSEWHERE if any(bar.absent for bar in bars) else "")


def awaiting(a: Agreement, v: Verdict, at: float) -> Agreement:
    """Note since when each one is waited for: one that joins late has as much time as the others had."""
    known = dict(a.since)
    return a._replace(since=tuple((m.who, known.get(m.who, at)) for m in v.silent))


def refused(a: Agreement, asked: Asked, v: Verdict, passed: Iterable[tuple[str, str]]) -> Agreement | None:
    """Return what is looked for next after a refusal; None when nothing older can do for all.

    ``passed`` is what was refused before, by the leader and by others: it is not read again.
    """
    within = v.within if a.within is None else tuple(name for name in a.within if name in v.within)
    if not within:
        return None
    a = objected(a, asked, _guessed(v.unable), passed)
    return a._replace(within=within, unable=merged(a.unable, v.unable))


def objected(a: Agreement, asked: Asked, why: str, passed: Iterable[tuple[str, str]]) -> Agreement:
    """Ask anew, about another one than was asked about. ``passed``: see ``refused``."""
    hinted = {name for name, *_ in a.hints}
    against = (*(pair for pair in passed if pair[0] not in hinted), (asked.name, why))
    return a._replace(number=a.number + 1, since=(), against=against)


def left_out(a: Agreement, who: Iterable[Bar]) -> Agreement:
    """Begin again without some nodes."""
    return Agreement(a.number + 1, apart=merged(a.apart, tuple(who)), hints=a.hints)


def looked_again(a: Agreement, v: Verdict) -> Agreement:
    """Look once more, since others have what the leader has not seen."""
    return a._replace(number=a.number + 1, since=(), hints=v.newer)


def unanswered(a: Agreement, v: Verdict, before: float) -> tuple[Bar, ...]:
    """Return who could not say anything, with why: waited for since ``before`` or longer, or unable to tell."""
    late = (who for who, since in a.since if since <= before)
    return tuple(Bar(who, f"node {who[0][:64]} {NO_ANSWER}") for who in late) + v.unsure


def merged(before: tuple[Bar, ...], more: tuple[Bar, ...]) -> tuple[Bar, ...]:
    """Return all bars, one for each node."""
    known = {bar.who for bar in before}
    return before + tuple(bar for bar in more if bar.who not in known)


def passed_over(v: Verdict) -> tuple[tuple[str, str], ...]:
    """Return what newer ones the round does without although some node has them."""
    return tuple(
        (name, f"node {node[:64]} has it, and the node that chooses does not see it") for name, _, node in v.newer
    )


def apart_words(a: Agreement) -> str:
    """Say who is left out and why; '' when nobody is."""
    if not a.apart:
        return ""
    names = listed([node[:64] for (node, _), *_ in a.apart])
    return f"{names} cannot load a checkpoint that others have: {_guessed(a.apart)}"


def nothing_for_all(a: Agreement, here: Container[Who]) -> Outcome | None:
    """End the job if nodes are left out that are ``here``: without them there are too few."""
    if not any(bar.who in here for bar in a.apart):
        return None
    why = f"the nodes do not agree on a checkpoint, and from nothing its progress would be lost: {apart_words(a)}"
    return Outcome(STORAGE, f"{why}{'' if why.endswith('?') else '.'} {AGAIN}", CLASS)


def unseen(own: NodeId, v: Verdict) -> Outcome:
    """End the job: who chooses sees no checkpoint, and others have one."""
    name, _, node = (*v.newer, *v.parts)[0]
    have = f"node {node[:64]} has {name[:64]}, and node {own[:64]}, which chooses, sees no checkpoint it could resume"
    return Outcome(STORAGE, f"{have}{ELSEWHERE} From nothing its progress would be lost. {AGAIN}", CLASS)


def waits_for(v: Verdict, asked: Asked) -> str:
    """Say whose answers are waited for."""
    names = listed([m.node[:64] for m in v.silent][: NAMED + 1])
    can, has = ("it can", "it has") if len(v.silent) == 1 else ("they can", "they have")
    return f"{names} to say whether {f'{can} load {asked.name[:64]}' if asked.name else f'{has} a checkpoint'}"
