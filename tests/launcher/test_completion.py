"""What the shells complete, asked of real ones, and the manual page, read by the real troff."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from remuster.launcher import completion, manual
from remuster.launcher.flags import FLAGS

ASK = """
compopt() { asked+=("$*"); }
COMP_LINE=$1 COMP_POINT=${#1} asked=()
_remuster
printf '%s\\n' "${COMPREPLY[@]}" "${asked[@]}"
"""


def asked(line: str, folder: Path) -> list[str]:
    """Return what bash would offer at the end of ``line``; '-o default' is: files."""
    done = subprocess.run(
        ["bash", "-c", completion.bash() + ASK, "bash", line],
        cwd=folder, capture_output=True, text=True, check=True, timeout=20,
    )  # fmt: skip
    assert done.stderr == ""
    return [word for word in done.stdout.split("\n") if word]


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("remuster --adm", ["--admit"]),
        ("remuster --nnodes 2:4 --ad", ["--admit"]),
        ("remuster --nnodes=2:4 --standalone --ad", ["--admit"]),
        ("remuster --admit ", ["restart", "now", "checkpoint"]),
        ("remuster --admit n", ["now"]),
        ("remuster --admit=n", ["now"]),
        ("remuster --rank_order=", ["sticky", "hostname"]),
        ("remuster --nproc-per-node ", ["auto", "gpu", "cpu"]),
        ("remuster --max-restarts ", []),
        ("remuster --log-dir ", ["-o default"]),
        ("remuster --log-dir logs --ver", ["--version"]),
        ("remuster tr", ["train.py", "-o default"]),
        ("remuster le", ["leave", "-o default"]),
        ("remuster --standalone le", ["-o default"]),
        ("remuster train.py --ad", ["-o default"]),  # the script's own
        ("remuster --role x train.py --admit ", ["-o default"]),
        ("remuster -m pkg.mod --ad", ["-o default"]),
        ("remuster -- --ad", ["-o default"]),
    ],
)
def test_bash(line: str, offered: list[str], tmp_path: Path) -> None:
    (tmp_path / "train.py").touch()
    assert asked(line, tmp_path) == offered


def test_bash_offers_every_flag(tmp_path: Path) -> None:
    assert asked("remuster -", tmp_path) == [f"--{flag.name}" for flag in FLAGS]


def test_zsh_takes_it_and_it_has_every_flag(tmp_path: Path) -> None:
    text = completion.zsh()
    assert text.startswith("#compdef remuster\n")
    for flag in FLAGS:
        assert f"'--{flag.name}{'=' if flag.metavar else ''}[" in text
    zsh = shutil.which("zsh")
    if zsh is None:
        pytest.skip("no zsh here; its syntax is not checked")
    (tmp_path / "_remuster").write_text(text)
    done = subprocess.run([zsh, "-n", tmp_path / "_remuster"], capture_output=True, text=True, timeout=20, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("argv", [[], ["fish"], ["bash", "zsh"]])
def test_another_shell_is_wrong_usage(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert completion.main(argv, {}) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err == "remuster completion: say for which shell; write remuster completion bash|zsh\n"


def test_the_manual_page(capsys: pytest.CaptureFixture[str]) -> None:
    assert manual.main([], {}) == 0
    page = capsys.readouterr().out
    assert manual.main(["x"], {}) == 2
    for heading in ("NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "EXAMPLES", "EXIT CODES", "SEE ALSO"):
        assert f"\n.SH {heading}\n" in page
    groff = shutil.which("groff")
    if groff is None:
        pytest.skip("no groff here; the page is not read")
    done = subprocess.run(
        [groff, "-man", "-Tutf8", "-ww", "-P-cbu"], input=page, capture_output=True, text=True, timeout=20, check=True
    )
    assert done.stderr == ""
    shown = " ".join(done.stdout.split())
    for flag in FLAGS:
        assert f"--{flag.name}" in shown
        assert flag.name in ("version", "help") or f"({flag.env})" in shown
    assert r"remuster --nnodes 2:4 --nproc-per-node gpu --rdzv-backend etcd \ --rdzv-endpoint" in shown
