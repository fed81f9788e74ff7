"""`srun remuster train.py` on a real Slurm: the world that comes of it, and what is refused."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from drills.etcd import Etcd
from drills.sight import boottime, until
from slurm.cluster import BatchJob, Cluster, Setup

from remuster.launcher.argv import split
from remuster.launcher.slurm_script import Wish, script

pytestmark = pytest.mark.drill

KEEP = "--no-kill --kill-on-bad-exit=0 --wait=0"
TELL = """
import os
env = os.environ
names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "TORCHELASTIC_RUN_ID", "SLURMD_NODENAME")
print("seen", *(env[name] for name in names), env.get("CUDA_VISIBLE_DEVICES", "-"))
"""


class World:
    """What the ranks of one run have printed."""

    def __init__(self, output: str, run: str) -> None:
        lines = [line.split("seen ")[1].split() for line in output.splitlines() if "seen " in line]
        self.ranks = sorted((line for line in lines if line[4] == run), key=lambda line: int(line[0]))
        self.nodes = {
            node: [line for line in self.ranks if line[5] == node] for node in {line[5] for line in self.ranks}
        }

    def check(self, **sizes: int) -> None:
        """Check that all ranks of these nodes were there, once, in one world."""
        total = sum(sizes.values())
        assert [line[:2] for line in self.ranks] == [[str(rank), str(total)] for rank in range(total)]
        assert {node: len(ranks) for node, ranks in self.nodes.items()} == sizes
        for ranks in self.nodes.values():
            assert [line[2:4] for line in ranks] == [[str(i), str(len(ranks))] for i in range(len(ranks))]


def tell(cluster: Cluster) -> Path:
    file = cluster.directory / "tell.py"
    file.write_text(TELL)
    return file


def done(job: BatchJob, timeout_s: float = 60.0) -> str:
    job.wait_for("COMPLETED", timeout_s=timeout_s)
    return job.output()


def forget_names(cluster: Cluster) -> None:
    """Let no host know the name of another, or its own."""
    for host in (cluster.ctl, *cluster.nodes.values()):
        host.sh("echo 127.0.0.1 localhost > /run/hosts; mount --bind /run/hosts /etc/hosts")


def test_srun_needs_nothing_else(cluster: Cluster) -> None:
    """Neither names nor Slurm's programs: as in a container. And a second srun of the same script is another run."""
    forget_names(cluster)
    bare = f"env PATH={cluster.env['PATH'].partition(':')[0]} remuster"
    lines = [f"srun {bare} {tell(cluster)}", f"srun {bare} --nnodes 2 {tell(cluster)}"]
    job = cluster.sbatch("\n".join(lines), "-N3", "--ntasks-per-node=1", "--gpus-per-node=2")
    said = done(job)
    World(said, f"{job.id}.0").check(node1=2, node2=2, node3=2)
    assert len(World(said, f"{job.id}.1").nodes) == 2
    assert said.count("this node stood by as a spare and ran nothing") == 1


def test_from_a_login_node(cluster: Cluster) -> None:
    """Without a batch script: srun by itself, and in an allocation of salloc's."""
    line = f"srun --ntasks-per-node=1 --gpus-per-node=2 remuster {tell(cluster)}"
    for command in (f"{line.replace('srun', 'srun -N2', 1)} 2>&1", f"salloc -N2 --gpus-per-node=2 {line} 2>&1"):
        said = cluster.sh(command)
        (run,) = set(re.findall(r"run_id=(\S+)", said))
        assert re.fullmatch(r"[0-9]+\.0", run)
        assert [line[:2] for line in World(said, run).ranks] == [[str(rank), "4"] for rank in range(4)]


def test_nodes_with_unequal_gpus(new_cluster: Callable[[Setup], Cluster]) -> None:
    cluster = new_cluster(Setup(nodes=3, gpus=(1, 3, 2)))
    file = tell(cluster)
    script = f"""#SBATCH -N1 -n1 --gpus-per-node=1 -w node1
#SBATCH hetjob
#SBATCH -N1 -n1 --gpus-per-node=3 -w node2
#SBATCH hetjob
#SBATCH -N1 -n1 --gpus-per-node=2 -w node3
srun --het-group=0-2 remuster {file}
"""
    job = cluster.sbatch(script)
    World(done(job), f"{job.id}.0").check(node1=1, node2=3, node3=2)


def test_the_nodes_of_groups_are_numbered_as_slurm_does(cluster: Cluster) -> None:
    """The first node of group 0 comes last by its name."""
    script = f"""#SBATCH -N1 -n1 --gpus-per-node=2 -w node4
#SBATCH hetjob
#SBATCH -N2 -n2 --gpus-per-node=1 -w node1,node2
srun --het-group=0,1 remuster {tell(cluster)}
srun --het-group=1 remuster {tell(cluster)}
"""
    job = cluster.sbatch(script)
    said = done(job)
    World(said, f"{job.id}.0").check(node4=2, node1=1, node2=1)
    World(said, f"{job.id}.1").check(node1=1, node2=1)


def test_fewer_gpus_are_shown_than_are_there(cluster: Cluster) -> None:
    line = f"srun sh -c 'CUDA_VISIBLE_DEVICES=1 exec remuster {tell(cluster)}'"
    job = cluster.sbatch(line, "-N2", "--ntasks-per-node=1", "--gpus-per-node=2")
    world = World(done(job), f"{job.id}.0")
    world.check(node1=1, node2=1)
    assert {line[6] for line in world.ranks} == {"1"}


def test_a_task_for_each_gpu_is_refused_with_the_line_that_works(cluster: Cluster) -> None:
    """Said once, and obeyed in the same allocation."""
    wrong = f"srun remuster {tell(cluster)}; echo code $?"
    asked = ("-N2", "--ntasks-per-node=2", "--gpus-per-task=1", "--cpus-per-task=2")
    said = done(cluster.sbatch(wrong, *asked))
    assert "code 2" in said
    assert "seen" not in said
    (line,) = re.findall(r"write: (srun .*) remuster …", said)
    assert line == "srun --nodes=2 --ntasks=2 --ntasks-per-node=1 --cpus-per-task=4 --gpus-per-node=2 --gpu-bind=none"
    job = cluster.sbatch(f"{line} remuster {tell(cluster)}", *asked)
    World(done(job), f"{job.id}.0").check(node1=2, node2=2)


def test_a_service_is_used_that_the_environment_names(cluster: Cluster) -> None:
    """Two steps are two runs there, and with a name of their own two launches of one run: the second goes on."""
    etcd = Etcd(cluster.lab, [cluster.ctl])
    failing = cluster.directory / "fail.py"
    failing.write_text("import sys\nsys.exit(7)\n")
    lines = (
        f"export REMUSTER_ENDPOINT={etcd.endpoint}",
        f"srun remuster {tell(cluster)}",
        f"srun remuster {tell(cluster)}",
        f"srun remuster --rdzv-id mine {failing}; echo code $?",
        f"srun remuster --rdzv-id mine {tell(cluster)}",
    )
    job = cluster.sbatch("\n".join(lines), "-N2", "--ntasks-per-node=1", "--gpus-per-node=1")
    said = done(job)
    assert "code 7" in said
    for run in (f"{job.id}.0", f"{job.id}.1", "mine"):
        World(said, run).check(node1=1, node2=1)
    runs = {key.partition("/")[0] for key in etcd.keys("/remuster/") if not key.startswith("~")}
    assert runs == {f"{job.id}.0", f"{job.id}.1", "mine"}


def test_a_batch_script_without_srun_runs_on_one_node(cluster: Cluster) -> None:
    job = cluster.sbatch(f"remuster {tell(cluster)}", "-N2", "--ntasks-per-node=1", "--gpus-per-node=2")
    said = done(job)
    World(said, str(job.id)).check(node1=1)
    assert f"one of the 2 nodes of Slurm job {job.id}; to use them all write: srun" in said


def test_a_job_that_was_submitted_in_a_step_is_not_that_step(cluster: Cluster) -> None:
    """Its environment still has the step's variables."""
    inner = cluster.directory / "inner"
    inner.write_text(f"#!/bin/bash\nremuster {tell(cluster)}\n")
    cluster.sbatch(f"srun -N2 -n2 sh -c '[ $SLURM_PROCID = 1 ] || sbatch -N1 -o {inner}.out {inner}'", "-N2")
    until(lambda: Path(f"{inner}.out").exists() and "seen" in Path(f"{inner}.out").read_text(), "the inner job ran", 60)
    assert "seen 0 1 0 1" in Path(f"{inner}.out").read_text()


def test_a_job_that_lost_its_first_node_is_ended_when_its_run_is_over(cluster: Cluster) -> None:
    """Batch script and srun are gone with it; Slurm would hold the others to the time limit."""
    etcd = Etcd(cluster.lab, cluster.lab.host("e1"))
    file = cluster.directory / "wait.py"
    file.write_text(
        f"import os, time\nprint('seen', flush=True)\nwhile not os.path.exists('{file}.end'): time.sleep(0.1)\n"
    )
    lines = f"export REMUSTER_ENDPOINT={etcd.endpoint}\nsrun {KEEP} remuster --nnodes 2:3 --max-restarts 3 {file}"
    job = cluster.sbatch(lines, "-N3", "--ntasks-per-node=1", "--no-kill", "--requeue", "--exclude=node4")
    until(lambda: job.output().count("seen") == 3, "three ranks run", 40)
    cluster.crash("node1")
    until(lambda: job.nodes() == ["node2", "node3"], "Slurm has noticed", 60)
    Path(f"{file}.end").touch()
    assert job.wait_for("CANCELLED", timeout_s=60)["Restarts"] == "0"
    cluster.wait_idle("node2", "node3")


def test_a_job_that_lost_its_store_with_its_first_node_is_requeued(cluster: Cluster) -> None:
    file = cluster.directory / "wait.py"
    file.write_text("import time\nprint('seen', flush=True)\ntime.sleep(600)\n")
    line = f"srun {KEEP} remuster --rdzv-timeout 40 {file}"
    job = cluster.sbatch(line, "-N3", "--ntasks-per-node=1", "--no-kill", "--requeue", "--exclude=node4")
    until(lambda: job.output().count("seen") == 3, "three ranks run", 40)
    cluster.crash("node1")
    assert job.wait_for("PENDING", timeout_s=90)["Restarts"] == "1"
    cluster.wait_idle("node2", "node3")


def test_the_printed_script_is_preempted_and_comes_back(new_cluster: Callable[[Setup], Cluster]) -> None:
    """Two nodes and a spare: all leave in the grace, and the job is requeued by its script, as the same run."""
    cluster = new_cluster(Setup(nodes=3, grace_s=20))
    shared = cluster.directory / "shared"
    shared.mkdir()
    file = shared / "wait.py"
    file.write_text(
        "import os, time\nimport remuster\n"
        "print('seen', os.environ['TORCHELASTIC_RUN_ID'], os.environ['WORLD_SIZE'], flush=True)\n"
        "while not os.path.exists('end') and not remuster.stop_requested():\n    time.sleep(0.1)\n"
    )
    text = script(Wish(2, 1, 2, 2, output=str(shared / "out")), split(["--checkpoint-dir=ckpt", file.name]))
    job = cluster.sbatch(text.partition("\n")[2], f"--chdir={shared}", f"--output={shared}/out")
    out = shared / "out"

    def seen(count: int) -> None:
        until(lambda: out.exists() and out.read_text().count("seen") == count, lambda: f"{count}: {job.show()}", 60)

    seen(4)
    urgent = cluster.preempt("-N3")
    job.wait_for("PENDING", timeout_s=60)
    requeued = boottime()
    urgent.wait_for("RUNNING", timeout_s=60)
    urgent.cancel()
    until(lambda: boottime() > requeued + 2, "credentials of the next run are newer, in whole seconds, than the last's")
    job.start_now()
    job.wait_for("RUNNING", timeout_s=60)
    seen(8)
    (shared / "end").touch()
    job.wait_for("COMPLETED", timeout_s=60)
    assert out.read_text().count(f"seen {job.id}.0 4") == 8
    assert not list(shared.glob(".remuster-*"))
