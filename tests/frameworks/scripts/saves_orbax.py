"""JAX over two processes, and Orbax's CheckpointManager, which saves behind the training.

JAX reads none of a launcher's variables by itself. Its coordinator listens in rank 0, where nothing else does without
torch: MASTER_ADDR and MASTER_PORT, which is another one in every attempt.
"""

import os

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from losses import CHECKPOINTS, SAVE_EVERY, SEED, STEPS, given, log, seed

rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
jax.distributed.initialize(f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}", world, rank)
mesh = Mesh(np.array(jax.devices()), ("data",))
everywhere, by_rank = NamedSharding(mesh, PartitionSpec()), NamedSharding(mesh, PartitionSpec("data"))


def spread(tree):  # type: ignore[no-untyped-def]
    """Return arrays of which every process has all."""
    whole = multihost_utils.host_local_array_to_global_array
    return jax.tree.map(lambda leaf: whole(np.asarray(leaf), mesh, PartitionSpec()), tree)


@jax.jit
def train(state, rows):  # type: ignore[no-untyped-def]
    """Return the state after one step of momentum, and its loss."""

    def error(weights):  # type: ignore[no-untyped-def]
        hidden = jax.nn.relu(rows @ weights["in"])
        return jnp.mean((hidden @ weights["out"] - rows.sum(1, keepdims=True)) ** 2)

    loss, slope = jax.value_and_grad(error)(state["weights"])
    moments = jax.tree.map(lambda m, g: 0.9 * m + g, state["moments"], slope)
    weights = jax.tree.map(lambda w, m: w - 1e-3 * m, state["weights"], moments)
    return {"weights": weights, "moments": moments}, loss


made = np.random.default_rng(SEED)
begin = {"in": made.normal(0, 0.2, (16, 32)), "out": made.normal(0, 0.2, (32, 1))}
begin = {name: array.astype(np.float32) for name, array in begin.items()}
state = spread({"weights": begin, "moments": {name: np.zeros_like(array) for name, array in begin.items()}})
manager = ocp.CheckpointManager(os.path.abspath(CHECKPOINTS))
done = 0
if given.resume:
    done = int(os.path.basename(given.resume))
    state = manager.restore(done, args=ocp.args.StandardRestore(state))

for step in range(done + 1, STEPS + 1):
    mine = np.random.default_rng(seed(step)).normal(size=(8, 16)).astype(np.float32)
    state, loss = train(state, jax.make_array_from_process_local_data(by_rank, mine))
    log(step, float(loss))
    if step % SAVE_EVERY == 0:
        manager.save(step, args=ocp.args.StandardSave(state))
manager.wait_until_finished()
manager.close()
