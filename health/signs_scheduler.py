"""Signs written by schedulers, container runtimes and clouds about a job or its node. Data; read by ``signatures``."""

from __future__ import annotations

from .signatures import HARDWARE, Role, Signature

_R, _N = Role.ROOT, Role.NOISE
_S = Signature

# fmt: off
TABLE: tuple[Signature, ...] = (
    _S("slurm-preempted", "preempted", _R, HARDWARE + 5,
       r"CANCELLED AT \S{1,40} DUE TO PREEMPTION|due to preemption|Preempted in order to admit|"
       r"Handling auto-requeue signal|"
       r"Job has been preempted|Preempted (?:by (?:a )?pod|to accommodate a workload)|"
       r"TERM_PREEMPT|(?<!if the )(?:instance|VM|pod|node|[Jj]ob) (?:has been|was|is being) preempted|"
       r"(?:[Ss]pot|[Pp]reemption|[Ii]nterruption|[Tt]ermination)\b.{0,30} notice (?:was )?received|"
       r"[Rr]eceived (?:an? )?(?:[Ss]pot|[Pp]reemption|[Ii]nterruption|[Tt]ermination)\b.{0,30} notice|"
       r"Spot ITN received",
       "slurm slurmstepd req.c, srun; submitit; lightning; LSF; kube-scheduler; kueue; notices of clouds",
       "slurmstepd: error: *** STEP 608.0 ON node-a5 CANCELLED AT 2026-03-11T02:06:12 DUE TO PREEMPTION ***",
       "slurmstepd: error: *** STEP 608.0 ON node-a5 CANCELLED AT 2026-03-11T02:06:12 DUE TO TIME LIMIT ***"),
    _S("slurm-time", "time_limit", _R, HARDWARE + 5,
       r"CANCELLED AT \S{1,40} DUE TO TIME LIMIT|TERM_RUNLIMIT|job killed: walltime \d+ exceeded|"
       r"longer than (?:the )?specified deadline|job\.exception type=timeout",
       "slurm slurmstepd req.c; LSF; PBS; flux; kubernetes",
       "slurmstepd: error: *** STEP 5559.0 ON node-a5 CANCELLED AT 2026-03-11T15:27:25 DUE TO TIME LIMIT ***",
       "slurmstepd: error: *** JOB 7711 ON node-b1 CANCELLED AT 2026-03-11T15:27:25 DUE TO NODE FAILURE ***"),
    _S("slurm-node", "node_lost", _R, HARDWARE + 5,
       r"CANCELLED AT \S{1,40} DUE TO NODE FAILURE|srun: error: Node failure on|"
       r"marked dead because the detector has missed too many heartbeats|its node has died|NodeDiedError|"
       r"TaintManagerEviction|NodeNotReady .{0,60}node-controller|[Nn]ode \S{1,200} status is now: NodeNotReady",
       "slurm slurmstepd req.c, srun; ray gcs_node_manager.cc; kubernetes node lifecycle",
       "slurmstepd: error: *** JOB 7711 ON node-b1 CANCELLED AT 2026-03-11T15:27:25 DUE TO NODE FAILURE ***",
       "slurmstepd: error: *** STEP 5981.0 ON node-b1 CANCELLED AT 2026-03-11T12:43:25 ***"),
    _S("slurm-oom", "host_oom", _R, HARDWARE,
       r"slurmstepd(?:-\S{1,200})?: error: Detected \d+ oom[-_ ]?kill|tasks? [\d,-]{1,200}: Out Of Memory|"
       r"have been OOM Killed|exceeded (?:virtual )?memory limit \(\d+ > \d+\), being killed|"
       r"oom-kill event\(s\) in|\bOOMKilled\b|low on resource: memory|killed due to memory pressure \(OOM\)|"
       r"due to the node running low on memory|Exceeded (?:job|step) memory limit(?! at some point)|"
       r"TERM_MEMLIMIT|"
       r"job killed: mem \d+kb exceeded",
       "slurm cgroup plugin, srun; kubelet; ray memory_monitor; LSF; PBS",
       "slurmstepd: error: Detected 1 oom_kill event in StepId=99.0. Some of the step tasks have been OOM Killed.",
       "slurmstepd: error: Detected zonelist changes"),
    _S("systemd-oom", "host_oom", _R, HARDWARE,
       r"has been killed by the OOM killer|systemd-oomd(?:\[\d+\])?:? [Kk]illed|earlyoom\[\d+\]: sending SIG|"
       r"node had condition: \[MemoryPressure|"
       r"[Ff]ailed with result 'oom-kill'",
       "systemd core/service.c, oom/oomd-manager.c; earlyoom kill.c; kubelet eviction manager",
       "systemd[2201]: train.scope: systemd-oomd killed 41 process(es) in this unit.",
       "systemd[1]: Started systemd-oomd.service - Userspace Out-Of-Memory (OOM) Killer."),
    _S("slurm-chdir", "node_mount_missing", _R, HARDWARE - 5,
       r"slurmstepd(?:-\S{1,200})?: error: couldn't chdir to|mount source \S{1,300} doesn't exist|"
       r"bind source path does not exist|special device \S{1,300} does not exist|"
       r"enroot-mount: failed to mount|MountVolume\.\w{1,30} failed for volume|chdir to cwd .{0,400}no such file|"
       r"FATAL: .{0,200}mount .{0,400}no such file or directory",
       "slurm slurmstepd; dockerd, runc, kubelet, apptainer, enroot",
       "node-a2: slurmstepd: error: couldn't chdir to `/shared/proj': No such file or directory: going to /tmp instead",
       "slurmstepd: error: Failed to send MESSAGE_TASK_EXIT: Connection refused"),
    _S("mount-helper", "node_mount_missing", _R, HARDWARE - 5,
       r"error while creating mount source path|error mounting \"/|mount\.(?:nfs4?|lustre|ceph|cifs): .{0,200}"
       r"(?:[Cc]onnection|access denied|No such|failed|incorrect)|[Ff]ailed to mount \S{0,2}/",
       "dockerd daemon/volumes_unix.go, runc rootfs_linux.go; util-linux and nfs-utils mount helpers",
       "docker: Error response from daemon: error while creating mount source path '/mnt/nfs/data': file exists.",
       "mount.nfs: timeout set for Wed Mar 11 02:14:09 2026"),
    _S("disk-pressure", "disk_full_local", _R, HARDWARE,
       r"low on resource: (?:ephemeral-storage|inodes)|"
       r"ephemeral (?:local )?storage usage exceeds|exceeded its local ephemeral storage limit|"
       r"Usage of EmptyDir volume .{1,80} exceeds the limit|"
       r"node had condition: \[DiskPressure",
       "kubelet eviction manager",
       "The node was low on resource: ephemeral-storage. Threshold quantity: 10Gi, available: 7881Mi.",
       "The node has 412Gi of ephemeral-storage"),
    _S("term-bypassed", "", _N, 0, r"Received SIGTERM: 15|Bypassing SIGTERM", "lightning signal_connector.py",
       "[rank: 0] Received SIGTERM: 15", "slurmstepd: error: *** STEP 1.0 ON a CANCELLED AT x DUE TO PREEMPTION ***"),
)
# fmt: on
