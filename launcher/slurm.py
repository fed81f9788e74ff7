"""What Slurm's variables tell a task of a job: whose step this is, on which nodes, and which of them this one is.

Pure: a mapping in, a frozen value out, and nothing is asked of Slurm's programs, which a container does not have. What
is malformed is refused only where it is needed. Read by `environment`; `slurm_step` decides what follows from it.

Measured with 22.05: a step of two of a job's three nodes has SLURM_NNODES=2 beside SLURM_JOB_NUM_NODES=3; a batch job
that was submitted inside a step keeps that step's SLURM_STEP_* variables; nodes of a heterogeneous job's step are
numbered group by group, while SLURM_STEP_NODELIST is sorted by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ..agent.hostlist import HostListError, counts, expand

FIRST_SPECIAL = 0xFFFFFFF0  # steps that Slurm has for itself: the batch script, an interactive shell of salloc's


class Slurm(NamedTuple):
    """One task's job. Empty text and -1: Slurm has not said it."""

    job_id: str
    step_id: str = ""  # empty: no task of srun's, but the batch script or a shell
    restarts: int = 0  # how often the job was requeued
    nodes: int = 1  # of the step; outside of one, of the job
    node_list: str = ""  # of the step
    groups: tuple[str, ...] = ()  # node lists of a heterogeneous job's groups
    node: int = 0  # this node's number in the step
    name: str = ""  # this node's name for Slurm, which need not be its host name
    tasks: str = ""  # of the step, for each node
    task: int = 0  # this task's number in the step
    gpus: int = -1  # that the step has on this node
    gpus_by_task: bool = False  # they are shared out to the tasks
    cpus: int = -1  # that the step has on this node
    first_address: str = ""  # of the job's first node, where that is known to have called srun
    batch: bool = False  # a job of sbatch's: no other is ever requeued

    @property
    def run_id(self) -> str:
        """Name the run of this step: two steps of one job are two runs, and a requeued job counts its steps anew."""
        return f"{self.job_id}.{self.step_id}"

    def launch_id(self, whole: bool) -> str:
        """Tell this launch from a requeued one; ``whole``: and from those of the job's other steps."""
        return f"{self.run_id if whole else self.job_id}.{self.restarts}"

    def node_names(self) -> tuple[str, ...]:
        """Return the names of the step's nodes by their numbers; HostListError when they cannot be known."""
        names = expand(self.node_list)
        if self.groups:
            among = set(names)
            names = tuple(name for group in self.groups for name in expand(group) if name in among)
        if len(names) != self.nodes or not 0 <= self.node < len(names):
            raise HostListError(f"it names {len(names)} nodes, of {self.nodes}, and this is number {self.node}")
        if self.name and names[self.node] != self.name:
            raise HostListError(f"node {self.node} of it is {names[self.node]}, and this one is {self.name}")
        return names

    def most_tasks(self) -> int:
        """Return how many tasks of the step are on the node that has most of them."""
        return max(counts(self.tasks)) if self.tasks else 1


def read(environ: Mapping[str, str]) -> Slurm | None:
    """Return what Slurm's variables say; None when they name no job."""
    job_id = environ.get("SLURM_JOB_ID", "")
    if not job_id:
        return None
    restarts = max(0, _number(environ, "SLURM_RESTART_COUNT"))
    if not _in_step(environ):
        nodes = _number(environ, "SLURM_JOB_NUM_NODES")
        nodes = max(1, nodes, _number(environ, "SLURM_NNODES"))
        name = environ.get("SLURMD_NODENAME", "")
        return Slurm(job_id, restarts=restarts, nodes=nodes, name=name, batch=_is_batch(environ))
    groups = tuple(
        environ.get(f"SLURM_JOB_NODELIST_HET_GROUP_{i}", "")
        for i in range(min(_number(environ, "SLURM_HET_SIZE"), 128))
    )
    return Slurm(
        job_id,
        str(_number(environ, "SLURM_STEP_ID")),
        restarts,
        max(1, _number(environ, "SLURM_STEP_NUM_NODES")),
        environ.get("SLURM_STEP_NODELIST", ""),
        groups,
        max(0, _number(environ, "SLURM_NODEID")),
        environ.get("SLURMD_NODENAME", ""),
        environ.get("SLURM_STEP_TASKS_PER_NODE", ""),
        max(0, _number(environ, "SLURM_PROCID")),
        _number(environ, "SLURM_GPUS_ON_NODE"),
        _gpus_by_task(environ),
        _number(environ, "SLURM_CPUS_ON_NODE"),
        _first_address(environ, groups),
        _is_batch(environ),
    )


def _in_step(environ: Mapping[str, str]) -> bool:
    """Tell whether srun has started this task, and these variables are not left over from another job's step."""
    if not 0 <= _number(environ, "SLURM_STEP_ID") < FIRST_SPECIAL or not environ.get("SLURM_STEP_NODELIST"):
        return False
    nodes, tasks = _number(environ, "SLURM_STEP_NUM_NODES"), _number(environ, "SLURM_STEP_NUM_TASKS")
    if nodes != _number(environ, "SLURM_NNODES", nodes) or tasks != _number(environ, "SLURM_NTASKS", tasks):
        return False
    # In srun --pty bash a person types: the tasks beside the first, whose input is empty, have ended long ago.
    if environ.get("SLURM_PTY_PORT") and tasks > nodes:
        return False
    try:
        return environ.get("SLURMD_NODENAME", "") in ("", *expand(environ["SLURM_STEP_NODELIST"]))
    except HostListError:
        return True  # to be told when the list is needed


def _gpus_by_task(environ: Mapping[str, str]) -> bool:
    asked = environ.get("SLURM_GPUS_PER_TASK") or environ.get("SLURM_GPU_BIND", "none") != "none"
    return bool(asked) or "gres/gpu" in environ.get("SLURM_TRES_PER_TASK", "")  # the last since 23.11


def _first_address(environ: Mapping[str, str], groups: tuple[str, ...]) -> str:
    """Return the address of the node that runs the batch script, if it called srun: that is the job's first node.

    The step's first node is the same one if it comes first in the job's list. From a login node (salloc) srun's
    address says nothing.
    """
    if not _is_batch(environ):
        return ""
    try:
        of_job = expand(groups[0] if groups else environ.get("SLURM_JOB_NODELIST", ""))
        of_step = expand(environ["SLURM_STEP_NODELIST"])
    except HostListError:
        return ""
    first = of_job[0] in of_step if groups else of_job[0] == of_step[0]
    return environ.get("SLURM_LAUNCH_NODE_IPADDR", "") if first else ""


def _is_batch(environ: Mapping[str, str]) -> bool:
    return environ.get("ENVIRONMENT") == "BATCH"


def _number(environ: Mapping[str, str], name: str, default: int = -1) -> int:
    text = environ.get(name, "")
    return int(text) if text.isdecimal() and text.isascii() and len(text) < 16 else default
