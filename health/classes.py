"""The one list of failure classes (``classes.csv``), read once, when the first failure is judged.

Verdict and policy ask it for family, retry and fault; the launcher asks for the families that a budget may name.
The file is plain: five columns, no quoting, so no csv module is needed.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

SUCCESS = "success"
UNKNOWN = "exit_unknown"  # the class of what nothing explains


@dataclass(frozen=True, slots=True)
class FailureClass:
    """One row; ``retryable`` and ``node_fault`` (the fault lies in the node, not in the job) are yes, no or no/yes."""

    name: str
    family: str
    retryable: str
    node_fault: str
    action: str

    @property
    def free(self) -> bool:
        """Return whether a retry after it is never paid for."""
        return self.action.startswith("free")

    @property
    def always_node_fault(self) -> bool:
        """Return whether the node is at fault whenever this class is found."""
        return self.node_fault == "yes"


@lru_cache(maxsize=1)
def all_classes() -> dict[str, FailureClass]:
    """Return every class by name."""
    rows = Path(__file__).with_name("classes.csv").read_text(encoding="utf-8").splitlines()[1:]
    return {row.split(",", 1)[0]: FailureClass(*row.split(",", 4)) for row in rows if row.strip()}


def find(name: str) -> FailureClass:
    """Return the class of that name; ``exit_unknown`` for a name that the list does not have."""
    table = all_classes()
    return table.get(name) or table[UNKNOWN]


def families() -> tuple[str, ...]:
    """Return the families that a budget can be kept for, sorted."""
    return tuple(sorted({c.family for c in all_classes().values()} - {"none"}))
