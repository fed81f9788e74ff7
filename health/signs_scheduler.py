"""Signs written by schedulers, container runtimes and clouds about a job or its node. Data; read by ``signatures``."""

from __future__ import annotations

from .signatures import HARDWARE, SPECIFIC, TYPED, Role, Signature

_R, _N = Role.ROOT, Role.NOISE
_S = Signature

# fmt: off
TABLE: tuple[Signature, ...] = (
    _S("slurm-preempted", "preempted", _R, HARDWARE + 5,
       r"CANCELLED AT \S{1,40} DUE TO PREEMPTION|due to preemption", "slurm slurmstepd req.c, srun",
       "slurmstepd: error: *** STEP 608.0 ON node-a5 CANCELLED AT 2026-03-11T02:06:12 DUE TO PREEMPTION ***",
       "slurmstepd: error: *** STEP 608.0 ON node-a5 CANCELLED AT 2026-03-11T02:06:12 DUE TO TIME LIMIT ***"),
    _S("slurm-time", "time_limit", _R, HARDWARE + 5,
       r"CANCELLED AT \S{1,40} DUE TO TIME LIMIT|TERM_RUNLIMIT|job killed: walltime \d+ exceeded",
       "slurm slurmstepd req.c; LSF; PBS",
       "slurmstepd: error: *** STEP 5559.0 ON node-a5 CANCELLED AT 2026-03-11T15:27:25 DUE TO TIME LIMIT ***",
       "slurmstepd: error: *** JOB 7711 ON node-b1 CANCELLED AT 2026-03-11T15:27:25 DUE TO NODE FAILURE ***"),
    _S("slurm-node", "node_lost", _R, HARDWARE + 5,
       r"CANCELLED AT \S{1,40} DUE TO NODE FAILURE|srun: error: Node failure on", "slurm slurmstepd req.c, srun",
       "slurmstepd: error: *** JOB 7711 ON node-b1 CANCELLED AT 2026-03-11T15:27:25 DUE TO NODE FAILURE ***",
       "slurmstepd: error: *** STEP 5981.0 ON node-b1 CANCELLED AT 2026-03-11T12:43:25 ***"),
    _S("slurm-oom", "host_oom", _R, HARDWARE,
       r"slurmstepd: error: Detected \d+ oom[-_ ]?kill|task \d+: Out Of Memory|have been OOM Killed|"
       r"oom-kill event\(s\) in",
       "slurm cgroup plugin, srun",
       "slurmstepd: error: Detected 1 oom_kill event in StepId=99.0. Some of the step tasks have been OOM Killed.",
       "slurmstepd: error: Detected zonelist changes"),
    _S("srun-killed-all", "launcher_killed_by_srun", _R, TYPED - 10,
       r"srun: Terminating (?:StepId=|job step)", "slurm srun --kill-on-bad-exit",
       "srun: Terminating StepId=5981.0", "srun: Job step aborted: Waiting up to 32 seconds for job step to finish."),
    _S("slurm-chdir", "node_mount_missing", _R, HARDWARE - 5,
       r"slurmstepd: error: couldn't chdir to", "slurm slurmstepd",
       "node-a2: slurmstepd: error: couldn't chdir to `/shared/proj': No such file or directory: going to /tmp instead",
       "slurmstepd: error: Failed to send MESSAGE_TASK_EXIT: Connection refused"),
    _S("term-bypassed", "", _N, 0, r"Received SIGTERM: 15|Bypassing SIGTERM", "lightning signal_connector.py",
       "[rank: 0] Received SIGTERM: 15", "slurmstepd: error: *** STEP 1.0 ON a CANCELLED AT x DUE TO PREEMPTION ***"),
)
# fmt: on
