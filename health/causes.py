"""What a verdict is, and what a candidate for one: shared by the modules that find causes. Pure values.

``verdict.py`` picks the strongest cause of a round; ``causes_node.py``, ``causes_gpu.py`` and ``causes_host.py`` find
those that are no rank's own words.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from . import exits
from .classes import find
from .fingerprint import fingerprint
from .reading import Reading, Standing

LINE, SENTENCE = 200, 500  # characters: of somebody's output in a sentence; of a sentence of our own in another
CERTAIN, LIKELY, GUESS = "certain", "likely", "guess"


class Proof(NamedTuple):
    """A piece of evidence: of which source, where (a node, a rank of it), and what it says."""

    source: str  # exit status, last lines, error file, kernel log, nvml, cgroup, fabric, lease, scheduler, …
    where: str
    text: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """Why a round ended. ``rank`` is -1 when no rank is the cause; ``status`` is then the code that stands for it.

    ``confidence``: 'certain' when something named the cause itself: the program, the kernel, the driver, a scheduler,
    the store; 'likely' when it follows from comparing ranks, or from two facts close in time; 'guess' when only an exit
    status speaks, or only ranks that waited or cried about others do.
    """

    cls: str
    family: str
    node: str = ""
    rank: int = -1
    local_rank: int = -1
    status: int = 0
    sentence: str = ""
    line: str = ""  # the deciding line
    exception: str = ""  # the type of a Python exception, '' when there was none
    own_exit: bool = False  # the root rank ended by itself: neither stopped nor killed from outside
    fingerprint: str = ""
    victims: tuple[tuple[str, int, int], ...] = ()  # (node, rank, status)
    node_fault: bool = False
    compared: bool = False  # all that speaks against the node is that no other showed it before it was stopped
    gpu: str = ""  # UUID of the GPU at fault, its bus where that is unknown; '' when none is
    confidence: str = CERTAIN
    evidence: tuple[Proof, ...] = ()
    unused: tuple[str, ...] = ()
    lacked: tuple[str, ...] = ()  # sources that had nothing to say, and why


@dataclass(frozen=True, slots=True)
class Cause:
    """A candidate for the root. Sorted by standing, disturbed ends after free ones, the site's own signatures first,
    specific before general, severity (the lowest first), order: (the node's, seconds on its clock, rank). What explains
    a rank's words goes before these.
    """

    standing: Standing
    order: tuple[int, float, int]
    verdict: Verdict
    reading: Reading | None = None
    disturbed: bool = False
    severity: int = 0

    @property
    def key(self) -> tuple[object, ...]:
        weight = self.reading.weight if self.reading else 100
        own = self.reading is not None and self.reading.own is not None
        return (
            self.standing, self.disturbed, not own, weight < GENERAL, self.severity, self.order, self.verdict.node,
            self.verdict.rank, self.reading is not None, self.verdict.cls, self.verdict.sentence,
        )  # fmt: skip


GENERAL = 40  # a sign that weighs less has many meanings


def plain(
    order: tuple[int, float, int], name: str, node: str, sentence: str, proof: Proof, status: int = 0
) -> Cause:  # fmt: skip
    """Return a cause that lies in a node and in no rank of it."""
    cls = find(name)
    mark = fingerprint(cls.name, "", "", proof.text)
    sure = GUESS if cls.family == "unknown" else CERTAIN
    verdict = Verdict(cls.name, cls.family, node, status=status, sentence=sentence, fingerprint=mark,
                      node_fault=cls.always_node_fault, confidence=sure, evidence=(proof,))  # fmt: skip
    return Cause(Standing.NODE, order, verdict)


def own_exit(reading: Reading) -> bool:
    """Return whether the rank ended by itself: neither stopped nor killed from outside."""
    return not reading.exit.stopping and exits.signal_of(reading.exit.status) not in exits.FROM_OUTSIDE


def short(text: str, limit: int = LINE) -> str:
    """Return the text in one line of at most ``limit`` characters."""
    text = " ".join(text.split())
    return text if len(text) <= limit else text[: limit - 1] + "…"
