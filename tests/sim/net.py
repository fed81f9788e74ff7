"""The fate of every message: how long it takes, and whether it is lost, late or doubled. Chosen from the seed."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .agents import Agent
    from .world import World


class Net:
    """All randomness of messages; after ``calm`` nothing is lost and little is slow."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.rng = world.rng
        self.bad = self.rng.choice((0.0, 0.02, 0.05, 0.1, 0.15))  # how often a transaction meets a bad fate
        self.slow = self.rng.choice((0.0, 0.02, 0.1))  # how often anything is slow
        self.exec_bad = self.rng.choice((0.0, 0.0, 0.05))
        self.doomed = ""  # what a story loses next of a transaction: "request" or "answer"

    def calm(self) -> None:
        self.bad = self.slow = self.exec_bad = 0.0

    def _slow(self) -> bool:
        return self.slow > 0.0 and self.rng.random() < self.slow

    def delay(self, _agent: Agent) -> float:
        return 0.001 + self.rng.random() * (1.2 if self._slow() else 0.03)

    def watch_lag(self, laggy: bool) -> float:
        if laggy:
            return 1.0 + self.rng.random() * 12.0
        return 0.001 + self.rng.random() * (2.0 if self._slow() else 0.05)

    def pipe_lag(self, most: float) -> float:
        if most:
            return self.rng.random() * most
        return 0.0005 + self.rng.random() * (1.0 if self._slow() else 0.01)

    def fork_delay(self) -> float:
        return self.rng.random() * (4.0 if self._slow() else 0.2)

    def loses(self, what: str, is_txn: bool) -> bool:
        """Lose a request, or the answer of something that was done: the outcome is unknown to the sender."""
        if is_txn and what == self.doomed:
            self.doomed = ""
            return True
        if self.bad == 0.0 or self.rng.random() >= self.bad / 3:
            return False
        self.world.faults["unknown outcome" if is_txn and what == "answer" else f"{what} lost"] += 1
        return True

    def late(self) -> float | None:
        """Hold a transaction back for so long that its sender may be gone when it arrives."""
        if self.bad == 0.0 or self.rng.random() >= self.bad / 2:
            return None
        self.world.faults["late message"] += 1
        return self.rng.random() * 40.0

    def again(self) -> float | None:
        """Deliver a transaction twice."""
        if self.bad == 0.0 or self.rng.random() >= self.bad / 2:
            return None
        self.world.faults["duplicate message"] += 1
        return self.rng.random() * 20.0

    def exec_fails(self) -> bool:
        failed = self.exec_bad > 0.0 and self.rng.random() < self.exec_bad
        self.world.stats["exec failed"] += failed
        return failed

    def port_fails(self) -> bool:
        failed = self.exec_bad > 0.0 and self.rng.random() < self.exec_bad
        self.world.stats["port failed"] += failed
        return failed
