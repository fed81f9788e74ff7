"""The first contact with an etcd: wait for it while that may help, and say in words what is wrong if it does not come.

Later on the store's own errors serve: what has answered once may be gone, but it is an etcd. Called by
``agent/meeting`` before the agent joins.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import NamedTuple

from . import etcd_version
from .errors import PermanentError, TransientError
from .etcd import EtcdStore
from .etcd_aside import aside
from .etcd_channel import Links, Trouble
from .etcd_config import Endpoint
from .etcd_probe import Seen, look
from .etcd_status import sentence

_FIRST_LOOK_S = 1.0  # a healthy etcd has answered by then
_LOOKS_S = 8.0  # between looks, at the most
_LOOK_S = 3.0
_GLANCE_S = 0.5  # at members that are not needed now
_NAMES_S = 2.0  # for the name server, which a look's time does not bound


class Contact(NamedTuple):
    """Who answered: the oldest version among the members, and what a job risks on it, if anything."""

    version: str
    advice: str | None


async def first_contact(store: EtcdStore, key: str, timeout_s: float, say: Callable[[str], None]) -> Contact:
    """Read ``key`` once, which takes a quorum and the right to read; say what is waited for, once for each trouble.

    PermanentError: waiting does not help. TransientError: there was no answer within ``timeout_s``. Both say what is
    where, and what to do.
    """
    links = store.links
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout_s
    pause_s = _FIRST_LOOK_S
    said = ""
    reading = asyncio.ensure_future(_read(store, key))
    try:
        while not await _over(reading, min(pause_s, deadline - loop.time())):
            found = await _look_around(links, links.config.endpoints, _LOOK_S)
            words = "; ".join(one.words for one in found)
            if await _over(reading, 0.0):
                break
            if all(one.final for one in found):
                raise PermanentError(f"there is no etcd to meet in: {words}")
            if loop.time() >= deadline:
                raise TransientError(
                    f"no answer from etcd within {timeout_s:g} s: {words}. Check the address, start etcd there, or"
                    " raise connect_timeout in --rdzv-conf"
                )
            if words != said:
                say(f"waiting for etcd, up to {timeout_s:g} s: {words}")
                said = words
            pause_s = min(2 * pause_s, _LOOKS_S)
    finally:
        reading.cancel()
        await asyncio.wait({reading})
    await _check_members(links, say)
    version = min(links.versions.values(), key=lambda version: etcd_version.parse(version) or (0, 0, 0))
    return Contact(version, etcd_version.advice(version))


async def _read(store: EtcdStore, key: str) -> None:
    while True:
        try:
            await store.range(key)
        except TransientError:
            await asyncio.sleep(_GLANCE_S)
        else:
            return


async def _over(reading: asyncio.Future[None], timeout_s: float) -> bool:
    """Wait for the answer; a refusal is raised."""
    await asyncio.wait({reading}, timeout=max(0.0, timeout_s))
    if reading.done():
        reading.result()
    return reading.done()


async def _look_around(links: Links, endpoints: Iterable[Endpoint], timeout_s: float) -> list[Trouble]:
    """Return what is at each of ``endpoints``, now that a read is overdue."""
    return await asyncio.gather(*(_look_at(links, endpoint, timeout_s) for endpoint in endpoints))


async def _look_at(links: Links, endpoint: Endpoint, timeout_s: float) -> Trouble:
    link, known, tls = links.link, links.troubles.get(endpoint), links.config.tls
    if link is not None and link.endpoint == endpoint:
        why = ", ".join(link.status.errors) or "it is slow, or most of its members are down"
        return Trouble(f"{endpoint} is an etcd, but does not answer a read ({why})", False)
    if known is not None and known.final:
        return known

    def work() -> Seen:
        if tls is None:
            return look(endpoint, timeout_s)
        from .etcd_probe_tls import look_with_tls

        return look_with_tls(endpoint, tls, timeout_s)

    seen = await aside(work, timeout_s + _NAMES_S) or Seen("has a name that is not resolved in time", False)
    return Trouble(f"{endpoint} {seen.words}", seen.final)


async def _check_members(links: Links, say: Callable[[str], None]) -> None:
    """Refuse a cluster that is broken, or that is two; say which members are missing."""
    link = links.link
    if link is not None:
        for error in link.status.errors:
            if "alarm:" in error:
                raise PermanentError(sentence("", error, str(link.endpoint)))
    links.settle()
    await links.survey(_GLANCE_S)
    for trouble in links.troubles.values():
        if trouble.foreign:
            raise PermanentError(trouble.words)
    for trouble in await _look_around(links, links.troubles, _GLANCE_S):
        say(f"going on without {trouble.words}")
