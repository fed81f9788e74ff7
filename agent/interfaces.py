"""This machine's interfaces and their addresses, and what --local-addr means among them. Adapter over psutil.

Called where an address must be compared or was asked for; a single node without --local-addr does not load it.
"""

from __future__ import annotations

import ipaddress
import socket

from .ports import AddressError

_FAMILIES = (socket.AF_INET, socket.AF_INET6)


def interface_addresses() -> frozenset[str]:
    """Return the addresses of this machine's interfaces that are of use to other nodes."""
    return frozenset(address for found in _by_interface().values() for address in found if not only_here(address))


def interface_of(address: str) -> str:
    """Return the name of the interface that has ``address``, '' when none has it."""
    return next((name for name, found in _by_interface().items() if address in found), "")


def is_interface(name: str) -> bool:
    """Is ``name`` an interface of this machine?"""
    try:
        return bool(socket.if_nametoindex(name))
    except (OSError, ValueError):
        return False


def local_address(local_addr: str, beside: str) -> str:
    """Return --local-addr, an address, an interface or a host's name, as an address of this machine.

    ``beside`` is the store's host: of an interface with addresses of both families one of that one's family is taken.
    An interface is tried before a name, which may have to be asked for far away.
    """
    address = _literal(local_addr)
    if not address and is_interface(local_addr):
        return _of_interface(local_addr, ":" in beside)
    address = address or _named(local_addr)
    try:
        with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.bind((address, 0))
    except OSError as error:
        raise AddressError(
            f"--local-addr {local_addr} is not an address of this machine ({error.strerror}); `ip addr` shows them"
        ) from error
    return address


def only_here(address: str) -> bool:
    """Is it of no use to another node: loopback, unspecified, or link-local (which needs a scope of its own there)?"""
    ip = ipaddress.ip_address(address)
    return ip.is_loopback or ip.is_unspecified or ip.is_link_local


def _by_interface() -> dict[str, tuple[str, ...]]:
    import psutil  # it takes 10 ms

    return {
        name: tuple(str(entry.address).partition("%")[0] for entry in entries if entry.family in _FAMILIES)
        for name, entries in psutil.net_if_addrs().items()
    }


def _of_interface(name: str, six: bool) -> str:
    found = _by_interface().get(name, ())
    usable = sorted(
        (a for a in found if ipaddress.ip_address(a).is_loopback or not only_here(a)), key=lambda a: (":" in a) != six
    )
    if not usable:
        raise AddressError(
            f"--local-addr {name} is an interface without an address that other nodes could reach; `ip addr show "
            f"{name}` shows what it has; give another, or bring it up"
        )
    return usable[0]


def _literal(text: str) -> str:
    try:
        return str(ipaddress.ip_address(text.strip("[]")))
    except ValueError:
        return ""


def _named(name: str) -> str:
    try:
        infos = socket.getaddrinfo(name, 0, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise AddressError(
            f"--local-addr {name} is no IP address, no interface of this machine and no name known here ({error}); "
            "give an address"
        ) from error
    found = [str(info[4][0]) for info in infos]
    return next((a for a in found if not only_here(a)), found[0])
