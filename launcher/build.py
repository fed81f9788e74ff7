"""From what was asked for to a `JobSpec`: every check that can be made before anything starts is made here.

Two nodes given the same command line must come to the same answer, so nothing is guessed that the nodes could guess
differently: several nodes need a name for their run. Called by `cli`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from ..agent.spec import Backend, JobSpec, SpecError, StoreAccess
from . import files, values
from .argv import Split
from .devices import nproc
from .environment import Environment
from .errors import UsageError
from .given import Given

ParseBudget = Callable[[str], tuple[tuple[str, int], ...]]  # raises ValueError with a sentence

_NOT_YET = "use --rdzv-backend etcd --rdzv-endpoint HOST:2379, or --standalone for a single node"


class Built(NamedTuple):
    """The job, and what the person who typed the command should know about it."""

    spec: JobSpec
    notes: tuple[str, ...]


def build(given: Given, split: Split, env: Environment, parse_budget: ParseBudget) -> Built:
    """Return the job that this command line means; UsageError when it means none."""
    notes: list[str] = []
    if split.script is None:
        raise UsageError("no script given; write remuster [options] script.py [its arguments], or see remuster --help")
    least, most = values.nnodes(given.origin("nnodes"), _text(given, "nnodes", "1"))
    conf = _conf(given, notes)
    backend, endpoints = _meeting(given, least, most, notes)
    alone = backend is Backend.MEMORY
    module, no_python = given.on("module"), given.on("no-python")
    files.script(split.script, module, no_python)
    python = files.interpreter(env.python_exec) if env.python_exec else sys.executable
    restarts, budget = given.text("max-restarts"), given.text("retry-budget")
    try:
        spec = JobSpec(
            min_nodes=least,
            max_nodes=least if alone else most,
            nproc=nproc(given.origin("nproc-per-node"), _text(given, "nproc-per-node", "1"), env.cuda_visible_devices),
            run_id=_run_id(given, env, alone or most == 1, notes),
            new_run=given.text("rdzv-id") is None and not env.slurm_job_id,
            script=split.script,
            script_args=split.script_args,
            module=module,
            no_python=no_python,
            python=python,
            role=_text(given, "role", "default"),
            backend=backend,
            endpoints=endpoints,
            store=_access(given, conf),
            prefix=values.prefix("prefix in --rdzv-conf", conf.values.get("prefix", "/remuster/")),
            launch_id=conf.values.get("launch_id", env.launch_id),
            fresh=given.on("fresh"),
            local_addr=given.text("local-addr") or None,
            lease_ttl_s=values.whole("lease_ttl in --rdzv-conf", conf.values.get("lease_ttl", "15"), 2),
            kill_bound_s=_seconds(conf, "kill_bound", "3"),
            last_call_timeout_s=_seconds(conf, "last_call_timeout", "30"),
            join_timeout_s=_seconds(conf, "join_timeout", "600"),
            max_restarts=values.whole(given.origin("max-restarts"), _text(given, "max-restarts", "0"), 0),
            bound_restarts=restarts is not None or budget is None,
            retry_budget=() if budget is None else _budget(given.origin("retry-budget"), budget, parse_budget),
            resume_hook=_hook(given),
        )
    except SpecError as error:
        raise UsageError(str(error)) from None
    # Directories are made when nothing else is left to refuse.
    spec = replace(
        spec,
        log_dir=_log_dir(given, notes),
        checkpoint_dir=_directory(given, "checkpoint-dir"),
    )
    if not no_python:
        _say_interpreter(python, env, notes)
    return Built(spec, tuple(notes))


def _text(given: Given, name: str, default: str) -> str:
    """Return the flag's text. Given but empty is not the default: an unset shell variable must not pass for one."""
    text = given.text(name)
    return default if text is None else text


def _directory(given: Given, name: str) -> Path | None:
    text = given.text(name)
    return None if text is None else files.directory(given.origin(name), text)


def _log_dir(given: Given, notes: list[str]) -> Path | None:
    if given.text("log-dir") == os.devnull:  # torchrun's way to say that no files are wanted
        notes.append(
            f"{given.origin('log-dir')} {os.devnull}: what ranks write is always kept, here in a new directory"
        )
        return None
    return _directory(given, "log-dir")


def _hook(given: Given) -> str | None:
    text = given.text("resume-hook")
    return None if text is None else files.hook(given.origin("resume-hook"), text)


def _conf(given: Given, notes: list[str]) -> values.Conf:
    conf = values.conf(given.origin("rdzv-conf"), given.text("rdzv-conf") or "")
    if conf.ignored:
        notes.append(f"{given.origin('rdzv-conf')}: {', '.join(conf.ignored)} mean nothing here and are ignored")
    return conf


def _seconds(conf: values.Conf, key: str, default: str) -> float:
    return values.seconds(f"{key} in --rdzv-conf", conf.values.get(key, default))


def _budget(origin: str, text: str, parse: ParseBudget) -> tuple[tuple[str, int], ...]:
    try:
        return parse(text)
    except ValueError as error:
        raise UsageError(f"{origin} is {text!r}: {error}; write FAMILY=N, several with commas between") from None


def _meeting(given: Given, least: int, most: int, notes: list[str]) -> tuple[Backend, tuple[tuple[str, int], ...]]:
    """Choose where the nodes meet. torchrun's silent rule is kept: one node and no address means no server at all."""
    name, address = given.text("rdzv-backend"), given.text("rdzv-endpoint")
    if given.on("standalone"):
        if least > 1:
            raise UsageError(
                f"--standalone is one node and {given.origin('nnodes')} asks for {least}; leave one of them out"
            )
        if name is not None or address is not None:
            notes.append("--standalone: the rendezvous backend and endpoint given with it are not used")
        return Backend.MEMORY, ()
    if name is None or name == "static":
        if most == 1 and not address:
            return Backend.MEMORY, ()
        what = "static (the default)" if name is None else "static"
        raise UsageError(
            f"rendezvous backend {what} is not in remuster yet for several nodes or an endpoint; {_NOT_YET}"
        )
    if name == "c10d":
        raise UsageError(f"rendezvous backend c10d is not in remuster yet; {_NOT_YET}")
    if name not in ("etcd", "etcd-v2", "etcd-v3"):
        raise UsageError(f"{given.origin('rdzv-backend')} is {name!r}, which is not registered; {_NOT_YET}")
    if name != "etcd":
        notes.append(f"rendezvous backend {name} means etcd here: etcd's v3 interface")
    found = values.endpoints(given.origin("rdzv-endpoint"), "localhost" if address is None else address)
    if not found:
        raise UsageError(
            f"{given.origin('rdzv-endpoint')} is {address!r}; write HOST:PORT, several with commas between"
        )
    return Backend.ETCD, found


def _run_id(given: Given, env: Environment, one_node: bool, notes: list[str]) -> str:
    """Return the run's name. There is no default that two jobs could share."""
    text = given.text("rdzv-id")
    if text is not None:
        return values.run_id(given.origin("rdzv-id"), text)
    if env.slurm_job_id:
        return values.run_id("SLURM_JOB_ID", env.slurm_job_id)
    if not one_node:
        raise UsageError("several nodes need one name for their run; give --rdzv-id NAME, the same on all of them")
    made = os.urandom(6).hex()
    notes.append(f"run id {made}")
    return made


def _access(given: Given, conf: values.Conf) -> StoreAccess:
    origin = given.origin("rdzv-conf")
    found = {
        key: files.readable(f"{key} in {origin}", conf.values[key]) if key in conf.values else None
        for key in ("cacert", "cert", "key", "password_file")
    }
    if conf.values.get("protocol") == "https" and found["cacert"] is None:
        raise UsageError(f"{origin} asks for https and has no cacert; give cacert=FILE, which turns TLS on")
    username = conf.values.get("username", "")
    if (found["cert"] is None) != (found["key"] is None):
        raise UsageError(f"{origin} has one of cert and key; give both, or neither")
    if found["cert"] is not None and found["cacert"] is None:
        raise UsageError(
            f"{origin} has a cert and no cacert; give cacert=FILE, which the server's certificate is checked by"
        )
    if bool(username) != (found["password_file"] is not None):
        raise UsageError(f"{origin} has one of username and password_file; give both, or neither")
    return StoreAccess(found["cacert"], found["cert"], found["key"], username, found["password_file"])


def _say_interpreter(python: str, env: Environment, notes: list[str]) -> None:
    """Name the ranks' interpreter, and warn when another environment is active than the one it belongs to."""
    notes.append(f"ranks run {python}")
    root = env.active_python
    if root and not env.python_exec and os.path.realpath(root) != os.path.realpath(sys.prefix):
        notes.append(
            f"the active environment is {root}, and remuster is installed for {sys.prefix}: ranks run the latter's "
            f"Python; set PYTHON_EXEC={root}/bin/python if the former is meant"
        )
