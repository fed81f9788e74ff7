"""What the kernel of this machine said since the ranks were started, and in the minute before; a source of evidence.

Read from /dev/kmsg, or from a file or a named pipe that a log daemon fills. The loop is woken by each line; reading the
device and a pipe never blocks, a file is read on a thread of its own (``kernel_file.py``).

**Times.** A record's stamp is the kernel's ``local_clock``: microseconds since boot without suspend, near
CLOCK_MONOTONIC but never corrected by NTP (17 ms off after 14 hours, measured; some tens of ppm at worst). What is read
as it comes is therefore stamped with CLOCK_BOOTTIME on arrival; what had been written before is converted by the
difference of the two clocks, and is never later than now.

**Whose lines.** The kernel log is the machine's: containers and network namespaces share it. Where the driver tells
which GPUs are to be seen here, lines about others are left out. A line is evidence for one round only.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import stat
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ..health.evidence import Fact
from ..health.kernel import Kind, bus_of, signs
from ..health.observed import Early, KernelLine, Lacked
from ..health.own_signatures import NONE, OwnSignatures, xids_of
from ..health.xid import lookup
from . import node_words as words
from .files import FileThread
from .kernel_lines import Kept, Line, hard, of_record, of_text
from .linux import boottime
from .sources import Begun
from .spec import KERNEL_LOG

if TYPE_CHECKING:
    from .kernel_file import KernelFile

NVIDIA = Path("/proc/driver/nvidia/gpus")  # a folder for each GPU that is to be seen here, containers included
BEFORE_S = 60.0
WINDOW_S = 3.0  # after a hard line: the ranks' own last words, and the lines that follow, come within
RECORD = 8192  # the kernel cuts a record to it
TURN, PIPE_TURN = 256, 16  # reads at once: records, pieces of a pipe; a flood is then left alone for a moment
PAUSE_S = 0.05
BORN_S, BORN_TRIES = 1.0, 10  # for a new file in the place of one that was rotated away
PARTIAL = 4096  # bytes of a line without an end
OPEN_S = 5.0
LATE_S = 1.0  # for the last lines, once the ranks are dead: nobody waits for a source much longer
_DEVICE = os.makedev(1, 11)  # the kernel's Documentation/admin-guide/devices.txt


class Opened(NamedTuple):
    """An open log: records or a pipe by ``fd``, or a file; and what stands in it already."""

    fd: int = -1
    records: bool = False
    file: KernelFile | None = None
    earlier: tuple[Line, ...] = ()


class KernelLog:
    """One kernel log. ``post`` takes alarms about lines that no rank can survive."""

    name = "kernel log"

    def __init__(
        self, path: str, post: Callable[[words.Event], None], gpus: Path = NVIDIA, own: OwnSignatures | None = None
    ) -> None:
        self._path = path
        self._post = post
        self._own = own or NONE
        self._folder = gpus
        self._gpus: frozenset[str] = frozenset()  # empty: not known
        self._files = FileThread("kernel log")
        self._kept = Kept()
        self._begun: Begun | None = None
        self._opening: asyncio.Task[None] | None = None
        self._reading: asyncio.Task[None] | None = None  # of a file
        self._log = Opened()
        self._grew = False  # the file, since its watch was set
        self._partial = b""
        self._lacked = ""
        self._missed = False
        self._pause: asyncio.TimerHandle | None = None

    def begin(self, begun: Begun) -> None:
        """Open the log when it is not open yet; lines that no round has had so far may count for this one."""
        self._begun = begun
        self._missed = False
        self._kept.forget(begun.at_s - BEFORE_S)
        closed = self._log.fd < 0 and self._log.file is None
        if closed and (self._opening is None or self._opening.done()):
            self._opening = asyncio.create_task(self._open())

    async def inspect(self) -> None:
        """Nothing: lines come by themselves."""

    async def facts(self) -> tuple[Fact, ...]:
        """Return the lines of the round that mean something."""
        if self._opening is not None:
            await asyncio.wait({self._opening})
            self._opening.result()
        begun, log = self._begun, self._log
        if begun is None:
            return ()
        if log.fd >= 0:
            self._read()
        if log.file is not None:
            try:
                self._take(await self._files.run(log.file.read, timeout_s=LATE_S))
            except (OSError, TimeoutError) as error:  # what was read before counts all the same
                self._lacked = self._lacked or _why(self._path, error)
        found: list[Fact] = [KernelLine(at_s - begun.at_s, text) for at_s, text in self._kept.hand_up()]
        if self._lacked:
            found.append(Lacked(self.name, self._lacked))
        if self._missed:
            found.append(Lacked(self.name, "the kernel wrote faster than it was read: some lines are missing"))
        return tuple(found)

    async def close(self) -> None:
        """Read no more."""
        for task in (self._opening, self._reading):
            if task is not None:
                task.cancel()
        if self._pause is not None:
            self._pause.cancel()
        log, self._log = self._log, Opened()
        if log.fd >= 0:
            asyncio.get_running_loop().remove_reader(log.fd)
            os.close(log.fd)
        if log.file is not None:
            asyncio.get_running_loop().remove_reader(log.file.watch)
            self._files.post(log.file.close)
        self._files.close()

    # --- opening ------------------------------------------------------------------------------------------------------
    async def _open(self) -> None:
        try:
            self._gpus = await self._files.run(_listed, self._folder, timeout_s=OPEN_S)
            await self._files.run(_prepare, self._own, timeout_s=OPEN_S)
            self._log = log = await self._files.run(_open, self._path, timeout_s=OPEN_S)
        except (OSError, TimeoutError) as error:
            self._lacked = _why(self._path, error)
            return
        self._lacked = ""
        ahead, now = boottime() - time.monotonic(), boottime()
        for line in log.earlier:
            if line.stamp_s is not None and line.stamp_s + ahead > now - BEFORE_S:
                self._keep(min(now, line.stamp_s + ahead), line)
        loop = asyncio.get_running_loop()
        if log.file is not None:
            loop.add_reader(log.file.watch, self._grown)
        else:
            loop.add_reader(log.fd, self._read)

    # --- reading ------------------------------------------------------------------------------------------------------
    def _read(self) -> None:
        """Take what is there, a bounded part of it at once."""
        log = self._log
        for _ in range(TURN if log.records else PIPE_TURN):
            try:
                raw = os.read(log.fd, RECORD)
            except BlockingIOError:
                return
            except BrokenPipeError:  # the ring was overrun: the next read gives the oldest record that is left
                self._missed = True
                continue
            except OSError as error:
                self._lose(error)
                return
            if log.records:
                self._keep(boottime(), of_record(raw))
            else:
                self._take(self._lines(raw))
        loop = asyncio.get_running_loop()
        loop.remove_reader(log.fd)
        if self._pause is None:
            self._pause = loop.call_later(PAUSE_S, self._resume)

    def _resume(self) -> None:
        self._pause = None
        if self._log.fd >= 0:
            asyncio.get_running_loop().add_reader(self._log.fd, self._read)

    def _lose(self, error: OSError) -> None:
        log, self._log = self._log, Opened()
        asyncio.get_running_loop().remove_reader(log.fd)
        os.close(log.fd)
        self._lacked = _why(self._path, error)

    def _lines(self, raw: bytes) -> list[bytes]:
        *whole, self._partial = (self._partial + raw).split(b"\n")
        self._partial = self._partial[-PARTIAL:]
        return whole

    def _grown(self) -> None:
        """The file has grown, or another one has taken its place."""
        file = self._log.file
        assert file is not None
        file.fired()
        self._grew = True
        if self._reading is None or self._reading.done():
            self._reading = asyncio.create_task(self._read_file(file))

    async def _read_file(self, file: KernelFile) -> None:
        """Read until its watch stands again and has not fired meanwhile."""
        tries = BORN_TRIES
        while self._grew and tries:
            try:
                with contextlib.suppress(TimeoutError):
                    self._take(await self._files.run(file.read))
                await asyncio.sleep(PAUSE_S)  # a log daemon writes many lines, one by one
                self._grew = False
                self._take(await self._files.run(file.arm))
                tries, self._lacked = BORN_TRIES, ""
            except (OSError, TimeoutError) as error:
                tries -= 1
                if not isinstance(error, FileNotFoundError) or not tries:  # that may be born yet
                    self._lacked = _why(self._path, error)
                self._grew = True
                await asyncio.sleep(BORN_S)

    def _take(self, lines: list[bytes]) -> None:
        now = boottime()
        for raw in lines:
            self._keep(now, of_text(raw))

    def _keep(self, at_s: float, line: Line) -> None:
        for sign in signs((line.text,)):
            of_gpu = sign.kind in (Kind.XID, Kind.LOST) and sign.bus
            if of_gpu and self._gpus and sign.bus not in self._gpus:
                return
            self._kept.take(at_s, sign.text)
            begun = self._begun
            if begun is None or at_s < begun.at_s:
                return
            if why := hard(sign, xids_of(self._own)):
                early = Early(-1, at_s - begun.at_s, f"{why} while ranks ran")
                self._post(words.Alarmed(boottime(), begun.round, early, WINDOW_S))


def _open(path: str) -> Opened:
    """Open the log, and read what stands in it. Blocks; OSError in words where it is none."""
    status = os.stat(path)
    if stat.S_ISREG(status.st_mode):
        from .kernel_file import KernelFile

        file = KernelFile(path)
        return Opened(file=file, earlier=tuple(of_text(raw) for raw in file.earlier()))
    if stat.S_ISFIFO(status.st_mode):
        # One that is open for writing as well never ends when its writer does.
        return Opened(os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC))
    if not stat.S_ISCHR(status.st_mode) or status.st_rdev != _DEVICE:  # in some containers it leads to /dev/null
        raise OSError(errno.EINVAL, "it is neither the kernel's device, nor a file, nor a named pipe")
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        return Opened(fd, True, earlier=_drained(fd))
    except OSError:
        os.close(fd)
        raise


def _drained(fd: int) -> tuple[Line, ...]:
    lines: list[Line] = []
    while True:
        try:
            lines.append(of_record(os.read(fd, RECORD)))
        except BlockingIOError:
            return tuple(lines)
        except BrokenPipeError:
            continue


def _prepare(own: OwnSignatures) -> None:
    """Have the patterns compiled and the catalogue read, which would hold up the loop at the first line. Blocks."""
    signs(("",))
    lookup(0, xids_of(own))


def _listed(folder: Path) -> frozenset[str]:
    try:
        return frozenset(filter(None, map(bus_of, os.listdir(folder))))
    except OSError:
        return frozenset()


def _why(path: str, error: OSError | TimeoutError) -> str:
    if path == KERNEL_LOG and error.errno in (errno.EPERM, errno.EACCES):
        return (
            f"reading {path} needs CAP_SYSLOG; run as root, set kernel.dmesg_restrict=0, or give --kernel-log FILE, "
            "which a log daemon writes and this user may read"
        )
    what = error.strerror or str(error)
    return f"{path} cannot be read: {what}; give --kernel-log FILE, or none"
