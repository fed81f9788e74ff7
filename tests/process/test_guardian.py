"""The guardian on real processes: orders, ends, the ladder, the fence at the fork, and the order of its words."""

import errno
import os
import signal
import statistics
import sys
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.process

SLEEP = ("sleep", "30")


@pytest.fixture
def one(node):
    started = node()
    started.lease()
    return started


def test_ranks_start_end_and_are_reported_with_their_status(one):
    one.start(["true"], ["sh", "-c", "exit 7"], ["sh", "-c", "kill -SEGV $$"])
    pids = dict(one.wait("RanksStarted", round=1)["pids"])
    ends = {e["local_rank"]: e for e in (one.wait("RankExited", round=1) for _ in range(3))}
    assert {rank: e["status"] for rank, e in ends.items()} == {0: 0, 1: 7, 2: -signal.SIGSEGV}
    assert {rank: e["pid"] for rank, e in ends.items()} == pids
    assert [e["event"] for e in one.events[:2]] == ["Up", "RanksStarted"]


def test_a_rank_leads_a_session_hears_every_signal_and_has_three_files(one, tmp_path):
    program = (
        "import os, signal, json\n"
        "dismissed = [s for s in range(1, 32) if signal.getsignal(s) is signal.SIG_IGN]\n"
        "print(json.dumps([os.getsid(0) == os.getpid(), dismissed, len(signal.pthread_sigmask(0, ())),"
        " sorted(os.listdir('/proc/self/fd'))[:4], os.environ.get('GIVEN'), os.environ.get('PROCESS_TEST_MARK')]))"
    )
    env = {"GIVEN": "a=b\n✓", "PROCESS_TEST_MARK": None, "PYTHONPATH": None}
    out = tmp_path / "out"
    one.start([sys.executable, "-I", "-S", "-c", program], env=env, stdout=str(out), cwd="/")
    assert one.wait("RankExited")["status"] == 0
    leads, dismissed, masked, files, given, mark = __import__("json").loads(out.read_text())
    assert (leads, masked, given, mark) == (True, 0, "a=b\n✓", None)
    assert set(dismissed) == {signal.SIGPIPE, signal.SIGXFSZ}  # Python's own, of the rank
    assert files == ["0", "1", "2", "3"]  # 3 is the listing
    assert out.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("taken", [False, True], ids=["there", "taken away"])
def test_a_rank_is_bound_to_its_cpus_or_says_why_not(one, tmp_path, taken):
    allowed = sorted(os.sched_getaffinity(0))
    err, out = tmp_path / "err", tmp_path / "out"
    cpus = [1023] if taken else allowed[-1:]
    program = "import os; print(sorted(os.sched_getaffinity(0)))"
    one.start([sys.executable, "-I", "-S", "-c", program], stdout=str(out), stderr=str(err), cpus=cpus)
    assert one.wait("RankExited")["status"] == 0
    assert out.read_text() == f"{allowed if taken else cpus}\n"
    assert err.read_text() == ("remuster: this rank is not bound to CPUs 1023: Invalid argument\n" if taken else "")


def test_output_is_appended(one, tmp_path):
    for n in (1, 2):
        one.start(["sh", "-c", f"echo {n}; echo e{n} >&2"], n=n, stdout=str(tmp_path / "o"), stderr=str(tmp_path / "e"))
        one.wait("RankExited", round=n)
    assert ((tmp_path / "o").read_text(), (tmp_path / "e").read_text()) == ("1\n2\n", "e1\ne2\n")


@pytest.mark.parametrize(
    ("argv", "fields", "expected"),
    [
        (["no-such-program"], {}, (errno.ENOENT, "exec", "no-such-program", 127)),
        (["/etc/passwd"], {}, (errno.EACCES, "exec", "/etc/passwd", 126)),
        (["true"], {"stdout": "/nowhere/out"}, (errno.ENOENT, "stdout", "/nowhere/out", 127)),
        (["true"], {"stderr": "/"}, (errno.EISDIR, "stderr", "/", 126)),
        (["true"], {"cwd": "/nowhere"}, (errno.ENOENT, "cwd", "/nowhere", 127)),
        (["a\0b"], {}, (errno.EINVAL, "exec", "a\0b", 126)),
        ([], {}, (errno.EINVAL, "exec", "", 126)),
    ],
)
def test_what_cannot_be_started_says_why_before_it_ends(one, argv, fields, expected):
    one.start(argv, env={"PATH": "/usr/bin:/bin"}, **fields)
    failed, ended = one.wait("StartFailed"), one.wait("RankExited")
    assert (failed["errno"], failed["step"], failed["what"], ended["status"]) == expected
    assert one.events.index(failed) < one.events.index(ended)


def test_a_bare_name_is_searched_in_the_ranks_own_path(one, tmp_path):
    program = tmp_path / "only-here"
    program.write_text("#!/bin/sh\nexit 5\n")
    program.chmod(0o700)
    one.start(["only-here"], env={"PATH": f"/nowhere:{tmp_path}:/bin"})
    assert one.wait("RankExited")["status"] == 5


def test_term_reaches_the_rank_process_only(one, tmp_path, until):
    log = tmp_path / "log"
    one.start(["sh", "-c", "trap 'echo term; exit 3' TERM; sleep 30 & echo up $!; wait"], stdout=str(log))
    until(lambda: log.exists() and log.read_text(), "the rank is up")
    child = int(log.read_text().split()[1])
    one.tell("term", 2, signal.SIGUSR1)  # another round: nothing
    one.tell("term", 1, signal.SIGTERM)
    assert one.wait("RankExited")["status"] == 3
    assert one.strangers() == {child}  # it may still be saving; the kill of the round takes it
    one.tell("kill", 1)
    assert one.wait("RanksEmpty", round=1)["survivors"] == []
    assert one.strangers() == set()


def test_a_spared_rank_gets_a_signal_only_if_it_does_not_die_of_it(one, tmp_path, until):
    """0 has a handler, 1 ignores it, 2 and 3 would die of it, and 3 is not spared."""
    log = tmp_path / "log"
    stand = "echo up; while :; do sleep 0.01; done"
    traps = ("trap 'echo heard; exit 3' USR1; ", "trap '' USR1; ", "", "")
    one.start(*(["sh", "-c", trap + stand] for trap in traps), stdout=str(log))
    until(lambda: log.exists() and log.read_text().count("up") == 4, "the ranks are up")
    one.tell("term", 1, signal.SIGUSR1, 0, 1, 2)
    ends = {ended["local_rank"]: ended["status"] for ended in (one.wait("RankExited") for _ in range(2))}
    assert ends == {0: 3, 3: -signal.SIGUSR1}
    one.tell("term", 1, signal.SIGTERM)
    ends = {ended["local_rank"]: ended["status"] for ended in (one.wait("RankExited") for _ in range(2))}
    assert ends == {1: -signal.SIGTERM, 2: -signal.SIGTERM}


def test_kill_takes_everything_that_ranks_have_left_and_proves_it(one):
    first, second = one.plant()
    os.kill(first, signal.SIGKILL)
    assert one.wait("RankExited", local_rank=0)["status"] == -signal.SIGKILL
    assert len(one.strangers()) > 4
    one.tell("kill", 1)
    empty = one.wait("RanksEmpty", round=1)
    assert empty["survivors"] == []
    assert one.strangers() == set()
    ended = one.wait("RankExited", local_rank=1, pid=second)
    assert one.events.index(ended) < one.events.index(empty)


def test_a_kill_of_a_round_that_left_nothing_needs_no_second_proof(one):
    one.start(["sh", "-c", "exit 7"], ["true"])
    for _ in range(2):
        one.wait("RankExited", round=1)
    one.kill("guardian", signum=signal.SIGSTOP)  # it cannot answer
    one.tell("kill", 1)
    assert one.wait("RanksEmpty", round=1)["survivors"] == []
    one.kill("guardian", signum=signal.SIGCONT)
    one.start(SLEEP, n=2)
    one.wait("RanksStarted", round=2)
    one.tell("kill", 2)  # the proof was for that round alone
    assert one.wait("RankExited", round=2)["status"] == -signal.SIGKILL
    assert one.wait("RanksEmpty", round=2)["survivors"] == []
    assert one.strangers() == set()


def test_an_end_that_leaves_a_daemon_proves_nothing(one, until, tmp_path):
    log = tmp_path / "log"
    one.start(["sh", "-c", "setsid sleep 30 & echo $!"], stdout=str(log))
    assert one.wait("RankExited", round=1)["status"] == 0
    daemon = int(log.read_text())
    assert one.alive(daemon)
    one.tell("kill", 1)
    assert one.wait("RanksEmpty", round=1)["survivors"] == []
    assert not one.alive(daemon)


def test_a_start_is_refused_while_an_earlier_round_lives(one):
    one.start(SLEEP)
    one.wait("RanksStarted")
    one.start(SLEEP, n=2)
    assert "round 1 are still alive" in one.wait("StartRefused", round=2)["reason"]
    one.tell("kill", 1)
    one.wait("RanksEmpty")
    one.start(["true"], n=3)
    one.wait("RankExited", round=3, status=0)


def test_a_kill_removes_the_start_before_it(one):
    one.start(SLEEP, SLEEP, command="start and kill")
    one.wait("RanksEmpty", round=1)
    one.start(["true"], n=2)
    one.wait("RankExited", round=2)
    assert one.strangers() == set()
    assert len(one.heard("RanksEmpty")) == 1


def test_a_start_right_behind_a_kill_is_refused_or_comes_after_the_proof(one):
    one.plant(hop=False)
    one.start(["true"], n=1, command="kill and start")
    empty = one.wait("RanksEmpty", round=1)
    answer = one.wait_any("StartRefused", "RanksStarted")
    if answer["event"] == "StartRefused":
        assert answer["reason"] == "the ranks of an earlier round are still being killed"
    else:
        assert answer["at_s"] >= empty["at_s"]


def test_no_lease_no_start(node):
    one = node()
    one.start(SLEEP)
    assert "not told the guardian of any lease" in one.wait("StartRefused")["reason"]


def test_another_incarnation_is_refused_and_inherits_nothing(one):
    one.start(SLEEP, inc=2)
    assert "incarnation 2, the present one is 1" in one.wait("StartRefused")["reason"]
    one.plant(n=2)
    one.lease(inc=2)
    fenced = one.wait("NodeFenced")
    assert (fenced["inc"], fenced["round"], fenced["survivors"]) == (1, 2, [])
    assert one.strangers() == set()


def test_the_deadline_kills_latches_and_opens_only_after_the_agent_knows(node):
    one = node()
    one.lease(for_s=0.4)
    one.plant(ranks=1, n=1)
    fenced = one.wait("NodeFenced", inc=1, round=1)
    assert fenced["survivors"] == []
    assert one.strangers() == set()
    one.lease(for_s=30)  # renewed, but nobody has said that he knows of the fence
    one.start(["true"], n=2)
    assert "was fenced" in one.wait("StartRefused", round=2)["reason"]
    one.tell("ack", 1)
    one.start(["true"], n=3)  # acknowledged, but not renewed since
    assert "was fenced" in one.wait("StartRefused", round=3)["reason"]
    one.lease(for_s=31)
    one.start(["true"], n=4)
    one.wait("RankExited", round=4, status=0)


def test_a_fence_is_told_before_the_proof_that_nothing_is_left(node):
    """An agent that asks for the proof as soon as its last rank has ended must know by then why it has."""
    one = node(kill_what_ended=True)
    for n in range(1, 13):  # told the other way round, the two come in the right order more often than not
        one.lease(inc=n, for_s=0.5)
        one.start(SLEEP, n=n, inc=n)
        empty, fenced = one.wait("RanksEmpty", round=n), one.wait("NodeFenced", round=n)
        assert one.events.index(fenced) < one.events.index(empty)


def test_a_start_after_the_deadline_is_refused_although_nothing_ran(node):
    one = node()
    one.lease(for_s=0.05)
    one.wait("NodeFenced", round=0)
    one.start(SLEEP)
    assert "was fenced" in one.wait("StartRefused")["reason"]


def test_orders_read_after_the_deadline_start_nothing(node, until):
    """A start waits in the socket of a guardian that is not running; the deadline passes; it wakes up."""
    one = node(answer_s=5.0)
    one.lease(for_s=0.6)
    one.start(["true"], n=1)
    one.wait("RankExited", round=1)
    one.kill("guardian", signum=signal.SIGSTOP)
    began = time.monotonic()
    one.start(SLEEP, n=2)
    until(lambda: time.monotonic() > began + 0.65, "the deadline passes")
    one.kill("guardian", signum=signal.SIGCONT)
    one.wait_any("StartRefused", "GuardianGone", round=2)  # where the machine is busy the keeper has ended it by then
    assert one.heard("RanksStarted")[1:] == []


def test_64_ranks_start_and_all_are_heard(one, capsys):
    began = time.monotonic()
    one.start(*[["sh", "-c", f"exit {i}"] for i in range(64)])
    assert len(one.wait("RanksStarted")["pids"]) == 64
    forked = time.monotonic() - began
    ends = [one.wait("RankExited") for _ in range(64)]
    assert {e["local_rank"]: e["status"] for e in ends} == {i: i for i in range(64)}
    with capsys.disabled():
        print(f"\n  64 ranks: forked after {1000 * forked:.0f} ms, all ended after", end="")
        print(f" {1000 * (time.monotonic() - began):.0f} ms", end="")


def test_an_order_that_does_not_fit_is_refused_before_anything_starts(one):
    orders = [one.order(0, SLEEP), one.order(1, SLEEP, env={"SMALL": "x", "HUGE": "y" * 300_000})]
    one.tell("start", 1, 1, orders)
    text = one.wait("OrderTooLarge")["text"]
    assert "local rank 1" in text
    assert "'HUGE'" in text
    one.start(["true"], env={"BIG": "z" * 150_000}, n=2)  # too large together, fine one by one
    one.wait("RankExited", round=2)
    assert len(one.heard("RanksStarted")) == 1


def test_many_large_orders_pass_a_small_socket(one):
    one.start(*[["sh", "-c", "exit ${#BIG}"] for _ in range(20)], env={"BIG": "z" * 100_000})
    assert [one.wait("RankExited")["status"] for _ in range(20)] == [100_000 % 256] * 20


def test_the_guardian_goes_by_another_name_and_ignores_what_is_not_for_it(one, until):
    line = Path(f"/proc/{one.guardian}/cmdline")
    until(lambda: line.read_bytes().rstrip(b"\0") == b"rank-guardian", "it is up, and has its name")
    assert Path(f"/proc/{one.guardian}/comm").read_text() == "rank-guardian\n"
    for signum in ("INT", "TERM", "HUP", "QUIT", "TSTP", "USR1", "USR2", "ALRM"):
        os.kill(one.guardian, getattr(signal, f"SIG{signum}"))
    one.start(["true"])
    one.wait("RankExited", status=0)
    assert os.getsid(one.guardian) == one.guardian


def test_latency_of_an_exit(one, capsys):
    times = []
    for n in range(1, 31):
        one.start(SLEEP, n=n)
        pid = one.wait("RanksStarted")["pids"][0][1]
        killed = time.clock_gettime(time.CLOCK_BOOTTIME)
        os.kill(pid, signal.SIGKILL)
        times.append(1000 * (one.wait("RankExited", round=n)["heard_s"] - killed))
    with capsys.disabled():
        print(f"\n  exit -> event: median {statistics.median(times):.2f} ms, max {max(times):.2f} ms, n=30", end="")


FREEZER = Path("/sys/fs/cgroup/freezer")


@pytest.fixture
def freezer():
    """A v1 freezer: what is frozen in it does not die of SIGKILL, as in state D."""
    if not os.access(FREEZER / "cgroup.procs", os.W_OK):
        pytest.skip("needs root and a v1 freezer")
    folder = FREEZER / f"process-test-{os.getpid()}"
    folder.mkdir()

    def freeze(pid):
        (folder / "cgroup.procs").write_text(str(pid))
        (folder / "freezer.state").write_text("FROZEN")

    def thaw():
        (folder / "freezer.state").write_text("THAWED")

    yield freeze, thaw
    thaw()
    end = time.monotonic() + 5
    while (folder / "cgroup.procs").read_text() and time.monotonic() < end:
        time.sleep(0.01)
    folder.rmdir()


def test_b22_what_does_not_die_is_named_and_keeps_the_next_round_out(node, freezer, until):
    freeze, thaw = freezer
    one = node(kill_bound_s=0.5)
    one.lease()
    one.start(SLEEP, SLEEP)
    first, second = (pid for _, pid in one.wait("RanksStarted")["pids"])
    freeze(first)
    one.tell("kill", 1)
    assert one.wait("RankExited")["pid"] == second
    one.lease()  # answered while the kill goes on
    assert one.wait("RanksEmpty")["survivors"] == [first]
    one.start(SLEEP, n=2)
    assert str(first) in one.wait("StartRefused")["reason"]
    thaw()
    one.wait("RankExited", pid=first)
    one.start(["true"], n=3)
    one.wait("RankExited", round=3)
    assert one.heard("GuardianGone") == []


def test_b22_a_take_over_names_what_does_not_die(node, freezer, until):
    freeze, thaw = freezer
    one = node(kill_bound_s=0.5)
    one.lease()
    one.start(SLEEP)
    pid = one.wait("RanksStarted")["pids"][0][1]
    freeze(pid)
    one.kill("guardian")
    assert one.wait("GuardianGone")["survivors"] == [pid]
    one.start(SLEEP, n=2)
    one.wait("StartRefused", round=2)
    one.tell("kill", 2)
    assert one.wait("RanksEmpty", round=2)["survivors"] == [pid]
    thaw()


def test_b22_the_keeper_names_what_does_not_die_and_exits_75(node, freezer, oracle, until):
    freeze, thaw = freezer
    one = node(kill_bound_s=0.3, patience_s=0.4)
    one.lease()
    one.start(SLEEP)
    pid = one.wait("RanksStarted")["pids"][0][1]
    until(
        lambda: Path(f"/proc/{pid}/comm").read_text() == "sleep\n", "the rank is what it is to be"
    )  # it executes it yet
    freeze(pid)
    one.kill("agent")
    assert one.exit_code() == 75
    assert f"{pid} (sleep, state " in one.stderr()
    assert oracle.pids() == {one.guardian, pid}  # it stays, and with it the node's lock, until its last rank is reaped
    thaw()
    until(lambda: not oracle.pids(), "the guardian leaves")


def test_ranks_die_with_their_guardian_when_nobody_else_can_act(one, until):
    one.start(SLEEP, SLEEP)
    pids = [pid for _, pid in one.wait("RanksStarted")["pids"]]
    one.kill("keeper", "agent", signum=signal.SIGSTOP)
    one.kill("guardian")
    until(lambda: not any(one.alive(pid) for pid in pids), "the ranks are dead", 5)
