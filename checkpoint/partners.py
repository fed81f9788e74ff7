"""Loose files that make one step together: ``model_100.pt`` and ``optimizer_100.pt``. Pure; called by ``resume``.

A script that saves a step as several files beside each other leaves nothing that says which there must be. What the
other steps beside it have does: a step that lacks one of that was killed while it was saved.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from .names import SHORT, TORCH_SAVED, Candidate, is_part, worth

_NUMBER = re.compile(  # ep2-ba10-rank0.pt is Composer's
    rf"(?<![a-z])(rank|epoch|ep|step|iter|iteration|batch|ba)(s?[=_-]?)({SHORT}|\d+)|{SHORT}|\d+",
    re.I | re.A,
)
_RANK = re.compile(r"(.*(?<![a-z])rank[=_-]?)(\d{1,4})(.*)", re.I | re.A)


@dataclass(frozen=True, slots=True)
class Partners:
    """Which loose files there are: by step (-1: without one) the name of each part, with its counts taken out."""

    steps: Mapping[int, Mapping[str, str]] = field(default_factory=dict[int, "Mapping[str, str]"])

    def of(self, one: Candidate) -> tuple[str, ...]:
        """Return the names of the other parts of its step that are there."""
        names = (name for name in self.steps.get(one.order, {}).values() if name != one.name)
        return tuple(name for name in names if one.order >= 0 or is_part(name))  # last.pt and best.pt are two

    def lacking(self, one: Candidate) -> str:
        """Say which other part its step has not, but should; "" when it has all that can be known of."""
        mine, part = self.steps.get(one.order, {}), _part(one)
        if part not in mine:
            return ""
        if is_part(one.name) and all(is_part(name) for name in mine):
            return "what it belongs to is missing"
        if ranked := _RANK.fullmatch(part):  # a higher rank's file says that lower ranks write one
            lower = [f"{ranked[1]}{rank}{ranked[3]}" for rank in range(int(ranked[2]))]
            if gone := next((other for other in lower if other not in mine), ""):
                return f"{_named(gone, one)!a} is missing"
        others = [parts for order, parts in self.steps.items() if order not in (one.order, -1) and part in parts]
        for other in sorted({name for parts in others for name in parts} - mine.keys()) if one.order >= 0 else ():
            # a best one is saved now and then
            if 2 * sum(other in parts for parts in others) >= len(others) and "best" not in other.lower():
                return f"{_named(other, one)!a} is missing, which other steps have"
        return ""


def partners(candidates: Iterable[Candidate]) -> Partners:
    """Sort the files of torch.save among them by step and part."""
    steps: dict[int, dict[str, str]] = {}
    for one in candidates:
        if one.name.endswith(TORCH_SAVED) and not one.unfinished:
            steps.setdefault(one.order, {})[_part(one)] = one.name
    return Partners(steps)


def _part(one: Candidate) -> str:
    """Return a name with its counts taken out: what all steps call that part. A rank is no count."""

    def without(found: re.Match[str]) -> str:
        if found[1]:
            return found[0] if found[1].lower() == "rank" else f"{found[1]}{found[2]}#"
        return "#" if worth(found[0]) == one.order else found[0]

    return _NUMBER.sub(without, one.name)


def _named(part: str, one: Candidate) -> str:
    said = [found[3] or found[0] for found in _NUMBER.finditer(one.name)]
    counts = [number for number in said if worth(number) == one.order]
    return part.replace("#", counts[0]) if part.count("#") == 1 and counts else part
