"""The reserved port against the real kernel and the real TCPStore; the address against real routes."""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import os
import socket
import struct
import subprocess
import sys
import threading
import time

import pytest

from remuster.agent.ports import (
    AddressError,
    comes_back,
    keep_port,
    meeting_point,
    reachable_address,
    reserve_port,
)

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


# --- a fixed port ---------------------------------------------------------------------------------------------------
def free_port() -> int:
    """Return a port that nothing holds; outside the range from which others are given theirs."""
    for port in range(21_000 + os.getpid() % 5000, 32_000):
        with socket.socket() as s, contextlib.suppress(OSError):
            s.bind(("", port))
            return port
    raise AssertionError("no port is free")


def store(port: int, where: str = "") -> socket.socket:
    """Listen as TCPStore does."""
    s = socket.socket()
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    s.bind((where, port))
    s.listen()
    return s


@pytest.mark.parametrize("host", [*LOOPBACKS, "localhost"])
def test_a_fixed_port_is_kept_for_one_that_reuses(host: str) -> None:
    port = free_port()
    keep_port(host, port, 0.0)
    with socket.socket() as plain, pytest.raises(OSError, match="in use") as refused:
        plain.bind(("", port))
    assert refused.value.errno == errno.EADDRINUSE
    keep_port(host, port, 0.0)  # and again, round after round
    store(port).close()


async def test_the_meeting_point_is_spelled_as_it_was_given() -> None:
    port = free_port()
    assert await meeting_point("10.9.8.7", ("localhost", port)) == f"localhost:{port}"
    assert await meeting_point("10.9.8.7", ("127.0.0.1", port)) == f"127.0.0.1:{port}"
    if has_ipv6():
        assert await meeting_point("10.9.8.7", ("::1", port)) == f"[::1]:{port}"
    free = await meeting_point("127.0.0.1", None)
    assert int(free.rpartition(":")[2]) not in (0, port)


def test_the_store_of_the_last_round_does_not_stand_in_the_way() -> None:
    """It was killed with its connections open, on both sides, and with bytes that nobody has read."""
    port = free_port()
    keep_port("127.0.0.1", port, 0.0)
    code = """
import os, socket, sys
s = socket.socket()
s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
s.bind(("", int(sys.argv[1])))
s.listen()
ends = []
for _ in range(4):
    if os.fork() == 0:
        c = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
        c.sendall(b"x" * 1000)
        c.recv(1)
        os._exit(0)
    ends.append(s.accept()[0])
print("up", flush=True)
os.read(0, 1)
"""
    with subprocess.Popen(
        [sys.executable, "-c", code, str(port)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout
        assert process.stdout.readline() == b"up\n"
        with pytest.raises(AddressError, match="is in use"):
            keep_port("127.0.0.1", port, 0.0)
        process.kill()
    keep_port("127.0.0.1", port)
    store(port).close()


def test_a_port_that_comes_free_in_time_is_taken() -> None:
    port = free_port()
    held = store(port)
    threading.Timer(0.3, held.close).start()
    keep_port("127.0.0.1", port, 30.0)


@pytest.mark.parametrize("where", ["", "127.0.0.1", "127.0.0.9"])  # TCPStore listens everywhere: none may be taken
def test_a_port_in_use_is_named(where: str) -> None:
    port = free_port()
    with store(port, where), pytest.raises(AddressError, match=f"--master-port {port} is in use.*give all nodes"):
        keep_port("127.0.0.1", port, 0.0)


async def test_a_port_that_stays_in_use_is_given_up_soon() -> None:
    port = free_port()
    began = time.monotonic()
    with store(port), pytest.raises(AddressError, match=f"--master-port {port} is in use"):
        await meeting_point("127.0.0.1", ("127.0.0.1", port))
    assert time.monotonic() - began < 9.0


def test_a_port_that_somebody_dials_out_from_is_in_use() -> None:
    port = free_port()
    with socket.socket() as server, socket.socket() as client:
        server.bind(("127.0.0.1", 0))
        server.listen()
        client.bind(("127.0.0.1", port))
        client.connect(server.getsockname())
        with pytest.raises(AddressError, match="is in use"):
            keep_port("127.0.0.1", port, 0.0)


@pytest.mark.parametrize("host", ["192.0.2.1", "no-such-host.invalid"])
def test_a_master_address_elsewhere_is_named(host: str) -> None:
    with pytest.raises(AddressError, match=f"--master-addr {host}") as refused:
        keep_port(host, free_port(), 0.0)
    assert "give" in str(refused.value)


def test_a_privileged_port_is_named() -> None:
    before = os.geteuid()
    if before == 0:
        os.seteuid(65534)  # root may use any port
    try:
        with pytest.raises(AddressError, match="--master-port 81 may not be used by this user"):
            keep_port("127.0.0.1", 81, 0.0)
    finally:
        os.seteuid(before)


def test_a_visitor_is_not_taken_for_the_answer() -> None:
    """While the port is tried somebody else connects: a scanner, or a client of an earlier round."""
    port = free_port()
    with store(port) as server:
        server.settimeout(5)
        for word in (b"GET / HTTP/1.0\r\n\r\n", b""):
            with socket.create_connection(("127.0.0.1", port), 5) as visitor:
                visitor.sendall(word)
        assert comes_back(server, socket.AF_INET, ("127.0.0.1", port))
    with store(free_port()) as server, store(port) as other:
        server.settimeout(0.1)
        assert not comes_back(server, socket.AF_INET, other.getsockname())


@pytest.mark.parametrize("address", LOOPBACKS)
def test_the_store_of_torch_gets_a_fixed_port_again_and_again(address: str) -> None:
    pytest.importorskip("torch.distributed")
    code = """
import os, sys
from datetime import timedelta
from torch.distributed import TCPStore
store = TCPStore(sys.argv[1], int(sys.argv[2]), 1, True, timedelta(seconds=20), multi_tenant=True)
store.set("k", "v")
print(store.port, store.get("k").decode(), flush=True)
os.kill(os.getpid(), 9)
"""
    port = free_port()
    for _ in range(2):
        keep_port(address, port)
        command = [sys.executable, "-W", "ignore", "-c", code, address, str(port)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
        assert done.stdout.split() == [str(port), "v"], done.stderr


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.7", "localhost"])
def test_a_loopback_endpoint_means_loopback(host: str) -> None:
    assert ipaddress.ip_address(reachable_address(host, 2379)).is_loopback


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
