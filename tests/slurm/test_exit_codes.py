"""What a batch script sees of a job's end: the code of srun, and what stands beside the checkpoints (docs/slurm.md)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from drills.sight import until
from slurm.cluster import Cluster, Setup

pytestmark = pytest.mark.drill

ENDS = 'import os, sys; sys.exit({code} if os.environ["RANK"] == "1" else 0)'
WAITS = "import os, sys, time\nwhile not os.path.exists(sys.argv[1]): time.sleep(0.05)"
AGREED = r"""
code=$?
echo srun ended with $code
if [ "$code" -gt 128 ]; then
    said=$(sed -n 's/^ *"exit_code": \([0-9]*\),*$/\1/p' "$CKPT/.remuster/$SLURM_JOB_ID.0/job.json")
    code=${said:-$code}
fi
exit "$code"
"""


def script(cluster: Cluster, text: str) -> Path:
    path = cluster.directory / "train.py"
    path.write_text(text)
    return path


@pytest.mark.parametrize("code", [5, 0])
def test_a_site_that_kills_on_a_bad_exit(new_cluster: Callable[[Setup], Cluster], code: int) -> None:
    """Red without ``Signals.close``: the node that ended last gave 143, and srun gives the highest."""
    cluster = new_cluster(Setup(more=("KillOnBadExit=1", "WaitTime=5")))
    train = script(cluster, ENDS.format(code=code))
    for nodes in (2, 4, 4):
        job = cluster.sbatch(f"srun remuster {train}; echo srun ended with $?", f"-N{nodes}", "--no-requeue")
        job.wait_for("COMPLETED")
        assert f"srun ended with {code}\n" in job.output(), job.output()[-3000:]


@pytest.mark.parametrize(("lost", "code"), [("its power", 0), ("by its administrator", 137)])
def test_a_lost_node_may_hide_the_code_that_the_others_agreed_on(
    new_cluster: Callable[[Setup], Cluster], lost: str, code: int
) -> None:
    """srun counts 137 for a task that was killed, as when its node is taken down, and nothing for one that vanished."""
    cluster = new_cluster(Setup(nodes=3))
    done, kept = cluster.directory / "done", cluster.directory / "kept"
    train = script(cluster, WAITS)
    line = f"remuster --nnodes 2:3 --max-restarts 3 --checkpoint-dir {kept} {train} {done}"
    job = cluster.sbatch(
        f"export CKPT={kept}\nsrun --no-kill --kill-on-bad-exit=0 --wait=0 {line}\n{AGREED}", "-N3", "--no-kill"
    )
    until(lambda: "round 1 runs" in job.output(), job.output, 30.0)
    if code:
        cluster.sh("scontrol update NodeName=node3 State=DOWN Reason=test")
    else:
        cluster.crash("node3")
    until(lambda: "round 2 runs" in job.output(), job.output, 60.0)
    until(lambda: job.nodes() == ["node1", "node2"], lambda: f"node3 is taken from it: {job.show()}", 60.0)
    done.touch()
    shown = job.wait_for("COMPLETED", timeout_s=60.0)
    assert f"srun ended with {code}\n" in job.output(), job.output()[-3000:]
    assert shown["ExitCode"] == "0:0"


def test_a_second_step_right_after_one_that_failed(new_cluster: Callable[[Setup], Cluster]) -> None:
    """Nothing of the first is in its way: no lock, no store, no port; srun waits for nodes that are not free yet."""
    cluster = new_cluster(Setup(nodes=2))
    train = script(cluster, ENDS.format(code=5))
    fine = cluster.directory / "fine.py"
    fine.write_text("")
    lines = "\n".join(f"srun remuster {path}; echo srun ended with $?" for path in (train, fine, train))
    job = cluster.sbatch(lines, "-N2", "--no-requeue")
    job.wait_for("COMPLETED", timeout_s=60.0)
    ends = [line[-1] for line in job.output().splitlines() if line.startswith("srun ended with")]
    assert ends == ["5", "0", "5"], job.output()[-3000:]
    for step in range(3):
        assert f"run_id={job.id}.{step}" in job.output()
