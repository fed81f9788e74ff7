"""A real Slurm on the hosts of a lab: slurmctld on one, a slurmd on each of the others, GPUs that are device nodes.

For drills; root only, needs Debian's slurmctld, slurmd, slurm-client and munge, whose services need not run. Each host
has a munged of its own. State is in the lab's directory and in the hosts' own /run, so that nothing stays when they
go, and several clusters on one machine know nothing of each other: job ids begin at random, since what is named after
them may be in a directory that all have.
"""

from __future__ import annotations

import itertools
import os
import random
import re
import shutil
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from drills.lab import Host, Lab
from drills.sight import Process, boottime, until

import remuster

TOOLS = {"slurmctld": "slurmctld", "slurmd": "slurmd", "srun": "slurm-client", "munged": "munge"}
PATH = "/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
ROOT = Path(remuster.__file__).parent.parent
OVER = ("COMPLETED", "FAILED", "CANCELLED", "NODE_FAIL", "TIMEOUT", "PREEMPTED", "OUT_OF_MEMORY", "BOOT_FAIL")
_CTL = "ctl"
_MUNGE = "/run/munge/munge.socket.2"  # where libmunge looks by itself
_FIELD = re.compile(r"([A-Za-z][\w/:.-]*)=(.*?)(?=\s+[A-Za-z][\w/:.-]*=|\s*$)")


def why_not() -> str:
    """Return why there can be no cluster here, '' when there can."""
    missing = {package for tool, package in TOOLS.items() if shutil.which(tool, path=PATH) is None}
    return f"drills of Slurm need Debian's {', '.join(sorted(missing))}" if missing else ""


class Setup(NamedTuple):
    """How a cluster is set up. Times are in whole seconds; Slurm's own defaults are 300, 30 and 0."""

    nodes: int = 4
    gpus: Sequence[int] = (2,)  # of each node; the last number is for all that follow
    cpus: int = 8
    slurmd_timeout_s: int = 6  # after which a silent node is down
    kill_wait_s: int = 2  # from SIGTERM to SIGKILL
    grace_s: int = 10  # from SIGTERM to the requeue of a job that is preempted
    more: tuple[str, ...] = ()  # lines of slurm.conf; they come last and so win


class BatchJob:
    """A job of the cluster, by its id."""

    def __init__(self, cluster: Cluster, number: int, output: Path) -> None:
        self.id = number
        self._cluster = cluster
        self._output = output

    def show(self) -> dict[str, str]:
        """Return what slurmctld says of it, field by field."""
        return dict(_FIELD.findall(self._cluster.sh(f"scontrol -o show job {self.id}")))

    def state(self) -> str:
        return self.show()["JobState"]

    def wait_for(self, *states: str, timeout_s: float = 30.0) -> dict[str, str]:
        """Wait until the job is in one of ``states`` and return ``show()``; one that is over comes to no other."""

        def there() -> dict[str, str] | None:
            shown = self.show()
            over = shown["JobState"] in OVER and shown["JobState"] not in states
            assert not over, f"job {self.id} is {shown['JobState']}, not {states}: {self.output()[-3000:]}"
            return shown if shown["JobState"] in states else None

        found = until(there, lambda: f"job {self.id} is {states}: {self.show()}\n{self.output()[-3000:]}", timeout_s)
        assert found is not None
        return found

    def output(self) -> str:
        """Return what the batch script and its steps have printed until now."""
        return self._output.read_text(errors="replace") if self._output.exists() else ""

    def nodes(self) -> list[str]:
        """Return the names of its nodes now, without those that Slurm has taken from it."""
        listed = self.show().get("NodeList", "")
        return self._cluster.sh(f"scontrol show hostnames {listed}").split() if listed not in ("", "(null)") else []

    def cancel(self, *options: str) -> None:
        self._cluster.sh(" ".join(["scancel", *options, str(self.id)]))

    def start_now(self) -> None:
        """Do not wait for the two minutes after which Slurm starts a job again that was requeued."""
        # A slurmd starts nothing of a job whose credential it has revoked within the same second.
        self._cluster.sh(f"scontrol update JobId={self.id} StartTime=now+2")

    def processes(self) -> list[Process]:
        """Return what lives of it on all nodes that are up: whatever is neither Slurm's own daemon nor munge's."""
        return [p for name in self._cluster.nodes for p in self._cluster.processes(name)]

    def ours(self, node: str = "") -> list[Process]:
        """Return what lives of it, on one node or all, that Slurm has no name for: agents, their store, ranks."""
        found = self._cluster.processes(node) if node else self.processes()
        return [p for p in found if not p.title.startswith(("slurmstepd", "srun ", "/bin/bash "))]


class Cluster:
    """Slurm on hosts ``node1`` … of a lab, and ``ctl``, where slurmctld runs and jobs are submitted."""

    def __init__(self, lab: Lab, setup: Setup = Setup(), env: Mapping[str, str] | None = None) -> None:  # noqa: B008
        self.lab = lab
        self.setup = setup
        self.directory = lab.directory / "slurm"
        self.conf = self.directory / "slurm.conf"
        self.env = {
            "PATH": f"{Path(sys.executable).parent}:{PATH}",
            "HOME": "/run/user",
            "XDG_RUNTIME_DIR": "/run/user",
            "LANG": "C.UTF-8",
            "PYTHONPATH": str(ROOT),
            "SLURM_CONF": str(self.conf),
            **(env or {}),
        }
        self._numbers = itertools.count()
        names = [f"node{i}" for i in range(1, setup.nodes + 1)]
        self.ctl, *nodes = lab.host(_CTL, *names)
        self.nodes: dict[str, Host] = dict(zip(names, nodes, strict=True))
        self.slurmd: dict[str, Process] = {}
        self._munged: dict[str, Process] = {}
        self._write()
        for host in (self.ctl, *nodes):
            self._start_munge(host)
        self.slurmctld = self._start(self.ctl, "slurmctld", "-D", "-c", "-f", str(self.conf))
        for name in names:
            self.start_slurmd(name)
        self.wait_idle(*names)

    def _write(self) -> None:
        for folder in ("log", "state", "dev", "out"):
            (self.directory / folder).mkdir(parents=True)
        (self.directory / "munge.key").write_bytes(random.randbytes(128))
        (self.directory / "munge.key").chmod(0o600)
        gpus = [self.setup.gpus[min(i, len(self.setup.gpus) - 1)] for i in range(self.setup.nodes)]
        for i in range(max(gpus)):
            os.mknod(self.directory / "dev" / f"nvidia{i}", 0o20666, os.makedev(1, 3))  # as /dev/null
        files = [f"{self.directory}/dev/nvidia[0-{count - 1}]" for count in gpus]
        (self.directory / "gres.conf").write_text(
            "".join(
                f"NodeName={name} Name=gpu Type=h100 File={file}\n"
                for name, count, file in zip(self.nodes, gpus, files, strict=True)
                if count
            )
        )
        (self.directory / "cgroup.conf").write_text("CgroupPlugin=autodetect\n")
        self.conf.write_text(self._conf(gpus))

    def _conf(self, gpus: Sequence[int]) -> str:
        here, setup = self.directory, self.setup
        nodes = [
            f"NodeName={host.name} NodeAddr={host.address} CPUs={setup.cpus} Boards=1 SocketsPerBoard=1 "
            f"CoresPerSocket={setup.cpus} ThreadsPerCore=1 RealMemory=2000 State=UNKNOWN"
            + (f" Gres=gpu:h100:{count}" if count else "")
            for host, count in zip(self.nodes.values(), gpus, strict=True)
        ]
        lines = [
            "ClusterName=lab",
            f"SlurmctldHost={_CTL}({self.ctl.address})",
            "AuthType=auth/munge",
            "SlurmUser=root",
            "SlurmdUser=root",
            f"StateSaveLocation={here}/state",
            f"FirstJobId={random.randrange(1000, 60_000_000)}",
            # A path of a socket has room for 108 bytes; the directory of a test is longer.
            "SlurmdSpoolDir=/run/slurmd",
            "SlurmctldPidFile=/run/slurmctld.pid",
            "SlurmdPidFile=/run/slurmd.pid",
            f"SlurmctldLogFile={here}/log/slurmctld.log",
            f"SlurmdLogFile={here}/log/slurmd-%n.log",
            "ProctrackType=proctrack/linuxproc",
            "TaskPlugin=task/none",
            "JobAcctGatherType=jobacct_gather/none",
            "SelectType=select/cons_tres",
            "SelectTypeParameters=CR_Core",
            "SlurmdParameters=config_overrides",  # the nodes have more CPUs than the machine
            "SchedulerParameters=sched_interval=1,bf_interval=1,batch_sched_delay=0,sched_min_interval=100000",
            "MpiDefault=none",
            "ReturnToService=2",
            f"SlurmdTimeout={setup.slurmd_timeout_s}",
            "MessageTimeout=5",
            "TCPTimeout=2",
            f"KillWait={setup.kill_wait_s}",
            "MinJobAge=3600",  # jobs that are over are still shown
            "InactiveLimit=0",
            "GresTypes=gpu",
            "JobRequeue=1",
            "PreemptType=preempt/partition_prio",
            "PreemptMode=REQUEUE",
            *nodes,
            f"PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE PriorityTier=1 GraceTime={setup.grace_s}",
            "PartitionName=urgent Nodes=ALL MaxTime=INFINITE PriorityTier=10",
            *setup.more,
        ]
        return "\n".join(lines) + "\n"

    # --- daemons and nodes --------------------------------------------------------------------------------------------
    def _start(self, host: Host, *argv: str) -> Process:
        _, process = host.spawn(argv, self.env, self.directory / "log" / f"{argv[0]}-{host.name}.out")
        return process

    def _start_munge(self, host: Host) -> None:
        host.sh("mkdir -p -m 700 /run/user; mkdir -p -m 755 /run/munge /run/slurmd")
        files = [f"--{kind}-file=/run/munge/{kind}" for kind in ("pid", "seed", "log")]
        key = f"--key-file={self.directory / 'munge.key'}"
        argv = ("munged", "--foreground", "--force", key, f"--socket={_MUNGE}", *files, "--num-threads=2")
        self._munged[host.name] = self._start(host, *argv)
        until(lambda: Path(f"/proc/{host.init}/root{_MUNGE}").exists(), f"munge on {host.name} listens")

    def start_slurmd(self, name: str) -> None:
        """Start the slurmd of a node that is up and has none."""
        self.slurmd[name] = self._start(self.nodes[name], "slurmd", "-D", "-f", str(self.conf))

    def kill_slurmd(self, name: str) -> None:
        """SIGKILL a node's slurmd alone: what it has started lives on."""
        self.slurmd[name].signal(signal.SIGKILL)
        until(lambda: not self.slurmd[name].alive, f"slurmd of {name} has gone")

    def crash(self, name: str) -> float:
        """Power a node off: no FIN, no last word. Return when, on the clock that all hosts share."""
        at = boottime()
        self.nodes[name].crash()
        return at

    def boot(self, name: str) -> None:
        """Power a node on; its slurmd comes with it."""
        self.nodes[name].boot()
        self._start_munge(self.nodes[name])
        self.start_slurmd(name)

    def wait_idle(self, *names: str, timeout_s: float = 30.0) -> None:
        """Wait until these nodes have nothing to do."""
        until(lambda: set(names) <= self.idle(), lambda: f"{names} idle: {self.sh('sinfo -N')}", timeout_s)

    def idle(self) -> set[str]:
        return set(self.sh("sinfo -h -N -t idle -o %N 2>/dev/null || true").split())

    def node_state(self, name: str) -> str:
        """Return a node's state as ``scontrol show node`` has it, ``ALLOCATED`` or ``DOWN+DRAIN``."""
        return dict(_FIELD.findall(self.sh(f"scontrol -o show node {name}")))["State"]

    def processes(self, name: str) -> list[Process]:
        """Return what runs on a node that is up, but for Slurm's and munge's daemons."""
        host = self.nodes[name]
        ours = {self._munged[name].pid, self.slurmd[name].pid}
        return [p for p in host.processes() if p.pid not in ours] if host.up else []

    # --- jobs ---------------------------------------------------------------------------------------------------------
    def sh(self, script: str) -> str:
        """Run a shell script where jobs are submitted and return what it printed."""
        return self.ctl.sh(script, self.env)

    def sbatch(self, script: str, *options: str) -> BatchJob:
        """Submit a batch script; the ``#!`` line is added. Its output, of all its runs, is in one file."""
        number = next(self._numbers)
        file, output = self.directory / f"script-{number}", self.directory / "out" / f"{number}.out"
        file.write_text(f"#!/bin/bash\n{script}\n")
        argv = ["sbatch", "--parsable", f"--output={output}", "--open-mode=append", *options, str(file)]
        return BatchJob(self, int(self.sh(" ".join(argv)).partition(";")[0]), output)

    def srun(self, *arguments: str) -> str:
        """Run a job in the foreground and return what it printed."""
        return self.sh(" ".join(["srun", *arguments]))

    def preempt(self, *options: str) -> BatchJob:
        """Submit a job to the partition that comes first; it lasts until it is cancelled."""
        return self.sbatch("exec sleep 100000", "--partition=urgent", "--exclusive", *options)
