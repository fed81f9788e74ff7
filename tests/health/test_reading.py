"""One rank's end, read: words against status, handled errors, chains, launchers inside the rank."""
# ruff: noqa: E501  messages as they are written upstream

from __future__ import annotations

import pytest

from remuster.health.evidence import ErrorFile, RankExit
from remuster.health.reading import Standing, read
from remuster.health.tail import last_lines

TB = 'Traceback (most recent call last):\n  File "/w/train.py", line 7, in main\n    step()\n'

# What people meet: (text, exit status, class)
MESSAGES = [
    (TB + "RuntimeError: NCCL communicator was aborted on rank 1.", 1, "nccl_remote_error"),
    (TB + "RuntimeError: NCCL error in: ../torch/csrc/ProcessGroupNCCL.cpp:825, unhandled system error, NCCL version 2.7.8\n"
     "ncclSystemError: System call (socket, malloc, munmap, etc) failed.", 1, "nccl_remote_error"),
    (TB + "RuntimeError: NCCL error in: x.cpp:1, unhandled cuda error, NCCL version 2.14.3\nncclUnhandledCudaError: Call to "
     "CUDA function failed.\nLast error:\nCuda failure 'out of memory'", 1, "cuda_oom"),
    (TB + "RuntimeError: [1] is setting up NCCL communicator and retreiving ncclUniqueId from [0] via c10d key-value store by "
     "key '0', but store->get('0') got error: Socket Timeout", 1, "collective_init_timeout"),
    (TB + "RuntimeError: Timed out initializing process group in store based barrier on rank: 0, for key: "
     "store_based_barrier_key:1 (world_size=2, worker_count=1, timeout=0:30:00)", 1, "collective_init_timeout"),
    (TB + "torch.distributed.DistNetworkError: The server socket has failed to listen on any local network address. port: 29500,"
     " useIpv6: 0, code: -98, name: EADDRINUSE, message: address already in use", 1, "port_in_use"),
    ("[rank0]:[E ProcessGroupNCCL.cpp:1182] [Rank 0] NCCL watchdog thread terminated with exception: CUDA error: an illegal "
     "memory access was encountered\nterminate called after throwing an instance of 'c10::Error'", -6, "gpu_app_fault"),
    (TB + "torch.AcceleratorError: CUDA error: uncorrectable ECC error encountered", 1, "gpu_ecc"),
    (TB + "torch.AcceleratorError: CUDA error: device-side assert triggered", 1, "user_device_assert"),
    (TB + "RuntimeError: CUDA error: no kernel image is available for execution on the device", 1, "env_library_mismatch"),
    (TB + "ImportError: /lib/libstdc++.so.6: version `GLIBCXX_3.4.29' not found (required by x.so)", 1, "env_library_mismatch"),
    (TB + "AssertionError: Torch not compiled with CUDA enabled", 1, "env_library_mismatch"),
    (TB + "RuntimeError: CUDA error: invalid device ordinal", 1, "gpu_unavailable"),
    (TB + "RuntimeError: DataLoader worker (pid(s) 123, 124) exited unexpectedly", 1, "dataloader_killed"),
    (TB + "RuntimeError: unable to write to file </torch_77_12_0>: No space left on device (28)", 1, "shm_exhausted"),
    (TB + "RuntimeError: unable to open shared memory object </torch_2_13> in read-write mode: Too many open files (24)", 1,
     "resource_limit"),
    (TB + "OSError: [Errno 122] Disk quota exceeded: '/home/u/ckpt.pt'", 1, "disk_full_or_io"),
    (TB + "OSError: [Errno 28] No space left on device", 1, "disk_full_or_io"),
    (TB + "RuntimeError: PytorchStreamReader failed reading zip archive: failed finding central directory", 1, "ckpt_corrupt"),
    (TB + "_pickle.UnpicklingError: invalid load key, '\\x00'.", 1, "ckpt_corrupt"),
    (TB + "_pickle.UnpicklingError: Weights only load failed. Re-running with weights_only=False", 1, "user_exception"),
    (TB + "safetensors_rust.SafetensorError: Error while deserializing header: HeaderTooLarge", 1, "ckpt_corrupt"),
    (TB + "torch.distributed.checkpoint.api.CheckpointException: CheckpointException ranks:dict_keys([0])\n"
     "Traceback (most recent call last): (RANK 0)\n  File \"/e/site-packages/torch/x.py\", line 1, in f\n"
     "FileNotFoundError: [Errno 2] No such file or directory: '/ckpt/step-100/.metadata'", 1, "ckpt_incomplete"),
    ("Loss is nan, stopping training", 1, "nan_loss"),
    (TB + "RuntimeError: Function 'MulBackward0' returned nan values in its 0th output.", 1, "nan_loss"),
    (TB + "FloatingPointError: gradients are Nan/Inf", 1, "nan_loss"),
    (TB + "Exception: Current loss scale already at minimum - cannot decrease scale anymore. Exiting run.", 1, "nan_loss"),
    ("usage: t.py [-h]\nt.py: error: argument --lr: invalid float value: 'x'", 2, "user_args"),
    (TB + "ValueError: Some specified arguments are not used by the HfArgumentParser: ['--foo']", 1, "user_args"),
    ("/opt/env/bin/python: No module named trainer", 1, "user_import"),
    (TB + "OSError: meta/x does not appear to have a file named config.json.", 1, "user_data_missing"),
    (TB + "OSError: You are trying to access a gated repo.", 1, "user_auth"),
    (TB + "botocore.exceptions.ClientError: An error occurred (403) when calling the HeadObject operation: Forbidden", 1,
     "user_auth"),
    (TB + "botocore.exceptions.ClientError: An error occurred (SlowDown) when calling the PutObject operation", 1,
     "external_service"),
    (TB + "requests.exceptions.ReadTimeout: HTTPSConnectionPool(host='h', port=443): Read timed out.", 1, "external_service"),
    (TB + "OSError: We couldn't connect to 'https://hub.example' to load this file", 1, "external_service"),
    (TB + "socket.gaierror: [Errno -2] Name or service not known", 1, "dns_failure"),
    (TB + "ConnectionResetError: [Errno 104] Connection reset by peer", 1, "peer_lost"),
    (TB + "MemoryError", 1, "host_oom"),
    (TB + "RuntimeError: [enforce fail at alloc_cpu.cpp:75] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to "
     "allocate 800 bytes. Error code 12 (Cannot allocate memory)", 1, "host_oom"),
    ("slurmstepd: error: Detected 1 oom_kill event in StepId=1.0. Some of the step tasks have been OOM Killed.", 137, "host_oom"),
    (TB + "RuntimeError: Ranks 1 failed to pass monitoredBarrier in 10000 ms", 1, "collective_timeout"),
    (TB + "RuntimeError: shape '[2, 3]' is invalid for input of size 7", 1, "user_shape"),
    (TB + "RuntimeError: Error(s) in loading state_dict for Net:\n\tsize mismatch for fc.weight", 1, "user_shape"),
    (TB + "RuntimeError: Caught ValueError in DataLoader worker process 0.\nOriginal Traceback (most recent call last):\n"
     "  File \"d.py\", line 2, in __getitem__\nValueError: bad row", 1, "user_data_error"),
    (TB + "PIL.UnidentifiedImageError: cannot identify image file", 1, "user_data_error"),
    (TB + "NotImplementedError: later", 1, "user_exception"),
    (TB + "mylib.errors.Boom: a type that no list knows", 1, "user_exception"),
    (TB + "queue.Empty", 1, "user_exception"),
    ("double free or corruption (!prev)", -6, "segfault"),
    ("Fatal Python error: Aborted", -6, "exit_unknown"),
    # boxes and colours of rich
    ("╭───── Traceback (most recent call last) ─────╮\n│ /w/t.py:4 in main │\n╰────╯\n\x1b[1;91mKeyError: \x1b[0m\x1b[32m'label'", 1,
     "user_data_error"),
]  # fmt: skip

# No words: (exit status, class). B29's list, and signals.
STATUSES = [
    (1, "exit_unknown"), (2, "user_args"), (3, "exit_unknown"), (124, "rank_hang"), (126, "user_args"), (127, "user_args"),
    (134, "exit_unknown"), (137, "killed_unknown"), (139, "segfault"), (143, "killed_unknown"), (247, "killed_unknown"),
    (255, "exit_unknown"), (75, "exit_unknown"), (-2, "user_interrupt"), (-4, "segfault"), (-6, "exit_unknown"),
    (-7, "segfault"), (-8, "user_exception"), (-9, "killed_unknown"), (-10, "preempted"), (-11, "segfault"),
    (-15, "killed_unknown"), (-64, "exit_unknown"), (0, "success"),
]  # fmt: skip


def end(text: str, status: int, *, stopping: bool = False, error: ErrorFile | None = None) -> RankExit:
    return RankExit(3, 1, 77, status, 5.0, stopping, error, last_lines(text.encode()))


@pytest.mark.parametrize(("text", "status", "cls"), MESSAGES, ids=[m[0].strip().split("\n")[-1][:60] for m in MESSAGES])
def test_messages(text: str, status: int, cls: str) -> None:
    assert read("a", end(text, status)).cls == cls


@pytest.mark.parametrize(("status", "cls"), STATUSES)
def test_a_status_without_words(status: int, cls: str) -> None:
    assert read("a", end("", status)).cls == cls


@pytest.mark.parametrize("status", [1, -6, 134, -11, -15, 7])
def test_a_traceback_beats_the_status(status: int) -> None:
    """m1, B27: an exception ends in SIGABRT at teardown."""
    text = TB + "ValueError: boom\nterminate called without an active exception"
    reading = read("a", end(text, status))
    assert (reading.cls, reading.exception, reading.frame) == ("user_exception", "ValueError", "train.py:main")


@pytest.mark.parametrize("status", [-9, -11, -7])
def test_a_cry_or_a_wait_does_not_explain_a_kill(status: int) -> None:
    cry = TB + "RuntimeError: [gloo/transport/tcp/pair.cc:537] Connection closed by peer [10.0.0.1]:39001"
    assert read("a", end(cry, status)).standing is Standing.CRASHED
    assert read("a", end(cry, 1)).standing is Standing.CRIED


def test_what_training_went_on_after_was_handled() -> None:
    oom = TB + "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB."
    went_on = oom + "\nstep 101 loss 2.0\nstep 102 loss 1.9\n" + TB + "ZeroDivisionError: division by zero"
    assert read("a", end(went_on, 1)).cls == "user_exception"
    assert read("a", end(oom + "\nEpoch 3:  13%|#| 62/500", 1)).cls == "cuda_oom"


def test_python_says_when_it_ignored_an_exception() -> None:
    text = (
        TB + "ValueError: x\nException ignored in: <function f>\n" + TB + "TypeError: 'NoneType' object is not callable"
    )
    assert read("a", end(text, 1)).exception == "ValueError"


def test_dcp_says_that_it_looks_for_a_ranks_own_metadata_and_goes_on() -> None:
    """It does at each re-entry from what was saved with use_collectives=False; a kill long after is no lack of it."""
    lacks = "[Errno 2] No such file or directory: '/c/step-10/.metadata'"
    said = f"Global metadata is not found. Falling back to rank local metadata.\n{TB}FileNotFoundError: {lacks}\n"
    assert read("a", end(said, -9)).cls == "killed_unknown"
    assert read("a", end(f"{said}{TB}ValueError: boom", 1)).cls == "user_exception"
    neither = (
        f"AssertionError: metadata is None; global metadata read failed: {lacks}; rank local metadata read failed: x"
    )
    assert read("a", end(f"{said}{TB}{neither}", 1)).cls == "ckpt_incomplete"


def test_a_cry_after_an_own_exception_is_teardown_and_before_it_is_the_cause() -> None:
    own, cry = TB + "ValueError: boom", TB + "torch.distributed.DistNetworkError: Failed to recv, got 0 bytes."
    assert read("a", end(own + "\n" + cry, 1)).cls == "user_exception"
    assert read("a", end(cry + "\nThe above exception was the direct cause of:\n" + own, 1)).cls == "store_lost"


def test_an_explicit_error_beats_a_timeout_of_the_same_rank() -> None:
    late = "[Rank 2] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=9, OpType=ALLREDUCE)"
    text = TB + "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 7 GiB.\n" + late
    assert read("a", end(text, -6)).cls == "cuda_oom"


WAITED = (
    "[Rank 2] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=9, OpType=ALLREDUCE, Timeout(ms)=600000)"
)
ENDED = "[Rank 2] Some NCCL operations have failed or timed out. To avoid data inconsistency, we are taking the entire process down."
BOOM = TB + "ValueError: batch of 0 rows"
CHAIN = "\nDuring handling of the above exception, another exception occurred:\n"
TOLD = (
    TB
    + "torch.distributed.DistBackendError: NCCL watchdog of rank 2: Timeout at NCCL work: 9, last enqueued NCCL work: 9"
)
GLOO = (
    TB
    + "RuntimeError: [gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting 8000ms for recv operation to complete"
)


def raised_at(source: str, error: str) -> str:
    return TB.replace("step()", source) + error


@pytest.mark.parametrize(
    ("text", "cls"),
    [
        pytest.param(f"{BOOM}\n{WAITED}\n{ENDED}", "user_exception", id="before"),
        pytest.param(f"{BOOM}{CHAIN}{GLOO}", "user_exception", id="before, and its clean-up waited"),
        pytest.param(f"{WAITED}\n{BOOM}", "user_exception", id="after: printed late, or of its own"),
        pytest.param(f"{WAITED}\n{ENDED}\n{BOOM}\nterminate called", "user_exception", id="after, and then aborted"),
        pytest.param(f"{BOOM}\nstep 8 loss 1\nstep 9 loss 1\n{WAITED}", "collective_timeout", id="handled long before"),
        pytest.param(f"{WAITED}\n{ENDED}", "collective_timeout", id="none"),
        pytest.param(f"{WAITED}\n{TOLD}", "collective_timeout", id="it tells of the wait"),
        pytest.param(f"{WAITED}\n{TB}RuntimeError: NCCL collective failed", "collective_timeout", id="it speaks of it"),
        pytest.param(
            WAITED + "\n" + raised_at("dist.all_reduce(x)", "ValueError: x"), "collective_timeout", id="in a collective"
        ),
        pytest.param(
            WAITED + "\n" + raised_at("torch.cuda.synchronize()", "RuntimeError: x"),
            "collective_timeout",
            id="in a wait",
        ),
        pytest.param(f"{GLOO}{CHAIN}{BOOM}", "collective_timeout", id="a wait that was handled badly"),
        pytest.param(f"{TB}KeyError: 'x'{CHAIN}{GLOO}", "collective_timeout", id="looked up in vain"),
        pytest.param(f"{TB}queue.Empty{CHAIN}{GLOO}", "collective_timeout", id="an empty queue"),
        pytest.param(f"Exception ignored in: <f>\n{BOOM}\n{WAITED}", "collective_timeout", id="ignored"),
        pytest.param(
            f"{BOOM}\n[Rank 2] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1, OpType=ALLREDUCE)",
            "user_exception",
            id="before the first collective",
        ),
    ],
)
def test_an_exception_of_a_ranks_own_beats_its_wait_and_what_tells_of_it_does_not(text: str, cls: str) -> None:
    assert read("a", end(text, 1)).cls == cls


@pytest.mark.parametrize(
    ("text", "cls"),
    [
        ("torch...api:failed (exitcode: -9) local_rank: 1 (pid: 3) of binary: python", "killed_unknown"),
        ("  exitcode  : -11 (pid: 77)", "segfault"),
        ("[launch.py:321:sigkill_handler] ['python', 't.py'] exits with return code = -9", "killed_unknown"),
        (
            TB + "torch.multiprocessing.spawn.ProcessExitedException: process 0 terminated with signal SIGSEGV",
            "segfault",
        ),
        (TB + "subprocess.CalledProcessError: Command '['x']' died with <Signals.SIGKILL: 9>.", "killed_unknown"),
    ],
)
def test_a_launcher_inside_the_rank_tells_the_real_status(text: str, cls: str) -> None:
    assert read("a", end(text, 1)).cls == cls


def test_while_stopping_only_own_causes_count() -> None:
    assert read("a", end("", -15, stopping=True)).standing is Standing.INNOCENT
    assert read("a", end(TB + "KeyboardInterrupt", 1, stopping=True)).standing is Standing.INNOCENT
    assert read("a", end(TB + "BrokenPipeError: [Errno 32]", 1, stopping=True)).standing is Standing.INNOCENT
    assert read("a", end(TB + "ValueError: x", 1, stopping=True)).standing is Standing.DISTURBED
    oom = TB + "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 7 GiB."
    assert read("a", end(oom, -15, stopping=True)).standing is Standing.EXPLICIT


def test_memory_of_others_on_the_gpu() -> None:
    head = (
        TB
        + "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.15 GiB of "
    )
    theirs = "which 1 GiB is free. Process 9 has 70.00 GiB memory in use. Including non-PyTorch memory, this process has 7.00 GiB"
    ours = "which 1 GiB is free. Process 9 has 512.00 MiB memory in use. Including non-PyTorch memory, this process has 77.0 GiB"
    assert read("a", end(head + theirs, 1)).cls == "cuda_oom_foreign"
    assert read("a", end(head + ours, 1)).cls == "cuda_oom"


def test_an_error_file_speaks_for_a_silent_log() -> None:
    error = ErrorFile("FileNotFoundError: [Errno 2] No such file or directory: '/d/x'", TB + "FileNotFoundError: [Errno 2] No "
                      "such file or directory: '/d/x'")  # fmt: skip
    reading = read("a", end("", 1, error=error))
    assert (reading.cls, reading.frame) == ("user_data_missing", "train.py:main")
    assert read("a", end("", 1, error=ErrorFile("ValueError: plain form"))).cls == "user_exception"
    assert read("a", end("", -9, error=ErrorFile("error file /x: not JSON"))).cls == "killed_unknown"
