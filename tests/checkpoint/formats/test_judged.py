"""What each format says of real checkpoints, whole and torn: verdict, step, world, reason."""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import pickle
import shutil
from pathlib import Path
from typing import Any

import pytest
from checkpoint_samples import SAMPLES, format_name, judged

from remuster.checkpoint.errors import GaveUp
from remuster.checkpoint.formats import dcp, known
from remuster.checkpoint.formats.finding import Question, Torn, Unknown, Whole
from remuster.checkpoint.formats.folder import Folder

needs_torch = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None, reason="needs torch: pip install -r requirements/train.txt"
)
alone = pytest.mark.filterwarnings("ignore:torch.distributed is disabled")  # DCP's words when one process saves


@pytest.mark.parametrize(
    ("path", "name", "step", "world", "how"),
    [
        ("dcp/complete/step-00000005", "dcp", None, 2, "CRC-32 of 41 pieces"),
        ("dcp/safetensors/step-5", "dcp", None, 2, "what the headers in 2 of them say of 29 tensors, and CRC-32 of 13"),
        ("megatron/complete/iter_0000005", "megatron", None, None, "metadata.json"),
        ("colossalai/complete/step-5", "colossalai", 5, None, "running_states.json"),
        ("deepspeed/complete/global_step5", "deepspeed", 5, 2, "2 data-parallel by 1 model-parallel"),
        ("deepspeed/z1b/global_step2", "deepspeed", 2, 2, "3 file(s)"),
        ("deepspeed/z2/global_step2", "deepspeed", 2, 2, "3 file(s)"),
        ("deepspeed/z3/global_step2", "deepspeed", 2, 2, "4 file(s)"),
        ("deepspeed/pipe/global_step2", "deepspeed", 2, 2, "1 data-parallel by 2 model-parallel"),
        ("deepspeed/moe/global_step2", "deepspeed", 2, 2, "7 file(s)"),
        ("deepspeed/universal/global_step2", "deepspeed", 2, None, "4 parameters"),
    ],
)
def test_whole(path: str, name: str, step: int | None, world: int | None, how: str) -> None:
    assert format_name(SAMPLES / path) == name
    finding = judged(SAMPLES / path)
    assert isinstance(finding, Whole)
    assert (finding.step, finding.world) == (step, world)
    assert how in finding.how
    shallow = judged(SAMPLES / path, deep=False)
    assert isinstance(shallow, Whole)
    assert shallow.step == step
    assert "CRC" not in shallow.how


@pytest.mark.parametrize(
    ("path", "name", "reason"),
    [
        ("dcp/torn-rank0-shard-truncated/step-00000010", "dcp", "'.metadata' is missing"),
        ("megatron/torn-shard-truncated/iter_0000010", "megatron", "'.metadata' is missing"),
        ("colossalai/torn-model-shard-empty/step-10", "colossalai", "'model/pytorch_model-00001.bin' is empty"),
        ("deepspeed/torn-model-states-empty/global_step10", "deepspeed", "'mp_rank_00_model_states.pt' is empty"),
    ],
)
def test_torn(path: str, name: str, reason: str) -> None:
    assert format_name(SAMPLES / path) == name
    finding = judged(SAMPLES / path)
    assert isinstance(finding, Torn)
    assert reason in finding.reason


@pytest.mark.parametrize(
    ("path", "gone", "lacking"),
    [
        ("dcp/complete/step-00000005", "__1_0.distcp", "__1_0.distcp"),
        ("megatron/complete/iter_0000005", "metadata.json", "metadata.json"),
        ("megatron/complete/iter_0000005", "common.pt", "common.pt"),
        ("colossalai/complete/step-5", "running_states.json", "running_states.json"),
        *(
            (f"deepspeed/{kind}/global_step2", gone, gone)
            for kind, gone in (
                ("z1b", "bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt"),
                ("z2", "zero_pp_rank_1_mp_rank_00_optim_states.pt"),
                ("z3", "zero_pp_rank_1_mp_rank_00_model_states.pt"),
                ("moe", "layer_0_expert_3_mp_rank_00_model_states.pt"),
                ("universal", "zero/2.bias/exp_avg.pt"),
                ("universal", "zero/2.bias/fp32.pt"),
                ("z2", "mp_rank_00_model_states.pt"),
            )
        ),
    ],
)
def test_files_that_another_node_may_have_are_named(tmp_path: Path, path: str, gone: str, lacking: str) -> None:
    place = copied(tmp_path, path)
    (place / gone).unlink()
    finding = judged(place)
    assert isinstance(finding, Torn)
    assert finding.lacking == (lacking,)


def test_on_a_node_with_its_own_disk_deepspeed_names_all_that_others_have(tmp_path: Path) -> None:
    place = copied(tmp_path, "deepspeed/z2/global_step2")
    for gone in ("mp_rank_00_model_states.pt", "zero_pp_rank_0_mp_rank_00_optim_states.pt"):
        (place / gone).unlink()
    finding = judged(place)
    assert isinstance(finding, Torn)
    assert finding.lacking == ("mp_rank_00_model_states.pt", "zero_pp_rank_0_mp_rank_00_optim_states.pt")


def test_swapped_ranks_of_deepspeed_are_seen(tmp_path: Path) -> None:
    place = copied(tmp_path, "deepspeed/z2/global_step2")
    swap(*(place / f"zero_pp_rank_{rank}_mp_rank_00_optim_states.pt" for rank in (0, 1)))
    finding = judged(place)
    assert isinstance(finding, Torn)
    assert "earlier part of the parameters" in finding.reason


def test_a_tag_of_another_step_is_refused(tmp_path: Path) -> None:
    place = copied(tmp_path, "deepspeed/z2/global_step2").rename(tmp_path / "global_step3")
    assert judged(place) == Torn("it is named 'global_step3', but its model states are of step 2")
    assert isinstance(judged(place.rename(tmp_path / "best")), Whole)


def test_deepspeeds_directory_below_another_is_found(tmp_path: Path) -> None:
    shutil.copytree(SAMPLES / "deepspeed/z2/global_step2", tmp_path / "best" / "checkpoint")
    assert format_name(tmp_path / "best") == "deepspeed"
    finding = judged(tmp_path / "best")
    assert isinstance(finding, Whole)
    assert finding.step == 2


@pytest.mark.parametrize("file", ["__0_0.distcp", "__1_0.distcp"])
def test_a_shard_of_zeros_is_seen_by_reading_it(tmp_path: Path, file: str) -> None:
    place = copied(tmp_path, "dcp/complete/step-00000005")
    (place / file).write_bytes(bytes((place / file).stat().st_size))
    assert isinstance(judged(place, deep=False), Whole)
    finding = judged(place)
    assert isinstance(finding, Torn)
    assert file in finding.reason


def test_a_second_save_into_a_directory_that_was_interrupted_is_seen(tmp_path: Path) -> None:
    place = copied(tmp_path, "dcp/complete/step-00000005")
    shutil.copy(place / ".metadata", place / ".metadata.tmp")
    finding = judged(place)
    assert isinstance(finding, Torn)
    assert "another save" in finding.reason


def test_only_the_unfinished_metadata_is_there(tmp_path: Path) -> None:
    place = copied(tmp_path, "dcp/complete/step-00000005")
    (place / ".metadata").rename(place / ".metadata.tmp")
    finding = judged(place)
    assert isinstance(finding, Torn)
    assert "only .metadata.tmp" in finding.reason


def test_shards_below_a_prefix_are_judged_by_the_metadata_there(tmp_path: Path) -> None:
    shutil.copytree(SAMPLES / "dcp/complete/step-00000005", tmp_path / "step" / "optimizer_0")
    folder = Folder(tmp_path, "step")
    assert isinstance(dcp.shards(folder, "optimizer_0/"), Whole)
    assert isinstance(dcp.shards(folder, "pytorch_model_fsdp_0/"), Torn)


@pytest.mark.parametrize("path", ["dcp/complete/step-00000005", "deepspeed/z2/global_step2"])
def test_reading_ends_when_the_time_is_over(path: str) -> None:
    folder = Folder((SAMPLES / path).parent, Path(path).name)
    with pytest.raises(GaveUp):
        known.judge(folder, Question(2, True, lambda: True), known.format_of(folder))


def test_nothing_that_is_known_is_unknown(tmp_path: Path) -> None:
    (tmp_path / "step-5").mkdir()
    (tmp_path / "step-5" / "weights.h5").write_bytes(b"x")
    assert isinstance(judged(tmp_path / "step-5"), Unknown)


def test_zarr_of_old_megatron_is_unknown(tmp_path: Path) -> None:
    place = copied(tmp_path, "megatron/complete/iter_0000005")
    (place / "metadata.json").write_text('{"sharded_backend": "zarr", "sharded_backend_version": 1}')
    assert isinstance(judged(place), Unknown)


@needs_torch
@alone
@pytest.mark.parametrize("own", [False, True], ids=["one metadata", "one for each rank"])
def test_what_torch_saves_today_is_whole_and_its_damage_seen(tmp_path: Path, own: bool) -> None:
    import torch
    import torch.distributed.checkpoint as dcp_

    state: dict[str, Any] = {"model": {"w": torch.arange(5000.0), "e": torch.zeros(0)}, "step": 7, "b": b"raw"}
    place = tmp_path / "step-7"
    dcp_.save(state, checkpoint_id=place, no_dist=True)
    if own:
        (place / ".metadata").rename(place / "__0.metadata")
        assert isinstance(judged(place, world=None), Unknown)
        assert judged(place, world=2) == Torn(
            "'__1.metadata' is missing: that rank's save did not come to its end", ("__1.metadata",)
        )
    assert isinstance(judged(place, world=1), Whole)
    shard = place / "__0_0.distcp"
    data = shard.read_bytes()
    at = data.index(torch.arange(5000.0).numpy().tobytes())
    shard.write_bytes(data[: at + 4096] + bytes(512) + data[at + 4608 :])
    finding = judged(place, world=1)
    assert isinstance(finding, Torn)
    assert "'model.w'" in finding.reason


@needs_torch
@alone
def test_metadata_that_does_not_say_where_a_tensor_lies_is_damaged(tmp_path: Path) -> None:
    import torch
    import torch.distributed.checkpoint as dcp_

    dcp_.save({"a": torch.ones(9), "b": torch.ones(9)}, checkpoint_id=tmp_path / "step-9", no_dist=True)
    path = tmp_path / "step-9" / ".metadata"
    metadata = pickle.loads(path.read_bytes())
    metadata.storage_data = {k: v for k, v in metadata.storage_data.items() if k.fqn == "a"}
    path.write_bytes(pickle.dumps(metadata))
    finding = judged(tmp_path / "step-9")
    assert isinstance(finding, Torn)
    assert "does not say where 'b' lies" in finding.reason


@needs_torch
@alone
def test_without_checksums_only_sizes_are_known_and_that_is_said(tmp_path: Path) -> None:
    import torch

    shutil.copytree(SAMPLES / "megatron/complete/iter_0000005", tmp_path / "iter_0000005")
    torch.serialization.set_crc32_options(False)
    try:
        torch.save({"iteration": 5}, tmp_path / "iter_0000005" / "common.pt")
        import torch.distributed.checkpoint as dcp_

        dcp_.save({"w": torch.arange(9.0)}, checkpoint_id=tmp_path / "step-9", no_dist=True)
    finally:
        torch.serialization.set_crc32_options(True)
    whole = judged(tmp_path / "iter_0000005")
    assert isinstance(whole, Whole)
    assert whole.step == 5
    bare = judged(tmp_path / "step-9")
    assert isinstance(bare, Whole)
    assert "sizes only of 1: without checksums" in bare.how


def save_legacy(place: Path, *, tensor: int = 2, pipeline: int = 2, iteration: int = 10) -> None:
    """Save what Megatron-LM's save_checkpoint does with --ckpt-format torch and the distributed optimizer."""
    import torch

    for t in range(tensor):
        for p in range(pipeline):
            folder = place / (f"mp_rank_{t:02d}_{p:03d}" if pipeline > 1 else f"mp_rank_{t:02d}")
            folder.mkdir(parents=True)
            args = argparse.Namespace(
                tensor_model_parallel_size=tensor,
                pipeline_model_parallel_size=pipeline,
                world_size=8,
                rank=p * (8 // pipeline) + t,
                use_distributed_optimizer=True,
                no_save_optim=None,
            )
            torch.save(
                {"args": args, "iteration": iteration, "model": {"w": torch.ones(t + 1)}}, folder / "model_optim_rng.pt"
            )
            torch.save({"p": torch.ones(3)}, folder / "distrib_optim.pt")


@needs_torch
def test_megatrons_older_format_is_judged_by_the_arguments_in_it(tmp_path: Path) -> None:
    place = tmp_path / "iter_0000010"
    save_legacy(place)
    assert format_name(place) == "megatron"
    whole = judged(place)
    assert isinstance(whole, Whole)
    assert (whole.step, whole.world) == (10, 8)

    main = place / "mp_rank_01_001" / "model_optim_rng.pt"
    swap(main, place / "mp_rank_00_001" / "model_optim_rng.pt")
    finding = judged(place)
    assert isinstance(finding, Torn)
    assert "swapped or renamed" in finding.reason

    swap(main, place / "mp_rank_00_001" / "model_optim_rng.pt")
    (place / "mp_rank_01_000" / "distrib_optim.pt").unlink()
    finding = judged(place)
    assert isinstance(finding, Torn)
    assert finding.lacking == ("mp_rank_01_000/distrib_optim.pt",)

    other = place.rename(tmp_path / "iter_0000020")
    save_legacy(tmp_path / "iter_0000010")
    assert isinstance(judged(other), Torn)


@needs_torch
def test_megatrons_older_format_of_two_iterations_is_seen(tmp_path: Path) -> None:
    save_legacy(tmp_path / "iter_0000010", pipeline=1)
    save_legacy(tmp_path / "iter_0000015", pipeline=1, iteration=15)
    shutil.copytree(
        tmp_path / "iter_0000015" / "mp_rank_01", tmp_path / "iter_0000010" / "mp_rank_01", dirs_exist_ok=True
    )
    finding = judged(tmp_path / "iter_0000010")
    assert isinstance(finding, Torn)
    assert "is of iteration 10" in finding.reason
    shutil.rmtree(tmp_path / "iter_0000015" / "mp_rank_01")
    assert isinstance(judged(tmp_path / "iter_0000015"), Torn)


def copied(folder: Path, path: str) -> Path:
    return Path(shutil.copytree(SAMPLES / path, folder / Path(path).name))


def swap(a: Path, b: Path) -> None:
    first, second = a.read_bytes(), b.read_bytes()
    a.write_bytes(second)
    b.write_bytes(first)


def test_colossalais_shards_of_safetensors_hold_what_their_index_says(tmp_path: Path) -> None:
    step = tmp_path / "step-5"
    shutil.copytree(SAMPLES / "colossalai" / "complete" / "step-5", step)
    (step / "model" / "pytorch_model-00001.bin").unlink()
    (step / "model" / "pytorch_model.bin.index.json").unlink()
    header = json.dumps({"weight": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}).encode()
    shard = step / "model" / "model-00001.safetensors"
    shard.write_bytes(len(header).to_bytes(8, "little") + header + bytes(8))
    index = step / "model" / "model.safetensors.index.json"
    for named, words in (("weight", "whole"), ("bias", "does not hold 'bias'")):
        index.write_text(json.dumps({"metadata": {}, "weight_map": {named: shard.name}}))
        found = judged(step)
        assert words in (found.reason if isinstance(found, Torn) else "whole"), found
    index.write_text(json.dumps({"metadata": {}, "weight_map": {"weight": shard.name}}))
    os.truncate(shard, shard.stat().st_size - 1)
    assert isinstance(judged(step), Torn)
