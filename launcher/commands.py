"""Sub-commands, and when the first word is one: decided here alone, by `entry`, before anything is forked.

The first word is a sub-command only if it is one of ours and no file of that name is in the current directory, for then
torchrun would run that. ``remuster -- leave`` and ``remuster ./leave`` are always the script.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import cast

COMMANDS: dict[str, str] = {  # name: module of this room, and its function of the words after the name and environment
    "check": "check:main",
    "checkpoints": "checkpoints:table",
    "completion": "completion:main",
    "explain": "explain:main",
    "leave": "leave:main",
    "man": "manual:main",
    "quarantine": "quarantine:main",
    "resume-point": "checkpoints:point",
    "slurm-script": "slurm_script:main",
}


def chosen(argv: Sequence[str], there: Callable[[str], bool]) -> str | None:
    """Return the sub-command that ``argv`` begins with; None: it starts a job. ``there`` tells of a file by name."""
    word = argv[0] if argv else ""
    return word if word in COMMANDS and not there(word) else None


def run(name: str, argv: Sequence[str], environ: Mapping[str, str]) -> int:
    """Run a sub-command; return its exit code."""
    module, _, function = COMMANDS[name].partition(":")
    main = getattr(importlib.import_module(f".{module}", __package__), function)
    return cast("Callable[[Sequence[str], Mapping[str, str]], int]", main)(argv, environ)
