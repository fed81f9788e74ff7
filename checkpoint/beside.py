"""What other entries of a checkpoint directory say against one that is whole by itself. Called by ``resume``.

A loose file has partners (``partners``), and is no checkpoint among a framework's if it has no step. Where nothing
records how many ranks wrote a checkpoint, and nobody said how many are to come, the one before it shows how many did.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path

from .examine import LOOSE, Asked, Look, Seen, examine
from .names import Candidate, shown
from .partners import partners
from .patience import Patience

EARLIER = 3  # checkpoints that are asked how many ranks there were


class Beside:
    """The entries of one directory, which are looked at newest first."""

    def __init__(self, directory: Path, candidates: Sequence[Candidate], asked: Asked, seen: Seen) -> None:
        """Take what was listed; nothing is read yet."""
        self._directory, self._candidates, self._asked, self._seen = directory, candidates, asked, seen
        self._partners = partners(candidates)
        self._framework = ""  # whose checkpoints lie there

    def compared(self, at: int, look: Look) -> Look:
        """Return what is known of the candidate at that place when the others are looked at too."""
        candidate = self._candidates[at]
        if look.format != LOOSE:
            self._framework = self._framework or look.format
            if look.whole and look.counted and self._asked.world is None and (other := self._of_more_ranks(at, look)):
                few, many = look.world, other.world
                words = f"{many} ranks wrote {shown(other.name)!a}, and {few} this one, or one did not come to it: say "
                return look._replace(whole=None, words=words + "how many ranks are to come (--world)", fits=True)
            return look
        if not look.whole:
            return look
        if self._framework and candidate.order < 0:
            words = f"{look.words}, but without a step, beside {self._framework} checkpoints"
            return look._replace(whole=None, words=words)
        if reason := self._partners.lacking(candidate):
            return look._replace(whole=False, words=reason, fits=True)
        names = self._partners.of(candidate)
        for partner in (one for one in self._candidates if one.name in names):
            other = examine(self._directory, partner, self._asked, Patience(()), self._seen)
            if not other.whole:
                words = f"{shown(other.name)!a}, which belongs to it: {other.words}"
                return look._replace(whole=False, words=words, fits=True)
        return look

    def _of_more_ranks(self, at: int, look: Look) -> Look | None:
        quick = replace(self._asked, deep=False)
        finished = (one for one in self._candidates[at + 1 :] if not one.unfinished)
        for one in islice(finished, EARLIER):
            other = examine(self._directory, one, quick, Patience(()), {})
            if other.whole and other.format == look.format and (other.world or 0) > (look.world or 0):
                return other
        return None
