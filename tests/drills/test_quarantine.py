"""A sick host is kept out of the job's next rounds and of other jobs, until an operator lets it in again."""

from __future__ import annotations

import pytest
from drills.etcd import Etcd
from drills.job import COMMAND, HERE, ROOT, Job
from drills.lab import Host, Lab
from drills.sight import until

pytestmark = pytest.mark.drill


def quarantine(host: Host, etcd: Etcd, *words: str) -> str:
    """Run the sub-command on a host."""
    line = " ".join((str(COMMAND), "quarantine", *words, "--rdzv-endpoint", etcd.endpoint))
    return host.sh(f"cd /run && PYTHONPATH={ROOT} {line}")


def test_a_sick_host_is_kept_out_and_let_in_again(lab: Lab, hosts: list[Host], etcd: Etcd, job: Job) -> None:
    job.nnodes = "2:3"
    job.script = HERE / "sick.py"
    drained = lab.directory / "drained"
    site = lab.directory / "site.toml"
    site.write_text(f'[site]\ndrain_command = ["sh", "-c", "echo $0: $1 >> {drained}", "{{host}}", "{{reason}}"]\n')
    job.options = (*job.options, "--config", str(site))
    job.start(*hosts)
    job.wait_round(1, *hosts)
    until(lambda: len(etcd.keys("/remuster/~hosts/")) == len(hosts), "all hosts are known")
    victim = next(host for host in hosts if host is not job.leader())
    rest = [host for host in hosts if host is not victim]

    (lab.directory / "alive.sick").write_text(victim.name)
    job.wait_round(2, *rest)
    record = job.check_failure(0, "gpu_ecc", victim.name, "hardware", *rest)
    assert record["verdict"]["node_fault"]
    until(lambda: "this host is in quarantine until" in job.commands[victim.name].said(), "the sick host says why")
    (line,) = quarantine(rest[0], etcd, "list").splitlines()
    assert line.startswith(f"{victim.name}~")
    assert f"by {job.run_id}/1: gpu_ecc" in line

    # The scheduler is told once, by the agent that judged.
    until(drained.exists, "the site's command was run")
    leader = job.commands[job.leader().name]
    until(lambda: f"drain_command for {victim.name}~" in leader.said(), "what it came to is said")
    assert drained.read_text().startswith(f"{victim.name}: remuster {job.run_id}: gpu_ecc: ")
    assert drained.read_text().count("\n") == 1

    other = Job(lab, etcd)  # another job, which only the sick host is given
    other.nnodes, other.options = "1:2", ("--max-restarts", "0")
    other.start(victim)
    until(lambda: f"in quarantine: {victim.name}~" in other.commands[victim.name].said(), "another job waits too")

    quarantine(rest[0], etcd, "lift", victim.name)
    until(lambda: "no longer in quarantine" in job.commands[victim.name].said(), "it is told")
    job.commands[rest[0].name].ranks[0].signal(9)
    job.wait_round(3, *hosts)
    job.finish(*hosts)
    other.finish(victim)
    job.check_one_world()
    job.check_nothing_left()
