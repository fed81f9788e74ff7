"""What this node does when a verdict blames it: its check, within a bound, and what follows when that fails.

An adapter around whatever checks (``Check``); the node machine asks for it and says in the store how it ended. A check
that fails is held against the host in the quarantine as well, where the job has one. Loaded when a node is blamed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from enum import Enum
from typing import NamedTuple

from ..rendezvous.records import MAX_WORDS, NodeId, Round
from . import node_words as words
from .linux import boottime
from .wards import Suspect, Wards

CHECK_S = 120.0  # the leader waits a little longer (``Limits.check_s``)


class Grade(Enum):
    """How a check ended."""

    PASSED = "passed"
    FAILED = "failed"
    UNKNOWN = "unknown"  # it lets pass: what cannot be told must not take a node away


class CheckResult(NamedTuple):
    """The end of a check, in words too: what is wrong, or why nobody can tell."""

    grade: Grade
    text: str = ""


Check = Callable[[], Awaitable[CheckResult]]


class Suspected(NamedTuple):
    """One node as it is blamed; ``wards`` where hosts can be put in quarantine."""

    node: NodeId
    run_id: str
    least_others: int
    wards: Wards | None
    say: Callable[[str], None]


async def vet(check: Check, n: Round, about: Suspected, limit_s: float = CHECK_S) -> words.Checked:
    """Check this node, blamed for the end of round ``n``; whatever goes wrong with the check itself lets it pass."""
    about.say(f"this node is blamed for the end of round {n}: it is checked before it takes part again")
    try:
        result = await asyncio.wait_for(check(), limit_s)
    except asyncio.TimeoutError:
        result = CheckResult(Grade.UNKNOWN, f"no end within {limit_s:g} s")
    except Exception as error:  # a plug-in of the site's, say
        result = CheckResult(Grade.UNKNOWN, f"{type(error).__name__}: {error}")
    if result.grade is not Grade.FAILED:
        text = f": {result.text}" if result.text else ""
        about.say(f"the node check after round {n} {_ENDED[result.grade]}{text}")
        return words.Checked(boottime(), n, "")
    why = " ".join(result.text.split())[:MAX_WORDS] or "it does not say why"
    about.say(f"the node check after round {n} has failed: {why}; this node takes part in no further round")
    if about.wards is not None:
        suspect = Suspect(about.node, f"{about.run_id}/{n}/check", f"the node check failed: {why}", True)
        await about.wards.offend(suspect, about.least_others)
    return words.Checked(boottime(), n, why)


_ENDED = {Grade.PASSED: "has passed", Grade.UNKNOWN: "cannot tell, and lets it take part"}
