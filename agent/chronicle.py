"""What this agent tells people and keeps for them: a line for each turn of the job, each round's record, the report.

The leading agent writes a round's record into the store with the transaction that ends the round; every agent fetches
it, keeps it in its run directory, and takes verdict and report from it, so that all nodes say the same.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import cast

from ..rendezvous.errors import StoreError, TransientError
from ..rendezvous.keys import Keys
from ..rendezvous.records import Job, Phase, Round
from ..rendezvous.store import Store
from .files import FileThread
from .notes import LATER_S

SETTLE_S = 5.0  # at the end, for records under way
AGAIN_S = 1.0
MOST = 100  # rounds whose records are fetched at once, should a watch have skipped them


class Chronicle:
    """Follows the job record on one agent."""

    def __init__(
        self,
        store: Store,
        keys: Keys,
        files: FileThread,
        keep: Callable[[dict[str, object]], object],
        line: Callable[..., object],
    ) -> None:
        self._store = store
        self._keys = keys
        self._files = files
        self._keep = keep
        self._line = line
        self._last: Job | None = None
        self._fetched: set[Round] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.report = ""  # of the last round that failed
        self.failed: dict[str, object] = {}  # that round's record
        self.told: Callable[[dict[str, object]], object] = id  # is given each record, in the loop's own thread

    def job_seen(self, job: Job) -> None:
        """Take each job record in order: say what is new, fetch the record of a round that has ended."""
        before, self._last = self._last, job
        if before is not None and (before.phase, before.round) == (job.phase, job.round):
            return
        match job.phase:
            case Phase.FORMING:
                self._line("forming", round=job.round, nodes=f"{job.min_nodes}:{job.max_nodes}")
            case Phase.RUNNING:
                point = job.resume
                where = {"resume_step": point.step, "resume_from": point.path} if point and point.path else {}
                self._line("running", round=job.round, attempt=job.attempt, **where)
            case Phase.STOPPING:
                cause = job.cause
                why = {"cause": cause.kind, "node": cause.node} if cause else {}
                self._line("stopping", round=job.round, **why)
            case Phase.DONE | Phase.FAILED:
                outcome = job.outcome
                what = {"exit_code": outcome.exit_code, "why": outcome.sentence} if outcome else {}
                self._line("done" if job.phase is Phase.DONE else "failed", round=job.round, **what)
        if before is not None:  # a lagging watch may skip records: every round in between has ended
            for n in range(max(before.round, job.round - MOST), job.round + job.phase.over):
                self._fetch_once(Round(n))

    def has(self, n: Round) -> bool:
        """Tell whether round ``n`` has ended in view, so that its record is the leader's to write."""
        return n in self._fetched

    def _fetch_once(self, n: Round) -> None:
        if n in self._fetched:
            return
        self._fetched.add(n)
        task = asyncio.ensure_future(self._fetch(n))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _fetch(self, n: Round) -> None:
        while True:  # it was written in the midst of trouble, which may not be over
            try:
                found = (await self._store.range(self._keys.attempt(n))).one()
                break
            except TransientError:
                await asyncio.sleep(AGAIN_S)
            except StoreError as error:
                self._line("record not read", round=n, why=str(error))
                return
        if found is None:
            return  # a round that never formed has none
        record = _object(found.value)
        self._show(n, record)
        if self._last is not None and not self._last.phase.over:
            await asyncio.sleep(LATER_S)  # ranks start again now: a disk that is synced would hold them up
        await self._write(n, record)

    async def keep(self, n: Round, record: dict[str, object]) -> None:
        """Show a round's verdict and write its record."""
        self._show(n, record)
        await self._write(n, record)

    def _show(self, n: Round, record: dict[str, object]) -> None:
        self.told(record)
        verdict = record.get("verdict")
        if isinstance(verdict, dict) and record.get("state") != "done":
            said = cast("dict[str, object]", verdict)
            fields = {"class": said.get("class"), "family": said.get("family"), "decision": record.get("decision")}
            self._line("verdict", round=n, sentence=said.get("sentence"), **fields)
            self.report = str(record.get("report", ""))
            self.failed = record

    async def _write(self, n: Round, record: dict[str, object]) -> None:
        try:
            await self._files.run(self._keep, record)
        except (OSError, TimeoutError) as error:
            self._line("record not written", round=n, why=str(error))

    async def settle(self) -> None:
        """Wait, within a bound, until what was under way is kept."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=SETTLE_S)


def _object(raw: bytes) -> dict[str, object]:
    try:
        value: object = json.loads(raw)
    except (ValueError, RecursionError):
        return {}
    return cast("dict[str, object]", value) if isinstance(value, dict) else {}
