"""What ranks write: whole in their files, on the console before the report, and what the report says of it."""

from __future__ import annotations

import json
import os
import sys

import pytest
from command.cluster import Place
from command.processes import until

pytestmark = pytest.mark.process

LINES = 20_000


def test_b12_the_last_byte_is_on_the_console_before_the_report(place: Place) -> None:
    text = (
        "import os, sys\n"
        "if os.environ['RANK'] == '0':\n"
        f"    os.write(1, b''.join(b'line %d of many, and some more\\n' % i for i in range({LINES})) + b'the end')\n"
        "    os._exit(1)\n"
        "import time; time.sleep(60)\n"
    )
    node = place.command("--nproc-per-node", "2", place.script("t.py", text))
    assert node.exit_code() == 1, node.say()
    written = b"".join(b"line %d of many, and some more\n" % i for i in range(LINES)) + b"the end"
    assert (node.run_dir / "attempt_0" / "0" / "stdout.log").read_bytes() == written
    assert node.out.rstrip(b"\n") == written
    assert node.err.index("FAILED") > 0


def test_console_order_when_both_streams_are_one(place: Place) -> None:
    """With 2>&1 the report comes after the last line of any rank."""
    text = "import os\nfor i in range(3000): os.write(1, b'x%d\\n' % i)\nos.write(2, b'the end\\n'); os._exit(7)\n"
    node = place.command(place.script("t.py", text), merge=True)
    assert node.exit_code() == 7
    lines = node.out.decode().splitlines()
    at = next(i for i, line in enumerate(lines) if line.endswith("FAILED"))
    assert max(i for i, line in enumerate(lines) if line.startswith("x") or line == "the end") < at


def test_every_rank_has_its_own_files_in_every_attempt(place: Place) -> None:
    text = (
        "import os, sys, time\nr, n = os.environ['RANK'], os.environ['TORCHELASTIC_RESTART_COUNT']\n"
        "os.write(1, f'out {r} {n}\\n'.encode()); os.write(2, f'err {r} {n}\\n'.encode())\n"
        "if n == '0' and r == '1': sys.exit(3)\n"
        "time.sleep(0.2); os.write(1, f'late {r} {n}\\n'.encode())\n"
    )
    node = place.command("--nproc-per-node", "2", "--max-restarts", "1", place.script("t.py", text))
    assert node.exit_code() == 0, node.say()
    for attempt in (0, 1):
        files = node.run_dir / f"attempt_{attempt}" / "1"
        assert (files / "stdout.log").read_bytes() == b"out 1 %d\n" % attempt + b"late 1 1\n" * attempt
        assert (files / "stderr.log").read_bytes() == b"err 1 %d\n" % attempt
        assert node.out.count(b"out 1 %d\n" % attempt) == 1  # although the first was over before it could be followed
        assert node.err.count(f"err 1 {attempt}\n") == 1
    assert node.out.count(b"late 1 1\n") == 1
    assert {path.name for path in (node.run_dir / "attempts").iterdir()} == {"attempt-000.json", "attempt-001.json"}


def test_the_report_names_node_rank_cause_and_last_lines(place: Place) -> None:
    text = (
        "import os, sys, time\n"
        "if os.environ['RANK'] == '1':\n"
        "    print('about to read the batch', file=sys.stderr)\n"
        "    raise ValueError('shard 7 is empty')\n"
        "time.sleep(60)\n"
    )
    node = place.command("--nproc-per-node", "2", place.script("t.py", text))
    assert node.exit_code() == 1, node.say()
    (record,) = node.records()
    verdict = record["verdict"]
    assert (verdict["rank"], verdict["class"]) == (1, "user_exception")
    report = node.err[node.err.index("t.py FAILED") :]
    assert "<NO_OTHER_FAILURES>" in report  # the rank that we stopped is none
    root = report[report.index("Root Cause") :]
    for line in (
        f"host      : {verdict['node']}\n",
        "rank      : 1 (local_rank: 1)\n",
        "exitcode  : 1 (pid: ",
        "  ValueError: shard 7 is empty\n",
        "about to read the batch\n",
        "No retry  : no restarts are allowed (--max-restarts 0)\n",
    ):
        assert line in root, line
    assert report.rstrip().splitlines()[-2].startswith("ChildFailedError: ")


def test_a_cry_for_a_lost_peer_is_no_root(place: Place) -> None:
    """Rank 0 cries first; rank 1 had the true cause and says so a moment later."""
    text = (
        "import os, signal, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)  # both have their say\n"
        "def wait(name):\n"
        "    while not os.path.exists(name): time.sleep(0.001)\n"
        "if os.environ['RANK'] == '0':\n"
        "    wait('stands')\n"
        "    open('cried', 'w').close()\n"
        "    raise RuntimeError('[../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer "
        "[127.0.0.1]:4242')\n"
        "open('stands', 'w').close()\n"
        "wait('cried')\n"
        "time.sleep(0.05)\n"
        "raise KeyError('label')\n"
    )
    node = place.command("--nproc-per-node", "2", place.script("t.py", text))
    assert node.exit_code() == 1, node.say()
    (record,) = node.records()
    assert record["verdict"]["rank"] == 1, record["verdict"]
    assert [victim["rank"] for victim in record["verdict"]["victims"]] == [0]
    report = node.err[node.err.index("t.py FAILED") :]
    assert report.index("KeyError") < report.index("Victims   : rank 0 ended because of it\n")


BY_HAND = """
import json, os, sys
trace = "Traceback (most recent call last):\\n  File 't.py', line 1, in f\\nValueError: boom"
told = {"message": "ValueError: boom", "extraInfo": {"py_callstack": trace, "timestamp": "1795951311"}}
open(os.environ["TORCHELASTIC_ERROR_FILE"], "w").write(json.dumps({"message": told}))
sys.exit(9)
"""
PLAIN = """
import json, os, sys
told = {"message": "ValueError: boom", "timestamp": 1795951311}
open(os.environ["TORCHELASTIC_ERROR_FILE"], "w").write(json.dumps(told))
sys.exit(9)
"""
RECORD = """
from torch.distributed.elastic.multiprocessing.errors import record
@record
def main():
    raise ValueError("boom")
main()
"""
RECORDED = {"by hand": (BY_HAND, 9), "plain": (PLAIN, 9), "@record": (RECORD, 1)}


@pytest.mark.parametrize("how", RECORDED)
def test_an_error_file_is_used(place: Place, how: str) -> None:
    text, code = RECORDED[how]
    node = place.command(place.script("t.py", text))
    assert node.exit_code(60) == code, node.say()
    (record,) = node.records()
    (fact,) = (fact for fact in record["evidence"][0]["facts"] if fact["is"] == "exit")
    assert fact["error"]["message"] == "ValueError: boom"
    assert f"error_file: {node.run_dir / 'attempt_0' / '0' / 'error.json'}" in node.err
    assert record["verdict"]["class"] == "user_exception"
    assert "traceback : " in node.err
    assert "ValueError: boom" in node.err[node.err.index("Root Cause") :]


def test_a_console_that_nobody_reads_holds_up_no_rank(place: Place) -> None:
    """Two megabytes into a pipe that is full: the ranks end, the files have it all, and so has a late reader."""
    text = "import os\nfor _ in range(64): os.write(1, b'y' * 32767 + b'\\n')\nopen('ended', 'w').close()\n"
    reader, writer = os.pipe()
    node = place.command(place.script("t.py", text), stdout=writer)
    os.close(writer)
    with open(reader, "rb") as pipe:
        until((place.folder / "ended").exists, "the rank ended", show=place.say)
        assert len(pipe.read()) == 64 * 32768
    assert node.exit_code() == 0, node.say()


def test_events_are_lines_of_json(place: Place) -> None:
    node = place.command(place.script("t.py", f"import sys; assert sys.executable == {sys.executable!r}"))
    assert node.exit_code() == 0, node.say()
    names = [event["event"] for event in node.events()]
    assert [name for name in names if name in ("start", "forming", "running", "done", "exit")] == [
        "start",
        "forming",
        "running",
        "done",
        "exit",
    ]
    reasons = [event.get("why") for event in node.events() if event["event"] in ("done", "exit")]
    assert reasons == ["every rank exited 0", None]  # said once
    assert json.loads((node.run_dir / "attempts" / "attempt-000.json").read_text())["schema_version"] == 1
