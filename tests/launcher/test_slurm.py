"""What Slurm's variables mean: lists of nodes, real dumps of a 22.05 cluster, and the jobs that lines make of them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from launcher_lines import Command

from remuster.agent import hostlist
from remuster.agent.hostlist import HostListError
from remuster.agent.spec import Backend, Embedded, SlurmStep
from remuster.launcher import slurm
from remuster.launcher.slurm import Slurm
from remuster.launcher.slurm_step import FIRST_PORT, JOBS, STEPS, ranks, step_port

# -- lists of nodes


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("node1", "node1"),
        ("node[1-3]", "node1 node2 node3"),
        ("node[1-3,07-09]-ib,login1", "node1 node2 node3 node07 node08 node09 node07-ib"),
        ("node[09-11]", "node09 node10 node11"),
        ("node[8-10]", "node8 node9 node10"),
        ("node[0098-0101]", "node0098 node0099 node0100 node0101"),
        ("a,b,c", "a b c"),
        ("[1-2]", "1 2"),
        ("r[1-2]n[01-02]", "r1n01 r1n02 r2n01 r2n02"),
        ("r[1-2]c[3]b[0-1]-x", "r1c3b0-x r1c3b1-x r2c3b0-x r2c3b1-x"),
        ("gpu-a.site.example,gpu_b[5]", "gpu-a.site.example gpu_b5"),
        ("n[5,1,3]", "n5 n1 n3"),
        ("node[1-2,4]", "node1 node2 node4"),
    ],
)
def test_a_list_is_written_out(text: str, names: str) -> None:
    if text.startswith("node[1-3,07"):
        names = "node1-ib node2-ib node3-ib node07-ib node08-ib node09-ib login1"
    assert " ".join(hostlist.expand(text)) == names


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "a name is missing"),
        ("a,,b", "a name is missing"),
        ("node[1-3", "is not closed"),
        ("node1-3]", "do not match"),
        ("node[1-[2-3]]", "do not match"),
        ("node[]", "cannot stand in a node's name"),
        ("node[3-1]", "runs backwards"),
        ("node[1-]", "is no range"),
        ("node[a-c]", "cannot stand in a node's name"),
        ("node[1-99999999]", "more than 65536 nodes"),
        ("n[1-300]m[1-300]", "more than 65536 nodes"),
        ("n[1-60000],n[1-60000]", "more than 65536 nodes"),
        ("n[1-9999999999999999999999]", "is no range"),
        ("$(reboot)", "cannot stand in a node's name"),
        ("a b", "cannot stand in a node's name"),
        ("node1\n", "cannot stand in a node's name"),
        ("n٣", "cannot stand in a node's name"),
        ("a" * 2_000_000, "characters"),
    ],
)
def test_what_is_no_list_is_refused(text: str, why: str) -> None:
    with pytest.raises(HostListError, match=why):
        hostlist.expand(text)


@given(st.text("n1-[],0 x(", max_size=40))
def test_any_text_is_a_list_or_refused(text: str) -> None:
    try:
        names = hostlist.expand(text)
    except HostListError:
        return
    assert names
    assert all(name and not set(name) & set("[], ") for name in names)


@given(st.integers(0, 5000), st.integers(0, 400), st.integers(1, 6))
def test_a_range_is_as_long_and_as_wide_as_it_says(first: int, more: int, width: int) -> None:
    low = str(first).zfill(width)
    names = hostlist.expand(f"n[{low}-{first + more}]")
    assert [int(name[1:]) for name in names] == list(range(first, first + more + 1))
    assert all(len(name) - 1 == max(len(low), len(str(int(name[1:])))) for name in names)


def test_counts() -> None:
    assert hostlist.counts("1(x3)") == (1, 1, 1)
    assert hostlist.counts("4(x2),8,2") == (4, 4, 8, 2)
    for bad in ("", "x", "1(x", "1(x70000)", "-1", "1,,2", "²"):
        with pytest.raises(HostListError):
            hostlist.counts(bad)


# -- what real steps have

BATCH = {
    "ENVIRONMENT": "BATCH", "SLURMD_NODENAME": "node1", "SLURM_CPUS_ON_NODE": "1", "SLURM_GPUS_ON_NODE": "2",
    "SLURM_JOB_ID": "812", "SLURM_JOBID": "812", "SLURM_JOB_NODELIST": "node[1-3]", "SLURM_JOB_NUM_NODES": "3",
    "SLURM_NNODES": "3", "SLURM_NODEID": "0", "SLURM_NODELIST": "node[1-3]", "SLURM_NODE_ALIASES": "(null)",
    "SLURM_NTASKS": "3", "SLURM_PROCID": "0", "SLURM_LOCALID": "0", "SLURM_TASKS_PER_NODE": "1(x3)",
    "SLURM_JOB_GPUS": "0,1", "CUDA_VISIBLE_DEVICES": "0,1",
}  # fmt: skip


def step(node: int = 0, **changed: str) -> dict[str, str]:
    """Return the variables of a task of `srun -N3` in that batch script."""
    return {
        **BATCH, "SLURMD_NODENAME": f"node{node + 1}", "SLURM_NODEID": str(node), "SLURM_PROCID": str(node),
        "SLURM_LAUNCH_NODE_IPADDR": "10.81.0.1", "SLURM_SRUN_COMM_HOST": "10.81.0.1",
        "SLURM_STEPID": "0", "SLURM_STEP_ID": "0", "SLURM_STEP_GPUS": "0,1", "SLURM_STEP_NODELIST": "node[1-3]",
        "SLURM_STEP_NUM_NODES": "3", "SLURM_STEP_NUM_TASKS": "3", "SLURM_STEP_TASKS_PER_NODE": "1(x3)", **changed,
    }  # fmt: skip


def parted(node: int = 0, **changed: str) -> dict[str, str]:
    """Return those of a task of `srun -N2 -n2` in it."""
    return step(
        node, SLURM_NNODES="2", SLURM_NTASKS="2", SLURM_STEP_NODELIST="node[1-2]", SLURM_STEP_NUM_NODES="2",
        SLURM_STEP_NUM_TASKS="2", SLURM_STEP_TASKS_PER_NODE="1(x2)", **changed,
    )  # fmt: skip


def het(node: int, name: str) -> dict[str, str]:
    """Return those of `srun --het-group=0,1`: the nodes of group 0 are counted first, the list is sorted."""
    return step(
        node, SLURMD_NODENAME=name, SLURM_HET_SIZE="2", SLURM_JOB_NODELIST_HET_GROUP_0="node4",
        SLURM_JOB_NODELIST_HET_GROUP_1="node[1-2]", SLURM_JOB_NODELIST="node[1-2,4]",
        SLURM_STEP_NODELIST="node[1-2,4]", SLURM_LAUNCH_NODE_IPADDR="10.81.0.4",
    )  # fmt: skip


LEFT_OVER = step(
    SLURM_JOB_ID="900", SLURM_NODELIST="node4", SLURMD_NODENAME="node4", SLURM_NNODES="1", SLURM_NTASKS="1",
    SLURM_JOB_NUM_NODES="1",
)  # fmt: skip


def read(environ: dict[str, str]) -> Slurm:
    found = slurm.read(environ)
    assert found is not None
    return found


def test_a_step_is_read() -> None:
    assert slurm.read({"SLURM_STEP_ID": "0"}) is None
    found = read(step(1, SLURM_RESTART_COUNT="2"))
    assert found == Slurm(
        *("812", "0", 2, 3, "node[1-3]", (), 1, "node2", "1(x3)", 1, 2, False, 1, "10.81.0.1", True),
    )
    assert found.node_names() == ("node1", "node2", "node3")
    assert (found.run_id, found.launch_id(True), found.launch_id(False)) == ("812.0", "812.0.2", "812.2")


@pytest.mark.parametrize(
    ("environ", "nodes"),
    [
        (BATCH, 3),
        ({"SLURM_JOB_ID": "812"}, 1),
        (LEFT_OVER, 1),  # of the step in which sbatch was called, of another node and size
        (step(SLURMD_NODENAME="node9"), 3),  # of the same size
        (step(SLURM_NNODES="4"), 4),  # on a node of it
        (step(SLURM_NTASKS="6"), 3),
        (step(SLURM_STEP_ID="4294967290"), 3),  # the shell of salloc with use_interactive_step
        (step(SLURM_STEP_ID="4294967291"), 3),
        (step(SLURM_STEP_ID="x"), 3),
        (step(SLURM_STEP_NODELIST=""), 3),
        (step(SLURM_PTY_PORT="4711", SLURM_NTASKS="24", SLURM_STEP_NUM_TASKS="24"), 3),
    ],
)
def test_outside_of_a_step(environ: dict[str, str], nodes: int) -> None:
    found = read(environ)
    assert (found.step_id, found.nodes) == ("", nodes)


def test_nodes_have_the_numbers_that_slurm_gives_them() -> None:
    assert read(het(0, "node4")).node_names() == ("node4", "node1", "node2")
    assert read(het(0, "node4")).first_address == "10.81.0.4"
    assert read(het(2, "node2")).node_names()[2] == "node2"
    alone = parted(1) | {key: value for key, value in het(1, "node2").items() if "HET" in key}
    assert read(alone).node_names() == ("node1", "node2")
    assert read(alone).first_address == ""  # srun was called on node4, which is not in this step
    with pytest.raises(HostListError, match="node 1 of it is node2, and this one is node3"):
        read(step(1, SLURMD_NODENAME="node3")).node_names()
    with pytest.raises(HostListError, match="names 3 nodes, of 4"):
        read(step(SLURM_STEP_NUM_NODES="4", SLURM_NNODES="4")).node_names()


def test_the_first_nodes_address_is_only_known_where_the_batch_script_called_srun() -> None:
    assert read(parted(1)).first_address == "10.81.0.1"
    assert read(step(ENVIRONMENT="")).first_address == ""
    elsewhere = parted(1, SLURMD_NODENAME="node3") | {"SLURM_STEP_NODELIST": "node[2-3]"}
    assert read(elsewhere).first_address == ""


def test_ports_of_steps() -> None:
    assert step_port("812", "0") == step_port("812", "0")
    for text in ("9" * 5000, "\udcff", "\u0663", "", "812_3"):  # no job has such a number
        assert step_port(text, "0") >= FIRST_PORT
    found = {step_port(str(812 + job), str(number)) for job in range(JOBS) for number in range(STEPS)}
    assert len(found) == JOBS * STEPS
    assert FIRST_PORT <= min(found) <= max(found) < 29400  # torchrun's, and the ephemeral ones from 32768 on


@pytest.mark.parametrize(
    ("gpus", "visible", "count"),
    [(2, "0,1", 2), (8, None, 8), (-1, "0,1,2", 3), (8, "0,1", 2), (-1, None, 1), (0, "", 1), (4, "GPU-a,GPU-b", 2)],
)
def test_a_rank_for_each_gpu(gpus: int, visible: str | None, count: int) -> None:
    assert ranks(gpus, visible) == count


# -- the jobs that command lines make of it


def test_srun_needs_no_flag(command: Command) -> None:
    port = step_port("812", "0")
    for node in range(3):
        spec = command.spec("t.py", **step(node, SLURM_RESTART_COUNT="1"))
        assert (spec.min_nodes, spec.max_nodes, spec.nproc) == (3, 3, 2)
        assert spec.embedded == Embedded("node1", port, here=node == 0, address="10.81.0.1")
        assert (spec.backend, spec.endpoints) == (Backend.ETCD, (("node1", port),))
        assert (spec.run_id, spec.launch_id, spec.new_run) == ("812.0", "812.0.1", False)
        assert spec.slurm == SlurmStep("812", "0", 1, node)


def test_unequal_nodes(command: Command) -> None:
    assert command.spec("t.py", **step(SLURM_GPUS_ON_NODE="4", CUDA_VISIBLE_DEVICES="0,1,2,3")).nproc == 4
    assert command.spec("t.py", **step(1, SLURM_GPUS_ON_NODE="1", CUDA_VISIBLE_DEVICES="0")).nproc == 1
    assert command.spec("--nproc-per-node 5 t.py", **step()).nproc == 5


def test_two_steps_are_two_runs_and_a_requeue_goes_on(command: Command) -> None:
    first, second = command.spec("t.py", **step()), command.spec("t.py", **step(SLURM_STEP_ID="1"))
    again = command.spec("t.py", **step(SLURM_RESTART_COUNT="1"))
    assert first.run_id != second.run_id
    assert again.run_id == first.run_id
    assert first.endpoints != second.endpoints
    named = [command.spec("--rdzv-id x t.py", **step(SLURM_STEP_ID=str(i))) for i in range(2)]
    assert [spec.run_id for spec in named] == ["x", "x"]
    assert len({first.launch_id, again.launch_id, *(spec.launch_id for spec in named)}) == 3  # step 0 is one of them


def test_fewer_nodes_leave_spares(command: Command) -> None:
    spec = command.spec("--nnodes 2 t.py", **step())
    assert (spec.min_nodes, spec.max_nodes) == (2, 2)
    assert "of the step's 3 nodes: the others stand by as spares" in command.stderr
    spec = command.spec("--nnodes 2:5 t.py", **step())
    assert (spec.min_nodes, spec.max_nodes) == (2, 3)
    assert "it can grow no further" in command.stderr
    command.spec("--nnodes 2:5 t.py", **step(1))
    assert "grow" not in command.stderr  # one says it
    spec = command.spec("t.py", PET_NNODES="1", **step(2))
    assert (spec.max_nodes, spec.backend) == (1, Backend.ETCD)


def test_more_nodes_than_there_are(command: Command) -> None:
    assert "srun has started this on 3 nodes; write srun --nodes=4 --ntasks=4" in command.refusal(
        "--nnodes 4 t.py", **step()
    )
    assert command.run("--nnodes 4 t.py", **step(1)) == 0
    assert (command.started, command.stderr) == ([], "")


def test_a_task_for_each_gpu_is_refused_once(command: Command) -> None:
    many = {
        "SLURM_NTASKS": "24",
        "SLURM_STEP_NUM_TASKS": "24",
        "SLURM_STEP_TASKS_PER_NODE": "8(x3)",
        "SLURM_CPUS_ON_NODE": "64",
    }
    line = "write: srun --nodes=3 --ntasks=3 --ntasks-per-node=1 --cpus-per-task=64 remuster …"
    assert line in command.refusal("t.py", **step(**many))
    from_login = command.refusal("t.py", **step(**many, SLURM_GPUS_ON_NODE="8", ENVIRONMENT=""))
    assert "--cpus-per-task=64 --gpus-per-node=8 remuster …" in from_login
    by_task = command.refusal("t.py", **step(**many, SLURM_GPUS_PER_TASK="1", SLURM_GPUS_ON_NODE="8"))
    assert "--cpus-per-task=64 --gpus-per-node=8 --gpu-bind=none remuster …" in by_task
    assert "--gpu-bind=none" in command.refusal("t.py", **step(**many, SLURM_TRES_PER_TASK="cpu=1,gres/gpu=1"))
    for node in (1, 2):
        assert command.run("t.py", **step(node, **many)) == 0
        assert (command.started, command.stderr) == ([], "")
    assert command.spec("--standalone t.py", **step(**many)).max_nodes == 1  # who says how to meet is believed


@pytest.mark.parametrize(
    "line",
    [
        "--nnodes 3 --rdzv-backend c10d --rdzv-endpoint node1:29400",
        "--nnodes 3 --node-rank 1 --master-addr node1 --master-port 29500",
        "--nnodes 3 --rdzv-backend etcd --rdzv-endpoint etcd1",
        "--standalone",
    ],
)
def test_a_line_that_says_how_nodes_meet_means_what_it_did(command: Command, line: str) -> None:
    inside, outside = command.spec(f"{line} t.py", **step(1)), command.spec(f"{line} --rdzv-id x t.py")
    assert (inside.min_nodes, inside.max_nodes, inside.nproc) == (outside.min_nodes, outside.max_nodes, 1)
    assert (inside.embedded, inside.endpoints) == (outside.embedded, outside.endpoints)
    assert (inside.run_id, inside.launch_id) == ("812.0", "812.0.0")
    variable = command.spec("t.py", PET_NNODES="3", PET_RDZV_BACKEND="c10d", PET_RDZV_ENDPOINT="h", **step(1))
    assert variable.endpoints == (("h", 29400),)


def test_steps_that_are_parts_of_one_run_share_its_name(command: Command) -> None:
    """One srun for each node: neither the run nor the launch may be named after the step."""
    single = {"SLURM_NNODES": "1", "SLURM_NTASKS": "1", "SLURM_STEP_NUM_NODES": "1", "SLURM_STEP_NUM_TASKS": "1",
              "SLURM_STEP_NODELIST": "node2", "SLURM_STEP_TASKS_PER_NODE": "1"}  # fmt: skip
    for number in ("0", "1"):
        environ = step(1, SLURM_NODEID="0", SLURM_STEP_ID=number) | single | {"SLURM_STEP_ID": number}
        spec = command.spec("--nnodes 2 --rdzv-backend c10d --rdzv-endpoint node1 t.py", **environ)
        assert (spec.run_id, spec.launch_id) == ("812", "812.0")


def test_a_step_of_one_node_needs_no_server(command: Command) -> None:
    single = {"SLURM_NNODES": "1", "SLURM_NTASKS": "1", "SLURM_STEP_NUM_NODES": "1", "SLURM_STEP_NUM_TASKS": "1",
              "SLURM_STEP_NODELIST": "node1", "SLURM_STEP_TASKS_PER_NODE": "1"}  # fmt: skip
    spec = command.spec("t.py", REMUSTER_ENDPOINT="etcd1", **(step() | single))
    assert (spec.backend, spec.nproc, spec.run_id) == (Backend.MEMORY, 2, "812.0")


def test_a_service_that_is_configured_is_used(command: Command) -> None:
    spec = command.spec("t.py", REMUSTER_ENDPOINT="etcd1,etcd2", **step(1))
    assert (spec.embedded, spec.endpoints) == (None, (("etcd1", 2379), ("etcd2", 2379)))
    assert (spec.run_id, spec.max_nodes) == ("812.0", 3)
    file = command.file("c.toml", '[etcd]\nendpoints = ["etcd9"]\n')
    assert command.spec(f"--config {file} t.py", **step(1)).endpoints == (("etcd9", 2379),)


def test_the_jobs_own_store_takes_its_settings(command: Command) -> None:
    token = command.file("token", "secret", mode=0o600)
    spec = command.spec(f"--rdzv-conf token_file={token},etcd_port=4001,is_host=0 t.py", **step())
    assert spec.embedded == Embedded("node1", 4001, token_file=token, here=True, address="10.81.0.1")
    assert "is_host not used: Slurm tells which node keeps the store" in command.stderr


def test_the_batch_script_itself_runs_on_one_node(command: Command) -> None:
    spec = command.spec("t.py", **BATCH)
    assert (spec.run_id, spec.launch_id, spec.max_nodes, spec.nproc) == ("812", "812.0", 1, 1)
    assert "one of the 3 nodes of Slurm job 812; to use them all write: srun --nodes=3" in command.stderr
    assert "srun" not in _said(command, "--standalone t.py", BATCH)
    salloc = {name: BATCH[name] for name in ("SLURM_JOB_ID", "SLURM_JOB_NUM_NODES")}  # on the node where it was called
    assert "it may run outside of the job, where salloc was called; to run on the job's 3 nodes write: srun" in _said(
        command, "t.py", salloc
    )
    assert "srun" not in _said(command, "t.py", BATCH | {"SLURM_JOB_NUM_NODES": "1", "SLURM_NNODES": "1"})


def test_all_tasks_have_one_interpreter_and_the_first_says_it(command: Command) -> None:
    assert [_said(command, "t.py", step(node)).count("ranks run") for node in (0, 1, 2)] == [1, 0, 0]


def _said(command: Command, line: str, environ: dict[str, str]) -> str:
    command.spec(line, **environ)
    return command.stderr


@pytest.mark.parametrize("nodes", ["$(x)", "node[1-3", "node[1-2]", "n[1-99999999]", "node[2-4]"])
def test_nodes_that_cannot_be_understood(command: Command, nodes: str) -> None:
    environ = step(SLURM_STEP_NODELIST=nodes, SLURMD_NODENAME="")
    if nodes == "node[2-4]":
        environ = step(1, SLURM_STEP_NODELIST=nodes)
    assert "SLURM_STEP_NODELIST is" in command.refusal("t.py", **environ)
    assert command.spec("--rdzv-backend c10d --rdzv-endpoint h --nnodes 3 t.py", **environ).max_nodes == 3
