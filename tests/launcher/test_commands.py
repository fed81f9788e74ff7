"""When the first word is a sub-command and when it is the script: a table, and that each is there."""

from __future__ import annotations

import pytest

from remuster.launcher.commands import COMMANDS, chosen, run


@pytest.mark.parametrize(
    ("line", "files", "command"),
    [
        ("leave", "", "leave"),
        ("leave --rdzv-id x", "", "leave"),
        ("resume-point ckpts", "", "resume-point"),
        ("leave", "leave", None),  # torchrun would run it
        ("leave", "leave.py train.py", "leave"),
        ("-- leave", "", None),
        ("./leave", "", None),
        ("leave.py", "", None),
        ("--nnodes 2 leave", "", None),
        ("train.py leave", "", None),
        ("Leave", "", None),
        ("", "", None),
    ],
)
def test_first_word(line: str, files: str, command: str | None) -> None:
    assert chosen(line.split(), files.split().__contains__) == command


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_helps(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert name[0] != "-"
    assert name.replace("-", "").isalpha()
    assert run(name, ["--help"], {}) == 0
    assert capsys.readouterr().out.startswith(f"Usage: remuster {name} ")
