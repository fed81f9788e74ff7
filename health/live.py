"""Which signs mean something in the output of a rank that still runs, and which of them raise the alarm. Data.

Each is a signature of the tables, by name. One with a ``shape`` raises the alarm where its line has that shape: that of
the library that writes it, at the beginning of a line (after the prefixes of torch and of launchers, or behind a
progress bar). Words alone never do: programs print old logs, and handle errors. All others are evidence and no more.
"""

# Annotations are evaluated here: a named tuple is made sooner from types than from their names.
from typing import NamedTuple


class Live(NamedTuple):
    """A signature that is looked for while ranks run, and the shape of a line that raises the alarm; '' = none does."""

    sign: str
    shape: str = ""


_START = r"(?:^|\d%|\||it/s\]?|s/it\]?|\d\])[ ]{0,4}(?:\[\w{1,24}\]: ?|\d{1,6}: ?){0,3}"
# glog, as c10 writes it: [E ProcessGroupNCCL.cpp:737], [E626 06:24:44.903881913 ProcessGroupNCCL.cpp:616], F = fatal
TORCH = _START + r"\[[EF](?:\d{3,4} [\d:.]{8,20})? ProcessGroup(?:NCCL|Gloo)\.cpp:\d{1,5}\] "
# Python's, of an exception that nobody has caught, or that was logged as such
RAISED = _START + r"(?:[A-Za-z_]\w{0,40}\.){0,8}\w{0,40}Error: "
# nccl's debug.cc: host:pid:tid [device] where NCCL WARN text
NCCL = _START + r"[\w.-]{1,64}:\d{1,8}:\d{1,8} \[\d{1,3}\] .{0,120}NCCL WARN "
DRIVER = rf"{RAISED}|{TORCH}|{NCCL}"

LIVE: tuple[Live, ...] = (
    # torch's watchdogs: what they have noticed ends the rank in one to ten minutes, and no rank goes on meanwhile
    Live("nccl-first-timeout", TORCH),
    Live("nccl-timeout", TORCH),
    Live("nccl-work-failed", TORCH),
    Live("nccl-heartbeat", TORCH),
    Live("watchdog-end", TORCH),
    # an asynchronous error of NCCL, as torch's watchdog tells it
    Live("nccl-remote", TORCH),
    Live("nccl-system", TORCH),
    Live("nccl-usage", TORCH),
    # gloo: the pair is closed for good after it
    Live("gloo-timeout", rf"{RAISED}\[.{{0,200}}gloo/|{TORCH}"),
    Live("gloo-barrier", rf"{RAISED}|{TORCH}"),
    # the link or the device: no communicator, no context outlives these
    Live("ib-async-event", NCCL + r"NET/IB ?: .{0,120}fatal"),
    Live("ib-completion", NCCL + r"NET/IB ?: "),
    Live("ecc", DRIVER),
    Live("gpu-lost", rf"{DRIVER}|^Unable to determine the device handle for "),
    Live("nvlink", DRIVER),
    # what programs catch, retry or survive
    *map(
        Live,
        (
            *("nccl-shm", "nccl-registration", "nccl-socket-closed", "c10d-mismatch", "illegal-access", "cuda-oom"),
            *("driver-hang", "cuda-oom-foreign", "cuda-oom-driver", "shm-full", "disk-full", "disk-full-local"),
            *("host-memory", "limit", "stale", "mount-lost", "data-worker-killed", "data-worker-exited"),
        ),
    ),
)
