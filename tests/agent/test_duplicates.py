"""The copies of lines against real files that grow, and a directory that is gone."""

from __future__ import annotations

import asyncio
from pathlib import Path

from command.processes import until

from remuster.agent import blocks
from remuster.agent.duplicates import Duplicates
from remuster.agent.showing import View
from remuster.agent.spec import Output

BOTH = Output(stdout_filters=("apple", "orange"), stderr_filters=("Error",))


def view(path: Path, stream: int, label: bytes) -> View:
    return View(str(path), stream, label, shown=False, tee=True)


async def test_lines_are_copied_while_they_come_and_to_the_last_byte(tmp_path: Path) -> None:
    """Red when ``finish`` does not drain, and when ``_Copy.end`` drops what is no line yet."""
    attempt, said = tmp_path / "attempt_0", list[str]()
    attempt.mkdir()
    a, b, err = (tmp_path / name for name in ("a", "b", "err"))
    a.write_bytes(b"an apple before\nplum\n")
    copies = Duplicates(attempt, BOTH, said.append)
    copies.follow([view(a, 1, b"[d0]:"), view(b, 1, b"[d1]:"), view(err, 2, b"[d0]:")])
    out, errors = attempt / "filtered_stdout.log", attempt / "filtered_stderr.log"
    await asyncio.to_thread(until, lambda: errors.exists() and out.stat().st_size > 0, "the first line is copied")
    assert out.read_bytes() == b"[d0]:an apple before\n"
    assert out.stat().st_mode & 0o777 == 0o600
    with b.open("ab", buffering=0) as file:
        file.write(b"an ora")
        file.write(b"nge\nand an apple")
    err.write_bytes(b"KeyError\nWarning\n")
    await copies.finish()
    assert out.read_bytes() == b"[d0]:an apple before\n[d1]:an orange\n[d1]:and an apple\n"
    assert errors.read_bytes() == b"[d0]:KeyError\n"
    assert said == []
    await copies.finish()  # a second time is no harm


async def test_a_stream_without_filters_has_no_copy(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"apple\n")
    copies = Duplicates(tmp_path, Output(stderr_filters=("apple",)), print)
    copies.follow([view(tmp_path / "a", 1, b"")])
    await copies.finish()
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


async def test_what_a_log_has_given_up_is_counted(tmp_path: Path) -> None:
    """Red when zeros are searched like lines, and when ``_Copy.lose`` says nothing."""
    (tmp_path / "a").write_bytes(b"apple\n" + b"x" * 200_000 + b"\norange\n")
    with (tmp_path / "a").open("rb+") as file:
        blocks.punch(file.fileno(), 65536, 131072)
    copies = Duplicates(tmp_path, BOTH, print)
    copies.follow([view(tmp_path / "a", 1, b"")])
    await copies.finish()
    copied = (tmp_path / "filtered_stdout.log").read_bytes()
    assert copied == b"apple\n[remuster: 65536 bytes were not searched: the log has given them up]\norange\n"


async def test_what_cannot_be_written_is_said_once(tmp_path: Path) -> None:
    """Red when ``_telling`` lets the error through: the thread ends, and nothing is said."""
    said: list[str] = []
    (tmp_path / "a").write_bytes(b"apple\n" * 100_000)
    copies = Duplicates(tmp_path / "absent", BOTH, said.append)
    copies.follow([view(tmp_path / "a", 1, b"")])
    await copies.finish()
    (line,) = said
    assert "absent/filtered_stdout.log cannot be written: No such file or directory; the ranks' own files have" in line


async def test_a_link_is_not_followed(tmp_path: Path) -> None:
    said: list[str] = []
    (tmp_path / "a").write_bytes(b"apple\n")
    (tmp_path / "filtered_stdout.log").symlink_to(tmp_path / "victim")
    copies = Duplicates(tmp_path, BOTH, said.append)
    copies.follow([view(tmp_path / "a", 1, b"")])
    await copies.finish()
    assert len(said) == 1
    assert not (tmp_path / "victim").exists()
