"""The copy of the job that stands beside the checkpoints, and how a launch goes on from it. Pure.

The store may be gone with the machines of a launch, its copy is not (``agent/mirror.py`` writes and reads it). A launch
that finds no job in the store goes on from here: rounds upward, with the budget and the launches before it, and with
what decides whose checkpoints are stale. Whoever may write to the checkpoints may have written it.
"""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple, cast

from .asked import MOST_RANKS
from .errors import BadRecord
from .membership import REMEMBERED, Over, Standing
from .quarantine import MOST_KEPT, Bar, bar_of
from .reader import LARGEST, parse
from .records import MAX_ROUND, Job, Outcome, Phase, Roster, Round, StoreLoss, decode_job, decode_roster, encode
from .suspects import of_another_launch

SCHEMA = 1
MAX_BYTES = 1 << 18
MOST_ROUNDS = 100  # of the history: they go into the transaction that begins a launch, and etcd takes 128 operations
GAP = 1000  # the copy is some moments behind: no round of the lost store may form again, and each leaves a token
NOTHING = -1  # the step of a round that started from nothing
UNKNOWN = 0  # the ranks of a round that says nothing of them
_ORDER = {Phase.FORMING: 0, Phase.RUNNING: 1, Phase.STOPPING: 2, Phase.DONE: 3, Phase.FAILED: 3}

Resumes = tuple[tuple[Round, int], ...]
"""Rounds with the step that they resumed from, oldest first."""


class Mirrored(NamedTuple):
    """A run as it was last known."""

    job: Job
    history: Resumes = ()
    roster: Roster | None = None  # of the last round, where its ranks outlive a lost lease (--on-store-loss=hold)
    worlds: tuple[tuple[Round, int], ...] = ()  # how many ranks the rounds had
    bars: tuple[Bar, ...] | None = None  # what is held against hosts, where that goes with the store; None: not known


def to_value(run_id: str, mirrored: Mirrored) -> dict[str, object]:
    """Return the copy as a JSON value."""
    history = needed(tuple(item for item in mirrored.history if item[0] <= mirrored.job.round))
    return {
        "v": SCHEMA,
        "run_id": run_id,
        "job": json.loads(encode(mirrored.job)),
        "roster": None if mirrored.roster is None else json.loads(encode(mirrored.roster)),
        "resumed_rounds": [n for n, _ in history],
        "resumed_steps": [step for _, step in history],
        "resumed_worlds": [dict(mirrored.worlds).get(n, UNKNOWN) for n, _ in history],
        "hosts": None if mirrored.bars is None else [bar._asdict() for bar in mirrored.bars],
    }


def decode(run_id: str, raw: bytes) -> Mirrored:
    """Read the copy of that run; BadRecord when it is none."""
    r = parse(raw, "the copy of the job", MAX_BYTES, SCHEMA)
    if r.text("run_id") != run_id:
        raise BadRecord(f"{r.what}: it is that of run {r.text('run_id')[:64]!r}")
    if r.sub("job") is None:
        raise BadRecord(f"{r.what}: it holds no job")
    body = cast("dict[str, object]", json.loads(raw))
    job = decode_job(json.dumps(body["job"]).encode())
    roster = None if r.sub("roster") is None else decode_roster(json.dumps(body["roster"]).encode())
    if roster is not None and roster.round != job.formed:
        raise BadRecord(f"{r.what}: the last round to form was {job.formed}, the roster is that of {roster.round}")
    rounds = r.numbers("resumed_rounds", MOST_ROUNDS, 1, job.round)
    steps = r.numbers("resumed_steps", MOST_ROUNDS, NOTHING, LARGEST)
    worlds = r.numbers("resumed_worlds", MOST_ROUNDS, UNKNOWN, MOST_RANKS) if r.has("resumed_worlds") else ()
    if len(rounds) != len(steps) or any(a >= b for a, b in pairwise(rounds)):
        raise BadRecord(f"{r.what}: its history is no list of rounds, each with a step")
    bars = tuple(bar_of(held) for held in r.subs("hosts", MOST_KEPT)) if r.has("hosts") else None
    history = tuple((Round(n), step) for n, step in zip(rounds, steps, strict=True))
    known = tuple((Round(n), world) for n, world in zip(rounds, worlds, strict=False) if world != UNKNOWN)
    return Mirrored(job, history, roster, known, bars)


def needed(history: Resumes) -> Resumes:
    """Return what tells stale steps: a round that a later one went back behind, or level with, says nothing more.

    The newest are kept where there are too many: a stale step that only older ones would tell lies behind them all.
    """
    out: list[tuple[Round, int]] = []
    for n, step in sorted(history, reverse=True):
        if not out or step < out[-1][1]:
            out.append((n, step))
    return tuple(reversed(out[:MOST_ROUNDS]))


def entries(mirrored: Mirrored) -> tuple[tuple[Round, bytes], ...]:
    """Return the history as it stands in the store."""
    blank = {"path": "", "format": "", "verified": "", "refused": list[object]()}
    worlds = {n: {"world": world} for n, world in mirrored.worlds}
    return tuple((n, json.dumps({**blank, "step": step, **worlds.get(n, {})}).encode()) for n, step in mirrored.history)


def newer(a: Job, b: Job) -> bool:
    """Tell whether ``a`` is a later state of the run than ``b``: larger rounds win, whoever wrote them."""
    return (a.round, _ORDER[a.phase]) > (b.round, _ORDER[b.phase])


def held(roster: Roster | None) -> Roster | None:
    """Return the roster if its ranks may outlive the store: the next round must wait for those very nodes."""
    return roster if roster is not None and roster.store_loss is StoreLoss.HOLD else None


def go_on(mirrored: Mirrored, begin: Job, fresh: bool) -> Standing | Over:
    """Decide how a launch goes on, given what stands in the copy and the record that it would begin with.

    The same rules as for a run id that has ended in the store. But a launch whose store was lost on the way has not
    ended; and launches without an id are never the same one here, for the store of that one is gone.
    """
    kept = mirrored.job
    outcome = kept.outcome or Outcome(1, "it was followed by another launch")
    mine = bool(begin.launch) and begin.launch == kept.launch
    if begin.launch and ((mine and kept.phase.over) or (not mine and begin.launch in kept.past)):
        why = f"this launch has already ended: {outcome.sentence}; give a new launch_id=NAME in --rdzv-conf"
        return Over(outcome, why)
    if kept.phase is Phase.DONE and not fresh:
        return Over(outcome, "this run id is done; choose another --rdzv-id, or give --fresh to run it again")
    if kept.round + GAP > MAX_ROUND:
        raise BadRecord(f"the copy of the job: no round can follow {kept.round}")
    if kept.store_loss is StoreLoss.HOLD and kept.formed and mirrored.roster is None and kept.phase is not Phase.DONE:
        why = "its ranks may still live (--on-store-loss=hold), and which nodes they are on is not known"
        return Over(Outcome(2, ""), f"{why}: see to it that none of them runs, and start under another --rdzv-id")
    n = Round(kept.round + GAP)
    past = kept.past if mine or not kept.launch else (kept.launch, *kept.past)[:REMEMBERED]
    formed = Round(0) if mirrored.roster is None else mirrored.roster.round
    new = replace(begin, round=n, first=n, formed=formed, past=past, blamed=kept.blamed)
    if mine or not fresh:
        suspects = kept.suspects if mine else of_another_launch(kept.suspects)
        charged = kept.charged if mine else 0
        new = replace(new, spent=kept.spent, memory=kept.memory, charged=charged, suspects=suspects)
    return Standing(n, new)
