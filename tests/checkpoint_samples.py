"""Real checkpoints of frameworks, kept small in tests/checkpoint/samples, for the tests of their formats."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from remuster.checkpoint.formats.finding import Finding, Question
from remuster.checkpoint.formats.folder import Folder
from remuster.checkpoint.formats.known import format_of, judge, named

SAMPLES = Path(__file__).parent / "checkpoint" / "samples"
RANKED = re.compile(r"(?:.*/)?(?:rng_state_|random_states_|(?:bf16_)?zero_pp_rank_|__)(\d+)[._].*")
TRAINER, ACCELERATE = "transformers/complete/checkpoint-5", "accelerate/complete/checkpoint_5"
ZERO, OWN = "deepspeed/complete/global_step5", "dcp/own-2/step-5"

# What frameworks lay into each other: the outer one's files, and below which names the others' samples are.
NESTED: dict[str, tuple[str, str, dict[str, str]]] = {
    "trainer over ZeRO": (TRAINER, r"(rng|trainer)_state.*", {"global_step5": ZERO}),
    "trainer over DCP": (
        TRAINER,
        r"((rng|trainer)_state|scheduler).*",
        {"pytorch_model_fsdp_0": OWN, "optimizer_0": OWN},
    ),
    "trainer over both": (
        TRAINER,
        r"((rng|trainer)_state|scheduler).*",
        {"global_step5": ZERO, "pytorch_model_fsdp_0": OWN, "optimizer_0": OWN},
    ),
    "accelerate over ZeRO": (ACCELERATE, r"(random_states|scheduler).*", {"pytorch_model": ZERO}),
    "lightning over ZeRO": (TRAINER, "", {"checkpoint": ZERO}),
}


def format_name(path: Path) -> str:
    """Return the name of the format that claims a checkpoint, or ""."""
    found = format_of(Folder(path.parent, path.name))
    return found.name if found else ""


def judged(path: Path, world: int | None = 2, deep: bool = True, format_: str = "", part: bool = False) -> Finding:
    """Judge a checkpoint as the format that claims it does, or as ``format_``."""
    folder = Folder(path.parent, path.name)
    return judge(folder, Question(world, deep, part=part), named(format_) if format_ else format_of(folder))


def rank_of(path: str) -> int | None:
    """Return whose file it is, in a checkpoint; None: no single rank's."""
    found = RANKED.fullmatch(path)
    return int(found[1]) if found else None


def laid(sample: str, directory: Path, *ranks: int) -> Path:
    """Lay a sample, or a nested one, into a directory as a node has it that keeps the files of these ranks alone."""
    outer, files, inner = NESTED.get(sample, (sample, ".*", {}))
    place = directory / ("epoch=0-step=5.ckpt" if sample.startswith("lightning") else Path(outer).name)
    shutil.copytree(SAMPLES / outer, place)
    for path in place.iterdir():
        if not re.fullmatch(files, path.name):
            path.unlink() if path.is_file() else shutil.rmtree(path)
    for name, origin in inner.items():
        shutil.copytree(SAMPLES / origin, place / name)
        if name in ("global_step5", "checkpoint"):
            (place / "latest").write_text(name)
    for path in [path for path in place.rglob("*") if path.is_file()]:
        if rank_of(str(path.relative_to(place))) not in {None, *ranks}:
            path.unlink()
    return place
