"""--kernel-log: where the kernel's messages are read."""

from __future__ import annotations

import os

import pytest
from launcher_lines import Command


@pytest.mark.parametrize(
    ("line", "path"),
    [
        ("", "/dev/kmsg"),
        ("--kernel-log=none", ""),
        ("--kernel-log /var/log/kern.log", "/var/log/kern.log"),
        ("--kernel-log=missing", os.path.join("{here}", "missing")),
    ],
)
def test_what_is_read(command: Command, line: str, path: str) -> None:
    assert command.spec(f"{line} t.py").kernel_log == path.format(here=os.getcwd())


@pytest.mark.parametrize("path", ["", "/"])
def test_what_is_no_file_is_refused(command: Command, path: str) -> None:
    assert command.run(f"--kernel-log={path} t.py") == 2
    assert f"--kernel-log is {path!r}; give a file or a named pipe, or none" in command.stderr
