"""How each rank ended, when all that is there is texts: given, told by launchers, or concluded. Pure.

A rank whose text names a failure has failed; one that fell silent while others cried for it is the one that went; a
text that names no failure is none. What is concluded is never shown as if somebody had said it. For ``offline.py``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from . import exits, reported
from . import kernel as kernel_log
from .evidence import ErrorFile, RankExit
from .own_signatures import OwnSignatures
from .reading import Reading, Standing
from .reading import read as read_end
from .reported import Reported
from .signatures import MAX_LINES as SIGNS
from .signatures import Role, match

NOWHERE = "-"  # the node of files that name none
NOBODY = -1  # the rank of lines that no rank is known to have written
NEAR_END = 4  # lines: a cry there was the last thing that the rank had to say
_FINISHED = re.compile(
    r"(?i)\b(?:training|run|job|all|evaluation|benchmark|epochs?)\b.{0,40}\b(?:finished|completed?|done)\b|"
    r"\b(?:finished|completed) (?:training|successfully|evaluation)|"
    r"^\W*(?:all )?(?:done|finished)\W*$|\b(\d{1,12})/\1\b.{0,20}\bdone\b"
)
_DONE = re.compile(r"code=0\b.{0,24} why='every rank exited 0'|\] exit +code=0$")  # remuster's, after whatever was lost
_OF_STEPS = re.compile(r"(?:srun|slurmstepd(?:-\S{1,200})?): ")  # says that a job step, not the work, is complete
_CAME_TO_END = re.compile(r"destroy_process_group\(\) was not called")  # as the interpreter ends, whatever the reason
_STOPPED = re.compile(
    r"(?i)\b(?:received|caught|got|handling|on)\b.{0,40}\b(?:SIGTERM|signal 15|SIGINT|signal 2)\b|"
    r"\bSIGTERM\b.{0,20}\b(?:received|caught)"
)
_LAST = 20  # lines in which a rank tells why it leaves
_SHELL = re.compile(r"(?:^|: line \d{1,6}: +\d{1,9} )(Killed|Terminated|Aborted|Segmentation fault|Bus error)\b(?! by)")
# How the kernel ends a process that it names.
_FROM_KERNEL = {kernel_log.Kind.OOM: -9, kernel_log.Kind.MEMORY: -7, kernel_log.Kind.CRASH: -11}


class Said(NamedTuple):
    """A line that was kept, and where it stands."""

    file: str
    number: int
    text: str


@dataclass(slots=True)
class Part:
    """What one writer left: a file, or its lines of a console. Numbers are -1 where nothing says them."""

    file: str
    node: str = ""
    rank: int = -1
    local: int = -1
    lines: list[Said] = field(default_factory=list[Said])
    error: ErrorFile | None = None
    launcher: bool = False  # of a shared console: lines that no rank is known to have written


@dataclass(slots=True)
class End:
    """One rank as put together. ``status`` None: nobody knows it. ``named``: its number was read, not counted."""

    part: Part
    node: str
    rank: int
    local: int
    named: bool
    status: int | None = None
    told: bool = False  # the status was given, or said by a launcher
    pid: int = 0
    stopping: bool = False


class Unfit(ValueError):
    """The statuses do not fit the ranks; the message says how."""


class Beside(NamedTuple):
    """What is known beside the ranks' texts."""

    log: Sequence[str]  # lines of the kernel
    driver: bool  # facts of a GPU's driver are there, too
    own: OwnSignatures  # what the site says of lines


def settle(ends: Sequence[End], statuses: Sequence[int], said: Reported, beside: Beside) -> list[str]:
    """Give every rank its status; return what had to be concluded, in words. Unfit when those given do not fit.

    Where neither a status nor a text says how the round ended, they stay unknown.
    """
    ranks = [end for end in ends if end.rank != NOBODY]
    _tell_pids(ranks, said)
    reported_ranks = set(said.statuses) & {end.rank for end in ranks}
    agents = len(ranks) > 1 and set(said.locals) & {end.local for end in ranks}  # its line, and no report below
    if len(statuses) > 1 or (statuses and not (reported_ranks or agents)):
        _given(ranks, statuses)
    else:  # one status is that of the launcher, who knows more of its ranks
        _told(ranks, said)
    _stopped(ranks, said)
    return _concluded(ends, beside) if any(end.status is None for end in ranks) else []


def fact(end: End, at_s: float) -> RankExit:
    """Return the end of a rank as the agent would have told it."""
    tail = tuple(line.text for line in end.part.lines)
    return RankExit(end.rank, end.local, end.pid, end.status or 0, at_s, end.stopping, end.part.error, tail)


def _tell_pids(ranks: Sequence[End], said: Reported) -> None:
    for end in ranks:
        end.pid = end.pid or said.pids.get(end.rank, 0)


def _given(ranks: Sequence[End], statuses: Sequence[int]) -> None:
    if len(statuses) not in (1, len(ranks)):
        names = ", ".join(str(end.rank) for end in ranks[:8]) + (", …" if len(ranks) > 8 else "")
        found = f"{len(ranks)} ranks were found ({names})" if len(ranks) > 1 else "one rank was found"
        raise Unfit(f"--exit has {len(statuses)} statuses, but {found}; give one, or one for each")
    for i, end in enumerate(ranks):
        end.status, end.told = statuses[i if len(statuses) > 1 else 0], True


def _told(ranks: Sequence[End], said: Reported) -> None:
    """Take the statuses that launchers named: by rank, by local rank of one node, by srun's task."""
    one_node = len({end.node for end in ranks}) == 1
    tasks = said.tasks if set(said.tasks) <= {end.rank for end in ranks} and len(ranks) > 1 else {}
    for end in ranks:
        of_node = said.locals.get(end.local) if one_node else None
        end.status = said.statuses.get(end.rank, of_node if of_node is not None else tasks.get(end.rank))
        end.told = end.status is not None


def _stopped(ranks: Sequence[End], said: Reported) -> None:
    """Mark ranks that a launcher ended because of another: SIGTERM, where another rank failed by itself.

    One that took it and ended with 0 says so, or its launcher does: its end is not its own.
    """
    failed = any(end.status not in (None, 0) and exits.signal_of(end.status or 0) != 15 for end in ranks)
    for end in ranks:
        terminated = end.status is not None and exits.signal_of(end.status) == 15
        told = end.status == 0 and failed and any(_STOPPED.search(line.text) for line in end.part.lines[-_LAST:])
        end.stopping = (terminated and failed) or told or (end.pid in said.stopped and end.pid > 0)


def _concluded(ends: Sequence[End], beside: Beside) -> list[str]:
    """Conclude the statuses that nobody gave; return what was concluded, in words."""
    ranks = [end for end in ends if end.rank != NOBODY]
    other = bool(beside.log) or beside.driver
    ended = {sign.pid: _FROM_KERNEL[sign.kind] for sign in kernel_log.signs(beside.log) if sign.kind in _FROM_KERNEL}
    for end in ranks:
        pasted = [sign.kind for sign in kernel_log.signs(line.text for line in end.part.lines)]
        end.status = _shell_status(end.part.lines) if end.status is None else end.status
        if end.status is None and (end.pid in ended or (pasted and len(ranks) == 1 and not _came_to_end(end))):
            end.status = ended.get(end.pid, next((_FROM_KERNEL[kind] for kind in pasted if kind in _FROM_KERNEL), 1))
    unknown = [end for end in ranks if end.status is None]
    read = {id(end): read_end(end.node, fact(end, 0.0)._replace(status=1), beside.own) for end in ends}
    failing = [end for end in unknown if end.part.error or _failed(read[id(end)], end.part.lines, beside.own)]
    launcher = any(
        read[id(end)].weight and read[id(end)].standing < Standing.CRIED for end in ends if end.rank == NOBODY
    )
    known_bad = any(end.status for end in ranks)
    for end in failing:
        end.status = 1
    silent = [end for end in unknown if end.status is None]
    if not failing and not known_bad and not launcher and not other:
        note = "no exit status is known (--exit gives them), and no text names a failure"
        if not any(end.status == 0 or _came_to_end(end) for end in ranks):
            return [f"{note}, nor says that it came to its end"]
        for end in silent:
            end.status = 0
        return [note]
    standings = [read[id(end)].standing for end in failing]
    cries_alone = bool(failing) and not launcher and not known_bad and min(standings) == Standing.CRIED
    finished = [end for end in silent if _came_to_end(end)]
    for end in silent:
        if end in finished:
            end.status = 0
        elif (cries_alone or (other and not failing)) and len(silent) == 1:
            end.status = -9  # what the others cried for: it did not even raise an exception
        else:
            end.status, end.stopping = -15, True  # as launchers end the ranks that are left
    some = "of some ranks no" if len(unknown) < len(ranks) else "no"
    return [f"{some} exit status is known (--exit gives them): concluded from the texts"]


def _came_to_end(end: End) -> bool:
    """Whether the last line says that all was done, or one of the last is remuster's that does."""
    lines = end.part.lines
    return bool(lines) and (_finished(lines[-1].text) or any(_DONE.search(line.text) for line in lines[-_LAST:]))


def _finished(text: str) -> bool:
    return _DONE.search(text) is not None or (_FINISHED.search(text) is not None and _OF_STEPS.match(text) is None)


def _failed(reading: Reading, lines: Sequence[Said], own: OwnSignatures) -> bool:
    """Whether a text tells of a failure of its rank, when its status is not known."""
    texts = [line.text for line in lines][-SIGNS:]
    hits = match(texts, own)
    finished = [i for i, text in enumerate(texts) if _finished(text)]
    if not hits or (finished and finished[-1] > hits[-1].index):
        return False
    if any(hit.role is Role.ROOT and reading.line == hit.line.strip() for hit in hits):
        late = reading.standing >= Standing.NETWORK and finished  # a peer, or a watchdog, after all was done
        return bool(reading.weight) and not late
    came = any(map(_CAME_TO_END.search, texts)) and not any(hit.raised for hit in hits)
    ends_so = hits[-1].index >= len(texts) - NEAR_END or bool(hits[-1].raised)
    return ends_so and not finished and not came


def _shell_status(lines: Sequence[Said]) -> int | None:
    """The status that a shell's word tells, where that is the last one."""
    found = _SHELL.search(lines[-1].text) if lines else None
    return -reported.SIGNALS[found[1]] if found else None
