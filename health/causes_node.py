"""Causes that lie in a node and in no rank's end: lost, fenced, asked to leave, an agent's own trouble, a scheduler's
word, an alarm about living ranks. Pure; for ``verdict.py``.

A member without a lease is ``node_lost``. So is one fenced by its guardian: to the job it was gone; when every member
was fenced it was the store that was gone, ``rdzv_lost``. A guardian that died was killed by somebody, and nothing says
by whom: ``killed_unknown``. So was an agent that a signal from outside ended; one that ended in another way has failed,
and took its node with it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

from . import exits, words
from .causes import CERTAIN, GUESS, LIKELY, SENTENCE, Cause, Proof, Verdict, plain, short
from .classes import find
from .evidence import AgentDied, Fault, Fenced, GuardianDied, Left, NodeEvidence, RankExit, RoundEvidence, StartError
from .fingerprint import fingerprint
from .observed import REENTRY, SILENCE, Early, SchedulerWord
from .reading import Standing
from .signatures import UNNAMED, Role, match, table

LEAVE, ADMIT, NOTICE = "leave", "admit", "notice"
KEEPER_KILLED = 9  # of Left: nobody can ask a node to leave by SIGKILL, so it stands for the keeper's end
OUT_OF_MEMORY = r"(?i)out[ _-]?of[ _-]?memory|oom[-_ ]kill"  # of a scheduler's word
# What schedulers call it, Slurm's states among them; looked for when no signature knows the words.
_SCHEDULER = (
    (re.compile(r"(?i)\bpreempt"), "preempted"),
    (re.compile(r"(?i)time[ _-]?limit|\bDEADLINE\b|\bTIMEOUT\b"), "time_limit"),
    (re.compile(r"(?i)node[ _-]?fail"), "node_lost"),
    (re.compile(OUT_OF_MEMORY), "host_oom"),
)


def node_causes(evidence: RoundEvidence, nodes: Sequence[NodeEvidence]) -> list[Cause]:
    """Return the causes that are no rank's end."""
    members = [name for name, _ in evidence.members]
    if len(members) > 1 and set(evidence.lost) >= set(members):
        causes = [_all_lost(len(members))]
    else:
        causes = [_lost(i, name, len(evidence.lost) - 1) for i, name in enumerate(evidence.lost)]
    fenced = {node.node for node in nodes if any(isinstance(fact, Fenced) for fact in node.facts)}
    all_fenced = bool(fenced) and fenced >= set(members) - set(evidence.lost) and not evidence.lost
    for node in nodes:
        for fact in node.facts:
            match fact:
                case Fenced(at_s):
                    causes.append(_fenced(node, at_s, all_fenced))
                case GuardianDied(at_s):
                    why = f"the guardian on {node.node} was killed, and its ranks with it; nothing says by whom"
                    proof = Proof("agent", node.node, "guardian died")
                    causes.append(plain((node.order, at_s, 0), "killed_unknown", node.node, why, proof, -9))
                case AgentDied(status):
                    causes.append(_agent(node, status))
                case StartError():
                    causes.append(_start(nodes, node, fact))
                case Fault():
                    causes.append(_fault(node, fact))
                case _:
                    pass
    return causes


def alarms(nodes: Sequence[NodeEvidence]) -> list[Cause]:
    """Return what nodes gave as their reason to end the round early: it decides only where nothing else does."""
    return [_early(node, fact) for node in nodes for fact in node.facts if isinstance(fact, Early)]


def scheduled(nodes: Sequence[NodeEvidence]) -> list[Cause]:
    """Return the causes that a scheduler named."""
    words_said = ((node, fact) for node in nodes for fact in node.facts if isinstance(fact, SchedulerWord))
    return [cause for node, fact in words_said if (cause := _scheduler(node, fact))]


def _lost(place: int, name: str, more: int) -> Cause:
    names = f"{name} and {more} more nodes were" if more else f"{name} was"
    sentence = f"{names} lost: no lease, and no word of its own"
    return plain((-1, 0.0, place), "node_lost", name, sentence, Proof("lease", name, "no lease"))


def _all_lost(count: int) -> Cause:
    """What all nodes lost at once was the store: no single one of them is to blame."""
    why = f"all {count} nodes lost their leases: the store was out of reach for longer than a lease"
    return plain((-1, 0.0, 0), "rdzv_lost", "", why, Proof("lease", "every node", "no lease"))


def _fenced(node: NodeEvidence, at_s: float, every: bool) -> Cause:
    who = "every node stopped its ranks" if every else f"{node.node} stopped its own ranks"
    why = "its lease might have been gone: the store was out of its reach, or the machine was suspended"
    cls = "rdzv_lost" if every else "node_lost"
    proof = Proof("lease", node.node, "fenced")
    return plain((node.order, at_s, 0), cls, node.node, f"{who}, because {why}", proof)


def _agent(node: NodeEvidence, status: int) -> Cause:
    killed = status < 0 and exits.signal_of(status) in exits.FROM_OUTSIDE
    how = f"was killed by {exits.signal_name(status)}" if killed else f"ended with {exits.words(status)}"
    why = f"the agent on {node.node} {how}, and its ranks were stopped"
    cls = "killed_unknown" if killed else "node_lost"
    return plain((node.order, 0.0, 0), cls, node.node, why, Proof("agent", node.node, "agent died"), status)


def _start(nodes: Sequence[NodeEvidence], node: NodeEvidence, fact: StartError) -> Cause:
    name = exits.class_of_start(fact.errno)
    why = exits.errno_words(fact.errno)
    started = [n.node for n in nodes if n.node != node.node and any(isinstance(f, RankExit) for f in n.facts)]
    sentence = f"rank {fact.rank} on {node.node} could not be started: {short(fact.program)}: {why}"
    if name == "user_args" and started:
        name, sentence = "node_mount_missing", f"{sentence} (on {started[0]} it started)"
    status = exits.status_of_start(fact.errno)
    proof = Proof("start", f"rank {fact.rank} on {node.node}", f"start failed: {why}")
    cause = plain((node.order, 0.0, fact.rank), name, node.node, sentence, proof, status)
    mark = fingerprint(name, "", fact.program, why)
    verdict = replace(cause.verdict, rank=fact.rank, local_rank=fact.local_rank, own_exit=True, fingerprint=mark)
    return replace(cause, standing=Standing.EXPLICIT, verdict=verdict)


def _fault(node: NodeEvidence, fault: Fault) -> Cause:
    hit = max(match(fault.what.split("\n")), key=lambda hit: hit.weight, default=None)
    name = find(fault.cls or (hit.cls if hit else "")).name
    sentence = f"the agent on {node.node} could not do its part: {short(fault.what, SENTENCE)}"
    proof = Proof("agent", node.node, f"fault: {short(fault.what)}")
    return plain((node.order, 0.0, 0), name, node.node, sentence, proof, 1)


def _early(node: NodeEvidence, fact: Early) -> Cause:
    """The rank is a reporter: it is named in the sentence, and is not the cause."""
    cls = find(_class_of_sign(fact.sign) if fact.sign else "exit_unknown")
    by = f"rank {fact.rank} of " if fact.rank >= 0 else ""
    sentence = f"the round was ended early on {by}{node.node}: {words.cause(cls.name)}: {short(fact.why, 300)}"
    if fact.sign == REENTRY:
        sentence = f"the round was ended early on {node.node}: {short(fact.why, 400)}"
    if not fact.sign:
        sentence = f"the round was ended early on {by}{node.node}: {short(fact.why, 400)}"
    proof = Proof("alarm", node.node, short(fact.why))
    cause = plain((node.order, fact.at_s, fact.rank), cls.name, node.node, sentence, proof, 1)
    standing = Standing.WAITED if cls.family == "hang" or not fact.sign else Standing.DISTURBED
    verdict = replace(cause.verdict, confidence=GUESS if standing is Standing.WAITED else LIKELY)
    return replace(cause, standing=standing, verdict=verdict)


@lru_cache(maxsize=1)
def _classes_of_signs() -> dict[str, str]:
    return {
        UNNAMED: "user_exception",
        SILENCE: "rank_hang",
        REENTRY: "ckpt_corrupt",
        **{signature.name: signature.cls for signature in table()},
    }


def _class_of_sign(name: str) -> str:
    return _classes_of_signs().get(name, "")


def _scheduler(node: NodeEvidence, fact: SchedulerWord) -> Cause | None:
    hits = [hit for hit in match(fact.text.split("\n")) if hit.role is Role.ROOT]
    known = [hit.cls for hit in hits if find(hit.cls).family in ("scheduler", "node")]
    known += [cls for pattern, cls in _SCHEDULER if pattern.search(fact.text)]
    if not known:
        return None
    cls = find(known[0])
    sentence = f"the scheduler says of {node.node}: {words.cause(cls.name)}: {short(fact.text)}"
    cause = plain((node.order, 0.0, 0), cls.name, node.node, sentence, Proof("scheduler", node.node, short(fact.text)))
    standing = Standing.SCHEDULER if cls.family == "scheduler" else Standing.NODE
    return replace(cause, standing=standing, verdict=replace(cause.verdict, line=short(fact.text), confidence=CERTAIN))


def left(nodes: Sequence[NodeEvidence]) -> Cause | None:
    """Return the leave of the first node that was asked to, None when none was."""
    for node in nodes:
        for fact in node.facts:
            if isinstance(fact, Left):
                by = exits.words(-fact.signal) if fact.signal else "command"
                why = f"{node.node} left: {short(fact.why)}" if fact.why else f"{node.node} was asked to leave by {by}"
                if fact.signal == KEEPER_KILLED:
                    why = f"the keeper on {node.node} was killed: its agent stopped its ranks and left"
                verdict = Verdict(LEAVE, "none", node.node, sentence=why, fingerprint=fingerprint(LEAVE, "", "", ""),
                                  evidence=(Proof("agent", node.node, "left"),))  # fmt: skip
                return Cause(Standing.NODE, (node.order, 0.0, 0), verdict)
    return None


def admitted(node: str) -> Verdict:
    """Return the verdict on a round that was ended so that a node can join."""
    why = f"the round was ended so that {node} can join"
    return Verdict(ADMIT, "none", node, sentence=why, evidence=(Proof("store", node, "ready"),))
