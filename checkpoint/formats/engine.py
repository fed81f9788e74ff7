"""A save of DeepSpeed's engine inside another framework's checkpoint: its files below a tag, ``latest`` beside it."""

from __future__ import annotations

from .deepspeed import judge_states
from .finding import Finding, Question, Torn
from .folder import Folder

POINTER = "latest"


def judge_engine(folder: Folder, tag: str, question: Question, by_pointer: bool) -> Finding:
    """Judge what lies below ``tag``. ``by_pointer``: the framework loads what ``latest`` names."""
    if by_pointer:
        if POINTER not in folder.files:
            return Torn(f"{POINTER!a} is missing, by which it is loaded", (POINTER,))
        named = folder.read(POINTER, 4096).decode("utf-8", "replace").strip()
        if named != tag:
            return Torn(f"{POINTER!a} names {named!a}, but {tag!a} is what lies there")
    return judge_states(folder, f"{tag}/", question)
