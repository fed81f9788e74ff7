"""How long absence is doubted. NFS attribute caches hide files that another node has written, up to a minute.

One ``Patience`` is shared by everything that one selection or publication looks for, so that a directory full of
torn steps cannot add its waits up. Owns the remaining waits; the sleeping function is given by tests.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

WAITS_S = (0.5, 1.5, 3.0)  # a listing makes the client ask the server again; 5 s cover acregmin (3 s)


class Patience:
    """The waits that may still be spent on something that seems absent."""

    def __init__(self, waits_s: Sequence[float] = WAITS_S, sleep: Callable[[float], object] = time.sleep) -> None:
        self._waits_s = list(waits_s)
        self._sleep = sleep

    def again(self) -> bool:
        """Wait once and return True, or return False when no wait is left. Blocks."""
        if not self._waits_s:
            return False
        self._sleep(self._waits_s.pop(0))
        return True
