"""Which ranks use which GPU, and what a GPU has shown since an attempt began. Pure; for ``gpu_watch.py``.

A rank uses the GPUs on which the driver sees a process of its own; else, what its environment says: of the list in
CUDA_VISIBLE_DEVICES the entry with its local rank's number (all ranks of a node have the same list, as with torchrun),
and without that variable the GPU with that number. Numbers count as the driver does, in the order of the bus; CUDA does
so too where all GPUs are of one kind.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

# Annotations are evaluated here: a named tuple is made sooner from types than from their names.
from typing import NamedTuple

from ..health.observed import Gpu

VISIBLE = "CUDA_VISIBLE_DEVICES"
ANNOUNCED = (VISIBLE, "SLURM_JOB_GPUS", "SLURM_STEP_GPUS")  # who sets one of these means to use GPUs
FLAGS = ("row_remap_pending", "row_remap_failed")  # not counted: yes or no
SLOWED = "slowed_"  # and these, which may be over when the ranks have ended


class Card(NamedTuple):
    """A GPU as it was last seen."""

    number: int
    uuid: str
    bus: str
    migs: tuple[str, ...] = ()
    counters: Mapping[str, int] = {}
    recovery: int = 0
    lost: bool = False
    pids: tuple[int, ...] = ()
    unread: tuple[str, ...] = ()


class Xid(NamedTuple):
    """An XID of the GPU ``number``."""

    number: int
    code: int
    at_s: float  # of CLOCK_BOOTTIME


class User(NamedTuple):
    """A rank as far as GPUs go. ``local`` is the local rank that it is told, ``visible`` its CUDA_VISIBLE_DEVICES."""

    rank: int
    local: int
    visible: str | None


def announced(environ: Mapping[str, str | None]) -> bool:
    """Tell whether the environment names GPUs to be used."""
    values = (environ.get(name) or "" for name in ANNOUNCED)
    return any(value.strip() and not value.startswith("-") and value != "NoDevFiles" for value in values)


def cards_of(user: User, cards: Iterable[Card]) -> tuple[int, ...]:
    """Return the numbers of the GPUs that the environment gives to a rank; none when it names none that is here."""
    if user.visible is None:
        return tuple(card.number for card in cards if card.number == user.local)
    entries = _entries(user.visible)
    return _of_entry(entries[user.local], cards) if user.local < len(entries) else ()


def chosen(visible: str | None, cards: Iterable[Card]) -> tuple[int, ...]:
    """Return the numbers of all GPUs that a CUDA_VISIBLE_DEVICES leaves, those of parts of GPUs once; None: all."""
    known = tuple(cards)
    if visible is None:
        return tuple(card.number for card in known)
    found: list[int] = []
    for entry in _entries(visible):
        here = _of_entry(entry, known)
        if not here:
            break
        found += here
    return tuple(dict.fromkeys(found))


def _entries(visible: str) -> list[str]:
    entries: list[str] = []
    for entry in (part.strip() for part in visible.split(",")):
        if not entry or entry.startswith("-"):
            break  # CUDA ends the list at its first invalid entry
        entries.append(entry)
    return entries


def _of_entry(entry: str, cards: Iterable[Card]) -> tuple[int, ...]:
    found = tuple(card.number for card in cards if _is(card, entry))
    return found if len(found) == 1 else ()


def _is(card: Card, entry: str) -> bool:
    """Tell whether the entry means the card or a part of it: a number, a UUID or its beginning, or a MIG device's."""
    if entry.isdecimal():
        return int(entry) == card.number
    if entry.startswith("MIG-GPU-"):  # of drivers before 470: MIG-<the GPU's UUID>/<instance>/<instance>
        return card.uuid == entry[4:].partition("/")[0]
    if entry.startswith("MIG-"):
        return any(mig.startswith(entry) for mig in card.migs)
    return entry.startswith("GPU-") and card.uuid.startswith(entry)


def users(
    cards: Iterable[Card], ranks: Sequence[User], seen: Mapping[int, frozenset[int]], foreign: frozenset[int]
) -> dict[int, tuple[int, ...]]:
    """Return the ranks of each GPU. ``seen``: on which GPUs the driver saw processes of a rank.

    ``foreign`` are the GPUs on which it saw only processes of others: a rank that names no GPU does not use those.
    """
    known = tuple(cards)
    found: dict[int, list[int]] = {card.number: [] for card in known}
    for user in ranks:
        given = set(cards_of(user, known)) - (foreign if user.visible is None else set())
        for number in seen.get(user.rank) or given:
            found[number].append(user.rank)
    return {number: tuple(sorted(those)) for number, those in found.items()}


def computing(percent: Mapping[int, int], mine: Mapping[int, tuple[int, ...]]) -> dict[int, bool]:
    """Return whether a GPU of each rank computes. ``percent``: of its time, by the GPU's number, where that is known.

    ``mine``: as from ``users``. A rank of which one GPU is idle and another unknown is left out.
    """
    found: dict[int, bool] = {}
    for rank in {rank for ranks in mine.values() for rank in ranks}:
        used = [percent.get(number) for number, ranks in mine.items() if rank in ranks]
        if any(used):
            found[rank] = True
        elif None not in used:
            found[rank] = False
    return found


def shown(
    card: Card, first: Card | None, most: Mapping[str, int], xids: Iterable[Xid], ranks: tuple[int, ...], since_s: float
) -> Gpu | None:
    """Return what the GPU has shown since it was as in ``first``, None for nothing; ``most``: of gauges in between."""
    before: Mapping[str, int] = first.counters if first is not None else card.counters
    now = {**card.counters, **{name: max(card.counters.get(name, 0), top) for name, top in most.items()}}
    risen = tuple((name, now[name] - was) for name, was in sorted(before.items()) if now.get(name, was) > was)
    mine = tuple((xid.code, round(xid.at_s - since_s, 3)) for xid in xids if xid.number == card.number)
    if not (risen or mine or card.recovery or card.lost):
        return None
    return Gpu(card.uuid, card.bus, card.number, ranks, mine, risen, card.recovery, card.lost)
