"""The only place where a setting is read from the environment: torchrun's PET_ defaults, REMUSTER_ENDPOINT, Slurm and
other batch systems, the interpreter.

The environment comes in as a mapping, once; what is not in the returned value influences nothing. (What the ranks
inherit is the agent's affair.) Called by `cli`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import TYPE_CHECKING, NamedTuple

from .errors import UsageError
from .flags import FLAGS, SHOWN_ONLY

if TYPE_CHECKING:
    from .batch_systems import Batch
    from .slurm import Slurm

BATCH = ("PBS_JOBID", "LSB_JOBID", "OAR_JOB_ID")  # a job of a batch system that is not Slurm


class Environment(NamedTuple):
    """Everything the environment says. Empty text: not set."""

    defaults: Mapping[str, str | bool] = field(default_factory=dict[str, "str | bool"])  # by dest, from PET_ variables
    slurm: Slurm | None = None
    shutdown_timeout: str = ""  # TORCH_ELASTIC_SHUTDOWN_TIMEOUT
    python_exec: str = ""
    active_python: str = ""  # root of the activated virtual or conda environment
    cuda_visible_devices: str | None = None  # set but empty means: no GPU
    etcd_endpoint: str = ""  # REMUSTER_ENDPOINT: an etcd service for jobs that name none
    line_prefix: str = ""  # TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE: what stands before the lines of tee'd ranks
    timer_file: str | None = None  # torchelastic's file timers are on: the pipe's path, or empty
    config_home: str = ""  # the folder of this user's configuration files
    batch: Batch | None = None
    job_index: str = ""  # JOB_COMPLETION_INDEX: which pod of an indexed Kubernetes Job this is


def read(environ: Mapping[str, str]) -> Environment:
    """Return what ``environ`` sets; UsageError for a variable that cannot be understood."""
    defaults: dict[str, str | bool] = {}
    for flag in FLAGS:
        text = environ.get(flag.env, "")
        if text and flag.name not in SHOWN_ONLY:
            defaults[flag.dest] = text if flag.metavar else _switch(flag.env, text)
    return Environment(
        defaults=defaults,
        slurm=_slurm(environ),
        shutdown_timeout=environ.get("TORCH_ELASTIC_SHUTDOWN_TIMEOUT", ""),
        python_exec=environ.get("PYTHON_EXEC", ""),
        active_python=environ.get("VIRTUAL_ENV", "") or environ.get("CONDA_PREFIX", ""),
        cuda_visible_devices=environ.get("CUDA_VISIBLE_DEVICES"),
        etcd_endpoint=environ.get("REMUSTER_ENDPOINT", ""),
        line_prefix=environ.get("TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE", ""),
        timer_file=environ.get("TORCHELASTIC_TIMER_FILE", "") if _asks_for_timers(environ) else None,
        config_home=_config_home(environ),
        batch=_batch(environ),
        job_index=environ.get("JOB_COMPLETION_INDEX", ""),
    )


def _batch(environ: Mapping[str, str]) -> Batch | None:
    if not any(environ.get(name) for name in BATCH):
        return None
    from .batch_systems import found

    return found(environ)


def _slurm(environ: Mapping[str, str]) -> Slurm | None:
    if not environ.get("SLURM_JOB_ID"):
        return None
    from . import slurm

    return slurm.read(environ)


def _asks_for_timers(environ: Mapping[str, str]) -> bool:
    return environ.get("TORCHELASTIC_ENABLE_FILE_TIMER") == "1"  # torchrun's test


def _config_home(environ: Mapping[str, str]) -> str:
    """Return where this user's configuration is, by the XDG rules: a relative path there counts as none."""
    xdg, home = environ.get("XDG_CONFIG_HOME", ""), environ.get("HOME", "")
    return xdg if xdg.startswith("/") else f"{home}/.config" if home.startswith("/") else ""


def _switch(variable: str, text: str) -> bool:
    try:
        return bool(int(text))
    except ValueError:
        raise UsageError(f"{variable} is {text!r}; set it to 1 or 0, or unset it") from None
