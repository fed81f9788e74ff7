"""docs/migrating.md can be typed: its lines are understood, those for one node run; all torchrun's flags are there."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from string import Template

import pytest
from command.cluster import Place

from remuster.launcher import cli
from remuster.launcher.flags import FLAGS

PAGE = (Path(__file__).parents[2] / "docs" / "migrating.md").read_text()
WORDS = {"HEAD": "127.0.0.1", "R": "1", "SLURM_NNODES": "4", "SCRATCH": "scratch"}
UNDERSTOOD = 7
RANK = "import os\nprint(os.environ['RANK'], 'of', os.environ['WORLD_SIZE'])\n"


def lines() -> Iterator[str]:
    """Yield each command line in a box of the page, on one line."""
    for box in re.findall(r"^```(?:bash)?\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL):
        for line in box.replace("\\\n", " ").splitlines():
            if re.search(r"\bremuster --", line):
                yield " ".join(line.split())


LINES = tuple(lines())


def words(line: str) -> tuple[dict[str, str], list[str]]:
    """Return what a shell makes of a line: variables in front, and the command's arguments."""
    before, _, after = line.partition("remuster --")
    env = dict(pair.split("=", 1) for pair in before.split() if re.fullmatch(r"[A-Z_]+=\w+", pair))
    return env, shlex.split(Template(f"--{after}").safe_substitute(WORDS))


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    """Where the commands are started, with the scripts that they name."""
    made = Place(tmp_path / "place")
    made.script("train.py", RANK)
    (made.folder / "pkg").mkdir()
    made.script("pkg/train.py", RANK)
    yield made
    made.close()


def test_there_are_lines() -> None:
    assert len(LINES) >= 9
    assert len({*LINES}) == len(LINES)


@pytest.mark.parametrize("line", LINES)
def test_a_line_is_understood(line: str, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place.folder)
    env, argv = words(line.replace("=gpu", " 2"))  # there may be none here
    slurm = {"SLURM_JOB_ID": "4711"} if "--rdzv-backend" in line else {}
    assert cli.run(argv, env | slurm, lambda spec: UNDERSTOOD) == UNDERSTOOD


@pytest.mark.process
@pytest.mark.parametrize("line", [line for line in LINES if "--nnodes" not in line and "srun" not in line])
def test_a_line_for_one_node_runs(line: str, place: Place) -> None:
    env, argv = words(line.replace("=gpu", " 2"))
    node = place.command(*argv, env=env)
    assert node.exit_code() == 0, node.say()
    world = int(argv[next(at for at, word in enumerate(argv) if "nproc" in word) + 1])
    assert sorted(node.out.decode().splitlines()) == [f"{rank} of {world}" for rank in range(world)]


@pytest.mark.parametrize("name", [flag.name for flag in FLAGS if not flag.ours and flag.name != "help"])
def test_every_flag_of_torchruns_has_a_row(name: str) -> None:
    assert re.search(rf"^\|.*`--{re.escape(name)}`.* \| .* \|$", PAGE, re.MULTILINE)
