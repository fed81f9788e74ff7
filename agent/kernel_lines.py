"""Lines of a kernel log: taken out of what carries them, the hard ones among them, and those that a round keeps. Pure.

Two carriers: a record of /dev/kmsg (the kernel's Documentation/ABI/testing/dev-kmsg: ``PRIORITY,NUMBER,MICROSECONDS,
FLAGS;TEXT``, then lines with a blank in front that hold keys), and a line of a file, as rsyslog, journald or ``dmesg``
write it. What a line means is known to ``health/kernel.py``. Used by ``kernel_log.py``.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Mapping
from typing import NamedTuple

from ..health.kernel import LINE, Kind, Sign
from ..health.xid import Role, Xid, lookup, role_of

FIRST, LAST = 24, 24  # lines of a round: how it began and how it ended tell most

_STAMP = re.compile(r"\[ *(\d{1,12}\.\d{3,9})\]")
_GOES_ON = frozenset({54, 64, 78, 151, 156})  # the GPU needs a reset or a repair, and what runs on it goes on


class Line(NamedTuple):
    """A line; ``stamp_s`` on the kernel's own clock, None where the carrier gives none."""

    text: str
    stamp_s: float | None = None


def of_record(raw: bytes) -> Line:
    """Read one record of /dev/kmsg; an empty line when it is none."""
    head, _, rest = raw.partition(b";")
    fields = head.split(b",")
    if len(fields) < 3 or not fields[2].isdigit():
        return Line("")
    return Line(rest.partition(b"\n")[0].decode(errors="replace"), int(fields[2]) / 1e6)


def of_text(raw: bytes) -> Line:
    """Read a line of a file; the kernel's stamp stands in brackets where there is one."""
    text = raw[:LINE].decode(errors="replace").rstrip()
    stamp = _STAMP.search(text)
    return Line(text, float(stamp[1]) if stamp else None)


def hard(sign: Sign, xids: Mapping[int, Xid] | None = None) -> str:
    """Return why ranks here cannot go on after this sign, '' when they can or when one of them will hear by itself.

    ``xids``: the catalogue as the site has it.
    """
    match sign.kind:
        case Kind.XID:
            xid = lookup(sign.code, xids)
            fatal = xid.hardware and xid.needs_reset and role_of(xid, sign.text) is Role.ROOT
            said = f"the kernel reported XID {sign.code} ({xid.mnemonic}) of GPU {sign.bus}"
            return said if fatal and sign.code not in _GOES_ON else ""
        case Kind.LOST:
            return f"GPU {sign.bus or 'of unknown address'} has fallen off the bus"
        case Kind.SWITCH:
            return f"the kernel reported a fatal error of NVSwitch {sign.bus}"
        case Kind.MEMORY:
            return "" if sign.pid else "the kernel reported an error in host memory that cannot be corrected"
        case _:
            return ""


class Kept:
    """The lines of a round: its first and its last. Each is handed up once."""

    def __init__(self) -> None:
        self._first: list[tuple[float, str]] = []
        self._last: deque[tuple[float, str]] = deque(maxlen=LAST)

    def take(self, at_s: float, text: str) -> None:
        """Take a line that was written ``at_s``."""
        if len(self._first) < FIRST:
            self._first.append((at_s, text))
        else:
            self._last.append((at_s, text))

    def forget(self, before_s: float) -> None:
        """Forget lines that are older."""
        self._first = [line for line in self._first if line[0] >= before_s]
        self._last = deque((line for line in self._last if line[0] >= before_s), maxlen=LAST)

    def hand_up(self) -> tuple[tuple[float, str], ...]:
        """Return all lines in the order in which they came, with their times, and forget them."""
        found = (*self._first, *self._last)
        self._first.clear()
        self._last.clear()
        return found
