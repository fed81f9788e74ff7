"""Looks at one candidate of a checkpoint directory: whose format it is, whether it is whole, whether it may be taken.

An adapter; blocks while it reads. A step of the project's own format is judged by its token before anything is hashed;
all others by their framework's module in ``formats``, which are imported only when there is something for them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from .digest import never
from .layout import step_of
from .manifest import Manifest
from .names import MOST_DIGITS, Candidate
from .patience import Patience
from .select import History, Origin, Worlds, judge, ranks_that_wrote
from .verify import Refused, Verified, files_of_size, read_manifest, said, verify_files

if TYPE_CHECKING:
    from .formats.finding import Finding, Format, Question, Torn, Whole
    from .formats.folder import Folder

# Which checkpoints were found whole before, by path, format, and how many ranks come and wrote it: not read again while
# no file has changed.
Seen = dict[tuple[str, str, "int | None", "int | None"], tuple[object, "Whole | None"]]

OWN = "manifest"
LOOSE = "torch"  # the format of single files, which lie beside other things
UNFINISHED = "its name says that its save did not come to its end, or that it was set aside"


def unopposed(_name: str) -> str:
    """Object to nothing: where one node alone decides."""
    return ""


@dataclass(frozen=True, slots=True)
class Asked:
    """What a search is for. ``format`` empty: every entry's own. ``world``: ranks of the round; None: unknown."""

    run_id: str = ""
    history: History = ()
    format: str = ""
    world: int | None = None
    deep: bool = True  # False: names, sizes and markers only
    give_up: Callable[[], bool] = never
    objection: Callable[[str], str] = unopposed  # other nodes' words: why one of that name cannot be taken, or ''
    below: tuple[int, str] | None = None  # no step of that number or above is taken, for the reason given
    worlds: Worlds = ()  # what formats that do not record the number of ranks are compared with
    part: bool = False  # each node may hold the files of its own ranks alone: such a part is looked at, too


class Look(NamedTuple):
    """What one candidate was found to be."""

    name: str
    format: str = ""  # empty: none claims it
    step: int | None = None
    whole: bool | None = None  # None: nothing can tell
    words: str = ""  # how that is known, or why it is refused
    world: int | None = None
    lacking: tuple[str, ...] = ()  # files that are not there, if that is all that is wrong
    round: int = 0  # in which it was published, if by this run
    save_ms: int | None = None
    unfinished: bool = False  # by its name
    fits: bool = False  # it is of the format asked for, or of a known one: directory and format were rightly given
    astray: str = ""  # why it shows that they were not
    counted: bool = False  # ``world`` is how many ranks left a file: there may have been more
    ranks: tuple[int, ...] = ()  # a part: it is whole as far as these ranks' files go, and others' are not here


def examine(directory: Path, candidate: Candidate, asked: Asked, patience: Patience, seen: Seen) -> Look:
    """Look at one candidate. ``GaveUp`` when ``asked.give_up`` says so."""
    if candidate.unfinished:
        return Look(candidate.name, "", candidate.step, False, UNFINISHED, unfinished=True)
    if asked.format in ("", OWN) and step_of(candidate.name) is not None:
        look = _own(directory, candidate, asked, patience, seen)
        if look.whole or look.format or asked.format:
            astray = "" if look.format else _of_another(directory, candidate, asked)
            return look._replace(format=OWN, fits=bool(look.format), astray=astray)
        other = _others(directory, candidate, asked, Patience(()), seen)
        return other if other.format else look._replace(format=OWN, fits=True)
    return _others(directory, candidate, asked, patience, seen)


def _own(directory: Path, candidate: Candidate, asked: Asked, patience: Patience, seen: Seen) -> Look:
    """Look at a published step; its format stays empty if it has no manifest that could be read."""
    path = directory / candidate.name
    look = Look(candidate.name, "", candidate.step, False)
    manifest = read_manifest(path, patience)
    if isinstance(manifest, Refused):
        return look._replace(words=manifest.reason)
    ours = manifest.run_id == asked.run_id
    look = look._replace(format=OWN, world=manifest.world_size, save_ms=manifest.save_ms)
    look = look._replace(round=manifest.round if ours else 0)
    ruling = judge(Origin(manifest.run_id, manifest.round, manifest.step), asked.run_id, asked.history)
    if not ruling.accepted:
        return look._replace(words=ruling.reason)
    found = _hashed(path, manifest, patience, asked, seen) if asked.deep else files_of_size(path, manifest, patience)
    if isinstance(found, Verified):
        return look._replace(whole=True, words=f"{found.how}; {ruling.reason}")
    return look._replace(words=found.reason)


def _hashed(path: Path, manifest: Manifest, patience: Patience, asked: Asked, seen: Seen) -> Verified | Refused:
    from .formats.folder import Folder

    key = (str(path), OWN, None, None)
    try:
        stamp = Folder(path.parent, path.name).stamp
    except OSError:  # more, or deeper, than a framework's; the manifest alone says what must be there
        return verify_files(path, manifest, patience, asked.give_up)
    before = seen.get(key)
    if before is not None and before[0] == (stamp, manifest):
        return Verified(manifest)
    found = verify_files(path, manifest, patience, asked.give_up)
    if isinstance(found, Verified):
        seen[key] = ((stamp, manifest), None)
    return found


def _others(directory: Path, candidate: Candidate, asked: Asked, patience: Patience, seen: Seen) -> Look:
    """Look at a framework's checkpoint. What is absent is doubted while patience lasts."""
    from .formats import known
    from .formats.finding import Question, Torn, Whole
    from .formats.folder import Folder

    look = Look(candidate.name, asked.format, candidate.step)
    wrote = ranks_that_wrote(candidate.step, asked.worlds)
    question = Question(asked.world, asked.deep, asked.give_up, wrote=wrote)
    try:
        while True:
            folder = Folder(directory, candidate.name)
            format_ = known.named(asked.format) if asked.format else known.format_of(folder)
            look = look._replace(format=format_.name if format_ else "")
            lacks = _lacks(folder, format_, question, seen) if asked.part else None
            if lacks and not folder.on_device and patience.again():  # NFS hides for a while what others have written
                continue
            finding = _part(folder, format_, question, seen, lacks) if lacks else None
            finding = finding or _judged(folder, format_, question, seen)
            if not (isinstance(finding, Torn) and finding.lacking and patience.again()):
                break
    except OSError as error:
        return look._replace(words=said(error, candidate.name))
    except ValueError as error:  # what had been found whole was cut short before it was looked into
        return look._replace(words=f"{error}")
    if isinstance(finding, Whole):
        step = candidate.step if finding.step is None else finding.step
        if step is not None and not 0 <= step < 10**MOST_DIGITS:
            return look._replace(words=f"the step that it says is none: it is below 0 or has over {MOST_DIGITS} digits")
        look = look._replace(whole=True, step=step, words=finding.how, world=finding.world, counted=finding.counted)
        return look._replace(ranks=finding.ranks)
    astray = _of_another(directory, candidate, asked) if asked.format else ""
    fits = not astray and _claimed(folder, format_, candidate)
    look = look._replace(words=finding.reason, fits=fits, astray=astray)
    if isinstance(finding, Torn):
        return look._replace(whole=False, lacking=finding.lacking)
    return look._replace(astray=finding.reason) if finding.above else look


def _of_another(directory: Path, candidate: Candidate, asked: Asked) -> str:
    """Say why an entry shows that the format asked for is a wrong one; '' when it shows nothing of the kind.

    It does if it is whole by another format, or holds checkpoints. What is torn may be torn in the first save of all.
    """
    from .formats import known
    from .formats.finding import Question, Unknown, Whole
    from .formats.folder import Folder

    try:
        folder = Folder(directory, candidate.name)
        other = known.format_of(folder)
        if other is not None and (other.name == asked.format or not _claimed(folder, other, candidate)):
            return ""
        finding = known.judge(folder, Question(asked.world, False, asked.give_up), other)
    except (OSError, ValueError):
        return ""
    if isinstance(finding, Whole) and other is not None:
        return f"it is of the format {other.name}, not {asked.format}"
    return finding.reason if isinstance(finding, Unknown) and finding.above else ""


def _claimed(folder: Folder, format_: Format | None, candidate: Candidate) -> bool:
    """Say whether an entry is a checkpoint of that format for certain. A file without a step may be any model."""
    if format_ is None or (candidate.order < 0 and format_.name == LOOSE):
        return False
    return format_.claims(folder.name, folder.files)


def _lacks(folder: Folder, format_: Format | None, question: Question, seen: Seen) -> Torn | None:
    """Return what names and sizes show, if it is only that files are not here."""
    from .formats import known
    from .formats.finding import Torn

    if format_ is not None and _known(folder, format_, question, seen) is not None:
        return None
    quick = known.judge(folder, replace(question, deep=False), format_)
    return quick if isinstance(quick, Torn) and quick.lacking else None


def _part(folder: Folder, format_: Format | None, question: Question, seen: Seen, lacks: Torn) -> Finding | None:
    """Judge an entry as a part; None if there is more wrong with it than that other ranks' files are not here."""
    from .formats.finding import Unknown, Whole

    finding = _judged(folder, format_, replace(question, part=True), seen)
    if isinstance(finding, Unknown):  # it is torn all the same, and this is why nobody else has the rest
        return replace(lacks, reason=f"{lacks.reason} ({finding.reason})")
    return finding if isinstance(finding, Whole) and finding.ranks else None


def _judged(folder: Folder, format_: Format | None, question: Question, seen: Seen) -> Finding:
    from .formats import known
    from .formats.finding import Whole

    if format_ is None or not question.deep:
        return known.judge(folder, question, format_)
    if (before := _known(folder, format_, question, seen)) is not None:
        return before
    finding = known.judge(folder, question, format_)
    if isinstance(finding, Whole):
        seen[_key(folder, format_, question)] = (folder.stamp, finding)
    return finding


def _known(folder: Folder, format_: Format, question: Question, seen: Seen) -> Whole | None:
    """Return what it was found before, if no file has changed since."""
    before = seen.get(_key(folder, format_, question))
    return before[1] if before is not None and before[0] == folder.stamp else None


def _key(folder: Folder, format_: Format, question: Question) -> tuple[str, str, int | None, int | None]:
    kind = f"part of {format_.name}" if question.part else format_.name
    return str(folder.directory / folder.name), kind, question.world, question.wrote
