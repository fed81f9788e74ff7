"""The environment and the command line of a rank, as tables."""

from __future__ import annotations

import string
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuster.agent.spec import JobSpec
from remuster.agent.worker_env import RankPlace, hook_may_set, rank_argv, rank_env
from remuster.rendezvous.records import Incarnation, Job, Member, NodeId, Phase, ResumePoint, Roster, Round

SPEC = JobSpec(min_nodes=1, max_nodes=1, nproc=2, run_id="run-7", script="train.py", max_restarts=3, role="trainer")
ROSTER = Roster(
    Round(9),
    (
        Member(NodeId("a"), Incarnation(0x1A), "m1", 3, "10.0.0.1"),
        Member(NodeId("b"), Incarnation(0x2B), "m2", 2, "10.0.0.2"),
    ),
)
JOB = Job(Phase.RUNNING, Round(9), 1, 2, "launch", first=Round(7), master="10.0.0.1:41234")

EXPECTED = {
    "LOCAL_RANK": "1",
    "RANK": "4",
    "GROUP_RANK": "1",
    "ROLE_NAME": "trainer",
    "ROLE_RANK": "4",
    "LOCAL_WORLD_SIZE": "2",
    "WORLD_SIZE": "5",
    "GROUP_WORLD_SIZE": "2",
    "ROLE_WORLD_SIZE": "5",
    "MASTER_ADDR": "10.0.0.1",
    "MASTER_PORT": "41234",
    "TORCHELASTIC_RESTART_COUNT": "2",
    "TORCHELASTIC_MAX_RESTARTS": "3",
    "TORCHELASTIC_RUN_ID": "run-7",
    "TORCHELASTIC_USE_AGENT_STORE": "False",
    "TORCHELASTIC_ERROR_FILE": "/logs/error.json",
    "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1",
    "OMP_NUM_THREADS": "1",
    "REMUSTER_RUN_ID": "run-7",
    "REMUSTER_ROUND": "9",
    "REMUSTER_ATTEMPT": "2",
    "REMUSTER_INCARNATION": "2b",
    "REMUSTER_NODE": "b",
    "REMUSTER_TOKEN": "run-7/9/2b",
}


def test_the_whole_table() -> None:
    env = rank_env(SPEC, RankPlace(JOB, ROSTER, 1, 1), "/logs/error.json", {"PATH": "/bin"})
    assert env.set == EXPECTED
    assert env.unset == ()
    assert env.omp_defaulted


def test_ranks_of_unequal_nodes_are_contiguous() -> None:
    places = [(g, r) for g, m in enumerate(ROSTER.members) for r in range(m.slots)]
    envs = [rank_env(SPEC, RankPlace(JOB, ROSTER, g, r), "", {}).set for g, r in places]
    assert [e["RANK"] for e in envs] == ["0", "1", "2", "3", "4"]
    assert [e["LOCAL_RANK"] for e in envs] == ["0", "1", "2", "0", "1"]


def test_ranks_are_numbered_within_their_role_too() -> None:
    roles = ("trainer", "server", "trainer")
    roster = Roster(Round(9), tuple(ROSTER.members[0]._replace(slots=i + 1, role=role) for i, role in enumerate(roles)))
    envs = [
        rank_env(SPEC, RankPlace(JOB, roster, g, r), "", {}).set
        for g, member in enumerate(roster.members)
        for r in range(member.slots)
    ]
    said = [(e["RANK"], e["ROLE_RANK"], e["ROLE_WORLD_SIZE"]) for e in envs]
    assert said == [
        ("0", "0", "4"),
        ("1", "0", "2"),
        ("2", "1", "2"),
        ("3", "1", "4"),
        ("4", "2", "4"),
        ("5", "3", "4"),
    ]


@pytest.mark.parametrize(
    ("inherited", "slots", "expected", "defaulted"),
    [({}, 2, "1", True), ({}, 1, None, False), ({"OMP_NUM_THREADS": "4"}, 2, None, False)],
)
def test_omp_threads(inherited: dict[str, str], slots: int, expected: str | None, defaulted: bool) -> None:
    roster = Roster(Round(9), (ROSTER.members[0]._replace(slots=slots),))
    env = rank_env(SPEC, RankPlace(JOB, roster, 0, 0), "", inherited)
    assert (env.set.get("OMP_NUM_THREADS"), env.omp_defaulted) == (expected, defaulted)


def test_nccl_error_handling_is_inherited() -> None:
    env = rank_env(SPEC, RankPlace(JOB, ROSTER, 0, 0), "", {"TORCH_NCCL_ASYNC_ERROR_HANDLING": "3"})
    assert env.set["TORCH_NCCL_ASYNC_ERROR_HANDLING"] == "3"


def test_settings_of_agents_and_of_an_outer_launch_do_not_leak() -> None:
    outer = {
        "PET_NNODES": "4",  # torchrun leaves them, and some scripts read PET_NODE_RANK
        "PET_ON_EVENT": "https://host/hook?token=secret",
        "REMUSTER_RESUME_FROM": "/old",
        "REMUSTER_TOKEN": "outer/1/f",
        "TORCHELASTIC_ERROR_FILE": "/outer/error.json",
        "TORCHELASTIC_SIGNALS_TO_HANDLE": "SIGUSR1",
        "TORCH_HOME": "/t",
        "HOME": "/root",
    }
    env = rank_env(SPEC, RankPlace(JOB, ROSTER, 0, 0), "/logs/error.json", outer)
    assert env.unset == ("PET_ON_EVENT", "REMUSTER_RESUME_FROM", "TORCHELASTIC_SIGNALS_TO_HANDLE")
    assert env.set["REMUSTER_TOKEN"] == "run-7/9/1a"
    assert env.set["TORCHELASTIC_ERROR_FILE"] == "/logs/error.json"


def test_the_way_back_in() -> None:
    spec = replace(SPEC, checkpoint_dir=Path("/ckpt"))
    point = ResumePoint("/ckpt/step-000000000040", 40, "own", "digests", (("MY_SEED", "7"), ("RANK", "0")))
    env = rank_env(spec, RankPlace(replace(JOB, resume=point), ROSTER, 0, 0), "", {}).set
    assert env["REMUSTER_CHECKPOINT_DIR"] == "/ckpt"
    assert env["REMUSTER_RESUME_FROM"] == "/ckpt/step-000000000040"
    assert env["REMUSTER_RESUME_STEP"] == "40"
    assert env["MY_SEED"] == "7"
    assert env["RANK"] == "0"  # group rank 0, local rank 0: ours
    env = rank_env(spec, RankPlace(replace(JOB, resume=point), ROSTER, 1, 0), "", {}).set
    assert env["RANK"] == "3"  # a point written by another node cannot move it either
    agreed = replace(JOB, resume=point._replace(path="/leader/step-000000000040", name="step-000000000040"))
    env = rank_env(spec, RankPlace(agreed, ROSTER, 1, 0), "", {}).set
    assert env["REMUSTER_RESUME_FROM"] == "/ckpt/step-000000000040"  # in this node's own directory
    nothing = rank_env(spec, RankPlace(replace(JOB, resume=ResumePoint()), ROSTER, 0, 0), "", {}).set
    assert "REMUSTER_RESUME_FROM" not in nothing
    assert "REMUSTER_RESUME_STEP" not in nothing


@pytest.mark.parametrize(
    ("master", "addr", "port"),
    [
        ("[fd00::1]:29500", "fd00::1", "29500"),
        ("fd00::1:29500", "fd00::1", "29500"),
        ("node-0.cluster:29500", "node-0.cluster", "29500"),  # a name stays a name, as with torchrun
        ("localhost:1", "localhost", "1"),
    ],
)
def test_the_master_is_written_as_given_but_for_brackets(master: str, addr: str, port: str) -> None:
    env = rank_env(SPEC, RankPlace(replace(JOB, master=master), ROSTER, 0, 0), "", {}).set
    assert (env["MASTER_ADDR"], env["MASTER_PORT"]) == (addr, port)


@pytest.mark.parametrize(
    ("visible", "expected"),
    [(None, "1"), ("3,5", "5"), ("GPU-a, GPU-b ,GPU-c", "GPU-b"), ("", ""), (" ", " ")],
)
def test_a_device_of_its_own(visible: str | None, expected: str) -> None:
    spec, place = replace(SPEC, virtual_local_rank=True), RankPlace(JOB, ROSTER, 1, 1)
    env = rank_env(spec, place, "", {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}).set
    assert (env["LOCAL_RANK"], env["CUDA_VISIBLE_DEVICES"]) == ("0", expected)
    assert (env["RANK"], env["LOCAL_WORLD_SIZE"]) == ("4", "2")
    assert rank_argv(replace(spec, script_args=("$local_rank",)), 1)[-1] == "1"  # torchrun's macro knows of no disguise


OTHERS = """OMPI_COMM_WORLD_RANK OMPI_MCA_btl PMI_RANK PMI2_SIZE PMIX_RANK PALS_RANKID MV2_COMM_WORLD_RANK
MPI_LOCALRANKID MPI_LOCALNRANKS HYDRA_CONTROL_FD SLURM_PROCID SLURM_LOCALID SLURM_NTASKS SLURM_NTASKS_PER_NODE
SLURM_NPROCS SLURM_GTIDS SLURM_TASK_PID SLURM_TASKS_PER_NODE SLURM_STEP_NUM_TASKS SLURM_STEP_TASKS_PER_NODE
SLURM_STEP_LAUNCHER_PORT SLURM_MPI_TYPE SLURM_PMIX_MAPPING_SERV SLURM_SRUN_COMM_PORT"""
STAY = """SLURM_JOB_ID SLURM_JOBID SLURM_JOB_NODELIST SLURM_NNODES SLURM_NODEID SLURM_NODELIST SLURM_CPUS_PER_TASK
SLURM_ARRAY_TASK_ID SLURM_JOB_NUM_NODES SLURM_RESTART_COUNT SLURM_SUBMIT_DIR SLURM_STEP_ID MPI_HOME PMI OMPI
I_MPI_FABRICS MPICH_GPU_SUPPORT_ENABLED XPMI_RANK"""


def test_what_other_launchers_have_left_is_taken_out_when_asked() -> None:
    inherited = dict.fromkeys([*OTHERS.split(), *STAY.split()], "1")
    place = RankPlace(JOB, ROSTER, 0, 0)
    assert rank_env(replace(SPEC, scrub_env=True), place, "", inherited).unset == tuple(sorted(OTHERS.split()))
    assert rank_env(SPEC, place, "", inherited).unset == ()


@pytest.mark.parametrize("name", ["MY_SEED", "NCCL_DEBUG", "TORCH_NCCL_TRACE_BUFFER_SIZE", "OMP_NUM_THREADS", "LR"])
def test_a_hook_may_set(name: str) -> None:
    assert hook_may_set(name)


RESERVED = """RANK WORLD_SIZE LOCAL_RANK GROUP_RANK NODE_RANK MASTER_ADDR MASTER_PORT LD_PRELOAD LD_LIBRARY_PATH
PYTHONPATH PYTHONSTARTUP PATH HOME REMUSTER_TOKEN TORCHELASTIC_RUN_ID PET_NNODES BASH_ENV CUDA_VISIBLE_DEVICES
ROCR_VISIBLE_DEVICES NCCL_NET_PLUGIN GLIBC_TUNABLES SLURM_PROCID lower 1X A-B A=B"""


@pytest.mark.parametrize("name", [*RESERVED.split(), "", "A\n", "É"])
def test_a_hook_may_not_set(name: str) -> None:
    assert not hook_may_set(name)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, ("py", "-u", "train.py", "--x", "1")),
        ({"module": True}, ("py", "-u", "-m", "train.py", "--x", "1")),
        ({"no_python": True}, ("train.py", "--x", "1")),
        ({"runner": "/r.py"}, ("py", "-u", "/r.py", "train.py", "--x", "1")),
    ],
)
def test_command_lines(change: dict[str, bool | str], expected: tuple[str, ...]) -> None:
    spec = replace(SPEC, python="py", script_args=("--x", "1"), **change)  # type: ignore[arg-type]
    assert rank_argv(spec, 0) == expected


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/c/step-5", ("--load", "/c", "--at=5", "{x} step-5 /c/step-5")),
        ("/c/a b/{step}", ("--load", "/c/a b", "--at=5", "{x} {step} /c/a b/{step}")),  # filled in once
        ("/c", ("--load", "/", "--at=5", "{x} c /c")),
        ("", ()),
    ],
)
def test_a_checkpoint_is_named_among_the_arguments(path: str, expected: tuple[str, ...]) -> None:
    words = ("--load", "{dir}", "--at={step}", "{x} {name} {path}")
    spec = replace(SPEC, no_python=True, script_args=("a",), checkpoint_args=words)
    assert rank_argv(spec, 0, ResumePoint(path, 5))[1:] == ("a", *expected)
    assert rank_argv(spec, 0, None)[1:] == ("a",)


def test_each_node_is_given_the_path_in_its_own_directory() -> None:
    words = ("{path}", "{dir}", "{name}")
    spec = replace(SPEC, no_python=True, checkpoint_dir=Path("/mine"), checkpoint_args=words)
    agreed = ResumePoint("/leader/checkpoint-5", 5, name="checkpoint-5")
    assert rank_argv(spec, 0, agreed)[1:] == ("/mine/checkpoint-5", "/mine", "checkpoint-5")


@pytest.mark.parametrize(
    ("arg", "expected"),
    [
        ("--local-rank=${local_rank}", "--local-rank=3"),
        ("$local_rank/$local_rank.txt", "3/3.txt"),
        (
            "$local_rank2 ${local_rank2} ${local_rank $LOCAL_RANK",
            "$local_rank2 ${local_rank2} ${local_rank $LOCAL_RANK",
        ),
        ("5$$ $HOME ${x", "5$$ $HOME ${x"),
        ("$$local_rank $$$local_rank", "$$local_rank $$3"),
        ("", ""),
        ("\udcff\n$", "\udcff\n$"),
    ],
)
def test_only_the_local_rank_is_put_in(arg: str, expected: str) -> None:
    assert rank_argv(replace(SPEC, no_python=True, script_args=(arg,)), 3)[1:] == (expected,)


@given(
    st.text(alphabet="$loca_rnk{}{x ", max_size=30), st.lists(st.sampled_from(["$local_rank", "${local_rank}", "$$"]))
)
def test_torchrun_agrees_but_for_the_dollar_signs(text: str, parts: list[str]) -> None:
    arg = text.join(parts) + text
    ours = rank_argv(replace(SPEC, no_python=True, script_args=(arg,)), 3)[1]
    assert string.Template(arg).safe_substitute(local_rank=3) == ours.replace("$$", "$")
