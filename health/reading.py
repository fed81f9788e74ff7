"""What one rank's end says by itself: its status, its error file and its last lines, weighed against one another.

The verdict calls it for every rank and then compares ranks. Here a program's own words beat its exit status (an
exception often ends in an abort), an error that training went on after does not count, and among words the more
specific ones win; of equal ones the last.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import IntEnum

from . import exits
from .classes import find
from .evidence import RankExit
from .kernel import Sign, signs
from .own_signatures import NONE, OwnSign, OwnSignatures
from .signatures import FILE_TIMER, GENERIC, HANG, MAX_LINES, TYPED, UNNAMED, Hit, Role, match


class Standing(IntEnum):
    """How strongly an end speaks for being the cause; the lowest of a round is its root."""

    SCHEDULER = 0  # the scheduler said so
    DEVICE = 1  # the kernel or a driver saw hardware fail near the first end
    EXPLICIT = 2  # the program, or its libraries, named a cause of its own
    NODE = 3  # a node is gone, fenced, or could not do its part
    CRASHED = 4  # ended by a signal of its own making, or killed
    NETWORK = 5  # named a network or a store, which may only mirror somebody's end
    HINT = 6  # a device or file system of the node failed, and no rank says that it minded
    BARE = 7  # ended with a status and no words
    DISTURBED = 8  # named a cause while it was being stopped
    WAITED = 9  # waited in vain for somebody
    CRIED = 10  # cried about somebody else's end
    INNOCENT = 11  # ended well, or only because we stopped it


@dataclass(frozen=True, slots=True)
class Wait:
    """Where a rank stood when its wait for the others ran out."""

    sequence: int
    enqueued: int = -1
    group: str = ""
    operation: str = ""


@dataclass(frozen=True, slots=True)
class Reading:
    """One rank's end as read. ``weight`` is that of the sign, 0 when only the status speaks."""

    node: str
    exit: RankExit
    cls: str
    standing: Standing
    weight: int = 0
    line: str = ""
    exception: str = ""
    frame: str = ""
    wait: Wait | None = None
    suspects: tuple[int, ...] = ()  # global ranks that the rank itself accuses
    crumb: str = ""  # its last line, for a fingerprint when nothing else speaks
    pasted: tuple[Sign, ...] = ()  # lines of a kernel log among its own
    own: OwnSign | None = None  # the site's signature that its line has, if it is that which decides
    late: bool = False  # what decides was raised after a wait of its own had run out


_PROGRESS = re.compile(r"(?i)\b(?:step|iter|iteration|epoch)s?\b[ =:#\[(]{0,3}\d")
_NO_PROGRESS = re.compile(r"%\||\|[^|\w]{1,200}\||srun: |slurmstepd: |submitit ")
_SPEAKER = re.compile(r"\[(?:rank|default|Rank |rank: )(\d{1,7})\]|^(\d{1,6}): |^\[\d{1,6},(\d{1,6})\]<std")
_WORK = re.compile(r"WorkNCCL\(SeqNum=(\d{1,12}), OpType=(\w{1,40})")
_ENQUEUED = re.compile(r"[Ll]ast enqueued (?:NCCL )?work: (-?\d{1,12})")
_STOOD = re.compile(r"[Ll]ast enqueued (?:NCCL )?work: (\d{1,12}), last completed (?:NCCL )?work: (\d{1,12})")
_GROUP = re.compile(r"PG GUID (\w{1,40})")
_NESTED = re.compile(  # another launcher inside ours: torchrun, DeepSpeed, multiprocessing, subprocess
    r"exitcode ?\s?: (-?\d{1,3})\b|exits with return code = (-?\d{1,3})\b|"
    r"(?:died with|terminated with signal) <?(?:Signals\.)?(SIG[A-Z]{2,8})\b"
)
_ACCUSED = re.compile(r"Ranks? ([\d, ]{1,400}) failed to pass monitoredBarrier")
TOLD = frozenset({"cuda-oom", "cuda-oom-foreign"})  # signs that programs print when they handle what they saw
VAGUE = "cuda-other"  # the sign of a CUDA error that says no more
# An exception that says so, or a line of the user's that does so, speaks of the wait, or of what torch did after it.
_OF_THE_WAIT = re.compile(
    r"(?i)nccl|gloo|c10d|collective|watchdog|communicator|process ?_?group|barrier|all_?(?:reduce|gather|to_?all)|"
    r"reduce_?scatter|broadcast|time(?:d|_)? ?out|abort|\bpeer\b|connection|store\b|rendezvous|synchroni[sz]e|\bdist\."
)
_LOOKED_FOR = frozenset({"KeyError", "Empty", "StopIteration", "AttributeError"})  # handled by doing something else
_CASCADE_FAMILIES = frozenset({"network", "rendezvous"})


def read(node: str, end: RankExit, own: OwnSignatures = NONE, late: bool = True) -> Reading:
    """Return what this end says. Pure, and total: any text is allowed.

    Not ``late``: what the rank raised after its wait for others had run out does not count.
    """
    if end.status == 0:
        return Reading(node, end, "success", Standing.INNOCENT)
    lines = words_of(end)
    pasted = tuple(sign for sign in signs(lines) if not went_on(lines, sign.index))
    kernels = {sign.index for sign in pasted}  # the kernel's words, not the rank's
    hits = match(lines, own)
    kept = [hit for hit in hits if hit.index not in kernels and not went_on(lines, hit.index)]
    waited, best = _own_first(_best([hit for hit in kept if not _told_only(hit, hits)]), kept, late)
    bare = _bare(node, end, _inner_status(end, lines))
    bare = replace(bare, crumb=lines[-1] if lines else "", pasted=pasted)
    if best is None:
        return bare
    told = replace(
        bare,
        cls=best.cls,
        standing=_standing(best, end),
        weight=best.weight,
        line=best.line.strip(),
        exception=best.raised.type if best.raised else "",
        frame=best.raised.frame if best.raised else "",
        own=best.own,
        late=waited,
    )
    if find(best.cls).family == "hang":
        told = replace(told, wait=_wait(lines), suspects=_accused(best.line))
    if told.standing > bare.standing and not _explains(best, end):
        return bare
    return told


def words_of(end: RankExit) -> list[str]:
    """Return the lines that a rank left: the last ones of its output, then those of its error file."""
    told = (end.error.traceback or end.error.message).split("\n") if end.error else ()
    return [*end.tail, *told][-MAX_LINES:]


def went_on(lines: Sequence[str], index: int) -> bool:
    """Return whether training went on after that line: two lines of progress of the same rank, or more."""
    who = _speaker(lines[index])
    later = (line for line in lines[index + 1 :] if tells_progress(line) and _speaker(line) == who)
    return next(later, None) is not None and next(later, None) is not None


def tells_progress(line: str) -> bool:
    """Tell whether a line says that training goes on.

    A bar does not, for it is drawn once more when all is over; nor does a scheduler, whose steps are others.
    """
    return bool(_PROGRESS.search(line)) and not _NO_PROGRESS.search(line)


def _speaker(line: str) -> str:
    """Return the rank that a line names as its own, '' when it names none: ranks may share a console."""
    found = _SPEAKER.search(line)
    return next(number for number in found.groups() if number) if found else ""


def _told_only(hit: Hit, hits: Sequence[Hit]) -> bool:
    """The program told of it and then ended by another exception: memory that a smaller batch fitted into, or a key
    that was looked up in vain and complained about."""
    if hit.raised:
        return hit.raised.replaced and hit.raised.type == "KeyError"
    return hit.sign in TOLD and any(
        later.raised and later.role is Role.ROOT and later.cls != hit.cls for later in hits if later.index > hit.index
    )


def _best(hits: list[Hit]) -> Hit | None:
    causes = [hit for hit in hits if hit.role is Role.ROOT]
    cries = [hit for hit in hits if hit.role is Role.VICTIM]
    best = max(causes, key=lambda hit: (hit.weight, hit.index), default=None)
    if best is not None and best.sign == VAGUE:  # what torch's abort of a late collective leaves behind it
        late = [hit for hit in causes if find(hit.cls).family == "hang" and hit.index < best.index]
        best = max(late, key=lambda hit: (hit.weight, hit.index), default=best)
    first_cry = min(cries, key=lambda hit: (hit.index, -hit.weight), default=None)
    if best is None or first_cry is None:
        return best or first_cry
    # What follows a cry without a meaning of its own, an unknown exception or a wait, comes from it.
    first = min(hit.index for hit in causes if _same(hit, best))
    return first_cry if best.weight <= HANG + 2 and first_cry.index < first else best


def _own_first(best: Hit | None, kept: Sequence[Hit], late: bool) -> tuple[bool, Hit | None]:
    """Return what decides where a wait ran out and the rank raised an exception of no known type; with True, later.

    One that came before made the others wait, and held the rank in a clean-up that waited for them in vain. One that
    came later may have been raised long before it was printed, or have nothing to do with the wait; one that speaks of
    the wait, or comes from a call that waits, is a consequence.
    """
    if best is None or best.own or best.sign == FILE_TIMER or find(best.cls).family != "hang":
        return False, best
    waits = [hit for hit in kept if find(hit.cls).family == "hang"]
    wait = waits[0].index
    raised = [hit for hit in kept if hit.sign == UNNAMED and hit.raised and not _of_the_wait(hit)]
    before = [hit for hit in raised if hit.index < wait and not _looked_for(hit)]
    if before:
        return False, before[-1]
    after = [hit for hit in raised if hit.index > wait and not (hit.raised and hit.raised.replaced)]
    if not late or not after or any(hit.raised for hit in waits):  # an exception that tells of a wait was handled badly
        return False, best
    return True, after[-1]


def _of_the_wait(hit: Hit) -> bool:
    return hit.raised is not None and bool(_OF_THE_WAIT.search(f"{hit.raised.text}\n{hit.raised.source}"))


def _looked_for(hit: Hit) -> bool:
    return hit.raised is not None and hit.raised.replaced and hit.raised.type in _LOOKED_FOR


def _same(hit: Hit, best: Hit) -> bool:
    """The same thing told again, as logs do that repeat a line."""
    told = hit.raised.text if hit.raised else ""
    return hit.sign == best.sign and told == (best.raised.text if best.raised else "")


def _standing(hit: Hit, end: RankExit) -> Standing:
    cls = find(hit.cls)
    if end.stopping and (hit.role is Role.VICTIM or cls.name == "user_interrupt"):
        return Standing.INNOCENT
    if hit.role is Role.VICTIM:
        return Standing.CRIED
    if hit.sign == FILE_TIMER or (hit.own and cls.name == "rank_hang"):
        return Standing.EXPLICIT  # it was late by itself, and its agent or its site says so
    if cls.family == "hang":
        return Standing.WAITED
    if cls.name == "launcher_killed_by_srun":
        return Standing.NODE
    if cls.family == "scheduler":
        return Standing.SCHEDULER
    if end.stopping and hit.weight <= TYPED + 5:
        return Standing.DISTURBED
    if cls.family in _CASCADE_FAMILIES:
        return Standing.NETWORK
    if cls.family == "unknown":
        return Standing.CRASHED if hit.weight > GENERIC else Standing.BARE
    return Standing.EXPLICIT


def _inner_status(end: RankExit, lines: list[str]) -> int:
    """What a launcher that runs inside the rank says of its own children; the rank's status when it says nothing."""
    if end.status > 0:
        for line in lines:
            found = _NESTED.search(line)
            if found and found[3] in signal.Signals.__members__:
                return -signal.Signals[found[3]]
            if found and not found[3] and int(found[1] or found[2]):
                return int(found[1] or found[2])
    return end.status


def _bare(node: str, end: RankExit, status: int) -> Reading:
    cls = exits.class_of(status)
    if end.stopping:
        return Reading(node, end, cls, Standing.INNOCENT)
    number = exits.signal_of(status)
    if cls == "preempted":
        return Reading(node, end, cls, Standing.SCHEDULER)
    return Reading(node, end, cls, Standing.CRASHED if number and number != signal.SIGABRT else Standing.BARE)


def _explains(hit: Hit, end: RankExit) -> bool:
    """A cry or a wait explains an exit or an abort; it does not explain a kill or a native crash."""
    return end.status > 0 or end.status == -6 or hit.weight > HANG + 2


def _wait(lines: list[str]) -> Wait | None:
    text = "\n".join(lines)
    work = _WORK.search(text)
    enqueued, group = _ENQUEUED.search(text), _GROUP.search(text)
    if work is None:  # told to dump by another: where it stood itself
        stood = _STOOD.search(text)
        at = min(int(stood[1]), int(stood[2]) + 1) if stood else -1
        return Wait(at, int(stood[1]), group[1] if group else "", "a collective") if stood else None
    return Wait(int(work[1]), int(enqueued[1]) if enqueued else -1, group[1] if group else "", work[2])


def _accused(line: str) -> tuple[int, ...]:
    found = _ACCUSED.search(line)
    return tuple(int(word) for word in re.findall(r"\d{1,7}", found[1])) if found else ()
