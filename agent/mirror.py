"""The copy of the job beside the checkpoints, which outlives store and machines. An adapter over files and the store.

``read`` is called once, before an agent joins; the leading agent keeps the copy up to date (``Mirror``), on a thread of
its own and in a quiet moment: a file server that hangs delays no round and fences nobody. What stands there is judged
by ``rendezvous/mirrored.py``.
"""

from __future__ import annotations

import asyncio
import errno
import os
import stat
from collections.abc import Callable
from pathlib import Path

from ..rendezvous.errors import BadRecord, StoreError
from ..rendezvous.history import steps, worlds
from ..rendezvous.keys import Keys
from ..rendezvous.mirrored import MAX_BYTES, NOTHING, Mirrored, decode, held, newer, to_value
from ..rendezvous.quarantine import QUARANTINE, bars_of, worth_keeping
from ..rendezvous.records import Job, Phase, Round, decode_job, decode_roster
from ..rendezvous.snapshot import Snapshot, opened
from ..rendezvous.store import Get, Store, Txn, prefix_end
from .attempts import beside_checkpoints, sync_directory, write_whole
from .files import FileThread
from .node_state import Kept
from .run_dir import make_private, random_name

NAME = "job.json"
READ_S, WRITE_S, SETTLE_S = 10.0, 10.0, 10.0
STORE_S = 3.0  # for the history: at the end of a job its store may have gone
USAGE, STORAGE = 2, 75


class NoFile(OSError):
    """Something else than a file of bounded size stands there."""


def read_bytes(path: Path) -> bytes | None:
    """Return what stands in the copy, None when there is none. Blocks."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise NoFile("it is a link") from error
        raise
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise NoFile("it is no file")
        found = bytearray()
        while len(found) <= MAX_BYTES and (part := os.read(fd, MAX_BYTES)):
            found += part
        return bytes(found)
    finally:
        os.close(fd)


async def read(files: FileThread, checkpoint_dir: Path, run_id: str, timeout_s: float = READ_S) -> Kept:
    """Read the copy of a run, or say why none can go on from it: that matters where the store knows nothing."""
    path = beside_checkpoints(checkpoint_dir, run_id) / NAME
    try:
        raw = await files.run(read_bytes, path, timeout_s=timeout_s)
        return Kept() if raw is None else Kept(decode(run_id, raw))
    except (BadRecord, NoFile) as error:
        what, code = f"cannot be used ({error})", USAGE
    except TimeoutError:
        what, code = f"cannot be read: no answer from the file system within {timeout_s:g} s", STORAGE
    except OSError as error:
        what, code = f"cannot be read: {error.strerror or error}", STORAGE
    return Kept(
        None,
        f"the store knows nothing of this run, and its copy {path} {what}: which round and budget it had is not known; "
        f"mend that, or move {path.parent} away to begin anew from round 1 with a whole budget",
        code,
    )


def write(path: Path, run_id: str, mirrored: Mirrored) -> bool:
    """Replace the copy, whole and durable; False when a later state stands there already. Blocks."""
    make_private(path.parent)
    temporary = path.with_name(f".{NAME}.{random_name()}")
    before = _standing(path, run_id)
    if before is not None:
        history = dict(before.history) | dict(mirrored.history)
        same = before.job.formed == mirrored.job.formed and mirrored.job.phase is not Phase.DONE
        roster = mirrored.roster or (before.roster if same else None)
        bars = before.bars if mirrored.bars is None else mirrored.bars
        ranks = dict(before.worlds) | dict(mirrored.worlds)
        mirrored = Mirrored(mirrored.job, tuple(history.items()), roster, tuple(ranks.items()), bars)
    try:
        write_whole(temporary, to_value(run_id, mirrored))
        now = _standing(path, run_id)  # asked last: what was slow until here may have been overtaken
        if now is not None and newer(now.job, mirrored.job):
            return False
        temporary.rename(path)
    finally:
        temporary.unlink(missing_ok=True)
    sync_directory(path.parent)
    return True


def _standing(path: Path, run_id: str) -> Mirrored | None:
    """Return what stands there; what nobody could go on from is worth less than what the store says."""
    try:
        raw = read_bytes(path)
        return None if raw is None else decode(run_id, raw)
    except (BadRecord, OSError):
        return None


class Mirror:
    """Keeps the copy up to date while this agent leads: the newest state wins, those between need no copy."""

    def __init__(
        self,
        checkpoint_dir: Path,
        run_id: str,
        store: Store,
        keys: Keys,
        say: Callable[[str], None],
        end: Callable[[str], None],
        hosts: bool = False,  # what is held against hosts is kept, too: it would be lost with the store
    ) -> None:
        self._path = beside_checkpoints(checkpoint_dir, run_id) / NAME
        self._run_id = run_id
        self._store = store
        self._keys = keys
        self._say = say
        self._end = end  # this agent: the run goes on elsewhere
        self._hosts = hosts
        self._files = FileThread("mirror")
        self._next: Job | None = None
        self._task: asyncio.Task[None] | None = None
        self._failed = False

    def keep(self, job: Job) -> None:
        """Have this state copied; returns at once."""
        self._next = job
        if self._task is None or self._task.done():
            self._task = asyncio.ensure_future(self._work())

    async def settle(self) -> None:
        """Wait, within a bound, until the copy stands."""
        if self._task is not None:
            _, late = await asyncio.wait({self._task}, timeout=SETTLE_S)
            for task in late:
                task.cancel()
                self._say(f"the copy of the job in {self._path} is behind: no answer from the file system")
        self._files.close()

    async def _work(self) -> None:
        while (job := self._next) is not None:
            self._next = None
            mirrored = await self._with_rounds(job)
            try:
                written = await self._files.run(write, self._path, self._run_id, mirrored, timeout_s=WRITE_S)
                trouble = "" if written else await self._later_state()
            except (OSError, TimeoutError, StoreError, BadRecord) as error:
                trouble = str(error)
            if trouble and not self._failed:
                self._say(f"the copy of the job was not written to {self._path}: {trouble}")
            self._failed = bool(trouble)

    async def _later_state(self) -> str:
        """A later state stands there: a later leader's of this store, or that of a launch with another store.

        Whoever wrote it read this store before, if it is this one: asked after the copy, the store is as far.
        """
        standing = await self._files.run(_standing, self._path, self._run_id, timeout_s=WRITE_S)
        kv = (await self._store.range(self._keys.job)).one()
        here = 0 if kv is None else opened(kv, decode_job).round
        if standing is not None and standing.job.round > here:
            self._end(
                f"another launch goes on with this run elsewhere: it is at round {standing.job.round} in {self._path}, "
                f"and this store at round {here}; this one ends, so that not both write checkpoints"
            )
        return "a later state of the run stands there, and is left as it is"

    async def _with_rounds(self, job: Job) -> Mirrored:
        """Add what the store knows of the rounds; when it has gone, what stands in the copy is kept."""
        start = self._keys.histories
        held_at = self._keys.root + QUARANTINE
        reads = (Get(start, prefix_end(start)), Get(self._keys.roster(job.formed)), Get(held_at, prefix_end(held_at)))
        try:
            found = (
                await asyncio.wait_for(self._store.txn(Txn((), reads if self._hosts else reads[:2])), STORE_S)
            ).ranges
            history, roster = found[:2]
            last = roster.one()
            who = None if last is None else held(opened(last, decode_roster))
        except (StoreError, BadRecord, asyncio.TimeoutError):
            return Mirrored(job)
        known = Snapshot.read(self._keys, history).history()
        resumes = tuple((Round(n), NOTHING if step is None else step) for n, step in steps(known))
        bars = worth_keeping(bar for bar, _ in bars_of(found[2].items)[0].values()) if self._hosts else None
        return Mirrored(job, resumes, who, worlds(known), bars)
