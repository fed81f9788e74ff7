"""A rank is killed while it holds torch's lock of an extension that it compiles: nobody waits for it afterwards."""

from __future__ import annotations

from pathlib import Path

import pytest
from command.cluster import Place

pytest.importorskip("torch", reason="needs torch; see requirements/train.txt")
pytestmark = [pytest.mark.drill, pytest.mark.timeout(300)]

COMPILES = """
import os, pathlib, signal, sys
from torch.utils.file_baton import FileBaton

place = pathlib.Path(sys.argv[1], "op")
place.mkdir(exist_ok=True)
baton = FileBaton(str(place / "lock"))
if baton.try_acquire():
    if os.environ["REMUSTER_ATTEMPT"] == "0":
        os.kill(os.getpid(), signal.SIGKILL)
    baton.release()
else:
    baton.wait()
"""


def test_the_lock_of_a_killed_rank_holds_up_nobody(place: Place, tmp_path: Path) -> None:
    """Red without ``build_locks``: the ranks of the second attempt wait in FileBaton.wait until the time limit."""
    env = {"TORCH_EXTENSIONS_DIR": str(tmp_path)}
    script = place.script("t.py", COMPILES)
    node = place.command("--nproc-per-node", "2", "--max-restarts", "1", script, tmp_path, env=env)
    assert node.exit_code(120) == 0, node.say()
    assert [record["state"] for record in node.records()] == ["retried", "done"]
    assert f"{tmp_path}/op/lock is removed: a rank that was killed held it" in node.err
