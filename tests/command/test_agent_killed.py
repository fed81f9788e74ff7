"""The agent alone is killed: its keeper, once nothing of the node is left, gives the lease up, and the others go on.

The lease is so long that nobody can have waited for it.
"""

from __future__ import annotations

import signal
import statistics
from collections.abc import Callable

import pytest
from command.cluster import STEADY, Cluster, Node, Place
from command.figures import FIGURE
from command.processes import boottime, children, read, until
from etcd_access import PASSWORD, Authority, enable_auth, needs_openssl, tls_server
from etcd_server import free_ports

from remuster.agent.keeper import REVOKE_S

pytestmark = pytest.mark.process

GO_ON_S = 1.0  # until the others' ranks run, on a quiet machine
BUSY_S = 10.0  # the same on a busy one: a third of the lease
END_S = REVOKE_S + 2.0  # the command's, when the store is silent
LONG = "lease_ttl=30,kill_bound=1,last_call_timeout=2,join_timeout=60"
SOME = ("--nnodes", "1:3", "--max-restarts", "9", "--nproc-per-node", "2")


def kill_agent(place: Place, node: Node, n: int, world: int) -> float:
    """Kill the agent of ``node`` and wait for round ``n`` on the others; return how long all its ranks took to run."""
    at = boottime()
    node.kill("agent")
    said = Place.wait_round(place, n, world)
    assert node.exit_code() == 137, node.say()
    assert "was killed by SIGKILL" in node.err
    assert "given up" not in node.err, node.err
    return max(one["at"] for one in said.values()) - at


def test_the_others_go_on_at_once(cluster: Cluster) -> None:
    """First without another node, then without the leader."""
    for number in (2, 3, 4):
        cluster.start(number, *SOME, STEADY, cluster.desk, conf="lease_ttl=30")
    first = cluster.wait_round(1, 6)
    leader = cluster.leader()
    other = next(node for node in cluster.nodes if node is not leader)
    name = other.folder.name.partition("-")[2]
    assert any(one["REMUSTER_NODE"] == name for one in first.values())
    took = [kill_agent(cluster, other, 2, 4)]
    cluster.wait_round(2, 4)
    took.append(kill_agent(cluster, leader, 3, 2))
    cluster.order("done")
    (last,) = (node for node in cluster.nodes if node.process.poll() is None)
    assert last.exit_code() == 0, cluster.say()
    cluster.check_left()

    for n, node in ((1, other), (2, leader)):
        name = node.folder.name.partition("-")[2]
        record = cluster.records()[n]
        verdict = record["verdict"]
        assert (verdict["class"], verdict["node"], verdict["status"]) == ("killed_unknown", name, -9)
        assert verdict["sentence"] == f"the agent on {name} was killed by SIGKILL, and its ranks were stopped"
        assert record["charged_to"] == "unknown"
    assert max(took) <= BUSY_S


@pytest.mark.timing
def test_how_soon_the_others_go_on(cluster: Cluster, record_property: Callable[[str, object], None]) -> None:
    some = ("--nnodes", "1:6", "--max-restarts", "9")
    nodes = [cluster.start(n, *some, STEADY, cluster.desk, conf="lease_ttl=30") for n in range(2, 8)]
    took: list[float] = []
    for n, victim in enumerate(nodes[:-1], 1):
        cluster.wait_round(n, len(nodes) + 1 - n)
        took.append(kill_agent(cluster, victim, n + 1, len(nodes) - n))
    cluster.order("done")
    assert nodes[-1].exit_code() == 0, cluster.say()
    cluster.check_left()
    shown = ", ".join(f"{one:.3f}" for one in took)
    record_property(FIGURE, f"agent killed → the others' ranks run: {shown} s, of a lease of 30 s")
    assert statistics.median(took) <= GO_ON_S, shown


def revoked_by_keeper(node: Node) -> bool:
    """Watch the keeper's children until the command ends; tell whether a revoker was among them."""
    seen: set[int] = set()
    until(
        lambda: seen.update(p for p in children(node.keeper) if is_revoker(p)) or node.process.poll() is not None, "end"
    )
    return bool(seen)


def is_revoker(pid: int) -> bool:
    return b"leaserevoker" in read(pid, "cmdline")


def test_an_agent_that_ends_in_order_gives_its_own_lease_up(cluster: Cluster) -> None:
    nodes = [cluster.start(n, "--nnodes", "1:2", STEADY, cluster.desk, conf="lease_ttl=30") for n in (2, 3)]
    cluster.wait_round(1, 2)
    nodes[0].process.send_signal(signal.SIGTERM)
    assert not revoked_by_keeper(nodes[0])
    assert nodes[0].exit_code() == 143
    cluster.wait_round(2, 1)
    nodes[1].kill("agent")
    assert revoked_by_keeper(nodes[1])
    assert nodes[1].exit_code() == 137
    assert not any(key.startswith("nodes/") for key in cluster.tree())


@pytest.mark.parametrize("signum", [signal.SIGSTOP, signal.SIGKILL], ids=["silent", "refusing"])
def test_a_store_that_is_down_holds_nobody_up(cluster: Cluster, signum: int) -> None:
    """The command ends within its bound, and says that the lease is left to run out."""
    node = cluster.start(2, *SOME, STEADY, cluster.desk, conf="lease_ttl=30")
    cluster.wait_round(1, 2)
    if signum == signal.SIGSTOP:
        cluster.etcd.stop()
    else:
        cluster.etcd.down()
    at = boottime()
    node.kill("agent")
    try:
        assert node.exit_code() == 137, node.say()
        assert boottime() - at <= END_S
        assert "was not given up: no answer from " in node.err
        assert "It runs out by itself" in node.err
        assert "Traceback" not in node.err
    finally:
        cluster.etcd.cont() if signum == signal.SIGSTOP else cluster.etcd.start()
    assert "nodes/127.0.0.2" in cluster.tree()
    assert not any(key.startswith("evidence/") for key in cluster.tree())


def test_alone_nobody_is_told(place: Place) -> None:
    """Without a store between nodes there is no lease to give up: the command ends at once."""
    node = place.command("--standalone", "--nproc-per-node", "2", STEADY, place.desk)
    place.wait_round(1, 2)
    at = boottime()
    node.kill("agent")
    assert node.exit_code() == 137
    assert boottime() - at < REVOKE_S
    assert "given up" not in node.err


@needs_openssl
def test_with_tls_and_a_password(place: Place) -> None:
    """The files that let the agent in let its keeper's revoker in; the password is on no command line."""
    own = Authority(place.folder / "ca").issue("server")
    etcd = tls_server(place.folder / "etcd", own)
    try:
        etcd.start()
        enable_auth(etcd, "worker", prefix="/remuster/")
        secret = place.folder / "password"
        secret.write_text(PASSWORD)
        secret.chmod(0o600)
        conf = f"{LONG},protocol=https,cacert={own.ca},username=worker,password_file=password"  # relative, on purpose
        meet = ("--rdzv-backend", "etcd", "--rdzv-endpoint", f"127.0.0.1:{etcd.port}", "--rdzv-id", "locked")
        nodes = [
            place.command(*meet, "--rdzv-conf", conf, "--local-addr", f"127.0.0.{n}", *SOME, STEADY, place.desk)
            for n in (2, 3)
        ]
        place.wait_round(1, 4)
        assert kill_agent(place, nodes[0], 2, 2) <= BUSY_S
        place.order("done")
        assert nodes[1].exit_code() == 0, place.say()
    finally:
        etcd.close()


@pytest.mark.parametrize("token", ["", "open-sesame-4711"], ids=["open", "token"])
def test_with_a_store_of_the_jobs_own(place: Place, token: str) -> None:
    """The agent that had started the store is killed: the store goes on, below the keeper, and the others with it."""
    conf = LONG
    if token:
        (place.folder / "token").write_text(token)
        (place.folder / "token").chmod(0o600)
        conf += f",token_file={place.folder / 'token'}"
    meet = ("--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{free_ports(1)[0]}", "--rdzv-id", "own")

    def start(n: int) -> Node:
        here = (*meet, "--rdzv-conf", conf, "--local-addr", f"127.0.0.{n}")
        return place.command(*here, *SOME, STEADY, place.desk)

    host = start(2)
    until(lambda: "store-minder" in str(host.pids()), "it keeps the store", show=host.say)
    guest = start(3)
    place.wait_round(1, 4)
    at = boottime()
    host.kill("agent")
    said = place.wait_round(2, 2)
    assert max(one["at"] for one in said.values()) - at <= BUSY_S
    assert host.process.poll() is None  # it serves the store
    place.order("done")
    assert guest.exit_code() == 0, place.say()
    assert host.exit_code() == 137, host.say()
    assert "given up" not in host.err
    (record,) = (record for record in guest.records() if record["round"] == 1)
    assert record["verdict"]["sentence"].startswith("the agent on 127.0.0.2 was killed by SIGKILL")
