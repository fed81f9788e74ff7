"""The agent's end of the guardian: orders go out, typed events come in, a silent or dead guardian is replaced.

Used by the agent's loop, on the loop's own thread; nothing here blocks it. The link also writes the keeper's page,
hands the node's lock to both, and proves the ranks dead itself when the guardian can no longer do so.
"""

from __future__ import annotations

import asyncio
import marshal
import os
import signal
import socket
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple

from . import cgroup, proc
from .guardian_events import (
    GuardianEvent,
    GuardianGone,
    GuardianReady,
    KeeperGone,
    NodeFenced,
    RankExited,
    RanksEmpty,
    RanksStarted,
    StartFailed,
    StartRefused,
)
from .linux import boottime
from .seat import Seat, send_record
from .takeover import TakeOver

LARGEST_RECORD = 200_000  # a socket of this kind carries net.core.wmem_default: 212992 less its own needs
RECORD_BYTES = 1 << 18
KILL_BOUND_S = 30.0
MARGIN_S = 0.25  # of the fence's arithmetic: a take-over starts this long, and K, before the deadline
LEAST_PATIENCE_S = 0.3
LONGEST_RESPAWN_S = 5.0


class OrderTooLarge(ValueError):
    """A rank's command line and environment do not fit into one record; nothing of its round was started."""


class RankOrder(NamedTuple):
    """How to start one rank. ``env`` changes the environment that the launcher was started with; None unsets."""

    local_rank: int
    argv: tuple[str, ...]  # a bare program name is searched in the rank's own PATH
    env: Mapping[str, str | None]
    cwd: str | None = None
    stdout: str | None = None  # a file that is appended to; None: the agent's own
    stderr: str | None = None
    stdin: Literal["null", "inherit"] = "null"
    cpus: tuple[int, ...] = ()  # what it may run on; none: what the guardian may
    deaf_to: tuple[int, ...] = ()  # signals that it ignores until it says otherwise


class _Lease(NamedTuple):
    inc: int
    deadline_s: float


class GuardianLink:
    """One node's guardian, whichever process that is at the moment."""

    def __init__(
        self,
        seat: Seat,
        on_event: Callable[[GuardianEvent], None],
        *,
        answer_s: float = 2.0,
        kill_bound_s: float = KILL_BOUND_S,
    ) -> None:
        """Attach to the seat's guardian. ``answer_s`` is K: how long an answer, or a take-over, may take."""
        self._seat = seat
        self._tell = on_event
        self._answer_s = answer_s
        self._kill_bound_s = kill_bound_s
        self._loop = asyncio.get_running_loop()
        self._lease: _Lease | None = None
        self._held: tuple[str, int] | None = None
        self._spared: tuple[int, ...] = ()
        self._round = 0
        self._orders: dict[int, RankOrder] = {}
        self._killed: list[int] = []  # rounds whose RanksEmpty is owed
        self._empty = 0  # the round whose last end the guardian reported with nothing left below it
        self._clearing = False
        self._left: tuple[int, ...] = ()  # what a take-over could not kill: no guardian knows of it
        self._unsent: deque[tuple[bytes, tuple[int, ...]]] = deque()
        self._seq = 0
        self._waiting: dict[int, asyncio.TimerHandle] = {}
        self._heard = False
        self._mute = 0  # guardians in a row that died without a word
        self._stopped: asyncio.Future[tuple[int, ...]] | None = None
        self._stop_end_s = float("inf")
        self._pid, self._pidfd = 0, -1
        self._socket: socket.socket | None = None
        self._attach(seat.guardian, seat.guardian_fd)
        self._loop.add_reader(seat.keeper_fd, self._keeper_gone)

    # -- orders

    def lease(self, inc: int, deadline_s: float) -> None:
        """Move the fence: ranks of ``inc`` may live until ``deadline_s`` (boottime; inf: for ever)."""
        self._lease = _Lease(inc, float(deadline_s))
        self._seat.set_lease(inc, deadline_s)
        self._send_lease(self._lease)

    def acknowledge_fence(self, inc: int) -> None:
        """Say that NodeFenced was heard and dealt with; the next later lease of ``inc`` allows starts again."""
        self._send("ackfence", inc)

    def hold(self, tag: str, lock_fd: int) -> None:
        """Let keeper and guardian hold the node's lock until their ends. GuardianReady follows."""
        self._held = (tag, lock_fd)
        self._seat.hold(lock_fd)
        self._send("hold", tag, fds=(lock_fd,))

    def spare(self, pids: tuple[int, ...]) -> None:
        """Name all children of the agent that lead a session and are no ranks: no fence and no take-over kills them.

        Call it in the same turn of the loop in which the child is started. Children in the agent's own session need not
        be named.
        """
        self._spared = pids
        self._seat.page.set_spared(pids)

    def start(self, n: int, inc: int, orders: tuple[RankOrder, ...]) -> None:
        """Start all local ranks of round ``n``. OrderTooLarge, and nothing is started, when one does not fit."""
        records = [_pack(n, inc, order) for order in orders]
        refusal = ""
        if self._socket is None:
            refusal = "the guardian was killed; what it left is cleared away and another one started first"
        elif left := self._undead():
            refusal = f"processes of an earlier round are still alive: {left}"
        if refusal:
            self._loop.call_soon(self._tell, StartRefused(n, refusal))
            return
        self._round, self._empty = n, 0
        self._orders = {order.local_rank: order for order in orders}
        for record in records:
            self._unsent.append((record, ()))
        self._send("go", n, inc, len(orders))

    def terminate(self, n: int, signum: int = signal.SIGTERM, spared: tuple[int, ...] = ()) -> None:
        """Send ``signum`` to the rank processes of round ``n``, and to nothing below them.

        Local ranks that are ``spared`` get it only if they do not die of it: they have a handler, or ignore it.
        """
        self._send("term", n, int(signum), spared)

    def kill(self, n: int) -> None:
        """Cancel queued starts, kill everything below the guardian; RanksEmpty for ``n`` follows, always."""
        gone = self._socket is None and not self._clearing
        if gone or n == self._empty:  # a round is started once: none of its starts is on its way either
            self._loop.call_soon(self._tell, RanksEmpty(n, self._undead(), boottime()))
            return
        self._killed.append(n)
        if self._socket is not None:
            self._seq += 1
            self._send("kill", self._seq, n, self._kill_bound_s)
            self._expect(self._seq)

    async def stop(self) -> tuple[int, ...]:
        """Have everything swept, end the guardian, and return the pids that would not die. The link is dead then."""
        if self._stopped is None:
            self._stopped = self._loop.create_future()
            self._stop_end_s = boottime() + self._kill_bound_s
            if self._socket is None and not self._clearing:
                self._stopped.set_result(self._undead())
            else:
                self._send("bye", self._kill_bound_s)
                self._waiting[0] = self._loop.call_later(self._kill_bound_s + self._answer_s, self._silent)
        return await asyncio.shield(self._stopped)

    # -- the socket

    def _attach(self, pid: int, fd: int) -> None:
        self._pid = pid
        self._pidfd = os.pidfd_open(pid)
        self._socket = socket.socket(fileno=fd)
        self._socket.setblocking(False)
        self._heard = False
        self._loop.add_reader(fd, self._read)
        self._loop.add_reader(self._pidfd, self._gone)

    def _send(self, *record: str | int | float | tuple[int, ...], fds: tuple[int, ...] = ()) -> None:
        if self._socket is not None:
            self._unsent.append((marshal.dumps(record), fds))
            self._flush()

    def _flush(self) -> None:
        end = self._socket
        while self._unsent and end is not None:
            try:
                send_record(end, *self._unsent[0])
            except BlockingIOError:
                self._loop.add_writer(end.fileno(), self._flush)
                return
            except ConnectionError:
                break  # it has died: its pidfd says so
            self._unsent.popleft()
        self._unsent.clear()
        if end is not None:
            self._loop.remove_writer(end.fileno())

    def _read(self) -> None:
        while self._socket is not None:
            try:
                data = self._socket.recv(RECORD_BYTES)
            except BlockingIOError:
                return
            except ConnectionError:
                data = b""
            if not data:
                self._loop.remove_reader(self._socket.fileno())
                self._silent()  # a guardian without its socket is none
                return
            self._heard = True
            self._mute = 0
            self._hear(marshal.loads(data))  # noqa: S302  (our own guardian's)

    def _hear(self, record: Any) -> None:
        match record:
            case ("ack", int(seq)):
                if handle := self._waiting.pop(seq, None):
                    handle.cancel()
            case ("ready", bool(group)):
                self._tell(GuardianReady(self._pid, group))
            case ("started", int(n), pids, float(at_s)):
                self._tell(RanksStarted(n, pids, at_s))
            case ("refused", int(n), str(reason)):
                self._tell(StartRefused(n, reason))
            case ("noexec", int(n), int(local_rank), int(number), str(step)):
                self._tell(StartFailed(n, local_rank, number, step, self._concerned(local_rank, step)))
            case ("exit", int(n), int(local_rank), int(pid), int(status), bool(empty), float(at_s)):
                if empty and n == self._round:
                    self._empty = n
                self._tell(RankExited(n, local_rank, pid, status, at_s))
            case ("empty", int(n), survivors, float(at_s)):
                if n in self._killed:
                    self._killed.remove(n)
                    self._tell(RanksEmpty(n, (*survivors, *self._undead()), at_s))
            case ("fenced", int(inc), int(n), survivors, float(at_s)):
                self._lease = None  # a new guardian must not start on the old word either
                self._tell(NodeFenced(inc, n, (*survivors, *self._undead()), at_s))
            case _:
                raise ValueError(f"the guardian sent the unknown record {record!r}")

    def _concerned(self, local_rank: int, step: str) -> str:
        order = self._orders.get(local_rank)
        if order is None:
            return ""
        named = {"stdout": order.stdout, "stderr": order.stderr, "cwd": order.cwd, "stdin": "/dev/null"}
        return named.get(step) or (order.argv[0] if order.argv else "")

    # -- a guardian that is silent, or dead

    def _send_lease(self, lease: _Lease) -> None:
        if self._socket is not None:
            self._seq += 1
            self._send("lease", self._seq, lease.inc, lease.deadline_s)
            self._expect(self._seq)

    def _expect(self, seq: int) -> None:
        deadline_s = self._lease.deadline_s if self._lease else float("inf")
        left_s = deadline_s - self._answer_s - MARGIN_S - boottime()
        patience_s = max(LEAST_PATIENCE_S, min(self._answer_s, left_s))
        self._waiting[seq] = self._loop.call_later(patience_s, self._silent)

    def _silent(self) -> None:
        """Kill a guardian that does not answer, also a stopped one; its pidfd then reports the end."""
        if self._pidfd >= 0:
            signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)

    def _gone(self) -> None:
        """Hear the dead guardian's last words, and clear away what it has left."""
        assert self._socket is not None
        self._read()
        end, self._socket = self._socket, None
        for fd in (end.fileno(), self._pidfd):
            self._loop.remove_reader(fd)
        self._loop.remove_writer(end.fileno())
        end.close()
        os.close(self._pidfd)
        os.waitpid(self._pid, 0)
        self._seat.page.set_guardian(0)
        self._pidfd = -1
        self._unsent.clear()
        for handle in self._waiting.values():
            handle.cancel()
        self._waiting.clear()
        groups = cgroup.of_guardian(self._pid)
        for group in groups:
            cgroup.kill(group)
        self._clearing = True
        self._clear(TakeOver(), min(boottime() + self._kill_bound_s, self._stop_end_s + self._answer_s), groups)

    def _clear(self, takeover: TakeOver, end_s: float, groups: list[str]) -> None:
        done = takeover.round(self._spared)
        if not done and boottime() < end_s:
            self._loop.call_later(0.002, self._clear, takeover, end_s, groups)
            return
        self._left = () if done else takeover.survivors(self._spared)
        for group in groups if done else ():
            cgroup.remove(group)
        self._cleared(self._left, boottime())

    def _undead(self) -> tuple[int, ...]:
        self._left = tuple(pid for pid in self._left if proc.alive(pid))
        return self._left

    def _cleared(self, survivors: tuple[int, ...], at_s: float) -> None:
        self._clearing = False
        n, self._round = self._round, 0
        killed, self._killed = self._killed, []
        if self._stopped is not None:
            self._loop.remove_reader(self._seat.keeper_fd)
            self._stopped.set_result(survivors)
            for handle in self._waiting.values():
                handle.cancel()
        else:
            self._tell(GuardianGone(n, survivors, at_s))
        for other in killed:
            self._tell(RanksEmpty(other, survivors, at_s))
        if self._stopped is None:
            self._mute = 0 if self._heard else self._mute + 1
            delay_s = min(LONGEST_RESPAWN_S, 0.1 * 2**self._mute) if self._mute else 0.0
            self._loop.call_later(delay_s, self._respawn)

    def _respawn(self) -> None:
        if self._stopped is not None:
            return
        try:
            pid, fd = self._seat.spawn_guardian()
        except OSError:  # no process or no memory to be had: starts are refused until there is
            self._loop.call_later(LONGEST_RESPAWN_S, self._respawn)
            return
        self._attach(pid, fd)
        if self._held is not None:
            self._send("hold", self._held[0], fds=(self._held[1],))
        if self._lease is not None and self._lease.deadline_s > boottime():
            self._send_lease(self._lease)

    def _keeper_gone(self) -> None:
        self._loop.remove_reader(self._seat.keeper_fd)
        self._tell(KeeperGone(boottime()))


def _pack(n: int, inc: int, order: RankOrder) -> bytes:
    env = dict(order.env)
    record: tuple[Any, ...] = ("rank", n, inc, order.local_rank, list(order.argv), env)
    said = (order.cwd, order.stdout, order.stderr, order.stdin, order.cpus, order.deaf_to)
    data = marshal.dumps((*record, *said))
    if len(data) > LARGEST_RECORD:
        largest = max(env, key=lambda name: len(env[name] or ""), default="")
        raise OrderTooLarge(
            f"local rank {order.local_rank}: command line and changed environment take {len(data)} bytes, at most "
            f"{LARGEST_RECORD} can be handed over (largest variable: {largest!r}). Set large variables before the "
            "launcher is started, or put them into a file."
        )
    return data
