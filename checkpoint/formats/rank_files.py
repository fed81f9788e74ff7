"""Files that every rank writes for itself, in checkpoints that do not record how many ranks there were."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass

from .finding import Question, Torn
from .folder import Folder
from .torch_zip import saved_as_another

DIGITS = 6  # of a rank: a name with more would be the last of millions that are missing
UNRECORDED = "the number of ranks that wrote it is not recorded"


@dataclass(frozen=True, slots=True)
class RankFiles:
    """Which ranks have left their file."""

    paths: tuple[str, ...]
    lacking: tuple[str, ...]
    note: str  # for people, if ranks are lacking that may never have been; else ""
    ranks: tuple[int, ...] = ()  # whose files are there, where only a part was asked for and others' are not


def rank_files(
    files: Collection[str], pattern: str, name: Callable[[int], str], world: int | None, part: bool = False
) -> RankFiles:
    """Find the files of ranks, group 1 of ``pattern``, and compare with those that wrote it or are to come.

    Of a ``part`` nothing is lacking where any rank has left its file.
    """
    matches = ((re.fullmatch(pattern, path), path) for path in files)
    found = {int(match[1]): path for match, path in matches if match and len(match[1]) <= DIGITS}
    wrote = max(found, default=-1) + 1
    lacking = tuple(name(rank) for rank in range(max(wrote, world or 1)) if rank not in found)
    if part and found and lacking:
        return RankFiles(tuple(found.values()), (), "", tuple(sorted(found)))
    note = ""
    if world is not None and lacking and len(found) == wrote:
        note = f" (a rank of the {world} did not come to it, or fewer ranks, {wrote}, wrote this checkpoint)"
    return RankFiles(tuple(found.values()), lacking, note)


def judge_own(folder: Folder, found: RankFiles, question: Question) -> Torn | None:
    """Judge the files of a part by the names under which they were saved: those of other ranks are not beside them."""
    if not found.ranks or not question.deep:
        return None
    try:
        wrong = saved_as_another(folder, found.paths)
    except ValueError as error:
        wrong = str(error)
    return Torn(wrong) if wrong else None
