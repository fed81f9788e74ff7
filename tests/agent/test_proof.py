"""The first checkpoint after a re-entry is verified, from real files; what was there before proves nothing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from steps_on_disk import published

from remuster.agent.proof import Verifier
from remuster.agent.spec import JobSpec
from remuster.checkpoint.examine import Seen
from remuster.rendezvous.leader_words import Prove
from remuster.rendezvous.records import Round
from remuster.rendezvous.reentered import Reentered


class Stage:
    """A checkpoint directory and what was told of it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.told: list[int] = []
        self.seen: Seen = {}

    async def look(self, *refused: str, directory: Path | None = None) -> int | None:
        """Look once for what is newer than step 150, when ``refused`` had been passed over at the choice of that."""
        chosen = {"path": "/c/x", "name": "x", "step": 150, "refused": [[name, "torn"] for name in refused]}
        history = ((Round(2), json.dumps(chosen).encode()),)
        ask = Prove(Round(2), 1, 4, 150, Reentered(20, "steps"), history, 0, "why")
        spec = JobSpec(1, 1, 4, "run", "t.py", checkpoint_dir=directory or self.directory)
        found = await Verifier(spec, self.seen, lambda _, step: self.told.append(step)).prove(ask)
        assert found is not None
        assert found.round == 2
        return found.step


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


async def test_a_newer_one_that_is_whole_proves_it(stage: Stage) -> None:
    published(stage.directory, 150)
    assert await stage.look() is None
    published(stage.directory, 200)
    assert await stage.look() == 200
    assert stage.told == [200]


async def test_its_content_is_read(stage: Stage) -> None:
    """Sizes and marker are right: red when only these are looked at."""
    path = published(stage.directory, 200) / "part-3"
    path.write_bytes(path.read_bytes()[::-1])
    assert await stage.look() is None
    assert stage.told == []


async def test_one_that_was_there_when_an_older_one_was_chosen_is_not_new(stage: Stage) -> None:
    published(stage.directory, 150)
    name = published(stage.directory, 200).name
    assert await stage.look(name) is None
    published(stage.directory, 160)
    assert await stage.look(name) == 160


async def test_a_directory_that_cannot_be_read_proves_nothing_yet(stage: Stage, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    assert await stage.look(directory=tmp_path / "file") is None
    assert await stage.look(directory=tmp_path / "absent") is None


async def test_without_a_directory_nothing_can_be_seen_ever() -> None:
    spec = JobSpec(1, 1, 4, "run", "t.py")
    ask = Prove(Round(2), 1, 4, 150, Reentered(20, "steps"), (), 0, "why")
    assert await Verifier(spec, {}, lambda *_: None).prove(ask) is None
