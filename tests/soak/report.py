"""What a soak found, as values, and its summary for people (docs/soak.md). Pure; filled by ``storm`` and ``hour``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from statistics import median
from typing import NamedTuple

from soak.growth import END, WARM_ROUNDS, Sample, Trend, trend
from soak.plan import Kind

KEPT = ("job", "terms", "rounds", "history", "attempts")  # kinds of keys that an ended run leaves
MIB = 1024


class Hit(NamedTuple):
    """A fault that was carried out: the round it met, how long it lasted, and the first step of a later round."""

    kind: Kind
    at: float
    round: int
    lasted_s: float
    alone: bool = True  # in its burst
    next_s: float | None = None  # after ``at``; None: the round went on


class Census(NamedTuple):
    """What the store held while all nodes were there."""

    round: int
    keys: Counter[str]
    leases: int
    used: int  # bytes, before this census had it compacted
    disk: int


@dataclass(slots=True)
class RunReport:
    """One run; ``samples`` by node and role, and pid."""

    members: int
    witness: int
    took_s: float = 0.0
    rounds: int = 0
    stepped: int = 0
    lost_steps: int = 0
    classes: Counter[str] = field(default_factory=Counter)
    hits: list[Hit] = field(default_factory=list)
    together: list[float] = field(default_factory=list)  # bursts of several: from the first to all being well, in s
    missed: int = 0  # faults that found no victim
    census: list[Census] = field(default_factory=list)
    left: Counter[str] = field(default_factory=Counter)
    left_bytes: int = 0
    samples: dict[tuple[str, int], list[Sample]] = field(default_factory=dict)
    ended: bool = False

    def trends(self) -> dict[str, Trend]:
        """Return how those came along that lived long enough, by node and role."""
        found = {key: trend(samples) for key, samples in self.samples.items()}
        return {f"{who} (pid {pid})": t for (who, pid), t in found.items() if t is not None}


@dataclass(slots=True)
class Report:
    """The whole soak."""

    seed: str
    asked_s: float
    date: str
    machine: tuple[str, ...]  # lines about the machine and its software
    settings: tuple[str, ...]
    took_s: float = 0.0
    load: list[float] = field(default_factory=list)
    runs: list[RunReport] = field(default_factory=list)
    locks: int = 0
    verdict: str = "broken off"

    def render(self) -> str:
        """Return the summary as Markdown."""
        faults = sum(len(run.hits) for run in self.runs)
        rounds = sum(run.rounds for run in self.runs)
        parts = [
            "# The soak",
            _INTRODUCTION,
            f"**{self.verdict}** {faults} faults, {len(self.runs)} runs, {rounds} rounds.",
            *self._about(),
            "## Faults",
            _FAULTS,
            self._faults(),
            "## Runs",
            self._runs(),
            "Rounds by the class of their verdict: "
            + _counts(sum((run.classes for run in self.runs), Counter()))
            + ".",
            "## What could grow",
            _GROWTH,
            self._processes(),
            self._stores(),
            f"Lock files kept in /tmp (one for each run and node, a few bytes): {self.locks}.",
        ]
        return "\n\n".join(part for part in parts if part) + "\n"

    def _about(self) -> Iterable[str]:
        load = f", load average {min(self.load):.1f} to {max(self.load):.1f}" if self.load else ""
        yield _table(
            ("", ""),
            [
                ("date", self.date),
                ("time", f"{self.took_s:.0f} s (asked for: {self.asked_s:.0f} s)"),
                ("seed", f"`REMUSTER_SOAK_SEED={self.seed}`"),
                ("machine", "; ".join(self.machine) + load),
                ("job", "; ".join(self.settings)),
            ],
        )

    def _faults(self) -> str:
        rows: list[tuple[str, ...]] = []
        for kind in Kind:
            hits = [hit for run in self.runs for hit in run.hits if hit.kind is kind]
            alone = [hit for hit in hits if hit.alone]
            times = [hit.next_s for hit in alone if hit.next_s is not None]
            lasted = f"{median(hit.lasted_s for hit in alone):.1f}" if alone and kind.lasts else ""
            rows.append(
                (kind.value, str(len(hits)), str(len(alone)), str(len(times)), lasted, *_middle_and_most(times))
            )
        head = ("fault", "times", "alone", "round ended", "lasted s, median", "next first step s, median", "max")
        together = [took for run in self.runs for took in run.together]
        middle, most = _middle_and_most(together)
        more = [f"Bursts of several faults: {len(together)}"]
        if together:
            more.append(
                f", the first step of the last round {middle} s after the first fault (median), {most} s at most"
            )
        missed = sum(run.missed for run in self.runs)
        more.append(f". Faults that found no victim, dead already or not yet there: {missed}.")
        return f"{_table(head, rows)}\n\n{''.join(more)}"

    def _runs(self) -> str:
        rows = [
            (
                *(str(i), str(run.members), f"{run.took_s:.0f}", str(len(run.hits)), str(run.rounds), str(run.stepped)),
                *(str(run.lost_steps), "yes" if run.ended else "no"),
            )
            for i, run in enumerate(self.runs)
        ]
        head = ("run", "etcd members", "s", "faults", "rounds", "that took a step", "steps done twice", "bit-identical")
        return _table(head, rows)

    def _processes(self) -> str:
        rows: list[tuple[str, ...]] = []
        for i, run in enumerate(self.runs):
            for who, t in run.trends().items():
                rows.append(
                    (
                        *(str(i), who.partition(" ")[0], str(t.rounds)),
                        f"{t.first.rss_kib / MIB:.1f} → {t.last.rss_kib / MIB:.1f}",
                        f"{t.kib_per_round:.1f}",
                        f"{t.first.fds} → {t.last.fds}",
                        f"{t.first.threads} → {t.last.threads}",
                    )
                )
        if not rows:
            return "No process lived through enough rounds to be judged."
        return _table(("run", "process", "rounds", "MiB", "KiB a round", "descriptors", "threads"), rows)

    def _stores(self) -> str:
        rows: list[tuple[str, ...]] = []
        for i, run in enumerate(self.runs):
            looks = run.census[:1] + run.census[1:][-1:]
            rows += [
                (str(i), f"round {c.round}", _counts(c.keys), str(c.leases), _kib(c.used), _kib(c.disk)) for c in looks
            ]
            if run.ended:
                rows.append(
                    (str(i), "after the end", _counts(run.left), "0", f"{_kib(run.left_bytes)} of these keys", "")
                )
        return _table(("run", "when", "keys", "leases", "KiB in use", "KiB on disk"), rows) if rows else ""


def _middle_and_most(times: list[float]) -> tuple[str, str]:
    return (f"{median(times):.1f}", f"{max(times):.1f}") if times else ("", "")


def _kib(size: int) -> str:
    return f"{size / 1024:.0f}"


def _counts(counter: Counter[str]) -> str:
    return (
        ", ".join(f"{count} {name}" for name, count in sorted(counter.items(), key=lambda x: (-x[1], x[0]))) or "none"
    )


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


_INTRODUCTION = """\
Written by `make soak` (`tests/soak`) at its end; not edited. The digits example trains on two nodes and a spare, each
on an address of its own of the loopback, with a real etcd, while processes are killed and suspended at random. Nothing
is simulated.

What must hold all the time: no rank of a round is alive while one of another round is (each rank locks its round's byte
of a file and looks for other locks); no command ends that nobody killed; nothing of a killed one stays; after every
burst of faults a newer checkpoint is published. And after each run: its weights and samples are those of an
uninterrupted run, bit for bit; no process, temporary file or lease is left; each round has its record."""

_FAULTS = """\
Most bursts hold one fault; two of five hold two or three, so that some of them meet a job that is re-forming. The
figures are of those that came alone. *Round ended*: how often a later round came of it. Otherwise the round went on, as
it must when only the spare or one member of three is hit, or when etcd is back in time. *Next first step*: from the
fault to the first training step of that round; the fault's own length, the restart of killed commands and each rank's
import of torch are part of it.

Two faults of etcd itself are kept out, since no job can live with a store that breaks its word. 3.5.0 to 3.5.2 may skip
a write that they acknowledged when they are killed in the midst of a commit (etcd issue 13766): they are ended by
SIGTERM. Up to 3.5.12 a leader that was suspended alone revokes the leases of healthy nodes when it wakes up (15247):
of three members only one that does not lead is suspended."""

_GROWTH = f"""\
Of each process that lived long enough: medians of {END} looks, when it had settled after its first {WARM_ROUNDS} rounds
and at the end of its run; KiB a round leave single steps out. In each run the command of one node is never killed, so
that its agent lives as long as the run. The keys that grow are kept on purpose: where each round resumed, and the
record of each round. etcd is compacted now and then, as operators have it."""
