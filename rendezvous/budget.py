"""The job's budget: what each family of failures may still cost, over the job's life or within a window. Pure.

The launcher parses ``--retry-budget`` with it, the leading agent pays from it; the account lives in the job record, so
it survives every agent, and beside the checkpoints (``agent/mirror.py``), so it survives the store. What is given back
and why windows are not eased by it: docs/decisions/0006.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from .records import Paid

Counts = tuple[tuple[str, int], ...]  # family -> number, sorted by family

OTHERS = 3  # retries of each family that --retry-budget does not name, where it is the only bound
MOST_TIMES = 32  # charges that windows may make the job record remember: it stays small
LONGEST_S = 366 * 86400
_UNITS = (("d", 86400), ("h", 3600), ("m", 60), ("s", 1))


class Bound(NamedTuple):
    """At most ``most`` charges of a family: in any ``window_s`` seconds, or over the job's life when that is 0."""

    family: str
    most: int
    window_s: int = 0

    @property
    def text(self) -> str:
        """The bound as on a command line."""
        return f"{self.family}={self.most}{f'/{_spelled(self.window_s)}' if self.window_s else ''}"


class Account(NamedTuple):
    """What has been paid: kept in the job record, and changed only in the transaction that ends a round."""

    spent: Counts = ()
    last: str = ""  # the family charged last: what progress gives back before the next charge
    times: tuple[Paid, ...] = ()  # when families with a window were charged


class Due(NamedTuple):
    """What a failure costs. ``progress``: a newer checkpoint was published since the last charge."""

    family: str
    now: int  # unix seconds of the leader's wall clock, which may be wrong
    progress: bool


class Receipt(NamedTuple):
    """The account after a charge, or as it was and why it is refused."""

    account: Account
    refused: str = ""
    refunded: str = ""  # the family that was given one back before
    left: int | None = None  # how many the family may still cost now; None: it is not bounded


def parse(text: str, families: Iterable[str]) -> tuple[Bound, ...]:
    """Return the bounds of 'family=N[/window][,…]', sorted; ValueError with a sentence for anything else."""
    known = tuple(families)
    bounds: dict[str, Bound] = {}
    for part in text.split(","):
        family, given, rest = (piece.strip() for piece in part.partition("="))
        if not given:
            raise ValueError(f"{part.strip()!r} is not FAMILY=N")
        if family not in known:
            raise ValueError(f"{family!r} is no family of failures; they are {', '.join(known)}")
        if family in bounds:
            raise ValueError(f"{family!r} is given twice")
        number, slash, window = (piece.strip() for piece in rest.partition("/"))
        if not (number.isascii() and number.isdigit() and len(number) <= 6):
            raise ValueError(f"{number!r} is not a number of retries")
        bounds[family] = Bound(family, int(number), _seconds(window) if slash else 0)
    remembered = sum(bound.most for bound in bounds.values() if bound.window_s)
    if remembered > MOST_TIMES:
        raise ValueError(f"the bounds with a window come to {remembered} retries; at most {MOST_TIMES} are remembered")
    return tuple(sorted(bounds.values()))


def _seconds(window: str) -> int:
    number, unit = window[:-1], dict(_UNITS).get(window[-1:])
    if unit is None or not (number.isascii() and number.isdigit() and len(number) <= 9) or not int(number):
        raise ValueError(f"{window!r} is no window of time: write a number and s, m, h or d, as in hardware=3/24h")
    if int(number) * unit > LONGEST_S:
        raise ValueError(f"the window {window!r} is longer than a year; leave it out for a bound of the job's life")
    return int(number) * unit


def _spelled(seconds: int) -> str:
    """Return a window in the largest unit that it is a whole number of; a day is 24 hours."""
    unit, size = next((unit, size) for unit, size in _UNITS if seconds % size == 0 and (unit, seconds) != ("d", 86400))
    return f"{seconds // size}{unit}"


def pay(account: Account, due: Due, bounds: tuple[Bound, ...], others: int | None = None) -> Receipt:
    """Give back what progress has earned, then charge one retry; ``others`` bounds each family that is not named."""
    after, refunded = _give_back(account) if due.progress else (account, "")
    bound = next((b for b in bounds if b.family == due.family), None)
    if bound is None and others is not None:
        bound = Bound(due.family, others)
    times, spent = dict(after.times), dict(after.spent)
    # A leader whose clock is behind must not find an empty window: time never runs back here.
    now = max((due.now, *(at for paid in after.times for at in paid.at)))
    recent = times.get(due.family, ())
    if bound is not None and bound.window_s:
        recent = tuple(at for at in recent if at > now - bound.window_s)
    used = len(recent) if bound is not None and bound.window_s else spent.get(due.family, 0)
    if bound is not None and used >= bound.most:
        return Receipt(account, refused=_why(bound, used, recent, now))
    spent[due.family] = spent.get(due.family, 0) + 1
    times[due.family] = (*recent, now)
    windowed = {b.family for b in bounds if b.window_s}
    kept = tuple(Paid(family, at) for family, at in sorted(times.items()) if family in windowed)
    left = None if bound is None else bound.most - used - 1
    return Receipt(Account(tuple(sorted(spent.items())), due.family, kept), refunded=refunded, left=left)


def _give_back(account: Account) -> tuple[Account, str]:
    """Undo the last charge: another follows at once. Its time stays: a window bounds how often, progress or not."""
    spent = dict(account.spent)
    if spent.get(account.last, 0) < 1:
        return account, ""
    spent[account.last] -= 1
    return account._replace(spent=tuple(sorted((f, n) for f, n in spent.items() if n))), account.last


def _why(bound: Bound, used: int, recent: tuple[int, ...], now: int) -> str:
    if not bound.window_s:
        return f"the budget of family {bound.family} is spent: {used} of {bound.most} retries (--retry-budget)"
    said = f"{used} of {bound.most} retries within {_spelled(bound.window_s)} (--retry-budget {bound.text})"
    wait = f"; the next is allowed in {_about(recent[-bound.most] + bound.window_s - now)}" if bound.most else ""
    return f"the budget of family {bound.family} is spent for now: {said}{wait}"


def _about(seconds: int) -> str:
    unit, size = next((unit, size) for unit, size in _UNITS if seconds >= 2 * size or size == 1)
    return f"{-(-seconds // size)}{unit}"
