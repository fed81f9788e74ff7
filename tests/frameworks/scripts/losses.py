"""What the scripts that save and resume have in common: their arguments, and each rank's losses, to the last bit.

No script here knows remuster: each saves as its framework's guide has it, and goes on from what its argument names.
"""

import argparse
import os
import signal

SEED = 20261130
STEPS, SAVE_EVERY = 20, 5

_parser = argparse.ArgumentParser()
_parser.add_argument("out")
_parser.add_argument("--resume", "--resume_from_checkpoint", "--ckpt_path", dest="resume")
_parser.add_argument("--tag")
given = _parser.parse_args()
CHECKPOINTS = os.path.join(given.out, "checkpoints")
_file = os.open(os.path.join(given.out, f"losses-{os.environ['RANK']}"), os.O_WRONLY | os.O_CREAT | os.O_APPEND)


def log(step: int, loss: float) -> None:
    """Write the loss of a step, counted from 1, as this rank sees it; in step STAND_AT stand until killed."""
    os.write(_file, f"{os.environ['TORCHELASTIC_RESTART_COUNT']} {step} {float(loss).hex()}\n".encode())
    while os.environ.get("STAND_AT") == str(step):
        signal.pause()


def seed(step: int) -> int:
    """Return what this rank's batch of a step is made from: a resumed run sees what an undisturbed one sees."""
    return (SEED + step) * 64 + int(os.environ["RANK"])
