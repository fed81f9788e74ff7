"""Formats that others have installed, by entry point. Their code is a stranger's: what it raises becomes words.

Looked up once in a process. One that cannot be used claims nothing, and is named where a checkpoint is unknown.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import cast

from ..errors import GaveUp
from .finding import Finding, Format, Question, Torn, Unknown, Whole
from .folder import Folder

GROUP = "remuster.checkpoint_formats"  # of entry points: name = module:object, which is a Format
MAX_WORDS = 200


class Installed:
    """One of them. ``name`` is its own, or its entry point's where it has none."""

    def __init__(self, point: EntryPoint) -> None:
        """Load it; ``trouble`` says why that failed."""
        self.name = point.name
        self.trouble = ""
        self._format: Format | None = None
        try:
            loaded: Format = point.load()
            self.name, self._format = f"{loaded.name}", loaded
        except (Exception, SystemExit) as error:
            self.trouble = f"the format {self.name!a}, installed by {point.value!a}, cannot be loaded: {_said(error)}"

    def claims(self, name: str, files: Collection[str]) -> bool:
        """See Format."""
        if self._format is None:
            return False
        try:
            return bool(self._format.claims(name, files))
        except (Exception, SystemExit) as error:
            self.trouble = f"the format {self.name!a} cannot say what is its own: {_said(error)}"
            return False

    def judge(self, folder: Folder, question: Question) -> Finding:
        """See Format."""
        if self._format is None:
            return Unknown(self.trouble)
        try:
            finding = cast("object", self._format.judge(folder, question))
        except (OSError, GaveUp):
            raise
        except (Exception, SystemExit) as error:
            return Unknown(f"the format {self.name!a} failed: {_said(error)}")
        if isinstance(finding, Whole) and not _is_number(finding.step):
            return Unknown(f"the format {self.name!a} gave {str(finding.step)[:40]!a} for a step")
        if isinstance(finding, Whole | Torn | Unknown):
            return finding
        return Unknown(f"the format {self.name!a} gave no finding")


@cache
def installed() -> tuple[Installed, ...]:
    """Return all that are installed."""
    return tuple(Installed(point) for point in entry_points(group=GROUP))


def _is_number(step: object) -> bool:
    return step is None or (isinstance(step, int) and not isinstance(step, bool) and step >= 0)


def _said(error: BaseException) -> str:
    words = f"{type(error).__name__}: {error}".splitlines()[0]
    return words[:MAX_WORDS] if words.isprintable() else ascii(words[:MAX_WORDS])[1:-1]
