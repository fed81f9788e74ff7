"""A round put together from texts alone, for the verdict: whose end each text tells, and how each rank ended. Pure.

``remuster explain`` reads files and hands over what it kept of them. Where nobody gave exit statuses they are taken from
launchers' words, and else concluded: a rank whose text names a failure has failed; one that fell silent while others
cried for it is the one that went; a text that names none is no failure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from . import exits, reported, stamps
from . import kernel as kernel_log
from .evidence import ErrorFile, Fact, NodeEvidence, RankExit, RoundEvidence
from .layout import natural
from .observed import KernelLine
from .reading import Reading, Standing
from .reading import read as read_end
from .reported import Reported
from .signatures import MAX_LINES as SIGNS
from .signatures import Role, match
from .verdict import READ_RANKS

NOWHERE = "-"  # the node of files that name none
# How the kernel ends a process that it names.
_FROM_KERNEL = {kernel_log.Kind.OOM: -9, kernel_log.Kind.MEMORY: -7, kernel_log.Kind.CRASH: -11}
MOST_GAPS = 4096  # ranks without a file, below one that has one
LATE_S = 1e9
NOBODY = -1  # the rank of lines that no rank is known to have written
_FINISHED = re.compile(
    r"(?i)\b(?:training|run|job|all)\b.{0,40}\b(?:finished|completed?|done)\b|\b(?:finished|completed) (?:training|successfully)|"
    r"^\W*(?:all )?(?:done|finished)\W*$|\b(\d{1,12})/\1\b.{0,20}\bdone\b"
)
_CAME_TO_END = re.compile(r"destroy_process_group\(\) was not called")  # as the interpreter ends, whatever the reason
_SHELL = re.compile(r"(?:^|: line \d{1,6}: +\d{1,9} )(Killed|Terminated|Aborted|Segmentation fault|Bus error)\b(?! by)")


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


@dataclass(frozen=True, slots=True)
class Case:
    """A round for the verdict, and the ends that it was made from."""

    evidence: RoundEvidence
    ends: tuple[End, ...]
    kernel: tuple[Said, ...] = ()
    notes: tuple[str, ...] = ()  # what was concluded, and what is lacking


class Unfit(ValueError):
    """The statuses do not fit the ranks; the message says how."""


def numbered(parts: Sequence[Part]) -> list[End]:
    """Give every writer its place in the job: by rank where that is known, else node by node, else in order of names."""
    ranked = [part for part in parts if not part.launcher]
    globals_ = [part for part in ranked if part.rank >= 0]
    if len({part.rank for part in globals_}) < len(globals_):  # the same number on several nodes: it counts on each
        for part in globals_:
            part.local, part.rank = part.rank, -1
    used = {part.rank for part in ranked if part.rank >= 0}
    rest = [part for part in ranked if part.rank < 0]
    rest.sort(key=lambda part: (natural(part.node), part.local, natural(part.file)))
    free = (n for n in range(len(ranked) + max(used, default=0) + 1) if n not in used)
    named = {part.local for part in rest} == {*range(len(rest))} or len({part.node for part in rest}) < len(rest)
    ends: list[End] = []
    for part in ranked:
        if part.rank >= 0:
            ends.append(End(part, part.node or NOWHERE, part.rank, max(part.local, 0), True))
    for part in rest:
        sure = part.local >= 0 and named
        ends.append(End(part, part.node or NOWHERE, next(free), max(part.local, 0), sure))
    ends.sort(key=lambda end: end.rank)
    ends += [End(part, part.node or NOWHERE, NOBODY, -1, False) for part in parts if part.launcher]
    return ends


def assembled(
    ends: Sequence[End],
    statuses: Sequence[int],
    said: Reported,
    kernel: Sequence[tuple[str, Said]],
    more: Mapping[str, Sequence[Fact]],
) -> Case:
    """Return the round. ``kernel``: (node or '', line) that mean something; ``more``: facts by node, '' where none is named."""
    notes: list[str] = []
    ranks = [end for end in ends if end.rank != NOBODY]
    _tell_pids(ranks, said)
    if len(statuses) > 1 or (statuses and not set(said.statuses) & {end.rank for end in ranks}):
        _given(ranks, statuses)
    else:  # one status is that of the launcher, who knows more of its ranks
        _told(ranks, said)
    _stopped(ranks, said)
    if any(end.status is None for end in ranks):
        notes += _concluded(ends, [line.text for _, line in kernel], any(more.values()))
    launcher = [end for end in ends if end.rank == NOBODY]
    for end in launcher:  # its words count where they name something, and no rank whose end is known
        end.part.lines = [line for line in end.part.lines if not (said and reported.reports(line.text))]
        bad = any(one.status for one in ranks) or not ranks
        end.status = 1 if bad and read_end(end.node, fact(end, 0.0)._replace(status=1)).weight else 0
    counted = [end for end in ends if end.rank != NOBODY or end.status]
    nodes: dict[str, list[Fact]] = {end.node: [] for end in counted}
    for at, end in enumerate(_ordered(counted)):  # within a second: nobody knows more than their order
        nodes[end.node].append(fact(end, at / len(counted)))
    _fill_gaps(ranks, nodes)
    last = stamps.last_wall(line.text for end in ranks for line in reversed(end.part.lines))
    ages = stamps.before_end([line.text for _, line in kernel], last)
    logged = [(node, [KernelLine(0.0, line.text)]) for (node, line), age in zip(kernel, ages, strict=True) if not age]
    if len(logged) < len(kernel):
        notes.append(f"{len(kernel) - len(logged)} lines of the kernel log are more than a day older: not used")
    for where, facts in (*logged, *more.items()):
        nodes.setdefault(_home(where, facts, ranks), []).extend(facts)
    members = _members(ranks)
    evidence = tuple(NodeEvidence(node, tuple(facts)) for node, facts in nodes.items())
    log = tuple(line for _, line in kernel)
    return Case(RoundEvidence(0, evidence, tuple(members)), tuple(ends), log, tuple(notes))


def fact(end: End, at_s: float) -> RankExit:
    """Return the end of a rank as the agent would have told it."""
    tail = tuple(line.text for line in end.part.lines)
    return RankExit(end.rank, end.local, end.pid, end.status or 0, at_s, end.stopping, end.part.error, tail)


def _members(ranks: Sequence[End]) -> list[tuple[str, int]]:
    """Return (node, slots) so that every rank found is counted at its number: those between are of the node before."""
    members: list[tuple[str, int]] = []
    for i, end in enumerate(ranks):
        after = ranks[i + 1].rank if i + 1 < len(ranks) else end.rank + 1
        slots = after - (end.rank if i else 0)
        if members and members[-1][0] == end.node:
            slots += members.pop()[1]
        members.append((end.node, slots))
    return members


def _fill_gaps(ranks: Sequence[End], nodes: Mapping[str, list[Fact]]) -> None:
    """A rank of which there is no file is no silent rank: let it have ended well, after all others."""
    here = {end.rank for end in ranks}
    for rank in range(min(max(here, default=0), MOST_GAPS)):
        if rank not in here:
            nodes[ranks[0].node].append(RankExit(rank, -1, 0, 0, LATE_S))


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
    """Mark ranks that a launcher ended because of another: SIGTERM, where another rank failed by itself."""
    failed = any(end.status not in (None, 0) and exits.signal_of(end.status or 0) != 15 for end in ranks)
    for end in ranks:
        terminated = end.status is not None and exits.signal_of(end.status) == 15
        end.stopping = (terminated and failed) or (end.pid in said.stopped and end.pid > 0)


def _concluded(ends: Sequence[End], log: Sequence[str], driver: bool) -> list[str]:
    """Conclude the statuses that nobody gave; return what was concluded, in words."""
    ranks = [end for end in ends if end.rank != NOBODY]
    other = bool(log) or driver
    ended = {sign.pid: _FROM_KERNEL[sign.kind] for sign in kernel_log.signs(log) if sign.kind in _FROM_KERNEL}
    for end in ranks:
        pasted = [sign.kind for sign in kernel_log.signs(line.text for line in end.part.lines)]
        end.status = _shell_status(end.part.lines) if end.status is None else end.status
        if end.status is None and (end.pid in ended or (pasted and len(ranks) == 1)):
            end.status = ended.get(end.pid, next((_FROM_KERNEL[kind] for kind in pasted if kind in _FROM_KERNEL), 1))
    unknown = [end for end in ranks if end.status is None]
    read = {id(end): read_end(end.node, fact(end, 0.0)._replace(status=1)) for end in ends}
    failing = [end for end in unknown if end.part.error or _failed(read[id(end)], end.part.lines)]
    launcher = any(read[id(end)].weight and read[id(end)].standing < Standing.CRIED for end in ends if end.rank == NOBODY)
    known_bad = any(end.status for end in ranks)
    for end in failing:
        end.status = 1
    silent = [end for end in unknown if end.status is None]
    if not failing and not known_bad and not launcher and not other:
        for end in silent:
            end.status = 0
        return ["no exit status is known (--exit gives them), and no text names a failure"]
    standings = [read[id(end)].standing for end in failing]
    cries_alone = bool(failing) and not launcher and not known_bad and min(standings) == Standing.CRIED
    finished = [end for end in silent if end.part.lines and _FINISHED.search(end.part.lines[-1].text)]
    for end in silent:
        if end in finished:
            end.status = 0
        elif (cries_alone or (other and not failing)) and len(silent) == 1:
            end.status = -9  # what the others cried for: it did not even raise an exception
        else:
            end.status, end.stopping = -15, True  # as launchers end the ranks that are left
    some = "of some ranks no" if len(unknown) < len(ranks) else "no"
    return [f"{some} exit status is known (--exit gives them): concluded from the texts"]


def _failed(reading: Reading, lines: Sequence[Said]) -> bool:
    """Whether a text tells of a failure of its rank, when its status is not known."""
    texts = [line.text for line in lines][-SIGNS:]
    hits = match(texts)
    finished = [i for i, text in enumerate(texts) if _FINISHED.search(text)]
    if not hits or (finished and finished[-1] > hits[-1].index):
        return False
    if any(hit.role is Role.ROOT and reading.line == hit.line.strip() for hit in hits):
        late = reading.standing >= Standing.NETWORK and finished  # a peer, or a watchdog, after all was done
        return bool(reading.weight) and not late
    came = any(map(_CAME_TO_END.search, texts)) and not any(hit.raised for hit in hits)
    ends_so = hits[-1].index == len(texts) - 1 or bool(hits[-1].raised)
    return ends_so and not finished and not came


def _shell_status(lines: Sequence[Said]) -> int | None:
    """The status that a shell's word tells, where that is the last one."""
    found = _SHELL.search(lines[-1].text) if lines else None
    return -reported.SIGNALS[found[1]] if found else None


def _ordered(ends: Sequence[End]) -> list[End]:
    """Order ends for the verdict, which takes them in order of arrival and reads the first few hundred.

    Error files have the time of each; on one console the order of the telling lines is that of the failures; what no
    rank is known to have written comes last.
    """
    files = {end.part.file for end in ends}
    stamps = [end.part.error.timestamp for end in ends if end.part.error and end.part.error.timestamp]
    late = max(stamps, default=0) + 1
    weighed = len(ends) > READ_RANKS

    def key(end: End) -> tuple[object, ...]:
        reading = read_end(end.node, fact(end, 0.0)) if weighed or len(files) == 1 else None
        error = end.part.error
        stamp = error.timestamp if error and error.timestamp else late
        line = _number(end, reading) if reading and len(files) == 1 else 0
        return (end.rank == NOBODY, reading.standing if reading and weighed else 0, stamp, line, end.rank)

    return sorted(ends, key=key)


def _number(end: End, reading: Reading) -> int:
    return next((line.number for line in reversed(end.part.lines) if line.text.strip() == reading.line), 1 << 60)


def _home(where: str, facts: Sequence[Fact], ranks: Sequence[End]) -> str:
    """Return the node that facts of a kernel or a driver are of: the one named, the only one there is, the one on which
    a process that they name was a rank, or one of its own."""
    known = {end.node for end in ranks}
    if where in known or not known:
        return where or NOWHERE
    if len(known) == 1:
        return known.pop()
    texts = [fact.text for fact in facts if isinstance(fact, KernelLine)]
    pids = {sign.pid for sign in kernel_log.signs(texts) if sign.pid}
    host = next((name for name in known for text in texts if f" {name} kernel: " in text), "")
    return next((end.node for end in ranks if end.pid in pids), host or where or NOWHERE)


def place(lines: Sequence[Said], text: str) -> Said | None:
    """Return the last of these lines that holds ``text``, as a verdict shows it: in one line, perhaps cut short."""
    wanted = " ".join(text.split()).removesuffix("…")
    if not wanted:
        return None
    return next((line for line in reversed(lines) if wanted in " ".join(line.text.split())), None)


def with_reports(parts: list[Part]) -> tuple[list[Part], Reported]:
    """Read what launchers said, and set their consoles apart from the ranks' outputs.

    A console that names no writers of its lines, but has a launcher's report at its end, tells of the ranks of that
    report; its text is that of the one that the report calls the first to fail.
    """
    lines = [line.text for part in parts if part.launcher for line in part.lines]
    unnamed = [part for part in parts if not part.launcher and part.rank < 0 and part.local < 0]
    consoles = [part for part in unnamed if reported.read(line.text for line in part.lines)]
    lines += [line.text for part in consoles or unnamed for line in part.lines]
    said = reported.read(lines)
    if len(consoles) == 1 and len(parts) == 1 and said.statuses:
        (console,) = parts
        root = said.root if said.root in said.statuses else min(said.statuses)
        others = [Part(console.file, rank=rank) for rank in said.statuses if rank != root]
        return [replace(console, rank=root), *others], said
    if consoles and len(consoles) < len([part for part in parts if not part.launcher]):
        parts = [replace(part, launcher=True) if part in consoles else part for part in parts]
    return parts, said
