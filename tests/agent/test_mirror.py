"""The copy beside the checkpoints, against real files: killed writers, torn and foreign files, closed directories."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from remuster.agent.attempts import beside_checkpoints
from remuster.agent.files import FileThread
from remuster.agent.mirror import Mirror, read, write
from remuster.agent.node_state import Kept
from remuster.rendezvous.keys import Keys
from remuster.rendezvous.memory import MemoryStore
from remuster.rendezvous.mirrored import MAX_BYTES, Mirrored
from remuster.rendezvous.quarantine import QUARANTINE, Bar
from remuster.rendezvous.quarantine import encode as encode_bar
from remuster.rendezvous.records import Job, Outcome, Phase, Round, encode
from remuster.rendezvous.store import Put, Txn

RUN = "run-7"
JOB = Job(Phase.RUNNING, Round(3), 1, 2, "one", formed=Round(3), spent=(("hardware", 2),))
HISTORY = ((Round(1), -1), (Round(3), 150))


async def kept(directory: Path) -> Kept:
    files = FileThread()
    try:
        return await read(files, directory, RUN)
    finally:
        files.close()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return beside_checkpoints(tmp_path, RUN) / "job.json"


async def test_what_is_written_is_read_and_private(tmp_path: Path, path: Path) -> None:
    assert await kept(tmp_path) == Kept()
    assert write(path, RUN, Mirrored(JOB, HISTORY))
    assert await kept(tmp_path) == Kept(Mirrored(JOB, HISTORY))
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert os.listdir(path.parent) == ["job.json"], "no temporary is left"
    later = replace(JOB, phase=Phase.FORMING, round=Round(4))
    assert write(path, RUN, Mirrored(later, ()))
    assert await kept(tmp_path) == Kept(Mirrored(later, HISTORY)), "what an earlier leader knew is kept"


async def test_a_newer_state_is_never_overwritten(tmp_path: Path, path: Path) -> None:
    states = [
        replace(JOB, phase=Phase.FORMING, formed=Round(2)),
        JOB,
        replace(JOB, phase=Phase.FAILED, outcome=Outcome(3, "x")),
        replace(JOB, phase=Phase.FORMING, round=Round(4)),
    ]
    for i, state in enumerate(states):
        assert write(path, RUN, Mirrored(state))
        assert write(path, RUN, Mirrored(state)), "the same state again is none that is newer"
        for older in states[:i]:
            assert not write(path, RUN, Mirrored(older))
            assert (await kept(tmp_path)).run == Mirrored(state)
    assert os.listdir(path.parent) == ["job.json"]


SPOILT = {
    "empty": lambda p: p.write_bytes(b""),
    "torn": lambda p: p.write_bytes(p.read_bytes()[:-50]),
    "foreign": lambda p: p.write_bytes(p.read_bytes().replace(b"run-7", b"run-8")),
    "garbage": lambda p: p.write_bytes(os.urandom(300)),
    "newer version": lambda p: p.write_bytes(p.read_bytes().replace(b'"v": 1', b'"v": 9', 1)),
    "too large": lambda p: p.write_bytes(b" " * (MAX_BYTES + 1)),
    "a directory": lambda p: (p.unlink(), p.mkdir()),
    "a pipe": lambda p: (p.unlink(), os.mkfifo(p)),
    "a link": lambda p: (p.unlink(), p.symlink_to("/dev/zero")),
}


@pytest.mark.parametrize("how", SPOILT)
async def test_a_spoilt_copy_is_refused_in_words_with_a_way_out(tmp_path: Path, path: Path, how: str) -> None:
    write(path, RUN, Mirrored(JOB, HISTORY))
    SPOILT[how](path)
    found = await kept(tmp_path)
    assert found.run is None
    assert found.code == 2
    assert found.refused.startswith(f"the store knows nothing of this run, and its copy {path} cannot be ")
    assert f"move {path.parent} away to begin anew from round 1 with a whole budget" in found.refused
    assert "\n" not in found.refused
    if how != "a directory":
        assert write(path, RUN, Mirrored(JOB)), "a launch whose store knows the run mends it"
        assert (await kept(tmp_path)).run == Mirrored(JOB)
        assert not path.is_symlink()


async def test_a_directory_that_is_closed(tmp_path: Path, path: Path) -> None:
    write(path, RUN, Mirrored(JOB))
    path.parent.chmod(0)
    if os.geteuid() == 0:
        os.seteuid(65534)  # nothing is closed to root
    try:
        found = await kept(tmp_path)
        assert (found.run, found.code) == (None, 75)
        assert "cannot be read: Permission denied" in found.refused
        with pytest.raises(PermissionError):
            write(path, RUN, Mirrored(JOB))
    finally:
        os.seteuid(os.getuid())
        path.parent.chmod(0o700)


async def test_a_file_system_that_hangs(tmp_path: Path, path: Path) -> None:
    files = FileThread()
    release = threading.Event()
    files.post(release.wait)
    found = await read(files, tmp_path, RUN, 0.05)
    release.set()
    files.close()
    assert (found.run, found.code) == (None, 75)
    assert "no answer from the file system within 0.05 s" in found.refused


WRITER = """
import sys
from pathlib import Path
from dataclasses import replace
from remuster.agent.mirror import write
from remuster.rendezvous.mirrored import Mirrored
from remuster.rendezvous.records import Job, Phase, Round
job = Job(Phase.RUNNING, Round(1), 1, 2, "one", formed=Round(1), spent=(("hardware", 1),))
print("goes", flush=True)
for n in range(1, 1000000):
    write(Path(sys.argv[1]), "run-7", Mirrored(replace(job, round=Round(n), formed=Round(n), spent=(("hardware", n),))))
"""


async def test_a_writer_that_is_killed_leaves_a_whole_copy(tmp_path: Path, path: Path) -> None:
    last = 0
    for delay_s in (0.0, 0.003, 0.011, 0.027, 0.05):
        with subprocess.Popen([sys.executable, "-c", WRITER, path], stdout=subprocess.PIPE) as writer:
            assert writer.stdout is not None
            assert writer.stdout.readline() == b"goes\n"
            while (now := (await kept(tmp_path)).run) is None or now.job.round <= last:
                await asyncio.sleep(0)
            await asyncio.sleep(delay_s)
            writer.send_signal(signal.SIGKILL)
        found = await kept(tmp_path)
        assert found.run is not None, found.refused
        assert found.run.job.spent == (("hardware", found.run.job.round),)
        last = found.run.job.round


class Beside:
    """A mirror over a store in memory, and what it said."""

    def __init__(self, directory: Path, hosts: bool = False) -> None:
        self.said: list[str] = []
        self.ended: list[str] = []
        self.store = MemoryStore()
        self.keys = Keys(RUN)
        self.mirror = Mirror(directory, RUN, self.store, self.keys, self.said.append, self.ended.append, hosts)

    async def closes(self, n: int, step: int) -> None:
        entry = json.dumps({"path": "/c", "step": step, "format": "", "verified": "", "refused": [], "wall": 1.0})
        await self.store.txn(Txn((), (Put(self.keys.history(Round(n)), entry.encode()),)))


async def test_the_leader_keeps_the_newest_state_with_the_history_of_all_rounds(tmp_path: Path) -> None:
    beside = Beside(tmp_path)
    for n in range(1, 6):
        await beside.closes(n, 10 * n)
        beside.mirror.keep(replace(JOB, round=Round(n), formed=Round(n)))
    await beside.mirror.settle()
    history = tuple((Round(n), 10 * n) for n in range(1, 6))
    assert await kept(tmp_path) == Kept(Mirrored(replace(JOB, round=Round(5), formed=Round(5)), history))
    assert beside.said == []


BAR = Bar("gpu07~1", "gpu_ecc: x", 100, 3700, 1, 100, "run-7/3", 1)


async def test_what_is_held_against_hosts_is_kept_where_it_would_go_with_the_store(tmp_path: Path) -> None:
    """Red when it is asked of no store, and when a leader that cannot ask forgets it (``write``)."""
    for hosts in (False, True):
        beside = Beside(tmp_path, hosts)
        key = f"{beside.keys.root}{QUARANTINE}{BAR.host}"
        await beside.store.txn(Txn((), (Put(key, encode_bar(BAR)), Put(key + "x", b"no record"))))
        beside.mirror.keep(JOB)
        await beside.mirror.settle()
        assert await kept(tmp_path) == Kept(Mirrored(JOB, bars=(BAR,) if hosts else None))
    path = beside_checkpoints(tmp_path, RUN) / "job.json"
    later = replace(JOB, phase=Phase.FAILED, outcome=Outcome(75, "x"))
    assert write(path, RUN, Mirrored(later))
    assert await kept(tmp_path) == Kept(Mirrored(later, bars=(BAR,)))


async def test_trouble_is_said_once_and_harms_nobody(tmp_path: Path) -> None:
    (tmp_path / ".remuster").touch()  # where a directory ought to be
    beside = Beside(tmp_path)
    for n in (3, 4, 5):
        beside.mirror.keep(replace(JOB, round=Round(n), formed=Round(n)))
        await beside.mirror.settle()
    (said,) = beside.said
    assert "the copy of the job was not written to " in said


@pytest.mark.parametrize("here", [Round(9), Round(5)])
async def test_a_later_state_is_left_alone_and_that_of_another_store_ends_the_agent(
    tmp_path: Path, path: Path, here: Round
) -> None:
    """A later leader of the same store may have written it; where this store is not as far, another world goes on."""
    write(path, RUN, Mirrored(replace(JOB, round=Round(9), formed=Round(9))))
    beside = Beside(tmp_path)
    await beside.store.txn(Txn((), (Put(beside.keys.job, encode(replace(JOB, round=here, formed=here))),)))
    beside.mirror.keep(JOB)
    await beside.mirror.settle()
    (said,) = beside.said
    assert "a later state of the run stands there" in said
    assert [sentence.partition(";")[0] for sentence in beside.ended] == [
        f"another launch goes on with this run elsewhere: it is at round 9 in {path}, and this store at round 5"
    ] * (here < 9)
    assert (await kept(tmp_path)).run == Mirrored(replace(JOB, round=Round(9), formed=Round(9)))
