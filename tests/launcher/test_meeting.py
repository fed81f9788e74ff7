"""Where the nodes of a command line meet: c10d, static, an etcd service, or nowhere, with one node."""

from __future__ import annotations

import shlex
import socket
import sys
from pathlib import Path
from typing import NamedTuple

import pytest
from launcher_lines import Command

from remuster.agent.spec import Backend, Embedded, JobSpec, StoreAccess

C10D = "--rdzv-backend c10d"
NAMELESS = "no-such-host.invalid"  # never resolves (RFC 2606)
ELSEWHERE = "192.0.2.7"  # nobody's (RFC 5737)


class Met(NamedTuple):
    """What of a job the meeting decides. ``where`` is the embedded store's address, or the service's."""

    nodes: tuple[int, int]
    where: tuple[tuple[str, int], ...] = ()
    own: bool = False
    place: int | None = None
    master: tuple[str, int] | None = None
    here: bool | None = None


def met(spec: JobSpec) -> Met:
    assert (spec.backend is Backend.MEMORY) == (spec.endpoints == ())
    if spec.embedded is not None:
        assert spec.endpoints == ((spec.embedded.host, spec.embedded.port),)
    here = None if spec.embedded is None else spec.embedded.here
    nodes = (spec.min_nodes, spec.max_nodes)
    return Met(nodes, spec.endpoints, spec.embedded is not None, spec.place, spec.master, here)


def own(*nodes: int, host: str = "h", port: int = 29400, here: bool | None = None) -> Met:
    """What c10d means for several nodes."""
    return Met((nodes[0], nodes[-1]), ((host, port),), True, here=here)


def static(nodes: int, place: int = 0, host: str = "h", port: int = 29500, etcd_port: int = 0) -> Met:
    """What static means for several nodes."""
    return Met((nodes, nodes), ((host, etcd_port or port + 1),), True, place, (host, port))


ALONE = Met((1, 1))


@pytest.mark.parametrize(
    ("line", "means"),
    [
        # One node: no server, whatever its address is, as long as it is this machine's.
        ("", ALONE),
        ("--standalone", ALONE),
        ("--standalone --nnodes 1:4 --node-rank 3 --master-port 7", ALONE),
        ("--rdzv-backend static", ALONE),
        ("--rdzv-endpoint=", ALONE),
        ("--master-addr h", ALONE),
        ("--node-rank 3", ALONE),
        (C10D, ALONE),
        (f"{C10D} --rdzv-endpoint=", ALONE),
        (f"{C10D} --rdzv-endpoint localhost", ALONE),
        (f"{C10D} --rdzv-endpoint localhost:0", ALONE),
        (f"{C10D} --rdzv-endpoint {ELSEWHERE}:0", ALONE),
        (f"{C10D} --rdzv-endpoint 127.0.0.3:29401", ALONE),
        (f"{C10D} --rdzv-endpoint [::1]", ALONE),
        (f"{C10D} --rdzv-endpoint 0.0.0.0:29400", ALONE),
        (f"{C10D} --rdzv-endpoint {ELSEWHERE}", own(1, host=ELSEWHERE)),
        (f"{C10D} --rdzv-endpoint {ELSEWHERE} --rdzv-conf is_host=1", ALONE),
        (f"{C10D} --rdzv-endpoint localhost --rdzv-conf is_host=0", own(1, host="localhost", here=False)),
        (f"{C10D} --rdzv-endpoint {NAMELESS}", own(1, host=NAMELESS)),
        # static for one node: a port that was given is kept, since scripts dial it.
        ("--master-port 29501", ALONE._replace(master=("127.0.0.1", 29501))),
        ("--master-addr localhost --master-port 7", ALONE._replace(master=("localhost", 7))),
        ("--master-addr [::1] --master-port 7", ALONE._replace(master=("::1", 7))),
        ("--master-port 0", ALONE),
        ("--rdzv-endpoint localhost:0", ALONE),
        ("--rdzv-endpoint localhost:7 --master-port 8", ALONE._replace(master=("localhost", 7))),
        # c10d for several.
        (f"{C10D} --nnodes 2 --rdzv-endpoint h", own(2)),
        (f"{C10D} --nnodes 2 --rdzv-endpoint h:7", own(2, port=7)),
        (f"{C10D} --nnodes 2 --rdzv-endpoint [fe80::1]:7", own(2, host="fe80::1", port=7)),
        (f"{C10D} --nnodes 1:4 --rdzv-endpoint h", own(1, 4)),
        (f"{C10D} --nnodes 1:2 --rdzv-endpoint localhost:7", own(1, 2, host="localhost", port=7)),
        (f"{C10D} --nnodes 2", own(2, host="localhost")),
        (f"{C10D} --nnodes 2 --rdzv-endpoint h --rdzv-conf is_host=true", own(2, here=True)),
        (f"{C10D} --nnodes 2 --rdzv-endpoint h --rdzv-conf is_host=False,store_type=tcp", own(2, here=False)),
        (f"{C10D} --nnodes 2 --rdzv-endpoint h --node-rank 9 --master-port 7", own(2)),
        # static for several.
        ("--nnodes 2", static(2, host="127.0.0.1")),
        ("--nnodes 2 --node-rank 1 --master-addr h", static(2, 1)),
        ("--nnodes 2 --node-rank 1 --master-addr h --master-port 7", static(2, 1, port=7)),
        ("--nnodes 2 --master-addr h --rdzv-conf etcd_port=9", static(2, etcd_port=9)),
        ("--nnodes 2 --node-rank 1 --rdzv-endpoint h:7", static(2, 1, port=7)),
        ("--nnodes 2 --rdzv-endpoint h:7 --master-addr x --master-port 8", static(2, port=7)),
        ("--nnodes 2:4 --node-rank 3 --master-addr h", static(4, 3)),
        ("--rdzv-backend static --nnodes 1:2 --master-addr h", static(2)),
        # a service.
        ("--rdzv-backend etcd", Met((1, 1), (("localhost", 2379),))),
        ("--rdzv-backend etcd --rdzv-endpoint a,b:7 --rdzv-id x --nnodes 2", Met((2, 2), (("a", 2379), ("b", 7)))),
        ("--rdzv-backend etcd --node-rank 7", Met((1, 1), (("localhost", 2379),))),
    ],
)
def test_where_nodes_meet(command: Command, line: str, means: Met) -> None:
    assert met(command.spec(f"{line} t.py")) == means


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (f"{C10D} --nnodes 2 --rdzv-endpoint h:0", "--rdzv-endpoint is 'h:0', and no other node finds port 0; give"),
        (f"{C10D} --nnodes 2 --rdzv-endpoint a,b", "--rdzv-endpoint is 'a,b'; give the one HOST:PORT"),
        (f"{C10D} --nnodes 2 --rdzv-endpoint a:b", "--rdzv-endpoint holds 'a:b'; write HOST"),
        # As a variable that is not set leaves it.
        (f"{C10D} --nnodes 2 --rdzv-endpoint :29400", "--rdzv-endpoint holds ':29400'; write HOST"),
        (f"{C10D} --rdzv-endpoint /tmp/f --rdzv-conf store_type=file", "store_type in --rdzv-conf is 'file', and"),
        (f"{C10D} --rdzv-conf store_type=redis", "store_type in --rdzv-conf is 'redis', and"),
        (f"{C10D} --rdzv-conf is_host=maybe", "is_host in --rdzv-conf is 'maybe'; give true or false"),
        ("--nnodes 2 --node-rank 2", "--node-rank is 2, and --nnodes asks for 2; give 0 to 1, another"),
        ("--nnodes 1:2 --node-rank=-1", "--node-rank is -1; give 0 or more"),
        ("--nnodes 2 --node-rank=one", "--node-rank is 'one', which is no whole number"),
        ("--node-rank 1 --master-port 7", "--node-rank is 1, and --nnodes asks for 1; give 0\n"),
        ("--nnodes 2 --master-addr=", "--master-addr is ''; give the name"),
        ("--nnodes 2 --master-port 0", "--master-port is 0; give 1 or more"),
        ("--nnodes 2 --master-port 65536", "--master-port is 65536; give 1 to 65535"),
        ("--master-port x", "--master-port is 'x', which is no whole number"),
        ("--nnodes 2 --master-port 65535", "--master-port is 65535, and etcd's is the next one; give"),
        ("--nnodes 2 --rdzv-endpoint h:65535", "--rdzv-endpoint is 65535, and etcd's is the next one; give"),
        ("--nnodes 2 --rdzv-conf etcd_port=29500", "etcd_port is the master port, 29500"),
        ("--nnodes 2 --rdzv-conf etcd_port=0", "etcd_port in --rdzv-conf is 0; give 1 or more"),
        ("--nnodes 2 --rdzv-endpoint h", "--rdzv-endpoint holds 'h', which has no port; write HOST:PORT"),
        ("--rdzv-endpoint h", "--rdzv-endpoint holds 'h', which has no port; write HOST:PORT"),
        ("--nnodes 2 --rdzv-endpoint h:0", "--rdzv-endpoint holds 'h:0'; a port is a number from 1"),
        ("--nnodes 2 --rdzv-endpoint a:1,b:1", "--rdzv-endpoint is 'a:1,b:1'; give the one HOST:PORT"),
        ("--nnodes 2 --etcd-binary absent", "--etcd-binary is 'absent', which is no program that can be run"),
        ("--nnodes 2 --rdzv-conf token_file=absent", "token_file in --rdzv-conf is 'absent', which is no file"),
        ("--nnodes 2 --rdzv-conf token_file=t.py", "token_file in --rdzv-conf is 't.py', which others may read; run"),
        ("--rdzv-backend etcd --nnodes 2", "give --rdzv-id NAME"),
        # What would not be used is looked at all the same.
        ("--rdzv-backend etcd --rdzv-conf etcd_port=x", "etcd_port in --rdzv-conf is 'x', which is no whole number"),
        ("--rdzv-conf is_host=x", "is_host in --rdzv-conf is 'x'; give true or false"),
        ("--rdzv-conf token_file=absent", "token_file in --rdzv-conf is 'absent', which is no file"),
        ("--nnodes 2 --rdzv-conf cacert=absent", "cacert in --rdzv-conf is 'absent', which is no file"),
    ],
)  # fmt: skip
def test_where_nodes_cannot_meet(command: Command, line: str, says: str) -> None:
    assert says in command.refusal(f"{line} t.py")


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (f"{C10D} --nnodes 2", "no --rdzv-endpoint: the nodes meet at localhost:29400, on this machine alone"),
        ("--nnodes 2", "no --master-addr: the nodes meet at 127.0.0.1:29500, on this machine alone"),
        ("--nnodes 1:2 --master-addr h", "static waits for all of 2 nodes, as in torchrun"),
        (f"{C10D} --nnodes 2 --rdzv-endpoint h --node-rank 1 --master-addr x", "--node-rank, --master-addr not used"),
        ("--rdzv-backend etcd --node-rank 1", "--node-rank not used: they are static's"),
        ("--nnodes 2 --rdzv-endpoint h:7 --master-port 8", "--master-port not used: --rdzv-endpoint takes their place"),
        ("--master-addr h", "--master-addr not used: one node without --master-port"),
        (f"{C10D} --rdzv-conf token_file=token", "--rdzv-conf: token_file not used: one node needs no server"),
        ("--rdzv-backend etcd --rdzv-conf token_file=token,is_host=1", "token_file, is_host not used: they are for"),
        ("--nnodes 2 --rdzv-conf username=u,password_file=pw", "username, password_file not used: they are for"),
        (f"{C10D} --nnodes 2 --rdzv-conf etcd_port=7", "etcd_port not used: it is static's"),
    ],
)  # fmt: skip
def test_what_is_given_in_vain_is_named(command: Command, line: str, says: str) -> None:
    for name in ("pw", "token"):
        command.file(name, "x", 0o600)
    spec = command.spec(f"{line} t.py")
    assert says in command.stderr
    assert spec.store == StoreAccess()


@pytest.mark.parametrize(
    "line", ["--nnodes 2 --master-addr h", f"{C10D} --nnodes 2 --rdzv-endpoint h", C10D, "--master-port 7"]
)
def test_a_usual_line_is_met_without_remarks(command: Command, line: str) -> None:
    spec = command.spec(f"{line} --rdzv-id x t.py")
    assert command.stderr == f"remuster: ranks run {spec.python}\n"


def test_an_etcd_of_the_jobs_own(command: Command) -> None:
    token = command.file("token", "x", 0o600)
    spec = command.spec(f"{C10D} --nnodes 2 --rdzv-endpoint h --rdzv-conf token_file=token --etcd-binary sh t.py")
    assert spec.embedded is not None
    assert spec.embedded == Embedded("h", 29400, spec.embedded.binary, token)
    assert Path(spec.embedded.binary or "").is_absolute()
    program = command.file("bin/etcd", mode=0o755)
    spec = command.spec("--nnodes 2 t.py", PET_ETCD_BINARY="bin/etcd")
    assert spec.embedded == Embedded("127.0.0.1", 29501, str(program))


def test_the_runs_name(command: Command) -> None:
    """A store of the job's own makes a name when none is given; a node that comes to it cannot know it to be new."""
    for several in (f"{C10D} --nnodes 2", "--nnodes 2", f"{C10D} --rdzv-endpoint {ELSEWHERE}"):
        spec = command.spec(f"{several} t.py")
        assert (spec.run_id, spec.new_run) == ("", False)
        assert "run id" not in command.stderr
        assert command.spec(f"{several} --rdzv-id x t.py").run_id == "x"
        assert command.spec(f"{several} t.py", SLURM_JOB_ID="812").run_id == "812"
    assert command.spec(f"{C10D} t.py").run_id != ""


def test_a_refusal_names_the_variable(command: Command) -> None:
    assert "PET_NODE_RANK is 2, and PET_NNODES asks for 2" in command.refusal("t.py", PET_NODE_RANK="2", PET_NNODES="2")
    assert "PET_MASTER_PORT is 'x'" in command.refusal("t.py", PET_MASTER_PORT="x")
    assert "PET_RDZV_ENDPOINT holds 'h'" in command.refusal("t.py", PET_RDZV_ENDPOINT="h")
    assert "token_file in PET_RDZV_CONF is 'x'" in command.refusal("--nnodes 2 t.py", PET_RDZV_CONF="token_file=x")


def addresses() -> list[str]:
    """Return an address of this machine's that is not loopback, if it has one."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((ELSEWHERE, 9))
        except OSError:
            return []
        return [probe.getsockname()[0]]


def test_this_machine_is_known_by_its_addresses(command: Command) -> None:
    for address in (*addresses(), "127.1"):
        assert met(command.spec(f"{C10D} --rdzv-endpoint {address} t.py")) == ALONE
    for address in ("[2001:db8::7]", "x" * 64):  # nobody's; and no name can have such a label
        assert command.spec(f"{C10D} --rdzv-endpoint {address} t.py").embedded is not None


# torchrun's own tests of its command line, as far as they are about reading one (reference: its launcher/test_run.py).
UPSTREAM: list[tuple[str, dict[str, str], Met, int, str]] = [
    ("--nnodes=1 --nproc-per-node=4 --rdzv-id=X --monitor-interval=1 --start-method=spawn t.py", {}, ALONE, 4, "X"),
    (
        "--nnodes=1 --nproc-per-node=4 --rdzv-id=X --monitor-interval=1 --start-method=spawn "
        "--master-addr=localhost --master-port=29611 --node-rank=0 t.py",
        {},
        ALONE._replace(master=("localhost", 29611)),
        4,
        "X",
    ),
    ("--nnodes=1 --rdzv-id=X --no-python true D", {}, ALONE, 1, "X"),
    (
        "true D",
        {"PET_NNODES": "1", "PET_NPROC_PER_NODE": "4", "PET_RDZV_ID": "X", "PET_MONITOR_INTERVAL": "1",
         "PET_START_METHOD": "spawn", "PET_NO_PYTHON": "1", "PET_MODULE": "0"},
        ALONE, 4, "X",
    ),
    (
        "--nnodes=1:2 --nproc-per-node=4 --rdzv-id=X --rdzv-backend=c10d --rdzv-endpoint=localhost:29611 "
        "\"--rdzv-conf='join_timeout=5,last_call_timeout=1,timeout=5'\" --monitor-interval=1 --start-method=spawn t.py",
        {},
        own(1, 2, host="localhost", port=29611),
        4,
        "X",
    ),
    (
        "--nnodes=1:2 --nproc-per-node=4 --rdzv-id=X --rdzv-backend=c10d --rdzv-endpoint=localhost:29611 "
        "--rdzv_conf=timeout=5 --monitor-interval=1 --start-method=spawn t.py",
        {},
        own(1, 2, host="localhost", port=29611),
        4,
        "X",
    ),
    ("--standalone --nproc-per-node=4 t.py", {}, ALONE, 4, ""),
    ("--nproc_per 2 --max_r 1 --stand t.py", {}, ALONE, 2, ""),
    ("--nproc_per=2 --master_p 7 --node_r 0 t.py", {}, ALONE._replace(master=("127.0.0.1", 7)), 2, ""),
]  # fmt: skip


@pytest.mark.parametrize(("line", "environ", "means", "nproc", "run_id"), UPSTREAM)
def test_torchruns_own_lines(
    command: Command, line: str, environ: dict[str, str], means: Met, nproc: int, run_id: str
) -> None:
    spec = command.spec("", shlex.split(line), PATH="/usr/bin:/bin", **environ)
    assert (met(spec), spec.nproc, spec.python) == (means, nproc, sys.executable)
    assert spec.run_id == run_id or (not run_id and len(spec.run_id) == 12)
    if "join_timeout" in line:
        assert (spec.join_timeout_s, spec.last_call_timeout_s) == (5, 1)


def test_torchruns_conflict_of_variables(command: Command) -> None:
    assert "--module and --no-python contradict" in command.refusal("true", PET_NO_PYTHON="1", PET_MODULE="1")
