"""Whether a verdict speaks against a node's host itself, so that other rounds and jobs had better avoid it. Pure.

The leading agent asks after each verdict; ``rendezvous/quarantine.py`` decides what follows.
"""

from __future__ import annotations

from .classes import find
from .evidence import AgentDied, Fact, Fault, Fenced, GuardianDied, RankExit, RoundEvidence, StartError
from .observed import FabricPort, Gpu, KernelLine, OomKill, SchedulerWord, Sighting
from .verdict import Verdict

# The node went, or was killed: nothing says that it is sick, and what comes back has proven that it is there.
UNSAID = frozenset({"node_lost", "killed_unknown"})
# What a node says of itself. Silence, a place in a collective, a slow step: others wait for it, and no more is known.
OWN = (*(StartError, Fenced, GuardianDied, AgentDied, Fault, Sighting, KernelLine, Gpu, FabricPort, SchedulerWord),)


def suspicion(verdict: Verdict, evidence: RoundEvidence) -> bool | None:
    """Return True when the host must not be used again, False when once may be chance, None without a suspicion.

    Once is never enough where only other nodes speak against it: they may be wrong about whom they waited for. And that
    they were stopped before they showed the same says nothing for other jobs: an error of the program's comes first
    on one of its nodes, too. In this job others are taken before it, and then it is seen (``agent/judge.py``).
    """
    if verdict.compared:
        return None
    if not verdict.node_fault or not verdict.node or verdict.cls in UNSAID:
        return None
    if "exclude on repeat" in find(verdict.cls).action:
        return False
    return any(_own_word(fact) for node in evidence.nodes if node.node == verdict.node for fact in node.facts)


def _own_word(fact: Fact) -> bool:
    if isinstance(fact, RankExit):
        return fact.status != 0 and not fact.stopping
    if isinstance(fact, OomKill):  # told of with 0, too
        return fact.kills > 0
    return isinstance(fact, OWN)
