"""What Slurm leaves in a job's output, as ``remuster explain`` reads it: consoles of Slurm 22.05, and of other releases.

Who killed an agent, or a node's last task, is told apart from the memory killer (B53).
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from remuster.launcher.explain import main

# fmt: off
# ruff: noqa: E501  the lines are Slurm's
CONSOLES = {
    "WaitTime is over": ("launcher_killed_by_srun", """\
srun: First task exited 30s ago
srun: StepId=11.0 task 0: running
srun: StepId=11.0 task 1: exited
srun: launch/slurm: _step_signal: Terminating StepId=11.0
slurmstepd-node1: error: *** STEP 11.0 ON node1 CANCELLED AT 2026-11-30T12:34:48 ***
srun: Job step aborted: Waiting up to 7 seconds for job step to finish.
srun: error: node1: task 0: Killed
"""),
    "KillOnBadExit, 22.05": ("launcher_killed_by_srun", """\
srun: error: node2: task 1: Exited with exit code 75
srun: launch/slurm: _step_signal: Terminating StepId=10.0
slurmstepd-node1: error: *** STEP 10.0 ON node1 CANCELLED AT 2026-11-30T12:34:45 ***
srun: error: node1: task 0: Exited with exit code 75
"""),
    "KillOnBadExit, 23.02": ("launcher_killed_by_srun", """\
srun: error: node2: task 1: Exited with exit code 75
srun: Terminating StepId=10.0
slurmstepd: error: *** STEP 10.0 ON node1 CANCELLED AT 2026-11-30T12:34:45 ***
"""),
    "one agent killed": ("killed_unknown", """\
srun: error: node2: task 1: Killed
srun: Force Terminated StepId=6.0
"""),
    "the memory killer, 22.05": ("host_oom", """\
slurmstepd: error: Detected 1 oom_kill event in StepId=11.0. Some of the step tasks have been OOM Killed.
srun: error: node1: tasks 0-1: Out Of Memory
srun: Terminating StepId=11.0
"""),
    "the memory killer, 20.11": ("host_oom", """\
slurmstepd: error: Detected 2 oom-kill event(s) in StepId=7.0 cgroup. Some of your processes may have been killed by the cgroup out-of-memory handler.
srun: error: node1: task 0: Out Of Memory
"""),
    "jobacct_gather's limit": ("host_oom", "slurmstepd: error: StepId=7.0 exceeded memory limit (9437184 > 8388608), being killed\n"),
    "a node fails, --no-kill": ("node_lost", """\
srun: error: Node failure on node2
srun: error: node2: task 1: Killed
srun: Force Terminated StepId=16.0
"""),
    "a node fails, --no-kill, and the job is done": ("success", """\
srun: error: Node failure on node3
14:02:36 [info     ] done                           exit_code=0 round=2 why='every rank exited 0'
14:02:36 [info     ] exit                           code=0
srun: Force Terminated StepId=42273975.0
my script ends with 0
"""),
    "a node fails in the next launch": ("node_lost", """\
14:02:36 [info     ] exit                           code=0
srun: error: Node failure on node3
"""),
    "requeued": ("preempted", """\
slurmstepd-node1: error: *** STEP 1.0 ON node1 CANCELLED AT 2026-11-30T12:33:19 DUE TO JOB REQUEUE ***
srun: got SIGCONT
srun: Job step aborted: Waiting up to 7 seconds for job step to finish.
srun: forcing job termination
srun: error: node2: task 1: Terminated
"""),
    "requeued after an exception": ("user_exception", """\
Traceback (most recent call last):
  File "t.py", line 3, in <module>
    raise ValueError("x")
ValueError: x
srun: error: node2: task 1: Exited with exit code 1
slurmstepd-node1: error: *** JOB 1 ON node1 CANCELLED AT 2026-11-30T12:33:19 DUE TO JOB REQUEUE ***
"""),
    "a node that does not answer": ("node_lost", """\
srun: error: Task launch for StepId=99.0 failed on node n7: Communication connection failure
srun: error: Application launch failed: Communication connection failure
srun: Job step aborted: Waiting up to 32 seconds for job step to finish.
srun: error: Timed out waiting for job step to complete
"""),
    "a prolog": ("node_lost", "srun: error: Task launch for StepId=99.0 failed on node n7: Job prolog failed\n"),
    "no such program": ("user_args", """\
slurmstepd-node2: error: execve(): /nonexistent: No such file or directory
srun: error: node2: task 1: Exited with exit code 2
"""),
    "more than there is": ("user_args", "srun: error: Unable to create step for job 77: More processors requested than permitted\n"),
    "the controller does not answer": ("external_service", "srun: error: Unable to create step for job 77: Socket timed out on send/recv operation\n"),
    "a step after the job's end": ("killed_unknown", "srun: error: Unable to create step for job 77: Job/step already completing or completed\n"),
    "a process in D state": ("node_lost", "slurmstepd: error: *** STEP 8.0 STEPD TERMINATED ON n7 AT 2026-03-11T04:02:11 DUE TO JOB NOT ENDING WITH SIGNALS ***\n"),
    "host memory": ("host_memory_ecc", "slurmstepd: error: *** STEP 12.0 ON n7 UNCORRECTABLE MEMORY ERROR AT 2026-03-11T04:02:11 ***\n"),
    "caches were dropped": ("exit_unknown", "slurmstepd: error: Exceeded step memory limit at some point.\n"),
}
# fmt: on


@pytest.mark.parametrize("name", CONSOLES)
def test_b53_who_ended_the_step(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cls, text = CONSOLES[name]
    console = tmp_path / "slurm-77.out"
    console.write_text(text)
    main([str(console), "--json"], {})
    assert json.loads(capsys.readouterr().out)["class"] == cls
