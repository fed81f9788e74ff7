"""Cases of DCP, Megatron and DeepSpeed."""

from __future__ import annotations

import os
import pickle
import shutil
from argparse import Namespace
from pathlib import Path

import pytest
from checkpoint_samples import SAMPLES
from like_torch import Holder
from made_files import torch_file
from unseen_checkpoints import Case, after, copy, cut, differences, flip, foreign, half, rebuilt, zero

DCP = "dcp/complete/step-00000005"
MEGATRON = "megatron/complete"
ZERO1 = "deepspeed/complete"


def dcp(d: Path, name: str = "step-10") -> Path:
    return copy(DCP, d / name)


def older(d: Path) -> Path:
    """A whole one of step 5, and a newer one, of step 10, to be damaged."""
    copy(DCP, d / "step-5")
    return dcp(d)


def harmful(d: Path) -> None:
    """A pickle that would run a command."""
    (older(d) / ".metadata").write_bytes(b"cposix\nsystem\n(S'touch " + str(d / "ran").encode() + b"'\ntR.")


def outside(d: Path) -> None:
    step = older(d)
    info = Holder(relative_path="../step-5/__0_0.distcp", offset=0, length=10)
    told = Holder(
        state_dict_metadata={"w": Holder()},
        planner_data={},
        storage_data={Holder(fqn="w", offset=None, index=None): info},
    )
    (step / ".metadata").write_bytes(pickle.dumps(told))


def fifo(d: Path) -> None:
    step = older(d)
    (step / "__0_0.distcp").unlink()
    os.mkfifo(step / "__0_0.distcp")


def a_folder_for_a_shard(d: Path) -> None:
    step = older(d)
    (step / "__0_0.distcp").unlink()
    (step / "__0_0.distcp").mkdir()


def dcp_named(name: str, step: int | None = 10) -> Case:
    return Case(f"dcp named {name}", lambda d: dcp(d, name), {name: "whole"}, step)


def unfinished(name: str) -> Case:
    def make(d: Path) -> None:
        copy(DCP, d / "step-5")
        dcp(d, name)

    return Case(f"a temporary name: {name}", make, {"step-5": "whole", name: "not whole or no entry"}, 5)


def damaged(name: str, says: str, what: object) -> Case:
    return Case(f"dcp {name}", lambda d: what(older(d)), {"step-5": "whole", "step-10": says}, 5)  # type: ignore[operator]


def two_parts(d: Path) -> None:
    """Model and optimizer saved as two DCPs in one step's folder."""
    copy(DCP, d / "step-10/model")
    copy(DCP, d / "step-10/optim")


def two_parts_torn(d: Path) -> None:
    two_parts(d)
    (d / "step-10/optim/.metadata").unlink()


def linked(d: Path) -> None:
    dcp(d / "elsewhere-x" / "y", "step-10")
    copy(DCP, d / "run" / "step-5")
    (d / "run" / "latest").symlink_to("step-5")
    (d / "run" / "step-10").symlink_to(d / "elsewhere-x/y/step-10")


def _nested(d: Path) -> None:
    copy(DCP, d / "outputs/checkpoints/step-5")


DCP_CASES = [
    damaged("without rank 1's shard", "torn:__1_0.distcp", lambda s: (s / "__1_0.distcp").unlink()),
    damaged("without any shard", "torn:.distcp", lambda s: [p.unlink() for p in s.glob("*.distcp")]),
    damaged(
        "metadata written but not renamed", "torn:.metadata", lambda s: (s / ".metadata").rename(s / ".metadata.tmp")
    ),
    damaged("shard cut by one byte", "torn:__1_0.distcp", lambda s: cut(s / "__1_0.distcp")),
    damaged("shard all zeros", "torn:__0_0.distcp", lambda s: zero(s / "__0_0.distcp")),
    damaged("shard's tail zeros", "torn:__1_0.distcp", lambda s: zero(s / "__1_0.distcp", 4096)),
    damaged("shard empty", "torn:__1_0.distcp", lambda s: cut(s / "__1_0.distcp", 63193)),
    damaged("one byte of a shard changed", "torn:__0_0.distcp", lambda s: flip(s / "__0_0.distcp", 0.43)),
    damaged("metadata cut", "torn:.metadata", lambda s: half(s / ".metadata")),
    damaged("metadata cut by one byte", "torn:.metadata", lambda s: cut(s / ".metadata")),
    damaged("metadata empty", "torn:.metadata", lambda s: (s / ".metadata").write_bytes(b"")),
    damaged("metadata zeros", "torn:.metadata", lambda s: zero(s / ".metadata")),
    damaged("both shards the same", "torn:distcp", lambda s: shutil.copy(s / "__0_0.distcp", s / "__1_0.distcp")),
    damaged("folder empty", "not whole", lambda s: [p.unlink() for p in s.iterdir()]),
    damaged("with only its tensorboard", "not whole", lambda s: [p.unlink() for p in s.iterdir()] + [foreign(s)]),
    Case(
        "dcp a file of the step's name",
        lambda d: (shutil.rmtree(older(d)), (d / "step-10").write_bytes(b"")),
        {"step-5": "whole"},
        5,
    ),
    Case("dcp a pickle that runs a command", harmful, {"step-10": "not whole", "ran": "no entry"}, 5),
    Case("dcp naming a file outside", outside, {"step-10": "not whole"}, 5),
    Case("dcp with a pipe for a shard", fifo, {"step-10": "torn:__0_0.distcp"}, 5),
    Case("dcp with a folder for a shard", a_folder_for_a_shard, {"step-10": "torn:__0_0.distcp"}, 5),
    Case(
        "dcp with foreign files in and beside it",
        lambda d: (foreign(dcp(d)), foreign(d)),
        {
            "step-10": "whole",
            "logs": "not whole or no entry",
            ".git": "no entry",
            "wandb": "not whole or no entry",
            "README.md": "no entry",
        },
        10,
    ),
    Case("dcp of two parts", two_parts, {"step-10": "not whole"}, None),
    Case("dcp of two parts, one torn", two_parts_torn, {"step-10": "not whole"}, None),
    Case("dcp nested", _nested, {"outputs": "not whole or no entry"}, None),
    Case(
        "dcp beside an older, larger world's shard",
        lambda d: shutil.copy(dcp(d) / "__1_0.distcp", d / "step-10/__2_0.distcp"),
        {"step-10": "whole"},
        10,
    ),
    *(
        dcp_named(n, s)
        for n, s in (
            ("step_10", 10),
            ("step10", 10),
            ("10", 10),
            ("0000010", 10),
            ("ckpt-10", 10),
            ("global_step_10", 10),
            ("checkpoint_10", 10),
            ("epoch_2_step_10", 10),
            ("epoch=2-step=10", 10),
            ("step=10-epoch=2", 10),
            ("model-step-10", 10),
            ("step_10_epoch_2", 10),
            ("gpt2-10", 10),
            ("llama-7b-step10", 10),
            ("llama3_8b_step_10", 10),
            ("iteration_10", 10),
            ("iter_0000010", 10),
            ("e2s10", 10),
            ("10_steps", 10),
            ("step-10-final", 10),
            ("step_00000010_seed42", 10),
            ("20261129_step_10", 10),
            ("dcp_10", 10),
            ("rank2-step10", 10),
            ("ep2-ba10-rank0", 10),
            ("checkpoint-10-merged", 10),
            ("global_step10_universal", 10),
            ("latest-step10", 10),
            ("v2_step_10", 10),
            ("last-10", 10),
        )
    ),
    *(
        unfinished(n)
        for n in (
            "step-10.tmp",
            "step-10.tmp-1234",
            "step-10-tmp",
            "step-10_tmp",
            ".step-10",
            "tmp-step-10",
            "tmp_step-10",
            "step-10.partial",
            "step-10.incomplete",
            "step-10.part",
            "step-10.orbax-checkpoint-tmp",
            "step-10.writing",
            "temp-step-10",
            "step-10.temp",
            "step-10.deleting",
            ".tmp-step-10",
            "step-10.tmp.0",
            "step-10-incomplete",
            "_tmp_step-10",
            "step-10.inprogress",
            "step-10.saving",
        )
    ),
]


def megatron(d: Path, tracker: str = "5") -> Path:
    copy(MEGATRON, d)
    (d / "latest_checkpointed_iteration.txt").write_text(tracker)
    return d / "iter_0000005"


def megatron_next(d: Path) -> Path:
    megatron(d, "10")
    return copy("megatron/complete/iter_0000005", d / "iter_0000010")


def broken_megatron(name: str, says: str, what: object) -> Case:
    return Case(
        f"megatron {name}", lambda d: what(megatron_next(d)), {"iter_0000005": "whole", "iter_0000010": says}, 5
    )  # type: ignore[operator]


def bridge(d: Path) -> None:
    """What Megatron Bridge and Megatron-LM lay beside."""
    step = megatron(d)
    (step / "run_config.yaml").write_text("a: 1\n")
    torch_file(step / "train_state.pt", {"step": 5})
    torch_file(step / "rerun_state.pt", {"step": 5})
    torch_file(d / "latest_train_state.pt", {"step": 5})
    (step / "modelopt_state").mkdir()
    torch_file(d / "dataloader/iter_0000005/train_dataloader_dprank000.pt", {"x": 1})
    (d / "progress.txt").write_text("x\n")
    (d / "latest_wandb_artifact_path.txt").write_text("x\n")
    foreign(d)


def legacy(d: Path, tensor: int = 1, pipeline: int = 1, distributed: bool = False, iteration: int = 100) -> Path:
    """Megatron-LM's older format."""
    step = d / f"iter_{iteration:07d}"
    args = Namespace(
        tensor_model_parallel_size=tensor,
        pipeline_model_parallel_size=pipeline,
        use_distributed_optimizer=distributed,
        expert_model_parallel_size=1,
        data_parallel_size=2,
        world_size=2 * tensor * pipeline,
        iteration=iteration,
        num_experts=None,
    )
    for t in range(tensor):
        for p in range(pipeline):
            name = f"mp_rank_{t:02d}" + (f"_{p:03d}" if pipeline > 1 else "")
            state = {
                "args": args,
                "checkpoint_version": 3.0,
                "iteration": iteration,
                "model": {"w": 1},
                "opt_param_scheduler": {},
                "rng_state": [{}],
                "num_floating_point_operations_so_far": 0,
            }
            if not distributed:
                state["optimizer"] = {"optimizer": {"state": {}, "param_groups": []}}
            torch_file(step / name / "model_optim_rng.pt", state)
            if distributed:
                torch_file(step / name / "distrib_optim.pt", {"buckets_coalesced": True, 0: {}})
    (d / "latest_checkpointed_iteration.txt").write_text(str(iteration))
    return step


def legacy_torn(name: str, says: str, what: object, **kinds: object) -> Case:
    def make(d: Path) -> None:
        legacy(d, iteration=50, **kinds)  # type: ignore[arg-type]
        what(legacy(d, **kinds))  # type: ignore[operator,arg-type]

    return Case(f"megatron legacy {name}", make, {"iter_0000050": "whole", "iter_0000100": says}, 50)


MEGATRON_CASES = [
    Case("megatron tracker names what is not there", lambda d: megatron(d, "20"), {"iter_0000005": "whole"}, 5),
    Case("megatron tracker half written", lambda d: megatron(d, ""), {"iter_0000005": "whole"}, 5),
    Case(
        "megatron tracker of garbage",
        lambda d: (megatron(d) / "../latest_checkpointed_iteration.txt").write_bytes(b"\0\0"),
        {"iter_0000005": "whole"},
        5,
    ),
    Case(
        "megatron without tracker",
        lambda d: (megatron(d) / "../latest_checkpointed_iteration.txt").unlink(),
        {"iter_0000005": "whole"},
        5,
    ),
    broken_megatron("without metadata.json", "torn:metadata.json", lambda s: (s / "metadata.json").unlink()),
    broken_megatron("metadata.json empty", "torn:metadata.json", lambda s: (s / "metadata.json").write_bytes(b"")),
    broken_megatron("metadata.json cut", "torn:metadata.json", lambda s: half(s / "metadata.json")),
    broken_megatron("metadata.json zeros", "torn:metadata.json", lambda s: zero(s / "metadata.json")),
    broken_megatron("without common.pt", "torn:common.pt", lambda s: (s / "common.pt").unlink()),
    broken_megatron("common.pt cut", "torn:common.pt", lambda s: half(s / "common.pt")),
    broken_megatron("common.pt empty", "torn:common.pt", lambda s: (s / "common.pt").write_bytes(b"")),
    broken_megatron("without .metadata", "torn:.metadata", lambda s: (s / ".metadata").unlink()),
    broken_megatron("shard missing", "torn:__0_1.distcp", lambda s: (s / "__0_1.distcp").unlink()),
    broken_megatron("shard cut", "torn:__0_0.distcp", lambda s: half(s / "__0_0.distcp")),
    broken_megatron("shard's tail zeros", "torn:__0_1.distcp", lambda s: zero(s / "__0_1.distcp", 512)),
    broken_megatron("folder empty", "not whole", lambda s: [p.unlink() for p in s.iterdir()]),
    broken_megatron(
        "only common.pt", "torn:.metadata", lambda s: [p.unlink() for p in s.iterdir() if p.name != "common.pt"]
    ),
    Case("megatron bridge's files", bridge, {"iter_0000005": "whole"}, 5),
    Case("megatron legacy", legacy, {"iter_0000100": "whole"}, 100),
    Case("megatron legacy tensor parallel", lambda d: legacy(d, 2), {"iter_0000100": "whole"}, 100, 4),
    Case("megatron legacy tensor and pipeline parallel", lambda d: legacy(d, 2, 2), {"iter_0000100": "whole"}, 100, 8),
    Case(
        "megatron legacy pipeline, distributed optimizer",
        lambda d: legacy(d, 1, 2, True),
        {"iter_0000100": "whole"},
        100,
        4,
    ),
    legacy_torn("one of two tensor ranks", "torn:mp_rank_01", lambda s: shutil.rmtree(s / "mp_rank_01"), tensor=2),
    legacy_torn(
        "a tensor rank's folder empty",
        "torn:mp_rank_01",
        lambda s: (s / "mp_rank_01/model_optim_rng.pt").unlink(),
        tensor=2,
    ),
    legacy_torn(
        "a pipeline rank lacking", "torn:mp_rank_00_001", lambda s: shutil.rmtree(s / "mp_rank_00_001"), pipeline=2
    ),
    legacy_torn("file cut", "torn:model_optim_rng.pt", lambda s: half(s / "mp_rank_00/model_optim_rng.pt")),
    legacy_torn("file zeros", "torn:model_optim_rng.pt", lambda s: zero(s / "mp_rank_00/model_optim_rng.pt")),
    legacy_torn(
        "distributed optimizer lacking",
        "torn:distrib_optim.pt",
        lambda s: (s / "mp_rank_00/distrib_optim.pt").unlink(),
        distributed=True,
    ),
]


def zero1(
    d: Path,
    tag: str = "global_step5",
    told: str | None = "global_step5",
    sample: str = "deepspeed/complete/global_step5",
) -> Path:
    copy(sample, d / tag)
    if told is not None:
        (d / "latest").write_text(told)
    return d / tag


def deepspeed_root(d: Path) -> None:
    zero1(d)
    (d / "zero_to_fp32.py").write_text("#!/usr/bin/env python\n")
    torch_file(d / "pytorch_model.bin", {"w": 1})
    foreign(d)


def torn_deepspeed(name: str, kind: str, says: str, what: object) -> Case:
    def make(d: Path) -> None:
        zero1(d, "global_step2", "global_step2", f"deepspeed/{kind}/global_step2")
        what(d / "global_step2")  # type: ignore[operator]

    return Case(f"deepspeed {kind} {name}", make, {"global_step2": says}, None)


O1 = "zero_pp_rank_1_mp_rank_00_optim_states.pt"
DEEPSPEED_CASES = [
    torn_deepspeed("rank 1's optimizer lacking, latest names it", "z2", f"torn:{O1}", lambda s: (s / O1).unlink()),
    torn_deepspeed(
        "rank 1's optimizer empty, latest names it", "z2", f"torn:{O1}", lambda s: (s / O1).write_bytes(b"")
    ),
    torn_deepspeed(
        "no optimizer states at all", "z2", "torn:optim_states", lambda s: [p.unlink() for p in s.glob("*optim*")]
    ),
    torn_deepspeed(
        "model states lacking", "z2", "torn:model_states", lambda s: [p.unlink() for p in s.glob("*model*")]
    ),
    torn_deepspeed(
        "model states cut", "z2", "torn:mp_rank_00_model_states.pt", lambda s: half(s / "mp_rank_00_model_states.pt")
    ),
    torn_deepspeed("optimizer states' tail zeros", "z2", f"torn:{O1}", lambda s: zero(s / O1, 1024)),
    torn_deepspeed(
        "rank 1's model states lacking",
        "z3",
        "torn:zero_pp_rank_1_mp_rank_00_model_states.pt",
        lambda s: (s / "zero_pp_rank_1_mp_rank_00_model_states.pt").unlink(),
    ),
    torn_deepspeed(
        "rank 1's files lacking", "z3", "torn:zero_pp_rank_1", lambda s: [p.unlink() for p in s.glob("zero_pp_rank_1*")]
    ),
    torn_deepspeed("rank 1's optimizer cut by a byte", "z3", f"torn:{O1}", lambda s: cut(s / O1)),
    torn_deepspeed("rank 1's optimizer lacking", "z1b", f"torn:bf16_{O1}", lambda s: (s / f"bf16_{O1}").unlink()),
    torn_deepspeed(
        "an expert lacking", "moe", "torn:layer_0_expert_2", lambda s: next(s.glob("layer_0_expert_2*")).unlink()
    ),
    torn_deepspeed(
        "last expert lacking", "moe", "torn:layer_0_expert_3", lambda s: next(s.glob("layer_0_expert_3*")).unlink()
    ),
    torn_deepspeed("an expert cut", "moe", "torn:layer_0_expert_0", lambda s: half(next(s.glob("layer_0_expert_0*")))),
    torn_deepspeed(
        "a pipeline rank lacking",
        "pipe",
        "torn:mp_rank_01_model_states.pt",
        lambda s: (s / "mp_rank_01_model_states.pt").unlink(),
    ),
    torn_deepspeed(
        "a layer empty",
        "pipe",
        "torn:layer_01-model_states.pt",
        lambda s: (s / "layer_01-model_states.pt").write_bytes(b""),
    ),
    torn_deepspeed(
        "moments lacking", "universal", "torn:exp_avg_sq.pt", lambda s: (s / "zero/0.weight/exp_avg_sq.pt").unlink()
    ),
    torn_deepspeed(
        "weights empty", "universal", "torn:fp32.pt", lambda s: (s / "zero/0.weight/fp32.pt").write_bytes(b"")
    ),
    torn_deepspeed(
        "optimizer state lacking",
        "universal",
        "torn:optimizer_state.pt",
        lambda s: (s / "zero/optimizer_state.pt").unlink(),
    ),
    Case("deepspeed without latest", lambda d: zero1(d, told=None), {"global_step5": "whole"}, 5),
    Case("deepspeed latest empty", lambda d: zero1(d, told=""), {"global_step5": "whole"}, 5),
    Case(
        "deepspeed latest names what is not there",
        lambda d: zero1(d, told="global_step99"),
        {"global_step5": "whole"},
        5,
    ),
    Case(
        "deepspeed root's own files",
        deepspeed_root,
        {"global_step5": "whole", "zero_to_fp32.py": "no entry", "pytorch_model.bin": "not whole or no entry"},
        5,
    ),
    Case("deepspeed world 4 over files of 2", lambda d: zero1(d), {"global_step5": "whole"}, 5, None),
    Case(
        "deepspeed folder renamed to another step",
        lambda d: zero1(d, "global_step10"),
        {"global_step10": "torn:global_step"},
        None,
    ),
    *(
        Case(f"deepspeed tag {tag}", lambda d, tag=tag: zero1(d, tag, tag), {tag: "whole"}, 5)
        for tag in ("step5", "step_5", "best", "5", "epoch_1", "checkpoint-5", "epoch0-step5", "global_step_5", "last")
    ),  # type: ignore[misc]
    Case(
        "deepspeed universal beside its source",
        lambda d: (
            zero1(d, "global_step2", "global_step2", "deepspeed/z2/global_step2"),
            copy("deepspeed/universal/global_step2", d / "global_step2_universal"),
            (d / "latest_universal").write_text("global_step2_universal"),
        ),
        {"global_step2": "whole", "global_step2_universal": "whole"},
        2,
    ),
    Case(
        "deepspeed universal alone",
        lambda d: copy("deepspeed/universal/global_step2", d / "global_step2_universal"),
        {"global_step2_universal": "whole"},
        2,
    ),
    Case(
        "deepspeed with the recovery script and a log inside", lambda d: foreign(zero1(d)), {"global_step5": "whole"}, 5
    ),
    Case(
        "deepspeed rewritten by another torch.save",
        lambda d: rebuilt(zero1(d) / O1),
        {"global_step5": "not whole"},
        None,
    ),
]
AGAIN = [  # a second round, labelled when the errors of the first had been mended
    Case(
        "deepspeed tag tmp",
        lambda d: (zero1(d), shutil.copytree(d / "global_step5", d / "global_step10.tmp")),
        {"global_step5": "whole"},
        5,
    ),
    Case(
        "deepspeed two saves mix",
        lambda d: shutil.copy(
            SAMPLES / "deepspeed/z2/global_step2/zero_pp_rank_1_mp_rank_00_optim_states.pt",
            zero1(d) / "zero_pp_rank_1_mp_rank_00_optim_states.pt",
        ),
        {"global_step5": "torn"},
        None,
    ),
    Case(
        "deepspeed stray rank",
        lambda d: shutil.copy(
            zero1(d) / "zero_pp_rank_1_mp_rank_00_optim_states.pt",
            d / "global_step5/zero_pp_rank_2_mp_rank_00_optim_states.pt",
        ),
        {"global_step5": "torn:zero_pp_rank_2"},
        None,
    ),
    Case(
        "deepspeed swapped",
        lambda d: after(
            zero1(d),
            lambda s: (
                (s / O1).rename(s / "x"),
                (s / O1.replace("rank_1", "rank_0")).rename(s / O1),
                (s / "x").rename(s / O1.replace("rank_1", "rank_0")),
            ),
        ),
        {"global_step5": "torn"},
        None,
    ),
    Case("megatron release tracker", lambda d: megatron(d, "release"), {"iter_0000005": "whole"}, 5),
    Case(
        "megatron release",
        lambda d: (megatron(d, "release"), shutil.copytree(d / "iter_0000005", d / "release")),
        {"iter_0000005": "whole"},
        5,
    ),
    Case(
        "megatron tmp metadata",
        lambda d: (megatron(d) / "x", shutil.copy(d / "iter_0000005/.metadata", d / "iter_0000005/.metadata.tmp")),
        {"iter_0000005": "torn:.metadata.tmp"},
        None,
    ),
    Case(
        "dcp copy of",
        lambda d: (dcp(d), dcp(d, "step-10 (copy)"), dcp(d, "Copy of step-5")),
        {"step-10": "whole"},
        10,
        chosen="",
    ),
    Case("dcp padded and not", lambda d: (dcp(d, "step-010"), dcp(d, "step-9")), {"step-010": "whole"}, 10),
    Case("dcp k", lambda d: (dcp(d, "step-1000"), dcp(d, "step-999")), {}, 1000),
    Case("dcp spaces", lambda d: dcp(d, "step 10"), {"step 10": "whole"}, 10),
    Case("dcp unicode", lambda d: dcp(d, "schritt-10é"), {"schritt-10é": "whole"}, 10),
]
CASES = [*AGAIN, *DCP_CASES, *MEGATRON_CASES, *DEEPSPEED_CASES]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name.replace(" ", "_"))
def test_what_both_commands_say(case: Case, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert not differences(case, tmp_path / "checkpoints", capsys)
