"""The keeper: signals, exit codes, the terminal, pid 1, and that it leaves last."""

import os
import pty
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.process


@pytest.mark.parametrize("code", [0, 7])
def test_it_exits_with_the_agents_code(node, oracle, code):
    one = node(code=code)
    one.lease()
    one.plant(hop=False)
    one.tell("quit")
    assert one.wait("Left")["survivors"] == []
    assert one.exit_code() == code
    assert oracle.pids() == set()
    assert one.stderr() == ""


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1])
def test_a_signal_to_a_young_agent_leaves_nothing_behind(node, oracle, signum):
    one = node(up=False, slow_s=20)
    one.wait("Young")
    os.kill(one.keeper, signum)
    assert one.exit_code() == 128 + signum
    assert oracle.pids() == set()
    assert "Traceback" not in one.stderr()


def test_signals_are_forwarded_once_each(node):
    one = node()
    for signum in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
        os.kill(one.keeper, signum)
        one.wait("Signal", signum=signum)
    os.kill(one.keeper, signal.SIGTERM)
    assert one.exit_code() == 0
    one.wait("Left")
    assert len(one.heard("Signal")) == 6


def test_what_nohup_ignored_stays_ignored(node):
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        one = node()
    finally:
        signal.signal(signal.SIGHUP, before)
    os.kill(one.keeper, signal.SIGHUP)
    os.kill(one.keeper, signal.SIGUSR1)
    one.wait("Signal", signum=signal.SIGUSR1)
    assert len(one.heard("Signal")) == 1


def test_an_agent_that_is_told_by_the_kernel_that_its_keeper_died(node, oracle, until):
    one = node()
    one.lease()
    one.plant(hop=False)
    one.kill("keeper")
    one.wait("KeeperGone")
    one.wait("Left")
    until(lambda: not oracle.pids(), "all gone")


def test_a_young_agent_dies_with_its_keeper(node, oracle, until):
    one = node(up=False, slow_s=20)
    one.wait("Young")
    one.kill("keeper")
    until(lambda: not oracle.pids(), "all gone")


def test_a_failed_body_is_an_exit_code_and_not_an_agent_that_hangs(node, oracle):
    one = node()
    one.lease()
    one.plant()
    one.kill("agent", signum=signal.SIGABRT)
    assert one.exit_code() == 128 + signal.SIGABRT
    assert oracle.pids() == set()


def test_orphans_of_the_agent_are_reaped_at_the_end(node, oracle):
    one = node()
    one.tell("child", ["sh", "-c", "sleep 30 & exec sleep 30"])
    one.wait("Child")
    one.kill("agent")
    assert one.exit_code() == 137
    assert oracle.pids() == set()


@pytest.fixture
def on_terminal(node, oracle):
    """Start a node whose keeper leads a terminal's foreground group; return it and the terminal."""
    master, slave = pty.openpty()

    class OnTerminal:
        variable = oracle.variable
        pids = oracle.pids

        def enter(self):
            oracle.enter()
            os.setsid()
            os.close(os.open(os.ttyname(slave), os.O_RDWR))  # the first terminal that a leader opens is its own

    yield node(where=OnTerminal()), master
    os.close(slave)
    os.close(master)


@pytest.mark.parametrize(("key", "signum"), [(b"\x03", signal.SIGINT), (b"\x1c", signal.SIGQUIT)])
def test_a_key_on_the_terminal_reaches_the_agent_once(on_terminal, key, signum):
    one, terminal = on_terminal
    one.lease()
    (rank,) = one.plant(ranks=1, hop=False)
    os.write(terminal, key)
    one.wait("Signal", signum=signum)
    os.kill(one.keeper, signal.SIGUSR1)  # behind it in the keeper: a second one would have been forwarded before
    one.wait("Signal", signum=signal.SIGUSR1)
    assert [e["signum"] for e in one.heard("Signal")] == [signum, signal.SIGUSR1]
    os.kill(one.keeper, signum)  # by hand, from another terminal
    one.wait("Signal", signum=signum)
    assert Path(f"/proc/{rank}").exists()  # the ranks are in other sessions


def test_a_closed_standard_output_is_nobodys_socket(node, oracle):
    class Closed:
        variable = oracle.variable
        pids = oracle.pids

        def enter(self):
            oracle.enter()
            os.close(0)
            os.close(1)

    one = node(where=Closed())
    one.lease()
    one.start(["sh", "-c", "echo into nothing && exit 3"])
    assert one.wait("RankExited")["status"] == 3


def _can_unshare():
    probe = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount-proc", "true"]
    return subprocess.run(probe, capture_output=True, check=False).returncode == 0


PROGRAM = """
import os, sys
from remuster.agent.keeper import run

def body(seat):
    import asyncio
    from remuster.agent.guardian_link import GuardianLink, RankOrder

    async def serve():
        started = asyncio.Event()
        link = GuardianLink(seat, lambda event: started.set())
        link.lease(1, float("inf"))
        link.start(1, 1, (RankOrder(0, ("sh", "-c", "sleep 30 & sleep 30"), {}),))
        await started.wait()
        print("up", seat.keeper, os.getppid(), flush=True)
        await asyncio.sleep(30)

    asyncio.run(serve())
    return 0

run(body)
"""


def test_it_works_as_pid_1(oracle, tmp_path):
    if not _can_unshare():
        pytest.skip("no pid namespace can be made here")
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    mark, value = oracle.variable.split("=")
    root = Path(__file__).parent.parent.parent
    command = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--kill-child", "--mount-proc"]
    with subprocess.Popen(
        [*command, sys.executable, str(program)],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {mark: value, "PYTHONPATH": str(root)},
    ) as process:
        assert process.stdout
        assert process.stdout.readline() == "up 1 1\n"
        inside = [p for p in oracle.pids() if p != process.pid] if hasattr(oracle, "variable") else []
        keeper = min(_children(process.pid))
        os.kill(keeper, signal.SIGTERM)  # to pid 1 from outside; its default would be to ignore it
        assert process.wait(10) in (143, 128 + signal.SIGTERM)
        end = time.monotonic() + 5
        while any(Path(f"/proc/{pid}").exists() for pid in inside):
            assert time.monotonic() < end
            select.select([], [], [], 0.005)


def _children(pid):
    return [int(p) for p in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


KEEPER_IMPORTS = """
import sys
before = set(sys.modules)
import remuster.agent.keeper
heavy = {"asyncio", "click", "structlog", "socket", "subprocess", "dataclasses", "logging", "threading", "grpc"}
print(sorted(heavy & (set(sys.modules) - before)))
"""
GUARDIAN_IMPORTS = """
import sys
m = type(sys)("nodeguard"); m.__path__ = [sys.argv[1]]; sys.modules["nodeguard"] = m
import nodeguard.guardian
print(sorted({"typing", "re", "socket", "dataclasses", "inspect", "logging", "threading"} & set(sys.modules)))
"""


@pytest.mark.parametrize(
    "arguments",
    [["-c", KEEPER_IMPORTS], ["-I", "-S", "-E", "-c", GUARDIAN_IMPORTS, str(Path(__file__).parents[2] / "agent")]],
    ids=["keeper", "guardian"],
)
def test_the_small_processes_stay_small(arguments):
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, *arguments], env={"PYTHONPATH": str(root)}, capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"
