"""What is played of each framework, and which line docs/frameworks.md gives for it. Not a test module."""

from __future__ import annotations

from frameworks.resuming import Case, Kill

CASES = [
    Case(
        name="DDP with torch.save",
        script="saves_ddp.py",
        argument="--resume={path}",
        format="torch",
        torn=Kill(0, "half", 2, "step-15.pt"),
        refused="step-15.pt",
        reason="no whole file",
    ),
    Case(
        name="FSDP2 with DCP",
        script="saves_fsdp2.py",
        argument="--resume={path}",
        format="dcp",
        torn=Kill(1, "half", 1, "step-15/__1_0"),
        refused="step-15",
        reason="'.metadata' is missing",
    ),
    Case(
        name="FSDP2 with DCP, async_save",
        script="saves_fsdp2.py",
        argument="--resume={path}",
        format="dcp",
        torn=Kill(0, "rename", 1, "step-15/.metadata"),
        refused="step-15",
        reason="the save did not come to its end",
        env={"ASYNC_SAVE": "1"},
        behind=True,
    ),
    Case(
        name="Accelerate",
        script="saves_accelerate.py",
        argument="--resume_from_checkpoint={path}",
        format="accelerate",
        torn=Kill(1, "open", 1, "checkpoint_15/random_states_1"),
        refused="checkpoint_15",
        reason="random_states_1.pkl",
    ),
    Case(
        name="Lightning",
        script="saves_lightning.py",
        argument="--ckpt_path={path}",
        format="lightning",
        torn=Kill(0, "half", 1, "step=15.ckpt"),
        refused="epoch=0-step=15.ckpt",
        reason="no whole file",
    ),
    Case(
        name="Transformers Trainer",
        script="saves_transformers.py",
        argument="--resume_from_checkpoint={path}",
        format="transformers",
        torn=Kill(0, "open", 1, "checkpoint-15/trainer_state.json"),
        refused="checkpoint-15",
        reason="trainer_state.json",
    ),
]

DEEPSPEED = Case(
    name="DeepSpeed",
    script="saves_deepspeed.py",
    argument="--resume={dir} --tag={name}",
    format="deepspeed",
    torn=Kill(1, "write", 1, "global_step15/zero_pp_rank_1_"),
    refused="global_step15",
    reason="zero_pp_rank_1_mp_rank_00_optim_states.pt",
)
ORBAX = Case(
    name="JAX with Orbax",
    script="saves_orbax.py",
    argument="--resume={path}",
    format="orbax",
    torn=Kill(0, "rename", 1, "checkpoints/15"),
    env={"JAX_PLATFORMS": "cpu"},
    flags=("--shutdown-timeout", "3"),
    behind=True,
)
