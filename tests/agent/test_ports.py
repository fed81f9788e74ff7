"""The reserved port against the real kernel and the real TCPStore; the address against real routes."""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import socket
import struct
import subprocess
import sys

import pytest

from remuster.agent.ports import AddressError, reachable_address, reserve_port

IP_LOCAL_PORT_RANGE = 51  # Linux 6.3: the range from which bind(0) takes a port, for one socket


def has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6, socket.SOCK_STREAM) as s:
            s.bind(("::1", 0))
    except OSError:
        return False
    return True


LOOPBACKS = ["127.0.0.1", "::1"] if has_ipv6() else ["127.0.0.1"]


def family_of(address: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in address else socket.AF_INET


@pytest.mark.parametrize("address", LOOPBACKS)
def test_a_plain_bind_is_refused_and_one_with_reuse_gets_it(address: str) -> None:
    port = reserve_port(address)
    with socket.socket(family_of(address)) as plain, pytest.raises(OSError, match="in use") as refused:
        plain.bind((address, port))
    assert refused.value.errno == errno.EADDRINUSE
    with socket.socket(family_of(address)) as store:
        store.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        store.bind((address, port))
        store.listen()
        with socket.create_connection((address, port), 5):
            pass


def any_port(reuse: int, only: int) -> int:
    """Bind to port 0 with a range of exactly one port to choose from, or, before Linux 6.3, with the usual range."""
    with socket.socket() as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, reuse)
        with contextlib.suppress(OSError):
            s.setsockopt(socket.IPPROTO_IP, IP_LOCAL_PORT_RANGE, struct.pack("=I", only << 16 | only))
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


@pytest.mark.parametrize("reuse", [0, 1])
def test_no_one_who_asks_for_any_port_gets_it(reuse: int) -> None:
    free = any_port(0, 0)
    narrowed = any_port(reuse, free) == free
    port = reserve_port("127.0.0.1")
    if narrowed:
        with pytest.raises(OSError, match="in use"):
            any_port(reuse, port)
    assert port not in {any_port(reuse, 0) for _ in range(500)}


def test_ports_differ_and_nothing_listens() -> None:
    ports = [reserve_port("127.0.0.1") for _ in range(50)]
    assert len(set(ports)) == 50
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", ports[0]), 5)


@pytest.mark.parametrize("address", LOOPBACKS)
def test_the_store_of_torch_gets_it(address: str) -> None:
    pytest.importorskip("torch.distributed")
    code = """
import sys
from datetime import timedelta
from torch.distributed import TCPStore
store = TCPStore(sys.argv[1], int(sys.argv[2]), 1, True, timedelta(seconds=20), multi_tenant=True)
store.set("k", "v")
print(store.port, store.get("k").decode())
"""
    port = reserve_port(address)
    command = [sys.executable, "-W", "ignore", "-c", code, address, str(port)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert done.stdout.split() == [str(port), "v"], done.stderr


def test_an_address_that_is_not_ours_is_named() -> None:
    with pytest.raises(AddressError, match=r"203\.0\.113\.9 is not an address of this node.*--local-addr"):
        reserve_port("203.0.113.9")
    with pytest.raises(AddressError, match="'node7' is not an IP address"):
        reserve_port("node7")


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.7", "localhost"])
def test_a_loopback_endpoint_means_loopback(host: str) -> None:
    assert ipaddress.ip_address(reachable_address(host, 2379)).is_loopback


def test_local_addr_wins() -> None:
    assert reachable_address("127.0.0.1", 2379, "198.51.100.4") == "198.51.100.4"
    assert reachable_address("no-such-host.invalid", None, "2001:DB8::4") == "2001:db8::4"
    assert reachable_address("127.0.0.1", 2379, "localhost") in ("127.0.0.1", "::1")
    with pytest.raises(AddressError, match=r"--local-addr no-such-host\.invalid is neither"):
        reachable_address("127.0.0.1", 2379, "no-such-host.invalid")


def routed() -> str | None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        try:
            s.connect(("198.51.100.1", 9))
        except OSError:
            return None
        return str(s.getsockname()[0])


def test_never_loopback_for_an_endpoint_elsewhere_or_for_our_own_name() -> None:
    ours = routed()
    if ours is None:
        with pytest.raises(AddressError, match=r"no address of this node leads to 198\.51\.100\.1"):
            reachable_address("198.51.100.1", 2379)
        return
    assert reachable_address("198.51.100.1", 2379) == ours
    assert reachable_address(ours, 2379) == ours  # etcd on this very node
    for name in filter(known, (socket.gethostname(), socket.getfqdn())):
        if name != "localhost":  # whatever the hosts file says
            assert not ipaddress.ip_address(reachable_address(name, 2379)).is_loopback


def known(name: str) -> bool:
    try:
        return bool(socket.getaddrinfo(name, 1))
    except OSError:
        return False


def test_an_unknown_endpoint_is_named() -> None:
    with pytest.raises(AddressError, match=r"no-such-host\.invalid"):
        reachable_address("no-such-host.invalid", 2379)
