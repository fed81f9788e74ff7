"""Rows about the other nodes of the run, and the one among them that brings the store along (c10d, static)."""

from __future__ import annotations

import signal
import socket
from collections.abc import Mapping

from bad_input.scene import CONF, HERE, Arrange, Row, Scene, steady, undisturbed
from bad_input.stores import PASSWORD, Listener
from command.cluster import STEADY, Node, Place
from command.processes import until
from etcd_server import free_ports

from remuster.agent.interfaces import interface_addresses

USAGE, REFUSED, UNHEALTHY = 2, 69, 75
FIRST = 3  # the other node's address ends with this
PATIENT = CONF.replace("join_timeout=4", "join_timeout=30")  # an etcd takes a moment to start
C10D = "--nnodes 2 --rdzv-backend c10d --rdzv-id {run} --rdzv-conf {conf}"
HOST = f"{C10D} --rdzv-endpoint 127.0.0.1:{{port}}"  # is the endpoint's machine, by its address
GUEST = f"{C10D},is_host=false --rdzv-endpoint 127.0.0.1:{{port}}"  # says that it is not
STATIC = "--nnodes 2 --rdzv-id {run} --rdzv-conf {conf}"


OUTER = next((address for address in sorted(interface_addresses()) if ":" not in address), "")  # no loopback


def _outer(scene: Scene) -> Mapping[str, object]:
    return {"outer": OUTER, **_free(scene)}


def _beside(*args: str) -> Arrange:
    """Another node runs the job already, on these terms."""

    def arrange(scene: Scene) -> Mapping[str, object]:
        steady(scene, FIRST, *args)
        return {"steady": STEADY, "desk": scene.desk}

    return arrange


def _differs(name: str, mine: str, *says: str, theirs: str = "--nnodes 1:2", script: str = "{steady}") -> Row:
    """A second node comes on other terms: it is refused, and the first one does not notice."""
    line = f"{{meet}} --nproc-per-node 2 {mine} {script} {{desk}}"
    return Row(f"differs-{name}", line, USAGE, says, _beside(*theirs.split()), after=undisturbed, within_s=30.0)


def _twice(scene: Scene) -> Mapping[str, object]:
    steady(scene, int(HERE.rpartition(".")[2]))
    return {}


def _alone_twice(scene: Scene) -> Mapping[str, object]:
    """One node that needs no store, and the same run there once more: no store keeps the two apart."""
    scene.command("--nproc-per-node", "2", "--rdzv-id", scene.run_id, STEADY, scene.desk)
    Place.wait_round(scene, 1, 2)
    return {}


def _goes_on(scene: Scene, node: Node) -> None:
    """End the first one, well."""
    scene.order("done")
    assert scene.nodes[0].exit_code() == 0, scene.say()


def _taken(scene: Scene) -> Mapping[str, object]:
    """Somebody else's server listens on the port."""
    listener = Listener()
    scene.closing.callback(listener.close)
    return {"port": listener.port, "conf": PATIENT}


def _free(scene: Scene) -> Mapping[str, object]:
    """A port that is free, and the next one too, where static has its etcd."""
    (port,) = free_ports(1)
    return {"port": port} if not _listens(port + 1) else _free(scene)


def _short(scene: Scene) -> Mapping[str, object]:
    """Enough for an etcd to start, and then not long."""
    return {**_free(scene), "conf": CONF.replace("join_timeout=4", "join_timeout=8")}


def _etcd_says(words: str) -> Arrange:
    """A program in etcd's place that says this of itself."""

    def arrange(scene: Scene) -> Mapping[str, object]:
        return {**_free(scene), "conf": PATIENT, "etcd": scene.path("etcd", f"#!/bin/sh\necho {words}\n", 0o755)}

    return arrange


def _plain_file(scene: Scene) -> Mapping[str, object]:
    return {**_free(scene), "etcd": scene.path("etcd", "#!/bin/sh\n", 0o644)}


def _empty_token(scene: Scene) -> Mapping[str, object]:
    return {**_free(scene), "token": scene.path("token", "", 0o600)}


def _hosted(theirs: bool = False, *, first: str = "", second: str = "") -> Arrange:
    """Another node keeps a store: of our run or of ``theirs``, with the token ``first``; ours is ``second``."""

    def arrange(scene: Scene) -> Mapping[str, object]:
        run = f"theirs-{scene.run_id}" if theirs else scene.run_id
        given = {"run": run, "conf": PATIENT, **_free(scene)}
        if first:
            given["conf"] += f",token_file={scene.path('first', first, 0o600)}"
        line = f"{HOST} --local-addr 127.0.0.{FIRST} t.py"
        scene.command(*line.format_map(given).split(), name="first")
        until(lambda: _listens(int(str(given["port"]))), "the other node's store is there", show=scene.say)
        token = f",token_file={scene.path('second', second, 0o600)}" if second else ""
        return {"port": given["port"], "conf": CONF + token}

    return arrange


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _same_rank(scene: Scene) -> Mapping[str, object]:
    """Another node has the same --node-rank."""
    given = {"run": scene.run_id, **_short(scene)}
    line = f"{STATIC} --node-rank 0 --master-addr 127.0.0.1 --master-port {{port}} --local-addr 127.0.0.{FIRST} t.py"
    scene.command(*line.format_map(given).split(), name="first")
    until(lambda: _listens(int(str(given["port"])) + 1), "the other node's store is there", show=scene.say)
    return given


def _both(scene: Scene, node: Node) -> None:
    """The other one has ended likewise."""
    assert scene.nodes[0].exit_code() == node.process.returncode, scene.say()


def _dismissed(scene: Scene, node: Node) -> None:
    """The other one still waits for its second node; it need not go on."""
    scene.nodes[0].process.terminate()
    assert scene.nodes[0].exit_code() == 128 + signal.SIGTERM, scene.say()


ROWS = (
    # --- terms --------------------------------------------------------------------------------------------------------
    _differs("min-nodes", "--nnodes 2", "--nnodes 2", "1:2"),
    _differs("max-nodes", "--nnodes 1:3", "--nnodes 1:3", "1:2"),
    _differs("script", "--nnodes 1:2", "script", "t.py", "steady.py", script="t.py"),
    _differs("restarts", "--nnodes 1:2 --max-restarts 3", "--max-restarts"),
    _differs("budget", "--nnodes 1:2 --max-restarts 0 --retry-budget node=3", "--retry-budget"),
    _differs("exit-codes", "--nnodes 1:2 --max-restarts 0 --exit-code-map 16=stop", "--exit-code-map"),
    # --- names --------------------------------------------------------------------------------------------------------
    Row("twice-on-one-node", "{meet} --nnodes 1:2 t.py", UNHEALTHY,
        ("{run}", f"'{HERE}'", "pid", "--rdzv-id", "--local-addr"), _twice, after=undisturbed, within_s=30.0),
    Row("twice-on-one-node-without-a-store", "--rdzv-id {run} t.py", UNHEALTHY, ("{run}", "pid", "--rdzv-id"),
        _alone_twice, after=_goes_on, within_s=30.0),
    # --- too few ------------------------------------------------------------------------------------------------------
    Row("too-few-nodes", "{meet} --nnodes 2 t.py", REFUSED, ("1 of at least 2 nodes", "4 s", "start more nodes"),
        within_s=25.0),
    # --- a store of the job's own -------------------------------------------------------------------------------------
    Row("c10d-port-taken", f"{HOST} t.py", REFUSED,
        ("127.0.0.1:{port}", "another program", "give another port"), _taken, within_s=25.0),
    Row("c10d-nobody-hosts", f"{GUEST} t.py", REFUSED,
        ("127.0.0.1:{port}", "within 4 s"), _free, within_s=25.0),
    Row("c10d-somebody-else-hosts", f"{C10D},is_host=false --rdzv-endpoint {{at}} t.py", REFUSED,
        ("{at}", "an etcd that remuster did not start", "--rdzv-backend etcd"), within_s=25.0),
    Row("c10d-a-web-server-hosts", f"{C10D},is_host=false --rdzv-endpoint {{web}} t.py", REFUSED, ("{web}",),
        lambda scene: {"web": scene.stores.web()}, within_s=25.0),
    Row("c10d-another-run-is-there", f"{HOST} t.py", REFUSED,
        ("127.0.0.1:{port}", "'theirs-{run}'", "'{run}'", "another port"), _hosted(theirs=True),
        after=_dismissed, within_s=40.0),
    Row("c10d-another-run-is-elsewhere", f"{GUEST} t.py", REFUSED,
        ("127.0.0.1:{port}", "'theirs-{run}'", "'{run}'", "another port"), _hosted(theirs=True),
        after=_dismissed, within_s=40.0),
    Row("c10d-without-the-token", f"{GUEST} t.py", REFUSED,
        ("127.0.0.1:{port}", "asks for a token", "token_file=PATH"), _hosted(first=PASSWORD), after=_dismissed,
        within_s=40.0),
    Row("c10d-with-another-token", f"{GUEST} t.py", REFUSED,
        ("127.0.0.1:{port}", "another token", "token_file"), _hosted(first=PASSWORD, second="guessed"),
        after=_dismissed, within_s=40.0),
    Row("c10d-token-file-empty", f"{C10D},token_file={{token}} --rdzv-endpoint 127.0.0.1:{{port}} t.py", USAGE,
        ("token_file", "{token}", "is empty"), _empty_token),
    Row("c10d-local-addr-is-loopback", f"{C10D} --rdzv-endpoint {{outer}}:{{port}} --local-addr {HERE} t.py", REFUSED,
        ("--local-addr", HERE, "leads every node to itself", "meet at {outer}", "leave it out"), _outer, within_s=25.0,
        unless="" if OUTER else "this machine has no address but loopback"),
    Row("c10d-endpoint-unknown", f"{C10D} --rdzv-endpoint no-such-host.invalid:{{port}} t.py", REFUSED,
        ("'no-such-host.invalid'", "not known", "check it"), _free, within_s=25.0),
    Row("c10d-etcd-is-no-etcd", f"{HOST} --etcd-binary {{etcd}} t.py", REFUSED,
        ("{etcd}", "is not an etcd", "--etcd-binary"), _etcd_says("hello"), within_s=25.0),
    Row("c10d-etcd-is-too-old", f"{HOST} --etcd-binary {{etcd}} t.py", REFUSED,
        ("{etcd}", "3.3.27", "or newer"), _etcd_says("etcd Version: 3.3.27"), within_s=25.0),
    Row("c10d-etcd-not-executable", f"{HOST} --etcd-binary {{etcd}} t.py", USAGE,
        ("{etcd}", "--etcd-binary"), _plain_file),
    Row("c10d-too-few", f"{HOST} t.py", REFUSED,
        ("1 of at least 2 nodes", "start more nodes"), _short, within_s=30.0),
    Row("static-port-taken", f"{STATIC} --nnodes 1 --master-addr 127.0.0.1 --master-port {{port}} t.py", REFUSED,
        ("--master-port {port} is in use", "another --master-port"), _taken, within_s=25.0),
    Row("static-etcds-port-taken",
        f"{STATIC},etcd_port={{port}} --node-rank 0 --master-addr 127.0.0.1 t.py", REFUSED,
        ("127.0.0.1:{port}", "another program", "etcd_port"), _taken, within_s=25.0),
    Row("static-nobody-hosts",
        f"{STATIC},is_host=false --node-rank 1 --master-addr 127.0.0.1 --master-port {{port}} t.py", REFUSED,
        ("127.0.0.1", "within 4 s"), _free, within_s=25.0),
    Row("static-one-rank-twice",
        f"{STATIC} --node-rank 0 --master-addr 127.0.0.1 --master-port {{port}} --local-addr {HERE} t.py", REFUSED,
        ("--node-rank 0 is given by", "127.0.0.3", HERE), _same_rank, after=_both, within_s=40.0),
)  # fmt: skip
