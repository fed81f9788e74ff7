"""What was seen of ranks of real frameworks at their end, without the frameworks: it needs no torch."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from command.cluster import Place

pytestmark = pytest.mark.process

# All of the work is done and saved, and one thread is still in a save's last barrier: Python waits for it at exit.
STAYS = """
import os, threading
if os.environ["RANK"] == "1" and os.environ["REMUSTER_ATTEMPT"] == "0":
    threading.Thread(target=threading.Event().wait).start()
print("saved", flush=True)
"""


def test_a_rank_that_never_exits_after_its_work_is_named_and_the_job_ends_well(place: Place) -> None:
    line = ("--nproc-per-node", "2", "--max-restarts", "1", "--hang-timeout", "2", "--shutdown-timeout", "1")
    node = place.command(*line, place.script("t.py", STAYS))
    assert node.exit_code(60) == 0, node.say()
    first, second = node.records()
    assert first["exit_codes"]["0"] == 0
    assert (first["verdict"]["class"], first["state"], second["state"]) == ("rank_hang", "retried", "done"), node.say()


# Megatron's ranks save through a Manager and through forked writers; torchrun left eight of them after four lost ranks.
WRITES = """
import multiprocessing, os, pathlib, signal, sys, time

def deaf(pipe):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    os.setsid()
    pipe.send(os.getpid())
    signal.pause()

if __name__ == "__main__":
    manager = multiprocessing.get_context("spawn").Manager()
    here, there = multiprocessing.Pipe()
    multiprocessing.get_context("fork").Process(target=deaf, args=(there,)).start()
    mine = [here.recv(), *(int(p) for p in pathlib.Path(f"/proc/self/task/{os.getpid()}/children").read_text().split())]
    place, rank = pathlib.Path(sys.argv[1]), os.environ["RANK"]
    if os.environ["REMUSTER_ATTEMPT"] == "0":
        (place / f"children-{rank}").write_text(" ".join(map(str, mine)))
        (place / f"ready-{rank}").touch()
        while not (place / "ready-0").exists() or not (place / "ready-1").exists():
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGKILL)
    before = [int(pid) for r in "01" for pid in (place / f"children-{r}").read_text().split()]
    (place / f"alive-{rank}").write_text(" ".join(str(pid) for pid in before if os.path.exists(f"/proc/{pid}")))
    os.kill(mine[0], signal.SIGKILL)
"""


def test_what_saves_for_a_rank_ends_with_its_attempt(place: Place, tmp_path: Path) -> None:
    script = place.script("t.py", WRITES)
    env = {"TMPDIR": "/tmp"}  # a socket's name has at most 108 bytes
    node = place.command("--nproc-per-node", "2", "--max-restarts", "1", script, tmp_path, env=env)
    assert node.exit_code(60) == 0, node.say()  # it also sees that nothing of either attempt is left
    for rank in (0, 1):
        pids = [int(pid) for pid in (tmp_path / f"children-{rank}").read_text().split()]
        assert len(set(pids)) >= 3, "a writer, a manager and a tracker of resources"
        assert (tmp_path / f"alive-{rank}").read_text() == ""
        assert not [pid for pid in pids if os.path.exists(f"/proc/{pid}")]
