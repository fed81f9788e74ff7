"""What PBS, Torque, LSF and OAR say of a job in its environment: its name and its hosts; pure.

None of them starts a command on each node by itself, and none says how often a job was requeued, so a launch has no
name here (docs/other-starts.md). Slurm is not among them: it says more, and another module reads it. Called by
`environment`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from .given import Setting


class Batch(NamedTuple):
    """One job of a batch system, as seen by one of its processes."""

    system: str
    run_id: Setting
    file: Setting | None = None  # a host file, with a line for each core
    counts: Setting | None = None  # LSB_MCPU_HOSTS
    tasks: Setting | None = None  # how many of these commands an mpiexec has started on this node
    later_node: bool = False  # plainly not the job's first node


class _System(NamedTuple):
    name: str
    job: str
    files: tuple[str, ...]


_SYSTEMS = (
    _System("PBS", "PBS_JOBID", ("PBS_NODEFILE",)),  # OpenPBS, PBS Professional and Torque
    _System("LSF", "LSB_JOBID", ("LSB_DJOB_HOSTFILE",)),
    _System("OAR", "OAR_JOB_ID", ("OAR_NODEFILE", "OAR_NODE_FILE", "OAR_FILE_NODES")),  # one file, three names
)
# Open MPI; MPICH and Intel MPI; Cray's and HPE's; IBM's jsrun.
_TASKS = (
    "OMPI_COMM_WORLD_LOCAL_SIZE",
    "MPI_LOCALNRANKS",
    "PALS_LOCAL_SIZE",
    "PMI_LOCAL_SIZE",
    "JSM_NAMESPACE_LOCAL_SIZE",
)


def found(environ: Mapping[str, str]) -> Batch | None:
    """Return the job that this process belongs to, if it belongs to one."""
    for system in _SYSTEMS:
        job = environ.get(system.job, "")
        if job:
            return Batch(
                system.name,
                Setting(_run_id(system.name, job, environ), system.job),
                _first(environ, system.files),
                _first(environ, ("LSB_MCPU_HOSTS",)) if system.name == "LSF" else None,
                _first(environ, _TASKS),
                environ.get("PBS_NODENUM", "0") != "0",  # by pbsdsh and mpiexec; 0 in the job's script
            )
    return None


def _run_id(system: str, job: str, environ: Mapping[str, str]) -> str:
    """Return the job's name. The elements of an LSF array share their number; in PBS and OAR each has its own."""
    index = environ.get("LSB_JOBINDEX", "0") if system == "LSF" else "0"
    return job if index in ("", "0") else f"{job}[{index}]"


def _first(environ: Mapping[str, str], names: tuple[str, ...]) -> Setting | None:
    return next((Setting(environ[name], name) for name in names if environ.get(name)), None)


def port(run_id: str) -> int:
    """Return the port where the nodes of a job meet: jobs that share a first host shall not share it.

    Below torchrun's 29400 and 29500 and below Linux's own range, which begins at 32768.
    """
    digits = "".join(char for char in run_id.partition(".")[0] if char.isdecimal())
    return 25400 + int(digits[-6:] or 0) % 4000
