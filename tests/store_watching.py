"""Collects what a watch yields, with a deadline. Not a test module."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from remuster.rendezvous.store import WatchBatch, WatchEvent


async def take_batches(watch: AsyncIterator[WatchBatch], count: int, timeout_s: float = 30.0) -> list[WatchBatch]:
    """Return the batches that hold the next ``count`` events; more than that in the last one is an error."""
    batches: list[WatchBatch] = []

    async def collect() -> None:
        while sum(len(batch.events) for batch in batches) < count:
            batches.append(await anext(watch))

    await asyncio.wait_for(collect(), timeout_s)
    assert sum(len(batch.events) for batch in batches) == count
    return batches


async def take(watch: AsyncIterator[WatchBatch], count: int, timeout_s: float = 30.0) -> list[WatchEvent]:
    """Return the next ``count`` events."""
    return [event for batch in await take_batches(watch, count, timeout_s) for event in batch.events]
