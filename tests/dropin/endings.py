"""Runs that do not end well, or not at once, and command lines that mean nothing: what each program makes of them.

Data only, as in `rows`: the codes are those of torchrun and ours. Read by `test_endings`.
"""

from __future__ import annotations

import signal
from collections.abc import Mapping
from typing import NamedTuple

from dropin.rows import NOTHING

TORCHRUNS = 1  # whatever happened in a rank


class Ending(NamedTuple):
    """What the ranks do, as ``train.py``, and the command's code; ``attempts``: how many there are."""

    name: str
    text: str
    code: int
    torchruns: int = TORCHRUNS
    more: str = ""  # flags
    attempts: int = 1
    signum: int = 0  # to the command, once every rank has made a file ``up-<rank>``

    def __str__(self) -> str:
        return self.name


class Refusal(NamedTuple):
    """A command line, or a variable, that neither program takes."""

    name: str
    line: str
    torchruns: int = 1
    env: Mapping[str, str] = NOTHING

    def __str__(self) -> str:
        return self.name


_IMPORTS = (
    "import os, signal, sys, time\nrank, attempt = os.environ['RANK'], os.environ['TORCHELASTIC_RESTART_COUNT']\n"
)
_RECORD = """
from torch.distributed.elastic.multiprocessing.errors import record
@record
def main():
    if rank == '0':
        time.sleep(60)
    raise ValueError('the loss is a carrot')
main()
"""
_WAITS = """
def told(number, frame):
    open(f'got-{rank}-{number}', 'w').close()
    os._exit(0)
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
    signal.signal(number, told)
open(f'up-{rank}', 'w').close()
while True:
    time.sleep(60)
"""


def _one(end: str) -> str:
    """Return a script in which rank 1 ends so and rank 0 would go on."""
    return f"{_IMPORTS}if rank == '1':\n    {end}\ntime.sleep(60)\n"


ENDINGS = (
    Ending("exit 7", _one("sys.exit(7)"), 7),
    Ending("an exception", _one("raise KeyError('lr')"), 1),
    Ending("a segmentation fault", _one("os.kill(os.getpid(), signal.SIGSEGV)"), 139),
    Ending("killed", _one("os.kill(os.getpid(), signal.SIGKILL)"), 137),
    Ending("@record", _IMPORTS + _RECORD, 1),
    Ending("all ranks fail", _IMPORTS + "sys.exit(3)\n", 3),
    Ending("once", _IMPORTS + "sys.exit(rank == '1' and attempt == '0')\n", 0, 0, "--max-restarts 3", attempts=2),
    Ending(
        "each time in another way",
        _IMPORTS + "sys.exit(4 + int(attempt) if rank == '1' else 0)\n",
        5,
        more="--max-restarts 1",
        attempts=2,
    ),
    Ending("SIGTERM to the command", _IMPORTS + _WAITS, 128 + signal.SIGTERM, signum=signal.SIGTERM),
)

REFUSALS = (
    Refusal("no script", "torchrun --nnodes 1", 2),
    Refusal("an unknown flag", "torchrun --lr 3 train.py", 2),
    Refusal("a prefix of several", "torchrun --rdzv 1 train.py", 2),
    Refusal("a number that is none", "torchrun --max-restarts some train.py", 2),
    Refusal("three numbers of nodes", "torchrun --nnodes 1:2:3 train.py"),
    Refusal("no nodes", "torchrun --nnodes 0 train.py"),
    Refusal("as many ranks as nobody knows", "torchrun --nproc-per-node unknown train.py"),
    Refusal("no ranks", "torchrun --nproc-per-node 0 train.py"),
    Refusal("restarts below none", "torchrun --max-restarts -1 train.py"),
    Refusal("a module without Python", "torchrun --no-python -m pkg.module"),
    Refusal("the same by variables", "torchrun train.py", env={"PET_NO_PYTHON": "1", "PET_MODULE": "1"}),
    Refusal("a variable that is no number", "torchrun train.py", env={"PET_STANDALONE": "true"}),
    Refusal("an unknown backend", "torchrun --nnodes 2 --rdzv-backend zookeeper --rdzv-endpoint localhost:1 train.py"),
    Refusal("a key without a value", "torchrun --rdzv-conf join_timeout train.py"),
    Refusal("no such port", "torchrun --rdzv-backend c10d --rdzv-endpoint localhost:70000 train.py"),
    Refusal("a file for a directory", "torchrun --log-dir train.py train.py"),
    Refusal("a program that is not there", "torchrun --no-python ./no-such-program"),
)
