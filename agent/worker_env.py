"""What one rank is started with: its command line and its environment, as differences to the agent's own. Pure.

Called by the agent's loop for every rank of a round; the guardian applies the differences (a whole environment would
not fit into one of its messages). The names are torchrun's, with torchrun's meanings; where they differ: the restart
count is the job's, the same on all nodes, and rank 0's worker hosts the TCPStore.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from ..rendezvous.records import Job, ResumePoint, Roster
from .spec import RESUME_WORDS, JobSpec

_OURS = ("REMUSTER_", "TORCHELASTIC_")  # settings of agents: those that are not set for the rank are taken away
_MACRO = r"\$\$|\$\{local_rank\}|\$local_rank(?![_a-zA-Z0-9])"  # compiled when it is used

_OF_EVENTS = "PET_ON_EVENT"  # may hold a token; the other PET_ variables stay, as with torchrun
_ENV_NAME = r"[A-Z][A-Z0-9_]*\Z"
_OF_OTHERS = (  # what makes a library in a rank believe that MPI or srun has started it
    r"(?:PMI\d?|PMIX|OMPI|ORTE|PRTE|HYDRA|HYDI|PALS|MV2_COMM_WORLD)_|MPI_LOCAL(?:RANKID|NRANKS)\Z"
    r"|SLURM_(?:(?:PROCID|LOCALID|NPROCS|GTIDS|MPI_TYPE)\Z|NTASKS|TASK|PMI|SRUN_COMM|STEP_(?:NUM_TASKS|TASKS|LAUNCHER))"
)
_RESERVED = (
    r"(?:LOCAL|GROUP|ROLE|NODE|MASTER|REMUSTER|TORCHELASTIC|PET|SLURM|OMPI|PMI|PMIX)_"  # who the rank and launcher are
    r"|(?:RANK|WORLD_SIZE|PATH|HOME|SHELL|ENV|IFS|USER|LOGNAME|TMPDIR)\Z"
    r"|PYTHON|PERL5|RUBY(?:LIB|OPT)|(?:LD|DYLD|GCONV|GLIBC|MALLOC|BASH|JAVA)_|NLSPATH|LOCPATH"  # which code it loads
    r"|(?:CUDA|HIP|ROCR|NVIDIA|ZE|GPU)_\w*(?:DEVICE|AFFINITY)|CUDA_(?:HOME|PATH)|NCCL_(?:\w*PLUGIN|CONF_FILE)"
)


class RankPlace(NamedTuple):
    """Which rank of which round: the job as it runs, its roster, this node's index in it and the rank's on the node."""

    job: Job
    roster: Roster
    group_rank: int
    local_rank: int

    @property
    def rank(self) -> int:
        return self.roster.first_rank(self.group_rank) + self.local_rank


class RankEnv(NamedTuple):
    """Differences to the agent's environment. ``omp_defaulted``: OMP_NUM_THREADS is our guess; say so, once."""

    set: Mapping[str, str]
    unset: tuple[str, ...]
    omp_defaulted: bool


def hook_may_set(name: str) -> bool:
    """May a resume hook put ``name`` into the ranks' environment?

    Not what says who a rank is, which devices it has, or which code its interpreter and loader run.
    """
    return re.match(_ENV_NAME, name) is not None and re.match(_RESERVED, name) is None


def scrubbed(spec: JobSpec, inherited: Mapping[str, str]) -> tuple[str, ...]:
    """Return which variables of other launchers the ranks do not get (--scrub-env); the job's own, of Slurm, stay."""
    return tuple(sorted(name for name in inherited if re.match(_OF_OTHERS, name))) if spec.scrub_env else ()


def rank_env(spec: JobSpec, place: RankPlace, error_file: str, inherited: Mapping[str, str]) -> RankEnv:
    """Return what to set and what to take away; ``inherited`` is the environment that the guardian starts from."""
    job, roster = place.job, place.roster
    me = roster.members[place.group_rank]
    master_addr, _, master_port = job.master.rpartition(":")
    rank, world = str(place.rank), str(roster.world_size)
    first_in_role, in_role = roster.in_role(place.group_rank)
    env = {name: value for name, value in (job.resume.env if job.resume else ()) if hook_may_set(name)}
    env |= {
        "LOCAL_RANK": str(place.local_rank),
        "RANK": rank,
        "GROUP_RANK": str(place.group_rank),
        "ROLE_NAME": spec.role,
        "ROLE_RANK": str(first_in_role + place.local_rank),
        "LOCAL_WORLD_SIZE": str(me.slots),
        "WORLD_SIZE": world,
        "GROUP_WORLD_SIZE": str(len(roster.members)),
        "ROLE_WORLD_SIZE": str(in_role),
        "MASTER_ADDR": master_addr.strip("[]"),
        "MASTER_PORT": master_port,
        "TORCHELASTIC_RESTART_COUNT": str(job.attempt),
        "TORCHELASTIC_MAX_RESTARTS": str(spec.max_restarts),
        "TORCHELASTIC_RUN_ID": spec.run_id,
        # with True every rank would be a client, and wait for a store that no agent of ours hosts
        "TORCHELASTIC_USE_AGENT_STORE": "False",
        "TORCHELASTIC_ERROR_FILE": error_file,
        "TORCH_NCCL_ASYNC_ERROR_HANDLING": inherited.get("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1"),
        "REMUSTER_RUN_ID": spec.run_id,
        "REMUSTER_ROUND": str(job.round),
        "REMUSTER_ATTEMPT": str(job.attempt),
        "REMUSTER_INCARNATION": f"{me.inc:x}",
        "REMUSTER_NODE": me.node,
        "REMUSTER_TOKEN": f"{spec.run_id}/{job.round}/{me.inc:x}",
    }
    if spec.checkpoint_dir is not None:
        env["REMUSTER_CHECKPOINT_DIR"] = str(spec.checkpoint_dir)
    if job.resume is not None and job.resume.path:
        env["REMUSTER_RESUME_FROM"] = _here(spec, job.resume)
        env["REMUSTER_RESUME_STEP"] = str(job.resume.step)
    if spec.virtual_local_rank:
        env["LOCAL_RANK"] = "0"
        env["CUDA_VISIBLE_DEVICES"] = _own_device(inherited.get("CUDA_VISIBLE_DEVICES"), place.local_rank)
    # as torchrun does: a rank that takes every core for itself slows all the others of its node
    omp_defaulted = me.slots > 1 and "OMP_NUM_THREADS" not in inherited and "OMP_NUM_THREADS" not in env
    if omp_defaulted:
        env["OMP_NUM_THREADS"] = "1"
    unset = {name for name in inherited if (name.startswith(_OURS) and name not in env) or name == _OF_EVENTS}
    return RankEnv(env, tuple(sorted({*unset, *scrubbed(spec, inherited)})), omp_defaulted)


def _own_device(visible: str | None, local_rank: int) -> str:
    """Return the rank's entry of CUDA_VISIBLE_DEVICES, its own number where that is not set; no device stays none."""
    if visible is None:
        return str(local_rank)
    return visible.split(",")[local_rank].strip() if visible.strip() else visible


def rank_argv(spec: JobSpec, local_rank: int, resume: ResumePoint | None = None) -> tuple[str, ...]:
    """Return the rank's command line: interpreter, ``-u``, script and its arguments, or the program itself.

    With a checkpoint to re-enter from, the spec's ``checkpoint_args`` follow, filled in.

    ``${local_rank}`` and ``$local_rank`` become the number, as in torchrun; everything else reaches the script byte
    for byte. Unlike torchrun ``$$`` stays ``$$``: there ``'cost: 5$$'`` silently lost a sign. ``$$local_rank`` is,
    as there, no place-holder.
    """
    args = tuple(_with_local_rank(a, local_rank) for a in spec.script_args)
    if resume is not None and resume.path:
        args += tuple(_filled(word, _here(spec, resume), resume.step) for word in spec.checkpoint_args)
    if spec.no_python:
        return (spec.script, *args)
    script = _with_local_rank(spec.script, local_rank)
    how = ("-m",) if spec.module else () if spec.runner is None else (spec.runner,)
    return (spec.python, "-u", *how, script, *args)


def _here(spec: JobSpec, resume: ResumePoint) -> str:
    """Return the checkpoint's path on this node: that of the node which chose it may be another one."""
    return resume.path if not resume.name or spec.checkpoint_dir is None else str(spec.checkpoint_dir / resume.name)


def _filled(word: str, path: str, step: int) -> str:
    """Fill in where the ranks re-enter. What was split into words stays one word, whatever the path holds."""
    directory, _, name = path.rstrip("/").rpartition("/")
    meant = {"path": path, "dir": directory or "/", "name": name, "step": str(step)}
    return re.sub("{(" + "|".join(RESUME_WORDS) + ")}", lambda m: meant[m[1]], word)


def _with_local_rank(arg: str, local_rank: int) -> str:
    if "$" not in arg:
        return arg
    return re.sub(_MACRO, lambda m: m[0] if m[0] == "$$" else str(local_rank), arg)
