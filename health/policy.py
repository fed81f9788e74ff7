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

from . import backoff, exits
from .classes import find
from .exit_map import Action, Mapped
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
    backed: int = 0  # failures in a row, without progress, of families whose next try waits
    quick: int = 0  # failed rounds in a row, of any family, that ended soon and without progress


@dataclass(frozen=True, slots=True)
class Facts:
    """Where the job stands as the round ends; ``step`` is the newest published checkpoint's, -1 without any."""

    step: int = -1
    charged: int = 0  # restarts charged in this launch
    all_started: bool = True
    lasted_s: float | None = None  # how long the round had run; None: this leader did not see it form
    seed: str = ""  # decides the jitter of a wait
    suspect: str = ""  # the checkpoint that the round re-entered from, if the failure speaks against it
    tried: tuple[str, ...] = ()  # those that failures before this one have spoken against, in a row


@dataclass(frozen=True, slots=True)
class Limits:
    """The bounds of a launch; None does not bound."""

    max_restarts: int | None = 0


@dataclass(frozen=True, slots=True)
class Response:
    """``charge`` is the family that pays for the retry, '' when it is free; ``memory`` is to be kept for the next.

    The next round waits for ``wait_s`` before it forms.
    """

    retry: bool
    charge: str
    reason: str
    exit_code: int
    memory: Memory
    wait_s: int = 0


def respond(verdict: Verdict, memory: Memory, limits: Limits, facts: Facts, mapped: Mapped | None = None) -> Response:
    """Return what to do about a verdict; ``mapped`` is what the user has said about the root's exit code."""
    code = exit_code(verdict)
    if verdict.cls == "success":
        return _stop("all ranks are done", code, memory)
    if verdict.cls == ADMIT:  # the leader limits how often, and one must not pay for what failed before
        row = 0 if facts.step > memory.step else memory.row
        return Response(True, "", "a planned change of nodes: not charged", code, replace(memory, row=row))
    order = mapped.action if mapped else None
    refusal = "" if order else _never(verdict) or _again(verdict, memory, facts)
    older = facts.suspect if verdict.family in ("checkpoint", "numerical") else ""
    if older and not order:
        refusal = _twice(facts)
    if order is Action.STOP and mapped:
        refusal = f"{exits.words(mapped.status)} means stop (--exit-code-map)"
    if refusal:
        return _stop(refusal, code, memory)
    free = _why_free(verdict, facts)
    if free and memory.free < FREE_ROUNDS:
        count = f"free round {memory.free + 1} of {FREE_ROUNDS} in a row"
        planned = verdict.cls == LEAVE
        kept = _count(memory if planned else replace(memory, quick=_quick(memory, facts)))
        wait = 0 if planned else _wait_s(verdict, replace(kept, row=0, backed=0), facts)
        return Response(True, "", _next(f"{free}: not charged ({count})", wait), code, kept, wait)
    family = "rendezvous" if free else payer(verdict)
    if limits.max_restarts is not None and facts.charged >= limits.max_restarts:
        used = (
            "no restarts are allowed (--max-restarts 0)" if limits.max_restarts == 0 else _used_up(limits.max_restarts)
        )
        return _stop(used, code, memory)
    why = f"{free}, but {FREE_ROUNDS} free rounds in a row are enough" if free else f"{verdict.cls}: worth another try"
    if older:
        why = f"{older} is suspect: the next older checkpoint is tried, once"
    if order and mapped:
        why = f"{exits.words(mapped.status)} means {mapped.means} (--exit-code-map)"
    mark = memory.fingerprint if free else verdict.fingerprint
    newest, row, backed = max(memory.step, facts.step), _row(verdict, memory, facts), _backed(verdict, memory, facts)
    planned = verdict.cls == LEAVE
    kept = Memory(mark, newest, 0, row, backed, memory.quick if planned else _quick(memory, facts))
    wait = 0 if planned else _wait_s(verdict, replace(kept, row=min(row, facts.charged + 1)), facts)
    return Response(True, family, _next(f"{why}, charged to {family}", wait), code, kept, wait)


def payer(verdict: Verdict) -> str:
    """Return the family that a retry is charged to: what one node alone shows is that node's fault, for now."""
    return "node" if verdict.compared else find(verdict.cls).family


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


def _twice(facts: Facts) -> str:
    """Say that one older checkpoint is enough; '' when none was tried yet."""
    if not facts.tried:
        return ""
    before = " and ".join(facts.tried)
    return f"{before} had been given up before, and the older {facts.suspect} is no better: the fault lies elsewhere"


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


def _backed(verdict: Verdict, memory: Memory, facts: Facts) -> int:
    """Count failures in a row of what the world outside decides; another family begins anew."""
    if verdict.family not in backoff.PATIENT:
        return 0
    return 1 + (0 if facts.step > memory.step else memory.backed)


def _quick(memory: Memory, facts: Facts) -> int:
    """Count rounds in a row that failed within moments; of one whose start nobody has seen nothing is known."""
    if facts.step > memory.step:
        return 0
    if facts.lasted_s is None:
        return memory.quick
    return memory.quick + 1 if facts.lasted_s < backoff.QUICK_S else 0


def _wait_s(verdict: Verdict, kept: Memory, facts: Facts) -> int:
    rows = backoff.Rows(kept.backed, kept.quick, kept.row)
    return backoff.next_try_s(verdict.family, find(verdict.cls).action, rows, facts.seed)


def _next(why: str, wait_s: int) -> str:
    return f"{why}; next try in {wait_s} s" if wait_s else why


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
    what = f"all {allowed} restarts of this launch are" if allowed > 1 else "the one restart of this launch is"
    return f"{what} used up (--max-restarts {allowed})"


def _stop(reason: str, code: int, memory: Memory) -> Response:
    return Response(False, "", reason, code, memory)
