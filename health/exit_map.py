"""What a program's own exit codes mean: ``--exit-code-map``. Pure.

Programs have codes of their own that no list can know: Megatron-LM's rerun machine ends with 16 for "restart me on
other hardware" and 17 for "do not go on" (megatron/core/rerun_state_machine.py); NVRx's workers may end with 93 for
"no progress, do not restart". The launcher parses the flag, the leading agent asks what a root's code means.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from . import exits
from .classes import all_classes, find
from .evidence import RankExit, RoundEvidence

if TYPE_CHECKING:
    from .verdict import Verdict

MOST = 64  # entries
HOW = "write CODE=retry, CODE=retry-elsewhere, CODE=stop or CODE=CLASS, several with commas between"


class Action(Enum):
    """What is done about a failure, whatever its class says."""

    RETRY = "retry"  # and pay for it
    ELSEWHERE = "retry-elsewhere"  # the same; its node is taken last
    STOP = "stop"


class Mapped(NamedTuple):
    """One entry: an exit status, -N for a signal, and an action or the name of a class."""

    status: int
    means: str

    @property
    def action(self) -> Action | None:
        """The action; None when it is a class."""
        return next((action for action in Action if action.value == self.means), None)

    @property
    def text(self) -> str:
        """The entry as on a command line."""
        return f"{self.status}={self.means}"


def parse(text: str) -> tuple[Mapped, ...]:
    """Return the entries of 'CODE=ACTION|CLASS[,…]', sorted; ValueError with a sentence for anything else."""
    found: dict[int, Mapped] = {}
    for part in text.split(","):
        code, given, means = (piece.strip() for piece in part.partition("="))
        if not given:
            raise ValueError(f"{part.strip()!r} is not CODE=ACTION")
        status = _status(code)
        if status in found:
            raise ValueError(f"{code!r} is given twice")
        if means not in {action.value for action in Action} and (means not in all_classes() or means == "success"):
            raise ValueError(f"{means!r} is no action and no class of failures{_near(means)}")
        found[status] = Mapped(status, means)
    if len(found) > MOST:
        raise ValueError(f"it has {len(found)} entries, more than {MOST}")
    return tuple(sorted(found.values()))


def _status(code: str) -> int:
    number = code.removeprefix("-")
    if number.isascii() and number.isdigit() and len(number) <= 3:
        status = -int(number) if code.startswith("-") else int(number)
        if 1 <= status <= 255 or (status < 0 and exits.signal_name(status)):
            return status
        if status == 0:
            raise ValueError("0 is how a rank ends well, and is mapped to nothing")
        raise ValueError(f"{code!r} is no exit status (1 to 255) and no signal (-1 to -64)")
    word = code.upper() if code.upper().startswith("SIG") else f"SIG{code.upper()}"
    found = next((-n for n in range(1, 65) if exits.signal_name(-n) == word), None)
    if found is None:
        raise ValueError(f"{code!r} is no exit status (1 to 255) and no signal")
    return found


def _near(word: str) -> str:
    import difflib

    names = [*(action.value for action in Action), *all_classes()]
    near = difflib.get_close_matches(word, names, n=1)
    return f"; did you mean {near[0]}?" if near else " (docs/failures.md lists them)"


def meaning(mapping: Iterable[Mapped], verdict: Verdict, evidence: RoundEvidence) -> Mapped | None:
    """Return what the root rank's own end is mapped to; None when it is to nothing, or was not the rank's own."""
    ends = (f for node in evidence.nodes if node.node == verdict.node for f in node.facts if isinstance(f, RankExit))
    end = next((end for end in ends if end.rank == verdict.rank and not end.stopping), None)
    return next((one for one in mapping if end is not None and one.status == end.status), None)


def reread(verdict: Verdict, mapped: Mapped) -> Verdict:
    """Return the verdict as the map has it: a class of its own, if one is mapped. What was found out stays said."""
    how = exits.words(mapped.status)
    if mapped.action is not None:
        return verdict
    cls = find(mapped.means)
    note = f"{verdict.sentence} ({how} means {cls.name} here: --exit-code-map)"
    fault = cls.always_node_fault
    return replace(verdict, cls=cls.name, family=cls.family, node_fault=fault, compared=False, sentence=note)
