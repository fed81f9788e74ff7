"""What a living rank writes when it goes on after its alarm."""

from __future__ import annotations

import pytest

from remuster.health.going_on import LONGEST, GoingOn

BAR = "\rtrain:  {0}%|##    | {0}/100 [00:07<01:30,  1.00it/s]"


@pytest.mark.parametrize(
    ("text", "steps"),
    [
        ("step 8 loss 1.0\nstep 9 loss 1.0\n", 2),
        ("step 8 loss 1.0\nstep 9", 1),
        ("".join(map(BAR.format, (7, 8, 9))) + "\r", 2),
        (BAR.format(7) * 5 + "\n", 0),
        (BAR.format(9) + BAR.format(7) + "\n", 0),
        ("step 8 " + "x" * LONGEST + "\n", 0),
        ("rank 3 waits\n" * 5, 0),
    ],
    ids=["lines", "no end", "a bar that moves", "a bar that is drawn again", "another bar", "too long", "other words"],
)
def test_steps_forward(text: str, steps: int) -> None:
    raw = text.encode()
    assert GoingOn().count(raw) == steps
    one = GoingOn()
    assert sum(one.count(raw[i : i + 1]) for i in range(len(raw))) == steps, "wherever blocks end"
