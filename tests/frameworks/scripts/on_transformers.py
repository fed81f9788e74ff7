"""The Transformers Trainer on a tiny GPT-2 made from a configuration: nothing is downloaded."""

import torch
from say import OUT, SEED, STEPS, digest, say
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments, set_seed

torch.set_num_threads(1)
set_seed(SEED)
rows = torch.randint(0, 64, (16 * STEPS, 16))
model = GPT2LMHeadModel(GPT2Config(vocab_size=64, n_positions=16, n_embd=16, n_layer=1, n_head=2))
arguments = TrainingArguments(
    output_dir=str(OUT / "trainer"),
    max_steps=STEPS,
    per_device_train_batch_size=8,
    use_cpu=True,
    report_to=[],
    disable_tqdm=True,
    save_strategy="no",
    dataloader_pin_memory=False,
)
trainer = Trainer(model=model, args=arguments, train_dataset=[{"input_ids": row, "labels": row} for row in rows])
trainer.train()
say(
    rank=arguments.process_index,
    local_rank=arguments.local_process_index,
    world=arguments.world_size,
    kind=arguments.parallel_mode.value,
    backend=torch.distributed.get_backend(),
    steps=trainer.state.global_step,
    parameters=digest(trainer.model.parameters()),
)
torch.distributed.destroy_process_group()
