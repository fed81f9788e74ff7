"""Whether ranks hang: by what they say of their steps; by what they write and use, for those that say none. Pure.

``agent/hang_watch.py`` asks at times that this module names, on every node for its own ranks. docs/hangs.md explains
the numbers. A false alarm kills a healthy job, so each doubt makes patient: nothing before the first step, a floor far
above any step, three times the longest pause ever seen, more while ranks visibly work, and twice as much after an
alarm. What the user gives (--hang-timeout) stands in place of all that.

A GPU that computes makes patient, too, and nothing more follows from it: that of a rank that waits inside an NCCL
kernel shows 100 % as well. Such a hang is found by the rank that is elsewhere, or by the watchdog's line.

All times are seconds on one node's CLOCK_BOOTTIME: no step of the wall clock is seen here. Time in which the machine
slept, or in which ranks and agent were stopped together (a job that is suspended, a frozen container, a paused guest),
is held against nobody, and makes nobody more patient afterwards: the first is known by CLOCK_MONOTONIC, which does not
count it, the other by looks that come late.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from statistics import median_low
from typing import NamedTuple

from .evidence import Beat

FLOOR_S = 300.0  # a first save or evaluation may come at any time, and nothing has shown how long it takes
LEARNING_S = 1800.0  # … while steps are still compiled, and the first ones say little
LEARNING_BEATS = 10
STEPS = 30  # … or as long as so many steps
PAUSES = 3  # … or so many times the longest pause that was seen
WORKING = 4  # ranks that write or move data may be silent for so many times what is allowed
PATIENCE_MOST_S = 3600.0  # what alarms that have been given can raise the floor to
MOVED = 1 << 20  # bytes through files and pipes between two looks: a save, or data that is loaded
IDLE = 0.02  # of one core, for a rank with all its processes
LATE_S = 10.0  # a look that comes so late: this node was stopped, too, and its ranks begin afresh
LATISH_S = 1.0  # … or was busy: what is more than that does not count as silence
LOOKS = 8  # in the time that is allowed
LOOK_LEAST_S, LOOK_MOST_S = 0.5, 30.0
FRESH_S = 0.5  # how old the sample may be on which ranks are judged
BEGIN_S = 30.0  # between looks whether ranks have begun to say steps
SLOW = 1.5  # times the median step of the ranks of a node


class Terms(NamedTuple):
    """What bounds silence. ``given_s`` is the user's word; None: computed."""

    given_s: float | None = None
    seen_s: float = 0.0  # the longest pause of earlier rounds
    patience_s: float = 0.0  # a floor that alarms have raised
    out_s: float = 0.0  # for how long in this round this node's agent was stopped, as its ranks may have been
    before_s: float = 0.0  # the longest pause before that


class Allowed(NamedTuple):
    """How long ranks may say nothing, and by what rule, in words."""

    s: float
    why: str


class Sample(NamedTuple):
    """What can be seen of the living ranks from outside."""

    at_s: float
    written: int  # bytes of output of all ranks of this node
    moved: int  # bytes that they have read and written through files and pipes
    cpu_s: Mapping[int, float]  # each living rank's, with all its processes
    gpu: Mapping[int, bool] = {}  # whether one of a rank's GPUs computes; who is absent, nothing is known of


class Trail(NamedTuple):
    """When the ranks were last seen to do something."""

    last: Sample
    worked_s: float  # wrote output, or moved data
    busy_s: Mapping[int, float]  # each rank: used a processor, or a GPU


class Look(NamedTuple):
    """What to do: look again at ``next_s``, or raise the alarm, a sentence.

    ``sample``: take one now if the last is ``stale``; else forget the trail. ``gpus``: with what their driver says.
    """

    next_s: float
    sample: bool = False
    gpus: bool = False
    alarm: str = ""
    rank: int = -1  # -1: none in particular


def allowed(beats: Iterable[Beat], terms: Terms) -> Allowed:
    """Return how long the ranks of a node, which train together, may say nothing between two beats."""
    if terms.given_s is not None:
        return Allowed(terms.given_s, "--hang-timeout")
    sane = [beat for beat in beats if _sane(beat)]
    longest = longest_s(sane, terms)
    found = [Allowed(FLOOR_S, "the least"), Allowed(min(terms.patience_s, PATIENCE_MOST_S), "more after an alarm")]
    if all(beat.times < LEARNING_BEATS for beat in sane):
        found.append(Allowed(LEARNING_S, f"fewer than {LEARNING_BEATS} steps seen"))
    else:
        step = max(_step_s(beat, terms.out_s) for beat in sane if beat.times >= LEARNING_BEATS)
        found.append(Allowed(STEPS * step, f"{STEPS} steps of {step:.3g} s"))
    found.append(Allowed(PAUSES * longest, f"{PAUSES} times the longest pause, {longest:.3g} s"))
    return max(found, key=lambda one: one.s)


def follow(trail: Trail | None, sample: Sample) -> Trail:
    """Take a sample in. A rank whose time went back has lost a process: it did something."""
    if trail is None:
        return Trail(sample, sample.at_s, dict.fromkeys(sample.cpu_s, sample.at_s))
    last, since = trail.last, sample.at_s - trail.last.at_s
    worked = sample.written != last.written or abs(sample.moved - last.moved) >= MOVED
    busy = {
        rank: trail.busy_s.get(rank, sample.at_s)
        if 0 <= used - last.cpu_s.get(rank, math.inf) <= IDLE * since and not sample.gpu.get(rank)
        else sample.at_s
        for rank, used in sample.cpu_s.items()
    }
    return Trail(sample, sample.at_s if worked else trail.worked_s, busy)


def ours(beat: Beat, began_s: float, now: float) -> bool:
    """Tell whether a rank of a round that began then has this node's clock; not so in a time namespace of its own."""
    return began_s - LATISH_S <= beat.first_s and beat.last_s <= now + LATISH_S


def stale(trail: Trail | None, now: float) -> bool:
    """Tell whether a new sample is due: one that comes too soon after another would say little."""
    return trail is None or now - trail.last.at_s > FRESH_S


def look(beats: Mapping[int, Beat], now: float, since_s: float, terms: Terms, trail: Trail | None) -> Look:
    """Judge the ranks of one node; nothing is held against them from before ``since_s``.

    ``trail`` is that of the samples which looks since the last one without have asked for.
    """
    living = {r: beat for r, beat in beats.items() if _sane(beat) and (trail is None or r in trail.last.cpu_s)}
    if living:
        return _by_beats(living, now, since_s, terms, trail)
    if trail is not None and not trail.last.cpu_s:
        return Look(math.inf)  # all have ended
    if terms.given_s is None:
        return Look(now + BEGIN_S)  # imports, data, compilation: nothing says how long they take
    return _by_traces(now, since_s, terms.given_s, trail)


def _by_beats(beats: Mapping[int, Beat], now: float, since_s: float, terms: Terms, trail: Trail | None) -> Look:
    may = allowed(beats.values(), terms)
    last_s = max(since_s, min(beat.last_s for beat in beats.values()))
    over_s = last_s + may.s
    if now < over_s - may.s / 2:
        return Look(min(over_s - may.s / 2, now + FLOOR_S / 2))  # what is allowed shrinks as steps are learnt
    soon = now + _pause(may.s)
    if now < over_s:
        return Look(min(soon, over_s), sample=True)
    if stale(trail, now):  # who has ended since says nothing, and does not hang
        return Look(now, sample=True)
    assert trail is not None
    working = terms.given_s is None and now - trail.worked_s < may.s / 4
    if working and now < last_s + WORKING * may.s:
        return Look(soon, sample=True)
    rank, step = _behind(beats), min(beat.step for beat in beats.values())
    who = f"rank {rank}, behind the others, has" if rank >= 0 else "the ranks of this node have"
    why = f"{who} said no step after {step} for {now - last_s:.0f} s; {may.s:.0f} s are allowed ({may.why})"
    return Look(now, alarm=why, rank=rank)


def _by_traces(now: float, since_s: float, given_s: float, trail: Trail | None) -> Look:
    """Without steps: nobody writes or moves data, and somebody does nothing at all."""
    soon = now + _pause(given_s)
    if trail is None:
        return Look(soon, sample=True, gpus=True)
    if stale(trail, now):
        return Look(now, sample=True, gpus=True)
    quiet_s = max(since_s, trail.worked_s)
    idle = sorted(rank for rank, at in trail.busy_s.items() if now - max(quiet_s, at) >= given_s)
    if not idle:
        return Look(soon, sample=True, gpus=True)
    who = f"{len(idle)} of its {len(trail.busy_s)} ranks" if len(trail.busy_s) > 1 else "its rank"
    what = "neither processor nor GPU" if all(rank in trail.last.gpu for rank in idle) else "no processor"
    alarm = (
        f"no rank of this node has written anything for {now - quiet_s:.0f} s, and {who} used {what}; "
        f"{given_s:.0f} s are allowed (--hang-timeout)"
    )
    return Look(now, alarm=alarm, rank=idle[0] if len(idle) == 1 else -1)


def longest_s(beats: Iterable[Beat], terms: Terms) -> float:
    """Return the longest pause that a rank has gone on after, in this round or an earlier one."""
    return max((terms.seen_s, *(_longest_s(beat.longest_s, terms) for beat in beats if _sane(beat))))


def _longest_s(said_s: float, terms: Terms) -> float:
    """Return a rank's longest pause without the time in which it can have been stopped."""
    return said_s if not 0 < terms.out_s <= said_s else max(terms.before_s, said_s - terms.out_s)


def woken(since_s: float, beats: Iterable[Beat], trail: Trail | None, wanted_s: float, now: float) -> float:
    """Return before when nothing is held against ranks: a look that was wanted at ``wanted_s`` has come at ``now``."""
    late_s = now - wanted_s
    if late_s > LATE_S:
        return now
    if late_s <= LATISH_S:
        return since_s
    said = min((beat.last_s for beat in beats if _sane(beat)), default=trail.worked_s if trail else since_s)
    return min(now, max(since_s, said) + late_s)


def stopped(terms: Terms, late_s: float, before: Iterable[Beat]) -> Terms:
    """Return the terms after a look that came ``late_s`` late, awake; ``before``: the beats of the look before."""
    if late_s <= LATISH_S:
        return terms
    return terms._replace(out_s=terms.out_s + late_s, before_s=longest_s(before, terms._replace(seen_s=0.0)))


def silent_s(beat: Beat, now: float, since_s: float) -> float:
    """Return for how long a rank has said nothing."""
    return max(0.0, now - max(beat.last_s, since_s)) if _sane(beat) else 0.0


def stragglers(beats: Mapping[int, Beat]) -> dict[int, float]:
    """Return the ranks whose steps take clearly longer than the others', and how many times the median.

    Ranks that wait for one another in each step take equally long: only those that do not can be told apart so.
    """
    steps = {r: _step_s(beat) for r, beat in beats.items() if _sane(beat) and beat.times >= LEARNING_BEATS}
    usual = median_low(steps.values()) if len(steps) > 1 else 0.0
    return {r: step / usual for r, step in steps.items() if usual > 0 and step >= SLOW * usual}


def raised(terms: Terms, silence_s: float) -> Terms:
    """Return the terms after an alarm at such a silence: a healthy job that was taken for a hung one gets more time."""
    return terms._replace(patience_s=min(PATIENCE_MOST_S, max(terms.patience_s, 2 * silence_s)))


def _pause(allowed_s: float) -> float:
    return min(LOOK_MOST_S, max(LOOK_LEAST_S, allowed_s / LOOKS))


def _step_s(beat: Beat, out_s: float = 0.0) -> float:
    slept_s = beat.slept_s if math.isfinite(beat.slept_s) and beat.slept_s > 0 else 0.0
    return max(0.0, beat.last_s - beat.first_s - slept_s - out_s) / max(1, beat.times - 1)


def _sane(beat: Beat) -> bool:
    """Tell whether a slot holds numbers that time can have: it is the rank's own memory."""
    return all(map(math.isfinite, (beat.first_s, beat.last_s, beat.longest_s))) and beat.longest_s >= 0


def _behind(beats: Mapping[int, Beat]) -> int:
    """Return the one rank that has done fewer steps than all others; -1 when there is none such."""
    least = min(beat.step for beat in beats.values())
    behind = [rank for rank, beat in beats.items() if beat.step == least]
    return behind[0] if len(behind) == 1 and len(beats) > 1 else -1
