"""``remuster explain`` on what real launchers leave, and on logs of any length within a bound of memory and time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

COMMAND = Path(sys.executable).with_name("remuster")
TORCHRUN = Path(sys.executable).with_name("torchrun")
ENV = {"PATH": os.environ["PATH"], "HOME": "/", "OMP_NUM_THREADS": "1"}
RSS_MIB = 96  # the interpreter with click has 25

SCRIPT = """\
import os, time
print("step 1 loss 3", flush=True)
if os.environ["RANK"] == "1":
    {end}
time.sleep(60)
"""
ENDS = {
    "raises": ('raise KeyError("tokens")', "user_data_error"),
    "is killed": ("os.kill(os.getpid(), 9)", "killed_unknown"),
}


MEASURE = """\
import os, sys
pid = os.posix_spawn(sys.argv[1], sys.argv[1:], os.environ)
_, status, usage = os.wait4(pid, 0)
print(usage.ru_maxrss, file=sys.stderr)
sys.exit(os.waitstatus_to_exitcode(status))
"""  # a process's largest RSS counts what it was forked from, which pytest should not be


def explain(*args: str | Path) -> tuple[dict[str, Any], float]:
    """Return what the command said, and its largest RSS in MiB."""
    line = [sys.executable, "-S", "-c", MEASURE, str(COMMAND), "explain", *map(str, args), "--json"]
    done = subprocess.run(line, env=ENV, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), int(done.stderr) / 1024


@pytest.mark.process
@pytest.mark.parametrize("how", [pytest.param("raises", marks=pytest.mark.soak), "is killed"])
def test_what_torchrun_leaves(how: str, tmp_path: Path) -> None:
    end, cls = ENDS[how]
    (tmp_path / "t.py").write_text(SCRIPT.format(end=end))
    line = [str(TORCHRUN), "--standalone", "--nproc-per-node", "2", "--log-dir", "logs", "-r", "3", "-t", "3", "t.py"]
    with (tmp_path / "console").open("wb") as console:
        subprocess.run(line, cwd=tmp_path, env=ENV, stdout=console, stderr=console, timeout=100, check=False)
    for paths in (["console"], ["logs", "console"]):
        told, _ = explain(*(tmp_path / path for path in paths))
        assert (told["class"], told["root_rank"]) == (cls, 1), told
        assert told["exit_status"] == (1 if how == "raises" else -9)
    told, _ = explain(tmp_path / "logs", "--exit", "-15,1" if how == "raises" else "-15,-9")
    assert (told["class"], told["root_rank"]) == (cls, 1)
    assert "/attempt_0/1/std" in told["root_file"]


@pytest.mark.process
@pytest.mark.parametrize("how", ["raises", pytest.param("is killed", marks=pytest.mark.soak)])
def test_what_remuster_leaves(how: str, tmp_path: Path) -> None:
    end, cls = ENDS[how]
    (tmp_path / "t.py").write_text(SCRIPT.format(end=end))
    line = [str(COMMAND), "--nproc-per-node", "2", "--max-restarts", "1", "--log-dir", "logs", "t.py"]
    with (tmp_path / "console").open("wb") as console:
        subprocess.run(line, cwd=tmp_path, env=ENV, stdout=console, stderr=console, timeout=100, check=False)
    told, _ = explain(tmp_path / "logs")
    assert (told["class"], told["root_rank"]) == (cls, 1)
    assert told["exit_status"] == (1 if how == "raises" else -9)  # from the record
    assert "/attempt_" in told["root_file"]
    (record,) = (tmp_path / "logs").glob("*/attempts/attempt-000.json")
    assert json.loads(record.read_text())["verdict"]["fingerprint"] == told["fingerprint"]
    told, _ = explain(tmp_path / "console")
    assert (told["class"], told["root_rank"]) == (cls, 1)


OOM = (
    b"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB. GPU 0 has a total capacity of 79.15 GiB\n"
)


def long_log(kind: str, size: int) -> Iterator[bytes]:
    """A log of that many bytes; in its middle the only line that tells."""
    done = n = 0
    while done < size:
        lines: list[bytes] = []
        for _ in range(5000):
            n += 1
            if kind == "console":
                lines.append(b"[default%d]:2026-03-11 07:00:01 INFO tokens/s %d mem 41.2GiB\n" % (n % 8, n))
            elif kind == "alike":
                lines.append(b"WARNING: RuntimeError in try %d: failed with error 5, going on\n" % n)
            elif kind == "bar":
                lines.append(b"\rTraining:  %d%%|####    | %d/100000 [00:10<10:00, 12.3it/s]" % (n % 100, n))
            else:
                lines.append(b"2026-03-11 07:00:01 INFO tokens/s %d grad_norm 1.23 mem 41.2GiB\n" % n)
        block = b"".join(lines)
        if done <= size // 2 < done + len(block):
            block += {"console": b"[default3]:" + OOM, "bar": b"\n" + OOM}.get(kind, OOM)
        done += len(block)
        yield block


def check_long(kind: str, size: int, folder: Path) -> None:
    with (folder / "long.log").open("wb") as file:
        file.writelines(long_log(kind, size))
    told, rss = explain(folder / "long.log", "--exit", "1")
    assert told["class"] == "cuda_oom", told["sentence"]
    assert told["root_rank"] == (3 if kind == "console" else None)
    assert rss < RSS_MIB


@pytest.mark.process
@pytest.mark.parametrize("kind", ["steps", "console", "alike", "bar"])
def test_a_long_log_in_bounded_memory(kind: str, tmp_path: Path) -> None:
    check_long(kind, 64 << 20 if kind == "steps" else 8 << 20, tmp_path)


@pytest.mark.soak
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("kind", ["steps", "console", "alike", "bar"])
def test_a_gibibyte(kind: str, tmp_path: Path) -> None:
    check_long(kind, 1 << 30, tmp_path)
    (tmp_path / "long.log").unlink()


@pytest.mark.process
def test_a_reader_that_has_seen_enough(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text("ValueError: x\n")
    shell = f"{COMMAND} explain {tmp_path / 'a.log'} | true"
    done = subprocess.run(["bash", "-c", shell], env=ENV, capture_output=True, text=True, timeout=60, check=False)
    assert done.stderr == ""
