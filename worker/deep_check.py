"""Tests a node's memory, GPUs and the links between them: ``deep_check.py [cuda|cpu] [SECONDS]``.

A program, executed by its path in the ranks' interpreter, where torch is; standard library and torch only. Asked of a
node that a verdict blames, and by ``remuster check --deep``. Says on stderr, which is read as it comes, a line of JSON
before each test (``{"begin": …}``), for a test of a broken GPU may never end, and one after it with ``check``,
``what``, ``state`` (ok, bad, unknown) and ``text``. Whoever started it ends it when it takes too long.
"""

from __future__ import annotations

import importlib
import json
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

SHARE = 0.8  # of the memory that is free: what a driver needs for itself stays
BLOCK = 128 << 20  # bytes that are tested at once
PATTERNS = (0x55, 0xAA, 0x00, 0xFF)  # each bit both ways, and its neighbours against it
HOST_BYTES = 1 << 28  # a look in passing: modules are tested by the machine's own firmware
SIDE, REPEATS = 1024, 24  # of a matrix; the same product again and again is the same, bit by bit
LINK_BYTES = 64 << 20
# CUDA errors that say nothing against the device: it is in use, or this torch was not built for it.
UNFIT = ("out of memory", "no kernel image", "invalid device function", "driver version", "not supported", "busy")


def main(argv: list[str]) -> int:
    """Run all tests that this machine allows."""
    wanted = argv[0] if argv else "cuda"
    seconds = float(argv[1]) if len(argv) > 1 else 20.0
    try:
        torch: Any = importlib.import_module("torch")
    except ImportError as error:
        tell("deep", "torch", "unknown", f"there is none in the ranks' interpreter: {error}")
        return 0
    devices = [f"cuda:{i}" for i in range(torch.cuda.device_count())] if wanted == "cuda" else []
    if wanted == "cuda" and not devices:
        tell("deep", "GPUs", "unknown", "torch sees none")
        return 0
    for device in (*devices, "cpu"):
        free = torch.cuda.mem_get_info(device)[0] if device != "cpu" else HOST_BYTES / SHARE
        until = time.monotonic() + seconds / (len(devices) + 1)
        attempt("memory", device, partial(memory, torch, device, int(free * SHARE), until))
        attempt("arithmetic", device, partial(arithmetic, torch, device))
    for source in devices:
        for target in devices:
            if source != target:
                attempt("link", f"{source} to {target}", partial(link, torch, source, target))
    if len(devices) > 1:
        attempt("collective", "all GPUs", partial(collective, torch, devices))
    return 0


def attempt(check: str, what: str, test: Callable[[], tuple[str, str]]) -> None:
    """Run one test. A device that fails in it is bad; what else goes wrong is unknown: it may be ours, or torch's."""
    say(begin=f"{check} of {what}")
    try:
        state, text = test()
    except Exception as error:
        words = str(error).strip().split("\n")[0][:300]
        failed = isinstance(error, RuntimeError) and "CUDA error" in words and not any(fit in words for fit in UNFIT)
        state, text = "bad" if failed else "unknown", f"{type(error).__name__}: {words}"
    tell(check, what, state, text)


def tell(check: str, what: str, state: str, text: str) -> None:
    """Say what a test has found."""
    say(check=check, what=what, state=state, text=text)


def say(**words: str) -> None:
    print(json.dumps(words), file=sys.stderr, flush=True)


def memory(torch: Any, device: str, size: int, until: float) -> tuple[str, str]:
    """Fill memory with patterns and read it back, all of it at once so that no block is tested twice."""
    held: list[Any] = []
    for count in _blocks(size):
        try:
            held.append(torch.empty(count, dtype=torch.uint8, device=device))
        except RuntimeError:  # more fragmented than it said
            break
    tested = 0
    for pattern in PATTERNS:
        for block in held:
            block.fill_(pattern)
        for number, block in enumerate(held):
            wrong = int((block != pattern).sum().item())
            if wrong:
                return "bad", f"{wrong} of {block.numel()} bytes of block {number} changed from {pattern:#04x}"
        tested += 1
        if time.monotonic() > until:
            break
    total = sum(block.numel() for block in held)
    return "ok", f"{total / (1 << 30):.1f} GiB hold {tested} of {len(PATTERNS)} patterns"


def _blocks(size: int) -> Iterator[int]:
    while size > 0:
        yield min(size, BLOCK)
        size -= BLOCK


def arithmetic(torch: Any, device: str) -> tuple[str, str]:
    """Compute the same product many times: a healthy device gives the same bits each time."""
    generator = torch.Generator(device="cpu").manual_seed(7)
    left, right = (torch.randn(SIDE, SIDE, generator=generator).to(device) for _ in range(2))
    first = left @ right
    for repeat in range(REPEATS):
        again = left @ right
        if not bool(torch.equal(first, again)):
            return "bad", f"the same product of matrices differs the {repeat + 2}nd time"
    return "ok", f"{REPEATS + 1} products are the same, bit by bit"


def link(torch: Any, source: str, target: str) -> tuple[str, str]:
    """Copy between two devices and back."""
    there = torch.arange(LINK_BYTES // 8, dtype=torch.int64, device=source)
    back = there.to(target).to(source)
    wrong = int((back != there).sum().item())
    return ("bad", f"{wrong} words came back changed") if wrong else ("ok", f"{LINK_BYTES >> 20} MiB came back whole")


def collective(torch: Any, devices: list[str]) -> tuple[str, str]:
    """Add over all GPUs of the node by NCCL, in this one process."""
    nccl: Any = importlib.import_module("torch.cuda.nccl")
    tensors = [torch.full((1 << 20,), float(i + 1), device=device) for i, device in enumerate(devices)]
    if not nccl.is_available(tensors):
        return "unknown", "torch has no NCCL"
    nccl.all_reduce(tensors)
    for device in devices:
        torch.cuda.synchronize(device)
    expected = float(sum(range(1, len(devices) + 1)))
    wrong = [device for device, tensor in zip(devices, tensors, strict=True) if not bool((tensor == expected).all())]
    return ("bad", f"the sum is wrong on {', '.join(wrong)}") if wrong else ("ok", "the sum is right on every GPU")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
