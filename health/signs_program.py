"""Signs written by schedulers, shells, file systems, checkpoints, data workers and the C library. Data."""

from __future__ import annotations

from .signatures import CRY, FILE_TIMER, GENERIC, HARDWARE, SPECIFIC, TYPED, Role, Signature

_R, _V, _N = Role.ROOT, Role.VICTIM, Role.NOISE
_S = Signature

# fmt: off
SCHEDULER = (
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

START = (
    _S(FILE_TIMER, "rank_hang", _R, SPECIFIC,
       r"^remuster: the timer '.{0,512}' of this rank expired", "remuster agent/file_timer.py",
       "remuster: the timer 'epoch' of this rank expired: SIGKILL was sent",
       "the timer of this rank expired"),
    _S("usage", "user_args", _R, SPECIFIC,
       r": error: (?:unrecognized arguments|the following arguments are required|argument .{1,200}: |ambiguous option|"
       r"one of the arguments)|^Error: (?:No such option|Missing (?:option|argument|parameter)|Invalid value for|"
       r"Got unexpected extra)|Could not override '|not used by the HfArgumentParser|Unknown command line flag '",
       "Python argparse.py, click exceptions.py, hydra",
       "train.py: error: unrecognized arguments: --local-rank=0", "train.py: error: could not reach the server"),
    _S("no-script", "user_args", _R, SPECIFIC,
       r"can't open file '.{1,400}': \[Errno \d+\]|can't find '__main__' module in", "Python Modules/main.c",
       "python: can't open file '/tmp/train.py': [Errno 2] No such file or directory",
       "OSError: can't open data '/tmp/train.bin'"),
    _S("no-command", "user_args", _R, SPECIFIC,
       r"\b(?:sh|bash|line \d+|exec|env): .{1,200}: (?:command not found|not found|No such file or directory)$|"
       r"exec: .{1,200}: (?:executable file )?not found",
       "bash execute_cmd.c, dash", "/bin/bash: line 1: pyhton: command not found",
       "bash: warning: setlocale: LC_ALL: cannot change locale"),
    _S("no-module", "user_import", _R, SPECIFIC,
       r"(?:python[\d.]*|^\S{1,200}): (?:No module named|Error while finding module specification for)",
       "Python runpy.py", "/opt/env/bin/python: No module named trainer.main",
       "hint: a module named trainer.main is registered"),
    _S("library", "env_library_mismatch", _R, SPECIFIC,
       r"undefined symbol: |version `[A-Z]{2,12}_[\d.]+' not found|cannot open shared object file|"
       r"NCCL version mismatch|"
       r"compiled using NumPy 1\.x cannot be run|binary incompatibility",
       "glibc ld.so", "ImportError: libtorch_cuda.so: undefined symbol: ncclCommRegister",
       "nm: 3 symbols undefined, as expected"),
)

STORAGE = (
    _S("shm-full", "shm_exhausted", _R, SPECIFIC + 5,
       r"insufficient shared memory|killed by signal: Bus error|(?:allocate|open|resize|mmap|write to file|"
       r"write) .{0,80}"
       r"(?:shared memory|</?torch_\d).{0,200}(?:No space|Cannot allocate|\(28\))|No space left on device: '/dev/shm|"
       r"workers are out of shared memory",
       "torch DataLoader, MapAllocator.cpp",
       "RuntimeError: DataLoader worker (pid 13296) is killed by signal: Bus error.",
       "using shared memory (shm) of 64 GiB"),
    _S("disk-full-local", "disk_full_local", _R, SPECIFIC + 2,
       r"(?:Errno 28|No space left on device).{0,20}['\"`]/(?:tmp|var|local\w*|nvme\w*|ssd\w*|raid\w*|run|root|"
       r"mnt/(?:local|nvme|ssd)\w*|"
       r"scratch/local|localscratch|dev/(?!shm))",
       "errno ENOSPC with a path that every node has of its own",
       "OSError: [Errno 28] No space left on device: '/tmp/torchinductor_u/tmpab12.so'",
       "OSError: [Errno 28] No space left on device: '/shared/ckpt/step-100/model.pt'"),
    _S("disk-full", "disk_full_or_io", _R, SPECIFIC,
       r"\[Errno (?:28|122)\]|No space left on device|Disk quota exceeded|PytorchStreamWriter failed|"
       r"inline_container\.cc.{0,40}unexpected pos|\(os error (?:28|122)\)",
       "errno ENOSPC, EDQUOT; torch inline_container.cc",
       "RuntimeError: [enforce fail at inline_container.cc:778] . PytorchStreamWriter failed writing file data/176",
       "disk: 28 GB left of 400 GB"),
    _S("stale", "fs_transient", _R, SPECIFIC,
       r"\[Errno (?:116|121|70|37)\]|\[Errno (?:110|11)\] [\w ]{1,40}: '|Stale (?:NFS )?file handle|Remote I/O error|"
       r"\(os error 116\)",
       "errno ESTALE, EREMOTEIO", "OSError: [Errno 116] Stale file handle: '/shared/cache/indices.arrow'",
       "dropping 116 stale entries"),
    _S("mount-lost", "fs_mount_lost", _R, SPECIFIC,
       r"\[Errno (?:5|30|107)\]|Input/output error|Transport endpoint is not connected|\(os error (?:5|30|107)\)",
       "errno EIO, EROFS, ENOTCONN", "OSError: [Errno 5] Input/output error: '/nvme/cache/shard-8.bin'",
       "OSError: [Errno 50] Network is down"),
    _S("evicted", "fs_hang", _R, SPECIFIC,
       r"\[Errno 108\]|Cannot send after transport endpoint shutdown|\(os error 108\)",
       "errno ESHUTDOWN: Lustre evicted this client",
       "OSError: [Errno 108] Cannot send after transport endpoint shutdown",
       "OSError: [Errno 10] No child processes"),
    _S("limit", "resource_limit", _R, SPECIFIC,
       r"\[Errno (?:24|23)\]|Too many open files|can't start new thread|received 0 items of ancdata|"
       r"pthread_create failed|"
       r"Thread creation failed|\[Errno 11\] Resource temporarily unavailable$|inotify watch limit reached",
       "errno EMFILE, ENFILE, EAGAIN from fork; libgomp", "OSError: [Errno 24] Too many open files: '/data/a/0001.npz'",
       "open files limit: 1048576"),
    _S("host-memory", "host_oom", _R, SPECIFIC,
       r"(?:can't allocate|not enough) memory: you tried to allocate|\[Errno 12\]|std::bad_alloc|"
       r"Unable to allocate .{1,40} for an array",
       "torch CPUAllocator; errno ENOMEM; numpy",
       "RuntimeError: DefaultCPUAllocator: can't allocate memory: you tried to allocate 8589934592 bytes.",
       "allocated 12 buffers"),
    _S("data-worker-killed", "dataloader_killed", _R, SPECIFIC,
       r"DataLoader worker \(pid(?:\(s\))? [\d, ]+\) (?:is killed by signal: Killed|exited unexpectedly)",
       "torch DataLoader.cpp, utils/data/dataloader.py",
       "RuntimeError: DataLoader worker (pid 13218) is killed by signal: Killed. ",
       "RuntimeError: DataLoader worker (pid 13218) is killed by signal: Terminated. "),
    _S("data-worker-crashed", "segfault", _R, SPECIFIC,
       r"DataLoader worker \(pid(?:\(s\))? [\d, ]+\) is killed by signal: (?:Segmentation|Aborted|Illegal|Floating)",
       "torch DataLoader.cpp", "RuntimeError: DataLoader worker (pid 1) is killed by signal: Segmentation fault. ",
       "RuntimeError: DataLoader worker (pid 1) is killed by signal: Killed. "),
    _S("data-worker-stopped", "preempted", _V, CRY,
       r"DataLoader worker \(pid(?:\(s\))? [\d, ]+\) is killed by signal: (?:Terminated|Interrupt|Hangup)",
       "torch DataLoader.cpp: a stop signal sent to the whole tree",
       "RuntimeError: DataLoader worker (pid 1) is killed by signal: Terminated. ",
       "RuntimeError: DataLoader worker (pid 1) is killed by signal: Killed. "),
    _S("data-worker-error", "user_data_error", _R, TYPED - 5,
       r"Caught \w{1,60} in DataLoader worker process \d", "torch _utils.py ExceptionWrapper",
       "RuntimeError: Caught KeyError in DataLoader worker process 0.", "DataLoader worker process 0 started"),
)

CHECKPOINT = (
    _S("ckpt-corrupt", "ckpt_corrupt", _R, SPECIFIC,
       r"unexpected EOF, expected \d|PytorchStreamReader failed|failed finding central directory|"
       r"invalid header or archive is corrupted|pickle data was truncated|Ran out of input|"
       r"UnpicklingError(?!: Weights only)|"
       r"MetadataIncompleteBuffer|HeaderTooLarge|HeaderTooSmall|InvalidHeader|Error while deserializing header|"
       r"File is not a zip file|storage has wrong byte size",
       "torch serialization.py, inline_container.cc; Python pickle, zipfile; safetensors",
       "RuntimeError: unexpected EOF, expected 8 more bytes. The file might be corrupted.",
       "saved header of 8 bytes, archive is complete"),
    _S("ckpt-incomplete", "ckpt_incomplete", _R, SPECIFIC + 3,
       r"metadata is None$|No such file or directory: '.{0,300}(?:/\.metadata|\.distcp|mp_rank_\d\d\w*|"
       r"_optim_states\.pt|"
       r"latest_checkpointed_iteration\.txt|\.safetensors\.index\.json)'",
       "torch distributed/checkpoint; DeepSpeed; Megatron", "AssertionError: metadata is None",
       "FileNotFoundError: [Errno 2] No such file or directory: '/data/train.arrow'"),
    _S("nan", "nan_loss", _R, SPECIFIC - 5,
       r"(?:Error|Exception|Interrupt)\w{0,20}: .{0,200}(?:[Ff]ound (?:NaN|Inf|nan|inf)|[Ll]oss (?:is|was|"
       r"became) (?:nan|NaN|inf)|"
       r"NaN (?:loss|detected|or Inf)|non-?finite|[Nn]an (?:loss|values?)|[Mm]inimum loss scale|"
       r"loss scale already at minimum)|"
       r"[Ll]oss is (?:nan|inf)\W{1,3}(?:stopping|aborting|exiting)|FloatingPointError|"
       r"rerun_state_machine:\w.{0,40} result (?:nan|inf|-inf)",
       "Megatron-LM rerun_state_machine.py, param_and_grad_buffer.py; fairseq, DeepSpeed loss scalers; torch anomaly "
       "mode",
       "AssertionError: Rank 11: found NaN in local grad norm in backward pass before data-parallel communication",
       "WARNING: Gradient overflow. Skipping step, loss is nan, reducing loss scale to 32768"),
)

NATIVE = (
    _S("segfault", "segfault", _R, TYPED + 5,
       r"Fatal Python error: (?:Segmentation|Bus error|Illegal|Floating)|[Ss]egmentation fault|\(SIGSEGV\) received|"
       r"[Cc]aught signal 11|\*\*\* SIGSEGV|[Ss]egfault encountered",
       "Python faulthandler.c; bash; UCX, folly signal handlers", "Fatal Python error: Segmentation fault",
       "Fatal Python error: Aborted"),
    _S("heap", "segfault", _R, TYPED + 5,
       r"double free or corruption|malloc\(\): |free\(\): invalid|corrupted (?:size|double-linked)|munmap_chunk\(\)|"
       r"stack smashing detected",
       "glibc malloc.c", "double free or corruption (!prev)", "malloc: 3 arenas"),
    _S("aborted", "exit_unknown", _R, GENERIC - 2, r"Fatal Python error: Aborted|^Aborted \(core dumped\)",
       "Python faulthandler.c", "Fatal Python error: Aborted", "Fatal Python error: Segmentation fault"),
)
# fmt: on

TABLE: tuple[Signature, ...] = SCHEDULER + START + STORAGE + CHECKPOINT + NATIVE
