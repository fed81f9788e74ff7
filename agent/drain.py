"""Tells the site's scheduler of a host in quarantine, by the command that its configuration gives (``[site]``).

``argv`` is pure; ``Drain`` runs it, beside the job: each in a child of its own, bounded in time, on the agent that
judged, once for each host. Whatever it comes to is one line. Loaded by ``ledger.py`` when a host is in quarantine.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from typing import NamedTuple

from .bounded_child import ChildTrouble, ask_child
from .spec import DRAIN_WORDS

LIMIT_S = 20.0  # a controller that is busy answers within its own ten seconds, or never
DEATH_S = 6.0  # beyond that, for a child that was killed
REASON = 200  # characters; schedulers show them in one column
NAME = 128
SAID = 300


class Held(NamedTuple):
    """A host in quarantine, by which run, and why."""

    host: str  # as ``identity.Machine.lasting`` has it
    run: str
    cls: str
    sentence: str


def argv(command: tuple[str, ...], held: Held) -> tuple[str, ...]:
    """Fill the words of the command in. A word stays one word, and what others wrote has no control characters."""
    host = held.host.partition("~")[0]
    reason = f"remuster {held.run}: {held.cls}: {held.sentence}"
    texts = (_plain(host, NAME), _plain(reason, REASON), _plain(held.run, NAME), _plain(held.cls, NAME))
    meant: dict[str, str] = dict(zip(DRAIN_WORDS, texts, strict=True))
    holder = "{(" + "|".join(DRAIN_WORDS) + ")}"
    return tuple(re.sub(holder, lambda found: meant[found[1]], word) for word in command)


def _plain(text: str, most: int) -> str:
    """Return printable text within a bound; nothing else reaches the scheduler's records and its users' terminals."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())[:most]


class Drain:
    """Runs the command for hosts, one after the other. ``spare`` is given the pid of the child that runs."""

    def __init__(
        self,
        command: tuple[str, ...],
        spare: Callable[[tuple[int, ...]], None],
        say: Callable[[str], None],
        limit_s: float = LIMIT_S,
    ) -> None:
        self._command = command
        self._spare = spare
        self._say = say
        self._limit_s = limit_s
        self._work: asyncio.Task[None] | None = None
        self.outcomes: dict[str, str] = {}  # by host; '' while it is under way

    def drain(self, held: Held) -> None:
        """Have the host drained, unless it was; returns at once."""
        if held.host not in self.outcomes:
            self.outcomes[held.host] = ""
            self._work = asyncio.ensure_future(self._after(self._work, held))

    async def settle(self) -> None:
        """Wait, within the limit of one command, for what is under way."""
        if self._work is not None:
            _, late = await asyncio.wait({self._work}, timeout=self._limit_s + DEATH_S)
            for task in late:
                task.cancel()
                waiting = ", ".join(host for host, outcome in self.outcomes.items() if not outcome)
                self._say(f"drain_command was too slow: {waiting} not drained by it")

    async def _after(self, before: asyncio.Task[None] | None, held: Held) -> None:
        if before is not None:
            await asyncio.wait({before})
        outcome = await self._run(argv(self._command, held))
        self.outcomes[held.host] = outcome
        self._say(f"drain_command for {held.host}: {outcome}")

    async def _run(self, words: tuple[str, ...]) -> str:
        heard: list[str] = []
        try:
            reply = await ask_child(words, b"", timeout_s=self._limit_s, spare=self._spare, say=heard.append)
        except ChildTrouble as error:
            return f"{words[0]} {error}; drain it by hand"
        if not reply.status:
            return "done"
        how = f"exit code {reply.status}" if reply.status > 0 else f"signal {-reply.status}"
        said = _plain(reply.last_words or reply.out.decode(errors="replace"), SAID) or "it said nothing"
        return f"{words[0]} ended with {how}: {said}; drain it by hand"
