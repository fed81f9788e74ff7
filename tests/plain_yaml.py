"""Reads the YAML of examples/k8s: the part of it that all of YAML's versions read alike, and nothing else.

Blocks of mappings and lists, lists of plain words in brackets, ``{}``; text in double quotes as in JSON, whole numbers,
true and false. Whatever else YAML can do, or reads in more than one way (yes, 1.0, 010, 12:30), is refused.
"""

from __future__ import annotations

import json
import re
from typing import Any

KEY = re.compile(r"([A-Za-z][\w./-]*):(?: +(.*))?$")
SURPRISING = re.compile(r"(?i)(y|n|yes|no|on|off|true|false|null|~|[-+.]?[0-9][0-9_,.:ex]*)$")  # as plain text
PLAIN = re.compile(r"(--?)?[A-Za-z0-9_./][^#{}\[\]&*!|>'\"%@`,]*$")


class PlainYamlError(Exception):
    """What is no YAML of this kind, with the line's number."""


Line = tuple[int, int, str]  # number, indent, text


def documents(text: str) -> list[Any]:
    """Return the documents of a file."""
    parts: list[list[Line]] = [[]]
    for number, raw in enumerate(text.splitlines(), 1):
        line = re.sub(r'(^| )#(?=[^"]*$).*', "", raw).rstrip()
        if "\t" in line:
            raise PlainYamlError(f"line {number}: a tab")
        if line == "---":
            parts.append([])
        elif line:
            parts[-1].append((number, len(line) - len(line.lstrip()), line.lstrip()))
    found = []
    for lines in filter(None, parts):
        value, rest = _block(lines, lines[0][1])
        if rest:
            raise PlainYamlError(f"line {rest[0][0]}: out of its column")
        found.append(value)
    return found


def _block(lines: list[Line], column: int) -> tuple[Any, list[Line]]:
    """Read the block that begins with the first line, in this column; return it and what follows."""
    made: list[Any] | dict[str, Any] = [] if lines[0][2].startswith("- ") else {}
    while lines and lines[0][1] == column and lines[0][2].startswith("- ") == isinstance(made, list):
        number, _, text = lines[0]
        if isinstance(made, list):
            inner = text[2:].lstrip()
            at = column + len(text) - len(inner)
            if KEY.match(inner):  # a mapping begins behind the dash
                value, lines = _block([(number, at, inner), *lines[1:]], at)
            else:
                value, lines = _scalar(number, inner), lines[1:]
            made.append(value)
            continue
        found = KEY.match(text)
        if not found or found[1] in made:
            raise PlainYamlError(f"line {number}: no key, or one that is there already")
        lines = lines[1:]
        if found[2]:
            made[found[1]] = _scalar(number, found[2])
        elif lines and lines[0][1] > column:
            made[found[1]], lines = _block(lines, lines[0][1])
        else:
            raise PlainYamlError(f"line {number}: a key without a value")
    if lines and lines[0][1] > column:
        raise PlainYamlError(f"line {lines[0][0]}: out of its column")
    return made, lines


def _scalar(number: int, text: str) -> Any:
    if text == "{}":
        return {}
    if text in ("true", "false") or re.fullmatch(r"0|[1-9][0-9]{0,14}", text):
        return json.loads(text)
    if text.startswith("[") and text.endswith("]"):
        return [_scalar(number, part.strip()) for part in text[1:-1].split(",")]
    if text.startswith('"'):
        try:
            return json.loads(text)
        except ValueError:
            raise PlainYamlError(f"line {number}: no text in quotes") from None
    if not PLAIN.match(text) or SURPRISING.match(text) or ": " in text or " #" in text or text.endswith(":"):
        raise PlainYamlError(f"line {number}: {text!r} is not plain; put it in double quotes")
    return text
