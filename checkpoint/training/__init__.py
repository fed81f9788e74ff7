"""What a training script saves and restores with: everything that decides its next step, in one call.

Used through ``remuster.checkpoint`` by scripts that train with DDP or with FSDP2 (``fully_shard``). torch is imported
when one of these functions is called, never when this is imported; the agent loads nothing of it.
"""
