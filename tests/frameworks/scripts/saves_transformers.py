"""The Transformers Trainer with save_steps, and train(resume_from_checkpoint=...), on a tiny GPT-2 with dropout."""

import torch
from losses import CHECKPOINTS, SAVE_EVERY, SEED, STEPS, given, log
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments, set_seed


class Logged(TrainerCallback):
    """Writes what the Trainer logs."""

    def on_log(self, args, state, control, logs=None, **more):  # type: ignore[no-untyped-def]
        if "loss" in logs:
            log(state.global_step, logs["loss"])


torch.set_num_threads(1)
set_seed(SEED)
rows = torch.randint(0, 64, (16 * STEPS, 16))
model = GPT2LMHeadModel(GPT2Config(vocab_size=64, n_positions=16, n_embd=16, n_layer=1, n_head=2))
arguments = TrainingArguments(
    output_dir=CHECKPOINTS,
    max_steps=STEPS,
    per_device_train_batch_size=4,
    learning_rate=3e-3,
    logging_steps=1,
    save_steps=SAVE_EVERY,
    use_cpu=True,
    report_to=[],
    disable_tqdm=True,
    seed=SEED,
    dataloader_pin_memory=False,
)
data = [{"input_ids": row, "labels": row} for row in rows]
Trainer(model=model, args=arguments, train_dataset=data, callbacks=[Logged()]).train(
    resume_from_checkpoint=given.resume
)
torch.distributed.destroy_process_group()
