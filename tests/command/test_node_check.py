"""The node check by the real command: before a node joins, and between rounds on one that a verdict blames."""

from __future__ import annotations

from pathlib import Path

import pytest
from command.cluster import Place

pytestmark = pytest.mark.process

SICK_DISK = """
import os, sys
if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
    print("OSError: [Errno 28] No space left on device: '/tmp/x'", file=sys.stderr)
    sys.exit(1)
"""


def checking(place: Place, text: str) -> Path:
    path = place.script("check.sh", f"#!/bin/sh\n{text}\n")
    path.chmod(0o700)
    return path


def test_a_node_that_fails_its_check_starts_nothing(place: Place) -> None:
    check = checking(place, "echo fan 3 is dead; exit 1")
    node = place.command("--node-check", check, place.script("t.py", "print('ran')"))
    assert node.exit_code() == 75, node.say()
    assert "this node cannot take part: check.sh: fan 3 is dead (--node-check=off lets it)" in node.err
    assert node.out == b""


def test_what_a_check_says_moves_no_cursor_and_does_not_fill_the_screen(place: Place) -> None:
    """Red when the words of the site's program are printed as they are."""
    check = checking(place, r"printf '\033]0;title\007\033[31mred\n' >&2; exit 1")
    node = place.command("--node-check", check, place.script("t.py", ""))
    assert node.exit_code() == 75, node.say()
    assert "this node cannot take part: check.sh: red (" in node.err
    assert all(line.isprintable() for line in node.err.splitlines())
    check.write_text("#!/bin/sh\nhead -c 3000 /dev/zero | tr '\\0' x >&2; exit 1\n")
    node = place.command("--node-check", check, place.script("t.py", ""))
    assert (node.exit_code(), len(node.err) < 800) == (75, True), node.say()


def test_a_check_that_cannot_tell_is_told_in_a_line_of_its_own(place: Place) -> None:
    """Red when that line has no end: the next one is glued to it."""
    node = place.command("--node-check", checking(place, "exit 127"), place.script("t.py", ""))
    assert node.exit_code() == 0, node.say()
    assert any(line.endswith("node check: check.sh: exit status 127") for line in node.err.splitlines()), node.err


@pytest.mark.parametrize("check", ["on", "off", "all", "true"])
def test_a_node_that_passes_runs(place: Place, check: str) -> None:
    node = place.command("--node-check", check, place.script("t.py", "print('ran')"))
    assert (node.exit_code(), node.out) == (0, b"ran\n"), node.say()


def test_a_blamed_node_is_checked_before_its_next_round(place: Place) -> None:
    """Red when ``vet`` answers without having asked: the mark that the check leaves is missing then."""
    seen = place.folder / "checked"
    check = checking(place, f"echo x >> {seen}")
    node = place.command("--node-check", check, "--max-restarts", "1", place.script("t.py", SICK_DISK))
    assert node.exit_code() == 0, node.say()
    assert seen.read_text() == "x\nx\n", "before it joined, and after the round that it was blamed for"
    assert "the node check after round 1 has passed" in node.err


def test_a_blamed_node_that_fails_its_check_runs_no_further_round(place: Place) -> None:
    once = place.folder / "once"
    check = checking(place, f"[ -e {once} ] && echo the disk is dying && exit 1; touch {once}")
    args = ("--node-check", check, "--max-restarts", "3", "--rdzv-conf", "join_timeout=3")
    node = place.command(*args, place.script("t.py", SICK_DISK))
    code = node.exit_code()
    assert code != 0, node.say()
    assert "the node check after round 1 has failed: check.sh: the disk is dying" in node.err
    assert len(node.records()) == 1
