"""``python -m remuster.agent.rdma_loopback SYSFS SECONDS``: writes over each RDMA port of this node to the port itself.

Run as a child that may hang or die (``node_check.py``), which is killed with all that it has started. Speaks as
``worker/deep_check.py`` does: a line of JSON on stderr before and after each test. The tool is ``ib_write_bw`` of
perftest, when it is installed: a server and a client for each port, one port after the other, SECONDS for all. What
they say is judged by ``health/rdma_traffic.py``.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

from ..health.node_check import Finding, PortReading, State
from ..health.rdma_traffic import MOST_PORTS, NOT_YET, Ended, judged, options, to_test
from .fabric import ports

TOOL = "ib_write_bw"
HERE = "127.0.0.1"
PORT_S = 20.0  # for one port; the tool itself sleeps for 1 before it sends
LEAST_S = 4.0  # with less than this left none is begun
PAUSE_S = 0.2  # before the server, which opens the device first, is looked for again
LAST_S = 1.0  # and not with less than this left: a client that is cut short does not say what it waits for
MOST_WORDS = 1 << 20  # bytes that a tool may print; it prints 2,000


def main() -> int:
    """Test all ports that carry traffic."""
    sysfs, until = Path(sys.argv[1]), time.monotonic() + float(sys.argv[2])
    found = to_test(PortReading(port.device, port.number, port.state, port.physical) for port in ports(sysfs))
    tool = shutil.which(TOOL)
    if tool is None:
        text = f"no traffic was sent: {TOOL} is not on PATH (package perftest)"
        tell(Finding("rdma", "RDMA ports", State.UNKNOWN, text))
        return 0
    for port in found[:MOST_PORTS]:
        limit_s = min(PORT_S, until - time.monotonic())
        say(begin=f"a transfer over {port.device} port {port.port}")
        if limit_s < LEAST_S:
            name = f"{port.device} port {port.port}"
            tell(Finding("rdma", name, State.UNKNOWN, "no traffic was sent: no time was left for it"))
            continue
        tell(transfer(tool, port, limit_s))
    if len(found) > MOST_PORTS:
        text = f"traffic was sent over {MOST_PORTS} of {len(found)}; the others were left out"
        tell(Finding("rdma", "RDMA ports", State.NOTE, text))
    return 0


def transfer(tool: str, port: PortReading, limit_s: float) -> Finding:
    """Run server and client on one port; both are dead afterwards. The client asks until the server listens."""
    until = time.monotonic() + limit_s
    argv = [tool, *options(port, _free_port())]
    try:
        with _Running(argv) as server:
            while True:
                with _Running([*argv, HERE]) as client:
                    asked = client.ended(until)
                early = NOT_YET in asked.err and server.runs and time.monotonic() + PAUSE_S + LAST_S < until
                if not early:
                    return judged(port, asked, server.ended(min(until, time.monotonic() + 1.0)), limit_s)
                time.sleep(PAUSE_S)
    except OSError as error:
        text = f"no traffic was sent: {tool} could not be started: {error.strerror}"
        return Finding("rdma", f"{port.device} port {port.port}", State.UNKNOWN, text)


class _Running:
    """One process of the tool, whose words go to memory; killed at the end of the block."""

    def __init__(self, argv: list[str]) -> None:
        self._out, self._err = (os.fdopen(os.memfd_create(name), "rb") for name in ("stdout", "stderr"))
        self._child = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=self._out, stderr=self._err)
        resource.prlimit(self._child.pid, resource.RLIMIT_FSIZE, (MOST_WORDS, MOST_WORDS))

    def __enter__(self) -> _Running:
        return self

    def __exit__(self, *_: object) -> None:
        self._child.kill()
        self._child.wait()
        self._out.close()
        self._err.close()

    @property
    def runs(self) -> bool:
        return self._child.poll() is None

    def ended(self, until: float) -> Ended:
        """Wait for its end, until the monotonic second ``until``."""
        try:
            status: int | None = self._child.wait(max(0.0, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            status = None
        out, err = (os.pread(file.fileno(), MOST_WORDS, 0).decode(errors="replace") for file in (self._out, self._err))
        return Ended(status, out, err)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("", 0))
        return int(probe.getsockname()[1])


def tell(finding: Finding) -> None:
    """Say what a test has found."""
    say(**{**finding._asdict(), "state": finding.state.value})


def say(**words: str) -> None:
    print(json.dumps(words), file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
