"""Which nodes a command is one of: --hosts and --hostfile, batch systems' files, and the pods of a Kubernetes Job."""

from __future__ import annotations

import socket

import pytest
from launcher_lines import Command

from remuster.agent.spec import Backend, JobSpec
from remuster.launcher.batch_systems import port

ELSEWHERE = "192.0.2.7"  # nobody's (RFC 5737)
NAMELESS = "no-such-host.invalid"  # never resolves (RFC 2606)
ME = socket.gethostname()
PBS = {"PBS_JOBID": "12.head", "PBS_NODEFILE": "nodes", "PBS_NODENUM": "0"}
NODES = f"{ME}\n{ME}\n{ELSEWHERE}\n{ELSEWHERE}\n"


def met(spec: JobSpec) -> tuple[int, int, str, int]:
    """Return nodes, and where they meet at an etcd of the job's own."""
    assert spec.embedded is not None
    assert spec.endpoints == ((spec.embedded.host, spec.embedded.port),)
    assert spec.place is None
    return spec.min_nodes, spec.max_nodes, spec.embedded.host, spec.embedded.port


@pytest.mark.parametrize(
    ("line", "means"),
    [
        (f"--hosts localhost,{ELSEWHERE}", (2, 2, "localhost", 29400)),
        (f"--hosts {ELSEWHERE},{ME}:4,{ELSEWHERE}", (2, 2, ELSEWHERE, 29400)),
        (f"--hosts {NAMELESS},localhost", (2, 2, NAMELESS, 29400)),
        (f"--hosts {ELSEWHERE},localhost,a.invalid --nnodes 1:2", (1, 2, ELSEWHERE, 29400)),
        (f"--hosts {ELSEWHERE},localhost --rdzv-backend c10d", (2, 2, ELSEWHERE, 29400)),
        (f"--hosts {ELSEWHERE},localhost --rdzv-conf etcd_port=7", (2, 2, ELSEWHERE, 7)),
        (f"--hosts {ELSEWHERE},localhost --rdzv-backend c10d --rdzv-endpoint h:8", (2, 2, "h", 8)),
        (f"--hosts {ELSEWHERE},a.invalid --local-addr a.invalid", (2, 2, ELSEWHERE, 29400)),
        ("--hostfile two", (2, 2, ELSEWHERE, 29400)),
    ],
)
def test_listed_nodes_meet_at_the_first(command: Command, line: str, means: tuple[int, int, str, int]) -> None:
    command.file("two", f"# ours\n{ELSEWHERE} slots=2\nlocalhost slots=4\n")
    spec = command.spec(f"{line} t.py")
    assert met(spec) == means
    assert (spec.run_id, spec.new_run, spec.embedded and spec.embedded.here) == ("", False, None)


def test_a_list_says_how_many_ranks_a_node_has(command: Command) -> None:
    command.file("two", f"{ELSEWHERE} slots=2\nlocalhost slots=4 max_slots=8\n")
    assert command.spec("--hostfile two t.py").nproc == 4
    assert command.spec("--hostfile two --nproc-per-node 3 t.py").nproc == 3
    assert command.spec(f"--hosts {ELSEWHERE}:2,127.0.0.1:5,127.0.0.2:6 t.py").nproc == 5
    assert command.spec(f"--hosts {ELSEWHERE}:2,127.0.0.1:5,127.0.0.2:6 --local-addr 127.0.0.2 t.py").nproc == 6
    command.file("two", f"{ELSEWHERE}\nlocalhost\nlocalhost\n")
    assert command.spec("--hostfile two t.py").nproc == 1  # a scheduler's core is no rank


def test_a_list_of_one_is_one_node(command: Command) -> None:
    assert command.spec("--hosts localhost:3 t.py").backend is Backend.MEMORY
    assert command.spec("--hosts localhost:3 t.py").nproc == 3


def test_listed_nodes_meet_at_a_service_where_one_is_known(command: Command) -> None:
    spec = command.spec(f"--hosts {ELSEWHERE},localhost --rdzv-id x t.py", REMUSTER_ENDPOINT="e1,e2:7")
    assert (spec.endpoints, spec.max_nodes, spec.run_id) == ((("e1", 2379), ("e2", 7)), 2, "x")
    said = command.refusal(f"--hosts {ELSEWHERE},localhost t.py", REMUSTER_ENDPOINT="e1")
    assert "give --rdzv-id NAME" in said
    own = command.spec(f"--hosts {ELSEWHERE},localhost --rdzv-backend c10d t.py", REMUSTER_ENDPOINT="e1")
    assert own.embedded is not None


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (
            f"--hosts {ELSEWHERE},{NAMELESS}",
            f"this node, {ME}, is none of the 2 hosts of --hosts ({ELSEWHERE}, {NAMELESS})",
        ),
        (
            "--hosts 198.51.100.1,198.51.100.2,198.51.100.3,198.51.100.4,198.51.100.5",
            "198.51.100.1, 198.51.100.2, 198.51.100.3, ..., 198.51.100.5)",
        ),
        ("--hosts=", "--hosts is '', where no host stands"),
        ("--hosts=a:b", "--hosts is 'a:b'; write HOST"),
        ("--hostfile absent", "--hostfile is 'absent', which is no file"),
        ("--hostfile empty", "--hostfile is 'empty', where no host stands"),
        ("--hostfile binary", "--hostfile is 'binary', which cannot be read as text"),
        ("--hostfile bad", "line 2 of bad is 'h gpus=3'; write HOST"),
        ("--hostfile bad --hosts localhost", "--hosts and --hostfile contradict each other"),
        ("--hosts localhost --standalone", "--hosts and --standalone contradict each other"),
        ("--hosts localhost,h --node-rank 1", "--hosts and --node-rank contradict each other"),
        ("--hosts localhost,h --nnodes 3", "--nnodes asks for 3 nodes, and --hosts has 2; give 2 or fewer"),
        ("--hosts localhost,h --nnodes 1", "--nnodes asks for one node, and --hosts has 2, which would all run alone"),
    ],
)
def test_lists_that_are_refused(command: Command, line: str, says: str) -> None:
    command.file("empty", "# nobody\n")
    command.file("binary", b"\xff\xfe")
    command.file("bad", "localhost\nh gpus=3\n")
    assert says in command.refusal(f"{line} t.py")


def test_a_pbs_job_needs_nothing_typed(command: Command) -> None:
    command.file("nodes", NODES)
    spec = command.spec("t.py", **PBS)
    assert met(spec) == (2, 2, ME, port("12.head"))
    assert (spec.run_id, spec.new_run, spec.launch_id, spec.nproc) == ("12.head", False, "", 1)
    assert f"PBS_NODEFILE: 2 of 2 nodes meet at {ME}:{port('12.head')}; --nnodes 1 is" in command.stderr
    assert command.spec("--rdzv-id x --nnodes 1:2 t.py", **PBS).run_id == "x"
    service = command.spec("t.py", REMUSTER_ENDPOINT="e", **PBS)
    assert (service.endpoints, service.max_nodes, service.run_id) == ((("e", 2379),), 2, "12.head")
    assert not service.new_run


@pytest.mark.parametrize(
    "environ",
    [
        {"LSB_JOBID": "7", "LSB_DJOB_HOSTFILE": "nodes"},
        {"LSB_JOBID": "7", "LSB_DJOB_HOSTFILE": "absent", "LSB_MCPU_HOSTS": f"{ME} 2 {ELSEWHERE} 2"},
        {"LSB_JOBID": "7", "LSB_MCPU_HOSTS": f"{ME} 2 {ELSEWHERE} 2"},
        {"OAR_JOB_ID": "7", "OAR_NODEFILE": "nodes"},
    ],
)
def test_lsf_and_oar_too(command: Command, environ: dict[str, str]) -> None:
    command.file("nodes", NODES)
    spec = command.spec("t.py", **environ)
    assert met(spec) == (2, 2, ME, port("7"))
    assert spec.run_id == "7"


def test_a_line_that_says_where_to_meet_is_not_overruled(command: Command) -> None:
    command.file("nodes", NODES)
    for line in ("--standalone", "--nnodes 1", "--rdzv-backend static", "--master-port 7", "--rdzv-backend c10d "
                 "--rdzv-endpoint localhost"):  # fmt: skip
        spec = command.spec(f"{line} t.py", **PBS)
        assert (spec.backend, spec.max_nodes, len(spec.run_id)) == (Backend.MEMORY, 1, 12)
    static = command.spec("--nnodes 2 --node-rank 1 --master-addr h t.py", **PBS)
    assert (static.place, static.master, static.run_id) == (1, ("h", 29500), "")
    assert met(command.spec(f"--hosts {ELSEWHERE},localhost t.py", **PBS)) == (2, 2, ELSEWHERE, 29400)


def test_a_list_is_stronger_than_slurms(command: Command) -> None:
    step = {"SLURM_JOB_ID": "5", "SLURM_STEP_ID": "0", "SLURM_STEP_NODELIST": "n[1-4]", "SLURM_STEP_NUM_NODES": "4",
            "SLURM_NODEID": "1", "SLURM_STEP_TASKS_PER_NODE": "1(x4)"}  # fmt: skip
    assert met(command.spec("t.py", **step))[:3] == (4, 4, "n1")
    assert met(command.spec(f"--hosts {ELSEWHERE},localhost t.py", **step)) == (2, 2, ELSEWHERE, 29400)


def test_one_node_of_a_batch_system_is_one_node(command: Command) -> None:
    command.file("nodes", f"{ME}\n{ME}\n")
    spec = command.spec("t.py", **PBS, OMPI_COMM_WORLD_LOCAL_SIZE="2")
    assert (spec.backend, spec.new_run) == (Backend.MEMORY, True)
    command.file("nodes", "")
    assert command.spec("t.py", **PBS).backend is Backend.MEMORY


def test_a_host_file_that_is_not_here(command: Command) -> None:
    spec = command.spec("t.py", **PBS)
    assert spec.backend is Backend.MEMORY
    assert "PBS_NODEFILE is 'nodes', which is not on this node" in command.stderr
    assert "need --hosts" in command.refusal("--nnodes 2 t.py", **PBS)
    assert "need --hosts" in command.refusal("t.py", **{**PBS, "PBS_NODENUM": "1"})
    assert command.spec("--nnodes 2 t.py", REMUSTER_ENDPOINT="e", **PBS).run_id == "12.head"


def test_one_command_a_rank_is_refused(command: Command) -> None:
    command.file("nodes", NODES)
    said = command.refusal("t.py", **PBS, PMI_LOCAL_SIZE="8")
    assert "8 of these commands were started on this node (PMI_LOCAL_SIZE)" in said
    assert met(command.spec("t.py", **PBS, PMI_LOCAL_SIZE="1"))[:2] == (2, 2)
    assert "--nnodes asks for 3 nodes, and PBS_NODEFILE has 2" in command.refusal("--nnodes 3 t.py", **PBS)


def test_pods_of_a_job(command: Command) -> None:
    index = {"JOB_COMPLETION_INDEX": "1"}
    assert command.spec("t.py", **index).backend is Backend.MEMORY
    assert command.spec("--nnodes 1 t.py", **index).backend is Backend.MEMORY
    assert "give --rdzv-endpoint" in command.refusal("--nnodes 2 t.py", **index)  # this is no pod
    spec = command.spec("--nnodes 2:4 --rdzv-id x t.py", REMUSTER_ENDPOINT="e", **index)
    assert (spec.endpoints, spec.min_nodes, spec.max_nodes) == ((("e", 2379),), 2, 4)


def test_what_kubeflow_sets(command: Command) -> None:
    """TrainJob's torch plug-in sets the first, PyTorchJob's elastic policy the second."""
    pet = {"PET_NNODES": "2", "PET_NPROC_PER_NODE": "3", "PET_NODE_RANK": "1", "JOB_COMPLETION_INDEX": "1"}
    master = {"PET_MASTER_ADDR": "t-node-0-0.t", "PET_MASTER_PORT": "29500"}
    spec = command.spec("t.py", **pet, **master)
    assert (spec.max_nodes, spec.nproc, spec.place, spec.master) == (2, 3, 1, ("t-node-0-0.t", 29500))
    assert spec.endpoints == (("t-node-0-0.t", 29501),)
    assert spec.embedded is not None
    assert spec.embedded.here is False
    first = command.spec("t.py", **{**pet, **master, "PET_NODE_RANK": "0"})
    assert first.embedded is not None
    assert first.embedded.here is True
    service = command.spec("--rdzv-backend etcd --rdzv-id x t.py", REMUSTER_ENDPOINT="e", **pet, **master)
    assert (service.endpoints, service.place, service.max_nodes) == ((("e", 2379),), None, 2)
    elastic = {"PET_RDZV_BACKEND": "c10d", "PET_RDZV_ENDPOINT": "p-worker-0:29400", "PET_RDZV_ID": "p",
               "PET_NNODES": "1:2", "PET_MAX_RESTARTS": "3", "PET_NPROC_PER_NODE": "auto"}  # fmt: skip
    spec = command.spec("t.py", **elastic)
    assert met(spec) == (1, 2, "p-worker-0", 29400)
    assert (spec.run_id, spec.max_restarts) == ("p", 3)
