"""What ``--on-event`` tells of: read off the job's own records, as values. Pure.

Called by ``ledger.py`` on the agent that decided, so that each is told once. ``on_event.py`` delivers them.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import NamedTuple, cast

from ..health.classes import find
from ..rendezvous.leader_words import Prove
from ..rendezvous.records import Job

FEW = 1  # retries left, at which a person should know
SENTENCE = 1000


class Happening(str, Enum):
    """What is worth telling a person at night."""

    BUDGET = "budget"  # one retry is left of a family or of the launch, or none
    STOP = "stop"  # the job has ended and is not done
    NODE_LOST = "node_lost"
    QUARANTINE = "quarantine"  # a host takes no further round
    RECOVERED = "recovered"  # a round goes on from its checkpoint as it should, and the first newer one is verified
    ROLL_BACK = "roll_back"  # a round went back behind a step that had been reached, or a checkpoint was refused


class Occurrence(NamedTuple):
    """One of them; what is not known is empty or None."""

    event: Happening
    sentence: str
    round: int
    attempt: int | None = None
    cls: str = ""
    node: str = ""
    step: int | None = None
    budget_left: int | None = None
    host: str = ""  # that is in quarantine

    def as_json(self, run_id: str, at: str) -> dict[str, object]:
        """Return what the listener is given; ``at`` is the time in words."""
        family = find(self.cls).family if self.cls else ""
        return {
            "event": self.event.value,
            "run_id": run_id,
            "round": self.round,
            "attempt": self.attempt,
            "class": self.cls or None,
            "family": family or None,
            "node": self.node or None,
            "host": self.host or None,
            "sentence": self.sentence[:SENTENCE],
            "step": self.step,
            "budget_left": self.budget_left,
            "at": at,
        }


def part(record: Mapping[str, object], name: str) -> Mapping[str, object]:
    """Return an object in a record, empty where something else stands: whoever reaches the store may have put it."""
    value = record.get(name)
    return cast("Mapping[str, object]", value) if isinstance(value, dict) else {}


def _number(value: object) -> int | None:
    return value if isinstance(value, int) else None


def of_record(record: Mapping[str, object]) -> tuple[Occurrence, ...]:
    """Read off an attempt's record, as this agent's judge wrote it, whether the budget ends and a node was lost."""
    verdict = part(record, "verdict")
    least = min((n for n in part(record, "budget_left").values() if isinstance(n, int)), default=None)
    blank = Occurrence(
        Happening.BUDGET,
        str(record.get("decision")),
        _number(record.get("round")) or 0,
        _number(record.get("attempt")),
        str(verdict.get("class", "")),
        str(verdict.get("node", "")),
        _number(record.get("newest_step")),
        least,
    )
    out = [blank] if least is not None and least <= FEW else []
    if verdict.get("class") == "node_lost":
        out.append(blank._replace(event=Happening.NODE_LOST, sentence=str(verdict.get("sentence"))))
    host = record.get("quarantined")
    if host:
        sentence = f"host {host} is in quarantine: {verdict.get('sentence')}"
        out.append(blank._replace(event=Happening.QUARANTINE, sentence=sentence, host=str(host)))
    return tuple(out)


def of_end(job: Job) -> Occurrence | None:
    """Read off the job's last record that it has ended without being done."""
    outcome = job.outcome
    if outcome is None or outcome.exit_code == 0:
        return None
    step = job.memory.step if job.memory.step >= 0 else None
    said = (outcome.sentence, job.round, job.attempt, outcome.cls, outcome.node)
    return Occurrence(Happening.STOP, *said, step)


def of_proof(ask: Prove, step: int) -> Occurrence:
    """Say that a round has recovered."""
    said = f"{ask.said.steps} steps after step {ask.above} agree ({ask.said.by})"
    sentence = f"round {ask.round} has recovered: {said}, step {step} is verified"
    return Occurrence(Happening.RECOVERED, sentence, ask.round, ask.attempt, step=step)


class Chosen(NamedTuple):
    """How a round's resume point was chosen: where earlier rounds had resumed, and what was passed over."""

    furthest: int  # step; -1: none had resumed from one
    refused: tuple[tuple[str, str], ...] = ()


def of_resume(job: Job, chosen: Chosen) -> Occurrence | None:
    """Tell whether a round that runs now went back, as its leader chose."""
    step = job.resume.step if job.resume is not None and job.resume.path else -1
    reached = max(chosen.furthest, job.memory.step)
    if step >= reached and not chosen.refused:
        return None
    where = "nothing" if step < 0 else f"step {step}"
    behind = f", though step {reached} had been reached" if step < reached else ""
    passed = "".join(f"; {name} is passed over: {reason}" for name, reason in chosen.refused[:4])
    sentence = f"round {job.round} starts from {where}{behind}{passed}"
    return Occurrence(Happening.ROLL_BACK, sentence, job.round, job.attempt, step=None if step < 0 else step)
