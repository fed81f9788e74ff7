"""The way back in: what all ranks of all nodes re-enter from, found in a directory or named by a hook."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command.cluster import Cluster, Place

pytestmark = pytest.mark.process

TESTS = Path(__file__).parents[1]

# Publishes steps 5 and 10, spoils the latter and fails; in the second round everybody says where it re-enters.
TRAINER = """
import os, sys, time
from pathlib import Path
from remuster import checkpoint, resume_point
desk, rank = Path(sys.argv[1]), os.environ["RANK"]
point = resume_point()
said = f"{point.step} {point.path}" if point else "nothing"
(desk / f"resumed-{os.environ['REMUSTER_ROUND']}-{rank}").write_text(said)
if point:
    (desk / f"step-{point.step}").write_text((point.path / "state").read_text())
    sys.exit(0)
if rank != "0":
    time.sleep(60)
for step in (5, 10):
    with checkpoint.publish(step, gather=lambda text: [text], rank=0) as p:
        p.path("state").write_text(f"after {step}")
with open(os.path.join(os.environ["REMUSTER_CHECKPOINT_DIR"], "step-000000000010", "state"), "a") as file:
    file.write(", and a bit")
sys.exit(3)
"""


def test_the_newest_verified_checkpoint_for_all_ranks_of_all_nodes(cluster: Cluster) -> None:
    script, kept = cluster.script("train.py", TRAINER), cluster.folder / "kept"
    args = ("--nnodes", "2", "--max-restarts", "1", "--checkpoint-dir", kept, script, cluster.desk)
    nodes = [cluster.start(number, *args) for number in (2, 3)]
    assert [node.exit_code() for node in nodes] == [0, 0], cluster.say()
    said = {path.name: path.read_text() for path in cluster.desk.glob("resumed-*")}
    five = f"5 {kept / 'step-000000000005'}"
    assert {name: said[name] for name in ("resumed-1-0", "resumed-2-0", "resumed-2-1")} == {
        "resumed-1-0": "nothing",
        "resumed-2-0": five,
        "resumed-2-1": five,
    }
    assert (cluster.desk / "step-5").read_text() == "after 5"
    assert (kept / "step-000000000010").is_dir()  # spoiled, passed over, and kept
    first, second = nodes[0].records()
    assert first["resume"] is None
    assert (second["resume"]["step"], second["resume"]["path"]) == (5, str(kept / "step-000000000005"))
    (refused,) = second["refused"]
    assert refused["name"] == "step-000000000010"
    assert refused["reason"]
    cluster.check_left()


def test_what_was_passed_over_is_evidence_of_the_round_that_failed(place: Place) -> None:
    """Red when ``Crew.collect`` leaves it out."""
    kept = place.folder / "kept"
    (kept / "step-000000000010").mkdir(parents=True)
    node = place.command("--checkpoint-dir", kept, place.script("t.py", "raise SystemExit(3)"))
    assert node.exit_code() == 3, node.say()
    (record,) = node.records()
    (hook,) = [fact for one in record["evidence"] for fact in one["facts"] if fact["is"] == "hook"]
    assert hook["text"].startswith("checkpoint step-000000000010 is passed over: ")
    assert any("step-000000000010 is passed over" in unused for unused in record["verdict"]["unused"])


FUNCTION = """
def choose(question):
    print("a word for the log")
    assert question["world_size"] == 2, question
    return {"path": "mine", "step": 7, "format": "own", "env": {"MYJOB_SHARD": "3"}}
"""
TELLS = """
import os, sys
from remuster import resume_point
point = resume_point()
open(f"said-{os.environ['RANK']}", "w").write(f"{point.step} {point.path} {os.environ['MYJOB_SHARD']}")
"""
ANSWER = '{"path": "mine", "step": 7, "env": {"MYJOB_SHARD": "3"}}'


@pytest.mark.parametrize("hook", ["hooks:choose", "/bin/sh hook.sh"])
def test_a_hooks_answer_reaches_all_ranks(place: Place, hook: str) -> None:
    place.script("hooks.py", FUNCTION)
    place.script("hook.sh", f"cat >question\necho '{ANSWER}'\n")
    (place.folder / "mine").mkdir()
    node = place.command("--nproc-per-node", "2", "--resume-hook", hook, place.script("t.py", TELLS))
    assert node.exit_code() == 0, node.say()
    for rank in (0, 1):
        assert (place.folder / f"said-{rank}").read_text() == f"7 {place.folder / 'mine'} 3"
    if "sh" in hook:
        assert json.loads((place.folder / "question").read_text())["world_size"] == 2


def test_a_hook_that_fails_ends_the_job_in_words(place: Place) -> None:
    node = place.command("--resume-hook", "/bin/sh hook.sh", place.script("t.py", "open('ran', 'w')"))
    place.script("hook.sh", "echo no such bucket >&2\nexit 4\n")
    assert node.exit_code() == 1, node.say()
    assert "ended with exit code 4: no such bucket" in node.err
    assert not (place.folder / "ran").exists()


# An unchanged script of any framework: it knows nothing of remuster, and takes a path among its arguments.
UNCHANGED = """
import os, sys, time
from pathlib import Path
from like_torch import dcp
kept, desk, given = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:]
(desk / f"given-{os.environ['TORCHELASTIC_RESTART_COUNT']}-{os.environ['RANK']}").write_text(" ".join(given))
if given:
    sys.exit(0)
if os.environ["RANK"] == "0":
    dcp(kept, "step-10")
    dcp(kept, "step-20")
    os.rename(kept / "step-20" / ".metadata", kept / "step-20" / ".metadata.tmp")
    while not (desk / "given-0-1").exists():
        time.sleep(0.01)
    os._exit(1)  # in mid-save
import signal; signal.pause()
"""


def test_an_unchanged_script_resumes_by_an_argument(place: Place) -> None:
    script, kept = place.script("train.py", UNCHANGED), place.folder / "kept of ours"
    args = ("--nproc-per-node", "2", "--max-restarts", "1", "--checkpoint-dir", kept)
    template = "--checkpoint-arg=--resume={path} --at {step}"
    node = place.command(*args, template, script, kept, place.desk, env={"PYTHONPATH": str(TESTS)})
    assert node.exit_code() == 0, node.say()
    said = {path.name: path.read_text() for path in place.desk.glob("given-*")}
    given = f"--resume={kept / 'step-10'} --at 10"
    assert said == {"given-0-0": "", "given-0-1": "", "given-1-0": given, "given-1-1": given}
    first, second = node.records()
    assert first["resume"] is None
    assert {name: second["resume"][name] for name in ("step", "path", "format")} == {
        "step": 10,
        "path": str(kept / "step-10"),
        "format": "dcp",
    }
    assert [one["name"] for one in second["refused"]] == ["step-20"]
    assert "only .metadata.tmp" in second["refused"][0]["reason"]
