"""What every node of a launch must be given alike, in the words of the command line. Pure; called by ``agent/main.py``.

The node that begins a launch writes it into the store; one that was given something else is refused with both values.
Ranks per node, paths, a script's arguments and time-outs may differ, so they are not here.
"""

from __future__ import annotations

from .spec import Backend, JobSpec

MOST = 256  # characters of a value
ELSEWHERE = "an address for other machines"


def terms(spec: JobSpec, reached: str) -> tuple[tuple[str, str], ...]:
    """Return (what, value) pairs; their names read on in 'this node was given … , the run has …'.

    ``reached`` is `ELSEWHERE`, or names whose loopback this node is reached at: those of several can never meet.
    """
    least, most = spec.min_nodes, spec.max_nodes
    budget = ",".join(bound.text for bound in spec.retry_budget)
    pairs = (
        ("--rdzv-backend", _backend(spec)),
        ("an --rdzv-endpoint by which it is reached at", reached),
        ("--nnodes", str(most) if least == most else f"{least}:{most}"),
        ("the script", _script(spec)),
        ("--max-restarts", str(spec.max_restarts) if spec.bound_restarts else "none"),
        ("--retry-budget", budget or "none"),
        ("--exit-code-map", ",".join(mapped.text for mapped in spec.exit_map) or "none"),
        ("--checkpoint-format", spec.checkpoint_format or "none"),
        ("--signatures", "none" if spec.signatures is None else f"digest {spec.signatures.digest}"),
        ("--on-store-loss", spec.store_loss.value),
        ("--admit", spec.admit.value),
        ("--rank-order", spec.rank_order.value),
        ("in --rdzv-conf a lease_ttl of", str(spec.lease_ttl_s)),
        ("in --rdzv-conf a kill_bound of", f"{spec.kill_bound_s:g}"),
    )
    return tuple((what, value[:MOST]) for what, value in pairs)


def _backend(spec: JobSpec) -> str:
    if spec.backend is Backend.MEMORY:
        return "none"
    if spec.place is not None or spec.master is not None:
        return "static"
    return "etcd" if spec.embedded is None else "c10d"


def _script(spec: JobSpec) -> str:
    if spec.module:
        return f"-m {spec.script}"
    name = spec.script.rpartition("/")[2]
    if spec.runner is not None:
        return f"--run-path {name}"
    return f"--no-python {name}" if spec.no_python else name
