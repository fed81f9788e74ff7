"""The master port of a round, and the address under which this node is reached. Adapter over sockets.

Called by the agent's loop: ``reachable_address`` once at start, ``reserve_port`` on the rank-0 node when a round has
closed. Nothing listens on the port afterwards: rank 0's worker hosts the TCPStore there. Neither call sends a packet
off this node, apart from looking up the endpoint's name.
"""

from __future__ import annotations

import errno
import socket
from collections.abc import Iterator

TIMEOUT_S = 2.0  # a connection to oneself takes microseconds; only a firewall on loopback makes it wait
_ELSEWHERE = (("192.0.2.1", socket.AF_INET), ("2001:db8::1", socket.AF_INET6))  # documentation addresses: default route


class AddressError(Exception):
    """No usable address or port on this node; the sentence says what to give instead."""


def reserve_port(address: str) -> int:
    """Return a free port on ``address`` that no one gets by chance, but a binder with SO_REUSEADDR does.

    A connection to itself leaves the *accepted* end in TIME_WAIT, bound to the port, for a minute: the kernel then
    hands it to nobody who asks for "any port", and refuses a plain bind; TCPStore binds with SO_REUSEADDR and may.
    """
    try:
        family, _, _, _, where = socket.getaddrinfo(
            address, 0, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST | socket.AI_PASSIVE
        )[0]
        with socket.socket(family, socket.SOCK_STREAM) as server:
            server.settimeout(TIMEOUT_S)
            server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            server.bind(where)
            server.listen(1)
            with socket.socket(family, socket.SOCK_STREAM) as client:
                client.settimeout(TIMEOUT_S)
                client.connect(server.getsockname())
                accepted, _ = server.accept()
                accepted.close()  # first, so that TIME_WAIT falls on this end
                client.recv(1)  # b"": its FIN has arrived
            return int(server.getsockname()[1])
    except OSError as error:
        raise AddressError(_why_no_port(address, error)) from error


def _why_no_port(address: str, error: OSError) -> str:
    if error.errno == errno.EADDRNOTAVAIL:
        return f"{address} is not an address of this node, so rank 0 cannot listen there; give its own as --local-addr"
    if isinstance(error, socket.gaierror):
        return f"{address!r} is not an IP address; give this node's address as --local-addr, not a name"
    return f"no port could be reserved on {address} ({error}); is there a free one in net.ipv4.ip_local_port_range?"


def reachable_address(host: str, port: int | None, local_addr: str | None = None) -> str:
    """Return the address that peers reach this node at: ``local_addr``, or the one it reaches the endpoint from.

    Never a name, and never a loopback address unless the endpoint was given as one. Blocks while ``host`` is looked up.
    """
    if local_addr:
        return literal(local_addr)
    loopback = _is_loopback(host)
    found = [a for a in _sources(host, port or 9) if loopback or not _only_here(a)]
    if not found:  # the endpoint is this node, under a name that its hosts file maps to 127.x: take the default route
        found = [a for where, family in _ELSEWHERE for a in _source((where, 9), family) if not _only_here(a)]
    if not found:
        raise AddressError(
            f"no address of this node leads to {host}, so its peers could not reach it; "
            "check the endpoint and the network, or give this node's address as --local-addr"
        )
    return found[0]


def literal(local_addr: str) -> str:
    try:
        import ipaddress  # not needed by a single node, which starts sooner without

        return str(ipaddress.ip_address(local_addr))
    except ValueError:
        pass
    try:
        infos = socket.getaddrinfo(local_addr, 0, type=socket.SOCK_STREAM)
    except OSError as error:
        raise AddressError(
            f"--local-addr {local_addr} is neither an IP address nor a name known here ({error}); give an address"
        ) from error
    found = [str(info[4][0]) for info in infos]
    return next((a for a in found if not _only_here(a)), found[0])


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        import ipaddress

        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _only_here(address: str) -> bool:
    """Is it of no use to another node: loopback, unspecified, or link-local (which needs a scope of its own there)?"""
    import ipaddress

    ip = ipaddress.ip_address(address)
    return ip.is_loopback or ip.is_unspecified or ip.is_link_local


def _sources(host: str, port: int) -> Iterator[str]:
    try:
        infos = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)
    except OSError as error:
        raise AddressError(f"the endpoint's name {host!r} is not known on this node ({error}); check it") from error
    for family, _, _, _, where in infos:
        yield from _source(where, family)


def _source(where: tuple[object, ...], family: int) -> Iterator[str]:
    """Yield the address from which a packet to ``where`` would leave. Connecting a UDP socket sends nothing."""
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(where)
        except OSError:
            return  # no route in this family
        yield str(probe.getsockname()[0])
