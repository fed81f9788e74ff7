"""What launchers say of their ranks' ends."""

from __future__ import annotations

from remuster.health.reported import pids, read

TORCHRUN = """\
W1130 04:03:22.189000 5854 torch/distributed/elastic/multiprocessing/api.py:1028] Sending process 5868 closing signal SIGTERM
E1130 04:03:22.192000 5854 torch/distributed/elastic/multiprocessing/api.py:1002] failed (exitcode: -9) local_rank: 2 (pid: 5870) of binary: python3
Failures:
[1]:
  rank      : 0 (local_rank: 0)
  exitcode  : -15 (pid: 5868)  (SIGTERM)
Root Cause (first observed failure):
[0]:
  rank      : 2 (local_rank: 2)
  exitcode  : -9 (pid: 5870)  (SIGKILL)
"""  # noqa: E501


def test_torchruns_report() -> None:
    said = read(TORCHRUN.splitlines())
    assert (said.statuses, said.root, said.locals) == ({0: -15, 2: -9}, 2, {2: -9})
    assert (said.pids, said.stopped) == ({0: 5868, 2: 5870}, {5868})


def test_srun() -> None:
    said = read(
        [
            "srun: error: node-b3: task 2: Exited with exit code 7",
            "srun: error: node-b1: tasks 0-1,4: Killed",
            "srun: error: node-b4: task 5: Segmentation fault (core dumped)",
            "srun: error: Unable to create step",
        ]
    )
    assert said.tasks == {2: 7, 0: -9, 1: -9, 4: -9, 5: -11}


def test_pids() -> None:
    assert pids(["rank0 41001", "1: 41002", "rank 2 pid=41003", "# a note", "x"]) == {0: 41001, 1: 41002, 2: 41003}
