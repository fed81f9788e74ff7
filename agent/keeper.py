"""The process that the user, srun or systemd sees: it outlives the agent and leaves only when nothing is left.

``run`` is called by the command's entry point while the interpreter is still young: the agent is forked off before
anything heavy is imported, and the keeper stays small. It forwards signals, reaps orphans, and is the second fence:
when the deadline on the shared page has passed and the guardian did not do its work, it kills the ranks itself. When
the agent has died before it gave up its lease, and nothing of it is left, it has that done: so nobody waits for it.
"""

from __future__ import annotations

import _socket
import gc
import os
import select
import signal
import sys

from . import cgroup, proc
from .linux import (
    NEVER,
    SI_KERNEL,
    BootTimer,
    become_subreaper,
    boottime,
    die_with_parent,
    read_signals,
    signal_file,
)
from .page import Page
from .spawn import spawn_guardian, spawn_revoker
from .sweep import CLEAN_SCANS, NOBODY, kill_all, reap, sweep

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import NoReturn

    from .seat import Seat

FORWARDED = (
    signal.SIGTERM,
    signal.SIGINT,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGXCPU,
)
TYPED = (signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU)  # a terminal's, to its foreground group or those behind it
SECOND_FENCE_S = 0.1  # after the guardian's
PATIENCE_S = 30.0  # for what will not die
ADDRESS_SPACE = 96 << 20  # bytes: an agent's interpreter, its threads' stacks and its modules came to 70 MB
OPEN_FILES = 24  # of a keeper, or of a guardian, whatever there is to guard: 11 were seen
UNKILLABLE = 75  # exit code: worth a requeue, on another node
ENDS_STORE = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
SILENT_S = 1.0  # how long a store may outlive the agent before that is said
REVOKE_S = 3.0  # for a dead agent's lease to be given up; the command ends no later for it
_FIRST_PAUSE_MS, _LONGEST_PAUSE_MS = 4, 500  # between the rounds of a fence


def run(body: Callable[[Seat], int], *, patience_s: float = PATIENCE_S) -> NoReturn:
    """Run ``body`` in the agent, a child of this process, and exit with its code once nothing of it is left."""
    _fill_standard_files()
    _see_to_limits()
    sys.stdout.flush()
    sys.stderr.flush()
    page = Page()
    become_subreaper()
    ours, theirs = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
    # A signal that was ignored for us (nohup, a shell's background job) stays ignored.
    heard = [s for s in (*FORWARDED, signal.SIGTSTP) if signal.getsignal(s) is not signal.SIG_IGN]
    signal.pthread_sigmask(signal.SIG_BLOCK, (*heard, signal.SIGCHLD))
    keeper = os.getpid()
    agent = os.fork()
    if agent == 0:
        ours.close()
        _sit(body, page, theirs.detach(), keeper)
    theirs.close()
    gc.enable()
    os._exit(Keeper(agent, page, ours, heard).keep(patience_s))


def _fill_standard_files() -> None:
    """Open what is closed of 0, 1 and 2, or a socket of ours would be somebody's standard output."""
    while (fd := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(fd, True)
    os.close(fd)
    if sys.stdout is None:  # what Python makes of a closed one
        sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
    if sys.stderr is None:
        sys.stderr = open(2, "w", closefd=False)  # noqa: SIM115


def _see_to_limits() -> None:
    """See that keeper, agent and guardian can be at all under the limits of this process, or end in words."""
    space = proc.read("/proc/self/limits").partition(b"Max address space")[2].split(None, 1)[:1]
    narrow = bool(space) and space[0].isdigit() and int(space[0]) < ADDRESS_SPACE
    if os.sysconf("SC_OPEN_MAX") >= OPEN_FILES and not narrow:
        return
    from . import limits

    short = limits.too_narrow(ADDRESS_SPACE) if narrow else limits.room_for_files(OPEN_FILES, "remuster")
    if short is not None:
        _tell(short)
        os._exit(UNKILLABLE)


def _sit(body: Callable[[Seat], int], page: Page, keeper_fd: int, keeper: int) -> NoReturn:
    """Become the agent: the guardian is started first, it wakes up while the agent imports."""
    die_with_parent(signal.SIGTERM)
    if os.getppid() != keeper:
        os._exit(128 + signal.SIGTERM)
    for signum in TYPED:
        signal.signal(signum, signal.SIG_IGN)  # the job goes on: an agent that stood still would lose its lease
    environ = dict(os.environ)
    try:
        guardian, guardian_fd = spawn_guardian(environ)
    except OSError as error:
        from . import limits

        why = limits.shortage(error) or f"{error.strerror}; see to that on this node"
        _tell(f"the guardian, {sys.executable}, cannot be started: {why}")
        os._exit(UNKILLABLE)
    page.set_guardian(guardian)
    become_subreaper()
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # until the body has handlers: an end without a traceback
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    from .seat import Seat

    sys.exit(body(Seat(page, keeper, keeper_fd, environ, guardian, guardian_fd, os.sysconf("SC_OPEN_MAX"))))


def _tell(words: str) -> None:
    try:
        print(f"remuster: {words}", file=sys.stderr, flush=True)
    except OSError:
        return  # a terminal or a tee that has gone, a full disk: the work goes on


class Keeper:
    """The keeper's side of the fork."""

    def __init__(self, agent: int, page: Page, inbox: _socket.socket, heard: list[signal.Signals]) -> None:
        self.agent = agent
        self.page = page
        self.inbox = inbox
        self.heard = heard
        self.status: int | None = None
        self.clean_scans = 0
        self.held: list[int] = []  # the node's lock: nobody may have it before this process ends
        self.signals = signal_file((*heard, signal.SIGCHLD))
        self.timer = BootTimer()

    def keep(self, patience_s: float) -> int:
        """Watch over the agent until it has ended, sweep, and return the exit code."""
        poll = select.poll()
        for fd in (self.signals, self.timer.fd, self.inbox.fileno()):
            poll.register(fd, select.POLLIN)
        self.inbox.setblocking(False)
        pause_ms = None
        while self.status is None:
            ready = {fd for fd, _ in poll.poll(pause_ms)}
            if self.inbox.fileno() in ready and not self._listen():
                poll.unregister(self.inbox.fileno())
            if self.signals in ready:
                self._forward()
                reap(self._note_end)
            if self.timer.fd in ready:
                self.timer.clear()
            fencing = self.status is None and self._fence()
            pause_ms = min(2 * (pause_ms or _FIRST_PAUSE_MS), _LONGEST_PAUSE_MS) if fencing else None
        minder = self.page.minder if proc.alive(self.page.minder) else NOBODY
        left = self._sweep(patience_s, minder)
        self._tell_killed()
        if not left:
            self._give_up_lease(os.waitstatus_to_exitcode(self.status))
        if minder != NOBODY and not left:
            self._await(minder)
            left = self._sweep(patience_s, NOBODY)
        if left:
            names = ", ".join(f"{pid} ({proc.name(pid)}, state {proc.state(pid)})" for pid in left)
            _tell(
                f"{len(left)} process(es) did not die within {patience_s:g} s of SIGKILL: {names}. "
                "They wait inside the kernel (a hung file system or GPU driver). Take this node out of service."
            )
            return UNKILLABLE
        code = os.waitstatus_to_exitcode(self.status)
        return code if code >= 0 else 128 - code

    def _tell_killed(self) -> None:
        if self.status is not None and os.waitstatus_to_exitcode(self.status) == -signal.SIGKILL:
            _tell(
                f"the agent (pid {self.agent}) was killed by SIGKILL, and its ranks were stopped; if nobody did that, "
                "look for the kernel's OOM killer."
            )

    def _give_up_lease(self, status: int) -> None:
        """Have a lease revoked that the agent did not live to give up; past its fence it soon runs out by itself."""
        lease, letter = self.page.lease, self.page.letter
        if not (lease and letter) or boottime() >= self.page.deadline_s:
            return
        try:
            revoker = spawn_revoker(letter, lease, status, boottime() + REVOKE_S, os.environ)
        except OSError as error:
            _tell(f"the dead agent's lease is not given up: {sys.executable} cannot be started: {error.strerror}")
            return
        ended = os.pidfd_open(revoker)
        poll = select.poll()
        poll.register(ended, select.POLLIN)
        if not poll.poll(1000 * REVOKE_S):
            kill_all([revoker])
            _tell(f"the dead agent's lease was not given up within {REVOKE_S:g} s: it runs out by itself")
        os.close(ended)
        os.waitpid(revoker, 0)

    def _await(self, minder: int) -> None:
        """Wait for the end of the store that the agent had started: other nodes may still need it."""
        self._listen()
        for fd in self.held:
            os.close(fd)  # nothing of this node's is left: its next agent may start
        self.held.clear()
        poll = select.poll()
        poll.register(self.signals, select.POLLIN)
        read_signals(self.signals)  # what came before was for the agent
        ending = signal.SIGTERM
        say_s = boottime() + SILENT_S
        while proc.alive(minder):
            poll.poll(None if say_s == NEVER else max(0.0, 1000 * (say_s - boottime())))
            came = [signum for signum, _ in read_signals(self.signals)]
            if signal.SIGTSTP in came:
                self._pause()
            if any(signum in ENDS_STORE for signum in came):
                os.kill(minder, ending)
                ending = signal.SIGKILL  # one that hangs, or is stopped, hears nothing else
            reap(self._note_end)
            if boottime() >= say_s and proc.alive(minder):
                say_s = NEVER
                _tell(
                    f"this command still serves the rendezvous of the run to other nodes (pid {minder}) and ends with "
                    "the last of them; another Ctrl-C or SIGTERM ends the store for all, one more kills it."
                )

    def _note_end(self, pid: int, status: int) -> None:
        if pid == self.agent:
            self.status = status
        elif pid == self.page.minder:
            self.page.set_minder(NOBODY)  # its number may be another's now

    def _listen(self) -> bool:
        """Take the lock that the agent hands over, or its nudge to read the page; False when it has gone."""
        while True:
            try:
                data, ancillary, _, _ = self.inbox.recvmsg(1, _socket.CMSG_SPACE(4), _socket.MSG_CMSG_CLOEXEC)
            except BlockingIOError:
                return True
            except ConnectionError:
                return False
            self.held += [int.from_bytes(packed, sys.byteorder) for _, _, packed in ancillary]
            if not data:
                return False

    def _forward(self) -> None:
        for signum, code in read_signals(self.signals):
            if signum == signal.SIGTSTP:
                self._pause()
                continue
            # A terminal sends Ctrl-C and Ctrl-\\ to its whole foreground group: the agent has its own already.
            typed = code == SI_KERNEL and signum in (signal.SIGINT, signal.SIGQUIT)
            if signum in self.heard and not typed:
                os.kill(self.agent, signum)  # not reaped yet, so the pid is still its own

    def _pause(self) -> None:
        """Give the terminal back, as Ctrl-Z asks, until somebody continues this process; the job goes on meanwhile."""
        _tell("the job goes on, only its command is stopped: fg or bg continues it, kill %% ends the job")
        mine = {signal.SIGTSTP}
        os.kill(os.getpid(), signal.SIGTSTP)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, mine)  # here it stops; nowhere if no shell could continue it
        signal.pthread_sigmask(signal.SIG_BLOCK, mine)

    def _fence(self) -> bool:
        """Arm the timer, or kill what the guardian has left alive after its deadline; True until nothing is found."""
        at_s = self.page.deadline_s + SECOND_FENCE_S
        if boottime() < at_s:
            self.timer.arm(at_s)
            self.clean_scans = 0
            return False
        self.timer.arm(NEVER)
        busy = self._kill_left(self.page.guardian)
        self.clean_scans = 0 if busy else self.clean_scans + 1
        return self.clean_scans < CLEAN_SCANS

    def _kill_left(self, guardian: int) -> bool:
        """Kill the ranks that are alive, with the guardian that let them; True when there was anything to kill."""
        stuck = not proc.alive(guardian) or proc.stopped(guardian)
        dying = stuck and proc.alive(guardian)
        if dying:
            kill_all([guardian])  # its ranks die with it, and what is below them becomes the agent's
        busy = False
        for orphan in proc.foreign_children(self.agent, (guardian, *self.page.spared)):
            if proc.alive(orphan):
                kill_all([orphan, *proc.below(orphan)])
                busy = True
        if not stuck:
            ranks = [pid for pid in proc.below(guardian) if proc.alive(pid)]
            kill_all(ranks)
            busy = busy or bool(ranks)
        if busy:
            for group in cgroup.of_guardian(self.page.last_guardian):
                cgroup.kill(group)
        if (busy or dying) and stuck and proc.stopped(self.agent):
            kill_all([self.agent])  # nobody is left to carry on
        return busy or dying

    def _sweep(self, patience_s: float, spare: int) -> tuple[int, ...]:
        groups = cgroup.of_guardian(self.page.last_guardian)
        for group in groups:
            cgroup.kill(group)
        left = sweep(patience_s, self._note_end, self.page.guardian, spare)
        for group in groups:
            cgroup.remove(group)
        return left
