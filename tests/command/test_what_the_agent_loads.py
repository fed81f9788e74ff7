"""The agent's process stays small: what it has imported when it ends, asked of the real one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command.cluster import Cluster, Place

pytestmark = pytest.mark.process

# On PYTHONPATH every interpreter of the job runs it; the keeper leaves without atexit, ranks load no loop.
DUMP = """
import atexit, json, os, sys
def dump():
    if "remuster.agent.loop" in sys.modules:
        with open(os.path.join(os.environ["LOADED"], str(os.getpid())), "w") as file:
            json.dump(sorted(sys.modules), file)
atexit.register(dump)
"""
# The same for the moment at which the first round's directories are made: the next thing is to start its ranks.
LOOK = """
import os, sys
def look(event, args):
    if event == "os.mkdir" and "attempt_0" in str(args[0]):
        with open(os.path.join(os.environ["LOADED"], str(os.getpid())), "w") as file:
            file.write(" ".join(sorted(sys.modules)))
sys.addaudithook(look)
"""
LATER = {
    *("structlog", "click", "psutil", "pynvml", "grpc", "ssl", "http", "urllib.request", "remuster.agent.counsel"),
    *("remuster.agent.gpu_watch", "remuster.agent.gpu_cards"),
    *("tempfile", "shutil", "random", "hashlib", "encodings.idna", "difflib", "uuid", "datetime"),
}
NEVER = {"torch", "numpy", "rich", "better_exceptions", "http.server", "pydantic", "sqlite3", "multiprocessing"}
NEVER |= {"remuster.agent.relay", "remuster.agent.log_writer"}  # without a terminal, and on a disk
ALONE = {"grpc", "google.protobuf"}


def spy(place: Place, program: str = DUMP) -> tuple[dict[str, str], Path]:
    """Return an environment that tells what is loaded, with a ``rich`` to be imported; and its folder."""
    path, loaded = place.folder / "spy", place.folder / "loaded"
    (path / "rich").mkdir(parents=True)
    loaded.mkdir()
    (path / "sitecustomize.py").write_text(program)
    (path / "rich" / "__init__.py").write_text(f"open({str(loaded / 'rich')!r}, 'w').close()\n")
    return {"PYTHONPATH": str(path), "LOADED": str(loaded)}, loaded


def loaded_by_the_agent(folder: Path) -> set[str]:
    (found,) = folder.iterdir()
    assert found.name != "rich", "somebody imported rich"
    return set(json.loads(found.read_text()))


def test_alone(place: Place) -> None:
    env, loaded = spy(place)
    script = place.script("t.py", "import os, sys; sys.exit(3 * (os.environ['TORCHELASTIC_RESTART_COUNT'] == '0'))")
    node = place.command("--max-restarts", "1", "--checkpoint-dir", place.folder / "kept", script, env=env)
    assert node.exit_code() == 0, node.say()
    names = loaded_by_the_agent(loaded)
    assert "structlog" in names  # it is the right process, and it has logged
    assert names & (NEVER | ALONE) == set()


def test_with_etcd(cluster: Cluster) -> None:
    env, loaded = spy(cluster)
    node = cluster.start(2, "--nnodes", "1", cluster.script("t.py", ""), env=env)
    assert node.exit_code() == 0, node.say()
    names = loaded_by_the_agent(loaded)
    assert "grpc" in names
    assert names & NEVER == set()


def test_before_the_first_rank(place: Place) -> None:
    """A start is a promise in milliseconds: what can wait is loaded once the first ranks run."""
    env, loaded = spy(place, LOOK)
    node = place.command(place.script("t.py", ""), env=env)
    assert node.exit_code() == 0, node.say()
    (found,) = loaded.iterdir()
    names = set(found.read_text().split())
    assert "remuster.agent.loop" in names  # it is the right process
    assert names & LATER == set()
