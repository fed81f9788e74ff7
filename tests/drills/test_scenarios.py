"""Scenarios from other launchers' bug reports about a host's names and addresses, each named after its row in the list.

Two hosts and no service but for one row; their ranks must reach each other, not just their agents. Each docstring says
what was broken in a copy of the product to see the test fail.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from drills.etcd import Etcd
from drills.job import COMMAND, ROOT
from drills.lab import Host, Lab
from drills.sight import until

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


def meet(lab: Lab, hosts: list[Host], backend: str, endpoint: str) -> dict[str, str]:
    """Run a job of one rank on each host; return where its ranks met, and each host's address as the others know it."""
    started = {}
    for host in hosts:
        host.sh("mkdir -p -m 700 /run/user")
        env = {"PATH": os.defpath, "HOME": "/run/user", "XDG_RUNTIME_DIR": "/run/user", "PYTHONPATH": str(ROOT)}
        argv = [
            *(str(COMMAND), "--nnodes", "2", "--rdzv-backend", backend, "--rdzv-endpoint", endpoint),
            *("--rdzv-id", "names", "--rdzv-conf", CONF, "--log-dir", str(lab.directory / f"{host.name}-logs")),
            *(str(MEET), str(lab.directory)),
        ]
        output = lab.directory / f"{host.name}.out"
        started[host.name] = (host.spawn(argv, env, output)[0], output)
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


def test_b01_hosts_with_ipv6_alone(lab: Lab) -> None:
    """Red when addresses are looked up with ``socket.gethostbyname``."""
    h1, h2 = hosts = lab.host("h1", "h2")
    own = {}
    for i, host in enumerate(hosts, 1):
        own[host.name] = f"fd77::{i}"
        host.sh(f"ip addr flush dev eth0 scope global; ip addr add {own[host.name]}/64 dev eth0 nodad")
    know(h1, "fd77::1 h1")
    know(h2, "fd77::2 h2")
    found = meet(lab, [h1, h2], "c10d", "[fd77::1]:29400")
    assert found.pop("master") in found.values()
    assert found == own
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
