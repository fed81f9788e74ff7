"""Drill: ranks are killed in a cgroup of version 2, by a guest's kernel: one for memory, one by somebody."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from command.cluster import COMMAND
from command.outcome import Expected, check_record, check_told
from drills.guest import run, why_not
from drills.test_memory import EATS

pytestmark = [pytest.mark.drill, pytest.mark.skipif(bool(why_not()), reason=why_not())]

LIMIT = """
echo +memory > /sys/fs/cgroup/cgroup.subtree_control
mkdir /sys/fs/cgroup/job && echo 100M > /sys/fs/cgroup/job/memory.max && echo $$ > /sys/fs/cgroup/job/cgroup.procs
export HOME=/mnt XDG_RUNTIME_DIR=/mnt TMPDIR=/mnt
"""
JOB = """
{command} --log-dir /mnt/{name} --nproc-per-node 2 {script} /mnt 1 >/dev/null 2>&1
echo "{name} ended with $?"
cat /mnt/{name}/*/attempts/attempt-000.json; echo
cd /mnt/{name}/*/bundles/attempt-000; echo "{name} keeps" $(stat -c %a * | sort -u); cat evidence.json; echo; cd /
"""
PLAIN = "import os, signal, sys, time\nif os.environ['RANK'] == sys.argv[2]: os.kill(os.getpid(), 9)\ntime.sleep(60)\n"


def test_b30_kills_in_version_2(tmp_path: Path) -> None:
    """Red when only ``memory.oom_control`` is read: nothing is counted then."""
    lines = LIMIT
    for name, text in (("eats", EATS), ("plain", PLAIN)):
        script = tmp_path / f"{name}.py"
        script.write_text(text)
        lines += JOB.format(command=f"{sys.executable} {COMMAND}", script=script, name=name)
    said = run(tmp_path, lines, 100.0)
    eaten = _verdict(said, "eats", Expected("host_oom", 1, "cgroup", first=(1,)))
    assert "1 out-of-memory kill counted for all ranks here (limit 100 MiB, peak" in eaten["sentence"]
    assert {proof["source"] for proof in eaten["evidence"]} == {"kernel log", "cgroup"}
    plain = _verdict(said, "plain", Expected("killed_unknown", 1, "cgroup", first=(1,)))
    assert plain["sentence"].endswith("; the kernel counted no kill for want of memory")


def _verdict(said: str, name: str, expected: Expected) -> dict[str, Any]:
    """Return the verdict of the record that follows the end of a job; it and the bundle are as expected."""
    _, ended, rest = said.partition(f"{name} ended with 137\n")
    assert ended, said
    record, _ = json.JSONDecoder().raw_decode(rest)
    check_record(record, expected)
    _, kept, rest = rest.partition(f"{name} keeps 600\n")
    assert kept, said
    told, _ = json.JSONDecoder().raw_decode(rest)
    check_told(told, record, told["node"], expected)
    found: dict[str, Any] = record["verdict"]
    return found
