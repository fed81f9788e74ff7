"""The command as a process: what the person in front of it gets when there is nothing to run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import remuster

pytestmark = pytest.mark.process


def command(*args: str | bytes, cwd: Path, **environ: str) -> subprocess.CompletedProcess[bytes]:
    env = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(Path(remuster.__file__).parents[1]),
        "HOME": str(cwd),
    } | environ
    return subprocess.run(
        [sys.executable, "-m", "remuster", *args], cwd=cwd, env=env, capture_output=True, timeout=60, check=False
    )


def test_version(tmp_path: Path) -> None:
    done = command("--version", cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"remuster 0.1.0\n", b"")


@pytest.mark.parametrize("name", ["remuster", "remuster.launcher"])
def test_it_runs_as_a_module(name: str, tmp_path: Path) -> None:
    (tmp_path / "t.py").write_text("import sys; sys.exit(len(sys.argv))")
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(Path(remuster.__file__).parents[1]), "TMPDIR": str(tmp_path)}
    line = [sys.executable, "-m", name, "--standalone", "t.py", "--standalone", "-m"]
    done = subprocess.run(line, cwd=tmp_path, env=env, capture_output=True, timeout=60, check=False)
    assert done.returncode == 3, done.stderr


def test_help_is_for_people(tmp_path: Path) -> None:
    done = command("--help", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, b"")
    for heading in (b"Nodes and ranks:", b"Meeting the other nodes:", b"Failures and retries:", b"Exit codes:"):
        assert heading in done.stdout


@pytest.mark.parametrize(
    ("args", "says"),
    [
        ((), b"remuster: no script given; "),
        (("absent.py", "--help"), b"remuster: no script 'absent.py' in "),
        ((b"caf\xe9.py",), b"remuster: no script 'caf\\udce9.py' in "),
        (("--nodes", "2", "t.py"), b"remuster: no such option '--nodes'; did you mean --nnodes"),
        (("--redirect=4", "/dev/null"), b"remuster: --redirects is '4'; give 0 (none), 1 (stdout), "),
    ],
)
def test_a_refusal_is_one_line_and_exit_2(args: tuple[str | bytes, ...], says: bytes, tmp_path: Path) -> None:
    done = command(*args, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, b"")
    assert done.stderr.startswith(says)
    assert done.stderr.count(b"\n") == 1


def test_a_refusal_makes_nothing(tmp_path: Path) -> None:
    (tmp_path / "t.py").touch()
    for wrong in ("--resume-hook=absent-program", "--rdzv-conf=lease_ttl=3", "--rdzv-endpoint=h"):
        assert command("--log-dir=logs", "--checkpoint-dir=ckpt", wrong, "t.py", cwd=tmp_path).returncode == 2
    assert [path.name for path in tmp_path.iterdir()] == ["t.py"]


def test_a_bad_variable_is_named(tmp_path: Path) -> None:
    done = command("t.py", cwd=tmp_path, PET_STANDALONE="true")
    assert (done.returncode, done.stderr.count(b"\n")) == (2, 1)
    assert b"PET_STANDALONE is 'true'; set it to 1 or 0" in done.stderr


def test_a_defect_is_exit_70_and_says_so(tmp_path: Path) -> None:
    (tmp_path / "t.py").touch()
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(Path(remuster.__file__).parents[1]), "TMPDIR": str(tmp_path)}
    code = "import sys; from remuster.launcher.entry import body; sys.argv = ['', 't.py']; sys.exit(body(None))"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=env, capture_output=True, timeout=60, check=False
    )
    assert done.returncode == 70
    assert done.stderr.endswith(b"\nremuster: this is a defect in remuster; please report it with the lines above\n")


def test_a_folder_without_a_program_hides_no_sub_command(tmp_path: Path) -> None:
    (tmp_path / "quarantine").mkdir()
    assert b"Usage: remuster quarantine" in command("quarantine", "--help", cwd=tmp_path).stdout
    (tmp_path / "quarantine" / "__main__.py").touch()  # Python would run that
    done = command("quarantine", "list", cwd=tmp_path)
    assert b"quarantine list" not in done.stdout
    assert b"remuster quarantine:" not in done.stderr


@pytest.mark.parametrize("args", [("--help",), ("man",), ("check", "--json")])
def test_an_answer_that_nobody_can_be_given_is_no_defect(args: tuple[str, ...], tmp_path: Path) -> None:
    """``remuster --help | head``, and a full disk. Red when either ends in a traceback."""
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(Path(remuster.__file__).parents[1]), "HOME": str(tmp_path)}
    reader, gone = os.pipe()
    os.close(reader)
    full = os.open("/dev/full", os.O_WRONLY)
    try:
        for where, why in ((gone, b""), (full, b"remuster: the answer cannot be written: No space left on device\n")):
            line = [sys.executable, "-m", "remuster", *args]
            done = subprocess.run(line, env=env, stdout=where, stderr=subprocess.PIPE, timeout=60, check=False)
            assert (done.returncode > 2 or not why, done.stderr) == (True, why)
    finally:
        os.close(gone)
        os.close(full)
