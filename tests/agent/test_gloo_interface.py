"""Which interface is named for the ranks' gloo: the rule as a table, and this machine's own names."""

from __future__ import annotations

import re

import pytest

from remuster.agent.gloo_interface import VARIABLE, Choice, Way, choose, interface_for_gloo

NODE = ("10.0.0.5", "eth1")


@pytest.mark.parametrize(
    ("way", "interface", "says"),
    [
        (Way(*NODE, "10.0.0.5", "eth1"), "", ""),
        (Way(*NODE, "10.0.0.6", "eth1"), "", ""),  # a second address of the same interface
        (Way("fd00::5", "eth1", "10.0.0.5", "eth1"), "", ""),
        (Way(*NODE, "127.0.1.1", ""), "eth1", "leads to 127.0.1.1"),  # Debian
        (Way(*NODE, "127.0.0.1", "lo"), "eth1", "leads to 127.0.0.1"),
        (Way(*NODE, "::1", "lo"), "eth1", "leads to ::1"),
        (Way(*NODE, "", ""), "eth1", "leads to no address of it"),  # a name that nobody knows
        (Way(*NODE, "192.168.7.5", "eth0"), "", "gloo will use eth0, .* set GLOO_SOCKET_IFNAME=eth1"),
        (Way(*NODE, "192.168.7.5", ""), "", "gloo will use 192.168.7.5"),
        (Way("10.0.0.5", "", "127.0.1.1", ""), "", ""),  # the node is behind a translated address: nothing to name
    ],
)
def test_the_rule(way: Way, interface: str, says: str) -> None:
    choice = choose(way, "node1")
    assert choice.interface == interface
    assert choice.env == ({VARIABLE: interface} if interface else {})
    if says:
        assert re.search(says, choice.note)
        assert "node1" in choice.note
    else:
        assert choice.note == ""


async def test_what_the_user_has_set_stays() -> None:
    assert await interface_for_gloo("10.0.0.5", "ib0", {VARIABLE: "eth9"}) == Choice()


async def test_an_interface_that_was_named_is_taken_without_a_look() -> None:
    choice = await interface_for_gloo("10.0.0.5", "ib0", {})
    assert choice.env == {"GLOO_SOCKET_IFNAME": "ib0"}
    assert "--local-addr" in choice.note


async def test_an_address_of_no_interface_here_changes_nothing() -> None:
    assert (await interface_for_gloo("203.0.113.9", "", {})) == Choice()


async def test_the_loopback_interface_is_what_gloo_takes_or_is_spoken_of() -> None:
    """Whatever this machine's own name leads to: no choice is made for an address on the same interface."""
    choice = await interface_for_gloo("127.0.0.1", "", {})
    assert choice.interface in ("", "lo")
