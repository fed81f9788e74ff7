"""Whether a verdict speaks against a node's host itself, so that other rounds and jobs had better avoid it. Pure.

The leading agent asks after each verdict; ``rendezvous/quarantine.py`` decides what follows.
"""

from __future__ import annotations

from .classes import find
from .verdict import Verdict

# The node went, or was killed: nothing says that it is sick, and what comes back has proven that it is there.
UNSAID = frozenset({"node_lost", "killed_unknown"})


def suspicion(verdict: Verdict) -> bool | None:
    """Return True when the host must not be used again, False when once may be chance, None without a suspicion."""
    if not verdict.node_fault or not verdict.node or verdict.cls in UNSAID:
        return None
    return "exclude on repeat" not in find(verdict.cls).action
