"""What the names in a checkpoint directory say: which entries can be checkpoints, and which is newer. Pure.

Every framework has its own way: ``step-000000000005``, ``global_step5``, ``iter_0000005``, ``checkpoint-5``,
``checkpoint_5``, ``5``, ``epoch=0-step=5.ckpt``, ``checkpoint_2026-11-29_11-44-48.169556``. A name only orders the
candidates; whether one is whole, and often its step, is for its content to say.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

from .layout import step_of

SUFFIXES = (".pt", ".pth", ".ckpt", ".bin", ".tar", ".safetensors")  # of checkpoints that are single files
TORCH_SAVED = (".pt", ".pth", ".bin", ".pth.tar")  # of those, torch.save's without a framework around it

_UNFINISHED = re.compile(  # as a word of its own; "temp" and "part" mean other things too
    r"\.(temp|part|partial|superseded|orbax-checkpoint-tmp)(?![a-z])|^_?te?mp(?![a-z])|^tmp|[-_](temp|part)$|~$"
    r"|(?<![a-z])(tmp|incomplete|unfinished|in[-_]?progress|writing|saving|staging|deleting)(?![a-z])",
    re.I | re.A,
)
_DATE = re.compile(
    r"(?<!\d)(20\d\d)(-?)([01]\d)\2([0-3]\d)[-_T](\d\d)([-:]?)(\d\d)\6(\d\d)(?:\.(\d{1,6})|(?!\d))", re.A
)
# What a number in a name counts, the most telling first: a metric may be called …_step, or be a whole number itself.
_COUNTED = tuple(
    re.compile(rf"{word}[=_-]?(\d+)(?!\d|\.\d*[1-9])", re.I | re.A)
    for word in (
        r"(?:(?<![a-z_])|global_?)(?:step|iter(?:ation)?)s?",
        r"(?:step|iter(?:ation)?)s?",
        r"(?<![a-z])ba",  # Composer's ep3-ba1200-rank0: batches in all
        r"(?<![a-z])epochs?",
    )
)
_IN_EPOCH = re.compile(r"(?<![a-z])epochs?[=_-]?(\d{1,9})\D+batch(?:es)?[=_-]?(\d{1,9})(?!\d|\.\d)", re.I | re.A)
_RANK = re.compile(r"(?<![a-z])rank[=_-]?\d+", re.I | re.A)  # which of several files, not when
_NUMBER = re.compile(r"(?<![\d.])\d+(?![\d.]*\.?\d)", re.A)
# 100k, 1.5k, 10M. Behind one of these words it is a count for certain; elsewhere 350M, like 7b, is a model's size.
SHORT = r"\d{1,12}(?:\.\d{1,6})?[kmb](?:(?![a-z\d])|(?=steps?|iters?))"
_WORD = r"(?:step|iter(?:ation)?|ckpt|checkpoint|chkpt|snapshot|save|update|batche?|epoch|(?<![a-z])ba)s?[=_-]?"
_UNIT = re.compile(r"\d[kmb]", re.I | re.A)
_SHORT = re.compile(rf"({_WORD})?(?<![\d.])({SHORT})", re.I | re.A)
_WIDE = r"(?:ctx|context|seq(?:uence)?|(?:seq[_-]?)?len(?:gth)?|tok(?:en)?s?|vocab|params?|res)"
_WIDTH = re.compile(  # how wide something is, not when it was saved
    rf"(?<![a-z]){_WIDE}[=_-]?{SHORT}|(?<![\d.]){SHORT}[=_-]?{_WIDE}(?![a-z])", re.I | re.A
)
_ZEROS = {"k": 3, "m": 6}
_PART = re.compile(
    r"(?<![a-z])(optim(izer)?s?|(lr[_-]?)?sched(uler)?s?|(grad[_-]?)?scaler|rng([_-]?state)?s?)(?![a-z])", re.I
)
_SPARE = re.compile(rf"{_PART.pattern}|(?<![a-z])(best|ema|opt)(?![a-z])", re.I)
_VERSION = re.compile(r"-v\d+$", re.A)
MOST_DIGITS = 18
_PLAIN = re.compile(rf"([A-Za-z_]*-?)([0-9]{{1,{MOST_DIGITS}}})").fullmatch  # most names; there can be thousands


class Candidate(NamedTuple):
    """An entry that may be a checkpoint. ``order`` compares names only; -1: the name has no number."""

    name: str
    order: int
    step: int | None = None  # as the name has it; None: it has a date, an epoch and a batch of it, or nothing
    unfinished: bool = False  # by its name, its save did not come to its end, or it was set aside


def candidate(name: str, is_file: bool) -> Candidate | None:
    """Read an entry's name; None for what is no checkpoint: hidden names, pointers, logs, configurations."""
    if not is_file and (plain := _PLAIN(name)) is not None and not _is_unfinished(plain[1]):
        step = int(plain[2])
        return Candidate(name, step, step)
    if name.startswith(".") or (is_file and not name.endswith(SUFFIXES) and step_of(name) is None):
        return None
    found = _UNFINISHED.search(name)
    stem = name[: found.start()] if found and found.start() else name
    for suffix in SUFFIXES:
        stem = stem.removesuffix(suffix)
    stem = _VERSION.sub("", stem)
    if date := _DATE.search(stem):
        parts, fraction = date.group(1, 3, 4, 5, 7, 8), date[9] or ""
        return Candidate(name, int("".join(parts) + fraction.ljust(6, "0")), None, bool(found))
    stem = _RANK.sub("", stem)
    if _UNIT.search(stem):  # few have one
        stem = _SHORT.sub(_spelled_out, _WIDTH.sub("", stem))
    if within := _IN_EPOCH.search(stem):
        return Candidate(name, int(within[1]) * 10**9 + int(within[2]), None, bool(found))
    numbers = next(filter(None, (counted.findall(stem) for counted in _COUNTED)), None) or _NUMBER.findall(stem)
    if not numbers or len(numbers[-1]) > MOST_DIGITS:
        return Candidate(name, -1, None, bool(found))
    return Candidate(name, int(numbers[-1]), int(numbers[-1]), bool(found))


def worth(number: str) -> int | None:
    """Return what a number in a name counts, as ``100``, ``100k``, ``1.5k``; None for what is no whole one."""
    if number.isdigit():
        return int(number[-MOST_DIGITS:])
    whole, _, part = number[:-1].partition(".")
    zeros = _ZEROS.get(number[-1].lower(), -1)
    return None if len(part) > zeros else int(whole + part.ljust(zeros, "0"))


def _spelled_out(found: re.Match[str]) -> str:
    word, number = found[1] or "", found[2]
    alone = found.span() == (0, len(found.string))
    if not word and not alone and number[-1].lower() != "k":
        return ""
    count = worth(number)
    return found[0] if count is None else f"{word}{count}"


@lru_cache(maxsize=64)
def _is_unfinished(start: str) -> bool:
    return _UNFINISHED.search(start) is not None


def is_part(name: str) -> bool:
    """Say whether a file's name is that of something beside a model: no checkpoint by itself."""
    return _PART.search(name) is not None


def is_spare(name: str) -> bool:
    """Say whether a name is to come after others that are as new: part of a checkpoint, or the best so far."""
    return _SPARE.search(name) is not None


def shown(name: str) -> str:
    """Return a name for people and JSON, whatever bytes it has."""
    return name if name.isprintable() else ascii(name)[1:-1]
