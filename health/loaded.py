"""What a rank was reading when it said that something is torn: the checkpoint that it had re-entered from or not.

``EOFError: Ran out of input`` is said of a checkpoint, of a data set's cache, of a tokenizer and of a compiler's cache
alike. A file that the error names tells which; else the innermost call of its traceback whose name says what it reads.
Names are no proof, so what says nothing speaks against the checkpoint, as it did. Pure; called by the judgement.
"""

from __future__ import annotations

import re

from .evidence import RankExit
from .reading import words_of
from .tail import clean
from .tracebacks import LIBRARY, Frame, find

_NAMED = re.compile(
    r"'([^'\n/]{0,255}/[^'\n]{1,1024})'|\"([^\"\n/]{0,255}/[^\"\n]{1,1024})\"|"
    r"(?<![\w.:/~-])(/[^\s'\"<>|:,;()\[\]]{1,1024})"
)
_CODE = (".py", ".so", ".c", ".cc", ".cpp", ".cu", ".h", ".rs")  # where an error was raised, not what was read
_CHECKPOINT = re.compile(r"(?i)ckpt|checkpoint|resum|restor|state_?dict|load_?state|load_(?:optim|sched|rng)")
_OTHER = re.compile(
    r"(?i)__getitem__|__next__|__iter__|collat|data_?sets?|tokeni[sz]|vocab|corpus|preproc|_samples?\b|cache|"
    r"(?<![a-z])(?:data|train|val|valid|eval|test|batch)_?load(?:er)?(?![a-z])|load_(?:data|train|val)|"
    r"^data(?:_\w{0,20})?\.py$"
)
_LIBRARY_OTHER = re.compile(
    r"/torch/(?:utils/data|_inductor|_dynamo|hub\.py)|/triton/|"
    r"/(?:webdataset|streaming|litdata|ffcv|torchvision|torchaudio|torchdata|tiktoken|sentencepiece)/"
)
_NEUTRAL = re.compile(r"/torch/(?:serialization|utils/checkpoint)\.py|^<")  # reads anything; saves memory, not state
_TABLES = re.compile(r"/(?:numpy|pandas|pyarrow|h5py|lmdb|scipy|sklearn|joblib)/")
_INSTALLED = re.compile(r"site-packages|dist-packages")


def elsewhere(end: RankExit, line: str, path: str) -> str:
    """Say why the error in ``line`` is of something else than the checkpoint at ``path``; '' where nothing says so."""
    named = [next(filter(None, found.groups())).rstrip(".") for found in _NAMED.finditer(line)]
    if any(_of(name, path) for name in named):
        return ""
    beside = f"{path.rpartition('/')[0]}/"  # another step, a part of this one: what it is, the calls may tell
    for name in named:
        if name.startswith("/") and not name.startswith(beside) and not name.endswith(_CODE):
            return f"the error names {name!a}"
    frames = _frames(end, line)[::-1]
    for frame in frames:
        of_it = _reads(frame)
        if of_it is not None:
            return "" if of_it else _said(frame)
    return next((_said(frame) for frame in frames if _TABLES.search(frame.path)), "")


def _of(name: str, path: str) -> bool:
    """Say whether a file is of the checkpoint, by that name alone: links lead there, and a node may have its own."""
    return path.rpartition("/")[2] in name.split("/")


def _frames(end: RankExit, line: str) -> tuple[Frame, ...]:
    """Return the calls of the exception that stands in a line; none if there is no such."""
    lines = [clean(one) for one in words_of(end)]
    return next((one.frames for one in reversed(find(lines)) if lines[one.index].strip() == line), ())


def _reads(frame: Frame) -> bool | None:
    """Say whether a call reads the checkpoint (True) or something else (False), by its names. None: who knows."""
    installed = _INSTALLED.search(frame.path)
    if _NEUTRAL.search(frame.path) or (LIBRARY.search(frame.path) and not installed):
        return None
    if installed:
        inside = frame.path[installed.end() :]
        if _CHECKPOINT.search(frame.function) or _CHECKPOINT.search(inside):
            return True
        return False if _LIBRARY_OTHER.search(inside) or _OTHER.search(f"{inside}:{frame.function}") else None
    for text in (frame.function, frame.path.rpartition("/")[2], frame.source):
        if _CHECKPOINT.search(text):
            return True
        if _OTHER.search(text):
            return False
    return None


def _said(frame: Frame) -> str:
    return f"the error was raised in {frame.path.rpartition('/')[2]}:{frame.function}"
