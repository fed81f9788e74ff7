"""Real checkpoints are damaged at random: none may be judged whole, but for what its format says it cannot see."""

from __future__ import annotations

import io
import json
import os
import random
import re
import shutil
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from checkpoint_samples import ACCELERATE, SAMPLES, TRAINER, ZERO, format_name, judged, laid, rank_of

from remuster.checkpoint.examine import Asked, Look, examine
from remuster.checkpoint.formats.dcp_metadata import METADATA, read_pieces
from remuster.checkpoint.formats.finding import Whole
from remuster.checkpoint.formats.folder import Folder
from remuster.checkpoint.names import candidate
from remuster.checkpoint.patience import Patience

FEW = 60  # damages of each sample in every run
MANY = 3000  # in the soak


@dataclass(frozen=True)
class Unseen:
    """A damage that a format's checks cannot see, with the reason; docs/checkpoints.md says the same to users."""

    kinds: str  # of damage, as a regular expression
    paths: str  # all files that are touched, likewise
    reason: str


@dataclass(frozen=True)
class Sample:
    """A whole checkpoint: where it lies below tests/checkpoint/samples, its format, the ranks of the coming round."""

    path: str
    format: str
    unseen: tuple[Unseen, ...] = ()
    world: int | None = 2

    def __str__(self) -> str:
        return self.path


SAME_LAYOUT = "both ranks' parts have the same form, and nothing in a file says whose it is"

NO_CHECKSUM = "the numbers carry no checksum"
NOT_COUNTED = "how many there were is not recorded"
CONFIG = r"(config|generation_config)\.json"

WHOLE = [
    Sample("dcp/complete/step-00000005", "dcp"),
    Sample("dcp/safetensors/step-5", "dcp"),
    Sample("megatron/complete/iter_0000005", "megatron"),
    Sample("colossalai/complete/step-5", "colossalai"),
    Sample("deepspeed/complete/global_step5", "deepspeed"),
    Sample("deepspeed/z1b/global_step2", "deepspeed"),
    Sample("deepspeed/z2/global_step2", "deepspeed"),
    Sample(
        "deepspeed/z3/global_step2",
        "deepspeed",
        (Unseen("swap|copy", r"zero_pp_rank_\d_mp_rank_00_(model|optim)_states\.pt", SAME_LAYOUT),),
    ),
    Sample(
        "deepspeed/pipe/global_step2",
        "deepspeed",
        (
            Unseen("swap|copy|rename", r"layer_\d\d-model_states\.pt", "a layer's file does not name the layer"),
            Unseen(
                "delete|rename",
                r"(\.|old/)?layer_01-model_states\.pt(\.bak)?",
                "it has no parameters, so none are gone",
            ),
            Unseen("swap|copy", r"mp_rank_\d\d_model_states\.pt", "model states do not name their model-parallel rank"),
        ),
    ),
    Sample("deepspeed/moe/global_step2", "deepspeed"),
    Sample(
        "deepspeed/universal/global_step2",
        "deepspeed",
        (
            Unseen("swap|copy", r"zero/([^/]+)/(?:exp_avg|exp_avg_sq|fp32|step)\.pt", "a file names no parameter"),
            Unseen(
                "delete", r"zero/[^/]+/(exp_avg|exp_avg_sq|step)\.pt", "a parameter without moments was not optimized"
            ),
        ),
    ),
    Sample(
        "transformers/complete/checkpoint-5",
        "transformers",
        (
            Unseen("zero", r"model\.safetensors", NO_CHECKSUM),
            Unseen("delete|rename", rf"(\.|old/)?{CONFIG}(\.bak)?", "nothing is resumed from it"),
            Unseen("swap", CONFIG, "nothing is resumed from it"),
            Unseen("copy", rf"{CONFIG}|trainer_state\.json", "nothing is resumed from it"),
        ),
    ),
    Sample(
        "accelerate/complete/checkpoint_5",
        "accelerate",
        (
            Unseen("zero", r"model\.safetensors", NO_CHECKSUM),
            Unseen("delete|rename", r"(\.|old/)?(scheduler\.bin|custom_checkpoint_0\.pkl)(\.bak)?", NOT_COUNTED),
        ),
    ),
    Sample(
        "accelerate/two-models/checkpoint_0",
        "accelerate",
        (
            Unseen("zero", r"model(_1)?\.safetensors", NO_CHECKSUM),
            Unseen("swap|copy", r"model(_1)?\.safetensors", "a file of safetensors does not name the model"),
            Unseen("delete|rename", r"(\.|old/)?(optimizer_[01]\.bin|model_[01]\.safetensors)(\.bak)?", NOT_COUNTED),
        ),
        world=1,
    ),
    Sample(
        "orbax/complete/5",
        "orbax",
        (
            Unseen("zero", r"default/ocdbt\.process_\d/d/(184ef5|3bd0fe).*", NO_CHECKSUM),
            Unseen("delete|rename", r"default/(\.|old/)?(_sharding|commit_success\.txt)(\.bak)?", "it may be absent"),
            Unseen("delete", r"default/array_metadatas/process_\d", "older versions write none"),
            Unseen("truncate", r".*commit_success\.txt", "the path after its words says nothing"),
        ),
    ),
]

TRAINERS = tuple(one for s in WHOLE if s.path == TRAINER for one in s.unseen)
ACCELERATES = tuple(one for s in WHOLE if s.path == ACCELERATE for one in s.unseen)
OF_SCHEDULER = Unseen("delete|rename", r"(\.|old/)?scheduler\.bin(\.bak)?", NOT_COUNTED)
NEEDS_NO_SCHEDULER = Unseen("delete|rename", r"(\.|old/)?scheduler\.pt(\.bak)?", "DeepSpeed may hold it itself")
NEEDS_NO_OTHER = Unseen(
    "delete",
    r"(optimizer|pytorch_model_fsdp)_0/.*|scheduler\.pt",
    "DeepSpeed holds an optimizer, and no other is needed",
)
SHARDS = (Unseen("swap|copy", r"__\d_0\.distcp", SAME_LAYOUT),)
TWO_ALIKE = Unseen("swap|copy", r"(optimizer|pytorch_model_fsdp)_0/.*", "both folders of it hold the same sample")

PARTS = [  # of a node that holds the files of these ranks alone
    (Sample(TRAINER, "transformers", TRAINERS), (0,)),
    (Sample(TRAINER, "transformers", TRAINERS, world=4), (0, 1)),
    (Sample(ACCELERATE, "accelerate", ACCELERATES), (1,)),
    (Sample(ACCELERATE, "accelerate", ACCELERATES, world=3), (0, 1)),
    (Sample(ZERO, "deepspeed"), (0,)),
    (Sample("deepspeed/z1b/global_step2", "deepspeed"), (1,)),
    (Sample("deepspeed/z2/global_step2", "deepspeed"), (1,)),
    (Sample("deepspeed/z3/global_step2", "deepspeed"), (0,)),
    (Sample("dcp/own-2/step-5", "dcp"), (0,)),
    (Sample("dcp/own-4/step-5", "dcp", SHARDS, world=4), (2, 3)),
    (Sample("dcp/own-4/step-5", "dcp", SHARDS, world=4), (0, 1, 3)),
    (Sample("trainer over ZeRO", "transformers"), (1,)),
    (Sample("trainer over both", "transformers", (TWO_ALIKE, NEEDS_NO_SCHEDULER, NEEDS_NO_OTHER)), (0,)),
    (Sample("trainer over DCP", "transformers", (TWO_ALIKE,)), (1,)),
    (Sample("accelerate over ZeRO", "accelerate", (OF_SCHEDULER,)), (0,)),
    (Sample("lightning over ZeRO", "lightning"), (1,)),
]

Files = dict[str, bytes]
Damage = tuple[str, tuple[str, ...], Files]  # its kind, the paths it touched, the files afterwards


def truncate(chance: random.Random, files: Files) -> Damage:
    path = chance.choice(sorted(path for path in files if files[path]))
    size = chance.choice([0, len(files[path]) - 1, chance.randrange(len(files[path]))])
    return "truncate", (path,), {**files, path: files[path][:size]}


def zero(chance: random.Random, files: Files) -> Damage:
    path = chance.choice(sorted(path for path in files if files[path]))
    data = files[path]
    length = min(chance.choice([64, 512, 4096, len(data)]), len(data))
    start = chance.randrange(len(data) - length + 1) // chance.choice([1, length]) * 1
    return "zero", (path,), {**files, path: data[:start] + bytes(length) + data[start + length :]}


def swap(chance: random.Random, files: Files) -> Damage:
    a, b = chance.sample(sorted(files), 2)
    return "swap", (a, b), {**files, a: files[b], b: files[a]}


def copy(chance: random.Random, files: Files) -> Damage:
    a, b = chance.sample(sorted(files), 2)
    return "copy", (a, b), {**files, a: files[b]}


def delete(chance: random.Random, files: Files) -> Damage:
    gone = set(chance.sample(sorted(files), chance.randint(1, max(1, len(files) - 1))))
    return "delete", tuple(sorted(gone)), {path: data for path, data in files.items() if path not in gone}


def rename(chance: random.Random, files: Files) -> Damage:
    path = chance.choice(sorted(files))
    head, _, name = path.rpartition("/")
    digits = re.sub(r"\d", lambda digit: str(chance.randrange(10)), name)
    new = chance.choice([f".{name}", f"{name}.bak", digits, f"old/{name}"])
    new = f"{head}/{new}" if head else new
    kept = {other: data for other, data in files.items() if other != path}
    return "rename", (path, new), {**kept, new: files[path]}


DAMAGES: tuple[Callable[[random.Random, Files], Damage], ...] = (truncate, zero, swap, copy, delete, rename)


@pytest.mark.parametrize("sample", WHOLE, ids=str)
def test_no_damaged_checkpoint_is_judged_whole(sample: Sample, tmp_path: Path) -> None:
    damage_it(sample, tmp_path, range(FEW))


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("sample", WHOLE, ids=str)
def test_none_of_thousands_is_judged_whole(sample: Sample, tmp_path: Path) -> None:
    damage_it(sample, tmp_path, range(FEW, FEW + MANY))


def damage_it(sample: Sample, folder: Path, seeds: range) -> None:
    """Judge one damage of the sample for each seed."""
    origin = SAMPLES / sample.path
    files = {str(path.relative_to(origin)): path.read_bytes() for path in origin.rglob("*") if path.is_file()}
    place = folder / origin.name
    shutil.copytree(origin, place)
    assert format_name(place) == sample.format
    assert isinstance(judged(place, sample.world), Whole)
    content = {path: frozenset(contents(Folder(place.parent, place.name), path, files)) for path in files}
    was = files
    for seed in seeds:
        chance = random.Random(seed)
        kind, paths, now = chance.choice(DAMAGES)(chance, files)
        write(place, was, now)
        was = now
        if now == files or allowed(sample, kind, paths):
            continue
        finding = judged(place, sample.world)
        if not isinstance(finding, Whole):
            continue
        folder_now = Folder(place.parent, place.name)
        if {path: frozenset(contents(folder_now, path, now)) for path in now} != content:
            pytest.fail(f"{sample}: seed {seed}: {kind} of {paths} was judged {finding}")


@pytest.mark.parametrize(("sample", "ranks"), PARTS, ids=str)
def test_no_bad_part_is_taken(sample: Sample, ranks: tuple[int, ...], tmp_path: Path) -> None:
    damage_part(sample, ranks, tmp_path, range(FEW // 2))


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(("sample", "ranks"), PARTS, ids=str)
def test_none_of_thousands_of_bad_parts_is_taken(sample: Sample, ranks: tuple[int, ...], tmp_path: Path) -> None:
    damage_part(sample, ranks, tmp_path, range(FEW, FEW + MANY))


def damage_part(sample: Sample, ranks: tuple[int, ...], folder: Path, seeds: range) -> None:
    """Look at one damage of a node's part for each seed, as a node does that is asked for it.

    What is taken must be as it was, as far as the ranks go that it is said to be of: a part of fewer may remain.
    """
    place = laid(sample.path, folder, *ranks)
    files = {str(path.relative_to(place)): path.read_bytes() for path in place.rglob("*") if path.is_file()}
    found = looked(place, sample.world)
    assert (found.whole, found.ranks, found.format) == (True, ranks, sample.format), found
    content = {path: frozenset(contents(Folder(place.parent, place.name), path, files)) for path in files}
    was = files
    for seed in seeds:
        chance = random.Random(seed)
        kind, paths, now = chance.choice(DAMAGES)(chance, files)
        write(place, was, now)
        was = now
        shared = tuple(path for path in paths if kind != "delete" or rank_of(path) is None)
        if now == files or (shared and allowed(sample, kind, shared)):
            continue
        found = looked(place, sample.world)
        if not found.whole:
            continue
        of = found.ranks or tuple(range(sample.world or 1))
        needed = {path for path in files if rank_of(path) in (None, *of)}
        here = Folder(place.parent, place.name)
        if not set(of) <= {*ranks} or any(
            path not in now or frozenset(contents(here, path, now)) != content[path] for path in needed
        ):
            pytest.fail(f"{sample}, ranks {ranks}: seed {seed}: {kind} of {paths} was taken: {found}")


def looked(place: Path, world: int | None) -> Look:
    entry = candidate(place.name, is_file=False)
    assert entry is not None
    return examine(place.parent, entry, Asked(world=world, part=True), Patience(()), {})


def allowed(sample: Sample, kind: str, paths: tuple[str, ...]) -> bool:
    """Say whether the format is known not to see this."""
    return any(
        re.fullmatch(unseen.kinds, kind) and all(re.fullmatch(unseen.paths, path) for path in paths)
        for unseen in sample.unseen
    )


def write(place: Path, was: Files, now: Files) -> None:
    """Make the files below ``place`` what they are now."""
    for path in was.keys() - now.keys():
        (place / path).unlink()
    for path, data in now.items():
        if was.get(path) is not data:
            (place / path).parent.mkdir(parents=True, exist_ok=True)
            (place / path).write_bytes(data)
    for folder, _, _ in os.walk(place, topdown=False):
        if folder != str(place) and not os.listdir(folder):
            os.rmdir(folder)


def contents(folder: Folder, path: str, files: Files) -> Iterator[tuple[object, ...]]:
    """Return what a file says, without what pads it: bytes that nobody reads may be damaged."""
    data = files[path]
    metadata = path.rpartition("__")[0] + METADATA
    if path.endswith(".distcp") and metadata not in files:  # it was saved without collectives
        metadata = path.rpartition("_")[0] + METADATA
    if path.endswith(".distcp") and metadata in files:
        for piece in read_pieces(folder, metadata):
            if piece.file == path.rpartition("/")[2]:
                held = data[piece.offset :]
                whole = members(held[: piece.length]) if held.startswith(b"PK") else tensor(held, piece.name)
                yield piece.name, piece.place, *whole
    elif data.startswith(b"PK"):
        yield from members(data)
    elif path.endswith(".json"):
        yield (json.dumps(json.loads(data)),)
    else:
        yield (data,)


def tensor(data: bytes, name: str) -> Iterator[tuple[object, ...]]:
    """Return what a header says of one tensor; its numbers carry no checksum, so they may be damaged."""
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    place = json.loads(header["__metadata__"]["DCP_SHARDING_INFO"])[name]["saved_offsets"]
    yield tuple(header[name]["shape"]), tuple(place)


def members(data: bytes) -> Iterator[tuple[object, ...]]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        for member in archive.infolist():
            yield member.filename, archive.read(member)
