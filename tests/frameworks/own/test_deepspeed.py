"""DeepSpeed's ZeRO-1, in an environment of its own (make frameworks): kills in run, in save, and while it compiles."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from command.cluster import Place
from frameworks.cases import DEEPSPEED
from frameworks.resuming import PATIENCE_S, STEPS, WORLD, Bench, Kill, built_shim, lines, play

BIN = Path(__file__).parents[3] / ".venv-deepspeed" / "bin"

pytestmark = [
    pytest.mark.drill,
    pytest.mark.timeout(1200),
    pytest.mark.skipif(not BIN.exists(), reason="there is no .venv-deepspeed; run make frameworks"),
    pytest.mark.skipif(shutil.which("c++") is None, reason="DeepSpeed compiles an extension; install g++"),
]


@pytest.fixture(scope="module")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What kills ranks."""
    return built_shim(tmp_path_factory.mktemp("shim"))


def environment(extensions: Path) -> Mapping[str, str]:
    """Return what DeepSpeed needs: the CPU, ninja, and where it compiles."""
    path = f"{BIN}:/usr/local/bin:/usr/bin:/bin"
    return {"DS_ACCELERATOR": "cpu", "TORCH_EXTENSIONS_DIR": str(extensions), "PATH": path}


def test_goes_on_to_the_last_bit(place: Place, tmp_path: Path, shim: Path) -> None:
    case = replace(DEEPSPEED, env=environment(tmp_path / "extensions"))
    play(Bench(place, tmp_path, shim, BIN / "python"), case)


def test_a_rank_killed_while_it_compiles_holds_up_nobody(place: Place, tmp_path: Path, shim: Path) -> None:
    """Red without ``build_locks``: both ranks of the second attempt wait in FileBaton.wait without end."""
    bench = Bench(place, tmp_path, shim, BIN / "python")
    case = replace(DEEPSPEED, env=environment(tmp_path / "extensions"))
    kills = tuple(Kill(rank, "open", 1, "/build.ninja") for rank in range(WORLD))  # whichever has the lock
    node, out = bench.start(case, "lost", "--max-restarts", "2", kills=kills)
    assert node.exit_code(2 * PATIENCE_S) == 0, node.say()
    assert [record["state"] for record in node.records()][-2:] == ["retried", "done"], node.say()
    assert "/lock is removed: a rank that was killed held it" in node.err
    assert lines(out, 1)[-1].step == STEPS
