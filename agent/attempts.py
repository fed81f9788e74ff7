"""The records of a run's attempts: what happened, for people and for the next launch.

``attempt_record`` is pure: facts in, a JSON value out. The rest are blocking file operations that the agent's loop
hands to its file thread. A record is written once; a second one for the same attempt gets a name of its own.
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import cast

from ..health import wire
from ..health.evidence import NodeEvidence
from ..rendezvous.records import ResumePoint, Roster
from .run_dir import as_name, make_private, random_name

SCHEMA_VERSION = 1


class AttemptState(str, Enum):
    """What became of an attempt."""

    FAILED = "failed"  # and the job with it
    RETRIED = "retried"  # it failed, and another one followed
    DONE = "done"


class ReentryState(str, Enum):
    """What became of a re-entry from a checkpoint."""

    RECOVERED = "recovered"  # the ranks went on as they should, and the first newer checkpoint was verified
    UNPROVEN = "unproven"  # the attempt ended before, or its ranks do not say their steps
    REFUTED = "refuted"  # they did not


@dataclass(frozen=True, slots=True)
class Reentry:
    """How a re-entry went; None where it is not known."""

    state: ReentryState
    steps: int | None = None  # that agree, on all nodes
    by: str | None = None  # what was compared
    checkpoint: int | None = None  # the step of the newer one that was verified
    reason: str | None = None  # of a refusal, or why nothing is proven


@dataclass(frozen=True, slots=True)
class Times:
    """How long its end and the way back took, in milliseconds; None where it is not known."""

    detect: float | None = None
    stop: float | None = None
    decide: float | None = None
    form: float | None = None
    spawn: float | None = None
    recovery: float | None = None  # from the end of the round before, as seen, until all ranks of this one had started
    load: float | None = None  # from then until the last rank had said its first step; only ranks know it
    save: float | None = None  # of the newest checkpoint, if this attempt published it


@dataclass(frozen=True, slots=True)
class AttemptFacts:
    """All that is known about an attempt when it is over. The two wall-clock times are for people only."""

    run_id: str
    launch: str
    attempt: int
    roster: Roster
    state: AttemptState
    exits: tuple[tuple[int, int], ...] = ()  # (rank, status), status as subprocess gives it
    verdict: Mapping[str, object] | None = None
    evidence: tuple[NodeEvidence, ...] = ()
    resume: ResumePoint | None = None
    refused: tuple[tuple[str, str], ...] = ()
    reentry: Reentry | None = None  # None: it started from nothing
    times: Times = field(default_factory=Times)
    started_at: float | None = None
    ended_at: float | None = None


def attempt_record(facts: AttemptFacts) -> dict[str, object]:
    """Return the record as a JSON value."""
    roster, resume = facts.roster, facts.resume
    members: list[dict[str, object]] = []
    for i, member in enumerate(roster.members):
        first = roster.first_rank(i)
        members.append(
            {
                "node": member.node,
                "machine": member.machine,
                "incarnation": f"{member.inc:x}",
                "address": member.address,
                "slots": member.slots,
                "ranks": list(range(first, first + member.slots)),
            }
        )
    return {
        "schema_version": SCHEMA_VERSION,
        "run_id": facts.run_id,
        "launch": facts.launch,
        "attempt": facts.attempt,
        "round": roster.round,
        "state": facts.state.value,
        "started_at": for_people(facts.started_at),
        "ended_at": for_people(facts.ended_at),
        "world_size": roster.world_size,
        "members": members,
        "exit_codes": {str(rank): status for rank, status in sorted(facts.exits)},
        "verdict": None if facts.verdict is None else dict(facts.verdict),
        "evidence": [_evidence(node) for node in facts.evidence],
        "resume": None
        if resume is None or not resume.path
        else {"path": resume.path, "step": resume.step, "format": resume.format, "verified": resume.verified},
        "refused": [{"name": name, "reason": reason} for name, reason in facts.refused],
        "reentry": None
        if facts.reentry is None
        else {name: getattr(facts.reentry, name) for name in Reentry.__slots__},
        "times_ms": {name: getattr(facts.times, name) for name in Times.__slots__},
    }


def _evidence(node: NodeEvidence) -> dict[str, object]:
    spelled = cast("dict[str, object]", json.loads(wire.encode(node.facts)))
    return {"node": node.node, "order": node.order, "facts": spelled["facts"]}


def for_people(at: float | None) -> str | None:
    """Return a wall clock's time in words."""
    from datetime import datetime, timezone  # with the first record, not with the start

    return None if at is None else datetime.fromtimestamp(at, timezone.utc).isoformat(timespec="milliseconds")


def record_path(run_dir: Path, attempt: int) -> Path:
    """Return where an agent keeps the record of an attempt."""
    return run_dir / "attempts" / f"attempt-{attempt:03d}.json"


def write_record(directory: Path, attempt: int, record: Mapping[str, object]) -> Path:
    """Write ``attempt-NNN.json``, or ``attempt-NNN.<k>.json`` where that exists; whole and durable, or not at all."""
    make_private(directory)
    temporary = directory / f".attempt-{attempt:03d}.{random_name()}"
    try:
        write_whole(temporary, record)
        path, k = directory / f"attempt-{attempt:03d}.json", 0
        while not _claim(path):
            k += 1
            path = directory / f"attempt-{attempt:03d}.{k}.json"
        temporary.rename(path)
    finally:
        temporary.unlink(missing_ok=True)
    sync_directory(directory)
    return path


def write_whole(path: Path, record: Mapping[str, object]) -> None:
    """Write a new private file, durable but for its name."""
    with os.fdopen(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb") as file:
        file.write(json.dumps(record, indent=1).encode() + b"\n")
        file.flush()
        os.fsync(file.fileno())


def mirror_record(directory: Path, attempt: int, record: Mapping[str, object]) -> None:
    """Write a copy where it outlives this machine, unless another node of the job has done so.

    The directory serves all launches of the run, whose attempts are counted from 0 each: rounds tell them apart.
    """
    make_private(directory)
    path = directory / f"attempt-{attempt:03d}-round-{record.get('round')}.json"
    if not _claim(path):
        return
    temporary = directory / f".{path.name}.{random_name()}"
    write_whole(temporary, record)
    temporary.rename(path)
    sync_directory(directory)


def _claim(path: Path) -> bool:
    """Make the name ours, empty as yet; False when it is taken. No hard link: not every file system has them."""
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    except FileExistsError:
        return False
    return True


def sync_directory(directory: Path) -> None:
    """Make the names in a directory durable."""
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    except OSError as error:
        if error.errno != errno.EINVAL:  # file systems that cannot sync a directory say so
            raise
    finally:
        os.close(fd)


def keep_record(run_dir: Path, checkpoint_dir: Path | None, run_id: str, record: Mapping[str, object]) -> None:
    """Write a record into the run directory, and its copy beside the checkpoints."""
    attempt = record.get("attempt")
    number = attempt if isinstance(attempt, int) else 0
    try:
        write_record(run_dir / "attempts", number, record)
    finally:  # one full disk must not cost both copies
        if checkpoint_dir is not None:
            mirror_record(mirror_directory(checkpoint_dir, run_id), number, record)


def mirror_directory(checkpoint_dir: Path, run_id: str) -> Path:
    """Return where a second copy of the records is kept: with the checkpoints, which outlive this machine."""
    return beside_checkpoints(checkpoint_dir, run_id) / "attempts"


def beside_checkpoints(checkpoint_dir: Path, run_id: str) -> Path:
    """Return the run's own directory with the checkpoints."""
    return checkpoint_dir / ".remuster" / as_name(run_id)
