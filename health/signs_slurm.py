"""Signs that Slurm's own programs write into a job's output: who ended the step, and what could not be started. Data.

What ended it for a reason of its own (time limit, preemption, a lost node, memory) stands in ``signs_scheduler``, with
other schedulers' words for the same. What stands here follows from something that most often has a line of its own, so
it weighs less than that. slurmd started with ``-N`` calls its stepd ``slurmstepd-NODE``.
"""

from __future__ import annotations

from .signatures import FAINT, GENERIC, HARDWARE, SPECIFIC, Role, Signature

_R, _N = Role.ROOT, Role.NOISE
_S = Signature
_NOT_LAUNCHED = (
    r"(?:Task launch for \S{1,80} failed on node \S{1,200}|Application launch failed|task \d+ launch failed)"
)
_LAUNCH = f"srun: error: {_NOT_LAUNCHED}: "

# fmt: off
TABLE: tuple[Signature, ...] = (
    _S("srun-killed-all", "launcher_killed_by_srun", _R, GENERIC - 2,
       r"srun: (?:launch/slurm: \w{1,40}: )?Terminating (?:StepId=|job step)",
       "slurm srun launch.c, plugins/launch/slurm: --kill-on-bad-exit, --wait",
       "srun: launch/slurm: _step_signal: Terminating StepId=5981.0",
       "srun: Job step aborted: Waiting up to 32 seconds for job step to finish."),
    _S("srun-waited", "launcher_killed_by_srun", _R, GENERIC - 1, r"srun: First task exited \d+s ago",
       "slurm srun allocate.c, WaitTime and --wait", "srun: First task exited 30s ago",
       "srun: First task exited. Terminating job in 30s."),
    _S("slurm-set-down", "node_lost", _R, GENERIC - 3, r"not responding, setting DOWN",
       "slurm slurmctld ping_nodes.c; of any node of the cluster",
       "slurmctld: error: Nodes node-b3 not responding, setting DOWN", "slurmctld: Node node-b3 now responding"),
    _S("agent-interrupted", "user_interrupt", _R, GENERIC - 3,
       r"Received Signals\.SIGINT death signal|SignalException: Process \d{1,9} got signal: 2\b|"
       r"Detected KeyboardInterrupt, attempting",
       "torch distributed/elastic/agent/server/api.py, multiprocessing/api.py; lightning trainer/call.py",
       "torch.distributed.elastic.multiprocessing.api.SignalException: Process 4312 got signal: 2",
       "torch.distributed.elastic.multiprocessing.api.SignalException: Process 4312 got signal: 15"),
    _S("slurm-cancelled", "user_interrupt", _R, GENERIC - 3,
       r"\*\*\* JOB \S{1,40} ON \S{1,200} CANCELLED AT \S{1,40} (?:\*\*\*|DUE to SIGNAL)",
       "slurm slurmstepd req.c: scancel",
       "slurmstepd: error: *** JOB 7719 ON node-b1 CANCELLED AT 2026-03-11T15:27:25 ***",
       "slurmstepd: error: *** JOB 7711 ON node-b1 CANCELLED AT 2026-03-11T15:27:25 DUE TO NODE FAILURE ***"),
    _S("slurm-step-cancelled", "launcher_killed_by_srun", _R, GENERIC - 4,
       r"\*\*\* STEP \S{1,40} ON \S{1,200} CANCELLED AT \S{1,40} (?:\*\*\*|DUE to SIGNAL)",
       "slurm slurmstepd req.c",
       "slurmstepd-node1: error: *** STEP 5981.0 ON node1 CANCELLED AT 2026-03-11T12:43:25 ***",
       "slurmstepd: error: *** STEP 608.0 ON node-a5 CANCELLED AT 2026-03-11T02:06:12 DUE TO PREEMPTION ***"),
    _S("slurm-requeued", "preempted", _R, GENERIC - 2, r"CANCELLED AT \S{1,40} DUE TO JOB REQUEUE",
       "slurm slurmstepd req.c: scontrol requeue, by whomever",
       "slurmstepd: error: *** STEP 1.0 ON node1 CANCELLED AT 2026-11-30T12:33:19 DUE TO JOB REQUEUE ***",
       "slurmstepd: error: *** STEP 1.0 ON node1 CANCELLED AT 2026-11-30T12:33:19 ***"),
    _S("mpi-daemon-lost", "node_lost", _R, GENERIC,
       r"(?:ORTE|PRTE) has lost communication with a remote daemon", "Open MPI orte/mca/errmgr, prrte errmgr help text",
       "ORTE has lost communication with a remote daemon.", "ORTE daemon started on node n7"),
    _S("slurm-unkillable", "node_lost", _R, GENERIC - 1,
       r"STEPD TERMINATED ON \S{1,200} AT \S{1,40} DUE TO JOB NOT (?:ENDING WITH SIGNALS|RUNNING)",
       "slurm slurmstepd step_terminate_monitor.c, UnkillableStepTimeout: the node is drained, too",
       "slurmstepd: error: *** JOB 8 STEPD TERMINATED ON n7 AT 2026-03-11T04:02 DUE TO JOB NOT ENDING WITH SIGNALS ***",
       "slurmstepd: error: *** JOB 88 ON n7 CANCELLED AT 2026-03-11T04:02:11 ***"),
    _S("slurm-ume", "host_memory_ecc", _R, HARDWARE,
       r"\*\*\* \S{3,4} \S{1,40} ON \S{1,200} UNCORRECTABLE MEMORY ERROR AT",
       "slurm slurmstepd req.c: SIG_UME",
       "slurmstepd: error: *** STEP 12.0 ON n7 UNCORRECTABLE MEMORY ERROR AT 2026-03-11T04:02:11 ***",
       "slurmstepd: error: *** STEP 12.0 ON n7 FAILED (non-zero exit code or other failure mode) ***"),
    _S("srun-launch-node", "node_lost", _R, SPECIFIC,
       _LAUNCH + r"(?:Communication connection failure|Socket timed out|Zero Bytes were|(?:Job )?[Pp]rolog failed|"
       r"Unable to contact|No route to host|Connection (?:refused|timed out)|Invalid job credential|Header lengths|"
       r"Slurmd could not connect IO)|Required node not available \(down, drained|"
       r"slurmstepd(?:-\S{1,200})?: error: TaskProlog failed status=",
       "slurm api/step_launch.c, slurm_errno.c, slurmstepd task.c",
       "srun: error: Task launch for StepId=99.0 failed on node n7: Communication connection failure",
       "srun: error: Task launch for StepId=99.0 failed on node n7: Slurmd could not execve job"),
    _S("srun-launch-program", "user_args", _R, SPECIFIC,
       _LAUNCH + r"Slurmd could not execve|slurmstepd(?:-\S{1,200})?: error: execve\(\): "
       r"(?!.{1,300}: Permission denied)",
       "slurm api/step_launch.c, slurm_errno.c, slurmstepd task.c",
       "slurmstepd-node2: error: execve(): /nonexistent: No such file or directory",
       "slurmstepd: error: Failed to send MESSAGE_TASK_EXIT: Connection refused"),
    _S("srun-step-refused", "user_args", _R, SPECIFIC,
       r"(?:srun|salloc|sbatch): error: (?:Unable to (?:create step for job \d+|allocate resources)|"
       r"Batch job submission failed): (?:More processors|Memory required|Invalid (?:generic|Trackable|feature|account|"
       r"partition|qos)|Requested node config|Requested time limit|Node count spec|Unable to satisfy)",
       "slurm srun allocate.c, slurm_errno.c",
       "srun: error: Unable to create step for job 77: More processors requested than permitted",
       "srun: error: Unable to create step for job 77: Job/step already completing or completed"),
    _S("srun-no-controller", "external_service", _R, SPECIFIC,
       r"(?:srun|scontrol|sbatch): error: .{0,80}(?:Unable to contact slurm controller|"
       r"slurm_receive_msg.{0,40}Socket timed out|: Socket timed out on send/recv operation)",
       "slurm srun allocate.c, slurm_errno.c",
       "srun: error: Unable to create step for job 77: Socket timed out on send/recv operation",
       "srun: error: Task launch for StepId=99.0 failed on node n7: Job prolog failed"),
    _S("image-service", "external_service", _R, SPECIFIC,
       r"\[ERROR\] URL https://\S{1,300} returned error code: (?:429|50[0234])|"
       r"(?:[Ff]ailed to pull image|Error response from daemon:).{0,600}(?:\b50[0234] |toomanyrequests|"
       r"TLS handshake timeout|"
       r"i/o timeout)",
       "enroot docker.sh, common.sh; kubelet; dockerd: a registry",
       "slurmstepd: error: pyxis:     [ERROR] URL https://r.example/v2/a/manifests/1 returned error code: 503",
       "slurmstepd: error: pyxis:     [ERROR] URL https://r.example/v2/a/manifests/1 returned error code: 404"),
    _S("image-refused", "user_auth", _R, SPECIFIC,
       r"\[ERROR\] URL https://\S{1,300} returned error code: 40[13]\b|"
       r"(?:[Ff]ailed to pull image|Error response from daemon:).{0,600}(?:unauthorized|\b40[13] |access denied|"
       r"authentication required)",
       "enroot docker.sh, common.sh; kubelet; dockerd: a registry",
       "slurmstepd: error: pyxis:     [ERROR] URL https://r.example/v2/a/manifests/1 returned error code: 401 "
       "Unauthorized",
       "docker: Error response from daemon: No such image: a:1"),
    _S("srun-job-over", "killed_unknown", _R, FAINT,
       r"srun: error: Unable to (?:create step for job|confirm allocation for job) \d+: (?:Job/step already|"
       r"Invalid job id|Job has expired)",
       "slurm srun allocate.c, slurm_errno.c: the job had ended before, and says elsewhere why",
       "srun: error: Unable to create step for job 77: Job/step already completing or completed",
       "srun: Job 77 step creation temporarily disabled, retrying (Requested nodes are busy)"),
    _S("srun-task-killed", "killed_unknown", _R, FAINT, r"srun: error: \S{1,200}: tasks? [\d,-]{1,200}: Killed",
       "slurm srun launch.c: by whomever, also when its node is lost", "srun: error: node4: task 3: Killed",
       "srun: error: node4: task 3: Exited with exit code 137"),
    _S("srun-ends", "", _N, 0,
       r"srun: (?:Job step aborted|[Ff]orc(?:e|ing) (?:Terminated|job termination)|got SIGCONT|"
       r"StepId=\S{1,80} tasks? \S{1,200}: (?:running|exited)|error: Timed out waiting for job step)|"
       r"\*\*\* \S{3,4} \S{1,40} ON \S{1,200} FAILED \(non-zero exit code|"
       r"Exceeded (?:job|step) memory limit at some point",
       "slurm api/step_launch.c, srun allocate.c, slurmstepd req.c: what an end entails; task_cgroup_memory.c: caches",
       "srun: Job step aborted: Waiting up to 32 seconds for job step to finish.",
       "srun: error: node4: task 3: Killed"),
)
# fmt: on
