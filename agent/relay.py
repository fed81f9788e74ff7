"""Stands between ranks and their files, where they do not write these themselves: by terminals, or by pipes.

A rank's stdout is a pseudo-terminal when the agent's stdout is a terminal, and its stderr likewise: progress bars are
drawn, colours are used, pdb edits lines. It is a pipe where the files are on a file system that can hang with its
server. Otherwise nothing here is loaded and the rank writes its file. One thread reads all of them and never touches a
disk, so a disk that hangs stops no rank; ``log_writer.py`` fills the files, byte for byte what the rank has written,
and the console follows them as ever. A rank opens its end by name and does not own it: no hang-up and no Ctrl-C reaches
it from a terminal, and stdin stays what it is. Used by ``outputs.py``, on the agent's loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import os
import queue
import resource
import select
import signal
import termios
import threading
from collections.abc import Callable
from typing import NamedTuple

from .follow import STDERR, STDOUT, Bell
from .log_writer import LogWriter

BLOCK = 16 * 1024  # the kernel gives 4 KiB at a time; a larger buffer costs more to make than it saves
CHUNK = 64 * 1024  # of one terminal before it is the next one's turn
TURN = 1 << 20  # the same while settling: more than one holds when its rank is dead
FDS_KEPT = 4  # at most one descriptor of so many is spent on these
PIPE = 1 << 18  # bytes that a rank may be ahead of us; of a user, the kernel gives 64 MiB to all pipes
SETTLE_S = 3.0  # for a disk that hangs; then the console and the report go without the rest

_SIZE = bytes(8)  # struct winsize


class _Pair(NamedTuple):
    """One terminal or pipe; ``rank`` is kept open: else our end hangs up before the rank has opened its one."""

    ours: int
    rank: int
    path: str
    name: str  # by which the rank opens it
    terminal: bool


class _Open(NamedTuple):
    pair: _Pair


class _Settle(NamedTuple):
    done: Callable[[], None]
    close: bool


class Relay:
    """What one node's ranks write through, for the agent's life. ``line`` says something to people, on the loop.

    ``pipes``: streams that are no terminal here go through pipes, instead of straight into their files.
    """

    def __init__(
        self, line: Callable[[str], None], resized: Callable[[], None], *, lends_stdin: bool, pipes: bool = False
    ) -> None:
        self._line = line
        self._resized = resized
        self._pipes = pipes
        self._loop = asyncio.get_running_loop()
        self._pairs: list[_Pair] = []
        self._refused = False
        self._typed = _modes_of_stdin() if lends_stdin else None
        self._bell = Bell()
        self._requests: queue.SimpleQueue[_Open | _Settle | None] = queue.SimpleQueue()
        self._writer = LogWriter(self._warn)
        self._poll = select.poll()  # the thread's, and so is what it reads
        self._read_from: dict[int, _Pair] = {}
        threading.Thread(target=self._run, name="remuster-relay", daemon=True).start()
        self._loop.add_signal_handler(signal.SIGWINCH, self._resize)

    def open(self, stream: int, path: str) -> str:
        """Return what a rank is to open for ``stream``: an end of its own, whose output goes to the file ``path``.

        It is the file itself when there is no need for that, or the system has none to give.
        """
        terminal = os.isatty(stream)
        if not (terminal or self._pipes):
            return path
        try:
            if 2 * len(self._pairs) >= resource.getrlimit(resource.RLIMIT_NOFILE)[0] // FDS_KEPT:
                raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
            pair = _terminal(path, _size_of(stream)) if terminal else _pipe(path)
        except OSError as error:
            if not self._refused:
                self._refused = True
                what = "sees a terminal" if terminal else "is kept apart from the log directory"
                self._line(f"not every rank {what}: {error.strerror}; see ulimit -n and kernel.pty.max")
            return path
        self._pairs.append(pair)
        self._ask(_Open(pair))
        return pair.name

    async def settle(self, *, close: bool = False) -> None:
        """Return when all that ranks have written so far is in the files. ``close``: the ranks are dead, let go."""
        done: asyncio.Future[None] = self._loop.create_future()
        if close:
            self._pairs.clear()
            if self._typed is not None:
                _restore_stdin(self._typed)

        def answer() -> None:
            if not done.done():
                done.set_result(None)

        def tell() -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
                self._loop.call_soon_threadsafe(answer)

        self._ask(_Settle(tell, close))
        await asyncio.wait({done}, timeout=SETTLE_S)

    def close(self) -> None:
        """End the thread that reads; call it when all is settled."""
        self._loop.remove_signal_handler(signal.SIGWINCH)
        self._ask(None)

    # --- on the loop --------------------------------------------------------------------------------------------------
    def _resize(self) -> None:
        size = next((_size_of(fd) for fd in (STDERR, STDOUT) if os.isatty(fd)), _SIZE)
        for pair in self._pairs:
            if pair.terminal:
                fcntl.ioctl(pair.rank, termios.TIOCSWINSZ, size)
        self._resized()

    def _warn(self, sentence: str) -> None:
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._line, sentence)

    def _ask(self, request: _Open | _Settle | None) -> None:
        self._requests.put(request)
        self._bell.ring()

    # --- the thread ---------------------------------------------------------------------------------------------------
    def _run(self) -> None:
        self._poll.register(self._bell.fd, select.POLLIN)
        while True:
            for fd, _ in self._poll.poll():
                if fd in self._read_from:
                    self._read(self._read_from[fd], CHUNK)
            self._bell.hush()
            while not self._requests.empty():
                match self._requests.get():
                    case _Open(pair):
                        self._read_from[pair.ours] = pair
                        self._poll.register(pair.ours, select.POLLIN)
                        self._writer.put(pair.path, b"")
                    case _Settle(done, close):
                        for pair in self._read_from.values():
                            self._read(pair, TURN)
                        self._writer.settle(done, let_go=close)
                        if close:
                            self._close()
                    case None:
                        self._close()
                        self._bell.close()
                        return

    def _read(self, pair: _Pair, most: int) -> None:
        """Take what there is; the kernel delivers what is under way before it says that there is nothing."""
        found = bytearray()
        try:
            while len(found) < most and (data := os.read(pair.ours, BLOCK)):
                found += data
        except BlockingIOError:
            pass
        except OSError:  # root has hung it up
            with contextlib.suppress(KeyError):
                self._poll.unregister(pair.ours)
        if found:
            self._writer.put(pair.path, bytes(found))

    def _close(self) -> None:
        for pair in self._read_from.values():
            with contextlib.suppress(KeyError):
                self._poll.unregister(pair.ours)
            os.close(pair.ours)
            os.close(pair.rank)
        self._read_from.clear()


def _pipe(path: str) -> _Pair:
    ours, rank = os.pipe2(os.O_CLOEXEC)
    os.set_blocking(ours, False)
    with contextlib.suppress(OSError):  # 64 KiB will do
        fcntl.fcntl(rank, fcntl.F_SETPIPE_SZ, PIPE)
    return _Pair(ours, rank, path, f"/proc/{os.getpid()}/fd/{rank}", terminal=False)


def _terminal(path: str, size: bytes) -> _Pair:
    ours, rank = os.openpty()
    try:
        os.set_blocking(ours, False)
        modes = termios.tcgetattr(rank)
        modes[1] &= ~termios.OPOST  # the file gets what the rank writes, not CR LF
        modes[3] &= ~termios.ECHO
        termios.tcsetattr(rank, termios.TCSANOW, modes)
        fcntl.ioctl(rank, termios.TIOCSWINSZ, size)
        name = os.ttyname(rank)  # OSError where /dev/pts is another one's
    except (OSError, termios.error) as error:
        os.close(ours)
        os.close(rank)
        raise OSError(*error.args) from error
    return _Pair(ours, rank, path, name, terminal=True)


def _size_of(fd: int) -> bytes:
    try:
        return fcntl.ioctl(fd, termios.TIOCGWINSZ, _SIZE)
    except OSError:
        return _SIZE


def _modes_of_stdin() -> list[object] | None:
    try:
        return termios.tcgetattr(0)
    except termios.error:
        return None


def _restore_stdin(modes: list[object]) -> None:
    """Undo what a rank that was killed while it edited a line has left; from the background we would be stopped."""
    with contextlib.suppress(OSError, termios.error):
        if os.tcgetpgrp(0) == os.getpgrp() and termios.tcgetattr(0) != modes:
            termios.tcsetattr(0, termios.TCSANOW, modes)  # type: ignore[arg-type]
