"""What verifying costs in memory: nothing stays, however many threads of an agent have read a file."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

THREADS, TURNS, MOST_KIB = 12, 4, 4096

READS = f"""
import os, sys, threading
from pathlib import Path
from remuster.checkpoint.digest import sha256_of

def resident_kib():
    fields = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines() if ":" in line)
    return int(fields["VmRSS"].split()[0])

def read(meet):
    meet.wait()  # all at once, so that malloc gives each an arena of its own
    for _ in range({TURNS}):
        fd = os.open(sys.argv[1], os.O_RDONLY)
        assert sha256_of(fd)[0] == 1000
        os.close(fd)
    meet.wait()

def all_read():
    meet = threading.Barrier({THREADS})
    threads = [threading.Thread(target=read, args=(meet,)) for _ in range({THREADS})]
    for thread in threads: thread.start()
    for thread in threads: thread.join()

before = resident_kib()
for _ in range(3): all_read()
print(resident_kib() - before)
"""


def test_no_thread_keeps_the_block_that_it_read_with(tmp_path: Path, child_environ: dict[str, str]) -> None:
    (tmp_path / "file").write_bytes(b"x" * 1000)
    command = [sys.executable, "-c", READS, str(tmp_path / "file")]
    done = subprocess.run(command, env=child_environ, capture_output=True, text=True, timeout=60, check=True)
    assert int(done.stdout) <= MOST_KIB
