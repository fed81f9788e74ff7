"""Signals to the real command: which of them stop a job, which are passed on, which announce its end, and for how long
ranks live then. Tests that are named after a row of the project's list of scenarios begin with its name.

Each docstring says what was broken in a copy of the product to see the test fail.
"""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest
from command.cluster import COMMAND, STEADY, Cluster, Place
from command.processes import MARK, alive, boottime, children, marked, read, signal_all, until

pytestmark = pytest.mark.process

ALONE = ("--nproc-per-node", "2")
PRELUDE = """
import os, signal, sys, time
from pathlib import Path
desk, rank, n = Path(sys.argv[1]), os.environ["RANK"], os.environ["REMUSTER_ROUND"]
def put(name, text=""):
    (desk / f".{name}-{rank}").write_text(text)
    (desk / f".{name}-{rank}").rename(desk / f"{name}-{rank}")
def stand(until=lambda: (desk / "done").exists()):
    end = time.monotonic() + 60
    while time.monotonic() < end and not until():
        time.sleep(0.005)
"""


def wait_for(place: Place, *names: str) -> None:
    until(lambda: all((place.desk / name).exists() for name in names), f"{names} are there", show=place.say)


def state(pid: int) -> str:
    return read(pid, "stat").rpartition(b")")[2].split()[0].decode()


# --- the grace --------------------------------------------------------------------------------------------------------
SAVES = f"""{PRELUDE}
def on_term(signum, frame):
    put("term")
    time.sleep(1.2)
    put("saved")
    sys.exit(0)
signal.signal(signal.SIGTERM, on_term)
put("up")
stand()
"""


@pytest.mark.parametrize(("grace", "saved"), [("20", True), ("0.3", False)])
def test_b16_a_rank_has_the_grace_to_save(place: Place, grace: str, saved: bool) -> None:
    """Red when the grace is the default whatever the flag says (``settings_of`` in assembly.py)."""
    node = place.command("--shutdown-timeout", grace, place.script("t.py", SAVES), place.desk)
    wait_for(place, "up-0")
    asked = boottime()
    node.process.send_signal(signal.SIGTERM)
    assert node.exit_code() == 143, node.say()
    assert (place.desk / "saved-0").exists() is saved
    assert boottime() - asked >= float(grace) if not saved else boottime() - asked < 10
    assert place.left_files() == []


DEAF = f"""{PRELUDE}
signal.signal(signal.SIGTERM, lambda *_: put("term"))
put("up" + n)
stand(lambda: rank == "1" and (desk / f"up{{n}}-0").exists())
sys.exit(3)
"""


def test_b16_a_second_signal_shortens_the_grace(place: Place) -> None:
    """Red when a second LeaveAsked is passed over (``_again`` in node_take.py)."""
    node = place.command("--shutdown-timeout", "60", place.script("t.py", DEAF), place.desk)
    wait_for(place, "up1-0")
    asked = boottime()

    def insist() -> bool:
        node.process.send_signal(signal.SIGTERM)
        return node.process.poll() is not None

    until(insist, "it gives up", 20.0, place.say)
    assert node.exit_code() == 143, node.say()
    assert 3.9 < boottime() - asked < 10, "one second in which it is the same signal, and three to go"
    assert (place.desk / "term-0").exists()


def test_the_grace_is_the_same_after_a_failure_and_before_a_restart(place: Place) -> None:
    """Red when ``_obsolete`` gives 30 s; torchrun waits for 30 s there whatever it was told (its PR #192815)."""
    line = (*ALONE, "--max-restarts", "1", "--shutdown-timeout", "0.4", place.script("t.py", DEAF), place.desk)
    node = place.command(*line)
    began = boottime()
    assert node.exit_code() == 3, node.say()
    assert boottime() - began < 15
    assert (place.desk / "up2-0").exists()
    assert [record["exit_codes"] for record in node.records()] == [{"0": -9, "1": 3}] * 2


# --- who gets which signal --------------------------------------------------------------------------------------------
HEARS = f"""{PRELUDE}
for name in ("USR1", "USR2") if rank != "1" else ():
    signal.signal(getattr(signal, f"SIG{{name}}"), lambda number, _: put(f"heard{{number}}"))
if (desk / "leaves").exists():
    signal.signal(signal.SIGUSR2, lambda *_: (put("heard12"), os._exit(0)))
put("up")
stand()
"""


def test_b17_user_signals_reach_all_ranks_and_end_nobody(place: Place) -> None:
    """Red when the keeper does not forward them; and, for rank 1, which has no handler, when ranks get them all."""
    node = place.command("--nproc-per-node", "3", place.script("t.py", HEARS), place.desk)
    wait_for(place, "up-0", "up-1", "up-2")
    for signum in (signal.SIGUSR1, signal.SIGUSR2):
        node.process.send_signal(signum)
    wait_for(place, "heard10-0", "heard10-2", "heard12-0", "heard12-2")
    place.order("done")
    assert node.exit_code() == 0, node.say()


def test_signals_to_handle_adds_one_that_stops_the_job_and_ranks_get_it(place: Place) -> None:
    """Red when ``Signals`` is not told of it."""
    place.order("leaves")
    node = place.command("--signals-to-handle", "SIGTERM,SIGUSR2,SIGWAT", place.script("t.py", HEARS), place.desk)
    wait_for(place, "up-0")
    node.process.send_signal(signal.SIGUSR2)
    assert node.exit_code() == 128 + signal.SIGUSR2, node.say()
    assert (place.desk / "heard12-0").exists()
    assert "--signals-to-handle: ignored, as no signal that can stop a job here: SIGWAT" in node.err


LOADS = f"""{PRELUDE}
import multiprocessing
if __name__ == "__main__":
    workers = [multiprocessing.get_context("fork").Process(target=time.sleep, args=(60,)) for _ in range(2)]
    for worker in workers:
        worker.start()
    def on_term(signum, frame):
        signal.signal(signal.SIGALRM, save)
        signal.setitimer(signal.ITIMER_REAL, 0.3)
    def save(signum, frame):
        put("saved", str([worker.is_alive() for worker in workers]))
        os._exit(0)
    signal.signal(signal.SIGTERM, on_term)
    put("up")
    stand()
"""


def test_b18_only_the_rank_process_gets_the_soft_signal(place: Place) -> None:
    """Red when ``signal_rank`` signals the rank's process group: its loaders die before it has saved."""
    node = place.command(place.script("t.py", LOADS), place.desk)
    wait_for(place, "up-0")
    node.process.send_signal(signal.SIGTERM)
    assert node.exit_code() == 143, node.say()  # and nothing of it is left, the loaders neither
    assert (place.desk / "saved-0").read_text() == "[True, True]"


# --- where the command stands -----------------------------------------------------------------------------------------
ORPHANS = f"""{PRELUDE}
def state(stat):
    try:
        return stat.read_text().rpartition(")")[2].split()[0]
    except OSError:  # it has gone meanwhile
        return ""
def zombies():
    return [state(stat) for stat in Path("/proc").glob("[0-9]*/stat")].count("Z")
signal.signal(signal.SIGTERM, lambda *_: (put("term"), os._exit(0)))
for _ in range(50):
    pid = os.fork()
    if pid == 0:
        if os.fork() == 0:
            time.sleep(0.05)
        os._exit(0)
    os.waitpid(pid, 0)
count = lambda: len(list(Path("/proc").glob("[0-9]*")))
stand(lambda: not zombies() and count() <= 4)
put("up", f"{{os.getppid()}} {{zombies()}} {{count()}}")
stand()
"""


def test_b23_as_pid_1_of_a_container_it_reaps_orphans_and_hears_term(place: Place) -> None:
    """Red when the guardian is no subreaper, and when the keeper does not hear SIGTERM."""
    ours = [] if os.geteuid() == 0 else ["--user", "--map-current-user"]
    inside = ["unshare", *ours, "--pid", "--fork", "--mount-proc"]
    if subprocess.run([*inside, "true"], check=False, capture_output=True).returncode:
        pytest.skip("no namespaces for this user")
    place.env[MARK] = f"inside {place.folder}"
    line = [*inside, COMMAND, "--log-dir", place.folder / "logs", place.script("t.py", ORPHANS), place.desk]
    with (place.folder / "said").open("wb") as said:
        outer = subprocess.Popen(line, env=place.env, cwd=place.folder, stdin=subprocess.DEVNULL, stderr=said)
    try:
        wait_for(place, "up-0")
        guardian, zombies, processes = (int(word) for word in (place.desk / "up-0").read_text().split())
        assert (zombies, processes, guardian > 1) == (0, 4, True), "keeper, agent, guardian and the rank"
        (first,) = children(outer.pid)
        os.kill(first, signal.SIGTERM)
        assert outer.wait(20) == 143, (place.folder / "said").read_text()
        assert (place.desk / "term-0").exists()
    finally:
        signal_all(marked(place.env[MARK]))
        outer.wait()


def test_a_hangup_under_nohup_ends_nothing(place: Place) -> None:
    """Red when the agent takes SIGHUP although it was ignored: a terminal that closes sends it to both."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        node = place.command(*ALONE, STEADY, place.desk)
    finally:
        signal.signal(signal.SIGHUP, before)
    place.wait_round(1, 2)
    for pid in (node.keeper, node.agent):
        os.kill(pid, signal.SIGHUP)
    os.kill(node.keeper, signal.SIGUSR1)  # comes later, and does no harm
    place.order("done")
    assert node.exit_code() == 0, node.say()


def test_ctrl_z_gives_the_terminal_back_and_the_job_goes_on(place: Place) -> None:
    """Red when the agent does not ignore SIGTSTP: then nobody restarts the ranks."""
    place.env[MARK] = f"below a shell {place.folder}"
    log, line = place.folder / "logs", (*ALONE, "--max-restarts", "1", STEADY, place.desk)
    shell = ["bash", "-c", 'set -m; "$@" & jobs -p > "$0"; read', place.folder / "job", COMMAND, "--log-dir", log]
    with (place.folder / "said").open("wb") as said:
        outer = subprocess.Popen(
            [*shell, *line],
            env=place.env,
            cwd=place.folder,
            stdin=subprocess.PIPE,
            stderr=said,
            start_new_session=True,  # a shell of its own, in which the command's group is no orphan
        )
    try:
        place.wait_round(1, 2)
        keeper = int((place.folder / "job").read_text())
        (agent,) = [pid for pid in children(keeper) if read(pid, "cmdline") == read(keeper, "cmdline")]
        os.killpg(keeper, signal.SIGTSTP)
        until(lambda: state(keeper) == "T", "the shell has its terminal again")
        place.order("exit-1", 1, "4")
        place.wait_round(2, 2)
        assert (state(keeper), alive(agent)) == ("T", True)
        assert b"the job goes on, only its command is stopped" in (place.folder / "said").read_bytes()
        place.order("done")
        until(lambda: not alive(agent), "the agent is done")
        os.killpg(keeper, signal.SIGCONT)
        until(lambda: not alive(keeper), "and so is the command, once it is continued")
    finally:
        signal_all(marked(place.env[MARK]))
        outer.communicate()


# --- a notice ---------------------------------------------------------------------------------------------------------
POLLS = f"""{PRELUDE}
from remuster import checkpoint, resume_point, stop_requested
point = resume_point()
if point:
    put("resumed", str(point.step))
    sys.exit(0)
if rank == "3":
    signal.signal(signal.SIGUSR1, lambda *_: put("heard"))
assert not stop_requested()
put("up")
if rank == "0":
    os.kill(0, signal.SIGUSR1)  # a scheduler signals every process of a job
stand(lambda: stop_requested() and (rank != "3" or (desk / "heard-3").exists()))
put("saw")
stand(lambda: (desk / "saw-3").exists())
if rank == "0":
    with checkpoint.publish(7, gather=lambda text: [text], rank=0) as p:
        p.path("state").write_text("x")
"""


def test_a_notice_at_one_node_lets_all_save_and_the_next_launch_goes_on(cluster: Cluster) -> None:
    """Red when it is not written to the store, when the leader writes D after it, when ranks are not deaf to it."""
    script, kept = cluster.script("t.py", POLLS), cluster.folder / "kept"
    line = ("--nnodes", "2", *ALONE, "--checkpoint-dir", kept, "--notice-signal", "USR1", script, cluster.desk)
    nodes = [cluster.start(number, *line, conf="launch_id=one") for number in (2, 3)]
    wait_for(cluster, *(f"up-{rank}" for rank in range(4)))
    nodes[1].process.send_signal(signal.SIGUSR1)
    assert [node.exit_code() for node in nodes] == [75, 75], cluster.say()
    assert {path.name for path in cluster.desk.glob("saw-*")} == {f"saw-{rank}" for rank in range(4)}
    (record,) = cluster.records().values()
    assert (record["verdict"]["class"], record["exit_codes"], record["spent"]) == ("notice", {}, {})
    assert (cluster.job()["phase"], cluster.job()["notice"]) == ("X", "127.0.0.3")
    assert "127.0.0.3 was given notice of a stop, and every rank exited 0" in nodes[0].err
    found = "step 7 verified (step-000000000007): the next launch goes on from there"
    assert [node.err.count(found) for node in nodes] in ([1, 0], [0, 1]), "the one that led has looked"
    assert [cluster.start(number, *line, conf="launch_id=two") for number in (2, 3)]
    assert [node.exit_code() for node in cluster.nodes] == [75, 75, 0, 0], cluster.say()
    assert {path.read_text() for path in cluster.desk.glob("resumed-*")} == {"7"}
    cluster.check_left()


LOOKS = f"""{PRELUDE}
from remuster import stop_requested
if rank == "1":
    stand(lambda: (desk / "up-0").exists() and (desk / "fails").exists())
    sys.exit(3)
stop_requested()
put("up")
stand(lambda: stop_requested() and not (desk / "fails").exists())
put("saved")
"""


def test_a_rank_that_looks_is_not_ended_by_the_term_of_a_planned_stop(place: Place) -> None:
    """Red when ``_obsolete`` is never soft."""
    node = place.command(place.script("t.py", LOOKS), place.desk)
    wait_for(place, "up-0")
    node.process.send_signal(signal.SIGTERM)
    assert node.exit_code() == 143, node.say()
    assert (place.desk / "saved-0").exists()


def test_a_rank_that_looks_is_ended_at_once_after_a_failure(place: Place) -> None:
    """Red when ``_obsolete`` is always soft: it hangs in a collective of the dead until the grace is over."""
    node = place.command(*ALONE, place.script("t.py", LOOKS), place.desk)
    wait_for(place, "up-0")
    place.order("fails")
    began = boottime()
    assert node.exit_code() == 3, node.say()
    assert boottime() - began < 10
    assert node.records()[0]["exit_codes"] == {"0": -15, "1": 3}


def test_a_term_after_a_notice_is_worth_another_start(place: Place) -> None:
    """Red when ``_leave`` gives 143 then."""
    node = place.command(*ALONE, "--notice-signal", "SIGUSR2", STEADY, place.desk)
    place.wait_round(1, 2)
    node.process.send_signal(signal.SIGUSR2)
    node.process.send_signal(signal.SIGTERM)
    assert node.exit_code() == 75, node.say()
    assert {path.name for path in Path(place.desk / "round-1").glob("term-*")} == {"term-0", "term-1"}
