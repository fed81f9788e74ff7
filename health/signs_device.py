"""Signs written by CUDA, its libraries and the allocator of torch. Data; read by ``signatures``."""

from __future__ import annotations

import re

from .signatures import HARDWARE, SPECIFIC, TYPED, Role, Signature

_R = Role.ROOT
_S = Signature
_HELD = re.compile(r"(Process \d+|this process) has (\d+\.?\d*) ([GM])iB")


def _mostly_others(found: re.Match[str]) -> bool:
    """The allocator lists who holds the memory: true when other processes hold more of it than this one."""
    text = found.string[found.start() : found.start() + 2000]
    held = [(who, float(size) / (1024 if unit == "M" else 1)) for who, size, unit in _HELD.findall(text)]
    own = sum(size for who, size in held if who == "this process")
    return own > 0 and sum(size for _, size in held) > 2 * own


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
       r"(?:CUDA|HIP|XPU) out of memory\. Tried|(?:Error|failure '): ?(?:CUDA|HIP) out of memory|"
       r"C(?:UBLAS|UDNN)_STATUS_ALLOC_FAILED|CUBLAS_STATUS_NOT_INITIALIZED",
       "torch CUDACachingAllocator.cpp, CUDAException.h",
       "RuntimeError: CUDA out of memory. Tried to allocate 2.44 GiB (GPU 3; 79.21 GiB total capacity)",
       "step 1000 loss 1.21 (retrying after CUDA out of memory: micro-batch 8 -> 4)"),
    _S("cuda-oom-driver", "cuda_oom", _R, SPECIFIC,
       r"CUDA error: out of memory|Cuda failure (?:\d+ )?'out of memory'|Failed to CUDA (?:calloc|malloc)",
       "c10 CUDAException.cpp: the driver itself refused; nccl checks.h, alloc.h",
       "RuntimeError: CUDA error: out of memory", "RuntimeError: CUDA out of memory. Tried to allocate 2.44 GiB"),
    _S("cuda-oom-at-start", "cuda_oom_foreign", _R, SPECIFIC + 5,
       r"_cuda_setDevice|_cuda_init\(|, in _lazy_init|cuda\.set_device\(|_cuda_getDeviceCount",
       "torch/cuda/__init__.py: refused before this process held anything",
       '  File "/env/site-packages/torch/cuda/__init__.py", line 476, in _lazy_init',
       '  File "/env/site-packages/torch/nn/modules/linear.py", line 125, in forward', beside="cuda-oom-driver"),
    _S("ecc", "gpu_ecc", _R, HARDWARE,
       r"uncorrectable ECC error|cudaErrorECCUncorrectable",
       "CUDA runtime error 214", "RuntimeError: CUDA error: uncorrectable ECC error encountered",
       "ECC errors: 0 uncorrectable, 3 corrected"),
    _S("gpu-lost", "gpu_lost", _R, HARDWARE,
       r"GPU is lost|fallen off the bus|GPU_IS_LOST|Unable to determine the device handle for [Gg][Pp][Uu]",
       "NVML return code 15; nvidia-smi", "Unable to determine the device handle for GPU 0000:44:00.0: GPU is lost.",
       "nvmlInit: GPU 0 found"),
    _S("nvlink", "gpu_nvlink", _R, HARDWARE,
       r"[Uu]ncorrectable NVLink error|cudaErrorNvlinkUncorrectable|peer GPU memory over nvlink or a hardware error",
       "CUDA runtime errors 220, 721",
       "RuntimeError: CUDA error: uncorrectable NVLink error detected during the execution",
       "NCCL INFO NVLink connected: 12 links"),
    _S("device-assert", "user_device_assert", _R, SPECIFIC + 2,
       r"device-side assert triggered|block: \[\d+,\d+,\d+\], thread: \[\d+,\d+,\d+\] Assertion",
       "CUDA runtime error 710; assert in a kernel",
       "RuntimeError: CUDA error: device-side assert triggered",
       "Compile with `TORCH_USE_CUDA_DSA` to enable device-side assertions."),
    _S("illegal-access", "gpu_app_fault", _R, SPECIFIC,
       r"(?:CUDA error|Cuda failure|an?).{0,20}(?:illegal memory access|misaligned address|illegal instruction)"
       r"(?: was)? ?(?:encountered)?|invalid program counter|unspecified launch failure|Memory access fault by GPU|"
       r"CUBLAS_STATUS_(?:EXECUTION_FAILED|INTERNAL_ERROR|INVALID_VALUE)|CUDNN_STATUS_(?:EXECUTION_FAILED|"
       r"INTERNAL_ERROR|MAPPING_ERROR)",
       "CUDA runtime errors 700, 715, 716, 718, 719; cuBLAS, cuDNN status",
       "RuntimeError: CUDA error: an illegal memory access was encountered",
       "CUDA error checks are on: CUDA_LAUNCH_BLOCKING=1"),
    _S("driver-hang", "gpu_driver_hang", _R, HARDWARE - 5,
       r"the launch timed out and was terminated|waiting for RPC response from GPU", "CUDA runtime error 702; GSP",
       "RuntimeError: CUDA error: the launch timed out and was terminated", "kernel launch took 3 ms"),
    _S("no-gpu", "gpu_unavailable", _R, HARDWARE - 10,
       r"No CUDA GPUs are available|no CUDA-capable device is detected|is/are busy or unavailable|"
       r"(?:CUDA error: |Cuda failure (?:\d+ )?')(?:system not yet initialized|initialization error|unknown error|"
       r"driver shutting down)|"
       r"CUDA driver initialization failed|"
       r"CUDA unknown error|invalid device ordinal|Found no NVIDIA driver|No HIP GPUs are available",
       "CUDA runtime errors 46, 100, 101, 802, 999; torch/cuda/__init__.py", "RuntimeError: No CUDA GPUs are available",
       "CUDA GPUs are available: 8"),
    _S("driver-old", "env_library_mismatch", _R, SPECIFIC,
       r"CUDA driver version is insufficient|NVIDIA driver on your system is too old|no kernel image is available|"
       r"forward compatibility was attempted|provided PTX was compiled with an unsupported toolchain|"
       r"compiled with different CUDA|Torch not compiled with CUDA enabled",
       "CUDA runtime errors 35, 209, 222, 804",
       "RuntimeError: CUDA error: no kernel image is available for execution on the device",
       "CUDA driver version 12.4, runtime version 12.4"),
    _S("cuda-other", "gpu_app_fault", _R, TYPED - 5,
       r"(?:AcceleratorError|RuntimeError): CUDA (?:driver )?error: |ncclUnhandledCudaError|unhandled cuda error",
       "c10 CUDAException.cpp; nccl init.cc", "torch.AcceleratorError: CUDA error: invalid argument",
       "CUDA kernel errors might be asynchronously reported at some other API call"),
)
# fmt: on
