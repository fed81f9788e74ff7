"""Every time that was asked for rings, also those behind an earlier one."""

from __future__ import annotations

import asyncio

from remuster.agent.alarms import Alarm
from remuster.agent.linux import boottime


async def test_a_later_time_survives_an_earlier_one() -> None:
    rung: list[float] = []
    twice = asyncio.Event()

    def ring() -> None:
        rung.append(boottime())
        if len(rung) == 2:
            twice.set()

    alarm = Alarm(ring)
    start = boottime()
    alarm.set(start + 0.05)
    alarm.set(start + 0.01)
    alarm.set(start + 0.05)
    await asyncio.wait_for(twice.wait(), 5)
    assert rung[0] >= start + 0.01
    assert rung[1] >= start + 0.05
    assert len(rung) == 2


async def test_a_stopped_alarm_is_silent() -> None:
    rung: list[int] = []
    alarm = Alarm(lambda: rung.append(1))
    alarm.set(boottime() + 0.01)
    alarm.stop()
    other = asyncio.Event()
    later = Alarm(other.set)
    later.set(boottime() + 0.03)
    await asyncio.wait_for(other.wait(), 5)
    assert not rung
