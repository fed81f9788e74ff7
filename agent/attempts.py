"""The run's directory and the records of its attempts: what happened, for people and for the next launch.

``attempt_record`` is pure: facts in, a JSON value out. The rest are blocking file operations that the agent's loop
hands to its file thread. A record is written once; a second one for the same attempt gets a name of its own, and
directories of ranks are never used twice: a later success overwrites nothing of an earlier failure.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import cast

from ..health import wire
from ..health.evidence import NodeEvidence
from ..rendezvous.records import ResumePoint, Roster

SCHEMA_VERSION = 1


class RunDirectoryError(Exception):
    """No directory for logs and records could be had; the sentence says why and what to give instead."""


class AttemptState(str, Enum):
    """What became of an attempt."""

    FAILED = "failed"  # and the job with it
    RECOVERED = "recovered"  # it failed, and another one followed
    DONE = "done"


@dataclass(frozen=True, slots=True)
class Times:
    """How long its end and the way back took, in milliseconds; None where it is not known."""

    detect: float | None = None
    stop: float | None = None
    decide: float | None = None
    form: float | None = None
    spawn: float | None = None


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
        "started_at": _for_people(facts.started_at),
        "ended_at": _for_people(facts.ended_at),
        "world_size": roster.world_size,
        "members": members,
        "exit_codes": {str(rank): status for rank, status in sorted(facts.exits)},
        "verdict": None if facts.verdict is None else dict(facts.verdict),
        "evidence": [_evidence(node) for node in facts.evidence],
        "resume": None
        if resume is None or not resume.path
        else {"path": resume.path, "step": resume.step, "format": resume.format, "verified": resume.verified},
        "refused": [{"name": name, "reason": reason} for name, reason in facts.refused],
        "times_ms": {name: getattr(facts.times, name) for name in Times.__slots__},
    }


def _evidence(node: NodeEvidence) -> dict[str, object]:
    spelled = cast("dict[str, object]", json.loads(wire.encode(node.facts)))
    return {"node": node.node, "order": node.order, "facts": spelled["facts"]}


def _for_people(at: float | None) -> str | None:
    from datetime import datetime, timezone  # with the first record, not with the start

    return None if at is None else datetime.fromtimestamp(at, timezone.utc).isoformat(timespec="milliseconds")


def write_record(directory: Path, attempt: int, record: Mapping[str, object]) -> Path:
    """Write ``attempt-NNN.json``, or ``attempt-NNN.<k>.json`` where that exists; whole and durable, or not at all."""
    _make_private(directory)
    temporary = directory / f".attempt-{attempt:03d}.{_random()}"
    try:
        _write_whole(temporary, record)
        path, k = directory / f"attempt-{attempt:03d}.json", 0
        while not _claim(path):
            k += 1
            path = directory / f"attempt-{attempt:03d}.{k}.json"
        temporary.rename(path)
    finally:
        temporary.unlink(missing_ok=True)
    _sync_directory(directory)
    return path


def _write_whole(path: Path, record: Mapping[str, object]) -> None:
    with os.fdopen(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb") as file:
        file.write(json.dumps(record, indent=1).encode() + b"\n")
        file.flush()
        os.fsync(file.fileno())


def mirror_record(directory: Path, attempt: int, record: Mapping[str, object]) -> None:
    """Write a copy where it outlives this machine, unless another node of the job has done so.

    The directory serves all launches of the run, whose attempts are counted from 0 each: rounds tell them apart.
    """
    _make_private(directory)
    path = directory / f"attempt-{attempt:03d}-round-{record.get('round')}.json"
    if not _claim(path):
        return
    temporary = directory / f".{path.name}.{_random()}"
    _write_whole(temporary, record)
    temporary.rename(path)
    _sync_directory(directory)


def _claim(path: Path) -> bool:
    """Make the name ours, empty as yet; False when it is taken. No hard link: not every file system has them."""
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    except FileExistsError:
        return False
    return True


def _sync_directory(directory: Path) -> None:
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    except OSError as error:
        if error.errno != errno.EINVAL:  # file systems that cannot sync a directory say so
            raise
    finally:
        os.close(fd)


def mirror_directory(checkpoint_dir: Path, run_id: str) -> Path:
    """Return where a second copy of the records is kept: with the checkpoints, which outlive this machine."""
    return checkpoint_dir / ".remuster" / _as_name(run_id) / "attempts"


def run_directory(log_dir: Path | None, run_id: str) -> Path:
    """Make and return a new private ``<log dir>/<run id>_<8 random>``; by default in this user's own part of TMPDIR."""
    parent = _own_temporary() if log_dir is None else log_dir.absolute()
    path = parent / f"{_as_name(run_id)}_{_random()}"
    try:
        _make_private(parent)
        path.mkdir(mode=0o700)
    except OSError as error:
        why = "it is a file" if isinstance(error, (FileExistsError, NotADirectoryError)) else error.strerror
        raise RunDirectoryError(f"logs cannot be kept in {parent}: {why}; give another --log-dir") from error
    return path


def _random() -> str:
    return os.urandom(4).hex()


def _make_private(directory: Path) -> None:
    """Make the directory and those above it that are missing, for this user only; ``mkdir -p`` opens the upper ones."""
    if not directory.is_dir():
        _make_private(directory.parent)
        with contextlib.suppress(FileExistsError):
            directory.mkdir(mode=0o700)


def _own_temporary() -> Path:
    import tempfile  # and all that it imports: only where no --log-dir was given

    path = Path(tempfile.gettempdir()) / f"remuster-{os.geteuid()}"
    with contextlib.suppress(FileExistsError):
        path.mkdir(mode=0o700)
    found = path.lstat()  # in a directory that all may write to, somebody else may have made it
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
        raise RunDirectoryError(f"{path} is not a directory of this user's; remove it, or give --log-dir")
    if found.st_mode & 0o077:
        path.chmod(0o700)
    return path


def attempt_directory(run_dir: Path, attempt: int, local_rank: int) -> Path:
    """Make and return ``attempt_<n>/<local rank>`` for the rank's files; one that exists is never used again."""
    path, k = run_dir / f"attempt_{attempt}" / str(local_rank), 0
    while True:
        path.parent.mkdir(mode=0o700, exist_ok=True)
        with contextlib.suppress(FileExistsError):
            path.mkdir(mode=0o700)
            return path
        k += 1
        path = run_dir / f"attempt_{attempt}.{k}" / str(local_rank)


def _as_name(run_id: str) -> str:
    """Return the run id as the name of a directory: itself, where that is safe."""
    name = re.sub(r"[^A-Za-z0-9._-]", "_", run_id)[:100]
    if name and name == run_id and not name.startswith("."):
        return name
    import hashlib

    return f"{name.lstrip('.')}-{hashlib.sha256(run_id.encode(errors='surrogatepass')).hexdigest()[:8]}"
