"""Colour for the report on a terminal: put on when it is printed, so that no record and no file holds any. Pure."""

from __future__ import annotations

from collections.abc import Mapping

_LOUD, _BOLD, _PLAIN = "\x1b[1;31m", "\x1b[1m", "\x1b[0m"
_HEADS = ("Failures:", "Root Cause (first observed failure):", "Last lines of rank ")
_LABELS = (
    *(
        "Victims   :",
        "Class     :",
        "GPU       :",
        "Evidence  :",
        "Lacked    :",
        "Line      :",
        "Stacks    :",
        "Logs      :",
        "Bundle    :",
        "Record    :",
    ),
    *("No retry  :", "Retried   :", "Spent     :", "What to do:"),
)


def wanted(environ: Mapping[str, str], terminal: bool) -> bool:
    """Tell whether stderr is to be coloured: https://no-color.org, and terminals that cannot."""
    return terminal and not environ.get("NO_COLOR") and environ.get("TERM", "") not in ("", "dumb")


def painted(report: str) -> str:
    """Return the report with its verdict in red and its headings in bold; the text stays the same."""
    verdict, rule, rest = report.partition("\n=")
    red = "\n".join(f"{_LOUD}{line}{_PLAIN}" if line else line for line in verdict.split("\n"))
    return red + rule + "\n".join(map(_line, rest.split("\n")))


def _line(line: str) -> str:
    if line.startswith(_HEADS):
        return f"{_BOLD}{line}{_PLAIN}"
    label = next((label for label in _LABELS if line.startswith(label)), "")
    return f"{_BOLD}{label}{_PLAIN}{line[len(label) :]}" if label else line
