"""Command lines of torchrun's as people have them: READMEs, job scripts, launch configurations; in our own words.

Eight GPUs have become two ranks, hosts have become 127.0.0.1 and 127.0.0.2. In a line and in its environment ``@PORT``
stands for a free port, ``@ID`` for a run id, ``@ETCD`` for the port of an etcd, ``@HOST`` for this machine's name, and
``@R`` for the number of the agent (``@FIRST``: 1 for number 0, else 0; ``@MORE``: one more than the number). Where a
line has several agents, each also gets ``--local-addr``: on one machine nothing else tells them apart. Read by the
tests of this folder.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

NOTHING: Mapping[str, str] = MappingProxyType({})
CORES = os.cpu_count() or 1


class Row(NamedTuple):
    """One command line. ``placed``: it says which node is which. ``meets``: its ranks are made to meet, too."""

    name: str
    line: str
    nodes: int = 1
    world: int = 2
    env: Mapping[str, str] = NOTHING
    placed: bool = False
    meets: bool = False

    def __str__(self) -> str:
        return self.name


ONE_NODE = (
    Row("a laptop", "torchrun --standalone --nproc_per_node=2 train.py config.yaml", meets=True),
    Row("nothing but ranks", "torchrun --nproc_per_node=2 train.py --batch_size 32 --compile=False"),
    Row("nothing at all", "torchrun train.py --lr=3e-4", world=1),
    Row("a module", "torchrun --nproc_per_node 2 -m pkg.module --epochs 3 --out ./runs"),
    Row(
        "dashes after a module",
        "torchrun --standalone --nproc_per_node=2 -m scripts.base_train -- --depth=26 -- --run=d26",
    ),
    Row("dashes before a script", "torchrun --standalone --nproc-per-node=2 -- train.py -- --name=a"),
    Row(
        "arguments that look like the launcher's",
        "torchrun --nproc-per-node=2 train.py --nnodes 4 -m x --role=y --help '' 'a b' '$HOME' '*'",
    ),
    Row(
        "an endpoint that is replaced",
        "torchrun --standalone --rdzv_endpoint=localhost:@PORT --nproc_per_node=1 train.py",
        world=1,
    ),
    Row("a shell script", "torchrun --nproc_per_node=2 --no-python bash run.sh '${local_rank}' --gpu=$local_rank"),
    Row(
        "a role, and as many ranks as there are devices",
        "torchrun --role trainer --nproc-per-node auto train.py",
        world=CORES,
    ),
    Row("a rank for each core", "torchrun --nnodes 1 --nproc-per-node=cpu --max-restarts=0 train.py", world=CORES),
    Row(
        "how to start and how often to look",
        "torchrun --nnodes=1 --nproc_per_node=2 --monitor_interval 1 --start_method=spawn train.py",
    ),
    Row(
        "threads and NCCL's errors by variables",
        "torchrun --standalone --nproc_per_node=2 train.py",
        env={"OMP_NUM_THREADS": "4", "TORCH_NCCL_ASYNC_ERROR_HANDLING": "0"},
    ),
    Row(
        "each rank its own device",
        "torchrun --standalone --nproc_per_node=2 --virtual-local-rank train.py '${local_rank}'",
        env={"CUDA_VISIBLE_DEVICES": "3,5"},
        placed=True,  # the ranks' local numbers tell nothing
    ),
    Row("flags cut short", "torchrun --stand --nproc_per 2 --max_r 1 train.py"),
    Row(
        "variables alone",
        "torchrun train.py",
        env={"PET_NPROC_PER_NODE": "2", "PET_STANDALONE": "1", "PET_MAX_RESTARTS": "2", "PET_ROLE": "trainer"},
    ),
)

_C10D = "--rdzv_backend=c10d --rdzv_endpoint=127.0.0.1:@PORT"
_SLURM = {
    "SLURM_JOB_ID": "4711",
    "SLURM_JOBID": "4711",
    "SLURM_NNODES": "2",
    "SLURM_JOB_NUM_NODES": "2",
    "SLURM_NODEID": "@R",
    "SLURM_PROCID": "@R",
    "SLURM_LOCALID": "0",
    "SLURM_NTASKS": "2",
    "SLURM_JOB_NODELIST": "node[1-2]",
}
_POD = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "@PORT", "WORLD_SIZE": "2", "RANK": "@R"}  # a pod's, not a rank's

C10D = (
    Row(
        "c10d, one node and a port",
        "torchrun --nnodes=1 --nproc_per_node=2 --rdzv_id=100 --rdzv_backend=c10d --rdzv_endpoint=localhost:@PORT "
        "train.py",
    ),
    Row(
        "c10d, one node and any port",
        "torchrun --nproc_per_node=2 --rdzv_backend c10d --rdzv_endpoint='localhost:0' --role rank "
        "-m pkg.module --job.config_file ./debug.toml",
    ),
    Row(
        "c10d, one node by its name",
        "torchrun --nnodes 1 --nproc_per_node 2 --rdzv_id 101 --rdzv_backend c10d --rdzv_endpoint @HOST:@PORT train.py",
    ),
    Row(
        "c10d, two nodes",
        f"torchrun --nnodes=2 --nproc_per_node=2 --rdzv_id=JOB {_C10D} train.py",
        nodes=2,
        world=4,
        meets=True,
    ),
    Row("c10d, no id", f"torchrun --nnodes=2 --nproc_per_node=1 {_C10D} train.py", nodes=2),
    Row(
        "c10d, a node rank that counts for nothing",
        f"torchrun --nnodes=2 --node_rank @R --nproc_per_node=1 --rdzv_id=7 {_C10D} --max_restarts=3 train.py",
        nodes=2,
    ),
    Row(
        "c10d, elastic, quoted twice",
        f"torchrun --nnodes=1:2 --nproc_per_node=1 --rdzv_id=elastic {_C10D} "
        "--rdzv-conf=\"'join_timeout=60,last_call_timeout=30,timeout=30'\" train.py",
        nodes=2,
    ),
    Row(
        "c10d, elastic, alone",
        f"torchrun --nnodes=1:2 --nproc_per_node=2 --max_restarts=3 --rdzv_id=alone {_C10D} "
        "--rdzv_conf=last_call_timeout=1 train.py",
    ),
    Row(
        "c10d, told who is the host",
        f"torchrun --nnodes 2 --nproc_per_node 1 --rdzv_id host {_C10D} --rdzv_conf is_host=@FIRST train.py",
        nodes=2,
    ),
    Row(
        "c10d, under Slurm",
        f"torchrun --nnodes=2 --nproc-per-node=1 --rdzv-id=4711 {_C10D} train.py",
        nodes=2,
        env=_SLURM,
    ),
    Row(
        "c10d, by variables, in pods",
        "torchrun train.py --epochs=1",
        nodes=2,
        env=_POD
        | {
            "PET_NNODES": "1:2",
            "PET_NPROC_PER_NODE": "1",
            "PET_RDZV_BACKEND": "c10d",
            "PET_RDZV_ENDPOINT": "127.0.0.1:@PORT",
            "PET_RDZV_ID": "pytorchjob",
            "PET_RDZV_CONF": "last_call_timeout=30",
            "PET_MAX_RESTARTS": "3",
        },
    ),
)

STATIC = (
    Row(
        "static, two nodes",
        "torchrun --nnodes=2 --node_rank=@R --nproc_per_node=2 --master_addr=127.0.0.1 --master_port=@PORT train.py",
        nodes=2,
        world=4,
        placed=True,
        meets=True,
    ),
    Row(
        "static, by name, spelled both ways",
        "torchrun --nnodes 2 --node-rank @R --nproc_per_node 1 --rdzv_backend static --master-addr 127.0.0.1 "
        "--master_port @PORT train.py",
        nodes=2,
        placed=True,
    ),
    Row(
        "static, by an endpoint",
        "torchrun --nnodes=2 --node_rank=@R --nproc_per_node=1 --rdzv_backend=static "
        "--rdzv_endpoint=127.0.0.1:@PORT --max_restarts=1 train.py",
        nodes=2,
        placed=True,
    ),
    Row("static, one node and a port", "torchrun --nproc_per_node=2 --master_port=@PORT train.py", meets=True),
    Row(
        "static, through python",
        "python -m torch.distributed.run --nnodes=1 --node_rank 0 --nproc_per_node=2 --master_addr=127.0.0.1 "
        "--master_port=@PORT --max_restarts 0 --module pkg.module --amp true",
    ),
    Row(
        "static, by variables, in pods",
        "torchrun train.py --epochs=1",
        nodes=2,
        env={
            "PET_NNODES": "2",
            "PET_NPROC_PER_NODE": "1",
            "PET_NODE_RANK": "@R",
            "PET_MASTER_ADDR": "127.0.0.1",
            "PET_MASTER_PORT": "@PORT",
        },
        placed=True,
    ),
)

_ETCD = "--rdzv_id=@ID --rdzv_endpoint=127.0.0.1:@ETCD"

ETCD = (
    Row(
        "etcd, two nodes",
        f"torchrun --nnodes=2 --nproc_per_node=2 --rdzv_backend=etcd {_ETCD} train.py",
        nodes=2,
        world=4,
        meets=True,
    ),
    Row(
        "etcd, elastic, alone",
        f"torchrun --nnodes=1:4 --nproc_per_node=2 --max_restarts=3 --rdzv_backend=etcd {_ETCD} "
        "--rdzv_conf last_call_timeout=1 train.py",
    ),
    Row("etcd-v2", f"torchrun --nnodes=2 --nproc_per_node=1 --rdzv_backend=etcd-v2 {_ETCD} train.py", nodes=2),
)

# Much like another one: run with the drills, for torchrun takes seconds for each.
_SELDOM = (
    *("dashes after a module", "an endpoint that is replaced", "a role, and as many ranks as there are devices"),
    *("how to start and how often to look", "c10d, one node and any port", "c10d, one node by its name", "c10d, no id"),
    *("c10d, a node rank that counts for nothing", "c10d, told who is the host", "c10d, under Slurm"),
    *("static, by an endpoint", "static, through python", "etcd-v2"),
)
_ALL = (*ONE_NODE, *C10D, *STATIC, *ETCD)
ROWS = tuple(row for row in _ALL if row.name not in _SELDOM)

# Cases of torchrun's own tests, and some that are rare: run with the drills.
RARE = (
    *(row for row in _ALL if row.name in _SELDOM),
    Row(
        "four ranks, and how to start them",
        "torchrun --nnodes=1 --nproc-per-node=4 --rdzv-id=7 --monitor-interval=1 --start-method=spawn train.py --x=1",
        world=4,
    ),
    Row(
        "static, one node with everything given",
        "torchrun --nnodes=1 --nproc-per-node=4 --rdzv-id=7 --monitor-interval=1 --start-method=spawn "
        "--master-addr=localhost --master-port=@PORT --node-rank=0 train.py",
        world=4,
    ),
    Row(
        "a shell script by variables",
        "torchrun bash run.sh --x=1",
        env={
            "PET_NNODES": "1",
            "PET_NPROC_PER_NODE": "2",
            "PET_RDZV_ID": "7",
            "PET_MONITOR_INTERVAL": "1",
            "PET_START_METHOD": "spawn",
            "PET_NO_PYTHON": "1",
            "PET_MODULE": "0",
        },
    ),
    Row(
        "the store at a port that the script names",
        "torchrun --nproc_per_node=2 --master_port=@PORT train.py --init-method=tcp://localhost:@PORT",
        meets=True,
    ),
    Row(
        "four nodes",
        f"torchrun --nnodes=4 --nproc_per_node=2 --rdzv_id=four {_C10D} train.py",
        nodes=4,
        world=8,
    ),
    Row(
        "nodes of different sizes",
        "torchrun --nnodes=2 --node_rank=@R --nproc_per_node=@MORE --master_addr=127.0.0.1 --master_port=@PORT "
        "train.py",
        nodes=2,
        world=3,
        placed=True,
    ),
    Row("a log directory", "torchrun --nproc_per_node=2 --log-dir logs train.py"),
    Row("no log directory", "torchrun --nproc_per_node=2 --log_dir /dev/null train.py"),
)
