"""Locks of killed ranks where torch compiles extensions: which go, which stay, and what is said of them."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from remuster.agent.build_locks import clear, directory

HOLDS = "import os, sys; os.open(sys.argv[1], os.O_CREAT | os.O_EXCL); print(flush=True); sys.stdin.read()"


def held(lock: Path) -> subprocess.Popen[bytes]:
    """Start a process that holds a lock as torch's FileBaton does."""
    lock.parent.mkdir(parents=True, exist_ok=True)
    process = subprocess.Popen([sys.executable, "-c", HOLDS, lock], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"\n"
    return process


def kill(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.communicate(timeout=30)


@pytest.mark.parametrize("below", ["fused_adam", "py311_cu128/fused_adam"])
def test_a_killed_holders_lock_goes_and_a_living_ones_stays(tmp_path: Path, below: str) -> None:
    since, lock, other = time.time(), tmp_path / below / "lock", tmp_path / "other" / "lock"
    dead, alive = held(lock), held(other)
    try:
        assert clear(tmp_path, since) == []  # both live
        kill(dead)
        (said,) = clear(tmp_path, since)
        assert said.startswith(f"{lock} is removed: a rank that was killed held it")
        assert (lock.exists(), other.exists()) == (False, True)
    finally:
        kill(dead)
        kill(alive)


def test_one_that_is_older_than_the_ranks_is_left_and_said(tmp_path: Path) -> None:
    lock = tmp_path / "op" / "lock"
    kill(held(lock))
    (said,) = clear(tmp_path, time.time() + 5)
    assert "it is older than the ranks that have just ended; " in said
    assert lock.exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to make another user's lock")
def test_another_users_is_not_ours_to_judge(tmp_path: Path) -> None:
    lock = tmp_path / "op" / "lock"
    kill(held(lock))
    os.chown(lock, 12345, 12345)
    assert clear(tmp_path, 0) == []
    assert lock.exists()


def test_where_there_is_nothing(tmp_path: Path) -> None:
    assert clear(tmp_path / "no", 0) == []


@pytest.mark.parametrize(
    ("environ", "where"),
    [
        ({"TORCH_EXTENSIONS_DIR": "/scratch/ext", "HOME": "/home/u"}, "/scratch/ext"),
        ({"XDG_CACHE_HOME": "/cache", "HOME": "/home/u"}, "/cache/torch_extensions"),
        ({"HOME": "/home/u"}, "/home/u/.cache/torch_extensions"),
        ({"TORCH_EXTENSIONS_DIR": "relative", "HOME": "/home/u"}, None),
        ({}, None),
    ],
)
def test_where_torch_compiles(environ: dict[str, str], where: str | None) -> None:
    assert directory(environ) == (where and Path(where))
