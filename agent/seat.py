"""The agent's place between its keeper and its guardian, as ``keeper.run`` hands it to the body."""

from __future__ import annotations

import array
import os
import socket
from collections.abc import Mapping
from typing import NamedTuple

from .linux import boottime
from .page import Page
from .spawn import spawn_guardian


class Seat(NamedTuple):
    """What the agent needs to speak with keeper and guardian. One for the agent's life."""

    page: Page
    keeper: int
    keeper_fd: int  # ends of file when the keeper has gone
    environ: Mapping[str, str]  # what the ranks' environments are told apart from
    guardian: int  # the first guardian, started before the body
    guardian_fd: int
    open_files: int  # how many the command was started with leave for, and its ranks are

    def set_lease(self, inc: int, deadline_s: float) -> None:
        """Tell the keeper, the second fence, by which lease and until when ranks may live."""
        self.page.set_lease(inc)
        before_s = self.page.deadline_s
        self.page.set(deadline_s)
        if deadline_s < before_s or before_s <= boottime():  # its timer does not look at the page by itself then
            self._send_keeper(())

    def hold(self, lock_fd: int) -> None:
        """Let the keeper hold the node's lock too, until it exits."""
        self._send_keeper((lock_fd,))

    def spawn_guardian(self) -> tuple[int, int]:
        """Start another guardian in the place of a dead one; return its pid and our end of its socket."""
        pid, fd = spawn_guardian(self.environ)
        if os.sysconf("SC_OPEN_MAX") != self.open_files:  # the agent has raised its own
            from .limits import limit_files

            limit_files(pid, self.open_files)
        self.page.set_guardian(pid)
        return pid, fd

    def _send_keeper(self, fds: tuple[int, ...]) -> None:
        with socket.socket(fileno=os.dup(self.keeper_fd)) as end:
            try:
                send_record(end, b"!", fds, socket.MSG_DONTWAIT)
            except BlockingIOError:
                return  # it has not read the last nudge yet, and will read the page
            except ConnectionError:
                return  # it has gone: whoever watches keeper_fd says so


def send_record(end: socket.socket, record: bytes, fds: tuple[int, ...], flags: int = 0) -> None:
    """Send one record, and with it ``fds``, which the other side then holds too."""
    ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
    end.sendmsg([record], ancillary, flags)
