"""Verifies the first checkpoint that a round saves after it has resumed, for the job machine on the leading agent.

Ranks that go on from a checkpoint and save a whole one have recovered. Names, sizes and markers are looked at first,
and the content of a newer one is read once, by the search's own means, in threads beside the loop. Nobody waits for it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ..rendezvous.history import entry_of, passed_over, sized, steps
from ..rendezvous.leader_words import ProofSeen, Prove
from .files import FileThread
from .linux import boottime
from .spec import JobSpec

if TYPE_CHECKING:
    from ..checkpoint.examine import Seen

NEWEST_S = 3.0  # for a look at names, sizes and markers
NOT_NEW = "it was there before, and passed over"
ELSEWHERE = "it is not the newest"


class Verifier(NamedTuple):
    """What verifies. ``seen``: what this agent has found whole, which the next search need not read again."""

    spec: JobSpec
    seen: Seen
    recovered: Callable[[Prove, int], None]  # told once

    async def prove(self, ask: Prove) -> ProofSeen | None:
        """Look once for a newer checkpoint and verify it; None where none can be seen, ever."""
        if self.spec.checkpoint_dir is None:
            return None
        step, enough, files = None, threading.Event(), FileThread("proof")
        try:
            name = await files.run(self._newer, self.spec.checkpoint_dir, ask, timeout_s=NEWEST_S)
            if name:
                step = await files.run(
                    self._verified, self.spec.checkpoint_dir, ask, name, enough, timeout_s=self.spec.resume_timeout_s
                )
        except (OSError, TimeoutError):
            step = None  # as if there were none yet: it is looked at again
        finally:
            enough.set()
            files.close()
        if step is not None:
            self.recovered(ask, step)
        return ProofSeen(boottime(), ask.round, step)

    def _newer(self, directory: Path, ask: Prove) -> str:
        """Return the name of the newest one that looks whole and is newer than the resume point; '' without any."""
        from ..checkpoint.errors import CheckpointError
        from ..checkpoint.examine import Asked
        from ..checkpoint.resume import newest

        old = {name for name, _ in passed_over(entry_of(ask.history, ask.round))}
        asked = Asked(
            self.spec.run_id,
            steps(ask.history),
            self.spec.checkpoint_format,
            deep=False,
            worlds=sized(ask.history),
            objection=lambda name: NOT_NEW if name in old else "",
        )
        try:
            found = newest(directory, asked)
        except CheckpointError as error:
            raise OSError(str(error)) from error
        return found.name if found is not None and found.step is not None and found.step > ask.above else ""

    def _verified(self, directory: Path, ask: Prove, name: str, enough: threading.Event) -> int | None:
        """Read that one; return its step if it is whole."""
        from ..checkpoint.errors import CheckpointError
        from ..checkpoint.examine import Asked
        from ..checkpoint.patience import Patience
        from ..checkpoint.resume import search

        asked = Asked(
            self.spec.run_id,
            steps(ask.history),
            self.spec.checkpoint_format,
            ask.world,
            give_up=enough.is_set,
            objection=lambda other: "" if other == name else ELSEWHERE,
            worlds=sized(ask.history),
        )
        try:
            found = search(directory, asked, Patience(()), self.seen)
        except CheckpointError as error:
            raise OSError(str(error)) from error
        return found.step if found.path and found.step > ask.above else None
