"""The master port of a round, and the address under which this node is reached. Adapter over sockets.

Called by the agent's loop: ``reachable_address`` once at start, ``meeting_point`` on the rank-0 node when a round has
closed. Nothing listens on the port afterwards: rank 0's worker hosts the TCPStore there. No call sends a packet off
this node, apart from looking up names, and from trying a --master-addr that no interface of this node has.
"""

from __future__ import annotations

import errno
import os
import socket
import time
from collections.abc import Iterator

from .files import FileThread

HELD_S = 3.0  # for a fixed port to come free: the store of the last round was killed a moment ago
ANSWER_S = 10.0  # for all of a fixed port, the name's look-up included
PAUSE_S = 0.1
TIMEOUT_S = 2.0  # a connection to oneself takes microseconds; only a firewall on loopback makes it wait
_ELSEWHERE = (("192.0.2.1", socket.AF_INET), ("2001:db8::1", socket.AF_INET6))  # documentation addresses: default route


class AddressError(Exception):
    """No usable address or port on this node; the sentence says what to give instead."""


async def meeting_point(address: str, master: tuple[str, int] | None) -> str:
    """Return 'HOST:PORT' for the store of a round's ranks, kept from others: on ``master`` if that is fixed."""
    if master is None:
        return _spelled(address, reserve_port(address))
    host, port = master
    helper = FileThread("master-port")  # looking a name up and waiting for a port both block
    try:
        await helper.run(keep_port, host, port, timeout_s=ANSWER_S)
    except TimeoutError:
        raise AddressError(
            f"--master-addr {host} was not looked up and tried within {ANSWER_S:g} s; give an IP address to all nodes"
        ) from None
    finally:
        helper.close()
    return _spelled(host, port)


def _spelled(host: str, port: int) -> str:
    return f"[{host.strip('[]')}]:{port}" if ":" in host else f"{host}:{port}"


def keep_port(host: str, port: int, wait_s: float = HELD_S) -> None:
    """See that rank 0 can listen on ``port`` and is reached at ``host``, and keep the port for it. Blocks.

    The listener here binds as TCPStore does: to every address, with SO_REUSEADDR. See ``reserve_port`` for what keeps.
    """
    try:
        infos = socket.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise AddressError(f"--master-addr {host} is not known on this node ({error}); give an IP address") from error
    until = time.monotonic() + wait_s
    while True:
        try:
            with _everywhere(port) as server:
                if not any(comes_back(server, info[0], info[4]) for info in infos):
                    raise AddressError(_why_not_here(host))
                return
        except OSError as error:
            if error.errno == errno.EACCES:
                raise AddressError(f"--master-port {port} may not be used by this user; give 1024 or above") from error
            if time.monotonic() >= until:
                raise AddressError(_why_taken(port, error)) from error
        time.sleep(PAUSE_S)


def _everywhere(port: int) -> socket.socket:
    """Listen on every address of this node, as TCPStore does: IPv6 with IPv4 in it, else IPv4 alone."""
    trouble: OSError | None = None
    for family, wildcard in ((socket.AF_INET6, "::"), (socket.AF_INET, "0.0.0.0")):  # noqa: S104
        try:
            server = socket.socket(family, socket.SOCK_STREAM)
        except OSError as error:  # IPv6 is not built in
            trouble = error
            continue
        try:
            server.settimeout(TIMEOUT_S)
            server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                server.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            server.bind((wildcard, port))
            server.listen(socket.SOMAXCONN)
            return server
        except OSError as error:
            server.close()
            trouble = error
    assert trouble is not None
    raise trouble


def comes_back(server: socket.socket, family: int, where: tuple[object, ...]) -> bool:
    """Tell whether a connection to ``where`` reaches ``server``; it leaves the accepted end in TIME_WAIT then."""
    word = os.urandom(16)
    with socket.socket(family, socket.SOCK_STREAM) as client:
        client.settimeout(TIMEOUT_S)
        try:
            client.connect(where)
            client.sendall(word)
            while not _says(server, word):  # somebody else may have come by
                pass
            client.recv(1)  # b"": its FIN has arrived
        except OSError:
            return False
        return True


def _says(server: socket.socket, word: bytes) -> bool:
    with server.accept()[0] as accepted:
        accepted.settimeout(TIMEOUT_S)
        try:
            return accepted.recv(len(word), socket.MSG_WAITALL) == word
        except OSError:
            return False


def _why_not_here(host: str) -> str:
    return (
        f"--master-addr {host} does not lead to this node, where rank 0 and its store run; give all nodes the address "
        "of the one with --node-rank 0"
    )


def _why_taken(port: int, error: OSError) -> str:
    return (
        f"--master-port {port} is in use on this node, so rank 0's store cannot listen there ({error.strerror}); "
        f"`ss -tanp 'sport = :{port}'` names the other: stop it, or give all nodes another --master-port"
    )


def reserve_port(address: str) -> int:
    """Return a free port on ``address`` that no one gets by chance, but a binder with SO_REUSEADDR does.

    A connection to itself leaves the *accepted* end in TIME_WAIT, bound to the port, for a minute: the kernel then
    hands it to nobody who asks for "any port", and refuses a plain bind; TCPStore binds with SO_REUSEADDR and may.
    """
    try:
        family, _, _, _, where = socket.getaddrinfo(  # text would load the codec of international names
            address.encode(), 0, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST | socket.AI_PASSIVE
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


def reachable_address(host: str, port: int | None) -> str:
    """Return the address that peers reach this node at: the one it reaches the endpoint from.

    Never a name, and never a loopback address unless the endpoint was given as one. Blocks while ``host`` is looked up.
    """
    from .interfaces import interface_addresses, only_here

    loopback = is_loopback(host)
    found = [a for a in _sources(host, port or 9) if loopback or not only_here(a)]
    if not found:  # the endpoint is this node, under a name that its hosts file maps to 127.x: take the default route
        found = [a for where, family in _ELSEWHERE for a in _source((where, 9), family) if not only_here(a)]
    if not found:  # nor is there a default route, as inside a cluster: no doubt where there is one address
        own = interface_addresses()
        found = sorted(own) if len(own) == 1 else []
    if not found:
        raise AddressError(
            f"no address of this node leads to {host}, so its peers could not reach it; "
            "check the endpoint and the network, or give this node's address as --local-addr"
        )
    return found[0]


def is_loopback(host: str) -> bool:
    """Is it plain from ``host`` alone that no other machine is meant?"""
    if host == "localhost":
        return True
    try:
        import ipaddress

        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


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
