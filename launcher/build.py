"""From what was asked for to a `JobSpec`: every check that can be made before anything starts is made here.

Two nodes given the same command line must come to the same answer, so nothing is guessed that the nodes could guess
differently: several nodes that meet at a service need a name for their run. Called by `cli`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ..agent.spec import KERNEL_LOG, Backend, JobSpec, NodeCheck, Output, SlurmStep, SpecError, StoreAccess
from ..rendezvous.admission import Admit
from ..rendezvous.membership import Order
from ..rendezvous.records import ROLE, StoreLoss
from . import files, meeting, naming, resuming, site, starting, stopping, values
from .argv import Split
from .devices import nproc
from .environment import Environment
from .errors import UsageError
from .given import Given, Setting

if TYPE_CHECKING:
    from ..health.exit_map import Mapped
    from ..health.own_signatures import OwnSignatures
    from ..rendezvous.budget import Bound
    from .gathering import Gathering
    from .slurm_step import Step

ParseBudget = Callable[[str], "tuple[Bound, ...]"]  # raises ValueError with a sentence
LONGEST_LEASE_S = 86400  # a day; etcd refuses some numbers beyond, and nobody waits so long for a lost node
OUTPUT = (
    *("redirects", "tee", "local-ranks-filter", "duplicate-stdout-filters", "duplicate-stderr-filters"),
    *("logs-specs", "event-log-handler", "log-writer", "log-limit"),
)
EXIT_CODES = ("cause", "torchrun")
START_METHODS = ("spawn", "fork", "forkserver")  # torchrun's, of Python's multiprocessing


class Built(NamedTuple):
    """The job, and what the person who typed the command should know about it."""

    spec: JobSpec
    notes: tuple[str, ...]
    plain_exit: bool = False  # 1 for every failure, as with torchrun


def build(given: Given, split: Split, env: Environment, parse_budget: ParseBudget) -> Built:
    """Return the job that this command line means; UsageError when it means none."""
    notes: list[str] = []
    if split.script is None:
        raise UsageError("no script given; write remuster [options] script.py [its arguments], or see remuster --help")
    least, most = values.nnodes(given.origin("nnodes"), _text(given, "nnodes", "1"))
    step = _step(given, env, notes)
    around = _around(given, env, notes) if step is None else None
    told = step or around
    if told is not None:
        least, most = told.least, told.most
    conf = _conf(given, notes)
    _check_idle(given)
    module, no_python, run_path = starting.how(given, notes)
    files.script(split.script, module, no_python)
    python = starting.interpreter(given, env, no_python)
    plain_exit = _plain_exit(given)
    asked = meeting.Asked(given, conf, env, least, most, notes, None if step is None else step.meeting, around)
    where = meeting.choose(asked)
    run = naming.run(given, env, around, where, step is not None, notes)
    access = store_access(where.access, given.origin("rdzv-conf"), conf.values.get("protocol"))
    prefix = where.access.get("prefix", Setting("/remuster/", ""))
    stops = stopping.stop_signals(given, notes)
    restarts, budget = given.text("max-restarts"), given.text("retry-budget")
    try:
        spec = JobSpec(
            min_nodes=where.least,
            max_nodes=where.most,
            nproc=nproc(
                given.origin("nproc-per-node"),
                _text(given, "nproc-per-node", "1" if told is None else str(told.ranks)),
                env.cuda_visible_devices,
            ),
            runner=str(starting.RUNNER) if run_path else None,
            virtual_local_rank=given.on("virtual-local-rank"),
            scrub_env=_scrub_env(given, env),
            run_id=run.id,
            new_run=given.text("rdzv-id") is None and env.slurm is None and where.most == 1 and where.embedded is None,
            script=split.script,
            script_args=split.script_args,
            module=module,
            no_python=no_python,
            python=python,
            role=values.role(given.origin("role"), _text(given, "role", ROLE)),
            backend=where.backend,
            endpoints=where.endpoints,
            store=access if where.embedded is None else StoreAccess(),
            embedded=where.embedded,
            place=where.place,
            master=where.master,
            prefix=values.prefix(prefix.origin, prefix.text),
            launch_id=conf.values.get("launch_id", run.launch),
            fresh=given.on("fresh"),
            local_addr=given.text("local-addr") or None,
            lease_ttl_s=values.whole(
                "lease_ttl in --rdzv-conf", conf.values.get("lease_ttl", "15"), 2, LONGEST_LEASE_S
            ),
            kill_bound_s=_seconds(conf, "kill_bound", "3"),
            last_call_timeout_s=_seconds(conf, "last_call_timeout", "30"),
            join_timeout_s=_join_timeout(given, conf),
            resume_timeout_s=_seconds(conf, "resume_timeout", "600"),
            connect_timeout_s=_seconds(conf, "connect_timeout", "10"),
            grace_s=stopping.grace(given, env),
            stop_signals=stops,
            alarm_window_s=stopping.alarm_window(given),
            hang_timeout_s=stopping.hang_timeout(given),
            notice_signals=stopping.notice_signals(given, env, stops),
            store_loss=_store_loss(given),
            admit=_admit(given),
            admit_after_s=_seconds(conf, "admit_after", "60"),
            rank_order=_rank_order(given, where.place),
            max_restarts=values.whole(given.origin("max-restarts"), _text(given, "max-restarts", "0"), 0),
            bound_restarts=restarts is not None or budget is None,
            retry_budget=() if budget is None else _budget(given.origin("retry-budget"), budget, parse_budget),
            exit_map=_exit_map(given),
            signatures=_signatures(given),
            resume_hook=resuming.hook(given),
            checkpoint_format=resuming.checkpoint_format(given),
            checkpoint_args=resuming.checkpoint_args(given),
            on_event=_on_event(given),
            drain_command=site.command(where.drain),
            kernel_log=_kernel_log(given),
            node_check=_node_check(given),
            slurm=_slurm(env),
            requeue=stopping.requeue(given, env),
            output=_output(given, env, notes),
            timer_file=env.timer_file,
        )
    except SpecError as error:
        raise UsageError(str(error)) from None
    starting.check_devices(given, spec.nproc, env)
    spec = replace(spec, cpus=starting.cpus(given, spec.nproc, env, notes))
    spec = replace(spec, log_dir=_log_dir(given, notes), checkpoint_dir=resuming.checkpoint_dir(given, notes))
    for name, path in (("log-dir", spec.log_dir), ("checkpoint-dir", spec.checkpoint_dir)):
        if path is not None:
            files.made(given.origin(name), path)
    _say_forgetful(spec, env, notes)
    if not no_python:
        starting.say_interpreter(python, given, env, notes)
    return Built(spec, tuple(notes), plain_exit)


def _around(given: Given, env: Environment, notes: list[str]) -> Gathering | None:
    if env.batch is None and not env.job_index and all(given.text(name) is None for name in meeting.LISTS):
        return None
    from . import gathering  # and sockets with it

    return gathering.told(given, env, notes)


def _text(given: Given, name: str, default: str) -> str:
    """Return the flag's text. Given but empty is not the default: an unset shell variable must not pass for one."""
    text = given.text(name)
    return default if text is None else text


def _check_idle(given: Given) -> None:
    """Check what is accepted without effect as torchrun checks it: a typing error is one there, too."""
    interval, method = given.text("monitor-interval"), given.text("start-method")
    if interval is not None and values.seconds(given.origin("monitor-interval"), interval) == 0:
        raise UsageError(
            f"{given.origin('monitor-interval')} is {interval!r}; give more than 0 seconds, or leave it out"
        )
    if method is not None and method not in START_METHODS:
        raise UsageError(
            f"{given.origin('start-method')} is {method!r}; give {', '.join(START_METHODS)}, or leave it out"
        )


def _plain_exit(given: Given) -> bool:
    text = _text(given, "exit-code", EXIT_CODES[0])
    if text not in EXIT_CODES:
        raise UsageError(f"{given.origin('exit-code')} is {text!r}; give {' or '.join(EXIT_CODES)}")
    return text == "torchrun"


def _store_loss(given: Given) -> StoreLoss:
    text = _text(given, "on-store-loss", StoreLoss.FENCE.value)
    try:
        return StoreLoss(text)
    except ValueError:
        raise UsageError(f"{given.origin('on-store-loss')} is {text!r}; give fence or hold") from None


def _scrub_env(given: Given, env: Environment) -> bool:
    """A Slurm task is one agent, and none of its ranks: what numbers the task would misname each of them."""
    keep = given.on("no-scrub-env")
    if keep and given.on("scrub-env"):
        raise UsageError(f"{given.origin('scrub-env')} and {given.origin('no-scrub-env')} contradict; give one of them")
    return not keep and (given.on("scrub-env") or env.slurm is not None)


def _say_forgetful(spec: JobSpec, env: Environment, notes: list[str]) -> None:
    """Say, on the first node of a batch job, that a requeue begins anew: nothing that stays knows what was paid."""
    own = spec.backend is Backend.MEMORY or spec.embedded is not None
    if own and spec.checkpoint_dir is None and env.slurm is not None and env.slurm.batch and env.slurm.node == 0:
        notes.append(
            "a requeue begins anew, with round 1 and a whole budget: the store of this run ends with its Slurm job; "
            "give --checkpoint-dir on a disk that stays, or an etcd service, and both go on"
        )


def _admit(given: Given) -> Admit:
    text, origin = _text(given, "admit", Admit.RESTART.value), given.origin("admit")
    if text not in {choice.value for choice in Admit}:
        raise UsageError(f"{origin} is {text!r}; give restart, now or checkpoint")
    if text == Admit.CHECKPOINT.value and given.text("checkpoint-dir") is None:
        raise UsageError(
            f"{origin} is checkpoint, and nothing says where the checkpoints are; give --checkpoint-dir DIR as well, "
            f"or {origin} now"
        )
    return Admit(text)


def _rank_order(given: Given, place: int | None) -> Order:
    text, origin = _text(given, "rank-order", Order.STICKY.value), given.origin("rank-order")
    if text not in {choice.value for choice in Order}:
        raise UsageError(f"{origin} is {text!r}; give sticky or hostname")
    if text == Order.HOSTNAME.value and place is not None:
        raise UsageError(f"{origin} is hostname, and static nodes stand by their --node-rank; leave {origin} out")
    return Order(text)


def _join_timeout(given: Given, conf: values.Conf) -> float:
    """Return how long to wait for enough nodes: two names for one time."""
    text, origin = given.text("rdzv-timeout"), given.origin("rdzv-timeout")
    by_conf = _seconds(conf, "join_timeout", "600")
    asked = by_conf if text is None else values.seconds(origin, text)
    if asked == 0:
        raise UsageError(
            f"{'join_timeout' if text is None else origin} is 0: no node could be waited for; give seconds"
        )
    if text is None:
        return asked
    if "join_timeout" in conf.values and asked != by_conf:
        raise UsageError(f"{origin} is {asked:g} s and join_timeout in --rdzv-conf {by_conf:g} s; give one of them")
    return asked


def _log_dir(given: Given, notes: list[str]) -> Path | None:
    if given.text("log-dir") == os.devnull:  # torchrun's way to say that no files are wanted
        notes.append(
            f"{given.origin('log-dir')} {os.devnull}: what ranks write is always kept, here in a new directory"
        )
        return None
    text = given.text("log-dir")
    return None if text is None else files.directory(given.origin("log-dir"), text)


def _conf(given: Given, notes: list[str]) -> values.Conf:
    conf = values.conf(given.origin("rdzv-conf"), given.text("rdzv-conf") or "")
    if conf.ignored:
        notes.append(f"{given.origin('rdzv-conf')}: ignored, as without meaning here: {', '.join(conf.ignored)}")
    return conf


def _seconds(conf: values.Conf, key: str, default: str) -> float:
    return values.seconds(f"{key} in --rdzv-conf", conf.values.get(key, default))


def _budget(origin: str, text: str, parse: ParseBudget) -> tuple[Bound, ...]:
    try:
        return parse(text)
    except ValueError as error:
        raise UsageError(
            f"{origin} is {text!r}: {error}; write FAMILY=N or FAMILY=N/WINDOW, several with commas between"
        ) from None


def _exit_map(given: Given) -> tuple[Mapped, ...]:
    text, origin = given.text("exit-code-map"), given.origin("exit-code-map")
    if text is None:
        return ()
    from ..health.exit_map import HOW, parse

    try:
        return parse(text)
    except ValueError as error:
        raise UsageError(f"{origin} is {text!r}: {error}; {HOW}") from None


def _signatures(given: Given) -> OwnSignatures | None:
    text = given.text("signatures")
    if text is None:
        return None
    from . import signatures_file

    return signatures_file.read(given.origin("signatures"), text)


def _on_event(given: Given) -> tuple[str, ...]:
    text = given.text("on-event")
    return () if text is None else files.listener(given.origin("on-event"), text)


def _node_check(given: Given) -> NodeCheck:
    text = _text(given, "node-check", "on")
    if text in ("on", "all", "off"):
        return NodeCheck(text != "off", text == "all")
    return NodeCheck(command=files.command(given.origin("node-check"), text, "give a command, on, all or off"))


def _kernel_log(given: Given) -> str:
    """Return the file. That it is not there is no reason to refuse a job: it is evidence that will be lacking."""
    text = given.text("kernel-log")
    if text is None:
        return KERNEL_LOG
    if text == "none":
        return ""
    if not text or os.path.isdir(text):
        raise UsageError(f"{given.origin('kernel-log')} is {text!r}; give a file or a named pipe, or none")
    return os.path.abspath(text)


def _output(given: Given, env: Environment, notes: list[str]) -> Output:
    if not env.line_prefix and all(given.text(name) is None for name in OUTPUT):
        return Output()
    from . import output  # most starts say nothing about it

    return output.choose(given, env.line_prefix, notes)


def _slurm(env: Environment) -> SlurmStep | None:
    here = env.slurm
    return None if here is None else SlurmStep(here.job_id, here.step_id, here.restarts, here.node)


def _step(given: Given, env: Environment, notes: list[str]) -> Step | None:
    if env.slurm is None:
        return None
    from . import slurm_step

    return slurm_step.choose(given, env, env.slurm, notes)


def store_access(found: Mapping[str, Setting], conf: str, protocol: str | None) -> StoreAccess:
    """Check how a service is entered; ``conf`` is how --rdzv-conf was given."""
    cacert, cert, key, username, password = (
        found.get(name) for name in ("cacert", "cert", "key", "username", "password_file")
    )
    if protocol == "https" and cacert is None:
        raise UsageError(f"{conf} asks for https and has no cacert; give cacert=FILE, which turns TLS on")
    for one, other, names in ((cert, key, "cert and key"), (username, password, "username and password_file")):
        half = one or other
        if half is not None and (one is None or other is None):
            raise UsageError(f"{half.origin} is one of {names}; give both, or neither")
    if cert is not None and cacert is None:
        raise UsageError(
            f"{cert.origin} needs a cacert beside it, which the server's certificate is checked by; give cacert=FILE"
        )
    return StoreAccess(
        None if cacert is None else files.readable(cacert.origin, cacert.text),
        None if cert is None else files.readable(cert.origin, cert.text),
        None if key is None else files.secret(key.origin, key.text, group_may_read=True),
        "" if username is None else username.text,
        None if password is None else files.secret_word(password.origin, password.text),
    )
