"""The RDMA part of the deep check, with real processes, a real TCP port, and a sysfs of files.

No RDMA hardware was at hand: ``ib_write_bw`` is a small program here that takes the arguments of the real one, meets
its other half over TCP as that does, and then says and does what perftest's sources say it would (see
tests/health/test_rdma_traffic.py, which has its texts).
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from remuster.agent import proc
from remuster.agent.node_check import Looking, Wish, check_node
from remuster.agent.rdma_loopback import transfer
from remuster.health.node_check import Finding, PortReading, State, conclude

pytestmark = pytest.mark.process
PORT = PortReading("mlx5_0", 1, "ACTIVE", "LinkUp")

TOOL = '''#!{python}
"""Stands for ib_write_bw."""
import argparse, os, signal, socket, sys, time
words = argparse.ArgumentParser()
for name in "-d", "-i", "-p", "-s", "-n":
    words.add_argument(name, required=True)
for name in "-F", "--report_gbits":
    words.add_argument(name, action="store_true")
words.add_argument("server", nargs="?")
asked = words.parse_args()
how = dict(part.split("=") for part in {how!r}.split(",")).get(asked.d, "well")
with open({log!r}, "a") as log:
    log.write(f"{{os.getpid()}} {{asked.d}} {{asked.i}} {{asked.server}}\\n")

def end(*said):
    print(*said, sep="\\n", file=sys.stderr)
    sys.exit(1)

if how == "no permission":
    end(" Did not detect devices", " If device exists, check if driver is up",
        " Unable to find the Infiniband/RoCE device")
if how == "crash" and not asked.server:
    os.kill(os.getpid(), 11)
if how == "mad":
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)  # as in any program but Python
    while True:
        print("x" * 65536)
if asked.server:
    meeting = socket.socket()
    try:
        meeting.connect((asked.server, int(asked.p)))
    except OSError:
        end(f"Couldn't connect to {{asked.server}}:{{asked.p}}", "Unable to open file descriptor for socket connection")
else:
    if how == "never listens":
        time.sleep(600)
    if how == "late":
        time.sleep(0.5)
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("", int(asked.p)))
    listener.listen(1)
    meeting, _ = listener.accept()
meeting.sendall(b"keys")
if meeting.recv(4, socket.MSG_WAITALL) != b"keys":
    end("ethernet_read_keys: Couldn't read remote address")
if how == "hang":
    time.sleep(600)
if how == "no memory":
    end("Couldn't allocate MR", "failed to create mr", " Couldn't create IB resources")
if how == "error" and asked.server:
    end(" Completion with error at client", " Failed status 12: wr_id 0 syndrom 0x81", "scnt=128, ccnt=0",
        " Failed to complete run_iter_bw function successfully")
meeting.sendall(b"done")
if meeting.recv(4, socket.MSG_WAITALL) != b"done":
    end("ethernet_read_keys: Couldn't read remote address", " Failed to exchange data between server and clients")
print(" #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]")
print(f" {{asked.s}}      {{asked.n}}             196.30             195.95             0.373743")
'''


@pytest.fixture
def tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """Put the tool on PATH; it behaves as ``DEVICE=HOW,…`` says, and returns the log of its starts."""

    def put(how: str) -> Path:
        log, folder = tmp_path / "starts", tmp_path / "bin"
        folder.mkdir()
        (folder / "ib_write_bw").write_text(TOOL.format(python=sys.executable, how=how, log=str(log)))
        (folder / "ib_write_bw").chmod(0o700)
        monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
        return log

    return put


def sysfs(tmp_path: Path, **devices: str) -> Path:
    """Lay out devices as /sys/class/infiniband does: one port each, in the state that is given."""
    for device, state in devices.items():
        port = tmp_path / "infiniband" / device / "ports" / "1"
        port.mkdir(parents=True)
        (port / "state").write_text(f"4: {state}\n")
        (port / "phys_state").write_text("5: LinkUp\n" if state == "ACTIVE" else "3: Disabled\n")
    return tmp_path / "infiniband"


def wish(tmp_path: Path, devices: Path) -> Wish:
    """Ask for the deep check; ``true`` stands for the interpreter that has torch."""
    return Wish(tmp_path, {}, "/bin/true", deep=True, sysfs=devices, deep_s=30.0)


QUIET = Looking(lambda _: lambda _: None, lambda _: None)


def look(tmp_path: Path, devices: Path) -> tuple[Finding, ...]:
    return asyncio.run(check_node(wish(tmp_path, devices), QUIET))


def traffic(found: tuple[Finding, ...]) -> dict[str, tuple[State, str]]:
    return {finding.what: (finding.state, finding.text) for finding in found if finding.check == "rdma"}


def dead(log: Path) -> bool:
    return not any(proc.alive(int(line.split()[0])) for line in log.read_text().splitlines())


def test_each_active_port_is_written_to_over_itself(tmp_path: Path, tool: Callable[[str], Path]) -> None:
    log = tool("mlx5_1=error,mlx5_3=no memory")
    devices = sysfs(tmp_path, mlx5_0="ACTIVE", mlx5_1="ACTIVE", mlx5_2="DOWN", mlx5_3="ACTIVE")
    found = look(tmp_path, devices)
    said = traffic(found)
    assert {what: state for what, (state, _) in said.items()} == {
        "mlx5_0 port 1": State.OK,
        "mlx5_1 port 1": State.BAD,
        "mlx5_3 port 1": State.UNKNOWN,
    }
    answer = conclude(found)
    assert answer.passed is False
    assert answer.sentence.startswith("mlx5_1 port 1: a transfer over it to itself failed: Completion with error at")
    assert "Failed status 12: wr_id 0 syndrom 0x81" in answer.sentence
    assert "mlx5_2" not in log.read_text()
    assert dead(log)


@pytest.mark.parametrize(
    ("how", "says"),
    [
        ("no permission", "the device cannot be opened (/dev/infiniband)"),
        ("crash", "ib_write_bw ended by signal 11"),
        ("mad", "ib_write_bw ended by signal 25"),  # SIGXFSZ: what it may print has an end
        ("hang", "did not end within 2 s"),
        ("never listens", "did not listen within 2 s"),
    ],
)
def test_what_comes_to_no_transfer_lets_pass(tmp_path: Path, tool: Callable[[str], Path], how: str, says: str) -> None:
    log = tool(f"mlx5_0={how}")
    begun = time.monotonic()
    finding = transfer(str(tmp_path / "bin" / "ib_write_bw"), PORT, 2.0)
    assert finding.state is State.UNKNOWN, finding
    assert says in finding.text
    assert time.monotonic() - begun < 10
    assert dead(log)


def test_a_server_that_is_slow_to_listen_is_asked_again(tmp_path: Path, tool: Callable[[str], Path]) -> None:
    log = tool("mlx5_0=late")
    assert transfer(str(tmp_path / "bin" / "ib_write_bw"), PORT, 10.0).state is State.OK
    assert log.read_text().count("127.0.0.1") > 1


def test_without_the_tool_nothing_is_sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    found = look(tmp_path, sysfs(tmp_path, mlx5_0="ACTIVE"))
    state, text = traffic(found)["RDMA ports"]
    assert (state, conclude(found).passed) == (State.UNKNOWN, None)
    assert "ib_write_bw is not on PATH (package perftest)" in text


def test_without_an_active_port_nothing_is_started(tmp_path: Path, tool: Callable[[str], Path]) -> None:
    log = tool("")
    assert not traffic(look(tmp_path, sysfs(tmp_path, mlx5_0="DOWN")))
    assert not log.exists()


def test_no_more_than_sixteen_ports_are_tested(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    quick = tmp_path / "ib_write_bw"
    quick.write_text(f'#!/bin/sh\necho "$2" >> {tmp_path}/starts\necho "Couldn\'t create QP" >&2\nexit 1\n')
    quick.chmod(0o700)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    found = traffic(look(tmp_path, sysfs(tmp_path, **{f"mlx5_{number:02}": "ACTIVE" for number in range(18)})))
    assert len(found) == 17
    assert found["RDMA ports"] == (State.NOTE, "traffic was sent over 16 of 18; the others were left out")
    assert len(set((tmp_path / "starts").read_text().split())) == 16


def test_a_check_that_is_broken_off_leaves_no_process(tmp_path: Path, tool: Callable[[str], Path]) -> None:
    log = tool("mlx5_0=hang")
    devices = sysfs(tmp_path, mlx5_0="ACTIVE")

    async def broken_off() -> None:
        check = asyncio.create_task(check_node(wish(tmp_path, devices), QUIET))
        until = time.monotonic() + 20
        while not (log.exists() and "127.0.0.1" in log.read_text()):
            assert time.monotonic() < until
            await asyncio.sleep(0.05)
        check.cancel()
        await asyncio.wait({check})

    asyncio.run(broken_off())
    assert dead(log)
