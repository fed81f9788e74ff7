"""Finds the dumps that torch's flight recorder left for this round's ranks, and reads them on a thread of its own.

torch writes one file a rank when a collective times out: the prefix TORCH_FR_DUMP_TEMP_FILE (before 2.9:
TORCH_NCCL_DEBUG_INFO_TEMP_FILE) and the rank's number (torch/csrc/distributed/c10d/FlightRecorder.cpp:
``DebugInfoWriter::getWriter``). Files from before the round are another's. Called by ``crew.py`` as a source.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Mapping
from typing import NamedTuple

from ..health.errors import BadEvidence
from ..health.evidence import Fact
from ..health.flight import MOST_BYTES, positions
from ..health.observed import Lacked
from .files import FileThread
from .linux import boottime
from .sources import MOST_FACTS, Begun, RankHere

NAMES = ("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE")
OLD = "/tmp/nccl_trace_rank_"  # noqa: S108  # torch's default until 2.8
READ_S = 1.5  # for all ranks
SLACK_S = 1.0  # between this clock and that of the file system


class _Reading:
    """What has been read so far: a thread fills it, and whoever waits may stop waiting."""

    def __init__(self) -> None:
        self.facts: list[Fact] = []
        self.wanted = True


class Left(NamedTuple):
    """A round's ranks, and the wall clock's time from which files are theirs."""

    ranks: tuple[RankHere, ...]
    since: float


class Dumps:
    """The source. ``environ`` is what ranks inherit."""

    name = "flight recorder"

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ
        self._thread = FileThread("flight-recorder")
        self._left = Left((), 0.0)

    def begin(self, begun: Begun) -> None:
        """Note who may leave a dump from now on."""
        self._left = Left(begun.ranks, time.time() - (boottime() - begun.at_s) - SLACK_S)

    async def inspect(self) -> None:
        """Nothing can be seen before torch has written it."""

    async def facts(self) -> tuple[Fact, ...]:
        """Return where the ranks stood that have left a dump; what could not be read is said."""
        reading = _Reading()
        try:
            await self._thread.run(self._read, self._left, reading, timeout_s=READ_S)
        except (OSError, TimeoutError):
            reading.wanted = False
            late = Lacked(self.name, f"its files could not be read within {READ_S:g} s")
            return (*reading.facts[: MOST_FACTS - 1], late)
        return tuple(reading.facts[:MOST_FACTS])

    async def close(self) -> None:
        """Let the thread end."""
        self._thread.close()

    def _read(self, left: Left, reading: _Reading) -> None:
        for rank in left.ranks:
            for path in paths(rank, self._environ):
                if not reading.wanted:
                    return
                try:
                    raw = newer(path, left.since)
                    reading.facts += positions(raw, rank.rank) if raw else ()
                except (OSError, BadEvidence) as error:
                    why = error.strerror if isinstance(error, OSError) else str(error)
                    reading.facts.append(Lacked(self.name, f"{path}: {why}"))


def paths(rank: RankHere, environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return where torch may have written a rank's dump."""
    env = {name: value for name, value in {**environ, **rank.env}.items() if value}
    given = next((env[name] for name in NAMES if name in env), None)
    if given is not None:
        return (f"{given}{rank.rank}",)
    cache = env.get("XDG_CACHE_HOME") or f"{env.get('HOME', '/tmp')}/.cache"  # noqa: S108
    return f"{cache}/torch/comm_lib_trace_rank_{rank.rank}", f"{OLD}{rank.rank}"


def newer(path: str, since: float) -> bytes:
    """Return the bytes of a file of ours that was written after ``since``; nothing when there is none. Blocks."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW)
    except FileNotFoundError:
        return b""
    try:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode) or found.st_mtime < since or found.st_uid not in (os.getuid(), 0):
            return b""
        parts: list[bytes] = []
        left = MOST_BYTES + 1
        while left > 0 and (part := os.read(fd, left)):
            parts.append(part)
            left -= len(part)
        return b"".join(parts)
    finally:
        os.close(fd)
