"""What a run is called, and this launch of it. Called by `build`, for a part of the `JobSpec`."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from . import meeting, values
from .environment import Environment
from .errors import UsageError
from .given import Given

if TYPE_CHECKING:
    from .gathering import Gathering


class Run(NamedTuple):
    """Names of the run and of this launch of it; empty: the store makes one, there is none."""

    id: str
    launch: str = ""


def run(
    given: Given,
    env: Environment,
    around: Gathering | None,
    where: meeting.Meeting,
    in_step: bool,
    notes: list[str],
) -> Run:
    """Name the run. There is no default that two jobs could share; an etcd of the job's own makes a name."""
    text, name, launch = given.text("rdzv-id"), "", ""
    if env.slurm is not None:
        # A step with fewer nodes than were asked for is a part of the run: others of its job are the rest.
        whole = bool(env.slurm.step_id) and (in_step or env.slurm.nodes >= where.most)
        name = values.run_id("SLURM_JOB_ID", env.slurm.run_id if whole else env.slurm.job_id)
        launch = env.slurm.launch_id(whole)
    elif env.batch is not None and where.most > 1 and (where.embedded is None or (around and not around.listed)):
        # Several commands of a job that are each one node are no one run.
        name = values.run_id(env.batch.run_id.origin, env.batch.run_id.text)
    if text is not None:
        return Run(values.run_id(given.origin("rdzv-id"), text), launch)
    if name or where.embedded is not None:
        return Run(name, launch)
    if where.most > 1:
        raise UsageError("several nodes need one name for their run; give --rdzv-id NAME, the same on all of them")
    made = os.urandom(6).hex()
    notes.append(f"run id {made}")
    return Run(made)
