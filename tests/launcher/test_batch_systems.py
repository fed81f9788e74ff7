"""What the environment of PBS, LSF and OAR says, and where the pods of a Kubernetes Job meet."""

from __future__ import annotations

import pytest

from remuster.launcher import pods
from remuster.launcher.batch_systems import Batch, found, port
from remuster.launcher.environment import BATCH
from remuster.launcher.errors import UsageError
from remuster.launcher.given import Setting


def pbs(job: str = "12.head", file: str | None = "/f", **more: object) -> Batch:
    named = None if file is None else Setting(file, "PBS_NODEFILE")
    return Batch("PBS", Setting(job, "PBS_JOBID"), named)._replace(**more)


@pytest.mark.parametrize(
    ("environ", "batch"),
    [
        ({}, None),
        ({"PBS_NODEFILE": "/f", "LSB_HOSTS": "a b"}, None),
        ({"PBS_JOBID": ""}, None),
        ({"PBS_JOBID": "12.head"}, pbs(file=None)),
        ({"PBS_JOBID": "12.head", "PBS_NODEFILE": "/f", "PBS_NODENUM": "0"}, pbs()),
        ({"PBS_JOBID": "12[3].head", "PBS_NODEFILE": "/f"}, pbs("12[3].head")),
        ({"PBS_JOBID": "12.head", "PBS_NODEFILE": "/f", "PBS_NODENUM": "1"}, pbs(later_node=True)),
        (
            {"PBS_JOBID": "12.head", "PBS_NODEFILE": "/f", "PMI_LOCAL_SIZE": "8"},
            pbs(tasks=Setting("8", "PMI_LOCAL_SIZE")),
        ),
        (
            {"LSB_JOBID": "7", "LSB_JOBINDEX": "0", "LSB_DJOB_HOSTFILE": "/h", "LSB_MCPU_HOSTS": "a 1 b 1"},
            Batch(
                "LSF",
                Setting("7", "LSB_JOBID"),
                Setting("/h", "LSB_DJOB_HOSTFILE"),
                Setting("a 1 b 1", "LSB_MCPU_HOSTS"),
            ),
        ),
        ({"LSB_JOBID": "7", "LSB_JOBINDEX": "3"}, Batch("LSF", Setting("7[3]", "LSB_JOBID"))),
        ({"OAR_JOB_ID": "9", "OAR_NODEFILE": "/o", "OAR_NODE_FILE": "/o"},
         Batch("OAR", Setting("9", "OAR_JOB_ID"), Setting("/o", "OAR_NODEFILE"))),
        ({"OAR_JOB_ID": "9", "OAR_FILE_NODES": "/o"},
         Batch("OAR", Setting("9", "OAR_JOB_ID"), Setting("/o", "OAR_FILE_NODES"))),
    ],
)  # fmt: skip
def test_what_the_environment_says(environ: dict[str, str], batch: Batch | None) -> None:
    assert found(environ) == batch
    assert batch is None or any(environ.get(name) for name in BATCH)


def test_jobs_have_ports_of_their_own() -> None:
    ports = {port(f"{job}.head") for job in range(100, 1100)}
    assert len(ports) == 1000
    assert all(25400 <= one < 29400 for one in {*ports, port("x"), port("123456789012345"), port("7[3]")})


@pytest.mark.parametrize(
    ("index", "hostname", "full", "head"),
    [
        ("0", "job-0", "job-0.svc.default.svc.cluster.local", "job-0.svc.default.svc.cluster.local"),
        ("11", "job-11", "job-11.svc", "job-0.svc"),
        ("1", "job-1-1", "job-1-1.svc", "job-1-0.svc"),
        ("3", "set-workers-0-3", "set-workers-0-3.set", "set-workers-0-0.set"),
    ],
)
def test_where_pods_meet(index: str, hostname: str, full: str, head: str) -> None:
    assert pods.head(index, hostname, full) == head


@pytest.mark.parametrize(
    ("index", "hostname", "full", "says"),
    [
        ("x", "job-0", "job-0.svc", "JOB_COMPLETION_INDEX is 'x'"),
        ("9" * 5000, "job-9", "job-9.svc", "which is no whole number"),
        ("-1", "job-1", "job-1.svc", "JOB_COMPLETION_INDEX is '-1'"),
        ("1", "job-11x", "job-11x.svc", "does not end with it; give --rdzv-endpoint"),
        ("1", "job11", "job11.svc", "does not end with it; give --rdzv-endpoint"),
        ("1", "job-1", "job-1", "has no domain, so that no other pod could look up job-0; give the Job's"),
        ("1", "job-1", "localhost.localdomain", "has no domain"),
        ("1", "job-1", "job-1.", "has no domain"),
    ],
)
def test_pods_that_cannot_meet(index: str, hostname: str, full: str, says: str) -> None:
    with pytest.raises(UsageError) as refused:
        pods.head(index, hostname, full)
    assert says in str(refused.value)
