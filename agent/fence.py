"""The guardian's rule: may a rank be started now, must all be killed now. Pure, and the one place that says so.

The guardian holds one ``Fence``; so does the simulator of the protocol. A lease's deadline is the time at which SIGKILL
is sent, computed by the agent from an acknowledged keepalive. After the fence nothing starts for that incarnation until
the agent has said that it knows, and has renewed the lease after saying so.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

NO_INCARNATION = 0


class Fence:
    """One incarnation's right to run ranks. A value: each method returns what holds next."""

    __slots__ = ("deadline_s", "inc", "known", "latched")
    inc: Final[int]
    deadline_s: Final[float]
    latched: Final[bool]  # the deadline passed and all was killed
    known: Final[bool]  # the agent has acknowledged that

    def __init__(
        self,
        inc: int = NO_INCARNATION,
        deadline_s: float = float("inf"),
        latched: bool = False,
        known: bool = False,
    ) -> None:
        self.inc = inc
        self.deadline_s = deadline_s
        self.latched = latched
        self.known = known

    def lease(self, inc: int, deadline_s: float) -> Fence:
        """Take over a lease's deadline: another incarnation replaces, the same one can only gain time."""
        if inc != self.inc:
            return Fence(inc, deadline_s)
        if deadline_s <= self.deadline_s or (self.latched and not self.known):
            return self
        return Fence(inc, deadline_s)

    def acknowledge(self, inc: int) -> Fence:
        """Note that the agent knows of the fence: the next later lease of ``inc`` opens it."""
        if inc != self.inc or not self.latched:
            return self
        return Fence(self.inc, self.deadline_s, latched=True, known=True)

    def fenced(self) -> Fence:
        """Latch: all was, or is about to be, killed because the deadline passed."""
        return self if self.latched else Fence(self.inc, self.deadline_s, latched=True)

    def due(self, now_s: float) -> bool:
        """Tell whether everything must be killed now."""
        return not self.latched and now_s >= self.deadline_s

    def may_start(self, inc: int, now_s: float) -> str | None:
        """Return why a rank of ``inc`` must not be started now, or None when it may."""
        if self.inc == NO_INCARNATION:
            return "the agent has not told the guardian of any lease yet"
        if inc != self.inc:
            return f"the start is for incarnation {inc:x}, the present one is {self.inc:x}"
        if self.latched:
            return f"incarnation {inc:x} was fenced and has not been renewed since"
        if now_s >= self.deadline_s:
            return (
                f"the lease of incarnation {inc:x} may be gone: its deadline passed {now_s - self.deadline_s:.3f} s ago"
            )
        return None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Fence) and self._fields() == other._fields()

    def __hash__(self) -> int:
        return hash(self._fields())

    def __repr__(self) -> str:
        return f"Fence(inc={self.inc}, deadline_s={self.deadline_s}, latched={self.latched}, known={self.known})"

    def _fields(self) -> tuple[int, float, bool, bool]:
        return (self.inc, self.deadline_s, self.latched, self.known)
