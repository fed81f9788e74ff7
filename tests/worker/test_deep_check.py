"""The deep check: what a test that raises says of its device, and the tests themselves on a processor with torch."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from remuster.worker import deep_check


def raises(error: Exception) -> Callable[[], tuple[str, str]]:
    def test() -> tuple[str, str]:
        raise error

    return test


@pytest.mark.parametrize(
    ("error", "state"),
    [
        (RuntimeError("CUDA error: uncorrectable ECC error encountered\nCUDA kernel errors"), "bad"),
        (RuntimeError("CUDA error: an illegal memory access was encountered"), "bad"),
        (RuntimeError("CUDA out of memory. Tried to allocate 2 GiB"), "unknown"),
        (RuntimeError("CUDA error: out of memory"), "unknown"),
        (RuntimeError("CUDA error: no kernel image is available for execution on the device"), "unknown"),
        (RuntimeError("CUDA error: CUDA-capable device(s) is/are busy or unavailable"), "unknown"),
        (AttributeError("module 'torch.cuda' has no attribute 'nccl'"), "unknown"),  # nothing against the device
        (AssertionError("a defect of ours"), "unknown"),
    ],
)
def test_only_a_device_that_fails_is_bad(error: Exception, state: str, capfd: pytest.CaptureFixture[str]) -> None:
    deep_check.attempt("memory", "cuda:3", raises(error))
    begun, told = (json.loads(line) for line in capfd.readouterr().err.splitlines())
    assert begun == {"begin": "memory of cuda:3"}
    assert (told["check"], told["what"], told["state"]) == ("memory", "cuda:3", state)


@pytest.fixture
def torch() -> Any:
    return pytest.importorskip("torch", reason="needs torch")


def test_memory_that_holds_and_memory_that_does_not(torch: Any) -> None:
    state, text = deep_check.memory(torch, "cpu", 1 << 20, 1e12)
    assert (state, text) == ("ok", "0.0 GiB hold 4 of 4 patterns")

    class Forgetful:
        """A torch whose memory loses one byte of each block."""

        uint8 = torch.uint8

        def empty(self, *args: Any, **kwargs: Any) -> Any:
            block = torch.empty(*args, **kwargs)
            fill = block.fill_
            block.fill_ = lambda value: fill(value)[:1].bitwise_not_()
            return block

    state, text = deep_check.memory(Forgetful(), "cpu", 1 << 20, 1e12)
    assert (state, text) == ("bad", "1 of 1048576 bytes of block 0 changed from 0x55")


def test_arithmetic_and_links_on_a_processor(torch: Any) -> None:
    assert deep_check.arithmetic(torch, "cpu")[0] == "ok"
    assert deep_check.link(torch, "cpu", "cpu") == ("ok", "64 MiB came back whole")
