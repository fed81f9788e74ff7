"""What the NVIDIA driver's error numbers (XIDs) mean: ``xids.csv``, read once, when the first of them is judged.

The catalogue is NVIDIA's ("Analyzing Xid Errors with the Xid Catalog", as of October 2025), with what it means to a
job: an application XID (13, 31, 68, 109, …) is the program's doing until it repeats, 43, 45 and 137 only follow from
something else and never decide, a hardware XID outranks what programs say. Where the driver gives its own recovery
action (XID 154, NVML field 230), that is the authority. A site may say otherwise of a number: ``override``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum, IntEnum
from functools import lru_cache
from pathlib import Path

from .classes import all_classes, find
from .errors import HealthError

APPLICATION = "gpu_app_fault"
STATED_FATAL = frozenset(range(144, 151))  # NVLink5: the line says Fatal or Nonfatal
RECOVERY = 154


class Role(Enum):
    """What an XID is to a failure near it."""

    ROOT = "root"
    CONSEQUENCE = "consequence"  # of a kill, or of another XID: never decides
    WATCH = "watch"  # to be counted: means something over weeks
    IGNORE = "ignore"


class Recovery(IntEnum):
    """The driver's own recovery action (nvml.h nvmlDeviceGpuRecoveryAction_t)."""

    NONE = 0
    RESET = 1
    REBOOT = 2
    DRAIN_P2P = 3
    DRAIN_AND_RESET = 4
    RECOVER_IMEX = 5
    BUS_RESET = 6
    SYSTEM_REBOOT = 7


RECOVERY_WORDS = {
    Recovery.NONE: "nothing",
    Recovery.RESET: "a reset of the GPU",
    Recovery.REBOOT: "a reboot of the node",
    Recovery.DRAIN_P2P: "its peer-to-peer traffic to be drained",
    Recovery.DRAIN_AND_RESET: "the node to be drained and the GPU to be reset",
    Recovery.RECOVER_IMEX: "a recovery of its IMEX domain",
    Recovery.BUS_RESET: "a reset of the GPU's bus",
    Recovery.SYSTEM_REBOOT: "a reboot of the whole system",
}


def recovery_words(action: int) -> str:
    """Return what the driver asks for, also where its number is newer than this list."""
    return RECOVERY_WORDS[Recovery(action)] if action in set(Recovery) else f"its recovery action {action}"


@dataclass(frozen=True, slots=True)
class Xid:
    """One row. ``action`` is NVIDIA's word; ``node``: none, count, repeat, reset, reboot, repair, or said (by 154)."""

    code: int
    mnemonic: str
    action: str
    cls: str
    role: Role
    node: str
    own: bool = False  # the site has said what it means

    @property
    def application(self) -> bool:
        """Return whether it is the program's doing, as far as one occurrence tells."""
        return self.cls == APPLICATION

    @property
    def hardware(self) -> bool:
        """Return whether it decides against the GPU, whatever programs say."""
        return self.role is Role.ROOT and not self.application

    @property
    def needs_reset(self) -> bool:
        """Return whether the GPU is of no use before a reset, or its node before a reboot or a repair."""
        return self.role is Role.ROOT and self.node in ("reset", "reboot", "repair")


@lru_cache(maxsize=1)
def catalogue() -> dict[int, Xid]:
    """Return every XID by its number."""
    rows = Path(__file__).with_name("xids.csv").read_text(encoding="utf-8").splitlines()[1:]
    return {xid.code: xid for xid in map(_row, rows)}


def lookup(code: int, table: Mapping[int, Xid] | None = None) -> Xid:
    """Return the XID of that number; one that nobody knows is watched and decides nothing."""
    found = (catalogue() if table is None else table).get(code)
    return found or Xid(code, "not in the catalogue", "NONE", APPLICATION, Role.WATCH, "count")


def override(said: Mapping[int, str]) -> dict[int, Xid]:
    """Return the catalogue with other meanings: a class of the list, which then decides, or 'watch' or 'ignore'.

    HealthError for any other word.
    """
    table = dict(catalogue())
    for code, word in said.items():
        old = lookup(code)
        if word in (Role.WATCH.value, Role.IGNORE.value):
            table[code] = replace(old, role=Role(word), node="count" if word == Role.WATCH.value else "none", own=True)
        elif word in all_classes():
            node = "reset" if find(word).node_fault == "yes" else "count"
            table[code] = replace(old, cls=word, role=Role.ROOT, node=node, own=True)
        else:
            raise HealthError(f"XID {code}: {word!r} is no class of failure, nor 'watch' nor 'ignore'")
    return table


def role_of(xid: Xid, text: str) -> Role:
    """Return the role with the words of the kernel's line, '' when there is none (NVML tells numbers alone)."""
    if xid.code in STATED_FATAL and _NONFATAL.search(text):
        return Role.WATCH
    if xid.code == RECOVERY and text:
        return Role.ROOT if recovery_of(text) > Recovery.NONE else Role.IGNORE
    return xid.role


def recovery_of(text: str) -> Recovery:
    """Return the recovery action that a line of XID 154 names, in words rather than by number: these have moved."""
    named = _TO.search(text)
    if named is None:
        return Recovery.NONE
    word = named[1].lower()
    for part, recovery in _WORDS:
        if part in word:
            return recovery
    return Recovery.NONE


_NONFATAL = re.compile(r"(?i)\bnon-?fatal\b")
_TO = re.compile(r"recovery action changed from .{0,60}? to 0x[0-9a-fA-F]{1,8} \(([^)]{1,60})\)")
_WORDS = (
    ("reboot", Recovery.REBOOT),
    ("drain and reset", Recovery.DRAIN_AND_RESET),
    ("drain", Recovery.DRAIN_P2P),
    ("reset", Recovery.RESET),
)


def _row(row: str) -> Xid:
    code, mnemonic, action, cls, role, node = row.split(",")
    return Xid(int(code), mnemonic, action, cls, Role(role), node)
