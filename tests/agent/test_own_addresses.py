"""Whose address an endpoint is: the rule as a table, and real names and interfaces."""

import socket

import psutil
import pytest

from remuster.agent.own_addresses import Choice, Elsewhere, choose, elsewhere, is_own, own_addresses
from remuster.agent.ports import AddressError
from remuster.agent.spec import Embedded

OWN = frozenset({"10.0.0.5", "192.168.7.5", "fd00::5"})
ELSEWHERE = Choice(())


@pytest.mark.parametrize(
    ("host", "here", "meant", "choice"),
    [
        ("10.0.0.5", None, ("10.0.0.5",), Choice(("10.0.0.5",))),
        ("10.0.0.6", None, ("10.0.0.6",), ELSEWHERE),
        ("fd00::5", None, ("fd00::5",), Choice(("fd00::5",))),
        ("node1", None, ("10.0.0.5", "fd00::5"), Choice(("10.0.0.5", "fd00::5"))),
        ("node1", None, ("10.0.0.5", "10.0.0.6"), Choice(("10.0.0.5",))),
        ("node2", None, ("10.0.0.6", "fd00::6"), ELSEWHERE),
        ("node2", False, ("10.0.0.5",), ELSEWHERE),
        ("127.0.0.1", None, ("127.0.0.1",), Choice(("127.0.0.1",))),
        ("127.0.0.2", None, ("127.0.0.2",), Choice(("127.0.0.2",))),
        ("localhost", None, ("::1", "127.0.0.1"), Choice(("::1", "127.0.0.1"))),
        ("localhost.localdomain", None, ("127.0.0.1",), Choice(("127.0.0.1",))),
        ("a.localhost", None, ("127.0.0.1",), Choice(("127.0.0.1",))),
        ("node1", None, ("127.0.1.1",), Choice(("127.0.1.1",), and_route=True)),
        ("localhostess", None, ("127.0.1.1",), Choice(("127.0.1.1",), and_route=True)),
        ("node1", None, ("127.0.1.1", "10.0.0.5"), Choice(("127.0.1.1", "10.0.0.5"))),
        ("203.0.113.9", True, ("203.0.113.9",), Choice((), and_route=True)),  # a public address in front of this one
        ("node1", True, (), Choice((), and_route=True)),
        ("node1", True, ("10.0.0.5",), Choice(("10.0.0.5",))),
        ("node1", None, (), ELSEWHERE),
    ],
)
def test_the_rule(host, here, meant, choice):
    assert choose(host, here, meant, OWN) == choice


def own(host, here=None):
    return own_addresses(Embedded(host, 29500, here=here))


def outer_address():
    """An address of this machine that is no loopback, if it has one."""
    for entries in psutil.net_if_addrs().values():
        for entry in entries:
            if entry.family == socket.AF_INET and not entry.address.startswith("127."):
                return entry.address
    pytest.skip("this machine has no address but loopback")


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.8.7"])
def test_loopback_is_here_and_alone(host):
    assert own(host) == (host,)


def test_localhost_is_loopback_alone():
    assert set(own("localhost")) <= {"127.0.0.1", "::1"}
    assert own("localhost")


def test_the_zero_address_is_loopback():
    assert own("0.0.0.0") == ("127.0.0.1",)


def test_an_interfaces_address_is_here():
    address = outer_address()
    assert own(address) == (address,)
    assert own(address, here=False) == ()


def test_an_address_of_nobody_is_elsewhere_unless_it_is_said_to_be_here():
    assert own("192.0.2.7") == ()
    address = outer_address()
    assert all(not found.startswith("127.") for found in own("192.0.2.7", here=True)), address


@pytest.mark.parametrize("host", ["no-such-name.invalid", "a" * 70 + ".invalid"])
def test_an_unknown_name_is_named(host):
    with pytest.raises(AddressError, match="is not known on this machine"):
        own(host)


def test_whose_a_name_is():
    assert [is_own(host) for host in ("localhost", "127.0.0.9", "::1", outer_address())] == [True] * 4
    assert not is_own("192.0.2.7")
    with pytest.raises(AddressError, match="is not known on this machine"):
        is_own("no-such-host.invalid")


def test_a_name_that_nobody_knows_yet_is_here_when_that_is_said():
    outer_address()
    found = own("no-such-host.invalid", here=True)
    assert found
    assert not any(address.startswith("127.") for address in found)


@pytest.mark.parametrize(
    ("host", "told", "reached"),
    [
        ("no-such-name.invalid", "10.0.0.9", "10.0.0.9"),
        ("localhost", "10.0.0.9", "10.0.0.9"),  # Debian's line for a machine's own name, here for another's
        ("192.0.2.7", "10.0.0.9", "192.0.2.7"),
        ("192.0.2.7", "", "192.0.2.7"),
        ("localhost", "", "localhost"),
    ],
)
def test_another_machine_goes_by_the_name_where_it_leads_anywhere(host, told, reached):
    assert elsewhere(Embedded(host, 29500, here=False, address=told)) == Elsewhere(reached)


def test_a_name_that_leads_nowhere_is_doubted():
    host, doubt = elsewhere(Embedded("no-such-name.invalid", 29500, here=False))
    assert host == "no-such-name.invalid"
    assert "is not known on this machine" in doubt
