"""What Slurm says of a job, read from `scontrol`'s own words, and what a signal means then. Pure.

`scontrol -o show job ID` gives a line of `key=value` for each task of an array that has begun with that number, and
`scontrol show config` names the controller's own time beside its KillWait: so times are compared on one clock.
Measured with Slurm 22.05 (docs/signals.md). Called by whoever has asked by ``scontrol.py``.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from .hostlist import HostListError, expand

KILL_WAIT_S = 30.0  # Slurm's default, from SIGTERM to SIGKILL
WARNED_S = 300.0  # SIGTERM to a running job so shortly before its limit is what --signal=TERM@N was asked for
_FIELD = re.compile(r"(?:^|\s)([A-Za-z]+)=(\S*)")
_NOW = re.compile(r"Configuration data as of (\d+)\s*$", re.MULTILINE)
_KILL_WAIT = re.compile(r"^KillWait\s*=\s*(\d+) sec", re.MULTILINE)


class SlurmJob(NamedTuple):
    """A job as Slurm's controller sees it. Times are seconds from now, by the controller's clock."""

    state: str  # RUNNING, COMPLETING (is being ended, for whatever reason), TIMEOUT, PREEMPTED, …
    reason: str = ""  # '' where Slurm says None
    left_s: float | None = None  # until its end, negative when that is over; None: it has no limit, or it is not known
    restarts: int = 0  # how often it has been requeued; one that is being requeued counts already
    nodes: str = ""  # a host list, as node[1-3]
    preempted: bool = False
    may_requeue: bool = False  # a batch job that was not submitted with --no-requeue
    kill_wait_s: float = KILL_WAIT_S  # what its processes have from SIGTERM at the time limit to SIGKILL
    batch_host: str = ""  # the node that runs, or ran, the batch script, if there is one


class Ending(NamedTuple):
    """What a signal means in the light of what Slurm says of the job."""

    why: str = ""  # why Slurm ends the job and nobody is to pay for that; '' = it does not, or a person does
    left_s: float | None = None  # until Slurm kills what is left of it


def ending(job: SlurmJob, restarts: int, asked_to_end: bool) -> Ending:
    """Return what a notice means, or SIGTERM when ``asked_to_end``, to a step of a job requeued ``restarts`` times.

    22.05 says RUNNING to a job that it preempts with a grace, and COMPLETING, without a reason, to one that somebody
    has cancelled (docs/signals.md has the table).
    """
    if job.preempted:
        return Ending("Slurm preempts the job", job.kill_wait_s if job.left_s is None else max(0.0, job.left_s))
    if job.state == "TIMEOUT" or job.reason.endswith("TimeLimit"):
        return Ending("the job's time limit is over", job.kill_wait_s)
    if job.restarts > restarts:
        return Ending("Slurm requeues the job", job.kill_wait_s)
    if job.state == "RUNNING" and job.left_s is not None and (not asked_to_end or job.left_s <= WARNED_S):
        return Ending("the job's time limit is near", max(0.0, job.left_s))
    return Ending()


def parse_job(job_id: str, job: str, config: str = "") -> SlurmJob | None:
    """Return the job from what the two commands print with times in seconds; None when it is not there."""
    found = job_fields(job_id, job)
    return _job(found, config) if found else None


def job_fields(job_id: str, printed: str) -> dict[str, str]:
    """Return the fields of a job from the lines that `show job` prints; none when it is not there."""
    for line in printed.splitlines():
        # What a user may name freely, spaces and all, comes first or last in it.
        head, mark, tail = line.partition(" UserId=")
        found = fields(f"{head.partition(' ')[0]}{mark}{tail}")
        if found.get("JobId") == job_id and found.get("JobState"):
            return found
    return {}


def fields(line: str) -> dict[str, str]:
    """Return the fields of one line, the first of each name, '' for those without a value."""
    found: dict[str, str] = {}
    for key, value in _FIELD.findall(line):
        found.setdefault(key, "" if value in ("(null)", "None", "N/A") else value)
    return found


def nodes_of(job: SlurmJob) -> frozenset[str]:
    """Return the nodes that the job has now, none where that cannot be read."""
    try:
        return frozenset(expand(job.nodes)) if job.nodes else frozenset()
    except HostListError:
        return frozenset()


def _job(found: dict[str, str], config: str) -> SlurmJob:
    end, now, kill_wait = found.get("EndTime", ""), _NOW.search(config), _KILL_WAIT.search(config)
    limited = found.get("TimeLimit", "") not in ("", "UNLIMITED") or found.get("PreemptTime", "") != ""
    known = end.isdecimal() and now is not None and limited
    return SlurmJob(
        state=found["JobState"],
        reason=found.get("Reason", ""),
        left_s=float(end) - float(now[1]) if known and now is not None else None,
        restarts=int(found["Restarts"]) if found.get("Restarts", "").isdecimal() else 0,
        nodes=found.get("NodeList", ""),
        preempted=found["JobState"] == "PREEMPTED" or found.get("PreemptTime", "") != "",
        may_requeue=found.get("Requeue") == "1" and found.get("BatchFlag") == "1",
        kill_wait_s=float(kill_wait[1]) if kill_wait else KILL_WAIT_S,
        batch_host=found.get("BatchHost", "") if found.get("BatchFlag") == "1" else "",
    )
