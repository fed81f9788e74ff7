"""What a transfer of an RDMA port to itself says of the port. Pure; ``agent/rdma_loopback.py`` runs the tool.

The tool is ``ib_write_bw`` of linux-rdma/perftest: a server and a client that write into each other's memory over the
port. A port is bad only when the tool says that work which it had given to the device failed. All before that (the
device cannot be opened, memory not be registered, nobody listens, a kind of device that the tool cannot use) may lie in
this node's set-up and is unknown. So is a tool that hangs or crashes: it tells what it does when it ends, not before,
so that a transfer that hangs looks like a start that does; and a queue whose peer is silent does not hang, it gives up
within seconds and says so (retry counter exceeded). A false "bad" would keep a healthy node out.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from .node_check import Finding, PortReading, State

MOST_PORTS = 16
SIZE, TIMES = 65536, 1000  # bytes, and how often they are written
LONGEST = 300  # characters of the tool's words
# In perftest's src: NOTIFY_COMP_ERROR_SEND and _RECV (perftest_resources.h), and the ends of write_bw.c.
FAILED = ("Completion with error", "Failed status", "Failed to complete run_iter_bw", "Problems with warm up")
NOT_YET = "Couldn't connect to"  # of a client whose server does not listen (perftest_communication.c)
# Of the same: why it came to no transfer, the cause before what follows from it.
BEFORE = (
    (("allocate MR", "create mr", "Cannot allocate memory"), "memory cannot be registered (ulimit -l)"),
    (
        ("Couldn't get context", "Unable to find the Infiniband", "Failed to open device"),
        "the device cannot be opened (/dev/infiniband), or its port not be used",
    ),
    (("Couldn't listen to port",), "another has taken its TCP port"),
)


class Ended(NamedTuple):
    """How one process of the tool ended."""

    status: int | None  # as subprocess says it; None: it had not ended when its time was over
    out: str
    err: str


def to_test(ports: Iterable[PortReading]) -> list[PortReading]:
    """Return the ports that carry traffic."""
    return [port for port in ports if port.state.startswith("ACTIVE")]  # ACTIVE_DEFER too


def options(port: PortReading, tcp_port: int) -> list[str]:
    """Return what server and client are both given; the client the server's address too.

    The tool finds the GID of a RoCE port by itself (``get_best_gid_index``). ``-F``: the CPU's frequency is no matter.
    """
    where = ["-d", port.device, "-i", str(port.port), "-p", str(tcp_port)]
    return [*where, "-s", str(SIZE), "-n", str(TIMES), "-F", "--report_gbits"]


def judged(port: PortReading, client: Ended, server: Ended, limit_s: float) -> Finding:
    """Return what the transfer says of the port; ``limit_s`` is what it was waited for."""
    state, text = _judged(client, server, limit_s)
    return Finding("rdma", f"{port.device} port {port.port}", state, text)


def _judged(client: Ended, server: Ended, limit_s: float) -> tuple[State, str]:
    rate = _rate(client.out)
    if client.status == 0 and rate:
        return State.OK, f"{SIZE * TIMES >> 20} MiB were written over it to itself, {rate} Gb/s"
    lines = [*_lines(client.err), *_lines(server.err)]
    failed = [line for line in lines if line.startswith(FAILED)]
    if failed:
        return State.BAD, f"a transfer over it to itself failed: {_cut(failed)}"
    for signs, meaning in BEFORE:
        said = [line for line in lines if any(sign in line for sign in signs)]
        if said:
            return State.UNKNOWN, f"no transfer: {meaning}: {_cut(said[:1])}"
    if client.status is None:
        return State.UNKNOWN, f"the transfer over it to itself did not end within {limit_s:g} s; see dmesg on the node"
    lonely = NOT_YET in client.err
    if lonely and server.status is None:
        return State.UNKNOWN, f"no transfer: the server of ib_write_bw did not listen within {limit_s:g} s"
    ended = server if lonely else client
    status = ended.status or 0
    how = f"ended by signal {-status}" if status < 0 else f"ended with status {status}"
    return State.UNKNOWN, f"no transfer: ib_write_bw {how}: {_cut(_lines(ended.err)[-1:]) or 'it said nothing'}"


def _rate(out: str) -> str:
    """Return the average of the result's line: bytes, times, peak, average, messages; '' when there is none."""
    for line in out.splitlines():
        words = line.split()
        if len(words) >= 5 and words[:2] == [str(SIZE), str(TIMES)]:
            return words[3]
    return ""


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.strip()]


def _cut(lines: list[str]) -> str:
    return "; ".join(lines)[:LONGEST]
