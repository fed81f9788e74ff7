"""Which errors are shortages of this machine or user, and which are defects; and the limits of a child."""

from __future__ import annotations

import errno
import os
import resource
import subprocess
import sys
import textwrap

import pytest

from remuster.agent.limits import limit_files, shortage


def _error(number: int) -> OSError:
    return OSError(number, os.strerror(number))


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (_error(errno.EMFILE), "no more files can be opened: ulimit -n is "),
        (_error(errno.ENFILE), "fs.file-max"),
        (_error(errno.EAGAIN), "no more processes or threads can be started: ulimit -u is "),
        (RuntimeError("can't start new thread"), "no more processes or threads"),
        (_error(errno.ENOMEM), "no more memory is to be had: ulimit -v is "),
        (MemoryError(), "no more memory"),
        (ImportError("_x.so: failed to map segment from shared object"), "no more memory"),
    ],
)
def test_a_shortage_is_told_with_its_limit(error: Exception, says: str) -> None:
    assert says in (shortage(error) or "")


@pytest.mark.parametrize(
    "error", [KeyError("x"), RuntimeError("no"), ImportError("no module"), _error(errno.ENOENT), ValueError()]
)
def test_a_defect_is_none(error: Exception) -> None:
    assert shortage(error) is None


def _raised(from_it: bool) -> Exception:
    try:
        try:
            raise _error(errno.EMFILE)
        except OSError as error:
            raise ValueError("later") from (error if from_it else None)
    except ValueError as later:
        return later


def test_a_shortage_is_found_behind_what_came_of_it() -> None:
    assert "ulimit -n" in (shortage(_raised(from_it=True)) or "")


def test_a_chain_in_a_circle_ends() -> None:
    one, two = ValueError("one"), ValueError("two")
    one.__context__, two.__context__ = two, one
    assert shortage(one) is None


THREADS = """
resource.setrlimit(resource.RLIMIT_AS, (200 << 20, 200 << 20))
while True: threading.Thread(target=threading.Event().wait, daemon=True).start()
"""
FILES = """
resource.setrlimit(resource.RLIMIT_NOFILE, (16, 16))
kept = []
while True: kept.append(os.open(os.devnull, os.O_RDONLY))
"""


@pytest.mark.parametrize(("wants", "says"), [(THREADS, "threads"), (FILES, "ulimit -n is 16")])
def test_what_the_interpreter_really_raises(wants: str, says: str) -> None:
    """The messages are Python's, and may differ from version to version."""
    code = (
        "import os, resource, threading\nfrom remuster.agent.limits import shortage\ntry:\n"
        + textwrap.indent(wants, "    ")
        + "except Exception as error:\n    os.write(1, (shortage(error) or repr(error)).encode())\nos._exit(0)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert says in done.stdout, done.stderr


def test_a_child_is_given_another_limit() -> None:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with subprocess.Popen(
        [sys.executable, "-c", "import resource\ninput()\nprint(resource.getrlimit(resource.RLIMIT_NOFILE))"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as child:  # fmt: skip
        limit_files(child.pid, 77)
        assert child.communicate("\n", 30)[0] == f"(77, {most})\n"
