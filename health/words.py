"""What a class means and what a person should do about it, for the sentence of a verdict and for the report."""

from __future__ import annotations

# class: (what happened, what to do next)
# fmt: off
# ruff: noqa: E501  one class a line: read it as a table
_WORDS: dict[str, tuple[str, str]] = {
    "ckpt_corrupt": ("a checkpoint file is damaged", "Resume from an older checkpoint; keep the damaged one for a look."),
    "ckpt_incomplete": ("a checkpoint is incomplete", "Resume from the newest complete checkpoint; check how the other was written."),
    "collective_init_timeout": ("the first exchange between ranks never formed: a peer did not arrive", "Look at the rank that is missing: did it start, can it reach the others?"),
    "collective_timeout": ("a collective did not finish in time", "Find the rank that did not take part: its last lines, its stack (in the record; else py-spy dump next time)."),
    "cuda_oom": ("out of GPU memory", "Use a smaller batch or activation checkpointing; restarting gives the same."),
    "cuda_oom_foreign": ("GPU memory was taken by another process", "On the node: nvidia-smi, end what should not run there."),
    "dataloader_killed": ("a data worker was killed, most often for lack of host memory", "Fewer data workers, less prefetching, or more memory for the job."),
    "disk_full_local": ("a disk of the node is full", "Clean the node's local disk, or point TMPDIR elsewhere."),
    "disk_full_or_io": ("a write failed: disk full, quota used up, or file system error", "Make room or raise the quota, then start again."),
    "dns_failure": ("a host name could not be resolved", "Check the name and the resolver on the node, or give an address."),
    "env_library_mismatch": ("libraries do not fit together", "Check LD_LIBRARY_PATH and the versions of driver, CUDA, NCCL and torch on the node."),
    "env_mpi_leak": ("an MPI library took the job for its own launch", "Unset PMI_*, PMIX_*, OMPI_* for the ranks, or do not import MPI in them."),
    "external_service": ("a service outside did not answer", "Try later, or keep a local copy of the model or data."),
    "fs_hang": ("a file system client was cut off by its server", "Ask the storage team about the node's client; other nodes may be fine."),
    "fs_mount_lost": ("a file system of the node failed", "Check mounts and disks of the node (dmesg)."),
    "fs_transient": ("the file system failed for a moment", "Retry; if it repeats, ask the storage team."),
    "gpu_app_fault": ("the GPU stopped the program: bad memory access or failed kernel", "If the same step fails again it is the program; if the same node, the node."),
    "gpu_driver_hang": ("the GPU driver does not answer", "Reset the GPU or reboot the node."),
    "gpu_ecc": ("uncorrectable GPU memory error (ECC)", "Take the node out until the GPU has been reset or replaced."),
    "gpu_ecc_contained": ("contained GPU memory error (ECC)", "Restart in place; count them."),
    "gpu_lost": ("a GPU is lost to its node", "Reboot the node; check the GPU's seat and power."),
    "gpu_nvlink": ("NVLink error", "Exclude the node when it repeats; check fabric manager."),
    "gpu_unavailable": ("no usable GPU", "On the node: nvidia-smi, CUDA_VISIBLE_DEVICES, fabric manager; more ranks than GPUs?"),
    "host_memory_ecc": ("host memory error", "Take the node out and replace the memory module."),
    "host_oom": ("out of host memory", "Give the job more memory, or use less: data workers, caches, pinned buffers."),
    "ib_link_error": ("InfiniBand error", "Check link and counters of the named device (ibstat), and of its peer."),
    "launcher_killed_by_srun": ("srun ended the whole step because one task had ended", "Look at the task that srun names; give srun --kill-on-bad-exit=0 --wait=0."),
    "nan_loss": ("the loss or a gradient is not a number", "Look at data and learning rate near this step; maybe resume from an older checkpoint."),
    "nccl_remote_error": ("a peer's connection broke in NCCL, and no peer said why", "Look for a lost node or a network fault; the peer is named in the line."),
    "nccl_usage_mismatch": ("ranks called collectives that do not fit together", "Make all ranks issue the same collectives with the same sizes."),
    "network_config": ("the network interface asked for does not exist here", "Set NCCL_SOCKET_IFNAME and GLOO_SOCKET_IFNAME to an interface of this node."),
    "node_lost": ("the node was lost", "Check that the node is up and reaches the store."),
    "node_mount_missing": ("a path that the other nodes have is missing on the node", "Mount it, or take the node out."),
    "peer_lost": ("the connection to a peer broke, and no peer said why", "Look for a lost node or a network fault."),
    "port_in_use": ("a port was taken", "The next round takes another one, unless the script names it: let it use MASTER_PORT."),
    "preempted": ("the scheduler wants the nodes back", "Nothing to do: requeue."),
    "rank_hang": ("a rank stopped taking part", "Look at what that rank was doing: its last lines, its stack (in the record; else py-spy dump next time)."),
    "rdzv_closed": ("an older rendezvous of the same id was closed", "Use a new run id, or start without the inner launcher."),
    "rdzv_lost": ("the store of the rendezvous was out of reach", "Check etcd and the network to it."),
    "resource_limit": ("a limit of the system was reached", "Raise it (ulimit -n, -u, -l; pids of the cgroup) or use less."),
    "segfault": ("the program crashed in native code", "Get a core or run with faulthandler; same node again: suspect the node."),
    "shm_exhausted": ("shared memory is too small", "Give the container a larger /dev/shm (--shm-size), or use fewer data workers."),
    "store_lost": ("the ranks' store is gone: rank 0 ended", "Look at what rank 0 did."),
    "store_unreachable": ("rank 0's store could not be reached", "Check that the nodes reach one another: firewall, interface, address."),
    "success": ("all ranks ended with exit status 0", ""),
    "time_limit": ("the allocation's time is over", "Requeue; a restart inside the same allocation is useless."),
    "user_args": ("wrong command line", "Correct the command; a restart cannot help."),
    "user_auth": ("access refused: login or token", "Give the ranks valid credentials."),
    "user_data_error": ("the data is not as the program expects", "Look at the sample or field in the line."),
    "user_data_missing": ("a file is missing", "Check the path on the node."),
    "user_device_assert": ("an assertion in a GPU kernel failed, often an index out of range", "Check labels and token ids against sizes; run with CUDA_LAUNCH_BLOCKING=1."),
    "user_exception": ("the program raised an exception", "Read the traceback of this rank."),
    "user_import": ("a module could not be imported", "Install it in the environment of the ranks; on one node only: its image differs."),
    "user_interrupt": ("somebody interrupted the program", ""),
    "user_permission": ("permission denied", "Check owner and mode of the path, for the user that runs the ranks."),
    "user_shape": ("tensor shapes do not fit", "Correct the model or the checkpoint it loads."),
    "user_syntax": ("the script does not parse", "Correct it; a restart cannot help."),
    "watchdog_stuck": ("a rank hung inside CUDA or NCCL", "Look at its stack; repeated on one node: suspect its GPU."),
    "killed_unknown": ("killed, and nothing says by whom", "Look for the out-of-memory killer (dmesg), an operator, or the scheduler."),
    "exit_unknown": ("it ended by itself and did not say why", "Read the rank's log; use @record or faulthandler to learn more next time."),
    "leave": ("the node was asked to leave", ""),
}
# fmt: on


def cause(cls: str) -> str:
    """Return what happened, in a few words without a full stop."""
    return _WORDS[cls][0]


def advice(cls: str) -> str:
    """Return what to do next, one sentence or two; '' when there is nothing."""
    return _WORDS[cls][1]
