"""What `srun remuster train.py` means: a step that says nothing else of how its nodes meet makes one job of them.

Every task comes to the same answer from its own variables; the step's first node keeps the etcd. Called by `build`
where Slurm has started the command.
"""

from __future__ import annotations

from typing import NamedTuple

from ..agent.hostlist import HostListError
from ..agent.spec import Embedded
from . import devices, values
from .environment import Environment
from .errors import SaidByAnother, UsageError
from .given import Given
from .meeting import LISTS, PLACES
from .slurm import Slurm

# One of them, and it is given.
MEETING = ("rdzv-backend", "rdzv-endpoint", *PLACES, *LISTS)

# Below the ephemeral ports, above the usual services; 16 steps of each of 181 jobs in a row have ports of their own.
FIRST_PORT, STEPS, JOBS = 24100, 16, 181


class Step(NamedTuple):
    """The job that a step is."""

    least: int
    most: int
    ranks: int  # of this node
    meeting: Embedded | None  # None: one node needs no other


def choose(given: Given, env: Environment, slurm: Slurm, notes: list[str]) -> Step | None:
    """Return what the step makes of the command line; None where that says how nodes meet, or there is no step.

    UsageError when the step cannot be a job; SaidByAnother in the tasks that leave it to the first one to say so.
    """
    if given.on("standalone") or any(given.text(name) is not None for name in MEETING):
        return None
    if not slurm.step_id:
        _say_alone(given, slurm, notes)
        return None
    try:
        names, tasks = slurm.node_names(), slurm.most_tasks()
    except HostListError as error:
        raise UsageError(
            f"what Slurm tells of this step's nodes cannot be used (SLURM_STEP_NODELIST is {slurm.node_list[:80]!r}: "
            f"{error}); say where they meet: --rdzv-backend c10d --rdzv-endpoint HOST:29400 --nnodes N"
        ) from None
    try:
        if tasks > 1:
            raise UsageError(_one_task(slurm, tasks))
        least, most = _nodes(given, slurm, notes)
    except UsageError:
        if slurm.task:
            raise SaidByAnother from None
        raise
    port = step_port(slurm.job_id, slurm.step_id)
    meeting = Embedded(names[0], port, here=slurm.node == 0, address=slurm.first_address)
    return Step(least, most, ranks(slurm.gpus, env.cuda_visible_devices), None if slurm.nodes == 1 else meeting)


def ranks(gpus: int, visible: str | None) -> int:
    """Return how many ranks a node has: one for each GPU that Slurm gives it and they can see, at least one."""
    seen = [gpus] if gpus >= 0 else []
    if visible is not None:
        seen.append(devices.gpus(visible))
    return max(1, min(seen, default=1))


def step_port(job_id: str, step_id: str) -> int:
    """Return the port of a step's etcd, the same on all nodes."""
    job, step = (
        int(text) if text.isdecimal() and len(text) < 16 else sum(text.encode(errors="surrogateescape"))
        for text in (job_id, step_id)
    )
    return FIRST_PORT + (job * STEPS + step) % (STEPS * JOBS)


def _nodes(given: Given, slurm: Slurm, notes: list[str]) -> tuple[int, int]:
    """Return MIN and MAX: all of the step's, unless --nnodes asks for fewer."""
    text, origin, there = given.text("nnodes"), given.origin("nnodes"), slurm.nodes
    if text is None:
        return there, there
    least, most = values.nnodes(origin, text)
    if least > there:
        raise UsageError(
            f"{origin} is {text}, and srun has started this on {there} node{'s' * (there > 1)}; write srun "
            f"--nodes={least} --ntasks={least} in a job of as many nodes, or a smaller {origin}"
        )
    if slurm.task == 0 and most > there:
        notes.append(f"{origin} is {text}, and the step has {there} nodes: it can grow no further")
    if slurm.task == 0 and most < there:
        notes.append(f"{origin} is {text}, of the step's {there} nodes: the others stand by as spares")
    return least, min(most, there)


def _one_task(slurm: Slurm, tasks: int) -> str:
    """Say that one task for each rank is too many, and what to write."""
    nodes, cpus = slurm.nodes, max(slurm.cpus, tasks)
    line = f"srun --nodes={nodes} --ntasks={nodes} --ntasks-per-node=1 --cpus-per-task={cpus}"
    if slurm.gpus_by_task or (slurm.gpus > 0 and not slurm.batch):  # a batch script's srun has the job's GPUs anyway
        line += f" --gpus-per-node={slurm.gpus if slurm.gpus > 0 else tasks}"
    if slurm.gpus_by_task:
        line += " --gpu-bind=none"
    more = " (GPUs by node, not by task: the one task must have them all)" if slurm.gpus_by_task else ""
    return (
        f"srun has started {tasks} tasks on a node, and one remuster starts all ranks of its node; write: {line} "
        f"remuster …{more}"
    )


def _say_alone(given: Given, slurm: Slurm, notes: list[str]) -> None:
    line = f"srun --nodes={slurm.nodes} --ntasks-per-node=1 remuster …"
    if not slurm.name:  # slurmd gives it to all that it starts
        notes.append(
            f"Slurm job {slurm.job_id} has not started this, so it may run outside of the job, where salloc was "
            f"called; to run on the job's {'node' if slurm.nodes == 1 else f'{slurm.nodes} nodes'} write: {line}"
        )
    elif slurm.nodes > 1:
        notes.append(
            f"this runs on one of the {slurm.nodes} nodes of Slurm job {slurm.job_id}; to use them all write: {line}"
        )
