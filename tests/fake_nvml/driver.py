"""The fake driver as tests use it: built once, one control file for each use. Not a test module."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

SOURCE = Path(__file__).with_name("fake_nvml.c")
LIBRARY = "libnvidia-ml.so.1"


def build(folder: Path) -> Path:
    """Build the library in ``folder`` and return the folder; the test is skipped where there is no compiler."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("needs a C compiler (cc) for the driver that stands in for NVIDIA's")
    args = ["-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-pthread", f"-Wl,-soname,{LIBRARY}"]
    subprocess.run([compiler, *args, "-o", str(folder / LIBRARY), str(SOURCE)], check=True, timeout=60)
    return folder


class FakeDriver:
    """One machine's driver: what it is told, all processes with ``env`` see."""

    def __init__(self, library: Path, folder: Path, gpus: int = 8) -> None:
        self._file = folder / "driver"
        self._file.touch()
        self.env = {
            "LD_LIBRARY_PATH": os.pathsep.join(filter(None, (str(library), os.environ.get("LD_LIBRARY_PATH")))),
            "FAKE_NVML_GPUS": str(gpus),
            "FAKE_NVML_FILE": str(self._file),
        }

    def tell(self, *lines: str) -> None:
        """Let the driver obey ``lines`` (see the C file), in one piece."""
        with self._file.open("a") as file:
            file.write("".join(f"{line}\n" for line in lines))

    def delivered(self) -> list[tuple[int, int, int]]:
        """Return GPU, type and data of each event that somebody has waited for."""
        told = self._file.with_name("driver.delivered")
        lines = told.read_text().splitlines() if told.exists() else []
        return [(int(gpu), int(kind), int(data)) for gpu, kind, data in map(str.split, lines)]


def uuid(gpu: int) -> str:
    """Return the UUID of a GPU of the driver's."""
    return f"GPU-{0xA0000000 + gpu:08x}-fa4e-4000-8000-{gpu:012x}"


def mig_uuid(gpu: int, part: int) -> str:
    """Return the UUID of a MIG device of the driver's."""
    return f"MIG-{0xB0000000 + 16 * gpu + part:08x}-fa4e-5000-8000-{part:012x}"
