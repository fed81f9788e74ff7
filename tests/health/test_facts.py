"""What nodes saw beside their ranks' ends, and what of it decides: tables over rounds, and laws over any facts."""
# ruff: noqa: E501  lines as the kernel and the driver write them

from __future__ import annotations

import random
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from remuster.health.classes import all_classes, find
from remuster.health.evidence import Fact, NodeEvidence, RankExit, RoundEvidence
from remuster.health.observed import (
    Early,
    FabricPort,
    Gpu,
    HookWord,
    KernelLine,
    Lacked,
    OomKill,
    Position,
    SchedulerWord,
    Sighting,
    Silence,
    Slow,
    Stack,
)
from remuster.health.own_signatures import OwnSignatures
from remuster.health.suspicion import suspicion
from remuster.health.verdict import Verdict, judge

TB = "Traceback (most recent call last):\n"
KEY = TB + "KeyError: 'text'"
ECC = TB + "RuntimeError: CUDA error: uncorrectable ECC error encountered"
ILLEGAL = TB + "RuntimeError: CUDA error: an illegal memory access was encountered"
ASSERT = TB + "RuntimeError: CUDA error: device-side assert triggered"
LAUNCH = TB + "RuntimeError: CUDA error: unspecified launch failure"
GLOO = TB + "RuntimeError: [gloo/transport/tcp/pair.cc:537] Connection closed by peer [10.0.3.11]:39001"
GLOO_WAIT = (
    TB
    + "RuntimeError: [gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting 8000ms for recv operation to complete"
)
REMOTE = (
    TB
    + "torch.distributed.DistBackendError: NCCL error in: x\nncclRemoteError: A call failed possibly due to a network"
)
WORKER = TB + "RuntimeError: DataLoader worker (pid 4242) is killed by signal: Killed. "
BUS = (
    TB
    + "RuntimeError: DataLoader worker (pid 4242) is killed by signal: Bus error. It is possible that dataloader's workers are out of shared memory."
)
WATCHDOG = "[Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=9, OpType=ALLREDUCE, NumelIn=9)"
STALE = TB + "OSError: [Errno 116] Stale file handle: '/data/x'"

UUID = "GPU-5d5ba0d6-d33d-2b2c-524d-9e3d8d2b8a77"
BUS3B = "0000:3b:00"


def ended(rank: int, status: int, text: str = "", *, at_s: float = 100.0, stopping: bool = False) -> RankExit:
    return RankExit(rank, rank % 2, 100 + rank, status, at_s, stopping, tail=tuple(text.split("\n")) if text else ())


def stopped(rank: int, status: int = -15, text: str = "", *, at_s: float = 101.0) -> RankExit:
    return ended(rank, status, text, at_s=at_s, stopping=True)


def xid(code: int, text: str = "", *, at_s: float = 99.0, pid: int = 0, bus: str = BUS3B) -> KernelLine:
    who = f"pid={pid}, name=python" if pid else "pid='<unknown>', name=<unknown>"
    return KernelLine(at_s, f"NVRM: Xid (PCI:{bus}): {code}, {who}, {text}")


def gpu(*codes: int, at_s: float = 99.0, ranks: tuple[int, ...] = (), **more: object) -> Gpu:
    made = Gpu(UUID, "00000000:3B:00.0", 2, ranks, tuple((code, at_s) for code in codes))
    return made._replace(**more)  # type: ignore[arg-type]


def oom(pid: int, process: str = "python", *, at_s: float = 99.5, scope: str = "Memory cgroup out") -> KernelLine:
    return KernelLine(at_s, f"{scope} of memory: Killed process {pid} ({process}) total-vm:9000kB, anon-rss:8000kB")


def round_of(*nodes: tuple[Fact, ...], lost: tuple[str, ...] = (), slots: int = 2) -> RoundEvidence:
    names = [chr(ord("a") + i) for i in range(len(nodes))]
    spoken = tuple(NodeEvidence(name, facts, 10 + i) for i, (name, facts) in enumerate(zip(names, nodes, strict=True)))
    return RoundEvidence(4, spoken, tuple((name, slots) for name in [*names, *lost]), lost)


def alone(*facts: Fact) -> RoundEvidence:
    return round_of(facts, slots=1)


RESET = "GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)"
NONE = "GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)"
UE = "EDAC MC1: 1 UE memory read error on CPU_SrcID#1_MC#1_Chan#0_DIMM#0"
SIGBUS = "Memory failure: 0x4f1a22: Sending SIGBUS to python:101 due to hardware memory corruption"
DOWN = "mlx5_core 0000:5e:00.0 mlx5_2: Port: 1 Link DOWN"

# name: (evidence, class, node, rank, node at fault, confidence)
GPUS: dict[str, tuple[RoundEvidence, str, str, int, bool, str]] = {
    "79 beats a bare exit": (alone(ended(0, 1), xid(79)), "gpu_lost", "a", 0, True, "certain"),
    "48 beats the text, 63 and 45 decide nothing": (
        alone(ended(0, 1, KEY), xid(63), xid(45), xid(48)), "gpu_ecc", "a", 0, True, "certain"),
    "63 alone decides nothing": (alone(ended(0, 1, KEY), xid(63)), "user_data_error", "a", 0, False, "likely"),
    "45 alone decides nothing": (alone(ended(0, -9), xid(45)), "killed_unknown", "a", 0, False, "guess"),
    "43 and 137 decide nothing": (alone(ended(0, 7), xid(43), gpu(137)), "exit_unknown", "a", 0, False, "guess"),
    "94 is contained, whatever the text": (alone(ended(0, 1, ECC), xid(94)), "gpu_ecc_contained", "a", 0, False, "certain"),
    "94 and a counter that rose with it": (
        alone(ended(0, 1, ECC), gpu(94, counters=(("ecc_uncorrected", 1),))), "gpu_ecc_contained", "a", 0, False, "certain"),
    "94, but the driver asks for a reset": (
        alone(ended(0, 1, ECC), gpu(94, recovery=1)), "gpu_ecc_contained", "a", 0, True, "certain"),
    "95 is not contained": (alone(ended(0, 1, ECC), xid(94), xid(95)), "gpu_ecc", "a", 0, True, "certain"),
    "119 through NVML alone": (alone(ended(0, 1), gpu(119)), "gpu_driver_hang", "a", 0, True, "certain"),
    "120, then 154": (alone(ended(0, 1), xid(120), xid(154, RESET)), "gpu_driver_hang", "a", 0, True, "certain"),
    "154 alone": (alone(ended(0, 1), xid(154, RESET)), "gpu_driver_hang", "a", 0, True, "certain"),
    "154 through NVML, with the action in field 230": (
        alone(ended(0, 1), gpu(154, recovery=2)), "gpu_driver_hang", "a", 0, True, "certain"),
    "154 through NVML without an action": (alone(ended(0, 7), gpu(154)), "exit_unknown", "a", 0, False, "guess"),
    "154 back to none": (alone(ended(0, 1, KEY), xid(154, NONE), gpu(154)), "user_data_error", "a", 0, False, "likely"),
    "a wish for a reset does not explain a traceback": (
        alone(ended(0, 1, KEY), gpu(recovery=1)), "user_data_error", "a", 0, False, "likely"),
    "but it does a bare exit": (alone(ended(0, 7), gpu(recovery=1)), "gpu_driver_hang", "a", 0, True, "certain"),
    "an application XID with a wish for a reset is hardware": (
        alone(ended(0, 1, ILLEGAL), gpu(31, recovery=4)), "gpu_driver_hang", "a", 0, True, "certain"),
    "74 with a failure near it": (alone(ended(0, 1, LAUNCH), xid(74)), "gpu_nvlink", "a", 0, True, "certain"),
    "79 takes 74 on every other GPU along": (
        round_of((ended(0, 1), ended(1, 1), xid(74, bus="0000:1a:00", at_s=98), xid(79))), "gpu_lost", "a", -1, True, "certain"),
    "NVLink5 nonfatal": (alone(ended(0, 1, KEY), xid(149, "NETIR Nonfatal XC0 i0 Link 07"), gpu(149)), "user_data_error", "a", 0, False, "likely"),
    "NVLink5 fatal": (alone(ended(0, 1, KEY), xid(149, "NETIR Fatal XC0 i0 Link 07")), "gpu_nvlink", "a", 0, True, "certain"),
    "fallen off without an XID": (
        alone(ended(0, 1), KernelLine(99, "NVRM: GPU 0000:3b:00.0: GPU has fallen off the bus.")), "gpu_lost", "a", 0, True, "certain"),
    "lost to NVML": (alone(ended(0, 1, LAUNCH), gpu(lost=True)), "gpu_lost", "a", 0, True, "certain"),
    "an NVSwitch": (alone(ended(0, 1), KernelLine(99, "nvidia-nvswitch0: SXid (PCI:0000:07:00.0): 20034, Fatal, Link 30")), "gpu_nvlink", "a", 0, True, "certain"),
    "31 is the program": (alone(ended(0, 1, LAUNCH), xid(31)), "gpu_app_fault", "a", 0, False, "certain"),
    "31 outranks a traceback of the same moment": (alone(ended(0, 1, KEY), xid(31)), "gpu_app_fault", "a", 0, False, "certain"),
    "13 beside a device assert": (alone(ended(0, 1, ASSERT), xid(13)), "user_device_assert", "a", 0, False, "certain"),
    "31 beside an ECC error in words": (alone(ended(0, 1, ECC), xid(31)), "gpu_ecc", "a", 0, True, "certain"),
    "an unknown number": (alone(ended(0, 7), gpu(9999)), "exit_unknown", "a", 0, False, "guess"),
    # [-60 s, +10 s] of the first failure
    "59 s before": (alone(ended(0, 1, KEY), xid(79, at_s=41)), "gpu_lost", "a", 0, True, "certain"),
    "61 s before": (alone(ended(0, 1, KEY), xid(79, at_s=39)), "user_data_error", "a", 0, False, "likely"),
    "9 s after": (alone(ended(0, 1, KEY), xid(79, at_s=109)), "gpu_lost", "a", 0, True, "certain"),
    "11 s after": (alone(ended(0, 1, KEY), xid(79, at_s=111)), "user_data_error", "a", 0, False, "likely"),
    "ten minutes before the others' wait ran out": (
        round_of((ended(0, -6, WATCHDOG, at_s=700), stopped(1, at_s=701), gpu(79, at_s=99, ranks=(1,)))), "gpu_lost", "a", 1, True, "likely"),
    "five hours before, a kill, and a hang": (
        round_of((ended(0, -6, WATCHDOG, at_s=20000), stopped(1, at_s=20001), gpu(79, 74, at_s=99, ranks=(1,)))), "rank_hang", "a", 1, False, "guess"),
    "some minutes before, and a kill": (alone(ended(0, -9, at_s=700), gpu(79, at_s=99)), "killed_unknown", "a", 0, False, "guess"),
    "some minutes before, and no words": (alone(ended(0, 7, at_s=700), gpu(79, at_s=99)), "gpu_lost", "a", 0, True, "likely"),
    "after the end, and no words": (alone(ended(0, 7, at_s=99), gpu(79, at_s=110)), "exit_unknown", "a", 0, False, "guess"),
    "it does not start": (alone(ended(0, 1), KernelLine(99, "NVRM: GPU 0000:3b:00.0: RmInitAdapter failed! (0x62)")), "gpu_unavailable", "a", 0, True, "certain"),
    "a traceback that was seen a minute before": (
        alone(ended(0, 1, KEY), Sighting(0, 20.0, "exception", "KeyError: 'text'"), xid(79, at_s=99)), "user_data_error", "a", 0, False, "likely"),
    "one that was seen just before": (
        alone(ended(0, 1, KEY), Sighting(0, 60.0, "exception", "KeyError: 'text'"), xid(79, at_s=99)), "gpu_lost", "a", 0, True, "certain"),
    # whose GPU
    "by NVML's map": (round_of((ended(0, 1, LAUNCH), ended(1, 1, LAUNCH), gpu(48, ranks=(1,)))), "gpu_ecc", "a", 1, True, "certain"),
    "by the process": (round_of((ended(0, 1, LAUNCH), ended(1, 1, LAUNCH), xid(48, pid=101))), "gpu_ecc", "a", 1, True, "certain"),
    "by its words": (round_of((ended(0, 1, GLOO), ended(1, 1, LAUNCH), xid(48))), "gpu_ecc", "a", 1, True, "likely"),
    "by whom the others waited for": (
        round_of((ended(0, -6, WATCHDOG), ended(1, -6, WATCHDOG.replace("SeqNum=9", "SeqNum=8")), xid(48))), "gpu_ecc", "a", 1, True, "likely"),
    "nobody's": (round_of((ended(0, 1, LAUNCH), ended(1, 1, LAUNCH), xid(48))), "gpu_ecc", "a", -1, True, "certain"),
    "on another node than the first cry": (
        round_of((ended(0, 1, GLOO), stopped(1)), (stopped(2), stopped(3), gpu(79, ranks=(3,), at_s=99))), "gpu_lost", "b", 3, True, "certain"),
    "ecc counter alone": (alone(ended(0, -11), gpu(counters=(("ecc_uncorrected", 2),))), "gpu_ecc", "a", 0, True, "certain"),
    "corrected errors are nothing": (alone(ended(0, -11), gpu(counters=(("ecc_corrected", 9),))), "segfault", "a", 0, False, "likely"),
}  # fmt: skip

HOSTS: dict[str, tuple[RoundEvidence, str, str, int, bool, str]] = {
    "a bare kill stays unknown": (alone(ended(0, -9)), "killed_unknown", "a", 0, False, "guess"),
    "the killer names the rank": (round_of((ended(0, -9), stopped(1), oom(100))), "host_oom", "a", 0, False, "certain"),
    "137 of a shell": (round_of((ended(0, 137), stopped(1), oom(100))), "host_oom", "a", 0, False, "certain"),
    "another rank died first, the named one is the cause": (
        round_of((ended(0, 1, GLOO, at_s=99), ended(1, -9), oom(101))), "host_oom", "a", 1, False, "certain"),
    "a process id of another namespace": (alone(ended(0, -9), oom(7)), "host_oom", "a", 0, False, "likely"),
    "a kill of something else": (alone(ended(0, -9), oom(7, "mysqld")), "killed_unknown", "a", 0, False, "guess"),
    "a kill of long ago": (alone(ended(0, -9), oom(7, at_s=30)), "killed_unknown", "a", 0, False, "guess"),
    "a kill of another rank": (round_of((ended(0, -9, at_s=99), ended(1, -9), oom(101))), "host_oom", "a", 1, False, "certain"),
    "its own counter": (alone(ended(0, -9), OomKill("rank 0", 1, 64 << 20, 64 << 20)), "host_oom", "a", 0, False, "certain"),
    "the counter of all, one killed": (round_of((ended(0, -9), stopped(1), OomKill("node", 1))), "host_oom", "a", 0, False, "certain"),
    "the counter of all, two killed": (round_of((ended(0, -9), ended(1, -9), OomKill("node", 1))), "host_oom", "a", 0, False, "likely"),
    "the machine's counter": (alone(ended(0, -9), OomKill("machine", 1)), "host_oom", "a", 0, False, "likely"),
    "a kill elsewhere on the machine": (alone(ended(0, -9), oom(7), OomKill("node", 0)), "killed_unknown", "a", 0, False, "guess"),
    "a counter of another rank": (round_of((ended(0, -9), stopped(1), OomKill("rank 1", 1))), "killed_unknown", "a", 0, False, "guess"),
    "a counter that did not rise": (alone(ended(0, -9), OomKill("rank 0", 0)), "killed_unknown", "a", 0, False, "guess"),
    "a counter does not explain a traceback": (alone(ended(0, 1, KEY), OomKill("rank 0", 1)), "user_data_error", "a", 0, False, "likely"),
    "a data worker": (alone(ended(0, 1, WORKER)), "dataloader_killed", "a", 0, False, "certain"),
    "a data worker that the kernel names": (alone(ended(0, 1, WORKER), oom(4242, "pt_data_worker")), "host_oom", "a", 0, False, "certain"),
    "a data worker, and a counter": (alone(ended(0, 1, WORKER), OomKill("rank 0", 1)), "host_oom", "a", 0, False, "certain"),
    "a pool's worker, and a counter": (
        alone(ended(0, 1, TB + "concurrent.futures.process.BrokenProcessPool: A process in the process pool was terminated"),
              OomKill("rank 0", 1)), "host_oom", "a", 0, False, "certain"),
    "our own SIGKILL": (round_of((ended(0, 1, KEY), stopped(1, -9), OomKill("rank 1", 1))), "user_data_error", "a", 0, False, "likely"),
    "our own SIGKILL after the grace": (
        round_of((ended(0, 1, GLOO), stopped(1, -9, at_s=130), OomKill("node", 1))), "peer_lost", "a", 0, False, "guess"),
    "killed in the moment in which a peer was seen to cry": (
        round_of((ended(0, 1, GLOO), stopped(1, -9, at_s=100.1), OomKill("node", 1))), "host_oom", "a", 1, False, "likely"),
    "our own SIGKILL, nobody else's": (round_of((ended(0, 1, GLOO), stopped(1, -9, at_s=100.1))), "peer_lost", "a", 0, False, "guess"),
    "its own counter while it was being stopped": (
        round_of((ended(0, 1, GLOO), stopped(1, -9, at_s=130), OomKill("rank 1", 1))), "host_oom", "a", 1, False, "certain"),
    "memory error with a bus error": (alone(ended(0, -7), KernelLine(99, UE)), "host_memory_ecc", "a", 0, True, "certain"),
    "memory error that names the rank": (round_of((ended(0, 1, GLOO), ended(1, -7), KernelLine(99, SIGBUS))), "host_memory_ecc", "a", 1, True, "certain"),
    "a bus error of a data worker is not always shared memory": (alone(ended(0, 1, BUS), KernelLine(99, UE)), "host_memory_ecc", "a", 0, True, "certain"),
    "a bus error alone is": (alone(ended(0, 1, BUS)), "shm_exhausted", "a", 0, False, "certain"),
    "a bare bus error": (alone(ended(0, -7)), "segfault", "a", 0, False, "likely"),
    "memory error beside a traceback": (alone(ended(0, 1, KEY), KernelLine(99, UE)), "user_data_error", "a", 0, False, "likely"),
    "disk under a wait": (round_of((ended(0, 1, GLOO_WAIT), stopped(1), KernelLine(99, "nvme nvme0: controller is down; will reset"))), "fs_mount_lost", "a", -1, True, "likely"),
    "mount under a wait": (round_of((ended(0, 1, GLOO_WAIT), stopped(1)), (stopped(2), KernelLine(99, "nfs: server nas1 not responding, still trying"))), "fs_hang", "b", -1, True, "likely"),
    "minutes ago, under a wait": (round_of((ended(0, 1, GLOO_WAIT, at_s=700), stopped(1), KernelLine(99, "nfs: server nas1 not responding, still trying"))), "fs_hang", "a", -1, True, "likely"),
    "minutes ago, and a bare end": (round_of((ended(0, 7, at_s=700), KernelLine(99, "nfs: server nas1 not responding, still trying"))), "exit_unknown", "a", 0, False, "guess"),
    "hours ago, under a wait": (round_of((ended(0, 1, GLOO_WAIT, at_s=9700), stopped(1), KernelLine(99, "nfs: server nas1 not responding"))), "rank_hang", "a", 1, False, "guess"),
    "the program is on one node only": (round_of((ended(0, 127), ended(1, 127)), (stopped(2), stopped(3))), "node_mount_missing", "a", 0, True, "likely"),
    "the program is nowhere": (round_of((ended(0, 127),), (ended(2, 127),)), "user_args", "a", 0, False, "guess"),
    "a disk does not explain a traceback": (alone(ended(0, 1, KEY), KernelLine(99, "EXT4-fs error (device sdb1): x")), "user_data_error", "a", 0, False, "likely"),
    "nor what the program says of its storage": (alone(ended(0, 1, STALE), KernelLine(99, "nfs: server nas1 not responding, still trying")), "fs_transient", "a", 0, False, "certain"),
    "nor a kill": (alone(ended(0, -9), KernelLine(99, "EXT4-fs error (device sdb1): x")), "killed_unknown", "a", 0, False, "guess"),
    "link down under cries": (round_of((ended(0, 1, REMOTE), stopped(1)), (stopped(2), KernelLine(100, DOWN))), "ib_link_error", "b", -1, True, "likely"),
    "port down under cries": (round_of((ended(0, 1, REMOTE), stopped(1)), (stopped(2), FabricPort("mlx5_2", 1, "DOWN"))), "ib_link_error", "b", -1, True, "certain"),
    "counters of a port decide nothing": (round_of((ended(0, 1, REMOTE), stopped(1)), (stopped(2), FabricPort("mlx5_2", 1, "ACTIVE", (("symbol_error", 3),)))), "nccl_remote_error", "a", 0, False, "guess"),
    "a link does not explain a traceback": (round_of((ended(0, 1, KEY), KernelLine(100, DOWN))), "user_data_error", "a", 0, False, "likely"),
    "a link beside a lost node": (round_of((ended(0, 1, REMOTE), KernelLine(100, DOWN)), lost=("z",)), "node_lost", "z", -1, True, "certain"),
    "the scheduler": (round_of((ended(0, 143), SchedulerWord("slurm: job 7 state PREEMPTED"))), "preempted", "a", -1, False, "certain"),
    "its time is over": (round_of((ended(0, 143), SchedulerWord("JobState=TIMEOUT"))), "time_limit", "a", -1, False, "certain"),
    "the scheduler counted a kill": (round_of((ended(0, -9), stopped(1), SchedulerWord("slurmstepd: error: Detected 1 oom_kill event in StepId=7.0"))), "host_oom", "a", 0, False, "likely"),
    "a word that says nothing": (round_of((ended(0, 7), SchedulerWord("JobState=RUNNING"))), "exit_unknown", "a", 0, False, "guess"),
    "a hook's word decides nothing": (round_of((ended(0, 7), HookWord("resume hook exit 1: No space left on device"))), "exit_unknown", "a", 0, False, "guess"),
}  # fmt: skip

ALARM = Early(0, 100.0, "rank 0 wrote that its collective timed out", "nccl-timeout")
QUIET = Early(-1, 100.0, "no rank has gone on for 90 s, 30 s are allowed")
DUMP = tuple(Position(r, "0", 40 if r != 2 else 39, 39, "ALLREDUCE") for r in range(4))
WAITING = ("torch/distributed/distributed_c10d.py:2501 all_reduce", "train.py:40 step")
ELSEWHERE = ("loader.py:9 fetch", "train.py:22 step")


def hang(*facts: Fact, reports: str = WATCHDOG) -> RoundEvidence:
    a = (ALARM, stopped(0, -15, reports), stopped(1))
    return round_of((*a, *facts), (stopped(2), stopped(3)))


HANGS: dict[str, tuple[RoundEvidence, str, str, int, bool, str]] = {
    "an alarm's rank is a reporter": (hang(), "collective_timeout", "a", 0, False, "guess"),
    "an alarm without a rank": (round_of((QUIET, stopped(0), stopped(1)), (stopped(2),)), "exit_unknown", "a", -1, False, "guess"),
    "what has enqueued least": (hang(*DUMP), "rank_hang", "b", 2, False, "likely"),
    "what has completed least": (
        hang(*(Position(r, "0", 40, 39 if r != 3 else 38, "ALLREDUCE") for r in range(4))), "rank_hang", "b", 3, False, "likely"),
    "all alike": (hang(*(Position(r, "0", 40, 39) for r in range(4))), "collective_timeout", "a", 0, False, "guess"),
    "one that is behind here because it waits there": (
        hang(Position(0, "dp", 9, 8), Position(1, "dp", 8, 8), Position(1, "tp", 5, 4), Position(3, "tp", 4, 4)),
        "rank_hang", "b", 3, False, "likely"),
    "a whole node is behind": (
        hang(*(Position(r, "0", 40 if r < 2 else 39, 39, "ALLREDUCE") for r in range(4))), "rank_hang", "b", 2, False, "likely"),
    "ranks of two nodes are behind: nobody is blamed": (
        hang(*(Position(r, "0", 40 if r in (0, 3) else 39, 39) for r in range(4))), "collective_timeout", "a", 0, False, "guess"),
    "the stack that is elsewhere": (
        hang(*(Stack(r, "py-spy", WAITING if r != 1 else ELSEWHERE) for r in range(4))), "rank_hang", "a", 1, False, "likely"),
    "of two ranks the one outside a collective": (
        hang(Stack(0, "faulthandler", WAITING), Stack(1, "faulthandler", ELSEWHERE)), "rank_hang", "a", 1, False, "likely"),
    "a stop let the hung one end with 0": (
        round_of((ended(0, 1, GLOO_WAIT), stopped(1, 0)), (ended(2, 1, GLOO_WAIT), ended(3, 1, GLOO_WAIT))),
        "rank_hang", "a", 1, False, "guess"),
    "an abort without a word, beside waits that ran out": (
        round_of((stopped(0), ended(1, -6)), (ended(2, -6, WATCHDOG), stopped(3))), "collective_timeout", "b", 2, False, "guess"),
    "one that has waited is on its way out, not elsewhere": (
        hang(Stack(0, "faulthandler", ("weakref.py:590 _exitfunc",)), Stack(1, "py-spy", ELSEWHERE),
             *(Stack(r, "py-spy", WAITING) for r in (2, 3))), "rank_hang", "a", 1, False, "likely"),
    "alone in its place": (
        hang(*(Stack(r, "py-spy", ("model.py:7 forward",) if r != 3 else ELSEWHERE) for r in range(4))), "rank_hang", "b", 3, False, "likely"),
    "stacks all alike": (hang(*(Stack(r, "py-spy", WAITING) for r in range(4))), "collective_timeout", "a", 0, False, "guess"),
    "a process that is stopped": (
        hang(*(Stack(r, "proc", ("python: sleeping" if r != 1 else "python: stopped",)) for r in range(4))), "rank_hang", "a", 1, False, "likely"),
    "a process that is stuck in the kernel": (
        hang(KernelLine(60, "INFO: task python:101 blocked for more than 120 seconds.")), "rank_hang", "a", 1, False, "likely"),
    "a process that is no rank": (
        hang(KernelLine(60, "INFO: task kworker:7 blocked for more than 120 seconds.")), "collective_timeout", "a", 0, False, "guess"),
    "the lowest step": (
        round_of((QUIET, stopped(0), stopped(1), Silence(0, 8, 90, 30, "heartbeat"), Silence(1, 7, 90, 30, "heartbeat"))),
        "rank_hang", "a", 1, False, "likely"),
    "the longest silence": (
        round_of((QUIET, stopped(0), stopped(1), Silence(0, -1, 90, 30, "output")), (stopped(2), Silence(2, -1, 99, 30, "output"))),
        "rank_hang", "b", 2, False, "likely"),
    "silent alike": (
        round_of((QUIET, stopped(0), stopped(1), Silence(0, 8, 90, 30, "heartbeat"), Silence(1, 8, 90.4, 30, "heartbeat"))),
        "exit_unknown", "a", -1, False, "guess"),
    "an explicit error beats every comparison": (
        round_of((ALARM, stopped(0, -15, WATCHDOG), stopped(1), *DUMP), (stopped(2), stopped(3, 1, KEY))), "user_data_error", "b", 3, False, "likely"),
    "so does a GPU": (hang(*DUMP, gpu(79, ranks=(1,))), "gpu_lost", "a", 1, True, "certain"),
    "what a living rank wrote counts when it has passed": (
        round_of((ALARM, stopped(0, -15, WATCHDOG), stopped(1)), (stopped(2, -15, "waiting"), Sighting(2, 9, "ecc", ECC.split("\n")[1]))), "gpu_ecc", "b", 2, True, "certain"),
    "unless training went on": (
        round_of((ended(0, 1, KEY),), (stopped(2, -15, "step 8 loss 1\nstep 9 loss 1"), Sighting(2, 9, "ecc", ECC.split("\n")[1]))), "user_data_error", "a", 0, False, "likely"),
    "stragglers are named and no cause": (round_of((ended(0, 7), Slow(0, 2.5))), "exit_unknown", "a", 0, False, "guess"),
}  # fmt: skip
CASES = {**GPUS, **HOSTS, **HANGS}


@pytest.mark.parametrize("name", CASES)
def test_root(name: str) -> None:
    evidence, cls, node, rank, fault, confidence = CASES[name]
    v = judge(evidence)
    assert (v.cls, v.node, v.rank, v.node_fault, v.confidence) == (cls, node, rank, fault, confidence), v
    assert v.family == find(cls).family
    assert v.evidence


@pytest.mark.parametrize("name", CASES)
def test_the_sentence_is_one_line_and_names_all(name: str) -> None:
    v = judge(CASES[name][0])
    assert "\n" not in v.sentence
    assert v.node in v.sentence
    assert v.rank < 0 or f"rank {v.rank} on {v.node}" in v.sentence


@pytest.mark.parametrize("name", CASES)
def test_exit_0_of_every_rank_is_success_whatever_was_seen(name: str) -> None:
    evidence = CASES[name][0]
    well = tuple(node._replace(facts=tuple(f._replace(status=0, stopping=False, tail=()) if isinstance(f, RankExit) else f
                 for f in node.facts if not isinstance(f, Early))) for node in evidence.nodes)  # fmt: skip
    assert judge(evidence._replace(nodes=well, lost=())).cls == "success"


def test_words() -> None:
    v = judge(GPUS["by NVML's map"][0])
    assert v.sentence == (
        "rank 1 on a: uncorrectable GPU memory error (ECC): GPU 2 (0000:3b:00): XID 48 (double-bit ECC error)"
    )
    assert v.gpu == UUID
    assert v.victims == ()
    v = judge(GPUS["120, then 154"][0])
    assert v.sentence == (
        "rank 0 on a: the GPU driver does not answer: GPU 0000:3b:00: XID 120 (GSP error); the driver asks for a reset of the GPU"
    )
    assert v.gpu == "0000:3b:00"
    assert [proof.source for proof in v.evidence] == ["kernel log", "kernel log"]
    v = judge(GPUS["48 beats the text, 63 and 45 decide nothing"][0])
    assert "GPU 0000:3b:00 of a: XID 45 (preemptive removal) follows from something else" in v.unused
    assert "GPU 0000:3b:00 of a: XID 63 (row remapped or page retired) decides nothing by itself" in v.unused
    v = judge(HANGS["the stack that is elsewhere"][0])
    assert v.sentence == "rank 1 on a hung: it was in loader.py:9 fetch, the others in a collective"
    assert {proof.source for proof in v.evidence} == {"stacks", "last lines", "alarm"}
    v = judge(HANGS["what has enqueued least"][0])
    assert v.sentence == ("rank 2 on b hung: it had enqueued 39 collectives of group 0, the others 40 (ALLREDUCE)")
    v = judge(HOSTS["counters of a port decide nothing"][0])
    assert "b: mlx5_2 port 1 is ACTIVE, symbol_error +3" in v.unused


LEFT_EARLY: dict[str, tuple[tuple[Fact, ...], tuple[str, int]]] = {
    "others wait until their time runs out": ((ended(0, 1, GLOO_WAIT), ended(1, 0, at_s=10)), ("rank_hang", 1)),
    "others lose it": ((ended(0, 1, GLOO, at_s=20), ended(1, 0, at_s=10)), ("rank_hang", 1)),
    "others stand until the round is ended": (
        (stopped(0), ended(1, 0, at_s=10), stopped(2), Early(60, 0, "no rank has written", "silence")),
        ("rank_hang", 1),
    ),
    "a guess of who was waited for is weaker": (
        (ended(0, 1, GLOO_WAIT), ended(1, 0, at_s=10), stopped(2)),
        ("rank_hang", 1),
    ),
    "one that was behind is the better answer": (
        (
            Silence(0, 5, 40.0, 30.0, "heartbeat"),
            ended(1, 0, at_s=10),
            Silence(2, 3, 40.0, 30.0, "heartbeat"),
            ended(0, 1, GLOO_WAIT),
            stopped(2),
        ),
        ("rank_hang", 2),
    ),
    "two of one node": (
        (ended(0, 1, GLOO), ended(1, 0, at_s=10), ended(2, 0, at_s=9), stopped(3)),
        ("rank_hang", 2),
    ),
    "more have left than went on": ((ended(0, 1, GLOO), ended(1, 0, at_s=10), ended(2, 0, at_s=9)), ("peer_lost", 0)),
    "it left when another had failed": ((ended(0, 1, GLOO, at_s=5), ended(1, 0, at_s=10)), ("peer_lost", 0)),
    "an exception says what it was": ((ended(0, 1, KEY), ended(1, 0, at_s=10)), ("user_data_error", 0)),
}


@pytest.mark.parametrize("case", LEFT_EARLY)
def test_who_left_early_is_named(case: str) -> None:
    facts, expected = LEFT_EARLY[case]
    v = judge(round_of(facts, slots=sum(isinstance(fact, RankExit) for fact in facts)))
    assert (v.cls, v.rank) == expected, v
    if v.status == 0:
        more = "; so did 1 more of its node" if case.startswith("two") else ""
        left = "" if v.rank == 2 and not more else f"left early: it exited 0 while the others went on{more}"
        assert v.sentence.endswith(left)
    elif v.cls == "peer_lost":
        assert "had exited 0 before)" in v.sentence


def test_ranks_of_two_nodes_that_left_early_are_not_named() -> None:
    """Whose end was the first nobody can say: their clocks are not compared."""
    v = judge(round_of((ended(0, 1, GLOO), ended(1, 0, at_s=10)), (stopped(2), ended(3, 0, at_s=9))))
    assert (v.cls, v.rank) == ("peer_lost", 0)
    assert "had exited 0 before)" in v.sentence


def test_a_crash_is_shown_with_the_library() -> None:
    line = "python[100]: segfault at 0 ip 00007f1 sp 00007ffd error 4 in libc10.so[7f1+9000]"
    v = judge(round_of((ended(0, -11), stopped(1), KernelLine(99, line))))
    assert (v.cls, v.confidence) == ("segfault", "likely")
    assert v.evidence[-1] == ("kernel log", "a", line)
    assert not any("libc10" in note for note in v.unused)


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        ((OomKill("node", 0, 64 << 20, 32 << 20),), True),
        ((), False),
        ((OomKill("node", 0), OomKill("rank 1", 1)), False),
    ],
)
def test_that_no_kill_was_counted_is_said_of_a_bare_kill(facts: tuple[Fact, ...], said: bool) -> None:
    verdict = judge(round_of((ended(0, -9), stopped(1), *facts)))
    assert verdict.cls == "killed_unknown"
    assert verdict.sentence.endswith("; the kernel counted no kill for want of memory") == said
    proofs = [proof.text for proof in verdict.evidence if proof.source == "cgroup"]
    assert proofs == (["0 out-of-memory kills counted for all ranks here (limit 64 MiB, peak 32 MiB)"] if said else [])


def test_what_lacked_is_named_once_for_all_nodes() -> None:
    facts = (ended(0, 7), Lacked("nvml", "no driver"))
    assert judge(round_of(facts, facts, (ended(4, 0), Lacked("kernel log", "not allowed")))).lacked == (
        "nvml on a and 1 more nodes: no driver",
        "kernel log on c: not allowed",
    )
    assert judge(alone(ended(0, 0), Lacked("nvml", "no driver"))).lacked


def test_lines_of_a_kernel_log_in_a_ranks_own_output() -> None:
    line = "[ 1843.309] NVRM: Xid (PCI:0000:44:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
    pasted = judge(round_of((ended(0, 1, GLOO), ended(1, 1, line))))
    assert (pasted.cls, pasted.rank, pasted.gpu) == ("gpu_lost", 1, "0000:44:00")
    assert pasted.evidence[0].where == "a, last lines of rank 1"
    elsewhere = judge(round_of((ended(0, -6, f"{line}\n{WATCHDOG}"), ended(1, 1, LAUNCH))))
    assert (elsewhere.cls, elsewhere.rank) == ("gpu_lost", 1)
    went_on = judge(alone(ended(0, 1, f"{line}\nstep 8 loss 1\nstep 9 loss 1\n{KEY}")))
    assert went_on.cls == "user_data_error"


# --- scenarios --------------------------------------------------------------------------------------------------------
def test_b26_the_first_observed_failure_is_a_victim() -> None:
    """The culprit is silent, or speaks later; the others are victims."""
    later = judge(round_of((ended(0, 1, GLOO, at_s=5), ended(1, 1, GLOO_WAIT, at_s=6)), (ended(2, 1, KEY, at_s=90),)))
    assert (later.cls, later.rank, later.victims) == ("user_data_error", 2, (("a", 0, 1), ("a", 1, 1)))
    silent = judge(round_of((ended(0, 1, GLOO_WAIT), stopped(1))))
    assert (silent.cls, silent.rank) == ("rank_hang", 1)
    seq = [WATCHDOG, WATCHDOG.replace("SeqNum=9", "SeqNum=8")]
    lowest = judge(round_of((ended(0, -6, seq[0], at_s=5), ended(1, -6, seq[1], at_s=9))))
    assert (lowest.cls, lowest.rank) == ("rank_hang", 1)


def test_b27_an_exception_that_ends_in_an_abort_is_the_programs() -> None:
    text = f"{KEY}\nterminate called without an active exception"
    v = judge(round_of((ended(0, -6, text), ended(1, 1, GLOO))))
    assert (v.cls, v.family, v.rank, v.status, v.own_exit) == ("user_data_error", "user", 0, -6, True)


B29 = [  # (status, last lines, class)
    (1, "", "exit_unknown"), (1, KEY, "user_data_error"), (1, GLOO, "peer_lost"), (2, "", "user_args"),
    (126, "", "user_args"), (127, "", "user_args"), (134, "", "exit_unknown"), (134, WATCHDOG, "collective_timeout"),
    (134, KEY, "user_data_error"), (137, "", "killed_unknown"), (137, KEY, "user_data_error"), (139, "", "segfault"),
    (143, "", "killed_unknown"), (143, "slurmstepd: error: *** STEP 1.0 ON a CANCELLED AT 2026-03-11T02:06:12 DUE TO PREEMPTION ***", "preempted"),
    (247, "", "killed_unknown"), (255, "", "exit_unknown"), (255, ILLEGAL, "gpu_app_fault"),
]  # fmt: skip


@pytest.mark.parametrize(("status", "text", "cls"), B29)
def test_b29_evidence_comes_before_the_exit_code(status: int, text: str, cls: str) -> None:
    v = judge(alone(ended(0, status, text)))
    assert v.cls == cls
    assert v.confidence in (("guess", "likely") if not text else ("certain", "likely", "guess"))


def test_b30_a_kill_is_explained_by_a_counter_with_its_numbers() -> None:
    v = judge(alone(ended(0, -9), OomKill("rank 0", 1, 64 << 20, 64 << 20)))
    assert v.sentence == (
        "rank 0 on a ended with signal 9 (SIGKILL): out of host memory: 1 out-of-memory kill counted for rank 0 "
        "(limit 64 MiB, peak 64 MiB)"
    )
    assert ("cgroup", "a") in {(proof.source, proof.where) for proof in v.evidence}
    worker = judge(alone(ended(0, 1, WORKER), OomKill("rank 0", 2, 64 << 20)))
    assert (worker.cls, worker.status) == ("host_oom", 1)
    assert "lost a data worker" in worker.sentence
    assert "2 out-of-memory kills" in worker.sentence
    bare = judge(alone(ended(0, -9)))
    assert (bare.cls, bare.confidence) == ("killed_unknown", "guess")
    assert "nothing says by whom" in bare.sentence


@pytest.mark.parametrize("code", [13, 31, 43, 45, 68])
def test_b31_an_application_xid_drains_no_node(code: int) -> None:
    evidence = alone(ended(0, 1, ILLEGAL), gpu(code, ranks=(0,)), xid(code))
    v = judge(evidence)
    assert (v.cls, v.node_fault, suspicion(v, evidence)) == ("gpu_app_fault", False, None)


@pytest.mark.parametrize("code", [48, 79])
def test_b31_a_hardware_xid_does(code: int) -> None:
    evidence = alone(ended(0, 1, ILLEGAL), gpu(31, 43, 45, code, ranks=(0,)))
    v = judge(evidence)
    assert (v.family, v.node_fault, suspicion(v, evidence)) == ("hardware", True, True)


def test_b31_what_a_number_means_can_be_given() -> None:
    evidence = alone(ended(0, 1, ILLEGAL), xid(31))
    assert judge(evidence, OwnSignatures(xids=((31, "gpu_lost"),))).cls == "gpu_lost"
    assert judge(alone(ended(0, 7), xid(79)), OwnSignatures(xids=((79, "watch"),))).cls == "exit_unknown"


def test_the_same_fault_of_a_program_has_the_same_fingerprint_on_another_gpu() -> None:
    a, b = alone(ended(0, 1, ILLEGAL), xid(31)), alone(ended(0, 1, ILLEGAL), xid(31, bus="0000:5d:00"))
    assert judge(a).fingerprint == judge(b).fingerprint != judge(alone(ended(0, 1, LAUNCH), xid(31))).fingerprint


# --- laws -------------------------------------------------------------------------------------------------------------
LINES = [UE, SIGBUS, DOWN, "nfs: server nas1 not responding", *(xid(c).text for c in (13, 31, 45, 48, 63, 79, 94))]
counters = st.lists(
    st.tuples(st.sampled_from(["ecc_uncorrected", "nvlink_replay", "x"]), st.integers(0, 2**63 - 1))
).map(tuple)
at = st.floats(-100, 200)
ranks = st.integers(-1, 5)
observed: st.SearchStrategy[Fact] = st.one_of(
    st.builds(RankExit, st.integers(0, 5), st.integers(0, 1), st.integers(1, 120), st.sampled_from([0, 1, -9, -6, -7, -15, 137]),
              at, st.booleans(), st.none(), st.sampled_from([KEY, GLOO, GLOO_WAIT, WATCHDOG, WORKER, ECC, "", LINES[5]]).map(lambda t: tuple(t.split("\n")))),
    st.builds(KernelLine, at, st.sampled_from(LINES) | st.text(max_size=40)),
    st.builds(Gpu, st.sampled_from([UUID, ""]), st.sampled_from(["00000000:3B:00.0", "x", ""]), st.integers(-1, 8),
              st.lists(ranks).map(tuple), st.lists(st.tuples(st.sampled_from([13, 31, 43, 45, 48, 79, 94, 149, 154, 7]), at)).map(tuple),
              counters, st.integers(-1, 9), st.booleans()),
    st.builds(OomKill, st.sampled_from(["rank 0", "rank 3", "node", "machine", ""]), st.integers(0, 3), st.integers(0, 2**40)),
    st.builds(FabricPort, st.just("mlx5_0"), st.integers(0, 2), st.sampled_from(["ACTIVE", "DOWN", ""]), counters),
    st.builds(Silence, ranks, st.integers(-1, 9), at, at, st.sampled_from(["heartbeat", "output"])),
    st.builds(Slow, ranks, at),
    st.builds(Stack, ranks, st.sampled_from(["proc", "py-spy"]), st.sampled_from([WAITING, ELSEWHERE, (), ("python: stopped",)])),
    st.builds(Position, ranks, st.sampled_from(["0", "1"]), st.integers(-1, 9), st.integers(-1, 9)),
    st.builds(Early, ranks, at, st.text(max_size=20), st.sampled_from(["", "nccl-timeout", "ecc", "no such sign"])),
    st.builds(Sighting, ranks, at, st.just("x"), st.sampled_from([KEY, ECC, "y"])),
    st.builds(SchedulerWord, st.sampled_from(["PREEMPTED", "NODE_FAIL", "z"]) | st.text(max_size=20)),
    st.builds(HookWord, st.text(max_size=20)),
    st.builds(Lacked, st.text(max_size=5), st.text(max_size=5)),
)  # fmt: skip
rounds = st.builds(
    lambda facts, orders, lost: RoundEvidence(
        2,
        tuple(NodeEvidence(f"n{i}", tuple(f), o) for i, (f, o) in enumerate(zip(facts, orders, strict=False))),
        (*((f"n{i}", 2) for i in range(len(facts))), *((name, 2) for name in lost)),
        tuple(lost),
    ),
    st.lists(st.lists(observed, max_size=6), max_size=3),
    st.lists(st.integers(0, 3), min_size=3, max_size=3),
    st.lists(st.sampled_from(["x"]), unique=True, max_size=1),
)


@settings(max_examples=200, deadline=None)
@given(rounds, st.randoms(use_true_random=False))
def test_judge_is_total_and_blind_to_the_order_of_nodes(evidence: RoundEvidence, rnd: random.Random) -> None:
    v = judge(evidence)
    shuffled = list(evidence.nodes)
    rnd.shuffle(shuffled)
    assert judge(evidence._replace(nodes=tuple(shuffled))) == v
    assert v.cls in all_classes()
    assert v.confidence in ("certain", "likely", "guess")
    assert v.sentence
    assert "\n" not in v.sentence


@settings(max_examples=200, deadline=None)
@given(rounds, st.sampled_from([43, 45, 137]), at)
def test_consequences_never_decide(evidence: RoundEvidence, code: int, when: float) -> None:
    more = tuple(node._replace(facts=(*node.facts, xid(code, at_s=when))) for node in evidence.nodes)
    before, after = judge(evidence), judge(evidence._replace(nodes=more))
    assert _root(before) == _root(after)


def _root(v: Verdict) -> tuple[object, ...]:
    return (v.cls, v.node, v.node_fault, v.line)


@settings(max_examples=200, deadline=None)
@given(rounds)
def test_whoever_exits_0_with_all_others_has_not_failed(evidence: RoundEvidence) -> None:
    well = tuple(
        node._replace(facts=(*(f for f in node.facts if not isinstance(f, (RankExit, Early))), ended(i, 0)))
        for i, node in enumerate(evidence.nodes)
    )
    if well:
        assert judge(evidence._replace(nodes=well, lost=())).cls == "success"


def test_a_thousand_ranks_with_facts_are_judged_within_a_second() -> None:
    slots, filler = 8, "\n".join(f"[rank0]: step {i} of something with a few words in it" for i in range(110))
    nodes = tuple(
        NodeEvidence(
            f"n{i:03}",
            (
                *(ended(i * slots + j, -6, f"{filler}\n{WATCHDOG}") for j in range(slots)),
                *(Position(i * slots + j, "0", 40, 39) for j in range(slots)),
                *(Stack(i * slots + j, "py-spy", WAITING) for j in range(slots)),
                *(xid(45) for _ in range(slots)),
                *(gpu(45, ranks=(i * slots + j,)) for j in range(slots)),
                Lacked("fabric", "no device"),
            ),
            i,
        )
        for i in range(128)
    )
    evidence = RoundEvidence(1, nodes, tuple((node.node, slots) for node in nodes))
    judge(evidence)
    spent = []
    for _ in range(3):
        start = time.process_time()
        v = judge(evidence)
        spent.append(time.process_time() - start)
    assert v.cls == "collective_timeout"
    assert len(v.unused) < 30
    assert v.lacked == ("fabric on n000 and 127 more nodes: no device",)
    print(f"{128 * slots} ranks: {min(spent):.2f} s")
    assert min(spent) < 1.5  # of a core; half a second where nothing else is at its caches
