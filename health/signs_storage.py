"""Signs of disks, mounts, memory and limits of the host, and of the data workers that meet them first. Data."""

from __future__ import annotations

from .signatures import CRY, SPECIFIC, TYPED, Role, Signature

_R, _V = Role.ROOT, Role.VICTIM
_S = Signature

# fmt: off
TABLE: tuple[Signature, ...] = (
    _S("shm-full", "shm_exhausted", _R, SPECIFIC + 5,
       r"insufficient shared memory|killed by signal: Bus error|(?:allocate|open|resize|mmap|write to file|"
       r"write) .{0,80}"
       r"(?:shared memory|</?torch_\d).{0,200}(?:No space|Cannot allocate|\(28\))|No space left on device: '/dev/shm|"
       r"workers are out of shared memory|unable to write to file </?torch_\d",
       "torch DataLoader, MapAllocator.cpp",
       "RuntimeError: DataLoader worker (pid 13296) is killed by signal: Bus error.",
       "using shared memory (shm) of 64 GiB"),
    _S("shm-frames", "shm_exhausted", _R, SPECIFIC + 5,
       r"multiprocessing/(?:shared_memory|heap|synchronize)\.py\"|SemLock\(|_posixshmem\.shm_open",
       "Python multiprocessing: its semaphores and shared memory live in /dev/shm",
       '  File "/usr/lib/python3.10/multiprocessing/heap.py", line 81, in __init__',
       '  File "/usr/lib/python3.10/multiprocessing/queues.py", line 244, in _feed', beside="disk-full"),
    _S("temporary-frames", "disk_full_local", _R, SPECIFIC + 2,
       r"/tempfile\.py\", line", "Python tempfile: /tmp, of the node",
       '  File "/usr/lib/python3.10/tempfile.py", line 499, in func_wrapper',
       '  File "/src/my_tempfile.py", line 4, in save', beside="disk-full"),
    _S("disk-full-local", "disk_full_local", _R, SPECIFIC + 2,
       r"(?:Errno 28|No space left on device).{0,20}['\"`]/(?:tmp|var|local\w*|nvme\w*|ssd\w*|raid\w*|run|root|"
       r"mnt/(?:local|nvme|ssd)\w*|"
       r"scratch/local|localscratch|dev/(?!shm))|No usable temporary directory found in|"
       r"(?:write|open|mkdir|copy|creat\w{1,3}|writing) ['\"`]?/(?:tmp|var|root|run|local\w*|nvme\w*)/\S{0,200}: "
       r".{0,20}"
       r"no space left on device|failed to (?:register|extract) layer.{0,400}[Nn]o space left on device",
       "errno ENOSPC with a path that every node has of its own",
       "OSError: [Errno 28] No space left on device: '/tmp/torchinductor_u/tmpab12.so'",
       "OSError: [Errno 28] No space left on device: '/shared/ckpt/step-100/model.pt'"),
    _S("disk-full", "disk_full_or_io", _R, SPECIFIC,
       r"\[Errno (?:28|122)\](?! inotify)|[Nn]o space left on device|Disk quota exceeded|PytorchStreamWriter failed|"
       r"inline_container\.cc.{0,40}unexpected pos|\(os error (?:28|122)\)",
       "errno ENOSPC, EDQUOT; torch inline_container.cc",
       "RuntimeError: [enforce fail at inline_container.cc:778] . PytorchStreamWriter failed writing file data/176",
       "disk: 28 GB left of 400 GB"),
    _S("disk-full-ray", "disk_full_local", _R, SPECIFIC + 2,
       r"OutOfDiskError\b", "ray exceptions.py: its object store spills to the node's own disk",
       "ray.exceptions.OutOfDiskError: Local disk is full", "ray.exceptions.OutOfMemoryError: Task was killed",
       raised=True),
    _S("stale", "fs_transient", _R, SPECIFIC,
       r"\[Errno (?:116|121|70|37)\]|\[Errno (?:110|11)\] [\w ]{1,40}: '|Stale (?:NFS )?file handle|Remote I/O error|"
       r"\(os error 116\)",
       "errno ESTALE, EREMOTEIO", "OSError: [Errno 116] Stale file handle: '/shared/cache/indices.arrow'",
       "dropping 116 stale entries"),
    _S("mount-lost", "fs_mount_lost", _R, SPECIFIC,
       r"\[Errno (?:5|30|107)\]|\[Errno 19\] No such device: '/|Input/output error|"
       r"Transport endpoint is not connected|\(os error (?:5|30|107)\)|"
       r"\[Errno 103\] [\w ]{1,60}: '/",
       "errno EIO, EROFS, ENOTCONN; ECONNABORTED, ENODEV of a FUSE file system",
       "OSError: [Errno 5] Input/output error: '/nvme/cache/shard-8.bin'",
       "OSError: [Errno 50] Network is down"),
    _S("evicted", "fs_hang", _R, SPECIFIC,
       r"\[Errno 108\]|Cannot send after transport endpoint shutdown|\(os error 108\)",
       "errno ESHUTDOWN: Lustre evicted this client",
       "OSError: [Errno 108] Cannot send after transport endpoint shutdown",
       "OSError: [Errno 10] No child processes"),
    _S("limit", "resource_limit", _R, SPECIFIC,
       r"\[Errno (?:24|23)\]|Too many open files|can't start new thread|received 0 items of ancdata|"
       r"pthread_create failed|"
       r"Thread creation failed|\[Errno 11\] Resource temporarily unavailable$|inotify watch limit reached|"
       r"(?:what\(\)|fork|thread\w{0,8}):.{0,40} Resource temporarily unavailable",
       "errno EMFILE, ENFILE, EAGAIN from fork; libgomp", "OSError: [Errno 24] Too many open files: '/data/a/0001.npz'",
       "open files limit: 1048576"),
    _S("host-memory", "host_oom", _R, SPECIFIC,
       r"(?:can't allocate|not enough) memory: you tried to allocate|\[Errno 12\]|std::bad_alloc(?!: (?:cuda|"
       r"out_of_memory: CUDA))|"
       r"Unable to allocate .{1,40} for an array|ArrowMemoryError|memory allocation of \d+ bytes failed",
       "torch CPUAllocator; errno ENOMEM; numpy; Rust alloc",
       "RuntimeError: DefaultCPUAllocator: can't allocate memory: you tried to allocate 8589934592 bytes.",
       "allocated 12 buffers"),
    _S("data-worker-killed", "dataloader_killed", _R, SPECIFIC,
       r"DataLoader worker \(pid(?:\(s\))? [\d, ]+\) is killed by(?: signal: Kill|(?: [a-z]{0,6}:?)? ?$)",
       "torch DataLoader.cpp; where the signal is cut off, it is nearly always this one",
       "RuntimeError: DataLoader worker (pid 13218) is killed by signal: Killed. ",
       "RuntimeError: DataLoader worker (pid 13218) is killed by signal: Terminated. "),
    _S("data-worker-exited", "dataloader_killed", _R, TYPED - 10,
       r"DataLoader worker \(pid(?:\(s\))? [\d, ]+\) exited(?: unexpectedly|(?: un[a-z]{0,9})?$)",
       "torch utils/data/dataloader.py _try_get_data: an exception that a worker wrote says more",
       "RuntimeError: DataLoader worker (pid(s) 13218, 13219) exited unexpectedly",
       "DataLoader worker (pid 13218) exited with status 0"),
    _S("pool-worker-died", "dataloader_killed", _R, TYPED - 10,
       r"subprocesses has abruptly died during map operation|process pool was terminated abruptly|"
       r"managed by the executor was unexpectedly terminated",
       "datasets utils/py_utils.py; Python concurrent/futures/process.py; joblib loky process_executor.py",
       "RuntimeError: One of the subprocesses has abruptly died during map operation.To debug the error, disable "
       "multiprocessing.",
       "RuntimeError: the pool of subprocesses is closed"),
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
# fmt: on
