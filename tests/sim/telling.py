"""Events, actions and records in few words: for the traces of failed schedules and for the stories."""

from __future__ import annotations

from enum import Enum
from typing import Any

from remuster.agent import node_words as words
from remuster.rendezvous import leader_words
from remuster.rendezvous.errors import BadRecord
from remuster.rendezvous.records import Job, Phase, Roster, decode_job, decode_roster
from remuster.rendezvous.store import KeyValue


def job(record: Job) -> str:
    """Say a job record: its phase and round, and what changed hands."""
    said = f"{record.phase.value}({record.round})"
    if record.cause:
        said += f" {record.cause.kind} on {record.cause.node}"
    if record.outcome:
        said += f" exit {record.outcome.exit_code}"
    if record.master and record.phase is Phase.RUNNING:
        said += f" at {record.master.partition(':')[0]}"
    if record.resume and record.resume.step >= 0:
        said += f" from step {record.resume.step}"
    return said


def members(roster: Roster) -> str:
    """Say who runs, in rank order, and who stands by."""
    spares = f" spare {' '.join(m.node for m in roster.spares)}" if roster.spares else ""
    return " ".join(m.node for m in roster.members) + spares


def tell(about: Any) -> str:
    """Say anything of a trace in a line."""
    match about:
        case words.JobSeen(kv=kv):
            return f"job {_job(kv)}"
        case words.LeaderSeen(kv=kv):
            return f"leader {_leader(kv)}"
        case words.Wrote(kind=kind, round=n, result=result):
            return f"wrote {kind.value}({n}) {_result(result)}"
        case words.Rereading(found=found, job=kv, node=node, leader=lead):
            if not found:
                return "reread: no answer"
            lease = f"{node.lease:x}" if node else "absent"
            return f"reread: job {_job(kv)}, me {lease}, leader {_leader(lead)}"
        case words.RosterRead(round=n, roster=roster, found=found):
            said = _roster(roster) if roster else "absent" if found else "no answer"
            return f"roster({n}) {said}"
        case words.Submit(write=write) | leader_words.Submit(write=write):
            return f"submit {write.kind.value}({write.round}): {write.reason}"
        case words.Start(round=n, place=place, job=record):
            return f"start({n}) as {place}, {job(record)}"
        case leader_words.Wrote(kind=kind, result=result):
            return f"wrote {kind.value} {_result(result)}"
        case leader_words.Conclude(round=n, lost=lost, all_started=started):
            return f"conclude({n}) lost {' '.join(lost) or '-'}, all started: {started}"
        case leader_words.Concluded(round=n, retry=retry, charge=charge):
            return f"concluded({n}) retry {retry}, charged {charge.charged}"
        case leader_words.SelectResume(round=n, roster=roster):
            return f"select resume({n}) for {members(roster)}"
        case leader_words.Elected(token=token):
            return f"elected, token {token}"
        case str():
            return about
    return _plain(about)


def _job(kv: KeyValue | None) -> str:
    if kv is None:
        return "absent"
    try:
        return f"{job(decode_job(kv.value))} #{kv.mod_revision}"
    except BadRecord:
        return f"spoilt #{kv.mod_revision}"


def _roster(kv: KeyValue) -> str:
    try:
        return members(decode_roster(kv.value))
    except BadRecord:
        return "spoilt"


def _leader(kv: KeyValue | None) -> str:
    return repr(kv.value[:40]) if kv else "nobody"


def _result(result: Any) -> str:
    return "outcome unknown" if result is None else "ok" if result.succeeded else "guard failed"


def _plain(about: Any) -> str:
    slots = getattr(type(about), "_fields", None) or getattr(type(about), "__slots__", None)
    if not slots or isinstance(about, Enum):
        return str(about)[:160]
    said = (f"{k}={getattr(about, k)!s:.60}" for k in slots if k != "at")
    return f"{type(about).__name__}({', '.join(said)})"
