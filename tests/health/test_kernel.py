"""Lines of the kernel log: what is a sign, what only looks like one, and that no prefix hides it."""
# ruff: noqa: E501  lines as the kernel writes them

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuster.health.kernel import TABLE, Kind, Sign, bus_of, interesting, signs
from remuster.health.needles import needles

PREFIXES = (
    "",
    "[ 1843.309] ",
    "[ 1843.309123][ T1234] ",
    "[Sat Jul 11 05:52:47 2026] ",
    "<3>[ 1843.309] ",
    "3,1189,5140900123,-;",
    "kern  :err   : [ 1843.309] ",
    "Mar 11 04:12:31 node-a4 kernel: ",
    "Mar 11 04:12:31 node-a4 kernel: [ 1843.309] ",
    "2026-03-11T07:00:02 kernel: ",
    "2026-03-11T07:00:02.123456+00:00 node-a4 kernel: ",
    "2026-03-11T04:02:00.123456789Z stderr F ",
    "[rank3]: ",
)


def one(line: str) -> Sign:
    (found,) = signs([line])
    return found


@pytest.mark.parametrize("place", range(len(TABLE)))
def test_each_pattern_reads_its_example_and_not_its_near_miss(place: int) -> None:
    pattern = TABLE[place]
    assert needles(pattern.pattern), "every pattern needs a plain word: without one each line would cost a regex"
    for prefix in PREFIXES:
        found = one(prefix + pattern.example)
        assert (found.kind, found.cls) == (pattern.kind, pattern.cls)
        assert found.text.startswith(pattern.example[:12])
        assert not interesting(prefix + pattern.near_miss)


FIELDS: dict[str, tuple[Kind, str, int, int, str, str]] = {  # kind, bus, code, pid, process, scope
    "NVRM: Xid (PCI:0000:18:00): 31, pid=30517, name=python, Ch 00000008": (Kind.XID, "0000:18:00", 31, 30517, "python", ""),
    "NVRM: Xid (PCI:0000:44:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.": (Kind.XID, "0000:44:00", 79, 0, "<unknown>", ""),
    "NVRM: Xid (PCI:0000:2a:00): 120, GSP kernel exception: load access page fault": (Kind.XID, "0000:2a:00", 120, 0, "", ""),
    "NVRM: Xid (0000:0A:00): 48, An uncorrectable double bit error": (Kind.XID, "0000:0a:00", 48, 0, "", ""),
    "NVRM: Xid (PCI:0001:00:00.0): 149, NETIR Fatal XC0 i0 Link 07 (0x1 0x2)": (Kind.XID, "0001:00:00", 149, 0, "", ""),
    "NVRM: Xid (PCI:0000:18:00): 13": (Kind.XID, "0000:18:00", 13, 0, "", ""),
    "NVRM: The NVIDIA GPU 0000:3b:00.0 (PCI ID: 10de:2330) has fallen off the bus and is not responding": (Kind.LOST, "0000:3b:00", 0, 0, "", ""),
    "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 20034, Fatal, Link 30 LTSSM Fault Up": (Kind.SWITCH, "0000:c1:00", 20034, 0, "", ""),
    "oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=/,mems_allowed=0-1,global_oom,task_memcg=/user.slice,task=python,pid=7899,uid=1001": (Kind.OOM, "", 0, 7899, "python", "global"),
    "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=a,mems_allowed=0,oom_memcg=/j,task_memcg=/j/s,task=pt_data_worker,pid=8,uid=0": (Kind.OOM, "", 0, 8, "pt_data_worker", "memcg"),
    "Memory cgroup out of memory: Kill process 99 (python) score 987 or sacrifice child": (Kind.OOM, "", 0, 99, "python", "memcg"),
    "Out of memory: Killed process 7899 (python3.11) total-vm:261848400kB": (Kind.OOM, "", 0, 7899, "python3.11", "global"),
    "mce: [Hardware Error]: CPU 41: Machine Check: 0 Bank 7: be00000000800400": (Kind.MEMORY, "", 0, 0, "", ""),
    "Memory failure: 0x4f1a22: Sending SIGBUS to python:30517 due to hardware memory corruption": (Kind.MEMORY, "", 0, 30517, "python", ""),
    "mlx5_core 0000:5e:00.0 ibs2: Link down": (Kind.LINK, "0000:5e:00", 0, 0, "", ""),
    "INFO: task pt_data_worker:40412 blocked for more than 120 seconds.": (Kind.BLOCKED, "", 0, 40412, "pt_data_worker", ""),
    "XFS (dm-0): I/O Error Detected. Shutting down filesystem": (Kind.DISK, "", 0, 0, "", ""),
    "nvme nvme0: controller is down; will reset: CSTS=0xffffffff, PCI_STATUS=0xffff": (Kind.DISK, "", 0, 0, "", ""),
    "traps: python[77] general protection fault ip:7f00 sp:7ffd error:0 in libtorch.so": (Kind.CRASH, "", 0, 77, "python", ""),
}  # fmt: skip


@pytest.mark.parametrize("line", FIELDS)
def test_what_a_line_says(line: str) -> None:
    found = one("[ 12.5] " + line)
    assert (found.kind, found.bus, found.code, found.pid, found.process, found.scope) == FIELDS[line]


@pytest.mark.parametrize(
    "line",
    [
        "mce: [Hardware Error]: Machine check events logged",  # so are corrected ones
        "mce: [Hardware Error]: CPU 2: Machine Check: 0 Bank 7: 8c00004000010090",  # corrected: bit 61 is clear
        "blk_update_request: I/O error, dev fd0, sector 0",
        "nvidia-nvswitch0: SXid (PCI:0000:07:00.0): 20034, Severity 1 Engine instance 30 Sub-engine instance 00",
        "Memory cgroup out of memory: OOM victim 12 (python) is already exiting. Skip killing the task",
        "Lustre: scratch-OST0004-osc-ffff: Connection to scratch-OST0004 was lost; in progress operations will wait",
        "nvidia-modeset: Loading NVIDIA Kernel Mode Setting Driver for UNIX platforms  550.54.15",
        "step 1000 loss 1.21 (out of memory was avoided: Killed process count 0)",
        "mlx5_core 0000:5e:00.0 mlx5_2: Port: 1 Link ACTIVE",
    ],
)
def test_more_near_misses(line: str) -> None:
    assert not interesting(line)


@pytest.mark.parametrize(
    ("text", "bus"),
    [
        ("0000:3b:00", "0000:3b:00"), ("00000000:3B:00.0", "0000:3b:00"), ("0000:3b:00.0", "0000:3b:00"),
        ("3b:00.0", "0000:3b:00"), ("0000:65:00", "0000:65:00"), ("GPU-aaaa", ""), ("", ""), ("0000", ""),
    ],
)  # fmt: skip
def test_bus(text: str, bus: str) -> None:
    assert bus_of(text) == bus


@given(st.lists(st.text(max_size=200) | st.sampled_from([p.example for p in TABLE]).flatmap(
    lambda text: st.integers(0, len(text)).map(lambda cut: text[cut:] + text[:cut]))))  # fmt: skip
def test_any_text_is_read(lines: list[str]) -> None:
    found = signs(lines)
    assert [sign.index for sign in found] == sorted({sign.index for sign in found})
    assert [i for i, line in enumerate(lines) if interesting(line)] == [sign.index for sign in found]
