"""The table ``[site]`` of a configuration file: what the site has this command do for it. Pure.

One key so far, ``drain_command``: a list of words that is run, without a shell, when a host is put in quarantine. It
travels among the settings of `config` as JSON. Called by `config` and `build`.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import cast

from ..agent.spec import DRAIN_WORDS
from .errors import UsageError
from .given import Setting

DRAIN = "drain_command"
MOST_WORDS, LONGEST = 64, 4096
_HOLDERS = re.compile(r"\{([^{}]+)\}")


def checked(path: Path, key: str, value: object) -> Setting:
    """Return a key of the table as a setting; UsageError for one that means nothing."""
    origin = f"{key} in {path}"
    if key != DRAIN:
        raise UsageError(f"{path}: {key!r} in [site] is not known; the one there is is {DRAIN}")
    words = cast("list[object]", value) if isinstance(value, list) else []
    if not words or not all(isinstance(word, str) for word in words):
        raise UsageError(f'{origin} is no list of texts, one for each word; write ["scontrol", "update", ...]')
    argv = cast("list[str]", words)
    if len(argv) > MOST_WORDS or any(len(word) > LONGEST or "\0" in word for word in argv):
        raise UsageError(f"{origin} is no command that can be run; give a program of the site's own")
    if not argv[0] or "{" in argv[0]:
        raise UsageError(f"{origin} begins with {argv[0]!r}, which is no program; write its name or path")
    unknown = [name for word in argv for name in _HOLDERS.findall(word) if name not in DRAIN_WORDS]
    if unknown:
        raise UsageError(f"{origin} has {{{unknown[0]}}}; what is filled in is {', '.join(DRAIN_WORDS)}")
    return Setting(json.dumps(argv), origin)


def command(setting: Setting | None) -> tuple[str, ...]:
    """Return the words of a setting that was checked; none where there is none."""
    return () if setting is None else tuple(cast("list[str]", json.loads(setting.text)))
