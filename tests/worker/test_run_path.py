"""What --run-path starts a rank with, run as a rank runs it: by path, in an interpreter without this package."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from remuster.health.errorfile import read
from remuster.launcher.starting import RUNNER

TELL = """
import json, os, sys
import beside
loaded = sorted({"torch", "remuster"} & set(sys.modules))
print(json.dumps([sys.argv, sys.path[0], __name__, __file__, loaded, sys.modules["__main__"].__dict__ is globals()]))
"""


class Scripts:
    """A folder of scripts, and ranks that run them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.error_file = folder / "error.json"

    def put(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        return path

    def run(self, *args: str, python: tuple[str, ...] = (), **env: str) -> subprocess.CompletedProcess[str]:
        self.error_file.unlink(missing_ok=True)
        return subprocess.run(
            [sys.executable, *python, "-S", "-u", str(RUNNER), *args],
            cwd=self.folder,
            env={"PATH": os.environ["PATH"], "TORCHELASTIC_ERROR_FILE": str(self.error_file)} | env,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )


@pytest.fixture
def scripts(tmp_path: Path) -> Scripts:
    return Scripts(tmp_path.resolve())


def test_a_script_is_run_as_python_runs_it(scripts: Scripts) -> None:
    scripts.put("sub/beside.py", "")
    script = scripts.put("sub/t.py", TELL)
    done = scripts.run("sub/t.py", "--lr", "", "-m", "--", "caf\udce9")
    assert (done.returncode, done.stderr) == (0, "")
    argv = ["sub/t.py", "--lr", "", "-m", "--", "caf\udce9"]
    assert json.loads(done.stdout) == [argv, str(script.parent), "__main__", "sub/t.py", [], True]
    assert not scripts.error_file.exists()


def test_a_folder_with_a_program_in_it(scripts: Scripts) -> None:
    scripts.put("app/beside.py", "")
    scripts.put("app/__main__.py", TELL)
    done = scripts.run("app", "x")
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)[:2] == [["app", "x"], "app"]


@pytest.mark.skipif(sys.version_info < (3, 11), reason="Python 3.10 has no -P")
def test_a_safe_path_stays_safe(scripts: Scripts) -> None:
    scripts.put("t.py", "import sys; print(sys.path[0])")
    scripts.put("json.py", "raise SystemExit('a file beside the script was imported')")
    done = scripts.run("t.py", python=("-P",))
    assert done.returncode == 0
    assert str(scripts.folder) not in done.stdout


def test_what_it_raises_is_recorded_and_shown_from_the_script_on(scripts: Scripts) -> None:
    scripts.put("t.py", "def train():\n    raise ValueError('boom: café')\ntrain()\n")
    done = scripts.run("t.py")
    assert done.returncode == 1
    shown = done.stderr.splitlines()
    assert shown[0] == "Traceback (most recent call last):"
    assert shown[1].startswith('  File "t.py", line 3, in <module>')
    assert shown[-1] == "ValueError: boom: café"
    error = read(scripts.error_file)
    assert error is not None
    assert error.message == "ValueError: boom: café"
    assert error.traceback.splitlines() == shown
    assert error.timestamp > 1_600_000_000
    assert scripts.error_file.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("text", "status", "says"),
    [
        ("x = ", 1, "SyntaxError: invalid syntax"),
        ("import absent", 1, "ModuleNotFoundError: No module named 'absent'"),
        ("import resume", 1, "ModuleNotFoundError: No module named 'resume'"),  # it lies beside run_path.py
        (
            "class E(Exception):\n    def __str__(self): raise KeyError('no words')\nraise E",
            1,
            "E: <exception str() failed>",
        ),
    ],
)
def test_other_errors_are_pythons_own(scripts: Scripts, text: str, status: int, says: str) -> None:
    scripts.put("t.py", text)
    done = scripts.run("t.py")
    assert done.returncode == status
    assert done.stderr.rstrip().endswith(says)
    assert "run_path.py" not in done.stderr


@pytest.mark.parametrize(
    ("text", "status"),
    [
        ("import sys; sys.exit(7)", 7),
        ("import sys; sys.exit(0)", 0),
        ("import sys; sys.exit('sentence')", 1),
        ("raise KeyboardInterrupt", -2),
        ("import os; os._exit(3)", 3),
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", -11),
    ],
)
def test_an_end_that_is_no_exception_is_not_recorded(scripts: Scripts, text: str, status: int) -> None:
    scripts.put("t.py", text)
    assert scripts.run("t.py").returncode == status
    assert not scripts.error_file.exists()


def test_the_scripts_own_record_and_a_missing_file_hide_nothing(scripts: Scripts) -> None:
    scripts.put("t.py", "import os\nopen(os.environ['TORCHELASTIC_ERROR_FILE'], 'w').write('mine')\nraise ValueError\n")
    assert scripts.run("t.py").returncode == 1
    assert scripts.error_file.read_text() == "mine"
    scripts.put("t.py", "raise ValueError('seen')")
    for path in ("", "/nowhere/error.json"):
        done = scripts.run("t.py", TORCHELASTIC_ERROR_FILE=path)
        assert (done.returncode, done.stderr.splitlines()[-1]) == (1, "ValueError: seen")


def test_a_segmentation_fault_says_where(scripts: Scripts) -> None:
    scripts.put("t.py", "import ctypes\nctypes.string_at(1)\n")
    done = scripts.run("t.py")
    assert done.returncode == -11
    assert 'File "t.py", line 2 in <module>' in done.stderr
