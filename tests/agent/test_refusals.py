"""How long a store that refuses writes is borne."""

from __future__ import annotations

import pytest

from remuster.agent.refusals import Refusals
from remuster.rendezvous.errors import PermanentError

FULL = PermanentError("etcd is out of space")


async def test_a_refusal_that_goes_on_is_raised_in_the_end_and_said_once() -> None:
    said: list[str] = []
    refusals = Refusals(said.append, borne_s=0.5)
    await refusals.bear(FULL, "stop")
    with pytest.raises(PermanentError):
        await refusals.bear(FULL, "stop")
    assert said == ["the store refuses (stop): etcd is out of space; trying again for 0.5 s"]


async def test_a_write_that_is_taken_ends_it() -> None:
    said: list[str] = []
    refusals = Refusals(said.append, borne_s=0.5)
    await refusals.bear(FULL, "stop")
    refusals.taken()
    await refusals.bear(FULL, "ready")
    assert len(said) == 2


async def test_one_from_long_ago_does_not_count_whatever_became_of_its_write() -> None:
    said: list[str] = []
    refusals = Refusals(said.append, borne_s=0.5, stale_s=0.5)
    await refusals.bear(FULL, "lead")
    await refusals.bear(FULL, "stop")  # a second later
    assert len(said) == 2
