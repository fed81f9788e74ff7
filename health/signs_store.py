"""Signs written by gloo, c10d's stores and sockets, torchelastic, MPI, JAX and Ray: how ranks find each other. Data."""

from __future__ import annotations

from .signatures import CRY, HANG, SPECIFIC, TYPED, Role, Signature

_R, _V, _N = Role.ROOT, Role.VICTIM, Role.NOISE
_S = Signature

# fmt: off
TABLE: tuple[Signature, ...] = (
    _S("gloo-timeout", "collective_timeout", _R, HANG,
       r"Timed out waiting \d+ ?ms for (?:recv|send) operation|Application timeout caused pair closure|"
       r"wait execution of the Notify register times out|"
       r"DeepEP (?:error: .{0,12}timeout|timeout (?:for|check))",
       "gloo unbound_buffer.cc, pair.cc; CANN hccl EI0002; DeepEP",
       "RuntimeError: [gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting 8000ms for recv operation to "
       "complete",
       "RuntimeError: [gloo/transport/tcp/pair.cc:537] Connection closed by peer [10.0.3.12]:39077"),
    _S("gloo-mesh", "collective_init_timeout", _R, HANG + 1,
       r"Gloo connectFullMesh failed|gloo/\S{1,80} (?:Connect timeout|connect \S{1,60}: Connection refused)|"
       r"failed to connect, willRetry=0",
       "gloo rendezvous/context.cc, tcp/pair.cc",
       "RuntimeError: Gloo connectFullMesh failed with [../third_party/gloo/gloo/transport/tcp/pair.cc:144] no error",
       "[I] gloo connectFullMesh: rank 0 connected to 1"),
    _S("gloo-barrier", "collective_timeout", _R, HANG + 1,
       r"Ranks? [\d, ]+ failed to pass moni|timed out in monitoredBarrier",
       "torch ProcessGroupGloo.cpp monitoredBarrier",
       "RuntimeError: Ranks 1, 3 failed to pass monitoredBarrier in 30000 ms",
       "All ranks passed monitoredBarrier in 12 ms"),
    _S("gloo-mesh-loopback", "network_config", _R, SPECIFIC,
       r"connectFullMesh failed with .{0,300}\[127\.|gloo/.{1,160}connect \[127\.",
       "gloo rendezvous/context.cc: peers were told a loopback address",
       "RuntimeError: Gloo connectFullMesh failed with [gloo/transport/tcp/pair.cc:144] no error, remote=[127.0.1.1]:4",
       "RuntimeError: Gloo connectFullMesh failed with [gloo/transport/tcp/pair.cc:144] no error, remote=[10.0.3.7]:4"),
    _S("gloo-closed", "peer_lost", _V, CRY,
       r"gloo/.{1,160}(?:Connection closed by peer|Connection reset by peer|Broken pipe|Connection refused)|"
       r"Connection closed by peer \[[\da-f.:]+\]:\d",
       "gloo transport/tcp/pair.cc",
       "RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:537] Connection closed by peer "
       "[10.0.3.11]:39001",
       "RuntimeError: [gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting 8000ms for recv operation to "
       "complete"),
    _S("store-warning", "store_lost", _N, 0,
       r'Failed to check the "should dump" flag|^(?:\[\w+\]: ?)?\[W.{0,80}(?:sendBytes|recv(?:Value|'
       r'Vector)?\w{0,16}) failed',
       "torch ProcessGroupNCCL.cpp, TCPStore.cpp: warnings of every teardown",
       "[rank1]:[W1229 22:06:38.558655037 TCPStore.cpp:106] [c10d] sendBytes failed on SocketImpl(fd=67): Broken pipe",
       "torch.distributed.DistNetworkError: Failed to recv, got 0 bytes. Connection was likely closed."),
    _S("store-likely-closed", "store_lost", _V, CRY,
       r"[Ff]ailed to (?:recv, got|send, sent) 0 bytes", "torch c10d socket/TCPStore utils",
       "torch.distributed.DistNetworkError: Failed to recv, got 0 bytes. Connection was likely closed.",
       "received 0 items of ancdata"),
    _S("store-closed-old", "store_lost", _V, CRY,
       r"(?:RuntimeError|DistNetworkError|DistStoreError): (?:Broken pipe|Connection reset by peer|Socket Timeout|"
       r"Stop_waiting)",
       "torch 1.x c10d/Utils.hpp SYSCHECK",
       "RuntimeError: Broken pipe",
       "RuntimeError: Broken checkpoint"),
    _S("store-clients", "collective_init_timeout", _R, HANG + 1,
       r"waiting for clients\. \d+/\d|Timed out initializing process group in store based barrier",
       "torch TCPStore.cpp waitForWorkers; distributed_c10d.py _store_based_barrier",
       "torch.distributed.DistStoreError: Timed out after 901 seconds waiting for clients. 15/16 clients joined.",
       "[c10d] waiting for clients on port 29500"),
    _S("store-connect", "store_unreachable", _R, HANG + 3,
       r"client socket has timed out after .{1,40} while trying to connect|"
       r"client socket has failed to connect to any network address|TCP client failed to connect/validate to host|"
       r"connect\(\) timed out\. Original timeout was|RuntimeError: (?:Connection refused|No route to host)",
       "torch socket.cpp, TCPStore.cpp; torch 1.x Utils.hpp",
       "torch.distributed.DistNetworkError: The client socket has timed out after 60000ms while trying to connect to "
       "(h, 1).",
       "[W socket.cpp:663] [c10d] The client socket has failed to connect to [node-a]:29500 (errno: 111 - refused)."),
    _S("store-name", "dns_failure", _R, SPECIFIC,
       r"network addresses of \(.{1,200}\) cannot be retrieved \(gai error",
       "torch socket.cpp: deciding only if it failed",
       "[W socket.cpp:764] [c10d] The IPv6 network addresses of (node-x9, 29500) cannot be retrieved (gai error: -2 "
       "- x).",
       "[I socket.cpp:764] [c10d] The IPv6 network addresses of (node-x9, 29500) are [::1]:29500",
       beside="store-connect"),
    _S("dns", "dns_failure", _R, SPECIFIC,
       r"gaierror\b|Temporary failure in name resolution(?!\)\.)|Could not resolve host|getaddrinfo(?:\(\))? failed|"
       r"NameResolutionError",
       "Python socket, glibc gai_strerror, urllib3",
       "socket.gaierror: [Errno -2] Name or service not known",
       "resolved node-a1 in 0.2 ms"),
    _S("port", "port_in_use", _R, SPECIFIC,
       r"server socket has failed to (?:listen|bind)(?! to \[)|\[Errno 98\] Address already in use|EADDRINUSE|"
       r"RuntimeError: Address already in use|No address added out of total \d|Failed to add (?:any )?port to server|"
       r"bind: [Aa]ddress already in use|, but another process is utilizing it",
       "torch socket.cpp, Python OSError, gRPC chttp2_server.cc, Go net, accelerate utils/launch.py",
       "RuntimeError: The server socket has failed to listen on any local network address.",
       "[I socket.cpp:480] [c10d] The server socket has started to listen on [::]:29500."),
    _S("elastic-lost", "rdzv_lost", _R, TYPED,
       r"RendezvousConnectionError|connection to the C10d store has failed|RendezvousStateError|EtcdException|"
       r"EtcdConnectionFailed",
       "torch elastic rendezvous api.py; python-etcd",
       "torch.distributed.elastic.rendezvous.api.RendezvousConnectionError: The connection to the C10d store has "
       "failed.",
       "[default] Rendezvous'ing worker group"),
    _S("elastic-closed", "rdzv_closed", _R, TYPED,
       r"RendezvousClosedError", "torch elastic rendezvous api.py",
       "torch.distributed.elastic.rendezvous.api.RendezvousClosedError",
       "torch.distributed.elastic.rendezvous.api.RendezvousTimeoutError"),
    _S("elastic-timeout", "collective_init_timeout", _R, HANG + 1,
       r"RendezvousTimeoutError", "torch elastic rendezvous api.py",
       "torch.distributed.elastic.rendezvous.api.RendezvousTimeoutError",
       "torch.distributed.elastic.rendezvous.api.RendezvousClosedError"),
    _S("horovod-peer", "peer_lost", _V, CRY,
       r"HorovodInternalError", "horovod common/exceptions.py",
       "horovod.common.exceptions.HorovodInternalError: Horovod has been shut down.", "HorovodVersionMismatchError: 1"),
    _S("jax-peer", "peer_lost", _V, CRY,
       r"JAX distributed service detected fatal errors|tasks are unhealthy \(stopped sending heartbeats\)|"
       r"another task (?:reported an error|died)|[Cc]oordination service agent .{0,80}(?:heartbeat|connection)",
       "XLA coordination service client",
       "Terminating process because the JAX distributed service detected fatal errors.",
       "Connecting to JAX distributed service on node-a1:1234"),
    _S("jax-coordinator", "store_lost", _V, CRY,
       r"(?:heartbeat to coordinator|coordination service).{0,120}(?:UNAVAILABLE|failed to connect|Connection re)",
       "XLA coordination_service_agent.cc: the coordinator itself does not answer",
       "Failed to send heartbeat to coordinator: UNAVAILABLE: failed to connect to all addresses",
       "Failed to send heartbeat to coordinator: CANCELLED: the agent is shutting down"),
    _S("jax-barrier", "collective_init_timeout", _R, HANG + 1,
       r"Barrier timed out\. .{0,40}(?:PjRT_Client_Connect|Wait_for_all_tasks_to_register|\[Init\])|"
       r"RegisterTask.{0,40}[Dd]eadline|connect to coordination service .{0,40}DEADLINE_EXCEEDED",
       "XLA coordination service",
       "DEADLINE_EXCEEDED: Barrier timed out. Id: PjRT_Client_Connect.",
       "DEADLINE_EXCEEDED: Barrier timed out. Id: save_step_100."),
    _S("jax-wait", "collective_timeout", _R, HANG,
       r"DEADLINE_EXCEEDED: Barrier timed out", "XLA coordination service",
       "DEADLINE_EXCEEDED: Barrier timed out. Id: save_step_100.", "Barrier passed. Id: save_step_100."),
    _S("xla-rendezvous", "collective_timeout", _R, HANG,
       r"Termination timeout for .{0,300} of \d+ seconds exceeded", "XLA service/rendezvous.cc",
       "Termination timeout for `all-reduce.7` of 40 seconds exceeded. Exiting to ensure a consistent program state.",
       "This thread has been waiting for `all-reduce.7` for 20 seconds and may be stuck."),
    _S("mpi-peer", "peer_lost", _V, CRY,
       r"\[btl_tcp_\w{1,20}\.c:\d+:.{1,120} failed: (?:Connection|Broken|No route|Network)",
       "Open MPI opal/mca/btl/tcp btl_tcp_frag.c, btl_tcp_endpoint.c",
       "[n1][[27011,1],3][btl_tcp_frag.c:241:mca_btl_tcp_frag_recv] mca_btl_tcp_frag_recv: readv failed: Connection "
       "reset by peer (104)",
       "mca: base: components_open: component tcp open function successful"),
    _S("mpi", "env_mpi_leak", _R, SPECIFIC,
       r"OMPI was not built with SLURM|An error occurred in MPI_Init|PMI2?_Init (?:failed|returned|error)|"
       r"PMIX ERROR|Local abort before MPI_INIT|Fatal error in (?:P?MPI_Init|internal_Init)|MPIR_pmi_init|"
       r"(?:orte|prte|opal)_\w{0,12}init failed|PMI server not found|OPAL ERROR: (?:Unreachable|Not initialized)",
       "Open MPI ess/pmi help text; MPICH simple_pmi.c",
       "but OMPI was not built with SLURM's PMI support and therefore cannot execute.",
       "MPI_Init completed on 8 ranks"),
)
# fmt: on
