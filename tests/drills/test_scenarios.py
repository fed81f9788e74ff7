"""Scenarios from other launchers' bug reports about a host's names and addresses, each named after its row in the list.

Two hosts and no service but for one row; their ranks must reach each other, not just their agents. Each docstring says
what was broken in a copy of the product to see the test fail.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from drills.etcd import Etcd
from drills.job import COMMAND, ROOT
from drills.lab import Host, Lab
from drills.sight import until
from etcd_server import find_etcd

pytestmark = pytest.mark.drill

MEET = Path(__file__).parents[1] / "command" / "meet.py"
CONF = "lease_ttl=6,kill_bound=2,last_call_timeout=3,join_timeout=10"
SECOND = "10.88.0"


def know(host: Host, *lines: str) -> None:
    """Give a host a hosts file of its own, and a name server that refuses at once."""
    text = "\\n".join(("127.0.0.1 localhost", "::1 localhost", *lines))
    host.sh(f"printf '{text}\\n' > /run/hosts; mount --bind /run/hosts /etc/hosts")
    host.sh("echo nameserver 127.0.0.1 > /run/resolv.conf")
    host.sh("[ ! -e /etc/resolv.conf ] || mount --bind /run/resolv.conf /etc/resolv.conf")


def start(lab: Lab, host: Host, backend: str, endpoint: str, *more: str | Path) -> tuple[subprocess.Popen[bytes], Path]:
    """Start a job of one rank on each of two hosts on one of them; return what waits for its end, and its output."""
    host.sh("mkdir -p -m 700 /run/user")
    env = {"PATH": os.defpath, "HOME": "/run/user", "XDG_RUNTIME_DIR": "/run/user", "PYTHONPATH": str(ROOT)}
    argv = [
        *(str(COMMAND), "--nnodes", "2", "--rdzv-backend", backend, "--rdzv-endpoint", endpoint),
        *("--rdzv-id", "names", "--rdzv-conf", CONF, "--log-dir", str(lab.directory / f"{host.name}-logs")),
        *(*map(str, more), str(lab.directory)),
    ]
    output = lab.directory / f"{host.name}.out"
    return host.spawn(argv, env, output)[0], output


def meet(lab: Lab, hosts: list[Host], backend: str, endpoint: str, *more: str, script: Path = MEET) -> dict[str, str]:
    """Run a job of one rank on each host; return where its ranks met, and each host's address as the others know it."""
    started = {}
    for i, host in enumerate(hosts):
        place = ("--node-rank", str(i)) if backend == "static" else ()
        started[host.name] = start(lab, host, backend, endpoint, *more, *place, script)
    for name, (waiter, output) in started.items():
        assert waiter.wait(40.0) == 0, f"on {name}:\n{output.read_text()[-3000:]}"
    said = [json.loads((lab.directory / f"met-1-{rank}").read_text()) for rank in (0, 1)]
    assert said[0]["MASTER_ADDR"] == said[1]["MASTER_ADDR"]
    (record,) = [
        json.loads(path.read_text()) for path in (lab.directory / "h1-logs").glob("*/attempts/attempt-000.json")
    ]
    return {"master": said[0]["MASTER_ADDR"], **{one["node"]: one["address"] for one in record["members"]}}


def check_gone(lab: Lab, hosts: list[Host], *spared: int) -> None:
    """See that no process of the job is left on a host, its store included."""

    def left() -> list[str]:
        return [p.title for host in hosts for p in host.processes() if p.pid not in spared]

    until(lambda: not left(), lambda: f"left: {left()}", 5.0)


def over_c10d_by_address(lab: Lab, h1: Host, h2: Host) -> tuple[str, str]:
    """Neither host knows the other's name, or its own as anything but loopback, as Debian has it."""
    know(h1, "127.0.1.1 h1")
    know(h2, "127.0.1.1 h2")
    return "c10d", f"{h1.address}:29400"


def over_c10d_by_name(lab: Lab, h1: Host, h2: Host) -> tuple[str, str]:
    """The endpoint's own host has its name as loopback, the other one has not; there is no default route either."""
    know(h1, "127.0.1.1 h1 head")
    know(h2, "127.0.1.1 h2", f"{h1.address} head")
    return "c10d", "head:29400"


def over_etcd_by_name(lab: Lab, h1: Host, h2: Host) -> tuple[str, str]:
    """A service on one of the hosts, which reaches it over loopback."""
    over_c10d_by_name(lab, h1, h2)
    Etcd(lab, [h1], "--listen-client-urls", "http://0.0.0.0:2379")
    return "etcd", "head:2379"


Names = Callable[[Lab, Host, Host], tuple[str, str]]


@pytest.mark.parametrize("names", [over_c10d_by_address, over_c10d_by_name, over_etcd_by_name])
def test_b01_a_node_whose_name_only_it_knows(lab: Lab, names: Names) -> None:
    """Red when ``reachable_address`` returns the host's name, or (over_etcd_by_name) what that leads to: 127.0.1.1."""
    h1, h2 = lab.host("h1", "h2")
    backend, endpoint = names(lab, h1, h2)
    stores = [p.pid for p in h1.processes()]
    found = meet(lab, [h1, h2], backend, endpoint)
    master = found.pop("master")
    assert found == {"h1": h1.address, "h2": h2.address}
    assert master in found.values()
    check_gone(lab, [h1, h2], *stores)


@pytest.mark.parametrize("backend", ["c10d", "static", "etcd"])
def test_b01_hosts_with_ipv6_alone(lab: Lab, backend: str) -> None:
    """Red when addresses are looked up with ``socket.gethostbyname``, and when MASTER_ADDR keeps its brackets."""
    h1, h2 = hosts = lab.host("h1", "h2")
    own = {}
    for i, host in enumerate(hosts, 1):
        own[host.name] = f"fd77::{i}"
        host.sh(f"ip addr flush dev eth0 scope global; ip addr add {own[host.name]}/64 dev eth0 nodad")
    know(h1, "fd77::1 h1")
    know(h2, "fd77::2 h2")
    stores = []
    if backend == "etcd":
        url, binary = "http://[fd77::1]:2379", find_etcd()
        assert binary is not None
        argv = [binary, "--data-dir", "/run/etcd", "--listen-client-urls", url, "--advertise-client-urls", url]
        stores = [h1.spawn(argv, {"PATH": os.defpath}, lab.directory / "etcd.log")[1].pid]
    port = {"c10d": 29400, "static": 29500, "etcd": 2379}[backend]
    found = meet(lab, hosts, backend, f"[fd77::1]:{port}")
    master = found.pop("master")
    assert master in (["fd77::1"] if backend == "static" else found.values())
    assert found == own
    check_gone(lab, hosts, *stores)


# --- several interfaces -----------------------------------------------------------------------------------------------
# Of gloo alone, and nothing of ours in it: where it listens is what its peers are told.
REDUCE = """
import json, os, sys
from datetime import timedelta
from pathlib import Path
import torch
import torch.distributed as dist
dist.init_process_group("gloo", timeout=timedelta(seconds=15))
one = torch.ones(1)
dist.all_reduce(one)
said = {"MASTER_ADDR": os.environ["MASTER_ADDR"], "sum": one.item(), "interface": os.environ.get("GLOO_SOCKET_IFNAME")}
Path(sys.argv[1], f"met-1-{os.environ['RANK']}").write_text(json.dumps(said))
dist.barrier()
dist.destroy_process_group()
"""


def reduce(lab: Lab, hosts: list[Host], endpoint: str, *more: str) -> tuple[dict[str, str], set[str | None]]:
    """Let the hosts' ranks sum over gloo; return what ``meet`` does, and which interfaces were named for them."""
    script = lab.directory / "reduce.py"
    script.write_text(REDUCE)
    found = meet(lab, hosts, "c10d", endpoint, *more, script=script)
    said = [json.loads((lab.directory / f"met-1-{rank}").read_text()) for rank in (0, 1)]
    assert [one["sum"] for one in said] == [2.0, 2.0]
    return found, {one["interface"] for one in said}


def test_ranks_meet_over_gloo_where_a_hosts_own_name_is_loopback(lab: Lab) -> None:
    """Red when GLOO_SOCKET_IFNAME is not set (``_take_interface`` in crew.py): gloo tells its peers 127.0.1.1."""
    h1, h2 = lab.host("h1", "h2")
    over_c10d_by_address(lab, h1, h2)
    _, named = reduce(lab, [h1, h2], f"{h1.address}:29400")
    assert named == {"eth0"}
    assert "leads to 127.0.1.1" in (lab.directory / "h2.out").read_text()
    check_gone(lab, [h1, h2])


@pytest.mark.parametrize("second", ["127.0.0.1:2379", "h1:2379"])
def test_hosts_that_reach_their_etcd_over_loopback_are_refused(lab: Lab, second: str) -> None:
    """Red without the term in terms.py: a rank would look for the master at its own loopback until it times out."""
    h1, h2 = lab.host("h1", "h2")
    Etcd(lab, [h1, h2], "--listen-client-urls", "http://0.0.0.0:2379")
    first, output = start(lab, h1, "etcd", "127.0.0.1:2379", MEET)
    until(lambda: "forming" in output.read_text(), "the first one waits for the second")
    later, output = start(lab, h2, "etcd", second, MEET)
    assert later.wait(40.0) == 2, output.read_text()
    assert "has loopback of h1 (" in output.read_text().splitlines()[-1]
    assert first.poll() is None


def test_local_addr_names_an_interface_and_the_ranks_meet_there(lab: Lab) -> None:
    """Red when ``_given`` takes no interface. The names lead to the other network, and the store is there."""
    hosts = lab.host("h1", "h2")
    for i, host in enumerate(hosts, 1):
        lab.fabric(f"ip link add w{i} type veth peer name ib0 netns {host.init} && ip link set w{i} master br0 up")
        host.sh(f"ip addr add {SECOND}.{i}/24 dev ib0; ip link set ib0 up")
        know(host, *(f"{other.address} {other.name}" for other in hosts))
    found, named = reduce(lab, hosts, f"{hosts[0].address}:29400", "--local-addr", "ib0")
    assert found.pop("master") in found.values()
    assert found == {"h1": f"{SECOND}.1", "h2": f"{SECOND}.2"}
    assert named == {"ib0"}
    check_gone(lab, hosts)


def test_b04_an_endpoint_that_is_this_host_under_another_name(lab: Lab) -> None:
    """Red when the endpoint is here if it is this host's name (``own_addresses`` by ``socket.gethostname``)."""
    h1, h2 = hosts = lab.host("h1", "h2")
    for i, host in enumerate(hosts, 1):
        lab.fabric(f"ip link add w{i} type veth peer name ib0 netns {host.init} && ip link set w{i} master br0 up")
        host.sh(f"ip addr add {SECOND}.{i}/24 dev ib0; ip link set ib0 up")
        know(host, *(line for n in (1, 2) for line in (f"{hosts[n - 1].address} h{n}", f"{SECOND}.{n} h{n}i")))
    found = meet(lab, [h1, h2], "c10d", "h1i:29400")
    assert found.pop("master") in found.values()
    assert found == {"h1": f"{SECOND}.1", "h2": f"{SECOND}.2"}
    check_gone(lab, hosts)
