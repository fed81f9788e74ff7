"""The worker of all rows: it says what it was started with, once, and ends. Copied under the names that rows use.

With a file ``meet`` beside it the ranks also meet through MASTER_ADDR and MASTER_PORT, and add something up.
"""

import json
import os
import resource
import sys

LIMITS = ("AS", "CORE", "CPU", "DATA", "FSIZE", "MEMLOCK", "NOFILE", "NPROC", "STACK")
SIGNALS = ("SigBlk", "SigIgn")
GLIBCS = (
    0b11 << 31
)  # signals 32 and 33 are its own: it leaves them ignored after a posix_spawn, and sets them to use them


def told() -> dict[str, object]:
    """Return what can be told of this process that its parent decided."""
    with open("/proc/self/status") as status:
        lines = dict(line.split(":", 1) for line in status)
    umask = os.umask(0)
    os.umask(umask)
    return {
        "argv": sys.argv,
        "command": sys.orig_argv,
        "interpreter": sys.executable,
        "cwd": os.getcwd(),
        "env": dict(os.environ),
        "stdin": os.readlink("/proc/self/fd/0"),
        "descriptors": sorted(int(fd) for fd in os.listdir("/proc/self/fd"))[:-1],  # the last one is the listing's
        "leads a session": os.getsid(0) == os.getpid(),
        "niceness": os.nice(0),
        "umask": umask,
        "cores": sorted(os.sched_getaffinity(0)),
        "signals": {name: f"{int(lines[name], 16) & ~GLIBCS:x}" for name in SIGNALS},
        "limits": {name: resource.getrlimit(getattr(resource, f"RLIMIT_{name}")) for name in LIMITS},
    }


def tell(said: dict[str, object]) -> None:
    """Write it whole, under this rank's name; a second worker of that rank is an error."""
    place = os.path.join(os.environ["OUT"], os.environ["RANK"])
    draft = f"{place}.{os.getpid()}"
    with open(draft, "w") as file:
        json.dump(said, file)
    os.link(draft, f"{place}.json")
    os.unlink(draft)


def meet() -> int:
    """Return the sum of all ranks' numbers, as a process group found by the environment, or an argument, has it."""
    import torch
    import torch.distributed as dist

    where = next((arg.partition("=")[2] for arg in sys.argv if arg.startswith("--init-method=")), "env://")
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    dist.init_process_group("gloo", init_method=where, rank=rank, world_size=world)
    numbers = torch.tensor([dist.get_rank()])
    dist.all_reduce(numbers)
    dist.destroy_process_group()
    return int(numbers.item())


if __name__ == "__main__":
    said = told()
    if os.path.exists("meet"):
        said["sum"] = meet()
    tell(said)
