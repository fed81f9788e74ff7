"""How a failure is told and handed on by the real command: report, exit code, error files, and that all nodes agree.

Each docstring says what was broken in a copy of the product to see the test fail, where that is not plain.
"""

from __future__ import annotations

import json
import os
import pty
import sys
from pathlib import Path
from typing import Any

import pytest
from command.cluster import Cluster, Node, Place
from command.processes import until

pytestmark = pytest.mark.process

ARGPARSE = """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument('--epochs', type=int)
print(parser.parse_args())
"""


def report(node: Node) -> str:
    """Return the report as it stands on stderr: from its verdict to the line that wrappers look for."""
    end = node.err.index("\nChildFailedError: ")
    head = node.err.rindex("\n===", 0, node.err.rindex(" FAILED\n", 0, end))
    return node.err[node.err.rindex("\n\n", 0, head) : node.err.index("\n", end + 1)]


# --- B09 --------------------------------------------------------------------------------------------------------------
def test_b09_nothing_is_put_among_the_scripts_arguments(place: Place) -> None:
    """Red when ``rank_argv`` adds ``--local-rank``."""
    script = place.script("t.py", ARGPARSE)
    for spelled in ("--nproc-per-node", "--nproc_per_node"):
        node = place.command(spelled, "2", script, "--epochs", "3")
        assert node.exit_code() == 0, node.say()
        assert node.out.splitlines() == [b"Namespace(epochs=3)"] * 2


def test_b09_a_wrong_argument_is_the_users_error_and_never_retried(place: Place) -> None:
    """Red when ``_never`` of policy.py knows no class that a restart cannot help."""
    node = place.command(
        "--nproc-per-node", "2", "--max-restarts", "3", place.script("t.py", ARGPARSE), "--local_rank=0"
    )
    assert node.exit_code() == 2, node.say()
    (record,) = node.records()
    assert (record["verdict"]["class"], record["verdict"]["family"]) == ("user_args", "user")
    assert (record["charged_to"], record["state"]) == (None, "failed")
    assert "unrecognized arguments: --local_rank=0" in report(node)


# --- B15 --------------------------------------------------------------------------------------------------------------
def test_b15_the_report_has_the_root_ranks_last_lines_and_says_where_the_files_are(place: Place) -> None:
    """Red when the report shows no tail, or when an attempt takes the directory of another."""
    text = (
        "import os, sys, time\n"
        "if os.environ['RANK'] != '3': time.sleep(60)\n"
        "for i in range(100): print('rank 3 says', i, os.environ['REMUSTER_ATTEMPT'], file=sys.stderr)\n"
        "sys.exit(1 + int(os.environ['REMUSTER_ATTEMPT']))\n"
    )
    node = place.command("--nproc-per-node", "4", "--max-restarts", "1", place.script("t.py", text))
    assert node.exit_code() == 2, node.say()
    said = report(node)
    assert f"Last lines of rank 3 on {node.records()[1]['verdict']['node']}:\n" in said
    assert "  rank 3 says 99 1\n" in said
    assert "Victims   : ranks 0-2 stopped by us (SIGTERM)\n" in said
    (where,) = (line.partition(": ")[2] for line in said.split("\n") if line.startswith("Logs "))
    files = Path(where.partition(": ")[2].removesuffix("/stdout.log, stderr.log"))
    assert files == node.run_dir / "attempt_1" / "3"
    for attempt in (0, 1):
        lines = (node.run_dir / f"attempt_{attempt}" / "3" / "stderr.log").read_text().splitlines()
        assert lines == [f"rank 3 says {i} {attempt}" for i in range(100)]
    (record,) = (line.split(": ")[2] for line in said.split("\n") if line.startswith("Record "))
    assert json.loads(Path(record.partition(",")[0]).read_text())["attempt"] == 1
    assert "Spent     : 1 of 1 restarts of this launch; over the job's life unknown 1\n" in said


# --- B24 --------------------------------------------------------------------------------------------------------------
ECC = "raise RuntimeError('CUDA error: uncorrectable ECC error encountered')"


@pytest.mark.parametrize(("how", "code"), [("sys.exit(42)", 42), (ECC, 75)], ids=["code", "hardware"])
def test_b24_the_exit_code_says_how_it_ended(place: Place, how: str, code: int) -> None:
    """Red when ``exit_code`` of policy.py gives 1. The peer that is stopped, and ends with 0, changes nothing."""
    text = f"import os, signal, sys\nif os.environ['RANK'] == '1': {how}\n"
    text += "signal.signal(15, lambda *_: sys.exit(0))\nsignal.pause()\n"
    node = place.command("--nproc-per-node", "2", place.script("t.py", text))
    assert node.exit_code() == code, node.say()


def test_b24_a_group_that_does_not_form_is_69(cluster: Cluster) -> None:
    node = cluster.start(2, "--nnodes", "2", "--rdzv-timeout", "1", cluster.script("t.py", ""), conf="join_timeout=1")
    assert node.exit_code() == 69, node.say()


# --- the end of a job -------------------------------------------------------------------------------------------------
def test_a_failure_after_another_node_has_finished_is_everybodys(cluster: Cluster) -> None:
    """With torchrun the late one reruns alone, as a world of its own, and both commands end with 0.

    Red when a node that has finished leaves before the job is done (``_over``), and when reports are not the record's.
    """
    nodes = [cluster.steady(number, "--nnodes", "2", "--max-restarts", "1") for number in (2, 3)]
    for n in (1, 2):
        said = cluster.wait_round(n, 4)
        assert len({one["REMUSTER_NODE"] for one in said.values()}) == 2
        for rank in (0, 1):
            cluster.order(f"exit-{rank}", n, "0")
        until(lambda n=n: [k for k in cluster.tree() if k.startswith(f"finished/{n:010d}/")], "one has finished")
        assert [node.process.poll() for node in nodes] == [None, None]
        cluster.order("exit-2", n, f"7 KeyError: 'late in {n}'")
    assert [node.exit_code() for node in nodes] == [7, 7], cluster.say()
    assert report(nodes[0]) == report(nodes[1])
    cluster.check_left()


# --- error files ------------------------------------------------------------------------------------------------------
TELLS = """
import json, os, signal, sys, time
if os.environ['RANK'] != '2':
    time.sleep(60)
info = {'py_callstack': 'Traceback\\nValueError: boom', 'timestamp': '1795951311'}
told = {'message': {'message': 'ValueError: boom', 'extraInfo': info}, 'mine': [1]}
open(os.environ['TORCHELASTIC_ERROR_FILE'], 'w').write(json.dumps(told))
os.kill(os.getpid(), 11)
"""


def handed(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def test_the_root_ranks_error_is_in_the_file_of_every_nodes_parent(cluster: Cluster) -> None:
    script = cluster.script("t.py", TELLS)
    files = [cluster.folder / f"error-{number}.json" for number in (2, 3)]
    files[0].write_text("an old one")
    nodes = [
        cluster.start(
            *(number, "--nnodes", "2", "--nproc-per-node", "2", script), env={"TORCHELASTIC_ERROR_FILE": str(file)}
        )
        for number, file in zip((2, 3), files, strict=True)
    ]
    assert [node.exit_code() for node in nodes] == [139, 139], cluster.say()
    owner = nodes[0].records()[0]["verdict"]["node"]
    for node, file in zip(nodes, files, strict=True):
        content, here = handed(file), node.folder.name.endswith(owner)
        assert content["message"]["message"] == "ValueError: boom"
        assert content["message"]["errorCode"] == -11
        assert content["message"]["extraInfo"] == {
            "py_callstack": "Traceback\nValueError: boom",
            "timestamp": "1795951311",
        }
        assert (content.get("mine") == [1]) is here, "a copy where the file lies, its error elsewhere"
        assert file.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("raw", ["{", '{"no": 1}', "[" * 20000], ids=["cut", "no-message", "deep"])
def test_a_malformed_error_file_ends_no_agent(place: Place, raw: str) -> None:
    """torchrun's agent raises instead of telling."""
    text = f"import os, sys\nopen(os.environ['TORCHELASTIC_ERROR_FILE'], 'w').write({raw!r})\nsys.exit(9)\n"
    file = place.folder / "error.json"
    node = place.command(place.script("t.py", text), env={"TORCHELASTIC_ERROR_FILE": str(file)})
    assert node.exit_code() == 9, node.say()
    assert "error file " in report(node)
    assert handed(file)["message"]["errorCode"] == 9


def test_a_job_that_is_done_hands_no_error_up(place: Place) -> None:
    file = place.folder / "error.json"
    node = place.command(place.script("t.py", ""), env={"TORCHELASTIC_ERROR_FILE": str(file)})
    assert node.exit_code() == 0, node.say()
    assert not file.exists()


def test_nested_in_itself_the_outer_names_the_inner_ones_cause(place: Place) -> None:
    """Red when the parent's file is not written: the outer one then knows of an exit status and no more."""
    inner = place.script("t.py", "import sys\nsys.stderr.close()\nopen('/nowhere/data.bin')\n")
    outer = place.command("--no-python", Path(sys.executable).with_name("remuster"), inner)
    assert outer.exit_code() == 1, outer.say()
    assert outer.records()[0]["evidence"][0]["facts"][0]["error"]["message"].startswith("rank 0 on ")


# --- on a terminal ----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("no_color", ["", "1"])
def test_the_report_is_coloured_on_a_terminal_and_nowhere_else(place: Place, no_color: str) -> None:
    ours, theirs = pty.openpty()
    script = place.script("t.py", "raise ValueError('boom')\n")
    node = place.command(script, stdout=theirs, merge=True, env={"TERM": "xterm", "NO_COLOR": no_color})
    os.close(theirs)
    shown = b""
    try:
        while data := os.read(ours, 65536):
            shown += data
    except OSError:
        pass  # the last one has closed it
    os.close(ours)
    assert node.exit_code() == 1
    assert b"Root Cause" in shown
    assert (b"\x1b[1;31mrank 0 on " in shown) == (not no_color)
    assert "\x1b" not in node.records()[0]["report"]
    assert "\\u001b" not in (node.run_dir / "attempts" / "attempt-000.json").read_text()


# --- file timers ------------------------------------------------------------------------------------------------------
BY_TORCH = """
import torch.distributed.elastic.timer as timer
timer.configure(timer.FileTimerClient(pipe))
with timer.expires(after=60, scope='in time'):
    pass
if late:
    with timer.expires(after=0.2, scope='one step'):
        time.sleep(60)
"""
BY_HAND = """
import json, signal
if late:
    told = {'version': 1, 'pid': os.getpid(), 'scope_id': 'one step', 'expiration_time': time.time() + 0.2, 'signal': 9}
    with open(pipe, 'w') as file: file.write(json.dumps(told) + chr(10))
    time.sleep(60)
"""
HEAD = """
import os, time
pipe = os.environ['TORCHELASTIC_TIMER_FILE']
late = os.environ['RANK'] == '1' and os.environ['REMUSTER_ATTEMPT'] == '0'
"""


@pytest.mark.parametrize("client", [BY_HAND, pytest.param(BY_TORCH, marks=pytest.mark.drill)], ids=["hand", "torch"])
def test_a_rank_that_is_late_by_a_file_timer_is_killed_and_named(place: Place, client: str) -> None:
    """Red when the pipe is not served, and when a wait that ran out is all that the verdict sees in it."""
    env = {"TORCHELASTIC_ENABLE_FILE_TIMER": "1", "TORCHELASTIC_TIMER_FILE": str(place.folder / "pipe")}
    script = place.script("t.py", HEAD + client)
    node = place.command("--nproc-per-node", "2", "--max-restarts", "1", script, env=env)
    assert node.exit_code(60) == 0, node.say()
    first, second = node.records()
    assert (first["verdict"]["class"], first["verdict"]["rank"], first["exit_codes"]["1"]) == ("rank_hang", 1, -9)
    assert "the timer 'one step' of this rank expired" in first["verdict"]["sentence"]
    assert second["state"] == "done"
    assert not (place.folder / "pipe").exists()


# --- a rank leaves ----------------------------------------------------------------------------------------------------
@pytest.mark.drill
def test_a_rank_that_exits_0_while_another_runs_on_is_told_of_once(place: Place) -> None:
    text = "import os, time\nif os.environ['RANK'] == '1': time.sleep(34)\n"
    node = place.command("--nproc-per-node", "2", place.script("t.py", text))
    assert node.exit_code(60) == 0, node.say()
    assert node.err.count("rank 0 exited 0 30 s ago, and rank 1 of this node still runs") == 1
