"""The command on a terminal: what ranks see of it, that pdb works, and that nothing is lost, blocked or left."""

from __future__ import annotations

import fcntl
import json
import os
import resource
import signal
import struct
import termios
import threading
from collections.abc import Iterator

import pytest
from command.cluster import STEADY, Node, Place
from command.processes import until

pytestmark = pytest.mark.process

TELL = """
import errno, json, os, sys
try:
    os.open("/dev/tty", os.O_RDWR)
    own = True
except OSError as error:
    own = error.errno != errno.ENXIO
size = [list(os.get_terminal_size(fd)) if os.isatty(fd) else None for fd in (1, 2)]
said = {"tty": [os.isatty(fd) for fd in (0, 1, 2)], "size": size, "own": own, "leads": os.getsid(0) == os.getpid()}
open("said-" + os.environ["RANK"], "w").write(json.dumps(said))
sys.stdout.write("out\\n\\x1b[31mred\\x1b[0m caf\\u00e9\\n")
sys.stderr.buffer.write(b"err\\nLatin-1: \\xe9\\r\\n")
"""


class Screen:
    """A terminal of the test's: what is typed there and what is seen."""

    def __init__(self) -> None:
        self.fd, self.command = os.openpty()
        self.resize(33, 111)
        self.seen = bytearray()
        self._reader: threading.Thread | None = None

    def resize(self, lines: int, columns: int) -> None:
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("4H", lines, columns, 0, 0))

    def read(self) -> None:
        """Begin to read; the command must have been started."""
        os.close(self.command)
        self.command = -1
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        try:
            while data := os.read(self.fd, 1 << 16):
                self.seen += data
        except OSError:
            return  # nobody has it open any more

    def shows(self, what: bytes) -> None:
        until(lambda: what in self.seen, f"{what!r} is shown", show=lambda: self.seen.decode(errors="replace"))

    def type(self, what: bytes) -> None:
        os.write(self.fd, what)

    def end(self) -> bytes:
        """Return all that was shown, once the command has ended."""
        assert self._reader is not None
        self._reader.join(10)
        return bytes(self.seen)

    def close(self) -> None:
        if self.command >= 0:
            os.close(self.command)
        if self._reader is not None:
            self._reader.join(10)
        os.close(self.fd)


@pytest.fixture
def screen(place: Place) -> Iterator[Screen]:
    made = Screen()
    yield made
    for node in place.nodes:
        node.close()
    made.close()


def logs(node: Node, rank: int = 0, attempt: int = 0) -> tuple[bytes, bytes]:
    files = node.run_dir / f"attempt_{attempt}" / str(rank)
    return (files / "stdout.log").read_bytes(), (files / "stderr.log").read_bytes()


def told(place: Place, rank: int) -> dict[str, object]:
    return json.loads((place.folder / f"said-{rank}").read_text())


def test_ranks_see_a_terminal_that_is_not_theirs_and_files_have_their_bytes(place: Place, screen: Screen) -> None:
    """Red when OPOST stays set (CR LF in the file), and when the rank opens its terminal without O_NOCTTY."""
    node = place.command("--nproc-per-node", "2", place.script("t.py", TELL), terminal=screen.command)
    screen.read()
    assert node.exit_code() == 0, screen.seen
    size = [111, 33]
    for rank in (0, 1):
        said = told(place, rank)
        assert said == {"tty": [False, True, True], "size": [size, size], "own": False, "leads": True}
        out, err = logs(node, rank)
        assert out == "out\n\x1b[31mred\x1b[0m café\n".encode()
        assert err == b"err\nLatin-1: \xe9\r\n"
    assert screen.end().count("\x1b[31mred\x1b[0m café\r\n".encode()) == 2


def test_each_stream_is_a_terminal_when_the_commands_is(place: Place, screen: Screen) -> None:
    """As under plain python: what goes into a pipe or a file finds no terminal there."""
    path = place.folder / "kept"
    with path.open("wb") as kept:
        node = place.command(place.script("t.py", TELL), terminal=screen.command, stdout=kept.fileno())
        screen.read()
        assert node.exit_code() == 0, screen.seen
    assert told(place, 0)["tty"] == [True, False, True]
    assert path.read_bytes() == logs(node)[0]
    assert b"Latin-1" in screen.end()


def test_pdb_works_on_a_single_rank(place: Place, screen: Screen) -> None:
    """Red when its stdout is no terminal: Ctrl-A is no key then (``_output`` in crew.py)."""
    script = place.script("t.py", "import pdb\nsecret = 6 * 7\npdb.set_trace()\nprint('went on with', secret)\n")
    node = place.command(script, terminal=screen.command)
    screen.read()
    screen.shows(b"(Pdb) ")
    screen.type(b"secret + 1\x01p \r")  # Ctrl-A: to the start of the line; Enter as a keyboard sends it
    screen.shows(b"\r\n43\r\n")
    screen.type(b"secret = 8\r")
    screen.type(b"c\r")
    assert node.exit_code() == 0, screen.seen
    assert b"went on with 8\r\n" in screen.end()
    assert b"went on with 8\n" in logs(node)[0]


def test_the_last_byte_is_in_the_file_and_on_the_terminal_before_the_report(place: Place, screen: Screen) -> None:
    """Red when the terminals are let go of unread at the end (``settle`` in terminals.py without its reads)."""
    lines = [b"line %d of many, and some more" % i for i in range(20_000)]
    text = (
        "import os, sys\n"
        "if os.environ['RANK'] == '1':\n"
        "    data = b''.join(b'line %d of many, and some more\\n' % i for i in range(20000)) + b'the end'\n"
        "    while data: data = data[os.write(1, data):]\n"
        "    os._exit(3)\n"
        "import time; time.sleep(60)\n"
    )
    node = place.command("--nproc-per-node", "2", place.script("t.py", text), terminal=screen.command)
    screen.read()
    assert node.exit_code() == 3, screen.seen[-3000:]
    assert logs(node, 1)[0] == b"\n".join([*lines, b"the end"])
    shown = screen.end()
    before = shown[: shown.index(b"t.py FAILED")]
    found = [line for line in before.split(b"\r\n") if line.startswith(b"line ")]
    assert found == lines
    assert b"\nthe end\r\n" in before


def test_no_rank_waits_for_a_terminal_that_nobody_looks_at(place: Place, screen: Screen) -> None:
    """Red when a rank has the command's own terminal (``_append`` in rank.py without a path)."""
    text = "import os\nfor _ in range(4096): os.write(1, b'~' * 1023 + b'\\n')\nopen('ended', 'w').close()\n"
    node = place.command(place.script("t.py", text), terminal=screen.command)
    until((place.folder / "ended").exists, "the rank ended")
    screen.read()
    assert node.exit_code() == 0, screen.seen[-3000:]
    assert len(logs(node)[0]) == 4 << 20
    assert screen.end().count(b"~") == 4096 * 1023


def test_a_disk_that_takes_no_more_stops_no_rank(place: Place, screen: Screen) -> None:
    """One warning; red when the writer's error ends its thread (``_write`` in log_writer.py)."""
    text = (
        "import os, time\nopen('up', 'w').close()\n"
        "while not os.path.exists('go'): time.sleep(0.01)\n"
        "for i in range(2000): os.write(1, b'%01022d\\n' % i)\n"
        "os.write(2, b'goes on\\n')\n"
    )
    node = place.command(place.script("t.py", text), terminal=screen.command)
    screen.read()
    until((place.folder / "up").exists, "the rank runs")
    resource.prlimit(node.agent, resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
    (place.folder / "go").touch()
    assert node.exit_code() == 0, screen.seen[-3000:]
    shown = screen.end()
    assert shown.count(b"takes no more: File too large; the ranks go on") == 1
    assert b"goes on\r\n" in shown
    assert len(logs(node)[0]) == 1 << 20


def test_a_new_window_size_reaches_the_ranks(place: Place, screen: Screen) -> None:
    """Red when the ranks are not told (``_resize`` in terminals.py)."""
    text = (
        "import os, signal\n"
        "signal.signal(signal.SIGWINCH, lambda *_: None)\n"
        "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGWINCH])\n"
        "print('up', os.get_terminal_size(2), flush=True)\n"
        "signal.sigwait([signal.SIGWINCH])\n"
        "print('now', os.get_terminal_size(2))\n"
    )
    node = place.command("--nproc-per-node", "2", place.script("t.py", text), terminal=screen.command)
    screen.read()
    until(lambda: screen.seen.count(b"up os.terminal_size(columns=111, lines=33)") == 2, "both ranks are up")
    screen.resize(44, 77)
    assert node.exit_code() == 0, screen.seen
    assert screen.end().count(b"now os.terminal_size(columns=77, lines=44)") == 2


def test_each_attempt_has_terminals_and_files_of_its_own(place: Place, screen: Screen) -> None:
    text = (
        "import os, sys\nn = os.environ['TORCHELASTIC_RESTART_COUNT']\n"
        "os.write(1, f'attempt {n} {os.isatty(1)}\\n'.encode())\nsys.exit(n == '0' and 3)\n"  # whole, or not at all
    )
    script = place.script("t.py", text)
    node = place.command("--nproc-per-node", "2", "--max-restarts", "1", script, terminal=screen.command)
    screen.read()
    assert node.exit_code() == 0, screen.seen
    shown = screen.end()
    first = [logs(node, rank)[0] for rank in (0, 1)]  # one may have been stopped before it said anything
    assert set(first) - {b""} == {b"attempt 0 True\n"}
    assert [logs(node, rank, 1)[0] for rank in (0, 1)] == [b"attempt 1 True\n"] * 2
    assert shown.count(b"attempt 0 True\r\n") == 2 - first.count(b"")
    assert shown.count(b"attempt 1 True\r\n") == 2


@pytest.mark.parametrize("who", ["agent", "keeper", "guardian"])
def test_nothing_is_left_on_a_terminal(place: Place, screen: Screen, who: str) -> None:
    """The ranks' terminals end with the agent; the ranks end as they do without one."""
    node = place.command("--nproc-per-node", "2", STEADY, place.desk, terminal=screen.command)
    screen.read()
    place.wait_round(1, 2)
    ranks = node.ranks()
    assert {os.readlink(f"/proc/{pid}/fd/1")[:9] for pid in ranks.values()} == {"/dev/pts/"}
    node.kill(who)
    node.exit_code()


def test_the_terminals_modes_are_put_back(place: Place, screen: Screen) -> None:
    """A rank that is killed while it edits a line leaves a terminal without echo; the command sets it right."""
    before = termios.tcgetattr(screen.fd)
    script = place.script("t.py", "import tty, os, signal\ntty.setraw(0)\nos.kill(os.getpid(), signal.SIGKILL)\n")
    node = place.command(script, terminal=screen.command)
    screen.read()
    assert node.exit_code() == 128 + signal.SIGKILL, screen.seen
    assert termios.tcgetattr(screen.fd)[3] == before[3]
