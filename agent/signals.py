"""Who takes the signals of this command: at first the wait for the store and for the node's name, then the agent.

What was ignored when the command was started stays so (nohup, a shell's background job). Used by ``main.py``;
``remuster leave`` sends one of them.
"""

from __future__ import annotations

import asyncio
import signal
from typing import TYPE_CHECKING

from . import node_words as words
from .linux import boottime

if TYPE_CHECKING:
    from collections.abc import Callable

    from .loop import Agent


LEAVE = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
FORWARD = (signal.SIGUSR1, signal.SIGUSR2)
LEAVE_SIGNAL = signal.SIGRTMIN + 7  # `remuster leave`; nobody else sends it


class Signals:
    """The handlers of this process. Each is set once: asyncio takes 0.1 ms for one, and no rank has started yet."""

    def __init__(self, stop: tuple[int, ...] = (), notice: tuple[int, ...] = ()) -> None:
        """Let ``stop`` end the job too, beside those that always do, and ``notice`` announce its end."""
        self.asked: list[int] = []  # what has ended the wait
        self._work = asyncio.current_task()
        self._agent: Agent | None = None
        self._noticed = 0
        handlers: dict[int, Callable[[int], None]] = dict.fromkeys(FORWARD, self._forward)
        handlers.update(dict.fromkeys((*LEAVE, LEAVE_SIGNAL, *stop), self._leave))
        handlers.update(dict.fromkeys(notice, self._notice))
        loop = asyncio.get_running_loop()
        self._heard = [number for number in handlers if signal.getsignal(number) is not signal.SIG_IGN]
        for number in self._heard:
            loop.add_signal_handler(number, handlers[number], number)

    def go_to(self, agent: Agent) -> None:
        self._agent = agent
        if self._noticed:
            self._notice(self._noticed)

    def close(self) -> None:
        """Let no signal change an exit code that is decided: a srun that kills on a bad exit signals those that follow.

        The loop would give back the handlers that end a process while the interpreter still has its end to make.
        """
        loop = asyncio.get_running_loop()
        signal.pthread_sigmask(signal.SIG_BLOCK, self._heard)
        for number in self._heard:
            loop.remove_signal_handler(number)
            signal.signal(number, signal.SIG_IGN)

    def _notice(self, number: int) -> None:
        self._noticed = number
        if self._agent is not None:
            self._agent.post(words.NoticeGiven(boottime(), number))

    def _leave(self, number: int) -> None:
        if self._agent is not None:
            self._agent.post(words.LeaveAsked(boottime(), 0 if number == LEAVE_SIGNAL else number))
        elif self._work is not None:
            self.asked.append(number)
            self._work.cancel()

    def _forward(self, number: int) -> None:
        if self._agent is not None:  # else there is no rank yet
            self._agent.forward(number)
