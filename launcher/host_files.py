"""Lists of hosts as others write them, each host once and in its first order; pure.

A host file has a host in each line: alone (PBS, LSF and OAR, repeated for each core), ``host slots=8`` (Open MPI,
DeepSpeed), ``host:8`` (MPICH, Intel MPI) or ``host 8``. How many ranks a host is for counts only where somebody wrote
the number: a repeated line is a core to most schedulers. Called by `gathering`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from . import values
from .errors import UsageError

_MOST = re.compile(r"max[_-]slots=[0-9]+", re.IGNORECASE)  # Open MPI's bound on oversubscription; nothing here
_SLOTS = re.compile(r"(?:slots=)?([0-9]{1,6})", re.IGNORECASE)
MOST_SLOTS = 4096  # of one host: beyond are ports


class Host(NamedTuple):
    """One host; ``slots`` is the number of ranks that was written beside it, None where none was."""

    name: str
    slots: int | None = None


def in_file(origin: str, text: str) -> tuple[Host, ...]:
    """Return the hosts of a host file; ``#`` begins a comment. UsageError names the line that means none."""
    lines = ((n, line.partition("#")[0].strip()) for n, line in enumerate(text.splitlines(), 1))
    return _once(_of_line(f"line {n} of {origin}", line) for n, line in lines if line)


def in_list(origin: str, text: str) -> tuple[Host, ...]:
    """Return the hosts of a list with commas: ``h1,h2:8``."""
    return _once(_of_line(origin, part.strip()) for part in text.split(",") if part.strip())


def counted(origin: str, text: str) -> tuple[Host, ...]:
    """Return the hosts of LSB_MCPU_HOSTS, whose words are hosts and their cores in turns."""
    words = text.split()
    if len(words) % 2 or not all(word.isdecimal() for word in words[1::2]):
        raise UsageError(f"{origin} is {text!r}; write each host with a number of slots behind it, or unset it")
    return _once(Host(values.host(origin, name)) for name in words[::2])


def _of_line(origin: str, line: str) -> Host:
    name, *words = line.split()
    name, number = _parted(name)
    words = [word for word in words if not _MOST.fullmatch(word)]
    if number is not None:
        words.insert(0, number)
    found = _SLOTS.fullmatch(words[0]) if len(words) == 1 else None
    if words and (found is None or not 1 <= int(found[1]) <= MOST_SLOTS):
        raise UsageError(f"{origin} is {line!r}; write HOST, HOST:N or HOST slots=N, N ranks on it (and no port)")
    return Host(values.host(origin, name), None if found is None else int(found[1]))


def _parted(name: str) -> tuple[str, str | None]:
    """Part ``host:8`` and ``[v6]:8``; a bare IPv6 address has colons of its own."""
    bare, bracket, rest = name.rpartition("]")
    if bracket and rest[:1] in ("", ":"):
        return bare + bracket, rest[1:] if rest else None
    host, colon, number = name.partition(":")
    return (host, number) if colon and ":" not in number else (name, None)


def _once(hosts: Iterable[Host]) -> tuple[Host, ...]:
    """Put what is said of one host together: its slots are added up, as mpirun does."""
    found: dict[str, int | None] = {}
    for name, slots in hosts:
        before = found.get(name)
        found[name] = slots if before is None else before + (slots or 0)
    return tuple(Host(*item) for item in found.items())
