"""Scenarios about the command line and what ranks inherit, each named after its row in the project's list.

Each docstring says what was broken in a copy of the product to see the test fail.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from command.cluster import STEADY, Place

pytestmark = pytest.mark.process

TELL = """
import json, os, sys
said = {"argv": sys.argv[1:], "python": sys.executable, "env": dict(os.environ)}
said["cpus"] = sorted(os.sched_getaffinity(0))
with open(f"said-{os.environ['RANK']}", "w") as file:
    json.dump(said, file)
"""


def said(place: Place, world: int) -> list[dict[str, Any]]:
    """Return what each rank said of itself, once."""
    files = [place.folder / f"said-{rank}" for rank in range(world)]
    found = [json.loads(file.read_text()) for file in files]
    for file in files:
        file.unlink()
    return found


# --- B08 --------------------------------------------------------------------------------------------------------------
def test_b08_the_scripts_arguments_are_the_scripts(place: Place) -> None:
    """Red when flags are looked for behind the script, too (``split`` in argv.py)."""
    script = place.script("t.py", TELL)
    args = ["--r=16", "--role=x", "-m", "y", "--nnodes", "9", "--help", "--", ""]
    lines: list[list[str]] = [["--nproc_per", "2", "--max_r", "1"], ["--nproc-per-node=2", "--"]]
    for before in lines:
        node = place.command(*before, script, *args)
        assert node.exit_code() == 0, node.say()
        told = said(place, 2)
        assert [one["argv"] for one in told] == [args, args]
        assert {one["env"]["ROLE_NAME"] for one in told} == {"default"}
        assert {one["env"]["TORCHELASTIC_MAX_RESTARTS"] for one in told} == {"1" if "--max_r" in before else "0"}


# --- B10 --------------------------------------------------------------------------------------------------------------
def test_b10_the_launcher_of_another_environment(place: Place) -> None:
    """Red without the warning of ``say_interpreter``, and when --python is not heeded (``interpreter``)."""
    venv = place.folder / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
    (packages,) = venv.glob("lib/python*/site-packages")
    (packages / "only_there.py").touch()
    script = place.script("t.py", TELL + "import only_there\n")
    python = str(venv / "bin" / "python")
    env = {"VIRTUAL_ENV": str(venv), "PATH": f"{Path(sys.executable).parent}:{venv / 'bin'}:{os.environ['PATH']}"}

    node = place.command(script, env=env)
    assert node.exit_code() == 1, node.say()
    assert "ModuleNotFoundError: No module named 'only_there'" in node.err
    assert said(place, 1)[0]["python"] == sys.executable
    assert node.err.count(f"ranks run {sys.executable}") == 1
    assert f"the active environment is {venv}" in node.err
    assert f"give --python {python} if the former is meant" in node.err

    for options, more in ((("--python", python), {}), ((), {"PYTHON_EXEC": python}), ((), {"PET_PYTHON": python})):
        node = place.command(*options, script, env=env | more)
        assert node.exit_code() == 0, node.say()
        assert said(place, 1)[0]["python"] == python
        assert node.err.count(f"ranks run {python}") == 1
        assert "the active environment" not in node.err


# --- B24 --------------------------------------------------------------------------------------------------------------
ONE = "--exit-code=torchrun"


@pytest.mark.parametrize("how", ["sys.exit(42)", "os.kill(os.getpid(), signal.SIGKILL)"])
def test_b24_the_exit_code_is_1_when_a_rank_fails_and_that_is_asked_for(place: Place, how: str) -> None:
    """Red when --exit-code is not heeded (``cli.run``). Without it: test_exit_codes.py and test_failures.py."""
    script = place.script("t.py", f"import os, signal, sys\nif os.environ['RANK'] == '1': {how}\n")
    node = place.command(ONE, "--nproc-per-node", "2", script)
    assert node.exit_code() == 1, node.say()


def test_b24_nor_do_a_signal_to_the_command_and_nodes_that_cannot_meet_say_more(place: Place) -> None:
    """Red as above."""
    node = place.command(ONE, STEADY, place.desk)
    place.wait_round(1, 1)
    node.process.send_signal(signal.SIGTERM)
    assert node.exit_code() == 1, node.say()
    nobody = "--nnodes 2 --rdzv-backend etcd --rdzv-endpoint 127.0.0.1:1 --rdzv-id x --rdzv-conf connect_timeout=0.2"
    node = place.command(ONE, *nobody.split(), place.script("t.py", ""))
    assert node.exit_code() == 1, node.say()


# --- B55 --------------------------------------------------------------------------------------------------------------
LEAKED = {
    "SLURM_PROCID": "3",
    "SLURM_LOCALID": "3",
    "SLURM_NTASKS": "4",
    "OMPI_COMM_WORLD_RANK": "3",
    "OMPI_COMM_WORLD_SIZE": "4",
    "PMI_RANK": "3",
    "PMIX_RANK": "3",
}
KEPT = {"SLURM_JOB_ID": "4711", "SLURM_NNODES": "1", "MINE": "1"}


@pytest.mark.parametrize("level", ["INFO", "DEBUG"])
def test_b55_what_mpi_and_srun_leave_is_taken_out_when_asked(place: Place, level: str) -> None:
    """Red when ``rank_env`` does not take away what ``scrubbed`` names; when the list is noted as a line."""
    env = LEAKED | KEPT | {"LOGLEVEL": level}
    node = place.command("--scrub-env", "--nproc-per-node", "2", place.script("t.py", TELL), env=env)
    assert node.exit_code() == 0, node.say()
    for rank, told in enumerate(said(place, 2)):
        assert not LEAKED.keys() & told["env"].keys()
        assert KEPT.items() <= told["env"].items()
        assert (told["env"]["RANK"], told["env"]["WORLD_SIZE"]) == (str(rank), "2")
    listed = node.events("taken out of the ranks' environment")
    assert [one["names"] for one in listed] == ([sorted(LEAKED)] if level == "DEBUG" else [])
    assert ("taken out of the ranks' environment" in node.err) == (level == "DEBUG")


@pytest.mark.parametrize(
    ("options", "job"), [((), {}), (("--no-scrub-env",), {"SLURM_JOB_ID": "4711"})], ids=["no Slurm", "Slurm"]
)
def test_b55_nobody_asked(place: Place, options: tuple[str, ...], job: dict[str, str]) -> None:
    """Red when the environment is scrubbed by default: torchrun's ranks inherit everything."""
    node = place.command(*options, place.script("t.py", TELL), env=LEAKED | job)
    assert node.exit_code() == 0, node.say()
    assert LEAKED.items() <= said(place, 1)[0]["env"].items()


def test_b55_a_task_of_slurm_is_no_rank(place: Place) -> None:
    """Red when nothing is scrubbed under Slurm unless asked (``_scrub_env`` in build.py)."""
    node = place.command("--nproc-per-node", "2", place.script("t.py", TELL), env=LEAKED | KEPT)
    assert node.exit_code() == 0, node.say()
    for told in said(place, 2):
        assert not LEAKED.keys() & told["env"].keys()
        assert KEPT.items() <= told["env"].items()


# --- B56 --------------------------------------------------------------------------------------------------------------
@contextlib.contextmanager
def on_one_cpu() -> Iterator[int]:
    """Let what is started meanwhile run on one CPU alone, as srun does without --cpus-per-task."""
    before = os.sched_getaffinity(0)
    cpu = max(before)
    os.sched_setaffinity(0, {cpu})
    try:
        yield cpu
    finally:
        os.sched_setaffinity(0, before)


STEP = {"SLURM_JOB_ID": "4711", "SLURM_STEP_ID": "0", "SLURM_STEP_NODELIST": "node1", "SLURM_STEP_NUM_NODES": "1"}


@pytest.mark.parametrize(
    ("env", "advice"),
    [(STEP, "write srun --cpus-per-task=2 or more"), ({"SLURM_JOB_ID": "4711"}, "give sbatch or salloc --cpus-per")],
    ids=["srun", "a batch script"],
)
def test_b56_what_slurm_is_to_be_given(place: Place, env: dict[str, str], advice: str) -> None:
    """Red when the advice does not tell srun's step from the batch script (``starting.cpus``)."""
    with on_one_cpu():
        node = place.command("--nproc-per-node", "2", place.script("t.py", "pass"), env=env)
    assert node.exit_code() == 0, node.say()
    assert node.err.count(advice) == 1


@pytest.mark.parametrize("mode", ["", "node", "socket", "exclusive", "core-complex"])
def test_b56_four_ranks_on_the_one_cpu_that_they_may_use(place: Place, mode: str) -> None:
    """Red when CPUs are taken from all of the machine's (``read_cpus(range(os.cpu_count()))``); without the warning."""
    omp = {"OMP_NUM_THREADS": "3"} if mode == "node" else {}
    with on_one_cpu() as cpu:
        options = (f"--numa-binding={mode}",) if mode else ()
        env = {"CUDA_VISIBLE_DEVICES": "", **omp}
        node = place.command(*options, "--nproc-per-node", "4", place.script("t.py", TELL), env=env)
    assert node.exit_code() == 0, node.say()
    told = said(place, 4)
    assert [one["cpus"] for one in told] == [[cpu]] * 4
    assert {one["env"]["OMP_NUM_THREADS"] for one in told} == {"3" if omp else "1"}
    assert node.err.count(f"4 ranks share the 1 of {os.cpu_count()} CPUs that this command may use") == 1
    assert node.err.count("OMP_NUM_THREADS is set to 1 for each rank") == (0 if omp else 1)
    bound = {"": 0, "exclusive": 0}.get(mode, 1)
    assert node.err.count(f"binds local ranks 0-3 to CPUs {cpu}\n") == bound
    assert node.err.count("the ranks run unbound") == (mode == "exclusive")


def test_b56_each_rank_has_its_own_core(place: Place) -> None:
    """Red when the guardian drops the CPUs of an order (``_bind``)."""
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("there is one CPU to be had")
    env = {"CUDA_VISIBLE_DEVICES": ""}
    line = ("--numa-binding", "exclusive", "--nproc-per-node", "2")
    node = place.command(*line, place.script("t.py", TELL), env=env)
    assert node.exit_code() == 0, node.say()
    first, second = (set(one["cpus"]) for one in said(place, 2))
    if "the ranks run unbound" not in node.err:  # two CPUs of one core cannot be shared out
        assert first
        assert second
        assert not first & second
