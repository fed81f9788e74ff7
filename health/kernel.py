"""Reads lines of a kernel log: which of them are signs of a fault, and what they say of GPU, process and device.

Any prefix will do: dmesg with and without -T or -x, /dev/kmsg, journald, syslog, a log shipper's, or none. The verdict
calls ``signs`` for ``KernelLine`` facts and for a rank's own last lines (people paste dmesg into logs), an offline
reader for whole files; the reader of the living kernel log asks ``interesting`` of each line. Pure, and total: any
text is allowed. What a line means to the failure is decided by ``causes_device.py`` and ``causes_host.py``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache

from .needles import needles

LINE = 4096  # characters of a line that are looked at
SHOWN = 300  # of a sign's text


class Kind(Enum):
    """What a sign is about."""

    XID = "xid"  # code, bus, perhaps pid
    LOST = "lost"  # a GPU that is gone or does not start, without an XID: bus
    SWITCH = "switch"  # an NVSwitch's SXid: code, bus
    OOM = "oom"  # the kernel killed pid for want of memory; scope: 'global' or 'memcg'
    MEMORY = "memory"  # host memory that cannot be corrected; perhaps the pid that was sent SIGBUS
    DISK = "disk"  # a disk or local file system failed
    MOUNT = "mount"  # a network file system's server does not answer, or has cut this client off
    LINK = "link"  # a port of an RDMA device is down, or the device failed
    BLOCKED = "blocked"  # pid is stuck in the kernel
    CRASH = "crash"  # pid made a bad access; the text names the library


@dataclass(frozen=True, slots=True)
class Sign:
    """A line that means something. ``cls`` is the class it speaks for by itself; of an XID see ``xid.py``."""

    kind: Kind
    cls: str
    index: int  # of the line
    text: str  # from where the sign begins: without its prefix, bounded
    bus: str = ""  # as ``bus_of`` writes it
    code: int = 0
    pid: int = 0  # 0 = not said
    process: str = ""
    scope: str = ""


@dataclass(frozen=True, slots=True)
class Pattern:
    """How a sign is recognised; the names of its groups are fields of ``Sign``."""

    kind: Kind
    cls: str
    pattern: str
    source: str  # where the text is written
    example: str
    near_miss: str


# fmt: off
# ruff: noqa: E501  patterns are read whole
TABLE: tuple[Pattern, ...] = (
    Pattern(Kind.XID, "", r"NVRM: Xid \((?:PCI:)?(?P<bus>[0-9a-fA-F:.]{5,20})\): (?P<code>\d{1,4})\b"
            r"(?:,(?: pid='?(?P<pid>\d{1,9})?[^,]{0,20}, name=(?P<process>[^,]{1,64}),)?)?",
            "NVIDIA: Xid Errors, r580 deployment guide; older drivers without PCI: and pid",
            "NVRM: Xid (PCI:0000:18:00): 31, pid=30517, name=python, Ch 00000008, intr 00000000. MMU Fault",
            "NVRM: loading NVIDIA UNIX x86_64 Kernel Module  550.54.15"),
    Pattern(Kind.LOST, "gpu_lost", r"NVRM: (?:[^:]{0,24}\bGPU (?P<bus>[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}(?:\.\d)?)"
            r"\b.{0,80}|.{0,80})has fallen off the bus", "open-gpu-kernel-modules osinit.c, nv.c",
            "NVRM: GPU 0000:44:00.0: GPU has fallen off the bus.",
            "NVRM: GPU at PCI:0000:44:00: GPU-aaaaaaaa-0000-0000-0000-000000000001"),
    Pattern(Kind.LOST, "gpu_unavailable", r"NVRM: GPU (?P<bus>[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}(?:\.\d)?): "
            r"(?:RmInitAdapter|rm_init_adapter) failed", "open-gpu-kernel-modules osinit.c RmInitAdapter, nv.c",
            "NVRM: GPU 0000:3b:00.0: RmInitAdapter failed! (0x62:0xffff:2351)",
            "NVRM: GPU 0000:3b:00.0: RmInitAdapter succeeded after a reset"),
    Pattern(Kind.LOST, "gpu_lost", r"amdgpu (?P<bus>[0-9a-fA-F]{4}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.\d): (?:amdgpu: )?"
            r"device lost from bus", "linux drivers/gpu/drm/amd/amdgpu/amdgpu_device.c",
            "amdgpu 0000:c3:00.0: amdgpu: device lost from bus!", "amdgpu 0000:c3:00.0: amdgpu: GPU reset begin!"),
    Pattern(Kind.SWITCH, "gpu_nvlink",
            r"nvidia-nvswitch\d{1,3}: SXid \(PCI:(?P<bus>[0-9a-fA-F:.]{5,20})\): (?P<code>\d{5}), Fatal\b",
            "NVIDIA Fabric Manager User Guide, NVSwitch errors",
            "nvidia-nvswitch0: SXid (PCI:0000:07:00.0): 20034, Fatal, Link 30 LTSSM Fault Up",
            "nvidia-nvswitch0: SXid (PCI:0000:07:00.0): 12028, Non-fatal, Link 30 egress non-posted PRIV error"),
    Pattern(Kind.OOM, "host_oom", r"oom-kill:constraint=(?P<scope>\w{1,40}),.{0,2000}?\btask=(?P<process>[^,]{1,64}),"
            r"pid=(?P<pid>\d{1,9})", "linux mm/oom_kill.c dump_oom_summary (since 5.0)",
            "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,oom_memcg=/job,"
            "task_memcg=/job,task=python,pid=41001,uid=0", "python invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL)"),
    Pattern(Kind.OOM, "host_oom", r"(?P<scope>Memory cgroup out of memory|Out of memory(?: \(oom_kill_allocating_task\))?)"
            r": Kill(?:ed)? process (?P<pid>\d{1,9}) \((?P<process>[^)]{1,64})\)",
            "linux mm/oom_kill.c __oom_kill_process; before 5.x 'Kill process … or sacrifice child'",
            "Memory cgroup out of memory: Killed process 4242 (python) total-vm:9000kB, anon-rss:8000kB",
            "oom_reaper: reaped process 7899 (python), now anon-rss:0kB, file-rss:0kB, shmem-rss:2048kB"),
    Pattern(Kind.MEMORY, "host_memory_ecc", r"(?:Memory failure|MCE):? (?:0x[0-9a-fA-F]{1,16}: )?(?:Sending SIGBUS to|"
            r"(?:[Ff]orcibly )?[Kk]illing) (?P<process>[^:]{1,64}):(?P<pid>\d{1,9}) (?:due to hardware memory corruption|"
            r"because of failure to unmap)",
            "linux mm/memory-failure.c kill_proc, kill_procs; before 4.15 'MCE 0x…: Killing …'; arch/x86/mm/fault.c do_sigbus",
            "Memory failure: 0x4f1a22: Sending SIGBUS to python:30517 due to hardware memory corruption",
            "Memory failure: 0x4f1a22: recovery action for clean LRU page: Recovered"),
    Pattern(Kind.MEMORY, "host_memory_ecc", r"\[Hardware Error\]:\s{1,8}error_type: \d{1,3}, multi-bit ECC",
            "linux drivers/firmware/efi/cper.c cper_print_mem (APEI)",
            "[Hardware Error]:   error_type: 5, multi-bit ECC", "[Hardware Error]:   error_type: 2, single-bit ECC"),
    Pattern(Kind.MEMORY, "host_memory_ecc", r"EDAC .{1,80}?: \d{1,6} UE |mce: Uncorrected hardware memory error|"
            r"Machine [Cc]heck(?: Exception)?: [0-9a-fA-F]{1,3} Bank \d{1,3}: (?P<scope>[0-9a-fA-F]{16})\b",
            "linux drivers/edac/edac_mc.c, arch/x86/kernel/cpu/mce/core.c print_mce",
            "EDAC MC1: 1 UE memory read error on CPU_SrcID#1_MC#1_Chan#0_DIMM#0",
            "EDAC MC0: 1 CE memory read error on CPU_SrcID#0_MC#0_Chan#0_DIMM#0"),
    Pattern(Kind.DISK, "fs_mount_lost", r"(?:blk_update_request: )?(?:I/O|critical (?:medium|target|nexus)) error,? (?:on )?dev (?!fd\d|sr\d)\w{2,32}|"
            r"nvme nvme\d{1,3}: (?:I/O .{1,80} timeout|controller is down|Removing after probe failure|"
            r"Disabling device after reset failure)|nvme\d{1,3}n\d{1,3}: I/O Cmd\(.{1,120}I/O Error",
            "linux block/blk-core.c blk_print_req_error, fs/buffer.c, drivers/nvme/host/pci.c, core.c",
            "blk_update_request: I/O error, dev nvme0n1, sector 1953525 op 0x0:(READ) flags 0x80700 phys_seg 4",
            "nvme nvme0: 16/0/0 default/read/poll queues"),
    Pattern(Kind.DISK, "fs_mount_lost", r"EXT4-fs error \(device|EXT4-fs \(\S{1,40}\): [Rr]emounting filesystem read-only|"
            r"XFS \(\S{1,40}\): (?:.{0,60}(?:metadata|log) I/O error|.{0,60}I/O [Ee]rror [Dd]etected|.{0,60}[Ss]hutting down "
            r"filesystem|Corruption)|Aborting journal on device|BTRFS: error \(device",
            "linux fs/ext4/super.c, fs/xfs/xfs_fsops.c, fs/jbd2/journal.c",
            "EXT4-fs error (device nvme0n1p1): ext4_find_entry:1455: inode #2: comm python: reading directory lblock 0",
            "EXT4-fs (nvme0n1p1): mounted filesystem with ordered data mode. Opts: (null)"),
    Pattern(Kind.MOUNT, "fs_hang", r"nfs: server \S{1,128} not responding|ceph: mds\d{1,4} hung",
            "linux net/sunrpc/clnt.c call_timeout, fs/ceph/mds_client.c", "nfs: server nas1 not responding, still trying",
            "nfs: server nas1 OK"),
    Pattern(Kind.MOUNT, "fs_hang", r"LustreError: .{1,120}This client was evicted by",
            "lustre ptlrpc/import.c ptlrpc_import_recovery_state_machine",
            "LustreError: 167-0: scratch-OST0004-osc-ffff: This client was evicted by scratch-OST0004; in progress "
            "operations using this service will fail.",
            "Lustre: scratch-OST0004-osc-ffff: Connection restored to 10.0.0.4@o2ib (at 10.0.0.4@o2ib)"),
    Pattern(Kind.MOUNT, "fs_hang", r"Lustre: .{1,120}: Connection to \S{1,80} .{0,80}was lost; in progress operations using this",
            "lustre ptlrpc/import.c ptlrpc_set_import_discon",
            "Lustre: scratch-MDT0000-mdc-ffff: Connection to scratch-MDT0000 (at 10.0.9.1@o2ib) was lost; in progress "
            "operations using this service will wait for recovery to complete",
            "Lustre: scratch-MDT0000-mdc-ffff: Connection restored to scratch-MDT0000 (at 10.0.9.1@o2ib)"),
    Pattern(Kind.MOUNT, "fs_hang", r"(?<![\w.])(?:nfs4?_wait_(?:bit|client)\w{0,40}|rpc_wait_bit_killable|ptlrpc_set_wait|cl_sync_io_wait|"
            r"ceph_mdsc_wait_request|request_wait_answer|cxiWaitEventWait)(?:\.\w{1,20})?\+0x",
            "linux fs/nfs/inode.c, net/sunrpc/sched.c, fs/ceph/mds_client.c, fs/fuse/dev.c; lustre; the trace of a hung task",
            "nfs_wait_bit_killable+0x11/0x60 [nfs]", " io_schedule+0x46/0x80"),
    Pattern(Kind.LINK, "ib_link_error", r"mlx5_core (?P<bus>[0-9a-fA-F]{4}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.\d)"
            r"(?:.{0,80}\b[Ll]ink (?:DOWN|down)\b|.{0,80}(?:health compromised|Fatal error \d|handling bad device here|Port module event\[error\]))",
            "linux drivers/net/ethernet/mellanox/mlx5/core/en_main.c, events.c, health.c",
            "mlx5_core 0000:5e:00.0 mlx5_2: Port: 1 Link DOWN", "mlx5_core 0000:5e:00.0 ibs2: Link up"),
    Pattern(Kind.LINK, "ib_link_error", r"(?:infiniband )?mlx5_\d{1,3}: .{0,60}(?:port error|async fatal event|"
            r"local catastrophic error)", "linux drivers/infiniband/core/verbs.c ib_event_msg",
            "infiniband mlx5_2: port 1 async event: port error",
            "infiniband mlx5_2: port 1 async event: port active"),
    Pattern(Kind.BLOCKED, "rank_hang", r"INFO: task (?P<process>.{1,64}):(?P<pid>\d{1,9}) blocked (?:in I/O wait )?"
            r"for more than \d", "linux kernel/hung_task.c check_hung_task",
            "INFO: task pt_data_worker:40412 blocked for more than 120 seconds.",
            "INFO: task scheduler is mq-deadline"),
    Pattern(Kind.CRASH, "segfault", r"(?P<process>[\w./-]{1,16})\[(?P<pid>\d{1,9})\](?:: segfault at | general protection "
            r"fault ip:| trap invalid opcode ip:)", "linux arch/x86/mm/fault.c show_signal_msg, kernel/traps.c",
            "python[812]: segfault at 0 ip 00007f1 sp 00007ffd error 4 in libc10.so[7f1+9000]",
            "python[812]: vfs read of 7 bytes"),
)
# fmt: on
_UNCORRECTED = 1 << 61  # of a machine check's status: corrected ones are logged alike
_BUS = re.compile(r"(?:([0-9a-fA-F]{4,8}):)?([0-9a-fA-F]{2}):([0-9a-fA-F]{2})(?:\.[0-7])?$")


def signs(lines: Iterable[str]) -> tuple[Sign, ...]:
    """Return what the lines show, in their order; ``index`` counts from 0."""
    return tuple(_signs(lines))


def words() -> tuple[str, ...]:
    """Return the plain words of which a line that is a sign holds one."""
    return _words()


def interesting(line: str) -> bool:
    """Return whether a line of the kernel log means something: about a microsecond for one that does not."""
    return _sign(0, line) is not None


def bus_of(text: str) -> str:
    """Return a PCI address as dddd:bb:dd, whether the kernel, NVML or a person wrote it; '' when it is none."""
    found = _BUS.match(text.strip())
    if not found:
        return ""
    domain = (found[1] or "0000").lower()[-4:]
    return f"{domain}:{found[2].lower()}:{found[3].lower()}"


def _signs(lines: Iterable[str]) -> Iterator[Sign]:
    for index, line in enumerate(lines):
        if (found := _sign(index, line)) is not None:
            yield found


@lru_cache(maxsize=1)
def _compiled() -> tuple[tuple[tuple[str, ...], re.Pattern[str], Pattern], ...]:
    return tuple((needles(p.pattern), re.compile(p.pattern), p) for p in TABLE)


@lru_cache(maxsize=1)
def _words() -> tuple[str, ...]:
    return tuple(sorted({word for words, _, _ in _compiled() for word in words}))


def _sign(index: int, line: str) -> Sign | None:
    line = line[:LINE]
    if not any(word in line for word in _words()):
        return None
    for words, pattern, p in _compiled():
        if any(word in line for word in words) and (found := pattern.search(line)):
            said = found.groupdict()
            if p.kind is Kind.MEMORY and said.get("scope") and not int(said["scope"], 16) & _UNCORRECTED:
                return None
            return Sign(
                p.kind,
                p.cls,
                index,
                line[found.start() :].rstrip()[:SHOWN],
                bus_of(said.get("bus") or ""),
                int(said.get("code") or 0),
                int(said.get("pid") or 0),
                (said.get("process") or "").strip(),
                _scope(said["scope"]) if p.kind is Kind.OOM else "",
            )
    return None


def _scope(said: str) -> str:
    return "memcg" if "MEMCG" in said or said.startswith("Memory cgroup") else "global"
