"""Who the job machine asks on the leading agent how a round ended.

Gathers what the pure judgements need (the newest committed step) within bounds and puts the round's record together:
the answer goes into the store with the transaction that ends the round. Loaded after the first ranks have started.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from ..health import observed, signatures, wire
from ..health.evidence import Fenced, GuardianDied, NodeEvidence, Pace, RankExit, RoundEvidence, Told
from ..health.observed import REENTRY, Bundle, Early
from ..health.own_signatures import NONE
from ..health.suspicion import suspicion
from ..health.verdict import PLANNED
from ..rendezvous.budget import OTHERS
from ..rendezvous.gate import Blame
from ..rendezvous.history import History, entry_of, passed_over, sized, steps
from ..rendezvous.leader_words import Conclude, Concluded, Stamps
from ..rendezvous.records import NodeId, ResumePoint, Round
from ..rendezvous.snapshot import Report
from . import report
from .attempts import AttemptFacts, AttemptState, Reentry, ReentryState, Times, attempt_record, record_path
from .files import FileThread
from .judge import Allowance, Judgement, spending, weigh
from .linux import boottime
from .node_state import NodeState
from .spec import JobSpec
from .wards import Suspect, Wards

NEWEST_S = 3.0  # for a look at the newest committed step while ranks are still being stopped
RECORD_BYTES = 512 << 10  # of a record: etcd takes no request above 1.5 MiB
LEFT = "this node was asked to leave"
NOT_JUDGED = "this node left before it saw the round judged; the other nodes' records say what followed"
REPORT_CHARS = 16 << 10  # of the report in a record
SMALL_BYTES = 8 << 10  # of evidence: judged in a few milliseconds, so that the loop need not wait for a thread


def prepare() -> None:
    """Load in a quiet moment what the first failure of a rank asks for."""
    importlib.import_module("..health.errorfile", __package__)
    signatures.prepare()


class Newest(NamedTuple):
    """The newest published step, -1 without any, and, where it is known, which round published it in what time."""

    step: int = -1
    round: int = 0
    save_ms: int | None = None


class Found(NamedTuple):
    """What was looked up for a judgement: the newest published step, and the host that is in quarantine for it."""

    newest: Newest = Newest()
    barred: str = ""


@dataclass(frozen=True, slots=True)
class Bench:
    """The judge of one agent; used while it leads."""

    spec: JobSpec
    files: FileThread
    say: Callable[[str], None]
    wards: Wards | None = None  # where what is held against a host is written down
    node: str = ""  # this agent's, which judges: its record says so
    pace: Callable[[], Pace | None] = lambda: None  # its own ranks': when all went well no node tells of them
    run_dir: Path = Path()

    async def judge(self, ask: Conclude) -> Concluded:
        """Answer the job machine's question about a round."""
        newest, now = await self._newest(ask.round, ask.history), int(time.time())
        allowance = self._allowance()
        if sum(len(told.value) for _, told in ask.evidence) <= SMALL_BYTES:
            made = weigh(ask, allowance, newest.step, now)
        else:
            # a second of text of a thousand ranks
            made = await asyncio.to_thread(weigh, ask, allowance, newest.step, now)
        done = ask.done and not made.outcome.exit_code
        state = AttemptState.DONE if done else AttemptState.RETRIED if made.retry else AttemptState.FAILED
        barred = await self._offend(ask, made)
        # Quarantine keeps the host out until its term is over or an operator lifts it: then nothing else is to.
        blame = made.blame._replace(aside=False) if barred else made.blame
        record = self._record(ask, made, state, Found(newest, barred))
        return Concluded(
            boottime(),
            ask.round,
            made.retry,
            made.charge,
            made.outcome,
            record,
            ask.done,
            barred,
            blame,
            made.wait_s,
            made.suspect,
        )

    async def _offend(self, ask: Conclude, made: Judgement) -> str:
        """Hold a fault of a host against it; return the host if it is in quarantine for it."""
        once = suspicion(made.verdict, made.evidence)
        if self.wards is None or once is None:
            return ""
        by, reason = f"{self.spec.run_id}/{ask.round}", f"{made.verdict.cls}: {made.verdict.sentence}"
        return await self.wards.offend(Suspect(NodeId(made.verdict.node), by, reason, once), self.spec.least_others)

    def own_record(self, state: NodeState) -> bytes | None:
        """Return the record of a round that this agent leaves before anybody has judged it; None when it ran none."""
        roster, job = state.roster, state.job
        if roster is None or job is None or roster.round != state.round:
            return None
        mine = ((state.settings.node, Report(wire.encode(state.facts), 0)),)
        ask = Conclude(state.round, job.job, roster, mine, (), True, False, (), Stamps(), "this node leaves")
        spec = self.spec
        allowance = Allowance(0, spec.retry_budget, exit_map=spec.exit_map, own=spec.signatures or NONE)
        made = weigh(ask, allowance, -1, int(time.time()))
        made = replace(made, retry=False, reason=LEFT if job.job.max_nodes == 1 else NOT_JUDGED)
        return self._record(ask, made, AttemptState.FAILED, Found())

    def _allowance(self) -> Allowance:
        spec = self.spec
        most, others = (spec.max_restarts, None) if spec.bound_restarts else (None, OTHERS)
        return Allowance(most, spec.retry_budget, others, spec.exit_map, spec.signatures or NONE)

    async def newest(self) -> int | None:
        """Return the newest committed step, -1 when there is none; None when it could not be looked at in time."""
        try:
            return (await self._look(())).step
        except (OSError, TimeoutError):
            return None

    async def _newest(self, n: Round, history: tuple[tuple[Round, bytes], ...]) -> Newest:
        """Return the newest published step; never one below where the round had resumed, which was verified then."""
        resumed = dict(steps(history)).get(n)
        least = Newest(-1 if resumed is None else resumed)
        try:
            return max(least, await self._look(history), key=lambda found: found.step)
        except (OSError, TimeoutError) as error:
            self.say(f"the newest checkpoint could not be looked at: {error}")
            return least

    async def _look(self, history: tuple[tuple[Round, bytes], ...]) -> Newest:
        directory, run_id = self.spec.checkpoint_dir, self.spec.run_id
        if directory is None:
            return Newest()
        return await self.files.run(
            _newest_committed, directory, run_id, history, self.spec.checkpoint_format, timeout_s=NEWEST_S
        )

    def _record(self, ask: Conclude, made: Judgement, state: AttemptState, found: Found) -> bytes:
        """Return the record's bytes, within ``RECORD_BYTES``: what others ended with is cut before the root's words."""
        nodes = made.evidence.nodes
        root = (made.verdict.node, made.verdict.rank)
        freely = tuple(_shorn(n, lambda _, fact: not fact.stopping) for n in nodes)
        alone = tuple(_shorn(n, lambda node, fact: (node, fact.rank) == root) for n in nodes)
        for evidence in (nodes, freely, alone):
            raw = self._spelled(ask, made, state, found, evidence)
            if len(raw) <= RECORD_BYTES:
                return raw
        return self._spelled(ask, made, state, found, ())

    def _spelled(
        self, ask: Conclude, made: Judgement, state: AttemptState, found: Found, evidence: tuple[NodeEvidence, ...]
    ) -> bytes:
        point, refused, wall = _resumed(ask.history, ask.round)
        paces = _paces(made.evidence) or ((own,) if ask.done and (own := self.pace()) else ())
        facts = AttemptFacts(
            run_id=self.spec.run_id,
            launch=ask.job.launch,
            attempt=ask.job.attempt,
            roster=ask.roster,
            state=state,
            exits=tuple(
                (fact.rank, fact.status)
                for node in made.evidence.nodes
                for fact in node.facts
                if isinstance(fact, RankExit)
            ),
            verdict=_verdict(made),
            evidence=evidence,
            resume=point,
            refused=refused,
            reentry=_reentry(ask, made.evidence) if point is not None and point.path else None,
            times=_times(ask, made.evidence, paces, found.newest),
            started_at=wall,
            ended_at=time.time(),
        )
        record = attempt_record(facts)
        record["decision"] = made.reason
        record["charged_to"] = made.family or None
        record["refunded"] = made.refunded or None
        record["spent"] = dict(made.charge.spent)
        record["next_try_s"] = made.wait_s or None
        record["budget_left"] = dict(made.left) or None
        record["newest_step"] = found.newest.step if found.newest.step >= 0 else None
        record["reached_step"] = min((pace.step for pace in paces), default=None)
        record["quarantined"] = found.barred or None
        record["node_action"] = _node_action(made.blame, found.barred) or None
        record["bundles"] = _bundles(made.evidence.nodes) or None
        record["judged_by"] = self.node or None
        if not ask.done and made.verdict.cls not in PLANNED:  # whoever is asked to go has not failed
            kept = f"{self.node}: {record_path(self.run_dir, ask.job.attempt)}, and in each node's run directory"
            spent = spending(made, self._allowance())
            case = report.Case(
                self.spec.script, made.evidence, made.verdict, made.reason, made.retry, spent, kept if self.node else ""
            )
            record["report"] = _bounded(report.render(case))
        return json.dumps(record, separators=(",", ":")).encode()


def _node_action(blame: Blame, barred: str) -> str:
    """Return what becomes of the node that is blamed, '' when none is: each of them is checked first (``gate.py``)."""
    return "quarantine" if barred else "aside" if blame.aside else "check" if blame.check else ""


def _bundles(nodes: tuple[NodeEvidence, ...]) -> dict[str, str]:
    """Return where each node keeps what there is to be known."""
    return {node.node: fact.path for node in nodes for fact in node.facts if isinstance(fact, Bundle)}


def _shorn(node: NodeEvidence, keep: Callable[[str, RankExit], bool]) -> NodeEvidence:
    """Return the node's facts with last lines and error files of those ranks only that are to be kept."""
    facts = tuple(
        fact._replace(tail=(), error=None) if isinstance(fact, RankExit) and not keep(node.node, fact) else fact
        for fact in node.facts
    )
    return node._replace(facts=facts)


def _bounded(text: str) -> str:
    """Cut the middle of a report that is too long: its last line is what wrappers look for."""
    half = REPORT_CHARS // 2
    return text if len(text) <= 2 * half else f"{text[:half]}\n…\n{text[-half:]}"


def _verdict(made: Judgement) -> dict[str, object]:
    v = made.verdict
    return {
        "class": v.cls,
        "family": v.family,
        "node": v.node,
        "rank": v.rank,
        "status": v.status,
        "sentence": v.sentence,
        "line": v.line,
        "node_fault": v.node_fault,
        "gpu": v.gpu,
        "confidence": v.confidence,
        "fingerprint": v.fingerprint,
        "victims": [{"node": node, "rank": rank, "status": status} for node, rank, status in v.victims],
        "evidence": [proof._asdict() for proof in v.evidence],
        "unused": list(v.unused),
        "lacked": list(v.lacked),
    }


def _detect(evidence: RoundEvidence) -> float | None:
    """Return how long after its first end a node's word of it was in the store, in ms: both on that node's clock."""
    for node in evidence.nodes:
        told = [fact.at_s for fact in node.facts if isinstance(fact, Told)]
        ends = [
            fact.at_s
            for fact in node.facts
            if isinstance(fact, (Fenced, GuardianDied)) or (isinstance(fact, RankExit) and fact.status != 0)
        ]
        if told and ends and told[0] >= min(ends):
            return round((told[0] - min(ends)) * 1000, 3)
    return None


def _paces(evidence: RoundEvidence) -> tuple[Pace, ...]:
    return tuple(fact for node in evidence.nodes for fact in node.facts if isinstance(fact, Pace))


def _times(ask: Conclude, evidence: RoundEvidence, paces: tuple[Pace, ...], newest: Newest) -> Times:
    s, now = ask.stamps, boottime()

    def between(start: float | None, end: float | None) -> float | None:
        return None if start is None or end is None else round((end - start) * 1000, 3)

    return Times(
        detect=_detect(evidence),
        stop=between(s.stopping, s.gathered),
        decide=between(s.gathered, now),
        form=between(s.forming, s.formed),
        spawn=between(s.formed, s.started),
        recovery=between(s.failed, s.started),
        load=round(max(pace.first_s for pace in paces) * 1000, 3) if paces else None,
        save=newest.save_ms if newest.round == ask.round else None,
    )


def _reentry(ask: Conclude, evidence: RoundEvidence) -> Reentry:
    """Return how a round that resumed went on, as its nodes and its leader have said."""
    facts = [fact for node in evidence.nodes for fact in node.facts]
    found, said = [fact for fact in facts if isinstance(fact, observed.Reentry)], ask.reentered
    refuted = [fact.why for fact in facts if isinstance(fact, Early) and fact.sign == REENTRY]
    refuted += [fact.why for fact in found if fact.refuted]
    if refuted:
        return Reentry(ReentryState.REFUTED, reason=refuted[0])
    if said is not None:
        state = ReentryState.UNPROVEN if ask.verified is None else ReentryState.RECOVERED
        return Reentry(state, said.steps, said.by, ask.verified)
    steps = min((fact.agree for fact in found), default=None)
    return Reentry(ReentryState.UNPROVEN, steps, reason=next((fact.why for fact in found if fact.why), None))


def _resumed(
    history: tuple[tuple[Round, bytes], ...], n: Round
) -> tuple[ResumePoint | None, tuple[tuple[str, str], ...], float | None]:
    """Return where round ``n`` resumed and what was passed over, as its close wrote it."""
    found = entry_of(history, n)
    if not found:
        return None, (), None
    step = found.get("step")
    path, fmt, verified = (str(found.get(name, "")) for name in ("path", "format", "verified"))
    point = ResumePoint(path, step if isinstance(step, int) else -1, fmt, verified)
    wall = found.get("wall")
    return point, passed_over(found), wall if isinstance(wall, float) else None


def _newest_committed(directory: Path, run_id: str, history: History, name: str) -> Newest:
    """Return the newest checkpoint that is whole by sizes and markers and is not stale; no file is hashed. Blocks.

    A step of a worker group that had been replaced is no progress.
    """
    from ..checkpoint.errors import CheckpointError
    from ..checkpoint.examine import Asked
    from ..checkpoint.resume import newest

    try:
        found = newest(directory, Asked(run_id, steps(history), name, deep=False, worlds=sized(history)))
    except CheckpointError as error:
        raise OSError(str(error)) from error
    if found is None or found.step is None:
        return Newest()
    return Newest(found.step, found.round, found.save_ms)
