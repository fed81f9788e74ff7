"""Signs written by NCCL and torch's process groups, and the cries of ranks about each other. Data."""

from __future__ import annotations

from .signatures import CRY, FAINT, HANG, HARDWARE, SPECIFIC, Role, Signature

_R, _V, _W, _N = Role.ROOT, Role.VICTIM, Role.WRAPPER, Role.NOISE
_S = Signature

# fmt: off

NCCL = (
    _S("nccl-first-timeout", "collective_init_timeout", _R, HANG + 1,
       r"collective operation timeout: WorkNCCL\(SeqNum=1,", "torch ProcessGroupNCCL.cpp WorkNCCL::checkTimeout",
       "[Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1, OpType=ALLREDUCE, "
       "Timeout(ms)=600000)",
       "[Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=17, OpType=ALLREDUCE)"),
    _S("nccl-timeout", "collective_timeout", _R, HANG,
       r"collective operation timeout: \w{0,8}Work\w{0,8}\(",
       "torch ProcessGroupNCCL.cpp WorkNCCL::checkTimeout",
       "[Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=808, OpType=ALLREDUCE, Timeout(ms)=600)",
       "[Rank 1] collective operation timeout is set to Timeout(ms)=600000"),
    _S("nccl-timeout-torn", "collective_timeout", _R, HANG,
       r"Watchdog caught collective op\w{0,8}(?: \w{0,7}:?)?$|ran for \d{1,12} milliseconds before timing out",
       "torch ProcessGroupNCCL.cpp WorkNCCL::checkTimeout, of which a log has kept the beginning or the end",
       "25165824, NumelOut=25165824, Timeout(ms)=600000) ran for 600061 milliseconds before timing out.",
       "Watchdog caught collective operation timeouts are retried"),
    _S("nccl-work-failed", "collective_timeout", _R, HANG - 1,
       r"Timeout at NCCL work: \d|watchdog at work sequence id: \d", "torch ProcessGroupNCCL.cpp Watchdog::runLoop",
       "[PG ID 0 PG GUID 0(default_pg) Rank 1] Timeout at NCCL work: 808, last enqueued NCCL work: 811",
       "[PG ID 0 PG GUID 0(default_pg) Rank 1] last enqueued work: 811, last completed work: 810"),
    _S("nccl-unique-id", "collective_init_timeout", _R, HANG + 1,
       r"retr(?:ie|ei)ving ncclUniqueId .{0,300}[Tt]ime(?:out|d out)|wait timeout after \d+ ?ms, keys:|"
       r"Timeout waiting for key: ",
       "torch ProcessGroupNCCL.cpp broadcastUniqueNCCLID; TCPStore.cpp doWait",
       "[3] is setting up NCCL communicator and retrieving ncclUniqueId from [0] via c10d key-value store by key '0', "
       "but store->get('0') got error: wait timeout after 600000ms, keys: /default_pg/0//cuda//0",
       "[3] is setting up NCCL communicator and retrieving ncclUniqueId from [0] via c10d key-value store by key '0', "
       "but store->get('0') got error: Connection reset by peer"),
    _S("nccl-unique-id-lost", "store_lost", _V, CRY,
       r"retr(?:ie|ei)ving ncclUniqueId .{0,300}(?:reset|closed|Broken pipe)",
       "torch ProcessGroupNCCL.cpp broadcastUniqueNCCLID",
       "[3] is setting up NCCL communicator and retrieving ncclUniqueId from [0] via c10d key-value store by key '0', "
       "but store->get('0') got error: Connection reset by peer",
       "[3] is setting up NCCL communicator and retrieving ncclUniqueId from [0]: wait timeout after 600000ms"),
    _S("nccl-heartbeat", "watchdog_stuck", _R, HANG + 2,
       r"watchdog got stuck for \d+ seconds|Heartbeat monitor timed out!|NCCL monitor thread timeout\.|"
       r"due to ProcessGroupNCCL watchdog hang",
       "torch ProcessGroupNCCL.cpp HeartbeatMonitor",
       "[PG 0 Rank 0] ProcessGroupNCCL's watchdog got stuck for 600 seconds without making progress",
       "[PG 0 Rank 0] Heartbeat monitor started, timeout 600 seconds"),
    _S("nccl-dump-signal", "collective_timeout", _V, CRY,
       r"(?:Observed flight recorder|Received a) (?:global )?(?:timeout|dump) (?:dump )?signal|"
       r"dump signal from another rank|dump debug info, due to collective timeout",
       "torch ProcessGroupNCCL.cpp HeartbeatMonitor::runLoop",
       "[PG ID 0 PG GUID 0(default_pg) Rank 1] Observed flight recorder dump signal from another rank via TCPStore.",
       "[PG ID 0 Rank 1] ProcessGroupNCCL preparing to dump debug info. Include stack trace: 1"),
    _S("nccl-usage", "nccl_usage_mismatch", _R, SPECIFIC,
       r"ncclInvalid(?:Usage|Argument)\b|Duplicate GPU detected|Message truncated : received \d|NCCL Error [45]: |"
       r"Bootstrap Root ?: (?:mismatch in|rank \d+ of \d+ ranks has already checked in)",
       "torch NCCLUtils getNcclErrorDetailStr; nccl init.cc, transport.cc, bootstrap.cc",
       "ncclInvalidUsage: This usually reflects invalid usage of NCCL library.",
       "ncclRemoteError: A call failed possibly due to a network error"),
    _S("c10d-mismatch", "nccl_usage_mismatch", _R, SPECIFIC,
       r"mismatch between collectives on ranks|DDP expects same model across all ranks|"
       r"params\[\d+\] in this process with sizes", "torch ProcessGroupWrapper.cpp, reducer.cpp",
       "RuntimeError: Detected mismatch between collectives on ranks. Rank 0 is running collective: ALLREDUCE",
       "c10d debug mode: mismatch detection between collectives is on"),
    _S("nccl-shm", "shm_exhausted", _R, SPECIFIC + 5,
       r"(?:shared memory segment|extend|mmap|allocate) .{0,40}/dev/shm/nccl-", "nccl shmutils.cc",
       "NCCL WARN Error: failed to extend /dev/shm/nccl-ab12 to 33030532 bytes, error: No space left on device (28)",
       "NCCL INFO Channel 00/0 : 0[0] -> 1[1] via SHM/direct/direct using /dev/shm/nccl-ab12"),
    _S("nccl-registration", "resource_limit", _R, SPECIFIC,
       r"ibv_(?:reg_mr|create_cq|create_qp)\w{0,16} failed with error (?:Cannot allocate memory|No space left)",
       "nccl ibvwrap.cc (locked memory limit)",
       "NCCL WARN Call to ibv_reg_mr failed with error Cannot allocate memory",
       "NCCL WARN Call to ibv_get_async_event failed"),
    _S("ib-completion", "ib_link_error", _R, SPECIFIC,
       r"NET/IB ?: .{0,120}(?:with (?:error|status) (?:4|9|1[0-3])\b|status=(?:IBV_WC_(?!WR_FLUSH)\w+|4|9|1[0-3])\b)|"
       r"Call to ibv_modify_qp failed",
       "nccl net_ib p2p.cc: 12 = transport retries used up, 4/9/10/11 = protection, remote access, remote operation",
       "NET/IB : Got completion from peer 10.0.9.122<39138> with error 12, opcode 0, len 0, vendor err 129",
       "NET/IB : Got completion from peer 10.0.3.19<41772> with status=5 opcode=0 len=0 vendor err 244 (Recv)"),
    _S("efa-completion", "ib_link_error", _R, SPECIFIC,
       r"NET/OFI .{0,40}[Rr]equest .{0,40}completed with error\b(?!.{0,200}(?:[Tt]runcat|[Cc]ancel|[Ff]lush))",
       "aws-ofi-nccl nccl_ofi_cq.cc: the provider gave up on a peer",
       "NCCL WARN NET/OFI Request completed with error. RC: 113. Error: 4109 (Unresponsive receiver)",
       "NCCL WARN NET/OFI Request completed with error. RC: 265. Error: Truncation error"),
    _S("ib-flushed", "nccl_remote_error", _V, CRY,
       r"NET/IB ?: .{0,120}(?:with (?:error|status) 5\b|status=(?:IBV_WC_WR_FLUSH_ERR|5)\b)", "nccl net_ib p2p.cc",
       "NET/IB : Got completion from peer 10.0.3.19<41772> with status=5 opcode=0 len=0 vendor err 244 (Recv)",
       "NET/IB : Got completion from peer 10.0.3.19<41772> with status=12 opcode=0 len=0 vendor err 129 (Recv)"),
    _S("ib-async-event", "ib_link_error", _R, HARDWARE - 5,
       r"NET/IB ?: .{0,80}async (?:fatal )?event ?(?:on \w+)? ?(?:\(0x[\da-f]+\))? ?: .{0,60}(?:error|fatal)|"
       r"NET/IB ?: .{0,80}communicator encountered a fatal error",
       "nccl net_ib common.cc ncclIbAsyncThreadMain",
       "NCCL WARN NET/IB : mlx5_2:1 Got async event : port error",
       "NCCL INFO NET/IB : mlx5_2:1 Got non-fatal async event: GID table change(18)"),
    _S("nccl-remote", "nccl_remote_error", _V, CRY,
       r"ncclRemoteError\b|remote process exited or there was a network error|NCCL communicator was aborted|"
       r"NCCL Error 6: ",
       "nccl init.cc ncclGetErrorString; torch ProcessGroupNCCL.cpp",
       "ncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely.",
       "ncclUnhandledCudaError: Call to CUDA function failed."),
    _S("nccl-socket-closed", "nccl_remote_error", _V, CRY,
       r"socketProgress\w{0,8}: (?:Connection closed by|Call to )|"
       r"Call to (?:recv|send|connect)\w{0,8} (?:from |to )?.{0,80}(?:failed|returned) ?: ?"
       r"(?:Connection|Broken|No route|Network|Software)|socket(?:Poll|"
       r"Start)Connect: [Cc]onnect to .{1,80} (?:returned|failed)",
       "nccl misc/socket.cc socketProgressOpt",
       "socketProgressOpt: Call to recv from 10.0.3.17<33759> failed : Connection reset by peer",
       "NCCL INFO Call to recv from 10.0.3.17<33759> completed"),
    _S("nccl-system", "nccl_remote_error", _V, FAINT,
       r"ncclSystemError\b|ncclInternalError\b|unhandled system error|NCCL Error [237]: |NCCL error in: ",
       "torch NCCLUtils; nccl issue 795",
       "ncclSystemError: System call (e.g. socket, malloc) or external library call failed or device error.",
       "ncclSuccess: no error (ncclSystem is up)"),
    _S("nccl-address", "network_config", _R, SPECIFIC,
       r"connecting to address .{0,60}is neither AF_INET", "nccl misc/socket.cc ncclSocketInit; nccl issue 1837",
       "ncclSocketInit: connecting to address  with family 59936 is neither AF_INET(2) nor AF_INET6(10)",
       "NCCL INFO ncclSocketInit: connecting to address 10.0.3.17<50211>"),
    _S("nccl-interface", "network_config", _R, SPECIFIC,
       r"Bootstrap ?: no socket interface found|NET/Socket ?: [Nn]o interface found|"
       r"Unable to find (?:interface|address) for: ?\[?\S|no device found matching",
       "nccl bootstrap.cc; gloo transport/tcp/device.cc",
       "RuntimeError: [enforce fail at gloo/transport/tcp/device.cc:83] ifa != nullptr. Unable to find interface "
       "for: [10.0.3.15]",
       "NCCL INFO Bootstrap : Using eth0:10.0.3.15<0>"),
    _S("nccl-version", "env_library_mismatch", _R, SPECIFIC,
       r"Mismatched NCCL version detected", "nccl init.cc bootstrap of ranks with different libraries",
       "NCCL WARN Mismatched NCCL version detected : rank 0 (22105) rank 3 (21805)",
       "NCCL INFO NCCL version 2.21.5+cuda12.4"),
    _S("nccl-info", "", _N, 0,
       r"^.{0,160}\d:\d+(?::\d+)? \[-?\d+\] NCCL (?:INFO|TRACE) (?!.{0,400}Error: )",
       "nccl debug.cc: what it tells with NCCL_DEBUG=INFO decides nothing",
       "node-a1:1:2 [0] NCCL INFO NET/Plugin : Plugin load (libnccl-net.so) returned 2 : libnccl-net.so: cannot open "
       "shared object file",
       "node-a1:1:2 [0] include/alloc.h:185 NCCL WARN Failed to CUDA calloc 6291456 bytes"),
    _S("gloo-loopback", "network_config", _N, 0,
       r"Using the loopback address as fallback", "torch ProcessGroupGloo.cpp: a warning; one node works with it",
       "Warning: Unable to resolve hostname to a (local) address. Using the loopback address as fallback.",
       "RuntimeError: Unable to find address for: eth7"),
)

CRIES = (
    _S("errno-cry", "peer_lost", _V, CRY,
       r"(?:ConnectionResetError|BrokenPipeError|ConnectionAbortedError|ConnectionRefusedError|EOFError$)",
       "Python: a pipe or socket to another process", "ConnectionResetError: [Errno 104] Connection reset by peer",
       "TimeoutError: [Errno 110] Connection timed out", raised=True),
    _S("backend-cry", "nccl_remote_error", _V, FAINT,
       r"DistBackendError\b", "torch c10 Exception.h", "DistBackendError: NCCL error in: NCCLUtils.hpp:268",
       "DistError: something", raised=True),
    _S("network-cry", "store_lost", _V, FAINT,
       r"Dist(?:Network|Store|Queue\w{0,8})Error\b", "torch c10 Exception.h", "DistNetworkError: unknown",
       "DistributedSamplerError: unknown", raised=True),
    _S("ucx-retries", "peer_lost", _V, CRY,
       r"ib_mlx5_log\.c:\d+ +Transport retry count exceeded", "ucx uct/ib/mlx5/ib_mlx5_log.c",
       "[node-a2:881 :0:881] ib_mlx5_log.c:171 Transport retry count exceeded on mlx5_0:1/IB (synd 0x15)",
       "UCX  INFO  ib_mlx5_log.c:171 transport rc_mlx5 on mlx5_0:1"),
    _S("ray-actor", "killed_unknown", _V, CRY,
       r"(?:RayActorError|ActorDiedError|WorkerCrashedError)\b", "ray exceptions.py: a worker is gone",
       "ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task.",
       "ray.exceptions.ActorUnschedulableError: no node has the resources", raised=True),
    _S("launcher-report", "", _W, 0,
       r"(?:ChildFailedError|ProcessExitedException|ProcessRaisedException|SignalException|CalledProcessError|"
       r"SystemExit|ExecuteUserScriptError)\b",
       "torch elastic errors, multiprocessing spawn.py; Python subprocess; sagemaker-training", "ChildFailedError: ",
       "ChildProcessError: [Errno 10] No child processes", raised=True),
    _S("engine-report", "", _W, 0,
       r"\w{1,40}: (?:Engine core initialization failed|EngineCore encountered an issue|"
       r"WorkerProc initialization failed)",
       "vllm v1 engine/utils.py, executor: what its process raised stands above",
       "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}",
       "RuntimeError: the engine's core is not initialized", raised=True),
    _S("watchdog-end", "", _W, 0,
       r"Some NCCL operations have failed or timed out|taking the entire process down|"
       r"terminate called (?:after|without)|Process group watchdog thread terminated with exception|"
       r"Terminating the process after attempting to dump",
       "torch ProcessGroupNCCL.cpp handleException; libstdc++ vterminate",
       "terminate called after throwing an instance of 'c10::DistBackendError'",
       "terminate requested by user"),
    _S("torch-advice", "", _N, 0,
       r"destroy_process_group\(\) was not called|leaked semaphore|CUDA_LAUNCH_BLOCKING=1|TORCH_USE_CUDA_DSA|"
       r"might be asynchronously reported|Could not acquire GIL within|leaked shared_memory",
       "torch CUDAException.cpp, ProcessGroupNCCL.cpp; Python resource_tracker: advice",
       "For debugging consider passing CUDA_LAUNCH_BLOCKING=1.",
       "RuntimeError: CUDA error: device-side assert triggered"),
)
# fmt: on

TABLE: tuple[Signature, ...] = NCCL + CRIES
