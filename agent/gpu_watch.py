"""What this node's GPUs show while its ranks run: a source of evidence, and of alarms, through ``gpu_child.py``.

Loaded once ranks run. It listens to the process that was started with the agent; that process may hang or die, and then
evidence is lacking, the loop goes on, and another one is started, at most once in a round. What tells that a GPU which
a living rank uses is of no use before a reset ends the round early, after a moment for the ranks' own words.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
from collections.abc import Callable, Mapping
from typing import Any

from ..health.evidence import Fact
from ..health.observed import NO_DRIVER, Early, Lacked
from ..health.own_signatures import NONE, OwnSignatures, xids_of
from ..health.xid import lookup, recovery_words
from . import node_words as words
from . import proc
from .gpu_cards import SLOWED, VISIBLE, Card, User, Xid, announced, computing, shown, users
from .gpu_start import GpuChild, driver_here
from .linux import boottime
from .sources import Begun

NAME = "nvml"
ANSWER_S = 1.2  # for a look at all GPUs; a driver that takes longer hangs
INSPECT_S = 1.0
COMPUTING_S = 1.0
DEATH_S = 1.0  # from SIGKILL until the process is gone; longer means that it is stuck in the driver
HARD_WINDOW_S = 2.0  # after an alarm: time for what the ranks have to say; their GPU answers nobody any more
BEFORE_S = 60.0  # XIDs from so long before the ranks' start count as the round's, unless an earlier one had them
XID = 0x8  # nvmlEventTypeXidCriticalError
RECORD_BYTES = 1 << 16
MOST_XIDS = 32  # of one round
DEEP = 32  # generations from a process on a GPU up to its rank


class GpuWatch:
    """The source. ``child`` was started with the agent, None where there is no driver; ``environ`` is the ranks'.

    ``again`` starts another process when one was lost; ``own`` is what the site says of XIDs.
    """

    name = NAME

    def __init__(
        self,
        child: GpuChild | None,
        environ: Mapping[str, str],
        post: Callable[[words.Event], None],
        again: Callable[[], GpuChild | None],
        own: OwnSignatures | None = None,
    ) -> None:
        self._meanings = own or NONE
        self._environ = environ
        self._post = post
        self._again = again
        self._begun: Begun | None = None
        self._ranks: dict[int, int] = {}  # by pid
        self._users: tuple[User, ...] = ()
        self._cards: dict[int, Card] = {}
        self._first: dict[int, Card] = {}  # as they were when the round began
        self._gauges: dict[int, dict[str, int]] = {}  # the most that was seen of them in the round
        self._xids: list[Xid] = []
        self._seen: dict[int, frozenset[int]] = {}  # the GPUs on which processes of a rank were seen
        self._foreign: frozenset[int] = frozenset()
        self._alarmed = False
        self._restarts = 0  # in the round
        self._lacking: list[str] = []
        self._child: GpuChild | None = None
        self._pidfd = -1
        self._end: socket.socket | None = None
        self._gone = asyncio.Event()
        self._question = 0
        self._answered: asyncio.Future[None] | None = None
        self._used: asyncio.Future[dict[int, int]] | None = None  # while the process asks how busy the GPUs are
        self._parting = ""  # why there is no more to be had, in the process's own words
        self._hung = 0  # the round at whose end it was killed, since it did not answer
        self._here = child is not None or driver_here(environ)
        if child is None and self._here:
            self._parting = "the process that reads NVIDIA's driver could not be started"
        if child is not None:
            self._attach(child)

    # --- a source's calls ---------------------------------------------------------------------------------------------
    def begin(self, begun: Begun) -> None:
        """See ``Source``. What the driver had said before any ranks were started is heard first."""
        self._begun = begun
        self._ranks = {rank.pid: rank.rank for rank in begun.ranks}
        self._users = tuple(
            User(rank.rank, _index(env, rank.local_rank), env.get(VISIBLE))
            for rank in begun.ranks
            for env in ({**self._environ, **rank.env},)
        )
        self._gauges, self._seen, self._foreign = {}, {}, frozenset()
        self._alarmed, self._restarts, self._lacking = False, 0, []
        self._first = dict(self._cards)
        self._read()
        self._xids = [xid for xid in self._xids if xid.at_s >= begun.at_s - BEFORE_S]
        for card in self._cards.values():
            self._own(card)
        if self._here and self._child is None and not self._parting:
            self._first = {}  # what the cards had counted when the process ended is of old
            self._start_again()

    async def inspect(self) -> None:
        """See ``Source``: the driver still knows which processes are on which GPU."""
        await self._look(INSPECT_S)

    async def facts(self) -> tuple[Fact, ...]:
        """See ``Source``."""
        begun = self._begun
        if begun is None:
            return ()
        if not self._here:
            return (self._no_driver(begun),)
        if self._end is not None and not await self._look(ANSWER_S):
            self._lacking.append(
                f"NVIDIA's driver has not answered within {ANSWER_S:g} s; look at nvidia-smi and dmesg"
            )
            self._hung = begun.round
            self._kill()
        elif self._end is None:
            self._lacking.append(self._parting or "the process that reads NVIDIA's driver is gone")
        mine = self._by_card()
        found = [
            shown(card, self._first.get(n), self._gauges.get(n, {}), self._xids, mine.get(n, ()), begun.at_s)
            for n, card in sorted(self._cards.items())
        ]
        unread = [f"GPU {card.number}: {what}" for card in self._cards.values() for what in card.unread]
        if unread:
            self._lacking.append("some of what NVIDIA's driver counts cannot be read: " + "; ".join(unread[:4]))
        self._xids = []  # told
        lacked = tuple(Lacked(NAME, why) for why in dict.fromkeys(self._lacking))
        return (*(fact for fact in found if fact is not None), *lacked)

    async def computing(self) -> dict[int, bool]:
        """Return whether a GPU of each rank computes, for the ranks of which the driver says so in time."""
        if self._end is None:
            return {}
        if self._used is None:
            try:
                self._end.send(b"use")
            except (BlockingIOError, ConnectionError):  # it hangs, or its end is about to be seen
                return {}
            self._used = asyncio.get_running_loop().create_future()
        waited = self._used
        await asyncio.wait({waited}, timeout=COMPUTING_S)
        return computing(waited.result(), self._by_card()) if waited.done() else {}

    async def close(self) -> None:
        """See ``Source``. A process that is stuck in the driver is left to the keeper, which waits and names it."""
        self._here = False
        self._kill()
        if self._pidfd >= 0:
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._gone.wait(), DEATH_S)

    # --- the process --------------------------------------------------------------------------------------------------
    def _attach(self, child: GpuChild) -> None:
        self._child = child
        self._gone.clear()
        self._pidfd = os.pidfd_open(child.pid)
        self._end = socket.socket(fileno=child.fd)
        self._end.setblocking(False)
        loop = asyncio.get_running_loop()
        loop.add_reader(self._end, self._read)
        loop.add_reader(self._pidfd, self._ended)

    def _start_again(self) -> None:
        self._restarts += 1
        child = self._again()
        if child is not None:
            self._attach(child)

    def _kill(self) -> None:
        if self._child is not None:
            os.kill(self._child.pid, signal.SIGKILL)  # not reaped yet: the pid is its own

    def _ended(self) -> None:
        """Reap the process, hear its last words, and start another one if it had no reason to end."""
        assert self._child is not None
        self._read()
        loop = asyncio.get_running_loop()
        if self._end is not None:
            loop.remove_reader(self._end)
            self._end.close()
            self._end = None
        loop.remove_reader(self._pidfd)
        os.close(self._pidfd)
        self._pidfd = -1
        _, status = os.waitpid(self._child.pid, 0)
        self._child = None
        self._gone.set()
        self._answer()
        self._use({})
        hung, self._hung = self._hung, 0
        if hung:  # the next round has another one
            if self._here and self._begun is not None and self._begun.round != hung:
                self._first = {}
                self._start_again()
        elif self._here and not self._parting:
            code = os.waitstatus_to_exitcode(status)
            how = f"was killed by signal {-code}" if code < 0 else f"ended with {code}"
            again = self._restarts == 0
            then = "another one was started; XIDs in between are not known" if again else "it is not started again now"
            self._lacking.append(f"the process that reads NVIDIA's driver {how}; {then}")
            if again:
                self._start_again()

    # --- questions and answers ----------------------------------------------------------------------------------------
    def _ask(self) -> None:
        if self._end is None or self._answered is not None:
            return
        self._question += 1
        self._answered = asyncio.get_running_loop().create_future()
        with contextlib.suppress(BlockingIOError, ConnectionError):  # it hangs, or its end is about to be seen
            self._end.send(b"%d" % self._question)

    async def _look(self, within_s: float) -> bool:
        """Have the process look at all GPUs; tell whether it has, in time. One that is looking is waited for first."""
        loop = asyncio.get_running_loop()
        end_s = loop.time() + within_s
        for fresh in (False, True):
            if fresh:
                self._ask()
            if (waited := self._answered) is not None:
                await asyncio.wait({waited}, timeout=end_s - loop.time())
                if not waited.done():
                    return False
        return self._end is not None

    def _answer(self) -> None:
        waited, self._answered = self._answered, None
        if waited is not None and not waited.done():
            waited.set_result(None)

    def _use(self, percent: dict[int, int]) -> None:
        waited, self._used = self._used, None
        if waited is not None:
            waited.set_result(percent)

    def _read(self) -> None:
        """Take in all records that wait."""
        while self._end is not None:
            try:
                data = self._end.recv(RECORD_BYTES)
            except BlockingIOError:
                return
            except ConnectionError:
                data = b""
            if not data:  # its pidfd tells the rest
                asyncio.get_running_loop().remove_reader(self._end)
                self._kill()
                return
            self._hear(json.loads(data))

    def _hear(self, said: Any) -> None:
        match said["is"]:
            case "gpu":
                self._take(_card(said), said["at_s"])
            case "event":
                if said["type"] == XID and len(self._xids) < MOST_XIDS:
                    self._xids.append(Xid(said["number"], said["data"], said["at_s"]))
                self._weigh(said["number"])
            case "looked":
                self._looked(said)
            case "use":
                self._use(dict(said["percent"]))
            case _:
                self._parting = str(said["why"])

    def _take(self, card: Card, at_s: float) -> None:
        """Note a GPU as it was at that time: what was read before the ranks began may be heard long after."""
        n = card.number
        if card.lost and n in self._cards:
            card = card._replace(counters=self._cards[n].counters)
        self._cards[n] = card
        if self._begun is None or at_s <= self._begun.at_s:
            self._first[n] = card
        self._first.setdefault(n, card)
        gauges = self._gauges.setdefault(n, {})
        for name, value in card.counters.items():
            if name.startswith(SLOWED):
                gauges[name] = max(value, gauges.get(name, 0))
        self._own(card)
        self._weigh(n)

    def _own(self, card: Card) -> None:
        """Note whose processes are on a GPU."""
        owners = {self._rank_of(pid) for pid in card.pids}
        for rank in owners - {None}:
            assert rank is not None
            self._seen[rank] = self._seen.get(rank, frozenset()) | {card.number}
        self._foreign = self._foreign | {card.number} if owners == {None} else self._foreign - {card.number}

    def _looked(self, said: Any) -> None:
        self._lacking += [f"events of {one} cannot be had" for one in said["deaf"][:4]]
        if said["late_s"] > ANSWER_S:
            self._lacking.append(
                f"NVIDIA's driver has not returned from a wait for events for {said['late_s']:.0f} s: XIDs are missing"
            )
        if said["asked"] == self._question:
            self._answer()

    def _rank_of(self, pid: int) -> int | None:
        """Return the rank that a process is, or descends from."""
        for _ in range(DEEP):
            if pid in self._ranks or pid <= 1:
                break
            pid = proc.parent(pid)
        return self._ranks.get(pid)

    # --- alarms and words ---------------------------------------------------------------------------------------------
    def _by_card(self) -> dict[int, tuple[int, ...]]:
        return users(self._cards.values(), self._users, self._seen, self._foreign)

    def _weigh(self, n: int) -> None:
        """Raise the alarm when a GPU of a rank here has become useless in this round."""
        begun = self._begun
        if begun is None or self._alarmed or not (why := self._useless(n, begun.at_s)):
            return
        ranks = self._by_card().get(n, ())
        if ranks:
            self._alarmed = True
            at_s = boottime()
            whose = f"GPU {n}, which rank {ranks[0]} uses," if len(ranks) == 1 else f"GPU {n}, which ranks here use,"
            early = Early(ranks[0] if len(ranks) == 1 else -1, at_s - begun.at_s, f"{whose} {why}")
            self._post(words.Alarmed(at_s, begun.round, early, HARD_WINDOW_S))

    def _useless(self, n: int, since_s: float) -> str:
        for seen in self._xids:
            xid = lookup(seen.code, xids_of(self._meanings))
            if seen.number == n and seen.at_s >= since_s and xid.needs_reset:
                return f"has reported XID {xid.code} ({xid.mnemonic})"
        card, first = self._cards.get(n), self._first.get(n)
        if card is None or first is None:
            return ""
        if card.recovery and card.recovery != first.recovery:
            return f"needs {recovery_words(card.recovery)}, says its driver"
        return "is lost to its driver" if card.lost and not first.lost else ""

    def _no_driver(self, begun: Begun) -> Lacked:
        if any(announced({**self._environ, **rank.env}) for rank in begun.ranks):
            return Lacked(NAME, f"{NO_DRIVER.why}, and the environment names GPUs: look at nvidia-smi")
        return NO_DRIVER


def _index(env: Mapping[str, str | None], local_rank: int) -> int:
    said = env.get("LOCAL_RANK") or ""  # 0 for all with --virtual-local-rank
    return int(said) if said.isdecimal() else local_rank


def _card(said: Any) -> Card:
    lists = (tuple(said[name]) for name in ("pids", "unread"))
    return Card(
        said["number"],
        said["uuid"],
        said["bus"],
        tuple(said["migs"]),
        said["counters"],
        said["recovery"],
        said["lost"],
        *lists,
    )
