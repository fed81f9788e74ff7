"""Through which interface the ranks' gloo should meet, where its own choice would lead astray.

torch's gloo does not ask who reaches whom: it listens at the first address of this host's own name that can be bound,
or at loopback if there is none, and tells the others that one. GLOO_SOCKET_IFNAME is the way to name another; it is set
for the ranks where --local-addr named an interface, or gloo would listen at loopback and several nodes could never meet
(Debian gives a host's own name 127.0.1.1). A script or a user that sets it wins. NCCL finds interfaces by itself, and
often several: to name one would take the others from it, so NCCL_SOCKET_IFNAME is nobody's business here.

``main`` asks while the node joins, ``crew`` waits for the answer; one node alone never asks.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping
from typing import NamedTuple

from .files import FileThread
from .ports import is_loopback

VARIABLE = "GLOO_SOCKET_IFNAME"
ANSWER_S = 3.0  # for a name server; gloo itself would wait for it in every rank


class Choice(NamedTuple):
    """The interface to name for the ranks, '' for none, and what people should know."""

    interface: str = ""
    note: str = ""

    @property
    def env(self) -> dict[str, str]:
        """What to add to a rank's environment."""
        return {VARIABLE: self.interface} if self.interface else {}


class Way(NamedTuple):
    """Where this node is reached, and where gloo would listen: address and interface, '' where there is none."""

    address: str
    interface: str
    gloo_address: str
    gloo_interface: str


def choose(way: Way, own_name: str) -> Choice:
    """Name an interface where gloo's own address cannot be reached, and speak where it is another than the node's."""
    there = f"{VARIABLE}={way.interface}"
    if not way.interface or way.gloo_interface == way.interface or way.gloo_address == way.address:
        return Choice()
    if not way.gloo_address or is_loopback(way.gloo_address):
        found = f"leads to {way.gloo_address}" if way.gloo_address else "leads to no address of it"
        return Choice(
            way.interface,
            f"the name of this host, {own_name}, {found}, where gloo would listen and no other node reaches it: ranks "
            f"get {there}",
        )
    return Choice(
        note=f"gloo will use {way.gloo_interface or way.gloo_address}, where this host's name {own_name} leads, and "
        f"the nodes meet over {way.interface}; set {there} if ranks should, too"
    )


async def interface_for_gloo(address: str, named: str, environ: Mapping[str, str]) -> Choice:
    """Return the choice for ranks of several nodes that are reached at ``address``; ``named`` is --local-addr's."""
    if VARIABLE in environ:
        return Choice()
    if named:
        return Choice(named, f"ranks get {VARIABLE}={named}, as --local-addr names it")
    helper = FileThread("own-name")  # looking a name up blocks
    try:
        return await helper.run(_look, address, timeout_s=ANSWER_S)
    except TimeoutError:
        return Choice(note=f"this host's own name was not looked up within {ANSWER_S:g} s, and gloo will ask for it")
    except OSError as error:  # a container that may not ask the kernel for its interfaces
        return Choice(note=f"where gloo will listen is not known ({error}); {VARIABLE} names an interface for it")
    finally:
        helper.close()


def _look(address: str) -> Choice:
    from .interfaces import interface_of

    own_name = socket.gethostname()
    listens = _gloo_listens(own_name)
    return choose(Way(address, interface_of(address), listens, listens and interface_of(listens)), own_name)


def _gloo_listens(own_name: str) -> str:
    """Return the first address of ``own_name`` that can be bound, as gloo does; '' when there is none."""
    try:
        infos = socket.getaddrinfo(own_name, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return ""
    for family, kind, protocol, _, where in infos:
        try:
            with socket.socket(family, kind, protocol) as probe:
                probe.bind(where)
        except OSError:
            continue
        return str(where[0]).partition("%")[0]
    return ""
