"""What the command line refuses. A leaf: imports nothing of the project."""

from __future__ import annotations


class SaidByAnother(Exception):
    """The command cannot mean anything, and the first task of the same srun says so for all: this one ends silently."""


class UsageError(Exception):
    """The command cannot mean anything: one line, what is wrong, then after a semicolon what to do. Exit code 2."""
