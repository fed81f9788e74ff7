"""The agents of this machine as the minder of their store knows them: by the connections that they hold open.

Owned by `minder.py`; its words are those of `minder_orders.py`.
"""

from __future__ import annotations

import json
import select
import socket

from .minder_orders import BYE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final


class Guest:
    """One agent, by its connection."""

    def __init__(self, end: socket.socket) -> None:
        self.end: Final = end
        self.served = False  # it has been told where the store is
        self.waiting = False  # it has been told what it must wait for
        self._left = False

    def serve(self, **words: str) -> None:
        """Tell it where the store is."""
        self.served = True
        self._send(**words)

    def make_wait(self, sentence: str) -> None:
        """Tell it once what it waits for."""
        if not self.waiting:
            self.waiting = True
            self._send(say=sentence)

    def refuse(self, sentence: str) -> None:
        """Tell it that there is no store, or none any more."""
        self._send(error=sentence)

    def hear(self) -> tuple[bool, bool]:
        """Read what it says: whether it has gone, and whether without a farewell."""
        try:
            words = self.end.recv(64)
        except BlockingIOError:
            return False, False
        except ConnectionError:
            words = b""
        self._left = self._left or BYE in words
        return not words, not self._left

    def _send(self, **words: str) -> None:
        try:
            self.end.send(json.dumps(words).encode() + b"\n")
        except OSError:
            return  # it has gone: its connection says so


class Guests:
    """All who are connected, and how many have been killed and not come back."""

    def __init__(self, door: socket.socket, poll: select.poll) -> None:
        self.killed = 0
        self._door = door
        self._poll = poll
        self._all: dict[int, Guest] = {}
        self._came = False
        poll.register(door.fileno(), select.POLLIN)

    @property
    def served(self) -> int:
        return sum(guest.served for guest in self._all.values())

    @property
    def gone(self) -> bool:
        """Whether all who came have gone again."""
        return self._came and not self._all

    @property
    def asking(self) -> list[Guest]:
        """Those that have not been told where the store is."""
        return [guest for guest in self._all.values() if not guest.served]

    def attend(self, ready: set[int]) -> bool:
        """Let in and hear whoever is ``ready``; True when anybody came or went."""
        moved = self._door.fileno() in ready and self._welcome()
        for fd in ready & self._all.keys():
            guest = self._all[fd]
            gone, silently = guest.hear()
            if gone:
                self._poll.unregister(fd)
                del self._all[fd]
                guest.end.close()
                self.killed += guest.served and silently
                moved = True
        return moved

    def serve(self, guest: Guest, **words: str) -> None:
        """Tell ``guest`` where the store is; it may be one that was killed before."""
        self.killed = max(0, self.killed - 1)
        guest.serve(**words)

    def dismiss(self, error: str) -> None:
        """Let nobody in any more, and tell those who are here why, if there is a reason."""
        self._poll.unregister(self._door.fileno())
        self._door.close()
        for guest in self._all.values() if error else ():
            guest.refuse(error)

    def _welcome(self) -> bool:
        try:
            end, _ = self._door.accept()
        except (BlockingIOError, ConnectionError):
            return False
        end.setblocking(False)
        self._all[end.fileno()] = Guest(end)
        self._poll.register(end.fileno(), select.POLLIN)
        self._came = True
        return True
