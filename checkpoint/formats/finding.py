"""What a format says of one checkpoint, and what a format is. Pure values."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from .folder import Folder


@dataclass(frozen=True, slots=True)
class Whole:
    """Everything that the format promises is there, as far as the format can show it."""

    how: str  # how that is known, for people: "COMMITTED and sha256 of 4 files"
    step: int | None = None  # as the content has it; None: it has none, and the name must do
    world: int | None = None  # ranks that wrote it; None: not recorded
    counted: bool = False  # it is how many ranks left a file; there may have been more
    ranks: tuple[int, ...] = ()  # a part: these ranks' files are here, those of the others must lie on other nodes


@dataclass(frozen=True, slots=True)
class Torn:
    """Ranks must not re-enter here."""

    reason: str
    lacking: tuple[str, ...] = ()  # files that are not there, if that is all that is wrong: another node may have them


@dataclass(frozen=True, slots=True)
class Unknown:
    """Nothing here can tell whether it is whole, so it is not taken."""

    reason: str
    above: bool = False  # it is no checkpoint but holds some: the directory was given one level too high, or more


Finding = Whole | Torn | Unknown
NAMED = 5  # files in a reason


def missing(paths: Collection[str]) -> str:
    """Say which files are missing, the first of them by name."""
    first = [ascii(path) for path in sorted(paths)]
    if len(first) == 1:
        return f"{first[0]} is missing"
    shown, more = first[:NAMED], len(first) - NAMED
    last = f"{more} more" if more > 0 else shown.pop()
    return f"{', '.join(shown)} and {last} are missing"


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked of a format beside the checkpoint itself."""

    world: int | None = None  # ranks that must find their files, for formats that do not record it; None: not known
    deep: bool = True  # False: names, sizes and markers only
    give_up: Callable[[], bool] = lambda: False  # asked between blocks; a reader that is told so raises GaveUp
    wrote: int | None = None  # ranks of the round that saved it, as the run's own history has it; None: not known
    part: bool = False  # each node may hold the files of its own ranks alone: then ``Whole.ranks`` says of which

    @property
    def ranks(self) -> int | None:
        """Return how many ranks must have left their files, where the checkpoint does not say; None: not known."""
        return self.wrote or self.world


def as_part(whole: Whole, parts: Iterable[Finding | None], ranks: tuple[int, ...] = ()) -> Finding:
    """Return it as a part where any of what it consists of is one: of the ranks whose files are in all of those.

    ``ranks`` beside the parts' own: whose single files are here.
    """
    found = [one for one in parts if isinstance(one, Whole) and one.ranks]
    if not found and not ranks:
        return whole
    of = [set(one.ranks) for one in found] + ([set(ranks)] if ranks else [])
    both = tuple(sorted(set[int].intersection(*of)))
    if not both:
        return Torn("no rank has left all of its files here")
    world = next((one.world for one in found if one.world is not None), None)
    return replace(whole, world=world, counted=False, ranks=both)


class Format(Protocol):
    """How one framework's checkpoints are recognised and judged. Third parties may add their own by entry point."""

    @property
    def name(self) -> str:
        """Return the word for ``--checkpoint-format``, the record and the table."""
        ...

    def claims(self, name: str, files: Collection[str]) -> bool:
        """Say whether these names can only be this format's, whole or torn.

        ``name`` is the entry's in the checkpoint directory; ``files`` are the relative paths of the regular files in
        it, or the name itself where the entry is a file.
        """
        ...

    def judge(self, folder: Folder, question: Question) -> Finding:
        """Say whether it is whole. OSError: it could not be read, which is not the same as torn."""
        ...
