"""What ranks write: whole in their files, on the console before the report, and what the report says of it."""

from __future__ import annotations

import json
import sys

import pytest
from command.cluster import Place, until

pytestmark = pytest.mark.process

LINES = 20_000


def test_the_last_byte_is_on_the_console_before_the_report(place: Place) -> None:
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
    script = place.script("t.py", text)
    shell = f'exec "$0" "$@" 2>&1'  # noqa: F541
    node = place.command("--no-python", "true")  # its folder gives the second one a home
    assert node.exit_code() == 0
    import subprocess

    from command.cluster import COMMAND

    done = subprocess.run(
        ["/bin/sh", "-c", shell, COMMAND, "--log-dir", place.folder / "l2", script],
        env=place.env,
        cwd=place.folder,
        stdout=subprocess.PIPE,
        timeout=60,
        check=False,
    )
    lines = done.stdout.decode().splitlines()
    assert done.returncode == 7
    at = next(i for i, line in enumerate(lines) if line.endswith("FAILED"))
    assert max(i for i, line in enumerate(lines) if line.startswith("x") or line == "the end") < at


def test_every_rank_has_its_own_files_in_every_attempt(place: Place) -> None:
    text = (
        "import os, sys\nr, n = os.environ['RANK'], os.environ['TORCHELASTIC_RESTART_COUNT']\n"
        "print('out', r, n); print('err', r, n, file=sys.stderr)\nsys.exit(3 * (n == '0' and r == '1'))\n"
    )
    node = place.command("--nproc-per-node", "2", "--max-restarts", "1", place.script("t.py", text))
    assert node.exit_code() == 0, node.say()
    for attempt in (0, 1):
        files = node.run_dir / f"attempt_{attempt}" / "1"
        assert (files / "stdout.log").read_bytes() == b"out 1 %d\n" % attempt
        assert (files / "stderr.log").read_bytes() == b"err 1 %d\n" % attempt
    assert {path.name for path in (node.run_dir / "attempts").iterdir()} == {"attempt-000.json", "attempt-001.json"}


def test_the_report_names_the_root_and_the_victims_apart(place: Place) -> None:
    text = (
        "import os, sys, time\n"
        "if os.environ['RANK'] == '1':\n"
        "    print('about to read the batch', file=sys.stderr)\n"
        "    raise ValueError('shard 7 is empty')\n"
        "while not os.path.exists('go'): time.sleep(0.01)\n"
        "def _reduce():\n"
        "    raise RuntimeError('[../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer "
        "[127.0.0.1]:4242')\n"
        "import signal\n"
        "signal.signal(signal.SIGTERM, lambda *_: _reduce())\n"
        "open('stands-' + os.environ['RANK'], 'w').close()\n"
        "time.sleep(60)\n"
    )
    script = place.script("t.py", text.replace("while not os.path.exists('go'): time.sleep(0.01)\n", ""))
    node = place.command("--nproc-per-node", "2", script)
    assert node.exit_code() == 1, node.say()
    (record,) = node.records()
    verdict = record["verdict"]
    assert (verdict["rank"], verdict["class"]) == (1, "user_exception")
    assert "ValueError: shard 7 is empty" in verdict["line"]
    report = node.err[node.err.index("t.py FAILED") :]
    root = report[report.index("Root Cause") :]
    assert "rank      : 1 (local_rank: 1)" in root
    assert "exitcode  : 1 (pid: " in root
    assert f"host      : {verdict['node']}" in root
    assert "about to read the batch" in root
    assert "ChildFailedError: " in report


def test_a_cry_for_a_lost_peer_is_no_root(place: Place) -> None:
    """Rank 0 cries first, rank 1 dies of the true cause a moment later."""
    text = (
        "import os, sys, time\n"
        "if os.environ['RANK'] == '0':\n"
        "    raise RuntimeError('[/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:547] Connection closed by peer "
        "[127.0.0.1]:4242')\n"
        "import signal\n"
        "def fail(*_): raise KeyError('label')\n"
        "signal.signal(signal.SIGTERM, fail)\n"
        "fail()\n"
    )
    node = place.command("--nproc-per-node", "2", place.script("t.py", text))
    assert node.exit_code() == 1, node.say()
    (record,) = node.records()
    assert record["verdict"]["rank"] == 1, record["verdict"]
    assert [victim["rank"] for victim in record["verdict"]["victims"]] == [0]
    report = node.err[node.err.index("t.py FAILED") :]
    assert report.index("KeyError") < report.index("Victims (they ended because of it):")
    assert "rank 0 on " in report[report.index("Victims") :]


RECORDED = {
    "by hand": (
        "import json, os, sys, time\n"
        "told = {'message': 'ValueError: boom', 'extraInfo': {'py_callstack': 'Traceback: at the place', "
        "'timestamp': str(int(time.time()))}}\n"
        "open(os.environ['TORCHELASTIC_ERROR_FILE'], 'w').write(json.dumps({'message': told}))\nsys.exit(9)\n",
        9,
    ),
    "@record": (
        "from torch.distributed.elastic.multiprocessing.errors import record\n"
        "@record\ndef main():\n    raise ValueError('boom')\nmain()\n",
        1,
    ),
}


@pytest.mark.parametrize("how", RECORDED)
def test_an_error_file_is_used(place: Place, how: str) -> None:
    text, code = RECORDED[how]
    node = place.command(place.script("t.py", text))
    assert node.exit_code(60) == code, node.say()
    (record,) = node.records()
    (fact,) = record["evidence"][0]["facts"]
    assert fact["error"]["message"] == "ValueError: boom"
    assert f"error_file: {node.run_dir / 'attempt_0' / '0' / 'error.json'}" in node.err
    assert record["verdict"]["class"] == "user_exception"
    assert "Traceback" in node.err


def test_a_console_that_nobody_reads_holds_up_no_rank(place: Place) -> None:
    """A megabyte into a pipe that is full: the ranks end, the files have it all."""
    import os
    import subprocess

    from command.cluster import COMMAND

    text = "import os\nfor _ in range(64): os.write(1, b'y' * 32767 + b'\\n')\nopen('ended', 'w').close()\n"
    script = place.script("t.py", text)
    reader, writer = os.pipe()
    process = subprocess.Popen(
        [COMMAND, "--log-dir", place.folder / "l3", script],
        env=place.env,
        cwd=place.folder,
        stdout=writer,
        stderr=subprocess.DEVNULL,
    )
    os.close(writer)
    try:
        until((place.folder / "ended").exists, "the rank ended")
        with open(reader, "rb") as pipe:
            assert len(pipe.read()) == 64 * 32768
        assert process.wait(30) == 0
    finally:
        process.kill()
        process.wait()


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
    assert json.loads((node.run_dir / "attempts" / "attempt-000.json").read_text())["schema_version"] == 1
