"""The command as a whole, with a body in the agent's place: what reaches it, and what is refused before it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from launcher_lines import Command

from remuster.agent.spec import Backend, JobSpec, Output, SpecError, StoreAccess, Streams
from remuster.launcher.flags import FLAGS
from remuster.rendezvous.admission import Admit
from remuster.rendezvous.membership import Order


def test_a_plain_script_is_one_rank_without_a_server(command: Command) -> None:
    spec = command.spec("t.py --lr 3")
    made = spec.run_id
    assert spec == JobSpec(
        min_nodes=1, max_nodes=1, nproc=1, run_id=made, script="t.py", script_args=("--lr", "3"), new_run=True
    )
    assert spec.python == sys.executable
    assert command.stderr == f"remuster: run id {made}\nremuster: ranks run {sys.executable}\n"
    assert command.spec("t.py").run_id != made


def test_everything_given_arrives(command: Command) -> None:
    for name, mode in (("ca", 0o644), ("crt", 0o644), ("key", 0o640), ("pw", 0o600)):
        command.file(name, "x", mode)
    spec = command.spec(
        "--nnodes=2:4 --nproc-per-node=3 --rdzv-backend=etcd --rdzv-endpoint=a,b:1 --rdzv-id=run --fresh "
        "--rdzv-conf=lease_ttl=6,kill_bound=1.5,last_call_timeout=2,join_timeout=9,launch_id=L,prefix=p,"
        "connect_timeout=3,"
        "ca_cert=ca,ssl_cert=crt,ssl_cert_key=key,username=u,password_file=pw "
        "--max-restarts=2 --local-addr=10.0.0.9 --role=r --log-dir=logs --checkpoint-dir=ckpt "
        "--resume-hook=pkg.mod:choose t.py"
    )
    assert spec == JobSpec(
        min_nodes=2,
        max_nodes=4,
        nproc=3,
        run_id="run",
        script="t.py",
        role="r",
        backend=Backend.ETCD,
        endpoints=(("a", 2379), ("b", 1)),
        store=StoreAccess(
            command.folder / "ca", command.folder / "crt", command.folder / "key", "u", command.folder / "pw"
        ),
        prefix="/p/",
        launch_id="L",
        fresh=True,
        local_addr="10.0.0.9",
        lease_ttl_s=6,
        kill_bound_s=1.5,
        last_call_timeout_s=2,
        join_timeout_s=9,
        connect_timeout_s=3,
        max_restarts=2,
        log_dir=command.folder / "logs",
        checkpoint_dir=command.folder / "ckpt",
        resume_hook="pkg.mod:choose",
    )
    assert spec.grace_s == 30
    assert (command.folder / "ckpt").stat().st_mode & 0o777 == 0o700


SAMPLES = {
    "nnodes": ("2", "3", lambda s: (s.min_nodes, s.max_nodes), (2, 2), (3, 3)),
    "nproc-per-node": ("2", "3", lambda s: s.nproc, 2, 3),
    "hosts": ("localhost", "localhost,127.0.0.1", lambda s: s.max_nodes, 1, 2),
    "hostfile": ("a.hosts", "b.hosts", lambda s: (s.max_nodes, s.nproc), (1, 1), (2, 3)),
    "node-rank": ("1", "0", lambda s: s.place, 1, 0),
    "master-addr": ("a", "b", lambda s: s.master, ("a", 7), ("b", 7)),
    "master-port": ("1", "2", lambda s: s.master, ("127.0.0.1", 1), ("127.0.0.1", 2)),
    "etcd-binary": ("sh", "true", lambda s: s.embedded and Path(s.embedded.binary or "").name, "sh", "true"),
    "config": ("a.toml", "b.toml", lambda s: s.endpoints, (("a", 2379),), (("b", 2379),)),
    "monitor-interval": ("1", "2.5", lambda s: s.nproc, 1, 1),  # no effect
    "start-method": ("fork", "spawn", lambda s: s.nproc, 1, 1),
    "local-addr": ("a", "b", lambda s: s.local_addr, "a", "b"),
    "role": ("a", "b", lambda s: s.role, "a", "b"),
    "rdzv-backend": ("etcd-v2", "etcd", lambda s: s.backend, Backend.ETCD, Backend.ETCD),
    "rdzv-endpoint": ("a", "b", lambda s: s.endpoints, (("a", 2379),), (("b", 2379),)),
    "rdzv-id": ("a", "b", lambda s: s.run_id, "a", "b"),
    "rdzv-conf": ("launch_id=a", "launch_id=b", lambda s: s.launch_id, "a", "b"),
    "on-store-loss": ("hold", "fence", lambda s: s.store_loss.value, "hold", "fence"),
    "max-restarts": ("1", "2", lambda s: s.max_restarts, 1, 2),
    "admit": ("now", "restart", lambda s: s.admit.value, "now", "restart"),
    "rank-order": ("hostname", "sticky", lambda s: s.rank_order.value, "hostname", "sticky"),
    "numa-binding": ("exclusive", "node", lambda s: len(s.cpus), 1, 1),
    "python": ("/bin/echo", "/bin/cat", lambda s: s.python, "/bin/echo", "/bin/cat"),
    "exit-code": ("cause", "cause", lambda s: s.nproc, 1, 1),  # not the agent's affair
    "rdzv-timeout": ("5", "7.5", lambda s: s.join_timeout_s, 5.0, 7.5),
    "shutdown-timeout": ("5", "7.5", lambda s: s.grace_s, 5.0, 7.5),
    "signals-to-handle": ("SIGUSR1", "SIGUSR2,SIGTERM", lambda s: s.stop_signals, (10,), (12,)),
    "notice-signal": ("SIGUSR1", "usr2", lambda s: s.notice_signals, (10,), (12,)),
    "log-dir": ("a", "b", lambda s: s.log_dir and s.log_dir.name, "a", "b"),
    "checkpoint-dir": ("a", "b", lambda s: s.checkpoint_dir and s.checkpoint_dir.name, "a", "b"),
    "checkpoint-format": ("dcp", "manifest", lambda s: s.checkpoint_format, "dcp", "manifest"),
    "checkpoint-arg": (
        "--load {dir} --ckpt-step={step}",
        "'--from={path}'",
        lambda s: s.checkpoint_args,
        ("--load", "{dir}", "--ckpt-step={step}"),
        ("--from={path}",),
    ),
    "resume-hook": ("a:b", "c:d", lambda s: s.resume_hook, "a:b", "c:d"),
    "retry-budget": (
        "hardware=1",
        "node=2/1h",
        lambda s: [b.text for b in s.retry_budget],
        ["hardware=1"],
        ["node=2/1h"],
    ),
    "hang-timeout": ("90", "off", lambda s: s.hang_timeout_s, 90.0, 0.0),
    "exit-code-map": (
        "16=retry",
        "usr1=stop,14=gpu_lost",
        lambda s: [one.text for one in s.exit_map],
        ["16=retry"],
        ["-10=stop", "14=gpu_lost"],
    ),
    "signatures": (
        "a.json",
        "b.json",
        lambda s: s.signatures and s.signatures.xids,
        ((31, "watch"),),
        ((94, "watch"),),
    ),
    "log-limit": ("1m", "10G", lambda s: s.output.limit, 1 << 20, 10 << 30),
    "redirects": ("1", "10:3", lambda s: s.output.redirects, Streams(1), Streams(0, ((10, 3),))),
    "tee": ("0:3,1:1", "3", lambda s: s.output.tee, Streams(0, ((0, 3), (1, 1))), Streams(3)),
    "local-ranks-filter": ("0", "10,2", lambda s: s.output.only, (0,), (2, 10)),
    "duplicate-stdout-filters": ("a,b", "a,,b", lambda s: s.output.stdout_filters, ("a", "b"), ("a,b",)),
    "duplicate-stderr-filters": ("a", "é", lambda s: s.output.stderr_filters, ("a",), ("é",)),
    "kernel-log": ("none", "/dev/log", lambda s: s.kernel_log, "", "/dev/log"),
    "log-writer": ("agent", "rank", lambda s: s.output.writer.value, "agent", "rank"),
    "logs-specs": ("default", "default", lambda s: s.output, Output(), Output()),
    "event-log-handler": ("console", "null", lambda s: s.output.events, True, False),
    "alarm-window": ("2.5", "off", lambda s: s.alarm_window_s, 2.5, None),
    "node-check": ("all", "off", lambda s: s.node_check[:2], (True, True), (False, False)),
    "on-event": ("true --x", "http://h/x", lambda s: s.on_event[1:] or s.on_event, ("--x",), ("http://h/x",)),
}
OF_STATIC = ("node-rank", "master-addr", "master-port", "etcd-binary")
UNDER_SLURM = ("no-scrub-env", "requeue")
SWITCHES = {
    "standalone": lambda s: s.backend is Backend.MEMORY,
    "fresh": lambda s: s.fresh,
    "module": lambda s: s.module,
    "no-python": lambda s: s.no_python,
    "run-path": lambda s: s.runner is not None,
    "virtual-local-rank": lambda s: s.virtual_local_rank,
    "scrub-env": lambda s: s.scrub_env,
    "no-scrub-env": lambda s: not s.scrub_env,
    "requeue": lambda s: s.requeue,
}


def test_the_samples_are_complete() -> None:
    assert {f.name for f in FLAGS} - {"help", "version"} == set(SAMPLES) | set(SWITCHES)


@pytest.mark.parametrize("name", SAMPLES)
def test_the_line_wins_over_the_variable_and_that_over_the_default(command: Command, name: str) -> None:
    by_env, by_line, read, env_value, line_value = SAMPLES[name]
    for service in "ab":
        command.file(f"{service}.toml", f'[etcd]\nendpoints = "{service}"\n')
    for name_, code in (("a", 31), ("b", 94)):
        command.file(f"{name_}.json", f'{{"schema_version": 1, "xids": {{"{code}": "watch"}}}}')
    command.file("a.hosts", "localhost")
    command.file("b.hosts", "localhost slots=3\n127.0.0.1")
    base = {"PET_RDZV_BACKEND": "etcd", "PET_RDZV_ID": "x"}
    if name in OF_STATIC:
        base = {"PET_NNODES": "2", "PET_MASTER_PORT": "7"}
    if name == "checkpoint-arg":
        base["PET_CHECKPOINT_DIR"] = "c"
    base["PET_" + name.replace("-", "_").upper()] = by_env
    assert read(command.spec("t.py", **base)) == env_value
    assert read(command.spec(f"--{name}={by_line} t.py", **base)) == line_value


ETCD = "--rdzv-backend=etcd --rdzv-endpoint=a --rdzv-id=x"


def test_newcomers_and_order(command: Command) -> None:
    spec = command.spec(f"{ETCD} --nnodes 2:4 --admit checkpoint --checkpoint-dir c --rdzv-conf admit_after=90 t.py")
    assert (spec.admit, spec.admit_after_s) == (Admit.CHECKPOINT, 90.0)
    by_default = command.spec(f"{ETCD} --nnodes 2 t.py")
    assert (by_default.admit, by_default.admit_after_s, by_default.rank_order) == (Admit.RESTART, 60.0, Order.STICKY)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (f"{ETCD} --admit=always t.py", "--admit is 'always'; give restart, now or checkpoint"),
        (f"{ETCD} --admit= t.py", "--admit is ''; give restart, now or checkpoint"),
        (
            f"{ETCD} --admit=checkpoint t.py",
            "nothing says where the checkpoints are; give --checkpoint-dir DIR as well",
        ),
        (f"{ETCD} --rank-order=name t.py", "--rank-order is 'name'; give sticky or hostname"),
        ("--nnodes 2 --master-addr a --rank-order=hostname t.py", "static nodes stand by their --node-rank"),
        (f"{ETCD} --rdzv-timeout=soon t.py", "--rdzv-timeout is 'soon', which is no number"),
        (
            f"{ETCD} --rdzv-timeout=5 --rdzv-conf join_timeout=6 t.py",
            "--rdzv-timeout is 5 s and join_timeout in --rdzv-conf 6 s; give one of them",
        ),
        (f"{ETCD} --rdzv-conf admit_aftr=6 t.py", "did you mean admit_after?"),
        (f"{ETCD} --rdzv-timeout=0 t.py", "--rdzv-timeout is 0: no node could be waited for; give seconds"),
        (f"{ETCD} --rdzv-conf join_timeout=0 t.py", "join_timeout is 0: no node could be waited for; give seconds"),
    ],
)
def test_newcomers_and_order_in_other_words(command: Command, line: str, says: str) -> None:
    assert says in command.refusal(line)


def test_one_time_by_its_two_names(command: Command) -> None:
    assert command.spec(f"{ETCD} --rdzv-timeout=5 --rdzv-conf join_timeout=5.0 t.py").join_timeout_s == 5.0
    assert command.spec(f"{ETCD} t.py").join_timeout_s == 600.0


@pytest.mark.parametrize("name", SWITCHES)
def test_a_switch_can_be_set_by_variable_and_not_unset(command: Command, name: str) -> None:
    variable, script = "PET_" + name.replace("-", "_").upper(), "true" if name == "no-python" else "t.py"
    read = SWITCHES[name]
    base = {"PET_RDZV_BACKEND": "etcd"} | ({"SLURM_JOB_ID": "7"} if name in UNDER_SLURM else {})
    assert read(command.spec(script, **base, **{variable: "1"})) is True
    assert read(command.spec(f"--{name} {script}", **base, **{variable: "0"})) is True
    if name != "no-python":
        assert read(command.spec(script, **base, **{variable: "0"})) is False
        assert read(command.spec(script, **base, **{variable: ""})) is False
    command.started.clear()
    assert f"{variable} is 'true'; set it to 1 or 0" in command.refusal(script, **base, **{variable: "true"})


def test_b55_the_environment_is_scrubbed_where_slurm_has_started_the_command(command: Command) -> None:
    slurm = {"SLURM_JOB_ID": "812", "SLURM_STEP_ID": "0"}
    assert command.spec("t.py", **slurm).scrub_env
    assert not command.spec("--no-scrub-env t.py", **slurm).scrub_env
    assert not command.spec("t.py").scrub_env
    assert command.spec("--scrub-env t.py").scrub_env
    command.started.clear()
    says = "--scrub-env and --no-scrub-env contradict; give one of them"
    assert says in command.refusal("--scrub-env --no-scrub-env t.py", **slurm)
    assert "PET_NO_SCRUB_ENV contradict" in command.refusal("--scrub-env t.py", PET_NO_SCRUB_ENV="1")


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("", "no script given; write remuster"),
        ("absent.py", "no script 'absent.py' in /"),
        ("--no-python absent", "no program 'absent'"),
        ("--python absent t.py", "--python is 'absent', and there is no such program"),
        ("--python sh --no-python true", "--python and --no-python contradict each other"),
        ("--numa-binding near t.py", "--numa-binding is 'near'; give node, socket, exclusive, core-complex"),
        ("--exit-code=0 t.py", "--exit-code is '0'; give cause or torchrun"),
        ("--no-python ./t.py", "no program './t.py' that can be run: it is not executable; chmod +x './t.py'"),
        ("-m --no-python t", "contradict each other"),
        ("-m .t", "no module's name"),
        ("--nnodes 1:2:3 t.py", "--nnodes is '1:2:3', which is not in MIN:MAX format"),
        ("--nnodes= t.py", "--nnodes is ''"),
        ("--nproc-per-node=many t.py", "Unsupported nproc_per_node value"),
        ("--max-restarts=-1 t.py", "--max-restarts is -1; give 0 or more"),
        ("--max-restarts=x t.py", "--max-restarts is 'x', which is no whole number"),
        ("--no-python absent/x", "no program 'absent/x' that can be run; check its path"),
        ("--no-python t.py", "give its path, ./t.py"),
        ("--no-python .", "no program '.' that can be run on PATH"),
        ("--no-python ./", "it is a directory; give a file"),
        (".", "the script '.' is a directory; give a file, or a directory with a __main__.py"),
        ("--monitor-interval 0 t.py", "--monitor-interval is '0'; give more than 0 seconds"),
        ("--monitor-interval soon t.py", "--monitor-interval is 'soon', which is no number"),
        ("--start-method clone t.py", "--start-method is 'clone'; give spawn, fork, forkserver"),
        ("--rdzv-backend zookeeper t.py", "--rdzv-backend is 'zookeeper', which is not registered"),
        ("--rdzv-backend etcd --rdzv-endpoint= t.py", "--rdzv-endpoint is ''"),
        ("--rdzv-backend etcd --rdzv-endpoint=a:x t.py", "--rdzv-endpoint holds 'a:x'"),
        ("--rdzv-backend etcd --nnodes 2 t.py", "give --rdzv-id NAME, the same on all of them"),
        ("--rdzv-backend etcd --nnodes 1:2 t.py", "give --rdzv-id NAME"),
        ("--rdzv-id a/b t.py", "--rdzv-id is 'a/b'"),
        ("--rdzv-id= t.py", "--rdzv-id is ''"),
        ("--standalone --nnodes 2 t.py", "--standalone is one node and --nnodes asks for 2"),
        ("--rdzv-conf lease_ttl=5 t.py", "give lease_ttl=6 or more"),
        ("--rdzv-conf lease_ttl=1 t.py", "lease_ttl in --rdzv-conf is 1; give 2 or more"),
        ("--rdzv-conf lease_ttl=86401 t.py", "lease_ttl in --rdzv-conf is 86401; give 2 to 86400"),
        ("--rdzv-conf lease_ttl=5.5 t.py", "lease_ttl in --rdzv-conf is '5.5', which is no whole number"),
        ("--rdzv-conf kill_bound=-1 t.py", "kill_bound in --rdzv-conf is '-1'"),
        ("--rdzv-conf lease_ttl t.py", "write KEY=VALUE"),
        ("--rdzv-conf cacert=absent t.py", "cacert in --rdzv-conf is 'absent', which is no file"),
        ("--rdzv-conf cert=t.py t.py", "one of cert and key"),
        ("--rdzv-conf key=t.py t.py", "key in --rdzv-conf is one of cert and key"),
        ("--rdzv-conf cert=t.py,key=t.py t.py", "needs a cacert beside it"),
        ("--rdzv-conf connect_timeout=x t.py", "connect_timeout in --rdzv-conf is 'x', which is no number"),
        ("--rdzv-conf protocol=https t.py", "asks for https and has no cacert"),
        ("--rdzv-conf username=u t.py", "one of username and password_file"),
        ("--rdzv-conf prefix=/ t.py", "prefix in --rdzv-conf is '/'"),
        ("--checkpoint-format zip t.py", "--checkpoint-format is 'zip'; known here are manifest, "),
        ("--checkpoint-arg={path} t.py", "--checkpoint-arg has nothing to name; give --checkpoint-dir DIR as well"),
        (
            "--checkpoint-dir c --checkpoint-arg={paht} t.py",
            "--checkpoint-arg has {paht}; what can be filled in is {path}",
        ),
        ("--checkpoint-dir c --checkpoint-arg=--resume t.py", "'--resume' names no checkpoint; write where it goes"),
        ("--checkpoint-dir c --checkpoint-arg='{path} t.py", "is not a command line (No closing quotation)"),
        ("--checkpoint-dir t.py t.py", "--checkpoint-dir 't.py' cannot be used: it is not a directory"),
        ("--checkpoint-dir t.py/x t.py", "--checkpoint-dir 't.py/x' cannot be used: /"),
        ("--checkpoint-dir /proc/x t.py", "--checkpoint-dir '/proc/x' cannot be used: no such file"),
        ("--checkpoint-dir= t.py", "--checkpoint-dir is empty"),
        ("--log-dir t.py t.py", "--log-dir 't.py' cannot be used: it is not a directory"),
        ("--resume-hook absent-program t.py", "--resume-hook: no program 'absent-program'"),
        ("--resume-hook=mod:1x t.py", "no program 'mod:1x'"),
        ("--resume-hook= t.py", "the resume hook is empty"),
        ("--resume-hook=' t.py", "No closing quotation"),
        ("--retry-budget=nonsense=1 t.py", "--retry-budget is 'nonsense=1': "),
        ("--retry-budget=hardware t.py", "--retry-budget is 'hardware': "),
    ],
)
def test_refused_before_anything_starts(command: Command, line: str, says: str) -> None:
    assert says in command.refusal(line)


def test_a_refusal_names_the_variable_that_was_wrong(command: Command) -> None:
    assert "PET_MAX_RESTARTS is 'x'" in command.refusal("t.py", PET_MAX_RESTARTS="x")
    assert "PET_NNODES is '0'" in command.refusal("t.py", PET_NNODES="0")
    assert "--nnodes is '0'" in command.refusal("--nnodes 0 t.py", PET_NNODES="2")
    assert "PYTHON_EXEC is '/no/python'" in command.refusal("t.py", PYTHON_EXEC="/no/python")
    assert "SLURM_JOB_ID is 'a/b'" in command.refusal("t.py", SLURM_JOB_ID="a/b")


def test_script_arguments_arrive_byte_for_byte(command: Command) -> None:
    args = ["--r=16", "", "--", "caf\udce9\n", "$local_rank", "--nnodes", "9", "-m", "y"]
    assert command.spec("t.py", args).script_args == tuple(args)
    assert command.spec("--standalone -- t.py", args).script_args == tuple(args)


def test_a_script_with_a_strange_name(command: Command) -> None:
    (command.folder / "caf\udce9 x").touch()
    assert command.spec("--", ["caf\udce9 x"]).script == "caf\udce9 x"
    command.started.clear()
    assert "no script 'ab\\udce9\\nsent'" in command.refusal("--", ["ab\udce9\nsent"])


def test_names_of_runs_and_launches(command: Command) -> None:
    etcd = "--rdzv-backend etcd --nnodes 2"
    slurm = {"SLURM_JOB_ID": "812", "SLURM_RESTART_COUNT": "3"}
    assert command.spec(f"{etcd} t.py", **slurm).run_id == "812"
    assert command.spec(f"{etcd} --rdzv-id x t.py", **slurm).run_id == "x"
    assert command.spec("t.py", **slurm).launch_id == "812.3"
    assert command.spec("t.py", SLURM_JOB_ID="812").launch_id == "812.0"
    assert command.spec("--rdzv-conf launch_id=mine t.py", **slurm).launch_id == "mine"
    assert command.spec("t.py").launch_id == ""


def test_standalone(command: Command) -> None:
    spec = command.spec("--standalone --nnodes 1:4 --rdzv-backend c10d --rdzv-endpoint h --rdzv-id kept t.py")
    assert (spec.backend, spec.endpoints) == (Backend.MEMORY, ())
    assert (spec.min_nodes, spec.max_nodes, spec.run_id) == (1, 1, "kept")
    assert "--rdzv-backend, --rdzv-endpoint not used: --standalone is one node" in command.stderr
    assert command.spec("--rdzv-backend static --nnodes 1:1 t.py").backend is Backend.MEMORY


def test_old_names_of_etcd(command: Command) -> None:
    for name in ("etcd-v2", "etcd-v3"):
        spec = command.spec(f"--rdzv-backend {name} t.py")
        assert (spec.backend, spec.endpoints) == (Backend.ETCD, (("localhost", 2379),))
        assert command.stderr.count(f"rendezvous backend {name} means etcd here") == 1
    command.spec("--rdzv-backend etcd t.py")
    assert "means etcd here" not in command.stderr


def test_keys_that_are_not_ours_are_named_once(command: Command) -> None:
    command.spec("--rdzv-conf='join_timeout=5,timeout=5,read_timeout=1' t.py")
    assert command.stderr.count("ignored, as without meaning here: timeout, read_timeout") == 1


def test_a_budget_lifts_the_launch_bound_unless_one_is_given(command: Command) -> None:
    assert command.spec("t.py").bound_restarts
    spec = command.spec("--retry-budget hardware=8 --retry-budget node=4 t.py")
    assert [bound.text for bound in spec.retry_budget] == ["hardware=8", "node=4"]
    assert (spec.bound_restarts, spec.max_restarts) == (False, 0)
    assert command.spec("--retry-budget=node=4 --max-restarts=0 t.py").bound_restarts
    assert command.spec("--retry-budget=node=4 t.py", PET_MAX_RESTARTS="1").bound_restarts


def test_file_timers_are_asked_for_as_of_torchrun(command: Command) -> None:
    on = {"TORCHELASTIC_ENABLE_FILE_TIMER": "1"}
    assert command.spec("t.py", **on).timer_file == ""
    assert command.spec("t.py", **on, TORCHELASTIC_TIMER_FILE="/p").timer_file == "/p"
    for other in ({}, {"TORCHELASTIC_TIMER_FILE": "/p"}, {"TORCHELASTIC_ENABLE_FILE_TIMER": "true"}):
        assert command.spec("t.py", **other).timer_file is None


def test_the_ranks_interpreter(command: Command) -> None:
    other = command.folder / "venv"
    assert command.spec("t.py", PYTHON_EXEC="/bin/echo").python == "/bin/echo"
    assert "ranks run /bin/echo" in command.stderr
    assert command.spec("t.py", VIRTUAL_ENV=str(other)).python == sys.executable
    assert f"the active environment is {other}" in command.stderr
    assert f"give --python {other}/bin/python if the former is meant" in command.stderr
    assert command.spec("--python /bin/cat t.py", PYTHON_EXEC="/bin/echo", VIRTUAL_ENV=str(other)).python == "/bin/cat"
    assert command.stderr.count("ranks run /bin/cat") == 1
    assert "active environment" not in command.stderr
    command.spec("t.py", VIRTUAL_ENV=sys.prefix, CONDA_PREFIX="/opt/conda")
    assert "active environment" not in command.stderr
    command.spec("--no-python true")
    assert "ranks run" not in command.stderr


def test_run_path_is_stronger_than_the_others(command: Command) -> None:
    spec = command.spec("--run-path --no-python --module t.py")
    assert (spec.module, spec.no_python, Path(spec.runner or "").name) == (False, False, "run_path.py")
    assert command.stderr.count("--module and --no-python count for nothing beside it") == 1
    command.spec("--run-path t.py")
    assert "count for nothing" not in command.stderr
    assert "no script 'absent.py'" in command.refusal("--run-path absent.py")


def test_the_exit_code_as_torchrun_has_it(command: Command) -> None:
    for line, env, code in (
        ("t.py", {}, 7),
        ("--exit-code=torchrun t.py", {}, 1),
        ("t.py", {"PET_EXIT_CODE": "torchrun"}, 1),
        ("--exit-code cause t.py", {"PET_EXIT_CODE": "torchrun"}, 7),
        ("--exit-code=torchrun --nnodes 0 t.py", {}, 2),  # as torchrun's own parser
    ):
        assert command.run(line, **env) == code, line


def test_ranks_that_are_bound(command: Command) -> None:
    cores = sorted(os.sched_getaffinity(0))
    spec = command.spec("--numa-binding node --nproc-per-node 2 t.py", CUDA_VISIBLE_DEVICES="")
    assert len(spec.cpus) == 2
    assert {cpu for one in spec.cpus for cpu in one} <= set(cores)
    assert command.stderr.count("--numa-binding node binds local ranks 0") == 1
    many = len(cores) + 1
    spec = command.spec(f"--numa-binding exclusive --nproc-per-node {many} t.py", CUDA_VISIBLE_DEVICES="")
    assert spec.cpus == ()
    assert command.stderr.count("; the ranks run unbound") == 1
    assert command.stderr.count(f"{many} ranks share the {len(cores)} of {os.cpu_count()} CPUs") == 1
    command.spec(f"--nproc-per-node {len(cores)} t.py")
    assert "CPUs that this command may use" not in command.stderr


def test_a_device_for_each_rank(command: Command) -> None:
    line = "--virtual-local-rank --nproc-per-node 2 t.py"
    for visible in ({}, {"CUDA_VISIBLE_DEVICES": "3,5"}, {"CUDA_VISIBLE_DEVICES": ""}):
        assert command.spec(line, **visible).virtual_local_rank
    assert "CUDA_VISIBLE_DEVICES is '3'; name as many devices" in command.refusal(line, CUDA_VISIBLE_DEVICES="3")
    command.spec("--nproc-per-node 2 t.py", CUDA_VISIBLE_DEVICES="3")


def test_the_log_directory(command: Command) -> None:
    assert command.spec("--log-dir=/dev/null t.py").log_dir is None
    assert "what ranks write is always kept" in command.stderr
    assert command.spec("--log-dir=a/b t.py").log_dir == command.folder / "a/b"


def test_a_resume_hook_may_be_a_command(command: Command) -> None:
    assert command.spec("", ["--resume-hook", "sh -c 'echo {}'", "t.py"]).resume_hook == "sh -c 'echo {}'"


def test_a_directory_that_vanished_is_no_traceback(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = command.folder / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert "the current directory cannot be used" in command.refusal("t.py")
    monkeypatch.chdir(command.folder)


def test_version_and_help(command: Command) -> None:
    assert command.run("--version --nnodes 2") == 0
    assert command.stdout == "remuster 0.1.0\n"
    assert command.run("--help t.py") == 0
    for flag in FLAGS:
        assert f"--{flag.name}" in command.stdout
    assert not command.started
    assert command.spec("t.py --help").script_args == ("--help",)


def test_a_spec_that_contradicts_itself_is_refused() -> None:
    def spec(**changes: object) -> JobSpec:
        fields: dict[str, object] = {"min_nodes": 1, "max_nodes": 1, "nproc": 1, "run_id": "x", "script": "t"} | changes
        return JobSpec(**fields)  # type: ignore[arg-type]

    assert spec().fence_after_s == pytest.approx(11.735)
    for wrong in (
        {"min_nodes": 0},
        {"min_nodes": 2},
        {"nproc": 0},
        {"max_restarts": -1},
        {"min_nodes": 2, "max_nodes": 2},
        {"backend": Backend.ETCD},
        {"lease_ttl_s": 5},
        {"kill_bound_s": 9.0},
    ):
        with pytest.raises(SpecError, match="; "):
            spec(**wrong)
    assert spec(lease_ttl_s=6).fence_after_s > 0


def test_who_is_told_of_events(command: Command) -> None:
    hook = command.file("hook", "#!/bin/sh\n", 0o755)
    assert command.spec("", ["--on-event", "./hook --to 'a b'", "t.py"]).on_event == (str(hook), "--to", "a b")
    url = "https://hooks.example.org:8443/T0/SECRET?x=1"
    spec = command.spec(f"--on-event={url} t.py")
    assert spec.on_event == (url,)
    assert "SECRET" not in repr(spec) + command.stderr


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "--on-event is empty; give a command or a URL"),
        ("'", "check its quotes"),
        ("no-such-program x", "no program 'no-such-program' that can be run on PATH"),
        ("./t.py", "it is not executable; chmod +x './t.py'"),
        ("./gone/interpreter", "check its path"),
        ("http://", "is a URL that cannot be used; write http://HOST/PATH"),
        ("https:///SECRET", "is a URL that cannot be used"),
        ("https://h:x/SECRET", "is a URL that cannot be used"),
        ("https://h:0/SECRET", "is a URL that cannot be used"),
        ("https://me:SECRET@h/", "is a URL that cannot be used"),
        ("https://h/SECRET and more", "is a URL that cannot be used"),
        ("https://h/SECRET\x1b", "is a URL that cannot be used"),
        ("slack://h/SECRET", "is a URL of another kind than http"),
    ],
)
def test_nobody_can_be_told_so(command: Command, text: str, says: str) -> None:
    refusal = command.refusal("", ["--on-event", text, "t.py"])
    assert says in refusal
    assert "SECRET" not in refusal
