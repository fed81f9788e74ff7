"""What a node keeps of a failure before the ranks are started again: a private, bounded directory for who looks later.

``<run dir>/bundles/attempt-NNN/`` holds ``evidence.json`` (all facts of this node, uncut, with the first rank that
ended and every exit status), ``node.json`` (memory, disks, load at that time), and of each rank the last part of what
it wrote, its error file, and the dumps that torch left. The ranks' files themselves stay where they are; the bundle is
what is still there when they have been cleaned up, and what can be sent to somebody. The record names it.
Blocking; called through the file thread. Files are 0600, directories 0700.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import NamedTuple

from ..health import wire
from ..health.evidence import Fact, Fenced, GuardianDied, RankExit
from .run_dir import make_private, random_name

SCHEMA_VERSION = 1
MOST_BYTES = 64 << 20  # of one bundle
TAIL_BYTES = 256 << 10  # of one stream of a rank
DUMP_BYTES = 16 << 20  # of one dump: a flight recorder's with 2000 entries has about 2 MiB
MOST_DUMPS = 1024  # that are looked for
LONGEST = 200  # bytes of a dump's name, of which the end tells whose it is
SLACK_S = 1.0  # between this clock and that of a file system
FIRST, LAST = 2, 8  # bundles of a run that are kept: how it began, and how it is now
_FOLDER = "bundles"
_STREAMS = ("stderr", "stdout")


class Case(NamedTuple):
    """One node's failure: whose, and where its ranks' files and dumps are."""

    node: str
    run_id: str
    round: int
    attempt: int
    directories: Mapping[int, Path]  # by rank
    dumps: tuple[Path, ...] = ()  # where ranks may have left some
    since: float = 0.0  # wall clock: older ones are another round's


def make(run_dir: Path, attempt: int) -> Path:
    """Make and return a bundle's directory; an earlier one of the attempt is never written to. OSError."""
    parent, k = run_dir / _FOLDER, 0
    make_private(parent)
    while True:
        path = parent / (f"attempt-{attempt:03d}.{k}" if k else f"attempt-{attempt:03d}")
        try:
            path.mkdir(mode=0o700)
        except FileExistsError:
            k += 1
        else:
            return path


def fill(path: Path, case: Case, facts: tuple[Fact, ...]) -> None:
    """Remove what is too old and write the bundle into its directory, what tells most first.

    What cannot be written costs nothing else; the first reason is raised in the end. OSError.
    """
    reasons: list[OSError] = []

    def kept(write: Callable[[], int]) -> int:
        try:
            return write()
        except OSError as error:
            reasons.append(error)
            return 0

    kept(lambda: _prune(path.parent))
    kept(lambda: _write(path / "evidence.json", json.dumps(_told(case, facts), indent=1).encode()))
    kept(lambda: _write(path / "node.json", json.dumps(_node(path), indent=1).encode()))
    left = MOST_BYTES
    for source, target in _parts(path, case, facts):
        left -= kept(partial(_copy_end, source, target, min(TAIL_BYTES, left)))
    for dump in case.dumps[:MOST_DUMPS]:  # a dump cut short is of no use
        if 0 < (size := _size(dump, case.since)) <= min(DUMP_BYTES, left):
            left -= kept(partial(_copy_end, dump, _fresh(path, dump.name), size))
    if reasons:
        raise reasons[0]


def _parts(path: Path, case: Case, facts: Iterable[Fact]) -> Iterator[tuple[Path, Path]]:
    """Yield what the ranks wrote, and under which names it is kept."""
    for rank in _by_interest(case, facts):
        directory = case.directories[rank]
        for stream in _STREAMS:
            yield directory / f"{stream}.log", path / f"rank-{rank}.{stream}"
        yield directory / "error.json", path / f"rank-{rank}.error.json"


def _fresh(path: Path, name: str) -> Path:
    """Return where a dump of that name is kept: ranks may leave two of one name, or one with a name of any length."""
    place, k = path / f"dump-{os.fsdecode(os.fsencode(name)[-LONGEST:])}", 0
    while place.exists():
        k += 1
        place = path / f"dump-{k}-{os.fsdecode(os.fsencode(name)[-LONGEST:])}"
    return place


def _told(case: Case, facts: tuple[Fact, ...]) -> dict[str, object]:
    exits = sorted((fact for fact in facts if isinstance(fact, RankExit)), key=lambda fact: fact.at_s)
    # When the lease may be gone, or the guardian itself dies, ranks are killed: that is no end of their own.
    killed = -signal.SIGKILL if any(isinstance(fact, (Fenced, GuardianDied)) for fact in facts) else 0
    first = next((fact for fact in exits if fact.status not in (0, killed) and not fact.stopping), None)
    return {
        "schema_version": SCHEMA_VERSION,
        "run_id": case.run_id,
        "node": case.node,
        "round": case.round,
        "attempt": case.attempt,
        "kept_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "first_abnormal": None if first is None else {"rank": first.rank, "status": first.status, "at_s": first.at_s},
        "exit_codes": {str(fact.rank): fact.status for fact in exits},
        "facts": wire.spelled(facts),
    }


def _node(place: Path) -> dict[str, object]:
    """Return how the machine stands: what a full disk or a swapping host shows only while it lasts."""
    return {
        "uptime_s": time.clock_gettime(time.CLOCK_BOOTTIME),
        "kernel": " ".join(os.uname()[i] for i in (0, 2, 3, 4)),
        "host": os.uname().nodename,
        "load": os.getloadavg(),
        "memory": _meminfo(),
        "disks": {str(disk): _room(disk) for disk in (place, Path("/tmp"), Path("/dev/shm"))},  # noqa: S108
    }


def _meminfo() -> dict[str, str]:
    wanted = ("MemTotal", "MemAvailable", "SwapTotal", "SwapFree", "Shmem", "HardwareCorrupted")
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return {}
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines) if name in wanted}


def _room(place: Path) -> dict[str, int] | str:
    try:
        found = os.statvfs(place)
    except OSError as error:
        return str(error)
    return {
        "bytes": found.f_blocks * found.f_frsize,
        "free": found.f_bavail * found.f_frsize,
        "inodes_free": found.f_favail,
    }


def _by_interest(case: Case, facts: Iterable[Fact]) -> list[int]:
    """Order the ranks so that what fits into the bundle tells most: first those that ended by themselves, and first."""
    ends = {fact.rank: (fact.stopping, fact.status == 0, fact.at_s) for fact in facts if isinstance(fact, RankExit)}
    return sorted(case.directories, key=lambda rank: (ends.get(rank, (True, True, 0.0)), rank))


def _open(path: Path) -> int:
    """Open a file that a rank may have replaced by anything."""
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise FileNotFoundError(path)
    return fd


def _size(path: Path, since: float) -> int:
    """Return the size of a file that was written after ``since``, 0 where there is none."""
    try:
        found = path.lstat()
    except OSError:
        return 0
    ours = stat.S_ISREG(found.st_mode) and found.st_uid in (os.geteuid(), 0)  # torch's default is a name in /tmp
    return found.st_size if ours and found.st_mtime >= since - SLACK_S else 0


def _copy_end(source: Path, target: Path, most: int) -> int:
    """Copy the last ``most`` bytes and return how many were there; an empty or absent file leaves nothing."""
    try:
        fd = _open(source)
    except OSError:
        return 0
    with os.fdopen(fd, "rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - most))
        raw = file.read(most)
    return _write(target, raw) if raw else 0


def _write(path: Path, raw: bytes) -> int:
    """Write a new private file, or none. Not synced: it must outlive this process, not its machine, and ranks wait."""
    try:
        with os.fdopen(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600), "wb") as file:
            file.write(raw)
    except OSError as error:
        if error.errno != errno.EEXIST:
            path.unlink(missing_ok=True)
        raise
    return len(raw)


def _prune(parent: Path) -> int:
    """Remove bundles between the first and the last few. One that is being removed has another name."""
    names = sorted((entry.stat().st_mtime_ns, entry.name) for entry in os.scandir(parent) if entry.is_dir())
    for _, name in names[FIRST:-LAST]:
        going = parent / f".{random_name()}"
        (parent / name).rename(going)
        shutil.rmtree(going, ignore_errors=True)
    return 0
