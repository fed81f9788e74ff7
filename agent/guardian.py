"""The parent of every rank on a node: starts them on the agent's word, fences them, and proves them dead.

A process of its own (``spawn.py`` executes it under its own name), with one thread and the standard library's leaf
modules, all imported before the first fork: it goes on working when the file system has gone. Nothing it writes to can
block it: logs are opened by the ranks, and words for an agent that does not read wait in memory.

Records on its socket are marshalled tuples, in both directions; ``guardian_link.py`` is the other end.
"""

from __future__ import annotations

import _socket
import errno
import gc
import marshal
import os
import select
import signal
import sys

from . import proc
from .fence import Fence
from .linux import NEVER, BootTimer, become_subreaper, boottime, read_signals, retitle, signal_file
from .rank import DISMISSED, Order, become
from .rank_group import RankGroup
from .sweep import kill_all, pause_s, reap, survivors, sweep

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    Word = str | int | float | tuple[int, ...] | tuple[tuple[int, int], ...]

TITLE = "rank-guardian"  # without the product's name: one `pkill -f` must not take all three
RECORD_BYTES = 1 << 18  # above the largest record that a socket of this kind carries
DEFAULT_BOUND_S = 30.0  # from SIGKILL to the proof of death, for a fence
_NO_ROUND = 0
_AFTERLIFE_S = 1e9  # with the agent gone nobody waits for an answer: sweep until none is left, however long


class Killing:
    """A sweep in progress: until when it may take, and what to say once nothing is left."""

    __slots__ = ("began_s", "end_s", "words")

    def __init__(self) -> None:
        self.began_s = boottime()
        self.end_s = NEVER
        self.words: list[tuple[Word, ...]] = []


class Guardian:
    """Everything the guardian knows; ``serve`` runs until there is nothing left to guard."""

    def __init__(self, socket: _socket.socket, parent: int) -> None:
        self.socket = socket
        self.parent = parent  # pidfd of the agent
        self.fence = Fence()
        self.round = _NO_ROUND
        self.queue: list[Order] = []
        self.ranks: dict[int, tuple[int, int]] = {}  # pid → (round, local rank)
        self.killing: Killing | None = None
        self.group = RankGroup()
        self.environ = dict(os.environ)  # read once: it takes a rank a quarter of a millisecond
        self.held: list[int] = []  # the node's lock: kept open until this process ends
        self.unsaid: list[bytes] = []
        self.leaving = False
        self.orphaned = False
        self.errors, self.tell_error = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self.signals = signal_file((signal.SIGCHLD,))
        self.timer = BootTimer()
        self.poll = select.poll()
        for fd in (self.socket.fileno(), self.signals, self.timer.fd, self.parent):
            self.poll.register(fd, select.POLLIN)

    def serve(self) -> None:
        """Guard until the agent has gone or says goodbye, then leave nothing behind."""
        while not self.orphaned and not (self.leaving and self.killing is None):
            ready = {fd for fd, _ in self.poll.poll(1000 * pause_s(self.killing.began_s) if self.killing else None)}
            # What the clock says comes before what the agent says: a deadline that has passed is a fence,
            # even when a later one waits in the socket.
            if self.timer.fd in ready:
                self.timer.clear()
            self._watch_deadline()
            if self.signals in ready:
                read_signals(self.signals)
                self._reap()
            if self.parent in ready:
                self.orphaned = True
            if self.socket.fileno() in ready:
                self._listen()
                self._flush()
            if self.killing is not None:
                self._kill_on(self.killing)
        sweep(0.0 if self.leaving and not self.orphaned else _AFTERLIFE_S, self._note_end)
        self.group.remove()

    # -- the agent's word

    def _listen(self) -> None:
        while True:
            try:
                data, ancillary, _, _ = self.socket.recvmsg(
                    RECORD_BYTES, _socket.CMSG_SPACE(4), _socket.MSG_CMSG_CLOEXEC
                )
            except BlockingIOError:
                return
            except ConnectionError:
                data, ancillary = b"", []
            for _, _, packed in ancillary:
                self.held.append(int.from_bytes(packed, sys.byteorder))
            if not data:
                self.orphaned = True
                return
            self._obey(marshal.loads(data))  # noqa: S302  (our own agent's, over a socket that nobody else has)

    def _obey(self, record: Any) -> None:
        match record:
            case ("lease", int(seq), int(inc), float(deadline_s)):
                self._say("ack", seq)
                self._take_lease(inc, deadline_s)
            case ("ackfence", int(inc)):
                self.fence = self.fence.acknowledge(inc)
            case ("hold", str(tag)):
                self.group.make(tag)
                self._say("ready", self.group.path is not None)
            case ("rank", int(n), int(inc), int(local), argv, env, cwd, out, err, str(stdin), cpus, deaf):
                if self.queue and self.queue[0].round != n:
                    self.queue.clear()
                self.queue.append(Order(n, inc, local, argv, env, cwd, out, err, stdin, cpus, deaf))
            case ("go", int(n), int(inc), int(count)):
                self._go(n, inc, count)
            case ("term", int(n), int(signum), spared):
                for pid, (round, local_rank) in self.ranks.items():
                    if round == n and not (local_rank in spared and proc.dies_of(pid, signum)):
                        signal_rank(pid, signum)
            case ("kill", int(seq), int(n), float(bound_s)):
                self._say("ack", seq)
                self._kill(bound_s, "empty", n)
            case ("bye", float(bound_s)):
                self.leaving = True
                self._kill(bound_s, "empty", self.round)
            case _:
                raise ValueError(f"the guardian does not know the record {record!r}")

    def _take_lease(self, inc: int, deadline_s: float) -> None:
        before = self.fence
        self.fence = before.lease(inc, deadline_s)
        if inc != before.inc and self._has_children():  # another incarnation never inherits ranks
            self._kill(DEFAULT_BOUND_S, "fenced", before.inc, self.round)
        self.timer.arm(NEVER if self.fence.latched else self.fence.deadline_s)

    def _say(self, *record: Word) -> None:
        self.unsaid.append(marshal.dumps(record))
        self._flush()

    def _flush(self) -> None:
        while self.unsaid:
            try:
                self.socket.send(self.unsaid[0])
            except BlockingIOError:
                self.poll.modify(self.socket.fileno(), select.POLLIN | select.POLLOUT)
                return
            except ConnectionError:
                self.orphaned = True
                return
            del self.unsaid[0]
        self.poll.modify(self.socket.fileno(), select.POLLIN)

    # -- starting

    def _go(self, n: int, inc: int, count: int) -> None:
        orders = [order for order in self.queue if order.round == n and order.inc == inc]
        self.queue.clear()
        refusal = None
        if len(orders) != count:
            refusal = f"{len(orders)} of {count} orders are here: the others were cancelled or never arrived"
        elif self.killing is not None:
            refusal = "the ranks of an earlier round are still being killed"
        elif self._has_children():
            refusal = f"processes of round {self.round} are still alive: {survivors()}"
        started: list[tuple[int, int]] = []
        for order in orders if refusal is None else ():
            refusal = self.fence.may_start(
                inc, boottime()
            )  # at the fork itself: a queued start must not outlive a fence
            if refusal is not None:
                break
            self.round = n
            pid = self._fork(order)
            if pid:
                started.append((order.local_rank, pid))
        if started:
            self._say("started", n, tuple(started), boottime())
        if refusal is not None:
            self._say("refused", n, refusal)

    def _fork(self, order: Order) -> int:
        me = os.getpid()
        # The fork ignores SIGTERM, as the guardian does, until it says otherwise: blocked, one that comes before waits.
        signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGTERM,))
        try:
            pid, group = self.group.fork()
        except OSError as error:
            self._say("noexec", order.round, order.local_rank, error.errno or errno.EAGAIN, "fork")
            return 0
        else:
            if pid == 0:
                become(order, me, self.tell_error, group, self.environ)
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGTERM,))
        self.ranks[pid] = (order.round, order.local_rank)
        return pid

    # -- ends

    def _has_children(self) -> bool:
        try:
            os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return False
        return True

    def _reap(self) -> bool:
        """Reap and report; True when no child is left, which the ends say too. What a failed start said goes first.

        Not so the ends of what is being killed: the proof follows them, and with it why, which a fence alone knows.
        """
        ended: list[tuple[int, int]] = []
        empty = reap(lambda pid, status: ended.append((pid, status)))
        at_s = boottime()
        known = [(self.ranks.pop(pid), pid, status) for pid, status in ended if pid in self.ranks]
        if known:
            self._tell_failed_starts()
        proven = empty and self.killing is None
        for (n, local_rank), pid, status in known:
            self._say("exit", n, local_rank, pid, os.waitstatus_to_exitcode(status), proven, at_s)
        return empty

    def _tell_failed_starts(self) -> None:
        try:
            lines = os.read(self.errors, 65536).decode().splitlines()
        except BlockingIOError:
            return
        for line in lines:
            local_rank, number, step = line.split()
            self._say("noexec", self.round, int(local_rank), int(number), step)

    def _note_end(self, pid: int, status: int) -> None:
        self.ranks.pop(pid, None)

    # -- killing

    def _watch_deadline(self) -> None:
        now_s = boottime()
        if self.fence.due(now_s):
            self.fence = self.fence.fenced()
            self.timer.arm(NEVER)
            self._kill(DEFAULT_BOUND_S, "fenced", self.fence.inc, self.round)

    def _kill(self, bound_s: float, *words: Word) -> None:
        """Cancel what is queued, begin to kill, and say ``words`` with the survivors and the time when it is proved."""
        self.queue.clear()
        if self.killing is None:
            self.killing = Killing()
            self.group.kill()
        self.killing.end_s = min(self.killing.end_s, boottime() + bound_s)
        self.killing.words.append(words)
        self._kill_on(self.killing)

    def _kill_on(self, killing: Killing) -> None:
        kill_all(proc.below(os.getpid()))
        empty = self._reap()
        if not empty and boottime() < killing.end_s:
            return
        self.killing = None
        left = () if empty else survivors()
        for words in killing.words:
            self._say(*words, left, boottime())
        self.round = self.round if left else _NO_ROUND
        if empty and not self.leaving:
            self.group.renew()


def signal_rank(pid: int, signum: int) -> None:
    """Signal a rank that is not reaped yet, so that the pid is still its own."""
    try:
        os.kill(pid, signum)
    except PermissionError:
        return  # it has become another user (sudo): SIGKILL by the cgroup or the end of its parent will have to do


def main(fd: int, agent: int) -> None:
    """Be the guardian of ``agent`` on socket ``fd``: the last line of the program that ``spawn.py`` executes."""
    signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGCHLD,))
    retitle(TITLE)
    become_subreaper()
    os.setsid()
    for signum in DISMISSED:
        signal.signal(signum, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, DISMISSED)
    for name in os.listdir("/proc/self/fd"):  # what a shell or a scheduler left open is not for the ranks
        if int(name) > 2 and int(name) != fd:
            _close(int(name))
    socket = _socket.socket(fileno=fd)
    os.set_inheritable(fd, False)
    socket.setblocking(False)
    try:
        parent = os.pidfd_open(agent)
    except ProcessLookupError:
        return
    if os.getppid() == agent:
        guardian = Guardian(socket, parent)
        gc.freeze()
        guardian.serve()


def _close(fd: int) -> None:
    try:
        os.close(fd)
    except OSError:
        return  # the listing's own
