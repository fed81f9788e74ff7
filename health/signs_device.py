"""Signs written by CUDA, its libraries and the allocator of torch. Data; read by ``signatures``."""

from __future__ import annotations

import re

from .signatures import GENERIC, HARDWARE, SPECIFIC, TYPED, Role, Signature

_R = Role.ROOT
_S = Signature
_SIZE = r"(\d+\.?\d*) (bytes|[KMGT]iB)"
_OTHER = re.compile(r"Process \d+ has " + _SIZE)
_OWN = re.compile(r"this process has " + _SIZE)
_TORCH = re.compile(_SIZE + r" (?:is allocated by PyTorch|is reserved by PyTorch|reserved in total by PyTorch)")
_TOTAL = re.compile(r"total capacity of " + _SIZE + "|" + _SIZE + r" total capacity")
_FREE = re.compile(r"of which " + _SIZE + " is free|" + _SIZE + r" free")
_GIB = {"bytes": 1 / (1 << 30), "KiB": 1 / (1 << 20), "MiB": 1 / (1 << 10), "GiB": 1.0, "TiB": 1024.0}
_CONTEXT_GIB = 4.0  # more than a context, a communicator's buffers and a library's workspaces together


def _mostly_others(found: re.Match[str]) -> bool:
    """Whether other processes hold more than twice the memory of this one, from whatever the allocator told.

    It lists processes where NVML answers. In a container this one stands among the others, under the host's number;
    then, and where nothing is listed, what torch allocated stands for what is its own.
    """
    text = found.string[found.start() : found.start() + 2000]
    own, torch, others = _sum(_OWN, text), _sum(_TORCH, text), _sum(_OTHER, text)
    if own:
        return others > 2 * own
    if not _TORCH.search(text):
        return False
    used = others or (_sum(_TOTAL, text) - _sum(_FREE, text) if _FREE.search(text) else 0.0)
    return used - torch > max(2 * torch, _CONTEXT_GIB)


def _sum(pattern: re.Pattern[str], text: str) -> float:
    """Return the GiB of all sizes that the pattern finds."""
    told = [[word for word in found.groups() if word] for found in pattern.finditer(text)]
    return sum(float(size) * _GIB[unit] for size, unit in told)


# fmt: off
TABLE: tuple[Signature, ...] = (
    _S("cuda-oom-foreign", "cuda_oom_foreign", _R, SPECIFIC + 5,
       r"(?:CUDA|HIP) out of memory\. Tried to allocate", "torch CUDACachingAllocator.cpp",
       "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB. GPU 0 has a total capacity of 79 GiB of "
       "which "
       "1 GiB is free. Process 77 has 70.10 GiB memory in use. Including non-PyTorch memory, this process has 7.00 GiB "
       "memory in use.",
       "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB. GPU 0 has a total capacity of 79 GiB of "
       "which "
       "1 GiB is free. Including non-PyTorch memory, this process has 77.00 GiB memory in use.", check=_mostly_others),
    _S("cuda-oom", "cuda_oom", _R, SPECIFIC,
       r"(?:CUDA|HIP|XPU|NPU) out of memory\. Tried|(?:Error|failure '): ?(?:CUDA|HIP) out of memory|"
       r"CU(?:BLAS|DNN|SOLVER|SPARSE)_STATUS_ALLOC_FAILED|CU(?:BLAS|DNN)_STATUS_NOT_INITIALIZED|CUFFT_ALLOC_FAILED|"
       r"OutOfMemoryError: Allocation on device|RESOURCE_EXHAUSTED: (?:Out of memory|Failed to allocate)|"
       r"OOM when allocating tensor|OutOfMemoryError: Out of memory allocating|"
       r"(?:cuBLAS Error|INTERNAL): the (?:library was not initialized|resource allocation failed)|"
       r"No available memory for the cache blocks|Ran out of memory in memory space hbm|"
       r"OutOfMemoryError: (?:CUDA|HIP|XPU|NPU) out|increase --mem-fraction-static",
       "torch CUDACachingAllocator.cpp, CUDAException.h; XLA, tensorflow, cupy; cublasGetStatusString; vllm, sglang",
       "RuntimeError: CUDA out of memory. Tried to allocate 2.44 GiB (GPU 3; 79.21 GiB total capacity)",
       "step 1000 loss 1.21 (retrying after CUDA out of memory: micro-batch 8 -> 4)"),
    _S("cuda-oom-exhausted", "cuda_oom", _R, SPECIFIC,
       r"ResourceExhaustedError\b", "tensorflow errors_impl.py, paddle",
       "tensorflow.python.framework.errors_impl.ResourceExhaustedError: Graph execution error:",
       "RuntimeError: the iterator is exhausted", raised=True),
    _S("cuda-oom-driver", "cuda_oom", _R, SPECIFIC,
       r"(?:CUDA|HIP) (?:driver )?error: out of memory|bad_alloc: (?:cudaError|out_of_memory: CUDA)|"
       r"Cuda failure (?:\d+ )?'out of memory'|Failed to CUDA (?:calloc|malloc)|"
       r"CUDA_ERROR_OUT_OF_MEMORY|Error 2: out of memory",
       "c10 CUDAException.cpp: the driver itself refused; nccl checks.h, alloc.h",
       "RuntimeError: CUDA error: out of memory", "RuntimeError: CUDA out of memory. Tried to allocate 2.44 GiB"),
    _S("cuda-oom-context", "cuda_oom_foreign", _R, SPECIFIC + 5,
       r"(?:create|retain|primary).{0,40}[Cc]ontext.{0,80}CUDA_ERROR_OUT_OF_MEMORY|"
       r"cu(?:CtxCreate|DevicePrimaryCtxRetain)\w{0,4}.{0,60}(?:out of memory|OUT_OF_MEMORY)",
       "XLA cuda_executor.cc, cuda_context.cc; CUDA driver API: no room even for a context",
       "failed to create context: CUDA_ERROR_OUT_OF_MEMORY: out of memory",
       "failed to allocate 2.0GiB from device: CUDA_ERROR_OUT_OF_MEMORY: out of memory"),
    _S("cuda-oom-at-start", "cuda_oom_foreign", _R, SPECIFIC + 5,
       r"_cuda_setDevice|_cuda_init\(|, in _lazy_init|cuda\.set_device\(|_cuda_getDeviceCount",
       "torch/cuda/__init__.py: refused before this process held anything",
       '  File "/env/site-packages/torch/cuda/__init__.py", line 476, in _lazy_init',
       '  File "/env/site-packages/torch/nn/modules/linear.py", line 125, in forward', beside="cuda-oom-driver"),
    _S("cuda-oom-share", "cuda_oom_foreign", _R, SPECIFIC + 5,
       r"Free memory on device .{0,80}on startup is less than desired GPU memory utilization",
       "vllm gpu_worker.py: others hold it before this process has begun",
       "ValueError: Free memory on device (3.22/79.1 GiB) on startup is less than desired GPU memory utilization (0.9)",
       "Free memory on device cuda:0: 71.2 GiB, GPU memory utilization 0.9"),
    _S("ecc", "gpu_ecc", _R, HARDWARE,
       r"uncorrectable ECC error|cudaErrorECCUncorrectable|CUDA_ERROR_ECC_UNCORRECTABLE|"
       r" [1-9]\d* uncorrectable hardware errors detected in",
       "CUDA runtime error 214; amdgpu_ras.c", "RuntimeError: CUDA error: uncorrectable ECC error encountered",
       "ECC errors: 0 uncorrectable, 3 corrected"),
    _S("gpu-lost", "gpu_lost", _R, HARDWARE,
       r"GPU is lost|fallen off the bus|GPU_IS_LOST|Unable to determine the device handle for [Gg][Pp][Uu]",
       "NVML return code 15; nvidia-smi", "Unable to determine the device handle for GPU 0000:44:00.0: GPU is lost.",
       "nvmlInit: GPU 0 found"),
    _S("nvlink", "gpu_nvlink", _R, HARDWARE,
       r"[Uu]ncorrectable NVLink error|cudaErrorNvlinkUncorrectable|CUDA_ERROR_NVLINK_UNCORRECTABLE|"
       r"peer GPU memory over nvlink or a hardware error|Failed to bind NVLink SHARP",
       "CUDA runtime errors 220, 721; nccl transport/nvls.cc (fabric manager)",
       "RuntimeError: CUDA error: uncorrectable NVLink error detected during the execution",
       "NCCL INFO NVLink connected: 12 links"),
    _S("device-assert", "user_device_assert", _R, SPECIFIC + 2,
       r"device-side assert triggered|CUDA_ERROR_ASSERT|Device-side assert(?:ion)? .{0,300}(?:failed|triggered)|"
       r"block: \[\d+, ?\d+, ?\d+\], thread: \[\d+, ?\d+, ?\d+\] Assertion",
       "CUDA runtime error 710; assert in a kernel",
       "RuntimeError: CUDA error: device-side assert triggered",
       "Compile with `TORCH_USE_CUDA_DSA` to enable device-side assertions."),
    _S("illegal-access", "gpu_app_fault", _R, SPECIFIC,
       r"(?:CUDA error|Cuda failure|an?).{0,20}(?:illegal memory access|misaligned address|illegal instruction)"
       r"(?: was)? ?(?:encountered)?|invalid program counter|unspecified launch failure|Memory access fault by GPU|"
       r"CU(?:BLAS|DNN|SOLVER|SPARSE)_STATUS_(?:EXECUTION_FAILED|INTERNAL_ERROR|INVALID_VALUE|MAPPING_ERROR)|"
       r"CUFFT_(?:EXEC_FAILED|INTERNAL_ERROR)|Triton Error \[(?:CUDA|HIP)\]: (?:an illegal|misaligned|unspecified)|"
       r"CUDA_ERROR_(?:ILLEGAL_ADDRESS|ILLEGAL_INSTRUCTION|MISALIGNED_ADDRESS|INVALID_PC|LAUNCH_FAILED)|"
       r"HSA_STATUS_ERROR_(?:EXCEPTION|MEMORY_FAULT|ILLEGAL_INSTRUCTION)|"
       r"the function failed to launch on the GPU|an access to GPU memory space failed",
       "CUDA runtime errors 700, 715, 716, 718, 719; cuBLAS (cublasGetStatusString too), cuDNN, cuFFT; triton, XLA, "
       "ROCm",
       "RuntimeError: CUDA error: an illegal memory access was encountered",
       "CUDA error checks are on: CUDA_LAUNCH_BLOCKING=1"),
    _S("driver-hang", "gpu_driver_hang", _R, HARDWARE - 5,
       r"the launch timed out and was terminated|waiting for RPC response from GPU|CUDA_ERROR_LAUNCH_TIMEOUT",
       "CUDA runtime error 702; GSP",
       "RuntimeError: CUDA error: the launch timed out and was terminated", "kernel launch took 3 ms"),
    _S("no-gpu", "gpu_unavailable", _R, HARDWARE - 10,
       r"No CUDA GPUs are\b|no CUDA-capable device is detected|are busy or unavailable|"
       r"(?:CUDA error: |Cuda failure (?:\d+ )?'|Error \d{1,4}: )(?:system not yet initialized|initialization error|"
       r"unknown error|"
       r"driver shutting down)|"
       r"CUDA driver initialization failed|"
       r"CUDA unknown error|invalid device ordinal|Found no NVIDIA driver|No HIP GPUs are available|"
       r"Error \d{1,4}: OS call failed|CUDA_ERROR_(?:NO_DEVICE|SYSTEM_NOT_READY|NOT_INITIALIZED|DEVICE_UNAVAILABLE)|"
       r"Failed to initialize NVML: (?:Unknown Error|Driver Not Loaded)|"
       r"nvidia-container-cli: (?:initialization|device) error|is only supported with GPUs, no GPUs found|"
       r"couldn't communicate with the NVIDIA driver|could not select device driver .{0,20}with capabilities: \[\[gpu|"
       r"You requested gpu: |No supported gpu backend found|^No devices were found$|"
       r"MPS client failed to connect|MPS server is not ready|devices unavailable for \S{1,40}/gpu|"
       r"no healthy devices present|"
       r"Unable to initialize backend '(?:cuda|rocm|tpu)'|TPU initialization failed: |"
       r"deserialize object on (?:a CUDA device but torch|CUDA device \d+ but torch)",
       "CUDA runtime errors 46, 100, 101, 802, 805, 999; torch cuda/__init__.py; nvidia-smi, lightning, jax; kubelet "
       "devicemanager",
       "RuntimeError: No CUDA GPUs are available",
       "CUDA GPUs are available: 8"),
    _S("device-count", "gpu_unavailable", _R, TYPED,
       r"Unexpected error from cudaGetDeviceCount\(\)",
       "torch c10/cuda/CUDAFunctions.cpp device_count: its reason may be cut off",
       "RuntimeError: Unexpected error from cudaGetDeviceCount(). Did you run some cuda functions before calling Num",
       "cudaGetDeviceCount() returned 8"),
    _S("driver-old", "env_library_mismatch", _R, SPECIFIC,
       r"CUDA driver version is insufficient|driver on your system is too old|no kernel image is available|"
       r"kernel image is invalid|"
       r"forward compatibility was attempted|provided PTX was compiled with an unsupported toolchain|"
       r"compiled with different CUDA|Torch not compiled with CUDA enabled|unsupported display driver|"
       r"is not compatible with the current PyTorch installation|CUDA_ERROR_(?:NO_BINARY_FOR_GPU|UNSUPPORTED_PTX)|"
       r"cuDNN version incompatibility|"
       r"CU(?:DNN|BLAS)_STATUS_(?:SUBLIBRARY_)?VERSION_MISMATCH|"
       r"mismatches the version that was used to compile",
       "CUDA runtime errors 35, 200, 209, 222, 804; torch backends/cudnn, cpp_extension.py",
       "RuntimeError: CUDA error: no kernel image is available for execution on the device",
       "CUDA driver version 12.4, runtime version 12.4"),
    _S("cudnn-loaded", "env_library_mismatch", _R, GENERIC + 5,
       r"Loaded runtime CuDNN library: .{0,80}but source was compiled with",
       "XLA cuda_dnn.cc, tensorflow: an error only for what uses it, so any typed exception says more",
       "Loaded runtime CuDNN library: 9.1.0 but source was compiled with: 9.8.0.", "Loaded cuDNN version 90100"),
    _S("nvml-version", "env_library_mismatch", _R, GENERIC - 3, r"[Dd]river/library version mismatch",
       "nvml.h NVML_ERROR_LIB_RM_VERSION_MISMATCH: a monitor does without, CUDA itself says more",
       "Failed to initialize NVML: Driver/library version mismatch", "NVML library version: 550.54"),
    _S("cuda-other", "gpu_app_fault", _R, TYPED - 5,
       r"(?:AcceleratorError|RuntimeError): CUDA (?:driver )?error: |ncclUnhandledCudaError|unhandled cuda error",
       "c10 CUDAException.cpp; nccl init.cc", "torch.AcceleratorError: CUDA error: invalid argument",
       "CUDA kernel errors might be asynchronously reported at some other API call"),
)
# fmt: on
