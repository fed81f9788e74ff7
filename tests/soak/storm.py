"""What happens to one run: bursts of faults, recoveries, and looks at all that may grow. Not a test module."""

from __future__ import annotations

import heapq
import itertools
import time
from collections.abc import Callable

from command.processes import boottime
from soak.growth import look
from soak.plan import Burst, Fault, Kind
from soak.report import Census, Hit, RunReport
from soak.run import LEASE_S, NODES, SoakRun

TICK_S = 0.02
PATIENCE = 40.0  # leases, until a newer step is published: three imports of torch on a machine that others use as well
LINGER = 0.3  # leases, after the last fault has ended: a fence may still be to come
SEARCH = 1.0  # leases, for the victim of a fault to be there
WORDS = ("started", "finished", "evidence")  # a node's, of the present round and late ones of the last


class Storm:
    """Does to a run what the plan says and writes down what came of it."""

    def __init__(self, run: SoakRun, report: RunReport, say: Callable[[str], None]) -> None:
        self.job = run
        self.report = report
        self._say = say
        self._agenda: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()

    # --- time ---------------------------------------------------------------------------------------------------------
    def tick(self) -> None:
        """Do what is due, look at everything, and let a moment pass."""
        while self._agenda and self._agenda[0][0] <= boottime():
            heapq.heappop(self._agenda)[2]()
        self.job.tick()
        time.sleep(TICK_S)

    def _at(self, when: float, what: Callable[[], None]) -> None:
        heapq.heappush(self._agenda, (when, next(self._order), what))

    def _wait(self, condition: Callable[[], bool], what: str) -> None:
        """Let time pass until ``condition()`` holds, or the job is over."""
        end = boottime() + PATIENCE * LEASE_S
        while not condition() and not self.job.over:
            assert boottime() < end, f"not within {PATIENCE:g} leases: {what}\n{self.job.say()}"
            self.tick()

    # --- faults -------------------------------------------------------------------------------------------------------
    def pass_over(self, burst: Burst) -> None:
        """Carry out a burst, wait until the job has recovered from all of it, and leave it alone for a while."""
        first = len(self.report.hits)
        when = boottime()
        for fault in burst.faults:
            when += fault.after * LEASE_S
            self._plan(fault, when, when + SEARCH * LEASE_S)
        self._wait(lambda: not self._agenda, "the faults of a burst are over")
        self.recover(" and ".join(fault.kind.value for fault in burst.faults))
        self._note(first)
        self._sample()
        calm = boottime() + burst.calm * LEASE_S
        self._wait(lambda: boottime() >= calm, "a calm")
        self._sample()

    def _note(self, first: int) -> None:
        """Write down what came of the faults of a burst, those from ``first`` on."""
        hits = self.report.hits[first:]
        for i, hit in enumerate(hits, first):
            later = [at for n, at in self.job.stepped.items() if n > hit.round and at > hit.at]
            next_s = min(later) - hit.at if later else None
            self.report.hits[i] = hit._replace(alone=len(hits) == 1, next_s=next_s)
            if len(hits) > 1 and i == first and later:
                self.report.together.append(max(later) - hit.at)

    def recover(self, after: str) -> None:
        """Wait for a published step that is newer than all there are now."""
        before = self.job.step()
        soon = boottime() + LINGER * LEASE_S
        self._wait(lambda: self.job.step() > before and boottime() >= soon, f"a step beyond {before} after {after}")

    def _plan(self, fault: Fault, when: float, by: float) -> None:
        """Carry out a fault at ``when``, or as soon after it as there is a victim; at ``by`` give up."""

        def due() -> None:
            now, n = boottime(), self.job.round
            if not self.job.over and self._strike(fault):
                self.report.hits.append(Hit(fault.kind, now, n, fault.lasts * LEASE_S))
                lasts = f", {fault.lasts * LEASE_S:.1f} s" if fault.kind.lasts else ""
                self._say(f"  round {n} step {self.job.step()}: {fault.kind.value}{lasts}")
            elif now < by and not self.job.over:
                self._plan(fault, now + TICK_S, by)
            else:
                self.report.missed += 1

        self._at(when, due)

    def _strike(self, fault: Fault) -> bool:
        store = self.job.store
        end = boottime() + fault.lasts * LEASE_S
        match fault.kind:
            case Kind.STORE_KILLED:
                store.kill(store.members)
            case Kind.STORE_PAUSED | Kind.STORE_AWAY:
                store.suspend(store.members)
            case Kind.MEMBER_KILLED:
                store.kill([store.members[fault.pick % len(store.members)]])
            case Kind.MEMBER_PAUSED:
                members = store.may_stand_still()
                if not members:
                    return False
                store.suspend([members[fault.pick % len(members)]])
            case Kind.STALL:
                if pid := self.job.strike(fault):
                    self._at(end, lambda: self.job.go_on(pid))
                return bool(pid)
            case _:
                return bool(self.job.strike(fault))
        self._at(end, store.restore)
        return True

    # --- looking ------------------------------------------------------------------------------------------------------
    def roll_call(self) -> None:
        """Wait until all nodes are there, and judge what the store holds of them; then let it forget its past."""
        store, prefix = self.job.store, self.job.prefix

        def whole() -> bool:
            try:
                return len(self.job.up) == len(NODES) and store.keys(prefix)["nodes"] == store.leases() == len(NODES)
            except OSError:
                return False

        self._wait(whole, f"{len(NODES)} nodes are there, with one lease each and no more")
        if self.job.over:
            return
        keys, status = store.keys(prefix), store.status()
        self.report.census.append(Census(self.job.round, keys, len(NODES), status.used, status.disk))
        n = self.job.round + 1  # one may have begun in the meantime
        most = {"job": 1, "terms": 1, "leader": 1, "nodes": len(NODES), "rounds": 2, "history": n, "attempts": n}
        most |= dict.fromkeys(WORDS, 2 * len(NODES))
        much = {kind: count for kind, count in keys.items() if count > most.get(kind, 0)}
        assert not much, f"too many keys at round {n - 1}: {much}"
        store.compact()

    def _sample(self) -> None:
        for number, node in self.job.up.items():
            for role in ("keeper", "agent", "guardian"):
                pid = getattr(node, role)
                found = look(pid, boottime(), self.job.round) if pid else None
                if found is not None:
                    self.report.samples.setdefault((f"{number}-{role}", pid), []).append(found)

    def finish(self) -> None:
        """Let the job end by itself, and all nodes with it."""
        seen, end = -1, 0.0
        while len(self.job.over) < len(NODES) or self._agenda:
            if seen != (seen := self.job.step() + len(self.job.over)):
                end = boottime() + PATIENCE * LEASE_S
            assert boottime() < end, f"neither a newer step nor an end\n{self.job.say()}"
            self.tick()
