"""The site's command for a host in quarantine: what it is given, that it is bounded, and what is said of it."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuster.agent.drain import NAME, REASON, Drain, Held, argv

HELD = Held("gpu07~3d1219c7c4c5", "run7", "gpu_ecc", "rank 1 on gpu07 found an ECC error")
SCONTROL = ("scontrol", "update", "NodeName={host}", "State=DRAIN", "Reason={reason}")
# Writes down its own words, one JSON list a line.
PROGRAM = "import json, sys; print(json.dumps(sys.argv[2:]), file=open(sys.argv[1], 'a'))"


def run(command: tuple[str, ...], *helds: Held, limit_s: float = 20.0) -> tuple[list[str], dict[str, str], float]:
    """Have hosts drained; return what was said, the outcomes, and how long the call to drain itself took."""
    said: list[str] = []
    spared: list[tuple[int, ...]] = []

    async def work() -> tuple[Drain, float]:
        drain = Drain(command, spared.append, said.append, limit_s)
        began = time.monotonic()
        for held in helds:
            drain.drain(held)
        took = time.monotonic() - began
        await drain.settle()
        return drain, took

    drain, took = asyncio.run(work())
    assert not spared or spared[-1] == ()
    return said, drain.outcomes, took


def test_the_words_are_filled_in_one_by_one() -> None:
    assert argv(SCONTROL, HELD) == (
        *("scontrol", "update", "NodeName=gpu07", "State=DRAIN"),
        "Reason=remuster run7: gpu_ecc: rank 1 on gpu07 found an ECC error",
    )
    assert argv(("x", "{run}/{class}", "{}", "{other}"), HELD) == ("x", "run7/gpu_ecc", "{}", "{other}")


HOSTILE = "$(reboot) `id`; \x1b[31mred\n\r\0 {host} {reason} 'q' \"d\" \u202e\u2028 State=RESUME"


@given(st.text(max_size=500) | st.just(HOSTILE))
def test_hostile_text_stays_one_word_that_can_be_shown(text: str) -> None:
    """Red without ``_plain``, and when what was filled in is filled in again."""
    words = argv(SCONTROL, HELD._replace(sentence=text, cls=text, run=text, host=text))
    assert len(words) == len(SCONTROL)
    assert words[:2] == ("scontrol", "update")
    assert all(word.isprintable() for word in words)
    assert len(words[2]) <= len("NodeName=") + NAME
    assert len(words[4]) <= len("Reason=") + REASON


def test_a_real_command_is_run_once_for_each_host(tmp_path: Path) -> None:
    out = tmp_path / "words"
    command = (sys.executable, "-c", PROGRAM, str(out), "{host}", "{reason}")
    other = HELD._replace(host="gpu08~1", sentence=HOSTILE)
    said, outcomes, _ = run(command, HELD, other, HELD)
    assert outcomes == {HELD.host: "done", other.host: "done"}
    assert said == [f"drain_command for {HELD.host}: done", f"drain_command for {other.host}: done"]
    first, second = (json.loads(line) for line in out.read_text().splitlines())
    assert first == ["gpu07", "remuster run7: gpu_ecc: rank 1 on gpu07 found an ECC error"]
    assert second[1].startswith("remuster run7: gpu_ecc: $(reboot) `id`; [31mred {host} {reason} 'q'")


@pytest.mark.parametrize(
    ("command", "says"),
    [
        (("/no/scontrol",), "/no/scontrol could not be started: No such file or directory; drain it by hand"),
        (
            (sys.executable, "-c", "import sys; sys.exit('slurm_update error: Access\\x1b/permission denied')"),
            "ended with exit code 1: slurm_update error: Access /permission denied; drain it by hand",
        ),
        ((sys.executable, "-c", "import os; os.kill(os.getpid(), 15)"), "ended with signal 15: it said nothing"),
    ],
)
def test_what_went_wrong_is_one_line(command: tuple[str, ...], says: str) -> None:
    said, outcomes, _ = run(command, HELD)
    assert len(said) == 1
    assert says in said[0]
    assert says in outcomes[HELD.host]


def test_a_command_that_hangs_is_killed_and_holds_nobody_up(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    code = f"import os, time; open({str(pid)!r}, 'w').write(str(os.getpid())); time.sleep(600)"
    began = time.monotonic()
    said, _, took = run((sys.executable, "-c", code), HELD, limit_s=1.0)
    assert took < 0.5
    assert time.monotonic() - began < 9
    assert "gave no answer within 1 s and was killed; drain it by hand" in said[0]
    assert not os.path.exists(f"/proc/{pid.read_text()}")
