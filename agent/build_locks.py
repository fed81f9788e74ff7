"""Locks that killed ranks leave where torch compiles C++ extensions: whoever comes next waits for them without end.

torch.utils.file_baton (2.13) makes ``<extension>/lock``, keeps it open while it compiles and removes it; others wait
until it is gone, and do not ask whose it is. So a lock is stale when no process has it open. That can be seen of
processes of this machine alone, and not of those in other containers: a lock goes only if it lies on a file system of
this machine, is this user's, and was made while the ranks ran that are now dead. Of others it is said that they are
there. Called by the crew after a failure, in a thread; blocks while it reads directories.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from .mounts import may_hang

LOCK = "lock"
MOST = 500  # directories looked into: a cache of extensions has tens
COARSE_S = 0.05  # files are stamped with the time of the last tick


def directory(environ: Mapping[str, str]) -> Path | None:
    """Return where a rank with this environment compiles, below which each extension has a directory; None: unknown."""
    if given := environ.get("TORCH_EXTENSIONS_DIR"):
        return Path(given) if given.startswith("/") else None
    cache = environ.get("XDG_CACHE_HOME") or (f"{environ['HOME']}/.cache" if environ.get("HOME") else "")
    return Path(cache, "torch_extensions") if cache.startswith("/") else None


def clear(root: Path, since: float) -> list[str]:
    """Remove what ranks that ran since then (wall clock) and are dead have left; return a line about each lock."""
    found = {lock: made for lock in _locks(root) if (made := _stat(lock)) is not None and made.st_uid == os.geteuid()}
    if not found:
        return []
    held = _open_files()
    said: list[str] = []
    for lock, made in found.items():
        if (made.st_dev, made.st_ino) in held:
            continue
        if may_hang(str(lock.parent)):
            said.append(_doubt(lock, "it lies on a file system that other machines may share"))
        elif made.st_mtime < since - COARSE_S:
            said.append(_doubt(lock, "it is older than the ranks that have just ended"))
        else:
            lock.unlink(missing_ok=True)
            said.append(
                f"{lock} is removed: a rank that was killed held it, and the next would wait for it without end"
            )
    return said


def _doubt(lock: Path, why: str) -> str:
    return (
        f"{lock} is left alone, though nobody here has it open: {why}; ranks that compile this extension wait for it "
        "without end, so remove it if no job compiles it now"
    )


def _locks(root: Path) -> Iterator[Path]:
    """Find locks one and two directories below: the default has one for each Python and CUDA in between."""
    looked = 0
    for upper in _directories(root):
        for place in (upper, *_directories(upper)):
            looked += 1
            if looked > MOST:
                return
            if (place / LOCK).is_file():
                yield place / LOCK


def _directories(place: Path) -> list[Path]:
    try:
        with os.scandir(place) as entries:
            return [Path(entry.path) for entry in entries if entry.is_dir()]
    except OSError:
        return []


def _stat(path: Path) -> os.stat_result | None:
    try:
        return path.stat()
    except OSError:
        return None


def _open_files() -> set[tuple[int, int]]:
    """Return (device, inode) of every file that a process of this user has open."""
    found: set[tuple[int, int]] = set()
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            numbers = os.listdir(f"/proc/{pid}/fd")
        except OSError:  # it has ended, or is another's
            continue
        for number in numbers:
            try:
                file = os.stat(f"/proc/{pid}/fd/{number}")
            except OSError:
                continue
            found.add((file.st_dev, file.st_ino))
    return found
