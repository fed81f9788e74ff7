"""Single files inside a checkpoint, each judged by what the ending of its name promises."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from functools import partial

from . import safetensors, torch_zip
from .finding import Finding, Question, Torn, Unknown, missing
from .folder import Folder
from .together import first_wrong

TORCH = (".pt", ".pth", ".bin", ".pkl", ".ckpt")  # torch.save's
LARGEST_JSON = 256 << 20


def wrong_with(folder: Folder, path: str, question: Question) -> str:
    """Say what is wrong with one file, or "": nothing, or its kind shows nothing."""
    if path.endswith(".safetensors"):
        return safetensors.wrong_with(folder, path, question)
    if path.endswith(TORCH):
        return torch_zip.wrong_with(folder, path, question)
    if path.endswith(".json"):
        try:
            parsed(folder, path)
        except ValueError as error:
            return str(error)
    return ""


def parsed(folder: Folder, path: str) -> object:
    """Return what a file of JSON says. ValueError: it is not whole; the words name it."""
    raw = folder.read(path, LARGEST_JSON)
    if not raw:
        raise ValueError(f"{path!a} is empty")
    try:
        value: object = json.loads(raw)
    except (ValueError, RecursionError):
        raise ValueError(f"{path!a} is cut short or no JSON") from None
    return value


def judge_parts(
    folder: Folder, question: Question, paths: Iterable[str], lacking: Collection[str], note: str = ""
) -> str | Torn | Unknown:
    """Judge the files of a checkpoint by themselves: ``paths`` are there, ``lacking`` should be (``note``: why).

    Returns how it is known that they are whole, or what is wrong.
    """
    there = sorted(paths)
    torch = [path for path in there if path.endswith(TORCH)]
    looked = torch_zip.judge_files(folder, torch, question)
    if isinstance(looked, str):
        others = [path for path in there if path not in torch]
        wrong = first_wrong([partial(wrong_with, folder, path) for path in others], question)
        wrong = wrong or _in_each_others_place(folder, torch)
        looked = Torn(wrong) if wrong else looked
    if not lacking:
        return looked
    words = missing(lacking) + note
    return Torn(words, tuple(sorted(lacking))) if isinstance(looked, str) else Torn(f"{looked.reason}; {words}")


def worst_of(findings: Iterable[Finding | None]) -> Torn | Unknown | None:
    """Return what is wrong with the parts of a checkpoint; None: nothing.

    Missing files come last, all of them together: another node may have them, if nothing else is wrong.
    """
    wrong = [finding for finding in findings if isinstance(finding, Torn | Unknown)]
    for finding in wrong:
        if isinstance(finding, Unknown) or not finding.lacking:
            return finding
    lacking = {path for finding in wrong if isinstance(finding, Torn) for path in finding.lacking}
    return Torn(wrong[0].reason, tuple(sorted(lacking))) if wrong else None


def _in_each_others_place(folder: Folder, paths: Iterable[str]) -> str:
    """Say that a file is another one's copy: torch.save writes the name that it was given into the file."""
    names = {_stem(path): path for path in folder.files if path.endswith(TORCH)}  # also of folders inside it
    for path in paths:
        wrote = torch_zip.root_of(folder, path)
        if wrote != _stem(path) and wrote in names:
            return f"{path!a} holds what was saved as {names[wrote]!a}"
    return ""


def _stem(path: str) -> str:
    return path.rpartition("/")[2].rpartition(".")[0]
