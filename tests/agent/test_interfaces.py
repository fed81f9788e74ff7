"""What --local-addr means on this very machine, and under which address and name its node takes part."""

from __future__ import annotations

import ipaddress
import os
import socket
import subprocess
import sys
from dataclasses import replace

import psutil
import pytest

from remuster.agent.identity import Machine
from remuster.agent.interfaces import interface_addresses, interface_of, is_interface, local_address
from remuster.agent.node_name import Address, own_address, take_name
from remuster.agent.ports import AddressError
from remuster.agent.spec import Backend, JobSpec

SEVERAL = JobSpec(2, 2, 1, "run", "t.py", backend=Backend.ETCD, endpoints=(("127.0.0.1", 2379),))
ALONE = JobSpec(1, 1, 1, "run", "t.py")


def outer() -> tuple[str, str]:
    """Return an interface of this machine that other nodes could reach, and its IPv4 address."""
    for name, entries in psutil.net_if_addrs().items():
        for entry in entries:
            if entry.family == socket.AF_INET and not entry.address.startswith("127."):
                return name, entry.address
    pytest.skip("this machine has no address but loopback")


def has_ipv6_loopback() -> bool:
    return any(entry.address == "::1" for entry in psutil.net_if_addrs().get("lo", ()))


def given(local_addr: str, spec: JobSpec = SEVERAL) -> Address:
    return own_address(replace(spec, local_addr=local_addr))


# --- what it means ----------------------------------------------------------------------------------------------------
def test_an_address_is_itself() -> None:
    assert local_address("127.0.0.4", "127.0.0.1") == "127.0.0.4"
    if has_ipv6_loopback():
        assert local_address("::1", "127.0.0.1") == local_address("[::1]", "127.0.0.1") == "::1"


def test_a_name_is_looked_up() -> None:
    assert local_address("localhost", "127.0.0.1") in ("127.0.0.1", "::1")


def test_an_interface_is_its_address() -> None:
    name, address = outer()
    assert local_address(name, "10.0.0.1") == local_address(name, "") == address
    assert interface_of(address) == name
    assert address in interface_addresses()


def test_of_two_families_the_stores_is_taken() -> None:
    assert local_address("lo", "127.0.0.1") == "127.0.0.1"
    if has_ipv6_loopback():
        assert local_address("lo", "::1") == "::1"


def test_no_name_is_looked_up_for_an_address_or_an_interface() -> None:
    """A name server would be asked for ``ib0`` by every node of a job, and answer late or wrongly."""
    code = """
import sys
asked = []
sys.addaudithook(lambda event, args: asked.append(args[0]) if event == "socket.getaddrinfo" else None)
from remuster.agent.interfaces import local_address
print(local_address("lo", "127.0.0.1"), local_address("127.0.0.3", "127.0.0.1"), asked)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == "127.0.0.1 127.0.0.3 []\n", done.stderr


@pytest.mark.parametrize(
    ("local_addr", "says"),
    [
        ("203.0.113.9", r"--local-addr 203\.0\.113\.9 is not an address of this machine.*`ip addr`"),
        ("no-such-host.invalid", r"--local-addr no-such-host\.invalid is no IP address, no interface.*give an address"),
        ("eth77", r"--local-addr eth77 is no IP address, no interface"),
        ("a" * 70 + ".invalid", "--local-addr a+"),
    ],
)
def test_what_is_not_of_this_machine_is_refused(local_addr: str, says: str) -> None:
    with pytest.raises(AddressError, match=says):
        local_address(local_addr, "127.0.0.1")


@pytest.mark.parametrize("name", ["lo", "", "no/such", "a" * 40, "nul\0"])
def test_an_interface_is_known_by_its_name_alone(name: str) -> None:
    assert is_interface(name) == (name == "lo")


# --- who the node is --------------------------------------------------------------------------------------------------
def test_the_address_is_the_sockets_to_the_store() -> None:
    assert own_address(SEVERAL) == Address("127.0.0.1")
    assert own_address(ALONE) == Address("127.0.0.1")


def test_an_address_or_a_name_names_the_node_and_an_interface_does_not() -> None:
    assert given("127.0.0.5") == Address("127.0.0.5", name="127.0.0.5")
    assert given("localhost").name == "localhost"
    assert given("lo") == Address("127.0.0.1", interface="lo")


async def test_nodes_of_one_interface_have_names_of_their_own() -> None:
    """Red when the node is called as --local-addr is: ``--local-addr eth1`` on all nodes would make them one."""
    names = []
    for machine in (Machine("host1", "m1", "b1", ""), Machine("host2", "m2", "b2", "")):
        node, _, lock = await take_name(SEVERAL, machine, given("lo").name)
        os.close(lock)
        names.append(node)
    assert names == ["host1", "host2"]


# --- loopback and several nodes ---------------------------------------------------------------------------------------
FAR = JobSpec(2, 2, 1, "run", "t.py", backend=Backend.ETCD, endpoints=(("198.51.100.1", 2379),))


@pytest.mark.parametrize("local_addr", ["127.0.0.1", "127.0.1.1", "localhost", "lo"])
def test_loopback_is_refused_where_the_store_is_elsewhere(local_addr: str) -> None:
    with pytest.raises(AddressError, match=rf"--local-addr {local_addr} is .* meet at 198\.51\.100\.1.*leave it out"):
        given(local_addr, FAR)


@pytest.mark.parametrize("local_addr", ["127.0.0.1", "127.0.0.9", "lo"])
def test_loopback_is_fine_beside_a_store_on_loopback_and_for_one_node(local_addr: str) -> None:
    assert ipaddress.ip_address(given(local_addr).text).is_loopback
    assert ipaddress.ip_address(given(local_addr, ALONE).text).is_loopback
