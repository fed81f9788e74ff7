"""The node's lock, and the strays that a next start finds."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from remuster.agent.node_lock import LockFolderUnsafe, NodeBusy, NodeLock, NodeNotEmpty, lock_folder
from remuster.agent.strays import NODE_VARIABLE, RUN_VARIABLE, sweep_strays

pytestmark = pytest.mark.process

LOCK = NodeLock("run/with slash ✓", "node 1")


@pytest.fixture
def lock(tmp_path):
    return NodeLock(LOCK.run_id, LOCK.node, tmp_path)


@pytest.fixture
def old_guardian(until, lock):
    """The lock is held by a process whose agent is dead."""
    program = (
        "import asyncio, os, subprocess, sys\n"
        "from pathlib import Path\n"
        "from remuster.agent.node_lock import NodeLock\n"
        f"fd = asyncio.run(NodeLock({lock.run_id!r}, {lock.node!r}, Path({str(lock.base)!r})).acquire())\n"
        "print(subprocess.Popen(['sleep', '60'], pass_fds=(fd,), stdout=2).pid)\n"
    )
    env = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run([sys.executable, "-c", program], env=env, stdout=subprocess.PIPE, text=True, check=True)
    pid = int(done.stdout)
    yield pid
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


async def test_the_lock_is_had_once_and_again_when_it_is_closed(lock):
    fd = await lock.acquire()
    with pytest.raises(NodeBusy, match=rf"another agent \(pid {os.getpid()}\) of run 'run/with slash"):
        await lock.acquire()
    other = await NodeLock(lock.run_id, "node 2", lock.base).acquire()
    os.close(other)
    os.close(fd)
    os.close(await lock.acquire())
    assert [p.stat().st_mode & 0o777 for p in lock_folder(lock.base).iterdir()] == [0o600] * 2


async def test_it_is_removed_by_who_holds_it_and_whoever_waited_makes_another(lock):
    """Red when ``acquire`` does not look whether what it has locked is still there: two would have the lock."""
    fd = await lock.acquire()
    waiting = asyncio.create_task(lock.acquire())
    while not (before := fd_links(lock)) or len(before) < 2:  # ours, and that of who waits
        await asyncio.sleep(0.005)
    lock.remove(fd)
    assert [*lock_folder(lock.base).iterdir()] == []
    os.close(fd)
    second = await waiting
    assert [path.name for path in lock_folder(lock.base).iterdir()] == [f"{lock.tag}.lock"]
    with pytest.raises(NodeBusy):
        await lock.acquire()
    lock.remove(second)
    os.close(second)


def fd_links(lock):
    """Return our descriptors of the lock's file."""
    path = str(lock_folder(lock.base) / f"{lock.tag}.lock")
    return [name for name in os.listdir("/proc/self/fd") if _link(name).startswith(path)]


def _link(name):
    try:
        return os.readlink(f"/proc/self/fd/{name}")
    except OSError:
        return ""


async def test_it_is_waited_for_while_an_old_guardian_finishes(old_guardian, lock):
    began = time.monotonic()
    with pytest.raises(NodeNotEmpty, match="take this node out of service"):
        await lock.acquire(bound_s=0.1)
    assert time.monotonic() - began < 5
    os.kill(old_guardian, signal.SIGKILL)
    os.close(await lock.acquire(bound_s=10))


async def test_an_agent_that_was_killed_does_not_hold_it_but_its_guardian_and_keeper_do(node, until):
    one = node()
    one.tell("hold", "run", "here")
    one.wait("GuardianReady")
    one.lease()
    one.plant(hop=False)
    lock = NodeLock("run", "here")
    with pytest.raises(NodeBusy):
        await lock.acquire()
    one.kill("guardian", "keeper", signum=signal.SIGSTOP)
    one.kill("agent")
    with pytest.raises(NodeNotEmpty):
        await lock.acquire(bound_s=0.1)
    one.kill("guardian")
    with pytest.raises(NodeNotEmpty):
        await lock.acquire(bound_s=0.1)
    one.kill("keeper", signum=signal.SIGCONT)
    fd = await lock.acquire()
    assert one.strangers() == set()
    os.close(fd)


async def test_a_guardian_that_is_left_alone_holds_it_until_its_ranks_are_dead(node, oracle):
    one = node()
    one.tell("hold", "run", "here")
    one.wait("GuardianReady")
    one.lease()
    one.plant(hop=False)
    one.kill("guardian", signum=signal.SIGSTOP)
    one.kill("agent", "keeper")
    lock = NodeLock("run", "here")
    with pytest.raises(NodeNotEmpty):
        await lock.acquire(bound_s=0.1)
    one.kill("guardian", signum=signal.SIGCONT)
    fd = await lock.acquire()
    assert oracle.pids() <= {one.guardian}
    os.close(fd)


async def test_a_second_guardian_holds_it_too(node):
    one = node()
    one.tell("hold", "run", "here")
    one.wait("GuardianReady")
    one.kill("guardian")
    one.wait("GuardianGone")
    again = one.wait("GuardianReady")
    locked = [os.readlink(f) for f in Path(f"/proc/{again['pid']}/fd").iterdir() if f.is_symlink()]
    assert [name for name in locked if name.endswith(".lock")]


@pytest.mark.parametrize("how", ["open to others", "a link"])
def test_a_folder_that_others_may_change_is_refused(how, tmp_path):
    folder = tmp_path / f"remuster-{os.getuid()}"
    if how == "a link":
        (tmp_path / "elsewhere").mkdir(mode=0o700)
        folder.symlink_to(tmp_path / "elsewhere")
    else:
        folder.mkdir()
        folder.chmod(0o755)
    with pytest.raises(LockFolderUnsafe, match="must be a folder of user"):
        lock_folder(tmp_path)


def stray(run, node):
    return subprocess.Popen(["sleep", "30"], env={RUN_VARIABLE: run, NODE_VARIABLE: node}, start_new_session=True)


def test_strays_of_this_run_and_node_are_killed_and_no_others():
    ours = [stray("r1", "a"), stray("r1", "a")]
    others = [stray("r1", "ab"), stray("r10", "a"), stray("r1", "b")]
    keeper = subprocess.Popen(["sleep", "30"], env={RUN_VARIABLE: "r1", NODE_VARIABLE: "a"})
    try:
        found = sweep_strays("r1", "a", keeper.pid)
        assert (found.killed, found.survivors) == (tuple(sorted(p.pid for p in ours)), ())
        assert [p.wait(5) for p in ours] == [-signal.SIGKILL] * 2
        assert [p.poll() for p in (*others, keeper)] == [None] * 4
        assert sweep_strays("r1", "a", keeper.pid).killed == ()
    finally:
        for process in (*ours, *others, keeper):
            process.kill()
            process.wait()


def test_all_three_are_killed_and_the_next_start_finds_what_is_left(node, oracle, until):
    one = node(env={RUN_VARIABLE: "run", NODE_VARIABLE: "here"})
    one.tell("hold", "run", "here")
    group = one.wait("GuardianReady")["cgroup"]
    one.lease()
    one.plant(hop=group)  # without a cgroup nothing honest can be promised of what keeps forking
    one.kill("keeper", "agent", "guardian", signum=signal.SIGSTOP)
    one.kill("guardian", "agent", "keeper")
    program = (
        "import os\n"
        "from remuster.agent.strays import sweep_strays\n"
        "print(sweep_strays('run', 'here', os.getpid()).survivors)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=one.env,
        stdout=subprocess.PIPE,
        preexec_fn=oracle.enter,
        text=True,
        check=True,
    )
    assert done.stdout == "()\n"
    assert oracle.pids() == set()
    assert not group or oracle.left_folders() == []


def test_a_next_start_of_another_run_removes_empty_cgroups_and_leaves_full_ones_alone(node, oracle):
    one = node()
    one.tell("hold", "run", "here")
    if not one.wait("GuardianReady")["cgroup"]:
        pytest.skip("no cgroup can be made here")
    one.lease()
    one.plant(hop=False)
    (full,) = oracle.left_folders()
    dead = subprocess.Popen(["true"])
    dead.wait()
    (oracle.path / f"remuster-0123456789abcdef-{dead.pid}").mkdir()
    program = "import os; from remuster.agent.strays import sweep_strays; sweep_strays('other', 'here', os.getpid())"
    subprocess.run([sys.executable, "-c", program], env=one.env, preexec_fn=oracle.enter, check=True)
    assert oracle.left_folders() == [full]
    assert len(one.strangers()) > 4
