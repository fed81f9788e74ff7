"""Checkpoints of which each node holds its own ranks' files alone: whose they are, and what is none such."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from checkpoint_samples import ACCELERATE, NESTED, SAMPLES, TRAINER, ZERO, judged, laid

from remuster.checkpoint.formats.dcp_cuts import not_whole, other_cut
from remuster.checkpoint.formats.dcp_metadata import Cut, read_cuts
from remuster.checkpoint.formats.finding import Finding, Torn, Unknown, Whole
from remuster.checkpoint.formats.folder import Folder

needs_torch = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None, reason="needs torch: pip install -r requirements/train.txt"
)
Z1, Z2, Z3 = (f"deepspeed/{kind}/global_step2" for kind in ("z1b", "z2", "z3"))
OWN2, OWN4, OWN2X2 = (f"dcp/own-{kind}/step-5" for kind in ("2", "4", "2x2"))
OF_TWO = [TRAINER, ACCELERATE, ZERO, Z1, Z2, Z3, OWN2, *NESTED]
RECORDED = {ZERO, Z1, Z2, Z3, *(name for name in NESTED if name != "trainer over DCP")}


def as_part(path: Path, world: int | None = 2, deep: bool = True) -> Finding:
    return judged(path, world, deep, part=True)


def ranks(finding: Finding) -> tuple[int, ...] | None:
    """Whose files are here; None: it is neither a part nor whole."""
    return finding.ranks if isinstance(finding, Whole) else None


def step_of(sample: str) -> int | None:
    """The step in the content."""
    if sample in (ACCELERATE, OWN2, "accelerate over ZeRO"):
        return None
    return 2 if sample in (Z1, Z2, Z3) else 5


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("sample", OF_TWO)
def test_a_nodes_part(sample: str, rank: int, tmp_path: Path) -> None:
    place = laid(sample, tmp_path, rank)
    for deep in (True, False):
        finding = as_part(place, deep=deep)
        assert isinstance(finding, Whole), finding
        assert finding.ranks == (rank,)
        assert finding.world == (2 if sample in RECORDED else None)
        assert finding.step == step_of(sample)
        alone = judged(place, deep=deep)
        assert isinstance(alone, Torn), alone
        assert alone.lacking
        assert all(str(1 - rank) in name for name in alone.lacking)


@pytest.mark.parametrize("sample", [*OF_TWO, "deepspeed/moe/global_step2", "deepspeed/pipe/global_step2"])
def test_what_is_whole_is_no_part(sample: str, tmp_path: Path) -> None:
    place = laid(sample, tmp_path, 0, 1)
    assert as_part(place) == judged(place)
    assert ranks(as_part(place)) == ()


@pytest.mark.parametrize("sample", OF_TWO)
def test_no_ranks_files_at_all(sample: str, tmp_path: Path) -> None:
    assert not ranks(as_part(laid(sample, tmp_path)))


def cut_short(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 9)


def zeroed(path: Path) -> None:
    path.write_bytes(bytes(path.stat().st_size))


def emptied(path: Path) -> None:
    path.write_bytes(b"")


BAD: list[tuple[str, str]] = [
    (TRAINER, "rng_state_0.pth"),
    (TRAINER, "optimizer.pt"),
    (TRAINER, "scheduler.pt"),
    (TRAINER, "model.safetensors"),
    (TRAINER, "trainer_state.json"),
    (ACCELERATE, "random_states_0.pkl"),
    (ACCELERATE, "optimizer.bin"),
    (ACCELERATE, "model.safetensors"),
    (ZERO, "mp_rank_00_model_states.pt"),
    (ZERO, "zero_pp_rank_0_mp_rank_00_optim_states.pt"),
    (Z1, "bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt"),
    (Z3, "zero_pp_rank_0_mp_rank_00_model_states.pt"),
    (Z3, "zero_pp_rank_0_mp_rank_00_optim_states.pt"),
    (OWN2, "__0.metadata"),
    (OWN2, "__0_0.distcp"),
    ("trainer over both", "latest"),
    ("trainer over both", "rng_state_0.pth"),
    ("trainer over both", "global_step5/mp_rank_00_model_states.pt"),
    ("trainer over both", "global_step5/zero_pp_rank_0_mp_rank_00_optim_states.pt"),
    ("trainer over both", "optimizer_0/__0.metadata"),
    ("trainer over both", "pytorch_model_fsdp_0/__0_0.distcp"),
    ("accelerate over ZeRO", "pytorch_model/zero_pp_rank_0_mp_rank_00_optim_states.pt"),
    ("lightning over ZeRO", "checkpoint/zero_pp_rank_0_mp_rank_00_optim_states.pt"),
]


SPOILT = [(sample, file, spoil) for sample, file in BAD for spoil in (cut_short, zeroed, emptied, Path.unlink)]


@pytest.mark.parametrize(
    ("sample", "file", "spoil"),
    [(*one, spoil) for *one, spoil in SPOILT if spoil is not zeroed or one[1] != "model.safetensors"],  # no checksums
    ids=lambda one: getattr(one, "__name__", None),
)
def test_a_part_with_a_bad_file_of_its_own_is_none(
    sample: str, file: str, spoil: Callable[[Path], None], tmp_path: Path
) -> None:
    place = laid(sample, tmp_path, 0)
    spoil(place / file)
    assert not ranks(as_part(place)), as_part(place)


@pytest.mark.parametrize("sample", [TRAINER, ACCELERATE, ZERO, Z1, Z2, Z3, OWN2, "trainer over both"])
def test_another_ranks_file_under_a_ranks_name(sample: str, tmp_path: Path) -> None:
    """Each file of rank 1 in turn stands in the place of rank 0's: torch.save and DCP write names into their files."""
    one, other = laid(sample, tmp_path / "one", 0), laid(sample, tmp_path / "other", 1)
    names = [str(path.relative_to(other)) for path in other.rglob("*") if path.is_file()]
    pairs = [
        (name, mine)
        for name in names
        if (
            mine := name.replace("rank_1", "rank_0")
            .replace("state_1", "state_0")
            .replace("states_1", "states_0")
            .replace("__1", "__0")
        )
        != name
    ]
    assert pairs
    for name, mine in pairs:
        held = (one / mine).read_bytes()
        (one / mine).write_bytes((other / name).read_bytes())
        assert ranks(as_part(one)) is None, (name, as_part(one))
        (one / mine).write_bytes(held)
    assert ranks(as_part(one)) == (0,)


def of_step_4(place: Path) -> None:
    state = json.loads((place / "trainer_state.json").read_text())
    (place / "trainer_state.json").write_text(json.dumps({**state, "global_step": 4}))


def under_another_tag(place: Path) -> None:
    place.rename(place.with_name("global_step6"))


def two_prefixes(place: Path) -> None:
    shutil.copy(
        place / "zero_pp_rank_0_mp_rank_00_optim_states.pt", place / "bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt"
    )


def of_no_rank(place: Path) -> None:
    name = "zero_pp_rank_0_mp_rank_00_optim_states.pt"
    shutil.copy(place / name, place / name.replace("rank_0_", "rank_2_"))


def another_tag_beside(place: Path) -> None:
    (place / "latest").write_text("global_step4")


def interrupted_again(place: Path) -> None:
    shutil.copy(place / "__0.metadata", place / "__0.metadata.tmp")


@pytest.mark.parametrize(
    ("sample", "change", "words"),
    [
        (TRAINER, of_step_4, "trainer_state.json says global_step 4"),
        (ZERO, under_another_tag, "but its model states are of step 5"),
        (ZERO, two_prefixes, "of two saves"),
        (ZERO, of_no_rank, "is of no rank"),
        ("trainer over ZeRO", another_tag_beside, "'latest' names 'global_step4'"),
        (OWN2, interrupted_again, "another save into this directory was interrupted"),
    ],
)
def test_a_part_that_contradicts_itself_is_none(
    sample: str, change: Callable[[Path], None], words: str, tmp_path: Path
) -> None:
    change(laid(sample, tmp_path, 0))
    (place,) = tmp_path.iterdir()
    finding = as_part(place)
    assert isinstance(finding, Torn)
    assert words in finding.reason


@pytest.mark.parametrize(
    ("sample", "gone"),
    [
        ("deepspeed/moe/global_step2", "zero_pp_rank_1_mp_rank_00_optim_states.pt"),
        ("deepspeed/moe/global_step2", "layer_0_expert_3_mp_rank_00_model_states.pt"),
        ("deepspeed/pipe/global_step2", "mp_rank_01_model_states.pt"),
        ("deepspeed/pipe/global_step2", "layer_02-model_states.pt"),
        ("deepspeed/universal/global_step2", "zero/2.bias/fp32.pt"),
        ("dcp/complete/step-00000005", "__1_0.distcp"),
        ("megatron/complete/iter_0000005", "__0_1.distcp"),
    ],
)
def test_what_is_shared_out_otherwise_has_no_parts(sample: str, gone: str, tmp_path: Path) -> None:
    """A rank's number is its data-parallel one no more, or nothing says which rank has what."""
    place = Path(shutil.copytree(SAMPLES / sample, tmp_path / Path(sample).name))
    (place / gone).unlink()
    assert as_part(place) == judged(place)
    assert ranks(as_part(place)) is None or gone.startswith("layer_02")  # see the format's ``unseen``


def test_a_rank_of_zero_3_that_has_one_of_its_two_files(tmp_path: Path) -> None:
    """It is not counted among those whose files are here; the other rank's are as they were."""
    place = laid(Z3, tmp_path, 0, 1)
    for kind, other in (("model", "optim"), ("optim", "model")):
        gone = place / f"zero_pp_rank_1_mp_rank_00_{kind}_states.pt"
        held = gone.read_bytes()
        gone.unlink()
        assert ranks(as_part(place)) == (0,), other
        gone.write_bytes(held)
    for kind, rank in (("model", 0), ("optim", 1)):
        (place / f"zero_pp_rank_{rank}_mp_rank_00_{kind}_states.pt").unlink()
    assert ranks(as_part(place)) is None


def test_the_ranks_of_a_part_are_those_that_all_of_it_has(tmp_path: Path) -> None:
    """Trainer's random state of rank 1 is here, its optimizer's is not; then nobody has all."""
    place = laid("trainer over both", tmp_path, 0)
    shutil.copy(SAMPLES / TRAINER / "rng_state_1.pth", place)
    assert ranks(as_part(place)) == (0,)
    (place / "rng_state_0.pth").unlink()
    assert as_part(place) == Torn("no rank has left all of its files here")


def test_the_number_of_ranks_that_wrote_it_is_told(tmp_path: Path) -> None:
    """It is for those who know all parts to see that it is not that of the coming round."""
    finding = as_part(laid(ZERO, tmp_path, 0), world=4)
    assert isinstance(finding, Whole)
    assert (finding.world, finding.counted) == (2, False)
    trainer = as_part(laid(TRAINER, tmp_path, 0), world=4)
    assert isinstance(trainer, Whole)
    assert trainer.ranks == (0,)


SETS = [(0,), (1,), (2,), (3,), (0, 1), (2, 3), (0, 1, 2), (0, 1, 2, 3)]


@pytest.mark.parametrize("world", [1, 2, 3, 4, 8])
@pytest.mark.parametrize("held", SETS, ids=str)
def test_shards_of_four_ranks_for_another_number(held: tuple[int, ...], world: int, tmp_path: Path) -> None:
    """torch would load them without a word, and leave what is not in them as it was."""
    place = laid(OWN4, tmp_path, *held)
    for deep in (True, False):
        finding = as_part(place, world, deep)
        if world == 4:
            assert ranks(finding) == (() if len(held) == 4 else held)
        else:
            assert not isinstance(finding, Whole), finding


@pytest.mark.parametrize("world", [2, 3, 4, 8])
@pytest.mark.parametrize("held", SETS, ids=str)
def test_a_mesh_of_two_dimensions_is_taken_as_a_whole_alone(held: tuple[int, ...], world: int, tmp_path: Path) -> None:
    """Each half of the ranks has all; what one of them has is cut as for two ranks, and may be loaded by two."""
    place = laid(OWN2X2, tmp_path, *held)
    finding = as_part(place, world)
    if (held, world) in (((0, 1), 2), ((0, 1, 2, 3), 4)):
        assert ranks(finding) == ()
    elif world == 2 and len(held) == 1 and held[0] < 2:
        assert ranks(finding) == held
    else:
        assert not isinstance(finding, Whole), finding


def test_shards_that_two_saves_left_are_not_whole(tmp_path: Path) -> None:
    """Two ranks saved into the directory of four: the parts are more than all of it."""
    place = laid(OWN4, tmp_path, 0, 1, 2, 3)
    shutil.copytree(SAMPLES / OWN2, place, dirs_exist_ok=True)
    finding = judged(place, 4)
    assert isinstance(finding, Torn)
    assert "of two saves" in finding.reason
    assert not isinstance(as_part(place, 2), Whole)


def test_a_ranks_metadata_that_names_another_ranks_shard(tmp_path: Path) -> None:
    """It was renamed: nothing but the names tells, where nothing in it is cut."""
    place = Path(shutil.copytree(SAMPLES / "dcp/complete/step-00000005", tmp_path / "step-00000005"))
    (place / ".metadata").rename(place / "__0.metadata")
    assert judged(place, 1) == Torn("'__0.metadata' names '__1_0.distcp': another rank wrote it")


def rows(size: int, world: int, rank: int) -> Cut:
    """Cut as torch.chunk does."""
    most = -(-size // world)
    start = min(rank * most, size)
    return Cut("w", (size, 3), (start, 0), (min(most, size - start), 3))


def test_of_how_many_ranks_rows_are() -> None:
    """A part is taken for another number of ranks just where each of them would look for that very part."""
    for size in range(20):
        for wrote in range(1, 9):
            for rank in range(wrote):
                cut = rows(size, wrote, rank)
                for world in range(rank + 1, 9):
                    same = rows(size, world, rank)
                    nothing = cut.part[0] == 0 == same.part[0]
                    all_of_it = cut.part == cut.size  # as what is not cut at all
                    right = cut == same or nothing or all_of_it
                    assert (not other_cut([cut], rank, world)) == right, (size, wrote, rank, world)
            for world in range(1, 9):
                first = [rows(size, wrote, rank) for rank in range(min(wrote, world))]
                if wrote >= world and not not_whole(first):
                    assert all(cut.part == rows(size, world, rank).part for rank, cut in enumerate(first))


@pytest.mark.drill  # for its length
@needs_torch
def test_what_torch_saves_today(tmp_path: Path) -> None:
    """It cuts as in the samples; and it still loads four ranks' parts as two without a word, which is why all this is.

    A part that holds nothing cut could be of any number of ranks, each of which finds all in its own.
    """
    script = Path(__file__).parent.parent / "own_metadata.py"
    environ = {**os.environ, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, script, tmp_path], capture_output=True, text=True, env=environ, timeout=100, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.split() == ["wrong", "wrong"]
    for sample in (OWN2, OWN4, OWN2X2):
        kept, now = (Folder(top.parent, top.name) for top in (SAMPLES / sample, tmp_path / sample.partition("/")[2]))
        assert set(kept.files) == set(now.files)
        for name in kept.files:
            if name.endswith(".metadata"):
                assert read_cuts(kept, name) == read_cuts(now, name)
    same = tmp_path / "own-same" / "step-5"
    assert isinstance(judged(same, 2), Whole)
    assert ranks(as_part(same, 4)) == (0, 1)
    assert isinstance(as_part(same, 1), Torn)
    assert isinstance(as_part(same, None), Unknown)
