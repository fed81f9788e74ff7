"""How the job comes to an end: by which signals and alarms, with how much time, and what Slurm is asked then.

Called by `build`, for a part of the `JobSpec`; `starting` is about the other end.
"""

from __future__ import annotations

from . import values
from .environment import Environment
from .errors import UsageError
from .given import Given


def stop_signals(given: Given, notes: list[str]) -> tuple[int, ...]:
    """Return which signals stop the job beside those that always do."""
    origin = given.origin("signals-to-handle")
    found = values.stop_signals(origin, given.text("signals-to-handle") or "")
    if found.ignored:
        notes.append(f"{origin}: ignored, as no signal that can stop a job here: {', '.join(found.ignored)}")
    return found.numbers


def notice_signals(given: Given, env: Environment, stops: tuple[int, ...]) -> tuple[int, ...]:
    """Return which signals announce the end. Under Slurm those two that scripts ask for in `sbatch --signal`."""
    text, origin = given.text("notice-signal"), given.origin("notice-signal")
    if text is None:
        return tuple(number for number in values.NOTICES if env.slurm is not None and number not in stops)
    if text == "none":
        return ()
    number = values.notice_signal(origin, text)
    if number in stops:
        raise UsageError(
            f"{origin} is {text!r}, and {given.origin('signals-to-handle')} names it too; take it out of one of them"
        )
    return (number,)


def grace(given: Given, env: Environment) -> float:
    """Return how long ranks have from SIGTERM to SIGKILL."""
    text = given.text("shutdown-timeout")
    if text is None and env.shutdown_timeout:
        return values.seconds("TORCH_ELASTIC_SHUTDOWN_TIMEOUT", env.shutdown_timeout)
    return values.seconds(given.origin("shutdown-timeout"), "30" if text is None else text)


def alarm_window(given: Given) -> float | None:
    """Return how long a round goes on after a line that is an alarm; None: no line is one."""
    text = given.text("alarm-window")
    return None if text == "off" else values.seconds(given.origin("alarm-window"), "10" if text is None else text)


def hang_timeout(given: Given) -> float | None:
    """Return how long ranks may do nothing; None: computed from their steps."""
    text = given.text("hang-timeout")
    return None if text is None else values.hang_timeout(given.origin("hang-timeout"), text)


def requeue(given: Given, env: Environment) -> bool:
    """Return whether Slurm is to queue the job again where that helps."""
    if given.on("requeue") and env.slurm is None:
        raise UsageError(
            f"{given.origin('requeue')} is for a job of Slurm's, and SLURM_JOB_ID is not set; start it in one, or "
            "leave it out"
        )
    return given.on("requeue")
