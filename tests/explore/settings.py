"""The searches that are made: every one holds, and each plant is looked for in one of them.

Bounds: one or two faults (each setting says which), two or three nodes, every order of what is in its ``lag``. All
searches of ``SHORT`` and those of the plants are complete within these bounds, with liveness. ``LONG`` are for the
soak: complete, but for "1:2 all late" with crash, outage, cut or stop, and perhaps for "1:2: stop and cut" and "2 and a
spare: cut and power" (more than 350,000 worlds), which end at ``most_states``: there safety alone was looked at.
"""

from __future__ import annotations

from dataclasses import replace

from .setting import ALL_LATE, LATE, Setting

TWO = Setting("1:2", finish=False)
RANK = replace(TWO, name="1:2: rank", faults={"rank": 1})
CRASH = replace(TWO, name="1:2: crash", faults={"crash": 1})
CUT = replace(TWO, name="1:2: cut", faults={"cut": 1})
STOP = replace(TWO, name="1:2: stop", faults={"stop": 1})
LEAVE = replace(TWO, name="1:2: leave", faults={"leave": 1})
COLD_CUT = replace(CUT, name="1:2 from nothing: cut", warm=False)
COLD_STOP = replace(STOP, name="1:2 from nothing: stop", warm=False)
COLD_RANK = replace(RANK, name="1:2 from nothing: rank", warm=False)
COLD_SKIP = replace(COLD_RANK, name="1:2 from nothing: rank, a watch that skips", skip=True)
SPARE = Setting("2 and a spare: rank", nodes="ABC", low=2, faults={"rank": 1})
SPARE_POWER = replace(SPARE, name="2 and a spare: power, no victims", faults={"power": 1}, victims=False)
SPARE_POWERS = replace(SPARE, name="1:2 and a spare: power twice", low=1, faults={"power": 2})
BOTH = replace(TWO, name="2 of 2: stop, no victims", low=2, faults={"stop": 1}, victims=False)
RANK_CRASH = replace(TWO, name="1:2: rank and crash", faults={"rank": 1, "crash": 1})
READY_HELD_UP = replace(
    TWO, name="1:2: rank twice, ready held up", faults={"rank": 2, "delay": 1}, lag=LATE | {"ready"}
)
STOP_HELD_UP = replace(TWO, name="1:2: rank twice, stop held up", faults={"rank": 2, "delay": 1}, lag=LATE | {"stop"})
CUT_HELD_UP = replace(TWO, name="1:2: cut, stop held up", faults={"cut": 1, "delay": 1}, lag=LATE | {"stop"})
HANG = replace(TWO, name="1:2: hang and rank", faults={"hang": 1, "rank": 1})
FINISH = replace(TWO, name="1:2: ranks finish", finish=True)
FINISH_RANK = replace(FINISH, name="1:2: ranks finish, rank", faults={"rank": 1})
FINISH_CUT = replace(FINISH, name="1:2: ranks finish, cut", faults={"cut": 1})
CHECKPOINT = replace(TWO, name="2 of 2: rank and checkpoint", low=2, faults={"rank": 1, "checkpoint": 1})
NAMESAKE = Setting("1:2: a namesake on another host", nodes="ABb")
AGAIN = Setting("1:2: fails, a later launch", nodes="ABc", later="c", budget=0, faults={"rank": 1})
LATE_PEER = Setting("1: done, a later launch of two", nodes="Abc", high=1, later="bc", finish=True)
FROZEN_MACHINE = replace(TWO, name="1:2: the whole machine freezes", faults={"freeze": 1})

ONE_FAULT = ("rank", "crash", "power", "stop", "cut", "outage", "guardian", "leave")
LARGE = ("stop", "cut")
WRITES = LATE | {"ready", "stop", "master"}
THREE = Setting("2 and a spare", nodes="ABC", low=2)
GROWN = Setting("2:3, three run", nodes="ABC", low=2, high=3)

# Complete in seconds each.
SHORT = (
    *(replace(TWO, name=f"1:2: {kind}", faults={kind: 1}) for kind in ONE_FAULT),
    *(
        replace(THREE, name=f"2 and a spare: {kind}", faults={kind: 1})
        for kind in ONE_FAULT
        if kind not in ("stop", "cut")
    ),
    *(
        replace(TWO, name=f"1:2: {k}, all late", faults={k: 1}, lag=ALL_LATE)
        for k in ("rank", "guardian", "leave", "power")
    ),
    replace(TWO, name="1:2: rank, a grace", faults={"rank": 1}, grace=True),
    replace(TWO, name="1:2: leave, a grace", faults={"leave": 1}, grace=True),
    replace(TWO, name="1:2: rank and leave", faults={"rank": 1, "leave": 1}),
    replace(TWO, name="1:2: power and rank", faults={"power": 1, "rank": 1}),
    replace(TWO, name="1:2: guardian and crash", faults={"guardian": 1, "crash": 1}),
    replace(TWO, name="1:2: ranks finish, crash", faults={"crash": 1}, finish=True),
    replace(GROWN, name="2:3: power", faults={"power": 1}),
    Setting("1:2: a late joiner, rank", nodes="Ab", faults={"rank": 1}),
)
# Minutes each.
LONG = (
    *(replace(THREE, name=f"2 and a spare: {kind}", faults={kind: 1}) for kind in LARGE),
    COLD_STOP,
    replace(
        TWO, name="1:2: cut, any write held up", faults={"cut": 1, "delay": 1}, lag=LATE | {"ready", "stop", "master"}
    ),
    replace(
        TWO, name="1:2: rank, any write held up", faults={"rank": 1, "delay": 1}, lag=LATE | {"ready", "stop", "master"}
    ),
    *(
        replace(TWO, name=f"1:2: {k}, all late", faults={k: 1}, lag=ALL_LATE)
        for k in ("crash", "outage", "cut", "stop")
    ),
    *(
        replace(TWO, name=f"1:2: {a} and {b}", faults={a: 1, b: 1})
        for a, b in (
            ("cut", "crash"),
            ("stop", "cut"),
            ("cut", "rank"),
            ("outage", "rank"),
            ("outage", "crash"),
            ("leave", "cut"),
        )
    ),
    *(
        replace(THREE, name=f"2 and a spare: {a} and {b}", faults={a: 1, b: 1})
        for a, b in (("rank", "crash"), ("power", "rank"), ("leave", "crash"), ("cut", "power"))
    ),
    replace(GROWN, name="2:3, three run: cut", faults={"cut": 1}),
)
