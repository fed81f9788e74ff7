"""What a script is started with: its arguments byte for byte, torchrun's environment and ours, and how it is run."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

import pytest
from command.cluster import STEADY, Place
from command.processes import until

pytestmark = pytest.mark.process

TELL = """
import json, os, sys
said = {"argv": [os.fsencode(a).hex() for a in sys.argv], "env": dict(os.environ), "flags": list(sys.orig_argv)}
open(f"said-{os.environ['RANK']}", "w").write(json.dumps(said, ensure_ascii=True))
"""
ARGS = [b"--lr", b"1e-3", b"caf\xe9", b"", b"a b", b"$HOME", b"cost: 5$$", b"--", b"-m", b"x=${local_rank}", b"\xff\n"]


def said(place: Place, rank: int) -> dict[str, object]:
    return json.loads((place.folder / f"said-{rank}").read_text())


def test_arguments_arrive_byte_for_byte(place: Place) -> None:
    node = place.command("--nproc-per-node", "2", place.script("t.py", TELL), *ARGS)
    assert node.exit_code() == 0, node.say()
    for rank in (0, 1):
        argv = [bytes.fromhex(a) for a in said(place, rank)["argv"]]  # type: ignore[union-attr]
        assert argv[1:] == [a.replace(b"${local_rank}", str(rank).encode()) for a in ARGS]


def test_a_module(place: Place) -> None:
    place.script("mine.py", TELL)
    node = place.command("-m", "mine", "--x", "1")
    assert node.exit_code() == 0, node.say()
    assert [bytes.fromhex(a) for a in said(place, 0)["argv"]][1:] == [b"--x", b"1"]  # type: ignore[union-attr]
    assert said(place, 0)["flags"] == [sys.executable, "-u", "-m", "mine", "--x", "1"]


def test_a_program_of_its_own(place: Place) -> None:
    node = place.command("--no-python", "--nproc-per-node", "2", "/bin/sh", "-c", 'echo "$RANK $0 $1"', "zero", b"\xe9")
    assert node.exit_code() == 0, node.say()
    assert sorted(node.out.splitlines()) == [b"0 zero \xe9", b"1 zero \xe9"]


def test_the_environment_is_torchruns_and_ours(place: Place) -> None:
    env = {"PET_NPROC_PER_NODE": "2", "TORCHELASTIC_RUN_ID": "stale", "REMUSTER_ROUND": "99", "MINE": "kept"}
    ends_once = "if os.environ['TORCHELASTIC_RESTART_COUNT'] == '0': sys.exit(3)\n"
    script = place.script("t.py", TELL + ends_once)
    node = place.command("--max-restarts", "4", "--rdzv-id", "the-run", "--role", "trainer", script, env=env)
    assert node.exit_code() == 0, node.say()
    for rank in (0, 1):
        got = said(place, rank)["env"]
        assert isinstance(got, dict)
        expected = {
            "LOCAL_RANK": str(rank),
            "RANK": str(rank),
            "GROUP_RANK": "0",
            "ROLE_NAME": "trainer",
            "ROLE_RANK": str(rank),
            "LOCAL_WORLD_SIZE": "2",
            "WORLD_SIZE": "2",
            "GROUP_WORLD_SIZE": "1",
            "ROLE_WORLD_SIZE": "2",
            "MASTER_ADDR": "127.0.0.1",
            "TORCHELASTIC_RESTART_COUNT": "1",
            "TORCHELASTIC_MAX_RESTARTS": "4",
            "TORCHELASTIC_RUN_ID": "the-run",
            "TORCHELASTIC_USE_AGENT_STORE": "False",
            "TORCHELASTIC_ERROR_FILE": str(node.run_dir / "attempt_1" / str(rank) / "error.json"),
            "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1",
            "OMP_NUM_THREADS": "1",
            "REMUSTER_RUN_ID": "the-run",
            "REMUSTER_ROUND": "2",
            "REMUSTER_ATTEMPT": "1",
            "MINE": "kept",
        }
        assert {name: got.get(name) for name in expected} == expected
        assert 1024 < int(got["MASTER_PORT"]) < 65536
        assert got["REMUSTER_TOKEN"] == f"the-run/2/{got['REMUSTER_INCARNATION']}"
        assert got["PET_NPROC_PER_NODE"] == "2"  # as under torchrun; some scripts read them


ERRORS = {1: "KeyError", 2: "ValueError"}  # two in a row of one kind would end the job


def test_the_master_port_is_new_in_every_round(place: Place) -> None:
    node = place.command("--nproc-per-node", "2", "--max-restarts", "2", STEADY, place.desk)
    ports = []
    for n in (1, 2, 3):
        ports.append(place.wait_round(n, 2)[0]["MASTER_PORT"])
        if n < 3:
            place.order("exit-0", n, f"1 {ERRORS[n]}: no")
    place.order("done")
    assert node.exit_code() == 0, node.say()
    assert len(set(ports)) == 3


def test_usr1_reaches_the_ranks_and_the_command_lives(place: Place) -> None:
    text = (
        "import os, signal, sys, time\n"
        "signal.signal(signal.SIGUSR1, lambda *_: sys.exit(0))\n"
        "open('up-' + os.environ['RANK'], 'w').close()\n"
        "time.sleep(60)\nsys.exit(5)\n"
    )
    node = place.command("--nproc-per-node", "2", place.script("t.py", text))
    until(lambda: (place.folder / "up-0").exists() and (place.folder / "up-1").exists(), "up", show=place.say)
    node.process.send_signal(signal.SIGUSR1)
    assert node.exit_code() == 0, node.say()


def test_a_rank_has_the_descriptors_it_should_have(place: Place) -> None:
    text = "import os; print(sorted(os.listdir('/proc/self/fd'))[:-1], os.readlink('/proc/self/fd/0'))"
    folder = os.open(place.folder, os.O_RDONLY)
    os.set_inheritable(folder, True)
    try:
        node = place.command("--nproc-per-node", "2", place.script("t.py", text))
    finally:
        os.close(folder)
    assert node.exit_code() == 0, node.say()
    assert node.out.splitlines() == [b"['0', '1', '2'] /dev/null"] * 2


def test_the_directories_are_this_users_alone(place: Place) -> None:
    node = place.command(place.script("t.py", ""))
    assert node.exit_code() == 0, node.say()
    for path in [node.run_dir, *node.run_dir.rglob("*")]:
        assert path.stat().st_mode & 0o077 == 0, path
    assert Path(node.run_dir / "attempt_0" / "0" / "stdout.log").exists()
