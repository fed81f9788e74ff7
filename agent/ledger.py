"""What an agent does beside the job: the copy beside the checkpoints, events for people, the summary at the end.

``main.py`` hands on what it sees (``Aside``); nothing of it is loaded or done before the ranks of the round that just
began run, and nothing here can hold a round up. Only the agent that leads writes the copy and tells of events.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ..rendezvous.errors import StoreError
from ..rendezvous.history import entry, steps
from ..rendezvous.keys import Keys
from ..rendezvous.leader_words import Prove, Resumed, SelectResume
from ..rendezvous.mirrored import GAP, Mirrored
from ..rendezvous.records import Job, Phase, Round
from ..rendezvous.store import Store
from .aside import Seen
from .attempts import beside_checkpoints, for_people, sync_directory, write_whole
from .exclusion import Bad, after
from .files import FileThread
from .occurrences import Chosen, Happening, Occurrence, of_end, of_proof, of_record, of_resume
from .run_dir import make_private, random_name
from .spec import JobSpec
from .summary import Account, Row, row, summary

if TYPE_CHECKING:
    from .drain import Drain
    from .mirror import Mirror
    from .on_event import Herald

NAME = "summary.json"
FETCH_S = 3.0  # for records of attempts that were over before this agent came
MOST_FETCHED = 100


class Place(NamedTuple):
    """Where this agent is: its node, its run directory, and what it reaches the world through."""

    node: str
    run_dir: Path
    store: Store
    keys: Keys
    records: FileThread
    spare: Callable[[str], Callable[[tuple[int, ...]], None]]  # by who starts a child: its pid, for sweeps
    say: Callable[[str], None]
    end: Callable[[str], None]  # this agent, with a sentence


class Ledger:
    """Takes in what the agent saw, in order. ``begun_s``: when the command was started, in boottime."""

    def __init__(self, spec: JobSpec, place: Place, kept: Mirrored | None, begun_s: float) -> None:
        self._spec = spec
        self._place = place
        self._kept = kept
        self._begun_s = begun_s
        self._rows: list[Row] = []
        self.bad: tuple[Bad, ...] = ()  # nodes that are blamed by now
        self._job: Job | None = None
        self._led = False
        self._queue_ms: float | None = None
        self._chosen: dict[Round, Chosen] = {}
        self._fetch: asyncio.Task[None] | None = None
        self._mirror: Mirror | None = None
        if spec.checkpoint_dir is not None:
            from .mirror import Mirror

            self._mirror = Mirror(
                *(spec.checkpoint_dir, spec.run_id, place.store, place.keys, place.say, place.end),
                spec.embedded is not None,
            )
        self._drain: Drain | None = None
        self._herald: Herald | None = None
        if spec.on_event:
            from .on_event import Herald

            self._herald = Herald(spec.on_event, spec.run_id, place.spare("events"), place.say)

    def job_seen(self, seen: Seen) -> None:
        """Take a state of the job in, with whether this agent led when it saw it."""
        job = seen.job
        before, self._job, self._led = self._job, job, seen.leading
        if before is not None and (before.phase, before.round) == (job.phase, job.round):
            return
        if before is None and self._kept is not None and job.first == self._kept.job.round + GAP and not job.formed:
            self._place.say("the store knew nothing of this run: it goes on from its copy beside the checkpoints")
        if job.phase is Phase.RUNNING and job.round == job.first and self._begun_s > 0:  # not so when it is not known
            self._queue_ms = round((seen.at_s - self._begun_s) * 1000, 3)
        if job.phase.over and self._fetch is None:
            self._fetch = asyncio.ensure_future(self._fetch_missing(job))
        if not seen.leading:
            return
        if self._mirror is not None and job.phase is not Phase.STOPPING:
            self._mirror.keep(job)
        if job.phase is Phase.RUNNING and (chosen := self._chosen.get(job.round)) is not None:
            self._tell(of_resume(job, chosen))
        if job.phase is Phase.FAILED:
            self._tell(of_end(job))

    def chosen(self, ask: SelectResume, resumed: Resumed) -> None:
        """Remember how the resume point of a round was chosen, until it runs."""
        furthest = max((step for _, step in steps(ask.history) if step is not None), default=-1)
        self._chosen = {ask.round: Chosen(furthest, resumed.refused)}

    def recovered(self, ask: Prove, step: int) -> None:
        """Tell that a round has recovered."""
        self._tell(of_proof(ask, step))

    def record(self, record: Mapping[str, object]) -> None:
        """Take an attempt's record in."""
        self._rows.append(row(record))
        self.bad = after(self.bad, record)
        if record.get("judged_by") == self._place.node:
            for occurrence in of_record(record):
                self._tell(occurrence)
                if occurrence.event is Happening.QUARANTINE:
                    self._have_drained(occurrence)

    def _tell(self, occurrence: Occurrence | None) -> None:
        if occurrence is not None and self._herald is not None:
            self._herald.tell(occurrence)

    def _have_drained(self, occurrence: Occurrence) -> None:
        """Have the site's scheduler told of a host in quarantine, if the site says how."""
        if not self._spec.drain_command:
            return
        from .drain import Drain, Held

        if self._drain is None:
            self._drain = Drain(self._spec.drain_command, self._place.spare("drain"), self._place.say)
        sentence = occurrence.sentence.partition("is in quarantine: ")[2]
        self._drain.drain(Held(occurrence.host, self._spec.run_id, occurrence.cls, sentence))

    async def _fetch_missing(self, job: Job) -> None:
        """Read the records of attempts that this agent did not see the end of; its last ones come by themselves."""
        try:
            last_seen = min((n for one in self._rows if isinstance(n := one["round"], int)), default=job.round)
            for n in range(max(job.first, last_seen - MOST_FETCHED), last_seen):
                key = self._place.keys.attempt(Round(n))
                found = (await asyncio.wait_for(self._place.store.range(key), FETCH_S)).one()
                if found is not None:
                    self._rows.append(row(entry(found.value)))
        except (StoreError, asyncio.TimeoutError):
            return  # the summary then begins later than the launch did: it says which rounds it knows

    async def settle(self) -> None:
        """Write the summary, and wait within bounds for all that is under way."""
        if self._fetch is not None:
            await asyncio.wait({self._fetch}, timeout=FETCH_S)
        await asyncio.gather(self._summarize(), *(part.settle() for part in (self._mirror, self._herald) if part))

    async def _summarize(self) -> None:
        if self._job is None:
            return
        if self._drain is not None:
            await self._drain.settle()
        now = for_people(time.time())
        drained = {} if self._drain is None else self._drain.outcomes
        account = Account(self._spec.run_id, self._place.node, self._job, self._queue_ms, now, drained)
        value = summary(account, self._rows)
        paths = [self._place.run_dir / NAME]
        if self._led and self._job.phase.over and self._spec.checkpoint_dir is not None:
            beside = beside_checkpoints(self._spec.checkpoint_dir, self._spec.run_id)
            paths.append(beside / f"summary-round-{self._job.round}.json")
        for path in paths:
            try:
                await self._place.records.run(write, path, value)
            except (OSError, TimeoutError) as error:
                self._place.say(f"the summary was not written to {path}: {error}")


def write(path: Path, value: Mapping[str, object]) -> None:
    """Write or replace a summary, whole and durable. Blocks."""
    make_private(path.parent)
    temporary = path.with_name(f".{path.name}.{random_name()}")
    try:
        write_whole(temporary, value)
        temporary.rename(path)
    finally:
        temporary.unlink(missing_ok=True)
    sync_directory(path.parent)
