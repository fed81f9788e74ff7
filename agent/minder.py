"""Keeps an etcd of the job's own: starts it, tells agents of this machine where it is, takes it down after the last.

A process of its own, below the agent that needed a store first (`minder_link.py` executes it as the guardian is,
without site, user environment or packages), since the store must outlive that agent. Agents of this machine hold a
connection for as long as they live; while there is one, nothing here wakes up. After the last the store itself is asked
whether other nodes use it: `rendezvous/embedded.py` decides. The folder, which is the lock, goes with the process.
"""

from __future__ import annotations

import contextlib
import gc
import os
import select
import signal
import socket
import sys

from ..rendezvous.embedded import (
    EmbeddedError,
    Ending,
    JobState,
    Look,
    Scene,
    Seal,
    ending,
    etcd_version,
    host_port,
    store_password,
    too_old,
)
from ..rendezvous.etcd_version import diverging
from . import minder_folder
from .linux import boottime, read_signals, retitle, signal_file
from .minder_etcd import EtcdProcess
from .minder_gateway import Gateway, NoAnswer
from .minder_guests import Guests
from .minder_orders import Orders
from .minder_token import read_token
from .rank import DISMISSED
from .sweep import reap

TITLE = "store-minder"  # without the product's name, as the guardian's
READY_S = 60.0  # for etcd to serve; its own timers make that 0.2 s, a machine that swaps more
DOUBT_S = 3.0  # then a program that does not serve is asked whether it is an etcd at all
DEATHS, WITHIN_S = 5, 10.0  # then it is not restarted any more
RESTART_S = 0.3  # before each restart but the first
FIRST_LOOK_S, LONGEST_LOOK_S = 0.005, 0.5
_CONNECT_S = 0.005  # between tries to reach an etcd that is starting


class Minder:
    """One store; ``serve`` runs until nobody needs it, and leaves nothing behind."""

    def __init__(self, orders: Orders, door: socket.socket) -> None:
        self.orders = orders
        self.etcd = EtcdProcess(orders.binary, orders.addresses, orders.port)
        self.gateway = Gateway()
        self.where = host_port(orders.addresses[0], orders.port)
        self.seal = Seal(orders.run_id or os.urandom(6).hex(), bool(orders.run_id), os.uname().nodename, orders.by)
        self.owed = orders.hold_s > 0  # the wait for an earlier store's nodes is not over
        self.version = ""
        self.up = False
        self.told = 0
        self.met = False
        self.needed = True
        self.needed_s = boottime()
        self.deaths: list[float] = []
        self.look: Look | None = None
        self.signals = signal_file((signal.SIGCHLD, signal.SIGTERM))
        self.poll = select.poll()
        self.poll.register(self.signals, select.POLLIN)
        self.guests = Guests(door, self.poll)

    def serve(self) -> None:
        """Bring the store up, keep it up, take it down."""
        error = ""
        try:
            self._hold()
            self._come_up()
            minder_folder.remove_leftovers(os.path.dirname(self.orders.folder))
            gc.freeze()
            self._say(self._keep().reason)
        except EmbeddedError as refused:
            error = str(refused)
            self._say(error)
        except OSError as trouble:
            error = f"the store's folder {self.orders.folder} cannot be used: {trouble.strerror}. Make room there"
        self._finish(error)

    # -- coming up

    def _hold(self) -> None:
        """Wait until no agent can believe in a store that was at this address before and was killed."""
        end_s = boottime() + self.orders.hold_s
        while (left_s := end_s - boottime()) > 0:
            for guest in self.guests.asking:
                guest.make_wait(
                    "an earlier store at this address ended while nodes may have used it; the new one waits "
                    f"{self.orders.hold_s:g} s, until none of them runs ranks any more"
                )
            self._turn(left_s)
            self._obey()
        self.owed = False

    def _come_up(self) -> None:
        minder_folder.empty(".", but=(minder_folder.DOOR, minder_folder.LOG))
        minder_folder.set_lease(".", self.orders.lease_ttl_s)
        if self.orders.token_file:
            password = store_password(read_token(self.orders.token_file))
            self._start_etcd(private=True)  # no port is open before one must say who one is
            self._await_etcd()
            self.gateway.require_password(password)
            self.etcd.kill()
        self._start_etcd()
        self.version = self._await_etcd()
        version = etcd_version(self.version)
        if version is not None and (old := too_old(self.orders.binary, version)):
            raise EmbeddedError(old)
        try:
            self.gateway.put_seal(self.orders.prefix, self.seal)
        except NoAnswer as silent:
            raise EmbeddedError(f"etcd ({self.orders.binary}) served and then did not: {silent}") from silent
        self.up = True

    def _await_etcd(self) -> str:
        """Return the version of an etcd that serves; EmbeddedError when it will not."""
        began_s = boottime()
        doubted = False
        while True:
            try:
                return self.gateway.version()
            except NoAnswer as silent:
                self._turn(_CONNECT_S)
                self._obey()
                if self.etcd.status is not None:
                    raise EmbeddedError(self.etcd.why_ended()) from silent
                waited_s = boottime() - began_s
                if waited_s > DOUBT_S and not doubted:
                    doubted = True
                    if refusal := self.etcd.why_unfit():
                        raise EmbeddedError(refusal) from silent
                if waited_s > READY_S:
                    raise EmbeddedError(
                        f"etcd ({self.orders.binary}) did not serve within {READY_S:g} s ({silent}): is this machine "
                        "out of memory, or its disk very slow?"
                    ) from silent

    def _obey(self) -> None:
        if self.told or self.guests.gone:
            raise EmbeddedError("nobody wants the store any more" if self.guests.gone else "the store was told to end")

    # -- being up

    def _keep(self) -> Ending:
        pause_s, reason = FIRST_LOOK_S, ""
        while True:
            restart_s = self._keep_etcd()
            asking = [guest for guest in self.guests.asking if not guest.waiting]
            if asking or not self.guests.served:
                self.look = self._ask()
                self._answer(self.look)
            decision = ending(self._scene(), self.orders.lease_ttl_s)
            if decision.down:
                return decision
            if decision.reason != reason:
                reason = decision.reason
                self._say(reason)
            idle = self.guests.served and all(guest.waiting for guest in self.guests.asking)
            if self._turn(restart_s if idle else min(pause_s, restart_s or pause_s)):
                pause_s = FIRST_LOOK_S
            else:
                pause_s = min(2 * pause_s, LONGEST_LOOK_S)

    def _scene(self) -> Scene:
        elsewhere = self.look is not None and self.look.nodes > 0
        if self.guests.served:
            self.met, self.look = False, None
        elif elsewhere:
            self.met = True
        needed = self.guests.served > 0 or elsewhere
        if needed or self.needed:  # quiet begins when it is first seen, however long ago the last turn was
            self.needed_s = boottime()
        self.needed = needed
        quiet_s = boottime() - self.needed_s
        return Scene(self.guests.served, self.told, self.look, quiet_s, self.guests.killed == 0, self.met)

    def _keep_etcd(self) -> float | None:
        """Start a dead etcd again on its data; return how soon that must be thought of again."""
        if self.etcd.status is None:
            return None
        now_s = boottime()
        if not self.deaths or self.etcd.ended_s != self.deaths[-1]:
            self.deaths = [at_s for at_s in self.deaths if at_s > now_s - WITHIN_S] + [self.etcd.ended_s]
            self._say(f"etcd has ended ({self.etcd.status})")
        if diverging(self.version):
            raise EmbeddedError(
                f"etcd {self.version} was killed, and when it is started again it may lack a write that it has "
                "confirmed: the store is given up. Start the job again; etcd 3.4.23, 3.5.3 and newer go on"
            )
        if len(self.deaths) >= DEATHS:
            raise EmbeddedError(
                f"etcd ended {DEATHS} times within {WITHIN_S:g} s and is not started any more: {self.etcd.why_ended()}"
            )
        left_s = self.etcd.ended_s + RESTART_S - now_s
        if len(self.deaths) > 1 and left_s > 0:
            return left_s
        self._start_etcd()
        return None

    def _start_etcd(self, *, private: bool = False) -> None:
        try:
            self.etcd.start(private=private)
        except OSError as error:  # no process to be had, no room on the disk
            raise EmbeddedError(f"etcd ({self.orders.binary}) cannot be started: {error.strerror}") from error

    def _ask(self) -> Look | None:
        try:
            return self.gateway.look(self.orders.prefix, self.seal.run_id)
        except NoAnswer:
            return None

    def _answer(self, look: Look | None) -> None:
        """Tell agents where the store is; those that come when the run is over wait for the next one."""
        for guest in self.guests.asking if look is not None else ():
            assert look is not None
            if look.job is not JobState.OVER:
                address = self.orders.addresses[0]
                self.guests.serve(guest, run_id=self.seal.run_id, machine=self.seal.machine, endpoint=address)
            else:
                guest.make_wait(
                    f"the store at {self.where} is still that of run {self.seal.run_id!r}, which is over; waiting for "
                    "its last nodes to leave"
                )

    def _turn(self, timeout_s: float | None) -> bool:
        """Wait for something to happen and take it in; True when an agent came or went, or the end was asked for."""
        ready = {fd for fd, _ in self.poll.poll(None if timeout_s is None else 1000 * timeout_s)}
        told = self.told
        if self.signals in ready:
            self.told += sum(number == signal.SIGTERM for number, _ in read_signals(self.signals))
            reap(self.etcd.note_end)
        return self.guests.attend(ready) or self.told != told

    # -- the end

    def _finish(self, error: str) -> None:
        self.guests.dismiss(error)  # who comes now starts the next one
        self.etcd.kill()
        minder_folder.empty(".")  # first, so that there is room for the mark
        if self.owed or (self.up and (self.guests.served or self.look is None or self.look.nodes)):
            minder_folder.mark_ended_early(".", int(self.orders.hold_s) if self.owed else self.orders.lease_ttl_s)
        else:
            os.rmdir(self.orders.folder)

    def _say(self, words: str) -> None:
        with contextlib.suppress(OSError):  # a full disk: the store lives on, its log does not
            print(words, file=sys.stderr, flush=True)


def main(lock_fd: int, door_fd: int, orders: Orders) -> None:
    """Be the minder: the last line of the program that ``minder_link.py`` executes. The lock ends with the process."""
    signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGCHLD, signal.SIGTERM))
    for signum in DISMISSED:
        if signum != signal.SIGTERM:
            signal.signal(signum, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signum for signum in DISMISSED if signum != signal.SIGTERM])
    retitle(f"{TITLE} {host_port(orders.addresses[0], orders.port)}")
    for name in os.listdir("/proc/self/fd"):  # what a shell or a scheduler left open would be held open with us
        if int(name) > 2 and int(name) not in (lock_fd, door_fd):
            try:
                os.close(int(name))
            except OSError:
                continue  # the listing's own
    for fd in (lock_fd, door_fd):
        os.set_inheritable(fd, False)
    os.chdir(orders.folder)
    door = socket.socket(fileno=door_fd)
    door.setblocking(False)
    Minder(orders, door).serve()
