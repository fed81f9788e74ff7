"""Finds, for a pattern, plain words of which every match must hold at least one: a cheap test before the regex.

A failed job of a thousand ranks leaves a hundred thousand lines; almost none matches anything, and a substring test is
fifty times cheaper than a regex. Read from the pattern itself, so that the tables name nothing twice.
"""

from __future__ import annotations

from collections.abc import Iterable

SHORTEST = 3
GRAM = 4


def needles(pattern: str) -> tuple[str, ...]:
    """Return the words, or () when the pattern has a way to match without any."""
    best: list[str] = []
    for alternative in _split(pattern):
        words = _of_alternative(alternative)
        if not words:
            return ()
        best += words
    return tuple(dict.fromkeys(best))


def grouped(words: Iterable[str]) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Return the words in groups, each with a few letters that all of it hold: a line without them holds none.

    Hundreds of words are then some sixty tests for an ordinary line. Each group is the largest that is left; letters
    with a space count less, for those stand in ordinary lines too.
    """
    holders: dict[str, set[str]] = {}
    left = set(words)
    for word in left:
        for at in range(max(1, len(word) - GRAM + 1)):
            holders.setdefault(word[at : at + GRAM], set()).add(word)
    groups: list[tuple[str, tuple[str, ...]]] = []
    while left:
        gram = max(holders, key=lambda gram: (len(holders[gram]) / (4 if " " in gram else 1), gram))
        members = frozenset(holders[gram])
        groups.append((gram, tuple(sorted(members))))
        left -= members
        for word in members:
            for at in range(max(1, len(word) - GRAM + 1)):
                holders[word[at : at + GRAM]].discard(word)
        holders = {gram: held for gram, held in holders.items() if held}
    return tuple(groups)


def _split(pattern: str) -> list[str]:
    """Cut at the bars of the top level."""
    parts, depth, start, i = list[str](), 0, 0, 0
    while i < len(pattern):
        char = pattern[i]
        if char == "\\":
            i += 1
        elif char == "[":
            i = _class_end(pattern, i)
        elif char == "(":
            depth += 1
        elif char == ")":
            depth -= 1
        elif char == "|" and depth == 0:
            parts.append(pattern[start:i])
            start = i + 1
        i += 1
    return [*parts, pattern[start:]]


def _of_alternative(text: str) -> list[str]:
    """Return the best choice among its literal runs and its groups: the one whose shortest word is longest."""
    choices: list[list[str]] = []
    run, i = "", 0
    while i < len(text):
        char, end, literal, inner = text[i], i + 1, "", ""
        if char == "\\":
            end = i + 2
            literal = "" if text[i + 1].isalnum() else text[i + 1]
        elif char == "[":
            end = _class_end(text, i) + 1
        elif char == "(":
            end = _group_end(text, i) + 1
            inner = text[i + 3 : end - 1] if text.startswith("(?:", i) else ""
        elif char not in ".^$?*+{}":
            literal = char
        optional, after = _quantifier(text, end)
        if literal and not optional and after == end:
            run += literal
        else:
            choices.append([run])
            run = literal if literal and not optional else ""
            if inner and not optional:
                choices.append(list(needles(inner)))
        i = after
    choices.append([run])
    return max(choices, key=lambda words: min((len(word) for word in words), default=0)) if _long(choices) else []


def _long(choices: list[list[str]]) -> bool:
    return any(words and min(len(word) for word in words) >= SHORTEST for words in choices)


def _quantifier(text: str, at: int) -> tuple[bool, int]:
    """Return whether what stands before ``at`` may be absent, and where the quantifier ends."""
    if text[at : at + 1] in ("?", "*", "+"):
        return text[at] != "+", at + 1
    if text[at : at + 1] == "{":
        end = text.index("}", at) + 1
        return text[at + 1] == "0", end
    return False, at


def _class_end(text: str, at: int) -> int:
    i = at + 2  # a closing bracket in first place is a member
    while text[i] != "]":
        i += 2 if text[i] == "\\" else 1
    return i


def _group_end(text: str, at: int) -> int:
    depth, i = 0, at
    while True:
        if text[i] == "\\":
            i += 1
        elif text[i] == "[":
            i = _class_end(text, i)
        elif text[i] == "(":
            depth += 1
        elif text[i] == ")":
            depth -= 1
            if depth == 0:
                return i
        i += 1
