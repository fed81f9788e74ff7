"""How this node's ranks are started, as far as the command line says: by what, with which devices, on which CPUs.

Called by `build`, for a part of the `JobSpec`.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from . import files
from .environment import Environment
from .errors import UsageError
from .given import Given

RUNNER = Path(__file__).parent.parent / "worker" / "run_path.py"  # executed by the ranks' interpreter


def how(given: Given, notes: list[str]) -> tuple[bool, bool, bool]:
    """Return --module, --no-python and --run-path; the last is the strongest, as in torchrun."""
    module, no_python, run_path = (given.on(name) for name in ("module", "no-python", "run-path"))
    if run_path and (module or no_python):
        notes.append("--run-path: the script is a Python file; --module and --no-python count for nothing beside it")
        return False, False, True
    return module, no_python, run_path


def interpreter(given: Given, env: Environment, no_python: bool) -> str:
    """Return the ranks' interpreter: --python over PYTHON_EXEC over the one that runs this."""
    text = given.text("python")
    if text is not None:
        if no_python:
            raise UsageError(f"{given.origin('python')} and --no-python contradict each other; leave one of them out")
        return files.interpreter(given.origin("python"), text)
    return files.interpreter("PYTHON_EXEC", env.python_exec) if env.python_exec else sys.executable


def check_devices(given: Given, ranks: int, env: Environment) -> None:
    """Refuse --virtual-local-rank with more ranks than devices. A list that is empty means that there are none."""
    visible = env.cuda_visible_devices
    if given.on("virtual-local-rank") and visible and visible.count(",") + 1 < ranks:
        raise UsageError(
            f"{given.origin('virtual-local-rank')} gives each of {ranks} ranks a device of its own, and "
            f"CUDA_VISIBLE_DEVICES is {visible!r}; name as many devices there, or give a smaller --nproc-per-node"
        )


def cpus(given: Given, ranks: int, env: Environment, notes: list[str]) -> tuple[tuple[int, ...], ...]:
    """Return what the ranks are bound to, if they are to be and can be; say it, and when CPUs are few."""
    allowed = len(os.sched_getaffinity(0))
    if ranks > allowed:
        what = "look at taskset and the cpuset"
        if allowed == os.cpu_count():
            what = "the machine has no more: give a smaller --nproc-per-node if they are to be fast"
        elif env.slurm is not None:
            least = f"--cpus-per-task={ranks}"
            what = f"write srun {least} or more (since Slurm 22.05 srun does not take it from sbatch)"
            if not env.slurm.step_id:
                what = f"give sbatch or salloc {least} or more"
        notes.append(f"{ranks} ranks share the {allowed} of {os.cpu_count()} CPUs that this command may use; {what}")
    text, origin = given.text("numa-binding"), given.origin("numa-binding")
    if text is None:
        return ()
    from . import binding, topology

    try:
        mode = binding.Mode(text)
    except ValueError:
        raise UsageError(
            f"{origin} is {text!r}; give {', '.join(mode.value for mode in binding.Mode)}, or leave it out"
        ) from None
    try:
        sets = topology.bound(mode, ranks, env.cuda_visible_devices)
    except binding.CannotBindError as error:
        notes.append(f"{origin} {text}: {error}; the ranks run unbound")
        return ()
    notes.append(f"{origin} {text} binds local ranks {binding.words(sets)}")
    return sets


def say_interpreter(python: str, given: Given, env: Environment, notes: list[str]) -> None:
    """Name the ranks' interpreter, and warn when another environment is active than the one it belongs to."""
    if env.slurm is None or env.slurm.node == 0:  # all tasks of a step would say the same on one console
        notes.append(f"ranks run {python}")
    root = env.active_python
    chosen = given.text("python") or env.python_exec
    if root and not chosen and os.path.realpath(root) != os.path.realpath(sys.prefix):
        notes.append(
            f"the active environment is {root}, and remuster is installed for {sys.prefix}: ranks run the latter's "
            f"Python; give --python {root}/bin/python if the former is meant"
        )
