"""Steps of the wall clock, in the real command: they make no hang, and they hide none."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from command.cluster import Place

pytestmark = pytest.mark.process

CLOCK = Path(__file__).parents[1] / "drills" / "clock.c"
DAY_S = 86400
# Says steps while the wall clock goes a day on, and two back; then hangs, and the clock goes on again.
TRAIN = f"""
import os, time
import remuster
from pathlib import Path
clock = Path(os.environ["DRILL_CLOCK"])
for step in range(30):
    if step in (10, 20):
        before = time.time()
        clock.write_text(str({DAY_S} if step == 10 else -{DAY_S}))
        assert abs(time.time() - before) > {DAY_S // 2}
    time.sleep(0.1)
    remuster.heartbeat(step + 1)
clock.write_text(str({DAY_S}))
time.sleep(600)
"""


def test_steps_of_the_wall_clock_make_no_hang_and_hide_none(place: Place, tmp_path: Path) -> None:
    library, clock = tmp_path / "clock.so", tmp_path / "clock"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, CLOCK, "-ldl"], check=True)
    clock.write_text("0")
    env = {"LD_PRELOAD": str(library), "DRILL_CLOCK": str(clock)}
    node = place.command("--hang-timeout", "1.5", place.script("train.py", TRAIN), env=env)
    assert node.exit_code() == 75, node.say()
    (record,) = node.records()
    (silent,) = [fact for one in record["evidence"] for fact in one["facts"] if fact["is"] == "silence"]
    assert silent["step"] == 30
    assert 1.5 <= silent["silent_s"] < 30
