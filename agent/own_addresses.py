"""Which addresses of this machine the endpoint of an embedded store means: none, and another machine keeps it.

Decided by the addresses of this machine's interfaces, never by comparing names. Called once by the agent at start;
blocks while the name is looked up.
"""

from __future__ import annotations

import socket
from typing import NamedTuple

from .interfaces import interface_addresses
from .ports import AddressError, reachable_address
from .spec import Embedded

_ANY_PORT = 9  # only routes are asked for; nothing is sent
_FAMILIES = (socket.AF_INET, socket.AF_INET6)
_LOCAL_NAMES = ("localhost", "localhost4", "localhost6", "ip6-localhost", "ip6-loopback")


class Choice(NamedTuple):
    """Addresses to listen at, and whether the one that other nodes reach must be found and added."""

    addresses: tuple[str, ...]
    and_route: bool = False


def own_addresses(embedded: Embedded) -> tuple[str, ...]:
    """Return the addresses of this machine to listen at, those that other nodes reach first; none: it is elsewhere.

    AddressError when the endpoint's name is not known.
    """
    host, here = embedded.host, embedded.here
    if here is False:
        return ()
    try:
        meant = _look_up(host)
    except AddressError:
        if here is None:
            raise
        meant = ()  # a name of this machine that only others know, or that nobody knows yet
    choice = choose(host, here, meant, frozenset() if all(map(_loopback, meant)) else interface_addresses())
    route: tuple[str, ...] = ()
    if choice.and_route:
        told = embedded.address in interface_addresses()
        route = (embedded.address,) if told else _of_the_default_route(host if meant else socket.gethostname())
    if choice.and_route and not route and interface_addresses():
        raise AddressError(
            f"the endpoint {host} is {', '.join(choice.addresses) or 'nothing'} on this machine, and no default "
            "route tells which of its addresses other nodes reach; give one of them as the endpoint, on all nodes"
        )
    # The first names the store on this machine: the same in every start, whatever order the name server answers in.
    found = tuple(dict.fromkeys((*route, *sorted(choice.addresses, key=lambda a: (_loopback(a), a)))))
    found = tuple(sorted(found, key=_loopback))
    if here and not found:
        raise AddressError(f"is_host=true, but no address of this machine leads to {host}; check its network")
    return found


def is_own(host: str) -> bool:
    """Say whether ``host`` means this machine; AddressError when its name is not known."""
    meant = _look_up(host)
    own = frozenset[str]() if all(map(_loopback, meant)) else interface_addresses()
    return bool(choose(host, None, meant, own).addresses)


class Elsewhere(NamedTuple):
    """What another machine reaches the store's by, and why that may lead nowhere."""

    host: str
    doubt: str = ""


def elsewhere(embedded: Embedded) -> Elsewhere:
    """Choose the machine's name, unless that is not known here and the scheduler has told an address."""
    host, address = embedded.host, embedded.address
    try:
        found = _look_up(host)
    except AddressError as unknown:
        return Elsewhere(address) if address else Elsewhere(host, str(unknown))
    return Elsewhere(address if address and all(map(_loopback, found)) else host)


def choose(host: str, here: bool | None, meant: tuple[str, ...], own: frozenset[str]) -> Choice:
    """Choose those of the addresses ``meant`` by ``host`` that are this machine's ``own``. Pure."""
    mine = tuple(address for address in meant if _loopback(address) or address in own)
    if here is False or (here is None and not mine):
        return Choice(())
    # Debian's line 127.0.1.1 for a machine's own name: other nodes look the name up elsewhere.
    return Choice(mine, all(map(_loopback, mine)) and not _means_loopback(host))


def _look_up(host: str) -> tuple[str, ...]:
    """Return the addresses of ``host``, without those of a family that this machine has not."""
    try:
        infos = socket.getaddrinfo(host, _ANY_PORT, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise AddressError(f"the endpoint's name {host!r} is not known on this machine ({error}); check it") from error
    found = [str(info[4][0]) for info in infos]
    zero = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - to connect to the zero address is to connect here
    return tuple(address for address in (zero.get(address, address) for address in found) if _usable(address))


def _usable(address: str) -> bool:
    if address != "::1":
        return True
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind((address, 0))
    except OSError:
        return False
    return True


def _loopback(address: str) -> bool:
    return address.startswith("127.") or address == "::1"


def _means_loopback(host: str) -> bool:
    """Tell whether it is plain from ``host`` alone that no other machine is meant."""
    name = host.lower().rstrip(".")
    if name.partition(".")[0] in _LOCAL_NAMES or name.endswith(".localhost"):
        return True
    return _loopback(host) or host in ("0.0.0.0", "::")  # noqa: S104


def _of_the_default_route(host: str) -> tuple[str, ...]:
    try:
        return (reachable_address(host, _ANY_PORT),)
    except AddressError:
        return ()
