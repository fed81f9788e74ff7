"""Where a job re-enters, as the command line has it: directory, format, arguments and hook. Called by `build`."""

from __future__ import annotations

import os
from pathlib import Path

from . import files, values
from .errors import UsageError
from .given import Given


def checkpoint_dir(given: Given, notes: list[str]) -> Path | None:
    """Return --checkpoint-dir, made if it was not there; None without one."""
    text, origin = given.text("checkpoint-dir"), given.origin("checkpoint-dir")
    if text is None:
        return None
    if text and not os.path.exists(text):
        notes.append(f"{origin} {text!r} was not there and is made: the job starts from nothing")
    return files.directory(origin, text, read=True)


def checkpoint_format(given: Given) -> str:
    """Return --checkpoint-format, one that is known; empty without one."""
    text = given.text("checkpoint-format")
    if text is None:
        return ""
    from ..checkpoint.formats import known

    if known.named(text) is None:
        raise UsageError(f"{given.origin('checkpoint-format')} is {text!r}; known here are {', '.join(known.names())}")
    if trouble := known.trouble_with(text):
        raise UsageError(
            f"{given.origin('checkpoint-format')} is {text!r}: {trouble}; install it again, or leave it out"
        )
    return text


def checkpoint_args(given: Given) -> tuple[str, ...]:
    """Return the words of --checkpoint-arg, their places still in braces."""
    text, origin = given.text("checkpoint-arg"), given.origin("checkpoint-arg")
    if text is None:
        return ()
    if given.text("checkpoint-dir") is None and given.text("resume-hook") is None:
        raise UsageError(f"{origin} has nothing to name; give --checkpoint-dir DIR as well")
    return values.template(origin, text)


def hook(given: Given) -> str | None:
    """Return --resume-hook, whose program is there; None without one."""
    text = given.text("resume-hook")
    return None if text is None else files.hook(given.origin("resume-hook"), text)
