"""The log: what people see, what machines get, and what neither does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog

from remuster.agent.files import FileThread
from remuster.agent.logs import EventFile, Logger, configure


class Log:
    """A logger whose two outputs are kept."""

    def __init__(self, level: str = "") -> None:
        self.lines: list[str] = []
        self.events: list[bytes] = []
        structlog.reset_defaults()
        self.logger: Logger = configure(self.lines.append, self.events.append, level)

    def event(self, index: int = -1) -> dict[str, object]:
        parsed: dict[str, object] = json.loads(self.events[index])
        return parsed


@pytest.fixture(autouse=True)
def _afterwards() -> Iterator[None]:
    yield
    structlog.reset_defaults()


def test_people_and_machines_get_the_same_event() -> None:
    log = Log()
    log.logger.warning("lease lost", node="a", round=3)
    assert len(log.lines) == 1
    assert log.lines[0].endswith("\n")
    for word in ("[warning  ]", "lease lost", "node=a", "round=3"):
        assert word in log.lines[0]
    event = log.event()
    assert str(event.pop("timestamp")).endswith("Z")
    assert event == {"event": "lease lost", "level": "warning", "node": "a", "round": 3}
    assert log.events[0].endswith(b"}\n")


@pytest.mark.parametrize(
    ("level", "people", "machines"),
    [
        ("", "iwe", "iwe"),
        ("DEBUG", "diwe", "diwe"),
        ("warning", "we", "iwe"),
        ("ERROR", "e", "iwe"),
        ("30", "we", "iwe"),
        ("nonsense", "iwe", "iwe"),
    ],
)
def test_levels(level: str, people: str, machines: str) -> None:
    log = Log(level)
    log.logger.debug("debug")
    log.logger.info("info")
    log.logger.warning("warning")
    log.logger.error("error")
    assert "".join(line.split("]")[1].strip()[0] for line in log.lines) == people
    assert "".join(str(log.event(i)["event"])[0] for i in range(len(log.events))) == machines


def test_secrets_are_taken_out() -> None:
    log = Log()
    nested = {"api_key": "k3y", "urls": ["https://me:pa55@host/x"]}
    log.logger.info("at etcd://root:pa55@h:2379", password="pa55", store=nested, token="run/1/2b", PGPASSWORD="pa55")
    for output in (log.lines[0], log.events[0].decode()):
        assert "pa55" not in output
        assert "k3y" not in output
        assert "run/1/2b" in output  # the fencing token is no secret
        assert "etcd://root:***@h:2379" in output


def test_a_strangers_text_cannot_move_the_cursor() -> None:
    log = Log()
    log.logger.info("rank said \x1b[2J\x07", line="\x1b]0;title\x07\x9b1m")
    assert "\x1b" not in log.lines[0]
    assert "\x9b" not in log.lines[0]
    assert "rank said \\x1b[2J\\x07" in log.lines[0]
    assert log.event()["event"] == "rank said \x1b[2J\x07"


def test_an_exception_and_a_value_of_any_kind() -> None:
    log = Log()
    try:
        raise KeyError("k")
    except KeyError:
        log.logger.exception("odd", path=Path("/x"), what=object)
    assert "KeyError: 'k'" in log.lines[0]
    event = log.event()
    assert "KeyError: 'k'" in str(event["exception"])
    assert event["path"] == "/x"


async def test_the_file_is_private_and_whole(tmp_path: Path) -> None:
    files = FileThread("log-files")
    events = EventFile(tmp_path / "events.jsonl", files)
    structlog.reset_defaults()
    logger = configure(lambda _: None, events.keep)
    for i in range(1000):
        logger.info("event", i=i)
    await events.flush()
    files.close()
    lines = (tmp_path / "events.jsonl").read_bytes().splitlines()
    assert [json.loads(line)["i"] for line in lines] == list(range(1000))
    assert (tmp_path / "events.jsonl").stat().st_mode & 0o777 == 0o600


async def test_a_hung_file_does_not_hold_up_the_logger(tmp_path: Path) -> None:
    files = FileThread("log-files")
    os.mkfifo(tmp_path / "events.jsonl")
    events = EventFile(tmp_path / "events.jsonl", files)
    structlog.reset_defaults()
    logger = configure(lambda _: None, events.keep)
    for i in range(20_000):
        logger.info("event", i=i)
    assert not events.keep(b"one too many\n")
    reader = os.open(tmp_path / "events.jsonl", os.O_RDONLY | os.O_NONBLOCK)
    while b"event" not in (os.read(reader, 65536) if _readable(reader) else b""):
        pass
    os.close(reader)
    files.close()


def _readable(fd: int) -> bool:
    import select

    return bool(select.select([fd], [], [], 10)[0])


def test_rich_is_not_imported_and_may_be_later(tmp_path: Path) -> None:
    for name in ("rich", "better_exceptions"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text(f"print('{name} was imported')\n")
    (tmp_path / "rich" / "console.py").write_text("class Console: pass\n")
    (tmp_path / "rich" / "traceback.py").write_text("class Traceback: pass\n")
    code = """
import sys
from remuster.agent.logs import configure
log = configure(lambda line: print(line, end=""), lambda event: None)
try:
    1 / 0
except ZeroDivisionError:
    log.exception("oh")
print("later", "rich" in sys.modules, "better_exceptions" in sys.modules, "torch" in sys.modules)
import rich
"""
    paths = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    environ = {**os.environ, "PYTHONPATH": paths}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environ, capture_output=True, text=True, timeout=60, check=False
    )
    lines = done.stdout.splitlines()
    assert "later False False False" in lines, done.stderr
    assert lines.index("later False False False") == len(lines) - 2
    assert lines[-1] == "rich was imported"
