"""Ranks are born in the guardian's cgroup: in every round, also after kills, and without waiting to enter it."""

import os
import signal
from pathlib import Path

import pytest

from remuster.agent.rank_group import RankGroup, fork_into

pytestmark = pytest.mark.process


@pytest.fixture
def one(node):
    """A node whose guardian has a cgroup."""
    started = node()
    started.tell("hold", "run", "here")
    if not started.wait("GuardianReady")["cgroup"]:
        pytest.skip("no cgroup can be made here")
    started.lease()
    return started


def group_of(pid):
    lines = Path(f"/proc/{pid}/cgroup").read_text().splitlines()
    return next(line[3:] for line in lines if line.startswith("0::"))


def test_every_round_is_held_by_the_cgroup_though_the_last_one_was_killed_there(one, until, tmp_path):
    for n in range(1, 5):
        said = tmp_path / f"said-{n}"
        one.start(*2 * [["sh", "-c", "echo up; exec sleep 30"]], n=n, stdout=str(said))
        until(lambda said=said: said.exists() and said.read_text() == "up\nup\n", f"the ranks of round {n} stand")
        pids = [pid for _, pid in one.wait("RanksStarted", round=n)["pids"]]
        (folder,) = {group_of(pid) for pid in pids}
        assert Path(folder).name.startswith("remuster-")
        assert Path(folder).name.endswith(f"-{one.guardian}")
        one.tell("kill", n)
        ends = [one.wait("RankExited", round=n) for _ in pids]
        assert sorted(end["pid"] for end in ends) == sorted(pids)
        assert {end["status"] for end in ends} == {-signal.SIGKILL}
        assert one.wait("RanksEmpty")["survivors"] == []
    until(lambda: len(one.oracle.left_folders()) == 1, "a new one stands in the place of the last")


@pytest.fixture
def group():
    """A cgroup of this process's, made as a guardian makes it."""
    made = RankGroup()
    made.make("0123456789abcdef")
    if made.path is None:
        pytest.skip("no cgroup can be made here")
    yield made
    made.remove()


def born(group):
    """Fork once; return whether the child was told to enter, its cgroup, and how it ended."""
    hear, tell = os.pipe()
    pid, enter = group.fork()
    if pid == 0:
        os.write(tell, Path("/proc/self/cgroup").read_bytes())
        os._exit(3)
    os.close(tell)
    with os.fdopen(hear) as said:
        lines = said.read().splitlines()
    _, status = os.waitpid(pid, 0)
    return enter, next(line[3:] for line in lines if line.startswith("0::")), os.waitstatus_to_exitcode(status)


def test_a_child_is_there_from_its_first_instruction(group):
    enter, folder, code = born(group)
    assert (enter, Path(folder).name, code) == (None, Path(group.path).name, 3)


def test_a_child_is_born_after_kills(group):
    for _ in range(3):
        group.kill()
        group.renew()
        assert born(group)[::2] == (None, 3)


def test_where_none_can_be_born_the_rank_is_forked_and_enters_by_itself(group):
    os.rmdir(group.path)
    enter, folder, code = born(group)
    assert (enter, code) == (group.path, 3)
    assert folder == group_of(os.getpid())


def test_what_is_no_cgroup_is_refused(tmp_path):
    fd = os.open(tmp_path, os.O_RDONLY)
    try:
        with pytest.raises(OSError, match="Bad file descriptor"):
            fork_into(fd)
    finally:
        os.close(fd)


def test_a_group_that_cannot_be_renewed_is_entered(group):
    pid = os.fork()
    if pid == 0:
        signal.pause()
    Path(group.path, "cgroup.procs").write_text(str(pid))
    try:
        group.renew()
        enter, folder, code = born(group)
        assert (enter, code) == (group.path, 3)
        assert Path(folder).name != Path(group.path).name
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
