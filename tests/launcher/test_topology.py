"""Where the CPUs and GPUs are, read from trees like the kernel's, and from this machine's own."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from remuster.launcher.binding import CannotBindError, Cpu
from remuster.launcher.topology import gpu_nodes, read_cpus


def put(root: Path, name: str, text: str) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{text}\n")


@pytest.fixture
def sys(tmp_path: Path) -> Path:
    """Two nodes on one socket: CPUs 0 and 2 are a core of node 0, 1 and 3 of node 1; all share one last cache."""
    for n in range(4):
        cpu = f"devices/system/cpu/cpu{n}"
        put(tmp_path, f"{cpu}/topology/physical_package_id", "0")
        put(tmp_path, f"{cpu}/topology/thread_siblings_list", f"{n % 2},{n % 2 + 2}")
        for index, (level, kind, shared) in enumerate(
            ((1, "Data", f"{n % 2},{n % 2 + 2}"), (1, "Instruction", f"{n}"), (3, "Unified", "0-3"))
        ):
            cache = f"{cpu}/cache/index{index}"
            put(tmp_path, f"{cache}/level", str(level))
            put(tmp_path, f"{cache}/type", kind)
            put(tmp_path, f"{cache}/shared_cpu_list", shared)
    put(tmp_path, "devices/system/node/node0/cpulist", "0,2")
    put(tmp_path, "devices/system/node/node1/cpulist", "1,3")
    put(tmp_path, "bus/pci/devices/0000:3b:00.0/numa_node", "1")
    put(tmp_path, "bus/pci/devices/0000:86:00.0/numa_node", "-1")
    return tmp_path


def test_cpus(sys: Path) -> None:
    assert read_cpus({3, 0}, sys) == {0: Cpu(0, 0, 0, 0), 3: Cpu(1, 0, 1, 0)}


def test_the_cache_of_instructions_counts_for_nothing(sys: Path) -> None:
    for path in sys.glob("devices/system/cpu/*/cache/index2/*"):
        path.unlink()
        if not any(path.parent.iterdir()):
            path.parent.rmdir()
    for path in sys.glob("devices/system/cpu/*/cache/index1/level"):
        path.write_text("2\n")
    assert read_cpus({3, 0}, sys) == {0: Cpu(0, 0, 0, 0), 3: Cpu(1, 0, 1, 1)}


def test_a_kernel_without_numa_nodes_and_a_machine_that_tells_of_no_cache(sys: Path) -> None:
    for path in (*sys.glob("devices/system/node/*/cpulist"), *sys.glob("devices/system/cpu/*/cache/*/*")):
        path.unlink()
    for path in sys.glob("devices/system/cpu/*/cache/*"):
        path.rmdir()
    assert read_cpus({1, 2}, sys) == {1: Cpu(0, 0, 1, 1), 2: Cpu(0, 0, 0, 2)}


@pytest.mark.parametrize("text", [None, "", "many"])
def test_cpus_that_cannot_be_read_are_a_reason(sys: Path, text: str | None) -> None:
    path = sys / "devices/system/cpu/cpu1/topology/physical_package_id"
    path.unlink() if text is None else path.write_text(text)
    with pytest.raises(CannotBindError, match="where the CPUs are cannot be read"):
        read_cpus({0, 1}, sys)


def test_gpus(sys: Path) -> None:
    assert gpu_nodes(["0000:3b:00.0", "0000:3b:00.0"], {0, 1}, sys) == [1, 1]
    assert gpu_nodes(["0000:86:00.0"], {1}, sys) == [1]  # the firmware is silent, and there is one node
    with pytest.raises(CannotBindError, match=r"does not know to which NUMA node the GPU at 0000:86:00\.0 belongs"):
        gpu_nodes(["0000:86:00.0"], {0, 1}, sys)
    with pytest.raises(CannotBindError, match=r"0000:01:00\.0 cannot be read"):
        gpu_nodes(["0000:01:00.0"], {0}, sys)


def test_this_machine() -> None:
    allowed = os.sched_getaffinity(0)
    cpus = read_cpus(allowed)
    assert set(cpus) == allowed
    assert all(cpu.core <= n and cpu.cache <= n for n, cpu in cpus.items())
