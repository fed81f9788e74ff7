"""Cases of Accelerate, Transformers' Trainer, Lightning and Colossal-AI."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest
from made_files import safetensors_file, torch_file
from unseen_checkpoints import (
    Case,
    after,
    append,
    copy,
    cut,
    differences,
    edit,
    flip,
    foreign,
    half,
    hf_step,
    rebuilt,
    walk,
    zero,
)

ACCELERATE = "accelerate/complete/checkpoint_5"
TRAINER = "transformers/complete/checkpoint-5"
CKPT = "lightning/complete/epoch=0-step=5.ckpt"
COLOSSAL = "colossalai/complete/step-5"
DCP = "dcp/complete/step-00000005"


def acc(d: Path, name: str = "checkpoint_5") -> Path:
    return copy(ACCELERATE, d / name)


def acc_torn(name: str, says: str, what: object) -> Case:
    def make(d: Path) -> None:
        acc(d)
        what(acc(d, "checkpoint_10"))  # type: ignore[operator]

    return Case(f"accelerate {name}", make, {"checkpoint_5": "whole", "checkpoint_10": says}, 5)


def sharded_weights(step: Path, parts: int = 2, kind: str = "model", names: tuple[str, ...] = ("a", "b")) -> None:
    """Put in the place of the model's file two that an index names."""
    (step / "model.safetensors").unlink(missing_ok=True)
    files = [f"{kind}-{n + 1:05d}-of-{parts:05d}.safetensors" for n in range(parts)]
    for file, name in zip(files, names, strict=True):
        safetensors_file(step / file, (name,))
    weight_map = dict(zip(names, files, strict=True))
    (step / f"{kind}.safetensors.index.json").write_text(
        json.dumps({"metadata": {"total_size": 32}, "weight_map": weight_map})
    )


def fsdp(step: Path, optimizer: str) -> Path:
    """Put folders of DCP in the place of a model's and an optimizer's file."""
    (step / "model.safetensors").unlink()
    (step / optimizer).unlink()
    copy(DCP, step / "pytorch_model_fsdp_0")
    copy(DCP, step / "optimizer_0")
    return step


def acc_fsdp(step: Path) -> Path:
    return fsdp(step, "optimizer.bin")


def acc_fsdp_full(step: Path) -> Path:
    (step / "model.safetensors").unlink()
    torch_file(step / "pytorch_model_fsdp.bin", {"w": 1})
    return step


def acc_deepspeed(step: Path) -> Path:
    (step / "model.safetensors").unlink()
    (step / "optimizer.bin").unlink()
    copy("deepspeed/complete/global_step5", step / "pytorch_model")
    (step / "latest").write_text("pytorch_model")
    (step / "zero_to_fp32.py").write_text("#\n")
    return step


def acc_more(step: Path) -> None:
    torch_file(step / "sampler.bin", {"x": 1})
    torch_file(step / "scaler.pt", {"scale": 1.0})
    torch_file(step / "dl_state_dict.bin", {"x": 1})
    foreign(step)


ACCELERATE_CASES = [
    acc_torn(
        "rank 1's random states lacking", "torn:random_states_1.pkl", lambda s: (s / "random_states_1.pkl").unlink()
    ),
    acc_torn("all random states lacking", "torn:random_states", lambda s: [p.unlink() for p in s.glob("random*")]),
    acc_torn("random states empty", "torn:random_states_1.pkl", lambda s: (s / "random_states_1.pkl").write_bytes(b"")),
    acc_torn("random states cut", "torn:random_states_0.pkl", lambda s: half(s / "random_states_0.pkl")),
    acc_torn("custom object cut", "torn:custom_checkpoint_0.pkl", lambda s: half(s / "custom_checkpoint_0.pkl")),
    acc_torn("model cut by a byte", "torn:model.safetensors", lambda s: cut(s / "model.safetensors")),
    acc_torn("model longer than its header says", "torn:model.safetensors", lambda s: append(s / "model.safetensors")),
    acc_torn("model zeros", "torn:model.safetensors", lambda s: zero(s / "model.safetensors")),
    acc_torn("model empty", "torn:model.safetensors", lambda s: (s / "model.safetensors").write_bytes(b"")),
    acc_torn("model lacking", "torn:model", lambda s: (s / "model.safetensors").unlink()),
    acc_torn("optimizer lacking", "torn:optimizer", lambda s: (s / "optimizer.bin").unlink()),
    acc_torn("optimizer zeros", "torn:optimizer.bin", lambda s: zero(s / "optimizer.bin")),
    acc_torn("optimizer's byte changed", "torn:optimizer.bin", lambda s: flip(s / "optimizer.bin", 0.3)),
    acc_torn("scheduler empty", "torn:scheduler.bin", lambda s: (s / "scheduler.bin").write_bytes(b"")),
    acc_torn("folder empty", "not whole", lambda s: [p.unlink() for p in s.iterdir()]),
    acc_torn(
        "only a model", "torn:optimizer", lambda s: [p.unlink() for p in s.iterdir() if p.name != "model.safetensors"]
    ),
    acc_torn(
        "shard of the model lacking",
        "torn:model-00002-of-00002.safetensors",
        lambda s: (sharded_weights(s), (s / "model-00002-of-00002.safetensors").unlink()),
    ),
    acc_torn(
        "index of the model lacking",
        "torn:model.safetensors.index.json",
        lambda s: (sharded_weights(s), (s / "model.safetensors.index.json").unlink()),
    ),
    acc_torn(
        "index of the model cut",
        "torn:model.safetensors.index.json",
        lambda s: (sharded_weights(s), half(s / "model.safetensors.index.json")),
    ),
    acc_torn(
        "fsdp optimizer without .metadata",
        "torn:optimizer_0",
        lambda s: (acc_fsdp(s) / "optimizer_0/.metadata").unlink(),
    ),
    acc_torn("fsdp optimizer lacking", "torn:optimizer", lambda s: shutil.rmtree(acc_fsdp(s) / "optimizer_0")),
    acc_torn(
        "fsdp model's shard lacking",
        "torn:pytorch_model_fsdp_0",
        lambda s: (acc_fsdp(s) / "pytorch_model_fsdp_0/__1_0.distcp").unlink(),
    ),
    acc_torn(
        "deepspeed's optimizer of rank 1 lacking",
        "torn:zero_pp_rank_1",
        lambda s: (acc_deepspeed(s) / "pytorch_model/zero_pp_rank_1_mp_rank_00_optim_states.pt").unlink(),
    ),
    Case(
        "accelerate of one rank", lambda d: (acc(d) / "random_states_1.pkl").unlink(), {"checkpoint_5": "whole"}, 5, 1
    ),
    Case("accelerate of two ranks for one", lambda d: acc(d), {"checkpoint_5": "whole"}, 5, 1),
    Case("accelerate of two ranks for four", lambda d: acc(d), {"checkpoint_5": "torn:random_states_2.pkl"}, None, 4),
    Case(
        "accelerate world not told, rank 1's random states lacking in the newest",
        lambda d: (acc(d), (acc(d, "checkpoint_10") / "random_states_1.pkl").unlink()),
        {"checkpoint_5": "whole", "checkpoint_10": "unknown:--world"},
        5,
        None,
    ),
    Case(
        "accelerate world not told, more ranks than before",
        lambda d: ((acc(d) / "random_states_1.pkl").unlink(), acc(d, "checkpoint_10")),
        {"checkpoint_5": "whole", "checkpoint_10": "whole"},
        10,
        None,
    ),
    Case(
        "accelerate world told, fewer ranks than before",
        lambda d: (acc(d), (acc(d, "checkpoint_10") / "random_states_1.pkl").unlink()),
        {"checkpoint_10": "whole"},
        10,
        1,
    ),
    Case(
        "trainer world not told, a rank's random state lacking in the newest",
        lambda d: torch_file(trainer(d).parent / "checkpoint-5/rng_state_2.pth", {"x": 1}),
        {"checkpoint-5": "whole", "checkpoint-10": "unknown:--world"},
        5,
        None,
    ),
    Case("accelerate world not told", lambda d: acc(d), {"checkpoint_5": "whole"}, 5, None),
    Case(
        "accelerate hole in the ranks, world not told",
        lambda d: (acc(d) / "random_states_0.pkl").unlink(),
        {"checkpoint_5": "torn:random_states_0.pkl"},
        None,
        None,
    ),
    Case("accelerate sharded model", lambda d: sharded_weights(acc(d)), {"checkpoint_5": "whole"}, 5),
    Case(
        "accelerate pytorch_model.bin",
        lambda d: ((acc(d) / "model.safetensors").unlink(), torch_file(d / "checkpoint_5/pytorch_model.bin", {"w": 1})),
        {"checkpoint_5": "whole"},
        5,
    ),
    Case("accelerate fsdp sharded", lambda d: acc_fsdp(acc(d)), {"checkpoint_5": "whole"}, 5),
    Case("accelerate fsdp full", lambda d: acc_fsdp_full(acc(d)), {"checkpoint_5": "whole"}, 5),
    Case("accelerate deepspeed", lambda d: acc_deepspeed(acc(d)), {"checkpoint_5": "whole"}, 5),
    Case("accelerate sampler, scaler, foreign files", lambda d: acc_more(acc(d)), {"checkpoint_5": "whole"}, 5),
    Case(
        "accelerate files saved through a buffer",
        lambda d: [rebuilt(p) for p in walk(acc(d)) if p.suffix != ".safetensors"],
        {"checkpoint_5": "whole"},
        5,
    ),
    *(
        Case(f"accelerate named {n}", lambda d, n=n: acc(d, n), {n: "whole"}, s)
        for n, s in (("step_500", 500), ("epoch_3", 3), ("checkpoint-500", 500), ("checkpoint_0", 0), ("state_7", 7))
    ),  # type: ignore[misc]
]


def trainer(d: Path) -> Path:
    copy(TRAINER, d / "checkpoint-5")
    return hf_step(d / "checkpoint-10", 10)


def hf_torn(name: str, says: str, what: object) -> Case:
    return Case(f"trainer {name}", lambda d: what(trainer(d)), {"checkpoint-5": "whole", "checkpoint-10": says}, 5)  # type: ignore[operator]


def hf_ok(name: str, what: object, world: int | None = 2) -> Case:
    return Case(f"trainer {name}", lambda d: what(trainer(d)), {"checkpoint-10": "whole"}, 10, world)  # type: ignore[operator]


def final_model(d: Path) -> Path:
    """The run's own folder after training: the last model lies beside the checkpoints."""
    step = trainer(d)
    torch_file(d / "training_args.bin", {"x": 1})
    torch_file(d / "pytorch_model.bin", {"x": 1})
    shutil.copy(step / "model.safetensors", d / "model.safetensors")
    shutil.copy(step / "trainer_state.json", d / "trainer_state.json")
    shutil.copy(step / "config.json", d / "config.json")
    (d / "all_results.json").write_text("{}")
    (d / "tokenizer.json").write_text("{}")
    foreign(d)
    return step


def only_final_model(d: Path) -> None:
    final_model(d)
    shutil.rmtree(d / "checkpoint-5")
    (d / "checkpoint-10/trainer_state.json").unlink()


def adapter(s: Path) -> None:
    (s / "model.safetensors").rename(s / "adapter_model.safetensors")
    (s / "config.json").unlink()
    (s / "adapter_config.json").write_text('{"peft_type": "LORA"}')
    (s / "README.md").write_text("# x\n")


def single(s: Path) -> None:
    for p in s.glob("rng_state_*"):
        p.unlink()
    torch_file(s / "rng_state.pth", {"x": 1})


def hf_deepspeed(s: Path, number: int = 10) -> Path:
    """As Trainer with DeepSpeed leaves it; the scheduler is DeepSpeed's own."""
    for p in ("optimizer.pt", "scheduler.pt"):
        (s / p).unlink()
    copy("deepspeed/complete/global_step5", s / "global_step5")
    (s / "latest").write_text("global_step5")
    (s / "zero_to_fp32.py").write_text("#\n")
    edit(s / "trainer_state.json", global_step=5)
    return s.rename(s.parent / "checkpoint-5x") if number == 5 else s


def hf_deepspeed_case(name: str, says: str, what: object, step: int | None) -> Case:
    def make(d: Path) -> None:
        copy(TRAINER, d / "checkpoint-5")
        what(hf_deepspeed(d / "checkpoint-5"))  # type: ignore[operator]

    return Case(f"trainer deepspeed {name}", make, {"checkpoint-5": says}, step)


def hf_fsdp(s: Path) -> Path:
    return fsdp(s, "optimizer.pt")


def hf_fsdp_full(s: Path) -> None:
    (s / "optimizer.pt").unlink()
    torch_file(s / "optimizer.bin", {"x": 1})
    (s / "model.safetensors").unlink()
    torch_file(s / "pytorch_model_fsdp.bin", {"x": 1})


TRAINER_CASES = [
    hf_torn(
        "rank 1's random state lacking, state there", "torn:rng_state_1.pth", lambda s: (s / "rng_state_1.pth").unlink()
    ),
    hf_torn("rank 1's random state empty", "torn:rng_state_1.pth", lambda s: (s / "rng_state_1.pth").write_bytes(b"")),
    hf_torn("state cut", "torn:trainer_state.json", lambda s: half(s / "trainer_state.json")),
    hf_torn("state empty", "torn:trainer_state.json", lambda s: (s / "trainer_state.json").write_bytes(b"")),
    hf_torn("state zeros", "torn:trainer_state.json", lambda s: zero(s / "trainer_state.json")),
    hf_torn(
        "state of another step", "torn:trainer_state.json", lambda s: edit(s / "trainer_state.json", global_step=7)
    ),
    hf_torn("optimizer cut", "torn:optimizer.pt", lambda s: half(s / "optimizer.pt")),
    hf_torn("optimizer lacking", "torn:optimizer.pt", lambda s: (s / "optimizer.pt").unlink()),
    hf_torn("optimizer's tail zeros", "torn:optimizer.pt", lambda s: zero(s / "optimizer.pt", 300)),
    hf_torn("scheduler lacking", "torn:scheduler.pt", lambda s: (s / "scheduler.pt").unlink()),
    hf_torn("model cut", "torn:model.safetensors", lambda s: half(s / "model.safetensors")),
    hf_torn("model's second half zeros", "torn:model.safetensors", lambda s: zero(s / "model.safetensors", 12000)),
    hf_torn("model's tensors all zeros", "torn:zeros only", lambda s: zero(s / "model.safetensors", 23488)),
    hf_torn("model lacking", "torn:model", lambda s: (s / "model.safetensors").unlink()),
    hf_torn(
        "only a model",
        "torn:trainer_state.json",
        lambda s: [p.unlink() for p in s.iterdir() if p.name not in ("model.safetensors", "config.json")],
    ),
    hf_torn(
        "model's shard lacking",
        "torn:model-00002-of-00002.safetensors",
        lambda s: (sharded_weights(s), (s / "model-00002-of-00002.safetensors").unlink()),
    ),
    hf_torn(
        "model's shard without its tensor",
        "torn:model-00002-of-00002.safetensors",
        lambda s: (sharded_weights(s), safetensors_file(s / "model-00002-of-00002.safetensors", ("z",))),
    ),
    hf_torn("fsdp optimizer torn", "torn:optimizer_0", lambda s: (hf_fsdp(s) / "optimizer_0/.metadata").unlink()),
    hf_torn("folder empty", "not whole", lambda s: [p.unlink() for p in s.iterdir()]),
    hf_torn(
        "training_args.bin cut", "torn:training_args.bin", lambda s: half(torch_file(s / "training_args.bin", {"x": 1}))
    ),
    Case(
        "trainer staged folder left",
        lambda d: (trainer(d), hf_step(d / "tmp-checkpoint-15", 15)),
        {"checkpoint-10": "whole", "tmp-checkpoint-15": "not whole or no entry"},
        10,
    ),
    Case(
        "trainer run folder with the last model",
        final_model,
        {
            "checkpoint-10": "whole",
            "training_args.bin": "not whole or no entry",
            "pytorch_model.bin": "not whole or no entry",
        },
        10,
    ),
    Case(
        "trainer run folder with the last model, no whole checkpoint",
        only_final_model,
        {"checkpoint-10": "torn:trainer_state.json"},
        None,
    ),
    Case("trainer of one rank for two", lambda d: single(trainer(d)), {"checkpoint-10": "torn:rng_state_"}, 5, 2),
    Case("trainer of two for four", lambda d: trainer(d), {"checkpoint-10": "torn:rng_state_2.pth"}, None, 4),
    hf_ok("of one rank", single, 1),
    hf_ok("sharded model", sharded_weights),
    hf_ok(
        "pytorch_model.bin",
        lambda s: ((s / "model.safetensors").unlink(), torch_file(s / "pytorch_model.bin", {"w": 1})),
    ),
    hf_ok("adapter", adapter),
    hf_ok("fsdp sharded", hf_fsdp),
    hf_ok("fsdp full", hf_fsdp_full),
    hf_ok(
        "with tokenizer and foreign files",
        lambda s: (
            foreign(s),
            (s / "tokenizer.json").write_text("{}"),
            (s / "vocab.txt").write_text("a"),
            torch_file(s / "training_args.bin", {"x": 1}),
            torch_file(s / "scaler.pt", {"x": 1}),
        ),
    ),
    hf_ok("files saved through a buffer", lambda s: [rebuilt(p) for p in walk(s) if p.suffix in (".pt", ".pth")]),
    hf_ok(
        "state in CRLF and with a mark",
        lambda s: (s / "trainer_state.json").write_bytes(
            (s / "trainer_state.json").read_bytes().replace(b"\n", b"\r\n")
        ),
    ),
    hf_deepspeed_case("inside", "whole", lambda s: None, 5),
    hf_deepspeed_case("with Trainer's scheduler", "whole", lambda s: torch_file(s / "scheduler.pt", {"x": 1}), 5),
    hf_deepspeed_case(
        "optimizer of rank 1 lacking",
        "torn:zero_pp_rank_1",
        lambda s: (s / "global_step5/zero_pp_rank_1_mp_rank_00_optim_states.pt").unlink(),
        None,
    ),
    hf_deepspeed_case("without latest", "torn:latest", lambda s: (s / "latest").unlink(), None),
    hf_deepspeed_case(
        "latest names what is not there", "torn:latest", lambda s: (s / "latest").write_text("global_step9"), None
    ),
]


def two_ckpts(d: Path, what: object) -> None:
    copy(CKPT, d / "epoch=0-step=5.ckpt")
    what(copy(CKPT, d / "epoch=1-val_loss=0.20.ckpt"))  # type: ignore[operator]


def last_link(d: Path) -> None:
    copy(CKPT, d / "epoch=0-step=5.ckpt")
    (d / "last.ckpt").symlink_to("epoch=0-step=5.ckpt")


def dangling(d: Path) -> None:
    copy(CKPT, d / "epoch=0-step=5.ckpt")
    (d / "last.ckpt").symlink_to("epoch=1-step=10.ckpt")


def ckpt_folder(d: Path, name: str = "epoch=0-step=5.ckpt") -> Path:
    copy(DCP, d / name)
    torch_file(
        d / name / "meta.pt",
        {
            "epoch": 0,
            "global_step": 5,
            "pytorch-lightning_version": "2.6.6",
            "loops": {},
            "callbacks": {},
            "lr_schedulers": [],
        },
    )
    return d / name


def ckpt_deepspeed(d: Path) -> Path:
    step = d / "epoch=0-step=5.ckpt"
    copy("deepspeed/complete/global_step5", step / "checkpoint")
    (step / "latest").write_text("checkpoint")
    (step / "zero_to_fp32.py").write_text("#\n")
    return step


def by_loss(d: Path, *saved: tuple[str, int]) -> None:
    """Files whose names tell a loss, one after the other."""
    for place, (name, step) in enumerate(saved):
        held = {
            "pytorch-lightning_version": "2.6.6",
            "global_step": step,
            "epoch": 1,
            "optimizer_states": [],
            "state_dict": {},
        }
        os.utime(torch_file(d / name, held), (1e9 + place, 1e9 + place))


def ckpt_torn(name: str, says: str, what: object) -> Case:
    n = "epoch=1-val_loss=0.20.ckpt"
    return Case(f"lightning {name}", lambda d: two_ckpts(d, what), {"epoch=0-step=5.ckpt": "whole", n: says}, 5)


LIGHTNING_CASES = [
    ckpt_torn("file cut", "torn", half),
    ckpt_torn("file cut by one byte", "torn", cut),
    ckpt_torn("file empty", "torn:empty", lambda p: p.write_bytes(b"")),
    ckpt_torn("file zeros", "torn", zero),
    ckpt_torn("file's tail zeros", "torn", lambda p: zero(p, 4096)),
    ckpt_torn("byte changed", "torn", lambda p: flip(p, 0.5)),
    ckpt_torn(
        "weights only",
        "not whole",
        lambda p: torch_file(
            p, {"state_dict": {}, "pytorch-lightning_version": "2.6.6", "global_step": 9, "epoch": 1, "loops": None}
        ),
    ),
    Case(
        "lightning named by losses",
        lambda d: by_loss(d, ("epoch=1-val_loss=0.97.ckpt", 12), ("epoch=1-val_loss=-0.71.ckpt", 16)),
        {},
        16,
    ),
    Case(
        "lightning named by whole losses",
        lambda d: by_loss(d, ("epoch=3-val_loss=12.ckpt", 12), ("epoch=4-val_loss=9.ckpt", 16)),
        {},
        16,
    ),
    Case("lightning names without numbers", lambda d: by_loss(d, ("z.ckpt", 12), ("a.ckpt", 16)), {}, 16),
    Case(
        "lightning best one beside newer",
        lambda d: by_loss(d, ("last.ckpt", 20), ("best-epoch=1-val_loss=0.50.ckpt", 12)),
        {},
        12,
    ),
    Case(
        "lightning last.ckpt a copy",
        lambda d: (copy(CKPT, d / "epoch=0-step=5.ckpt"), copy(CKPT, d / "last.ckpt")),
        {"epoch=0-step=5.ckpt": "whole", "last.ckpt": "whole"},
        5,
    ),
    Case(
        "lightning last.ckpt torn, the other whole",
        lambda d: (copy(CKPT, d / "epoch=0-step=5.ckpt"), half(copy(CKPT, d / "last.ckpt"))),
        {"epoch=0-step=5.ckpt": "whole", "last.ckpt": "torn"},
        5,
    ),
    Case("lightning only last.ckpt", lambda d: copy(CKPT, d / "last.ckpt"), {"last.ckpt": "whole"}, 5),
    Case("lightning last.ckpt a link", last_link, {"epoch=0-step=5.ckpt": "whole"}, 5),
    Case("lightning last.ckpt a link to nothing", dangling, {"epoch=0-step=5.ckpt": "whole"}, 5),
    Case(
        "lightning temp file beside",
        lambda d: (copy(CKPT, d / "epoch=0-step=5.ckpt"), copy(CKPT, d / "tmpiody4awo")),
        {"epoch=0-step=5.ckpt": "whole", "tmpiody4awo": "not whole or no entry"},
        5,
    ),
    Case(
        "lightning only a temp file",
        lambda d: copy(CKPT, d / "tmpiody4awo"),
        {"tmpiody4awo": "not whole or no entry"},
        None,
    ),
    Case(
        "lightning fsspec's part file",
        lambda d: (copy(CKPT, d / "epoch=0-step=5.ckpt"), copy(CKPT, d / "epoch=1-step=10.ckpt.part")),
        {"epoch=1-step=10.ckpt.part": "not whole or no entry"},
        5,
    ),
    Case(
        "lightning name says another step",
        lambda d: copy(CKPT, d / "epoch=1-step=10.ckpt"),
        {"epoch=1-step=10.ckpt": "torn:step"},
        None,
    ),
    *(
        Case(f"lightning named {n}", lambda d, n=n: copy(CKPT, d / n), {n: "whole"}, 5)
        for n in (
            "epoch=0-step=5-v1.ckpt",
            "last-v1.ckpt",
            "epoch=00-val_loss=0.12.ckpt",
            "mnist-epoch=00-val_loss=0.12.ckpt",
            "best.ckpt",
            "00-5.ckpt",
            "epoch=0-step=5-val_loss=0.1234.ckpt",
            "model.ckpt",
            "hpc_ckpt_1.ckpt",
            "epoch=0.ckpt",
            "N-Step-Checkpoint_0_5.ckpt",
            "step=000005.ckpt",
            "resnet50-epoch=01.ckpt",
            "step=5-v2.ckpt",
        )
    ),  # type: ignore[misc]
    Case("lightning folder of FSDP", ckpt_folder, {"epoch=0-step=5.ckpt": "whole"}, 5),
    Case("lightning folder of FSDP called last", lambda d: ckpt_folder(d, "last.ckpt"), {"last.ckpt": "whole"}, 5),
    Case(
        "lightning folder without meta.pt",
        lambda d: (ckpt_folder(d) / "meta.pt").unlink(),
        {"epoch=0-step=5.ckpt": "torn:meta.pt"},
        None,
    ),
    Case(
        "lightning folder without .metadata",
        lambda d: (ckpt_folder(d) / ".metadata").unlink(),
        {"epoch=0-step=5.ckpt": "torn:.metadata"},
        None,
    ),
    Case(
        "lightning folder's shard lacking",
        lambda d: (ckpt_folder(d) / "__1_0.distcp").unlink(),
        {"epoch=0-step=5.ckpt": "torn:__1_0.distcp"},
        None,
    ),
    Case("lightning folder of DeepSpeed", ckpt_deepspeed, {"epoch=0-step=5.ckpt": "whole"}, 5),
    Case(
        "lightning folder of DeepSpeed, optimizer lacking",
        lambda d: (ckpt_deepspeed(d) / "checkpoint/zero_pp_rank_1_mp_rank_00_optim_states.pt").unlink(),
        {"epoch=0-step=5.ckpt": "torn:zero_pp_rank_1"},
        None,
    ),
    Case(
        "lightning with foreign files",
        lambda d: (copy(CKPT, d / "epoch=0-step=5.ckpt"), foreign(d)),
        {"epoch=0-step=5.ckpt": "whole"},
        5,
    ),
    Case(
        "lightning .ckpt folder empty",
        lambda d: (copy(CKPT, d / "epoch=0-step=5.ckpt"), (d / "epoch=1-step=10.ckpt").mkdir()),
        {"epoch=1-step=10.ckpt": "not whole"},
        5,
    ),
]


def booster(d: Path, name: str = "step-10", step: int = 10) -> Path:
    copy(COLOSSAL, d / name)
    (d / name / "running_states.json").write_text(json.dumps({"step": step}))
    return d / name


def colossal_torn(name: str, says: str, what: object) -> Case:
    def make(d: Path) -> None:
        copy(COLOSSAL, d / "step-5")
        what(booster(d))  # type: ignore[operator]

    return Case(f"colossalai {name}", make, {"step-5": "whole", "step-10": says}, 5)


def llama(d: Path) -> None:
    """As Colossal-AI's own LLaMA example names it."""
    step = booster(d, "epoch-0_step-10")
    (step / "model").rename(step / "modeling")
    (step / "running_states.json").write_text(json.dumps({"epoch": 0, "step": 10, "sample_start_index": 320}))
    torch_file(step / "lr_scheduler", {"x": 1})


def safe_model(s: Path) -> None:
    shutil.rmtree(s / "model")
    sharded_weights(s / "model", 2)


def _safe_model_torn(s: Path) -> None:
    safe_model(s)
    half(s / "model/model-00001-of-00002.safetensors")


def asynchronous(s: Path) -> Path:
    """With use_async=True: all shards in safetensors."""
    safe_model(s)
    (s / "optimizer/pytorch_optim-00001.bin").unlink()
    (s / "optimizer/pytorch_optim.bin.index.json").unlink()
    safetensors_file(s / "optimizer/optimizer-00001.safetensors", ("state.0.exp_avg", "state.1.exp_avg"))
    index = {
        "metadata": {"param_groups": "pytorch_optim_group.bin"},
        "weight_map": dict.fromkeys("01", "optimizer-00001.safetensors"),
    }
    (s / "optimizer/optimizer.safetensors.index.json").write_text(json.dumps(index))
    return s


COLOSSAL_CASES = [
    Case("colossalai asynchronous", lambda d: asynchronous(booster(d)), {"step-10": "whole"}, 10),
    colossal_torn(
        "asynchronous, optimizer cut",
        "torn:optimizer-00001.safetensors",
        lambda s: half(asynchronous(s) / "optimizer/optimizer-00001.safetensors"),
    ),
    colossal_torn(
        "asynchronous, optimizer lacking",
        "torn:optimizer-00001.safetensors",
        lambda s: (asynchronous(s) / "optimizer/optimizer-00001.safetensors").unlink(),
    ),
    colossal_torn(
        "asynchronous, groups lacking",
        "torn:pytorch_optim_group.bin",
        lambda s: (asynchronous(s) / "optimizer/pytorch_optim_group.bin").unlink(),
    ),
    colossal_torn("running states lacking", "torn:running_states.json", lambda s: (s / "running_states.json").unlink()),
    colossal_torn(
        "running states empty", "torn:running_states.json", lambda s: (s / "running_states.json").write_bytes(b"")
    ),
    colossal_torn(
        "model's index lacking", "torn:index.json", lambda s: (s / "model/pytorch_model.bin.index.json").unlink()
    ),
    colossal_torn(
        "model's index cut",
        "torn:pytorch_model.bin.index.json",
        lambda s: half(s / "model/pytorch_model.bin.index.json"),
    ),
    colossal_torn(
        "model's shard cut", "torn:pytorch_model-00001.bin", lambda s: half(s / "model/pytorch_model-00001.bin")
    ),
    colossal_torn(
        "optimizer's shard lacking",
        "torn:pytorch_optim-00001.bin",
        lambda s: (s / "optimizer/pytorch_optim-00001.bin").unlink(),
    ),
    colossal_torn(
        "optimizer's groups lacking",
        "torn:pytorch_optim_group.bin",
        lambda s: (s / "optimizer/pytorch_optim_group.bin").unlink(),
    ),
    colossal_torn("optimizer's folder lacking", "torn:optimizer", lambda s: shutil.rmtree(s / "optimizer")),
    colossal_torn("model's folder lacking", "torn:model", lambda s: shutil.rmtree(s / "model")),
    colossal_torn(
        "optimizer's shard zeros",
        "torn:pytorch_optim-00001.bin",
        lambda s: zero(s / "optimizer/pytorch_optim-00001.bin"),
    ),
    Case("colossalai llama's layout", llama, {"epoch-0_step-10": "whole"}, 10),
    Case("colossalai safetensors", lambda d: safe_model(booster(d)), {"step-10": "whole"}, 10),
    Case(
        "colossalai safetensors cut",
        lambda d: _safe_model_torn(booster(d)),
        {"step-10": "torn:model-00001-of-00002.safetensors"},
        None,
    ),
    Case("colossalai running states of another step", lambda d: booster(d, step=7), {"step-10": "whole"}, 7),
]
AGAIN = [  # a second round, labelled when the errors of the first had been mended
    Case(
        "trainer 3 ranks for 2",
        lambda d: torch_file(trainer(d) / "rng_state_2.pth", {"x": 1}),
        {"checkpoint-10": "whole"},
        10,
    ),
    Case(
        "trainer optimizer link",
        lambda d: after(
            trainer(d),
            lambda s: ((s / "optimizer.pt").unlink(), (s / "optimizer.pt").symlink_to("../checkpoint-5/optimizer.pt")),
        ),
        {"checkpoint-10": "not whole"},
        5,
    ),
    Case(
        "trainer optimizer fifo",
        lambda d: after(trainer(d), lambda s: ((s / "optimizer.pt").unlink(), os.mkfifo(s / "optimizer.pt"))),
        {"checkpoint-10": "torn:optimizer.pt"},
        5,
    ),
    Case(
        "trainer model a folder",
        lambda d: after(trainer(d), lambda s: ((s / "model.safetensors").unlink(), (s / "model.safetensors").mkdir())),
        {"checkpoint-10": "torn:model"},
        5,
    ),
    Case(
        "trainer bak beside",
        lambda d: (trainer(d), shutil.copytree(d / "checkpoint-10", d / "checkpoint-10.bak")),
        {"checkpoint-10": "whole"},
        10,
    ),
    Case("trainer nested sub-run", lambda d: trainer(d / "run-1"), {}, None),
    Case(
        "lightning dir+file",
        lambda d: (ckpt_folder(d), copy(CKPT, d / "last.ckpt")),
        {"last.ckpt": "whole", "epoch=0-step=5.ckpt": "whole"},
        5,
    ),
    Case(
        "lightning meta cut", lambda d: half(ckpt_folder(d) / "meta.pt"), {"epoch=0-step=5.ckpt": "torn:meta.pt"}, None
    ),
    Case(
        "lightning weights-only newer",
        lambda d: (
            copy(CKPT, d / "epoch=0-step=5.ckpt"),
            torch_file(
                d / "epoch=1-step=10.ckpt",
                {"state_dict": {}, "pytorch-lightning_version": "2.6", "global_step": 10, "epoch": 1},
            ),
        ),
        {"epoch=1-step=10.ckpt": "torn"},
        5,
    ),
    Case(
        "fabric file",
        lambda d: torch_file(d / "step-10.ckpt", {"model": {}, "step": 10}),
        {"step-10.ckpt": "whole"},
        10,
    ),
    Case(
        "accelerate scheduler_1 alone",
        lambda d: (acc(d) / "scheduler.bin").rename(d / "checkpoint_5/scheduler_1.bin"),
        {"checkpoint_5": "torn:scheduler.bin"},
        None,
    ),
    Case(
        "accelerate hole custom",
        lambda d: (acc(d) / "custom_checkpoint_0.pkl").rename(d / "checkpoint_5/custom_checkpoint_1.pkl"),
        {"checkpoint_5": "torn:custom_checkpoint_0"},
        None,
    ),
    Case(
        "accelerate diffusers",
        lambda d: after(
            acc(d, "checkpoint-500"),
            lambda s: (
                (s / "unet").mkdir(),
                (s / "model.safetensors").rename(s / "unet/diffusion_pytorch_model.safetensors"),
                (s / "unet/config.json").write_text("{}"),
            ),
        ),
        {"checkpoint-500": "whole"},
        500,
    ),
    Case(
        "accelerate swapped rng",
        lambda d: after(acc(d), lambda s: shutil.copy(s / "random_states_0.pkl", s / "random_states_1.pkl")),
        {"checkpoint_5": "torn:random_states_1"},
        None,
    ),
    Case(
        "colossal pipeline left",
        lambda d: after(
            booster(d),
            lambda s: ((s / "model/tmp_index_files").mkdir(), (s / "model/tmp_index_files/x.json").write_text("{}")),
        ),
        {"step-10": "torn:tmp_index_files"},
        None,
    ),
]
CASES = [*AGAIN, *ACCELERATE_CASES, *TRAINER_CASES, *LIGHTNING_CASES, *COLOSSAL_CASES]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name.replace(" ", "_"))
def test_what_both_commands_say(case: Case, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert not differences(case, tmp_path / "checkpoints", capsys)
