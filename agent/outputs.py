"""Where one node's ranks write, and who reads it: directories, console, copies of lines, room on the disk.

Ranks write straight into files of their own; on a terminal, and where the log directory can hang with its server, into
a relay that fills them. What only some jobs need is loaded when they do. Used by ``crew.py``, on the agent's loop; file
work goes through the file thread, so that a hung log directory never holds up the loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ..rendezvous.records import Round
from .files import FileThread
from .notes import LATER_S
from .run_dir import attempt_directory
from .spec import JobSpec, Writer

if TYPE_CHECKING:
    from .duplicates import Duplicates
    from .output import Console
    from .relay import Relay
    from .room import Room
    from .showing import View

ROOM_AT_ONCE_S = 3.0  # for a round on a disk that is full
TAIL_BYTES = 64 * 1024
TAIL_LINES = 40
_LOGS = ("stdout.log", "stderr.log")


class Shown(NamedTuple):
    """Where the ranks' files go and who shows them."""

    run_dir: Path
    files: FileThread
    console: Callable[[], Console]  # loaded when there is something to show: ranks start sooner
    line: Callable[..., None]  # a line of the agent's own


class Outputs:
    """The output of one node's ranks, for the agent's life. ``resized``: what to call when the terminal has changed."""

    def __init__(self, spec: JobSpec, shown: Shown, resized: Callable[[], None]) -> None:
        self._spec = spec
        self._run_dir, self._files, self._console, self._line = shown
        self._resized = resized
        self._ahead: tuple[Round, asyncio.Future[list[Path]]] | None = None  # a round's directories, under way or made
        self._unshown: Callable[[], list[View]] | None = None  # the present round's, until the console follows them
        self._shown = False
        self._draining: asyncio.Task[bool] | None = None
        self._copying: Duplicates | None = None
        self._copied: asyncio.Task[None] | None = None  # of the round before
        self._on_terminal = os.isatty(1) or os.isatty(2)
        self._apart = spec.output.writer is Writer.AGENT  # ranks do not write their files themselves
        self._asked_mounts = False
        self._relay: Relay | None = None
        self._room: Room | None = None
        self._survived = False
        self._making_room: asyncio.TimerHandle | None = None

    async def over(self) -> None:
        """Let go of what the round before wrote into, whose ranks are dead; show what is not shown yet."""
        if self._relay is not None:
            await self._relay.settle(close=True)
        self._show()

    def directories(self, n: Round, attempt: int) -> asyncio.Future[list[Path]]:
        """Make the directories of a round, by local rank; asked again for the same round, they are the same."""
        if self._ahead is None or self._ahead[0] != n:
            making = asyncio.ensure_future(self._files.run(self._make_directories, attempt, self._spec.nproc))
            making.add_done_callback(lambda made: made.cancelled() or made.exception())  # no start may come for it
            self._ahead = (n, making)
        return self._ahead[1]

    def _make_directories(self, attempt: int, slots: int) -> list[Path]:
        if self._spec.log_dir is not None and self._spec.output.writer is Writer.AUTO and not self._asked_mounts:
            from . import mounts

            self._asked_mounts = True
            with contextlib.suppress(OSError):  # no table: as on a disk
                self._apart = mounts.may_hang(str(self._run_dir))
        return [attempt_directory(self._run_dir, attempt, local) for local in range(slots)]

    async def prepare(self, directories: list[Path]) -> None:
        """See that the ranks which start now have room on a disk that was full, and a relay where they need one."""
        if self._room is not None and self._room.full:
            await self._room_at_once(directories)
        if (self._on_terminal or self._apart) and self._relay is None:
            self._relay = self._made_relay()

    def open(self, stream: int, path: str) -> str:
        """Return what a rank is to open as ``stream``, whose file is ``path``."""
        return path if self._relay is None else self._relay.open(stream, path)

    def started(self, directories: list[Path], views: Callable[[], list[View]]) -> None:
        """Show what the ranks write that were started now; what a restart prints is shown a bit later."""
        self._unshown = views
        self._hold_room()
        self._making_room = asyncio.get_running_loop().call_later(LATER_S, self._make_room, directories)
        if self._shown:
            asyncio.get_running_loop().call_later(LATER_S, self._show)
        else:
            self._show()  # somebody waits for the first line

    async def settle(self) -> None:
        """Return when all that ranks have written so far is in their files."""
        if self._relay is not None:
            await self._relay.settle()

    def ending(self) -> None:
        """Begin nothing new: the ranks are being stopped for good."""
        self._hold_room()

    async def end(self, survived: bool) -> None:
        """Let go of all; the console then has all files to drain. ``survived``: somebody may still write."""
        self._survived = survived
        if self._relay is not None:
            await self._relay.settle(close=True)
            self._relay.close()
            self._relay = None
        self._show()

    async def copied(self) -> None:
        """Wait until the copies of lines are whole, or their file system stands still. Call it after ``end``."""
        if self._copied is not None:
            await self._copied
        if self._copying is not None:
            await self._copying.finish()

    async def give_room_back(self) -> None:
        """Give back what is reserved for logs, unless somebody may write there. Call it after ``end``."""
        if self._room is not None and not self._survived:
            await self._room.close()
            self._room = None

    def _show(self) -> None:
        """Let go of the files of the round before, whose ranks are dead, and follow those of this one; once a round."""
        unshown, self._unshown = self._unshown, None
        if unshown is None:
            return
        from .output import Source

        console = self._console()
        if self._shown:
            self._draining = asyncio.ensure_future(console.drain())
        self._shown = True
        views = unshown()
        live = self._on_terminal and self._spec.nproc == 1
        console.follow(Source(view.path, view.stream, view.label, live) for view in views if view.shown)
        if self._spec.output.stdout_filters or self._spec.output.stderr_filters:
            self._copy([view for view in views if view.tee])

    def _make_room(self, directories: list[Path]) -> asyncio.Future[None]:
        """Look after the room that the logs of this round have; those of the round before are done."""
        from .room import Room

        if self._room is None:
            self._room = Room(self._run_dir, self._spec.output.limit, self._line)
        return self._room.keep([str(path / name) for path in directories for name in _LOGS])

    async def _room_at_once(self, directories: list[Path]) -> None:
        """What the round before has held is for the ranks that start now, from their first byte on."""
        self._hold_room()
        await asyncio.wait({self._make_room(directories)}, timeout=ROOM_AT_ONCE_S)

    def _hold_room(self) -> None:
        if self._making_room is not None:
            self._making_room.cancel()
            self._making_room = None

    def _copy(self, views: list[View]) -> None:
        """Copy the lines of these that were asked for; those of the round before are copied to their end."""
        from .duplicates import Duplicates

        if self._copying is not None:
            self._copied = asyncio.ensure_future(self._copying.finish())
        attempt = Path(views[0].path).parent.parent if views else self._run_dir
        self._copying = Duplicates(attempt, self._spec.output, lambda text: self._console().say(text))
        self._copying.follow(views)

    def _made_relay(self) -> Relay:
        from .relay import Relay

        return Relay(self._line, self._resized, lends_stdin=self._spec.nproc == 1, pipes=self._apart)


def last_lines(path: Path) -> tuple[str, ...]:
    """Return the last lines of a rank's file, which may be anything by now; none where there is none. Blocks."""
    from ..health import tail

    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
        with os.fdopen(fd, "rb") as file:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                return ()
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - TAIL_BYTES))
            return tail.last_lines(file.read(TAIL_BYTES), TAIL_LINES)
    except FileNotFoundError:
        return ()
