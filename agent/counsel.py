"""Who the job machine asks on the leading agent: how did the round end, and where does the next one re-enter?

Gathers what the pure judgements need (the newest committed step, the resume hook's answer) within bounds, and puts
the round's record together: the answer is written into the store with the transaction that ends or forms a round.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from ..health import wire
from ..health.evidence import RankExit
from ..health.verdict import LEAVE
from ..rendezvous.leader import Conclude, Concluded, Resumed, SelectResume, Stamps
from ..rendezvous.records import Outcome, ResumePoint, Round
from ..rendezvous.snapshot import Report
from . import report
from .attempts import AttemptFacts, AttemptState, Times, attempt_record
from .files import FileThread
from .hook import BuiltIn, Care, Hook, HookError, HookRequest, find_resume_point, parse_hook
from .judge import Allowance, Judgement, weigh
from .linux import boottime
from .node_state import NodeState
from .spec import JobSpec

NEWEST_S = 3.0  # for a look at the newest committed step while ranks are still being stopped
HOOK_S = 600.0  # for a choice: digests of a large checkpoint take minutes
REPORT_BYTES = 16 << 10  # of the report in a record
SENTENCE = 300


@dataclass(frozen=True, slots=True)
class Bench:
    """The judge and the resume hook of one agent; used while it leads."""

    spec: JobSpec
    files: FileThread
    spare: Callable[[tuple[int, ...]], None]
    say: Callable[[str], None]

    async def judge(self, ask: Conclude) -> Concluded:
        """Answer the job machine's question about a round."""
        newest = await self._newest()
        allowance = Allowance(self.spec.max_restarts if self.spec.bound_restarts else None, self.spec.retry_budget)
        made = weigh(ask, allowance, newest)
        state = AttemptState.DONE if ask.done else AttemptState.RECOVERED if made.retry else AttemptState.FAILED
        record = self._record(ask, made, state)
        return Concluded(boottime(), ask.round, made.retry, made.charge, made.outcome, record, ask.done)

    def own_record(self, state: NodeState) -> bytes | None:
        """Return the record of a round that this agent leaves before anybody has judged it; None when it ran none."""
        roster, job = state.roster, state.job
        if roster is None or job is None or roster.round != state.round:
            return None
        mine = ((state.settings.node, Report(wire.encode(state.facts), 0)),)
        ask = Conclude(state.round, job.job, roster, mine, (), True, False, (), Stamps(), "this node leaves")
        allowance = Allowance(0, self.spec.retry_budget)
        return self._record(ask, weigh(ask, allowance, -1), AttemptState.FAILED)

    async def _newest(self) -> int:
        if self.spec.checkpoint_dir is None:
            return -1
        try:
            return await self.files.run(_newest_committed, self.spec.checkpoint_dir, timeout_s=NEWEST_S)
        except (OSError, TimeoutError) as error:
            self.say(f"the newest checkpoint could not be looked at: {error}")
            return -1

    async def resume(self, ask: SelectResume) -> Resumed:
        """Choose where a round re-enters; a hook that fails ends the job, in words."""
        hook = self._hook()
        if hook is None:
            return Resumed(boottime(), ask.round, ResumePoint())
        request = HookRequest(self.spec.run_id, ask.round, self.spec.checkpoint_dir, ask.roster, _steps(ask.history))
        care = Care(FileThread("hook"), HOOK_S, self.spare, self.say)
        try:
            result = await find_resume_point(hook, request, care)
        except HookError as error:
            outcome = Outcome(1, f"{error}; the round was not started"[:SENTENCE], "user_exception")
            return Resumed(boottime(), ask.round, ResumePoint(), outcome=outcome)
        finally:
            care.files.close()
        for name, reason in result.refused:
            self.say(f"checkpoint {name} is passed over: {reason}")
        return Resumed(boottime(), ask.round, result.point, result.refused)

    def _hook(self) -> Hook | None:
        if self.spec.resume_hook is not None:
            return parse_hook(self.spec.resume_hook)
        return None if self.spec.checkpoint_dir is None else BuiltIn(self.spec.checkpoint_dir)

    def _record(self, ask: Conclude, made: Judgement, state: AttemptState) -> bytes:
        point, refused = _resumed(ask.history, ask.round)
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
            evidence=made.evidence.nodes,
            resume=point,
            refused=refused,
            times=_times(ask),
            ended_at=time.time(),
        )
        record = attempt_record(facts)
        record["decision"] = made.reason
        record["charged_to"] = made.family or None
        record["spent"] = dict(made.charge.spent)
        if not ask.done and made.verdict.cls != LEAVE:  # whoever is asked to go has not failed
            rows = report.failures(made.evidence, made.verdict)
            ended = "" if made.retry else made.reason
            record["report"] = report.render(self.spec.script, made.verdict, rows, ended)[:REPORT_BYTES]
        return json.dumps(record, separators=(",", ":")).encode()


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
        "fingerprint": v.fingerprint,
        "victims": [{"node": node, "rank": rank, "status": status} for node, rank, status in v.victims],
        "used": list(v.used),
        "unused": list(v.unused),
    }


def _times(ask: Conclude) -> Times:
    s, now = ask.stamps, boottime()

    def between(start: float | None, end: float | None) -> float | None:
        return None if start is None or end is None else round((end - start) * 1000, 3)

    return Times(
        stop=between(s.stopping, s.gathered),
        decide=between(s.gathered, now),
        form=between(s.forming, s.formed),
        spawn=between(s.formed, s.started),
    )


def _entry(raw: bytes) -> dict[str, object]:
    value: object = json.loads(raw)
    return cast("dict[str, object]", value) if isinstance(value, dict) else {}


def _steps(history: tuple[tuple[Round, bytes], ...]) -> tuple[tuple[int, int | None], ...]:
    out: list[tuple[int, int | None]] = []
    for n, raw in history:
        step = _entry(raw).get("step")
        out.append((n, step if isinstance(step, int) and step >= 0 else None))
    return tuple(out)


def _resumed(
    history: tuple[tuple[Round, bytes], ...], n: Round
) -> tuple[ResumePoint | None, tuple[tuple[str, str], ...]]:
    """Return where round ``n`` resumed and what was passed over, as its close wrote it."""
    entry = next((_entry(raw) for m, raw in history if m == n), None)
    if entry is None:
        return None, ()
    step = entry.get("step")
    path, fmt, verified = (str(entry.get(name, "")) for name in ("path", "format", "verified"))
    point = ResumePoint(path, step if isinstance(step, int) else -1, fmt, verified)
    pairs = entry.get("refused")
    found = cast("list[list[object]]", pairs) if isinstance(pairs, list) else []
    return point, tuple((str(pair[0]), str(pair[1])) for pair in found if len(pair) == 2)


def _newest_committed(directory: Path) -> int:
    """Return the newest step whose COMMITTED vouches for its manifest; its files are not hashed. Blocks."""
    from ..checkpoint.manifest import Manifest
    from ..checkpoint.patience import Patience
    from ..checkpoint.scan import scan
    from ..checkpoint.verify import read_manifest

    patience = Patience(())
    for candidate in scan(directory, patience).candidates:
        if isinstance(read_manifest(directory / candidate.name, patience), Manifest):
            return candidate.step
    return -1
