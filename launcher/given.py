"""What was asked for, and where: the command line over PET_ variables. Both are text; nothing is interpreted here.

Called by `cli`, read by `build` and `meeting`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from .flags import BY_NAME


class Setting(NamedTuple):
    """One value below the flags and where it stands, as in "cacert in --rdzv-conf"."""

    text: str
    origin: str


class Given(NamedTuple):
    """One run's settings. ``line`` holds what the command line gave, by dest; ``defaults`` what PET_ variables gave."""

    line: Mapping[str, str | bool]
    defaults: Mapping[str, str | bool]

    def text(self, name: str) -> str | None:
        """Return the value of flag ``name``, or None when nobody gave one."""
        dest = BY_NAME[name].dest
        value = self.line[dest] if dest in self.line else self.defaults.get(dest)
        return value if isinstance(value, str) else None

    def on(self, name: str) -> bool:
        """Say whether switch ``name`` is set; the command line can set what a variable left, never unset it."""
        dest = BY_NAME[name].dest
        return bool(self.line.get(dest) or self.defaults.get(dest))

    def origin(self, name: str) -> str:
        """Return how flag ``name`` was given, for a sentence about its value."""
        flag = BY_NAME[name]
        return flag.env if flag.dest in self.defaults and flag.dest not in self.line else f"--{name}"
