"""What a verdict costs: retry or not, who pays, and what the command returns otherwise. Pure.

``agent/judge.py`` calls ``respond`` with the verdict and where the job stands, then asks the budget of the family that
is to be charged. A restart of the whole group is paid for once per failed round.

Two rules that are easy to get wrong. A round that ended before every rank had started is free, for the fault lies in
the meeting of nodes and not in the work; but a rank that had started and then ended by itself has shown how its
program ends, and would end so again at once and for ever: that is charged like any other failure. And what is free is
counted, so that nodes that come and go cannot restart a job without end.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from .classes import find
from .verdict import ADMIT, LEAVE, Verdict

FREE_ROUNDS = 5  # in a row; a planned change of several nodes fits, a flapping one does not
OWN_FAMILIES = frozenset({"user", "config", "gpu-app", "oom", "numerical", "checkpoint", "unknown"})
# What the same command line gives every time, on every node.
NEVER = frozenset({
    "user_args", "user_syntax", "user_import", "env_library_mismatch", "env_mpi_leak", "user_interrupt", "time_limit",
})  # fmt: skip
RESERVED = frozenset({69, 70, 75})
REQUEUE, RENDEZVOUS = 75, 69


@dataclass(frozen=True, slots=True)
class Memory:
    """What is remembered of earlier rounds."""

    fingerprint: str = ""  # of the last charged failure
    step: int = -1  # newest published step ever seen at a charge: a directory that could not be read is no way back
    free: int = 0  # free rounds in a row
    row: int = 0  # charged failures in a row without progress


@dataclass(frozen=True, slots=True)
class Facts:
    """Where the job stands as the round ends; ``step`` is the newest published checkpoint's, -1 without any."""

    step: int = -1
    charged: int = 0  # restarts charged in this launch
    all_started: bool = True


@dataclass(frozen=True, slots=True)
class Limits:
    """The bounds of a launch; None does not bound."""

    max_restarts: int | None = 0


@dataclass(frozen=True, slots=True)
class Response:
    """``charge`` is the family that pays for the retry, '' when it is free; ``memory`` is to be kept for the next."""

    retry: bool
    charge: str
    reason: str
    exit_code: int
    memory: Memory


def respond(verdict: Verdict, memory: Memory, limits: Limits, facts: Facts) -> Response:
    """Return what to do about a verdict."""
    code = exit_code(verdict)
    cls = find(verdict.cls)
    if verdict.cls == "success":
        return _stop("all ranks are done", code, memory)
    if verdict.cls == ADMIT:  # the leader limits how often, and one must not pay for what failed before
        row = 0 if facts.step > memory.step else memory.row
        return Response(True, "", "a planned change of nodes: not charged", code, replace(memory, row=row))
    refusal = _never(verdict) or _again(verdict, memory, facts)
    if refusal:
        return _stop(refusal, code, memory)
    free = _why_free(verdict, facts)
    if free and memory.free < FREE_ROUNDS:
        count = f"free round {memory.free + 1} of {FREE_ROUNDS} in a row"
        return Response(True, "", f"{free}: not charged ({count})", code, _count(memory))
    family = "rendezvous" if free else cls.family
    if limits.max_restarts is not None and facts.charged >= limits.max_restarts:
        used = (
            "no restarts are allowed (--max-restarts 0)" if limits.max_restarts == 0 else _used_up(limits.max_restarts)
        )
        return _stop(used, code, memory)
    why = f"{free}, but {FREE_ROUNDS} free rounds in a row are enough" if free else f"{verdict.cls}: worth another try"
    mark = memory.fingerprint if free else verdict.fingerprint
    kept = Memory(mark, max(memory.step, facts.step), 0, _row(verdict, memory, facts))
    return Response(True, family, f"{why}, charged to {family}", code, kept)


def exit_code(verdict: Verdict) -> int:
    """Return what the command returns when this verdict ends the launch."""
    family = verdict.family
    if verdict.cls == "success":
        return 0
    if family == "rendezvous":
        return RENDEZVOUS
    if family not in OWN_FAMILIES:
        return REQUEUE
    status = verdict.status
    if status < 0:
        return min(128 - status, 255)
    return 1 if status in RESERVED or not 0 < status < 256 else status


def _never(verdict: Verdict) -> str:
    """Say why no restart can help; '' when one may. A program that raised gets its one more try elsewhere."""
    cls = find(verdict.cls)
    if verdict.cls == LEAVE:
        return ""
    if verdict.cls in NEVER and not verdict.node_fault:
        return f"{verdict.cls}: a restart gives the same"
    raised = verdict.exception and cls.family != "storage"  # a full disk is as full for the next attempt
    if cls.retryable != "yes" and not raised and not verdict.node_fault:
        return f"{verdict.cls}: a restart gives the same"
    return ""


def _again(verdict: Verdict, memory: Memory, facts: Facts) -> str:
    """The same failure without progress; what outside forces do (a kill, a lost node) is never 'the same'."""
    same = verdict.fingerprint == memory.fingerprint != ""
    if not same or verdict.family not in OWN_FAMILIES or verdict.cls == "killed_unknown" or facts.step > memory.step:
        return ""
    return "the same failure again, and no newer verified checkpoint since the last"


def _row(verdict: Verdict, memory: Memory, facts: Facts) -> int:
    """Count charged failures in a row without progress; what outside forces do is no crash loop."""
    before = 0 if facts.step > memory.step else memory.row
    return before + (verdict.cls != "killed_unknown" and verdict.family != "node")


def _why_free(verdict: Verdict, facts: Facts) -> str:
    if verdict.cls == LEAVE:
        return "a planned change of nodes"
    if find(verdict.cls).free:
        return f"{verdict.cls} costs nothing"
    own = verdict.own_exit and verdict.family in OWN_FAMILIES
    return "" if facts.all_started or own else "the round ended before all ranks had started"


def _count(memory: Memory) -> Memory:
    return replace(memory, free=memory.free + 1)


def _used_up(allowed: int) -> str:
    return f"all {allowed} restarts of this launch are used up (--max-restarts {allowed})"


def _stop(reason: str, code: int, memory: Memory) -> Response:
    return Response(False, "", reason, code, memory)
