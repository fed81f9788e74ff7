"""A process of its own that reads NVIDIA's driver for the agent: calls into a broken driver may hang, or kill it.

Executed by ``gpu_start.py`` without site and the user's environment; the agent itself never imports pynvml.
One thread waits for events (XIDs, ECC, recovery actions) and, when none has come for a while, looks at all GPUs; the
other looks when the agent asks. Records, each a JSON object: ``gpu`` (what is known of one, when that has changed),
``event``, ``looked`` (the answer: all is told), ``use`` (the answer to ``use``: how busy GPUs are), ``lacked`` (why
there is no more). It ends with the agent.

Events from before their registration are never delivered, later ones wait for us, each XID with its own number
(NVIDIA's documentation of nvmlDeviceRegisterEvents and nvmlEventSetWait, on Linux).
"""

from __future__ import annotations

import _socket
import ctypes
import importlib
import json
import os
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

from .gpu_read import Identity, identity, read, unopened, use
from .linux import boottime, die_with_parent, retitle

NAME = "gpu-watcher"
# Double-bit ECC, XID, ECC storm, retired DRAM, poison, GPU unavailable, recovery action. Not: clocks, power, P states.
EVENTS = 0x2 | 0x8 | 0x200 | 0x400 | 0x800 | 0x1000 | 0x2000 | 0x4000 | 0x8000
TIMED_OUT = 10  # nvmlReturn_t
AGAIN_S = 1.0  # between waits that fail


class _Card:
    """One GPU as the driver counts them; of one without ``handle`` no more is known than it was when we came."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.handle: Any = None
        self.which = Identity()
        self.unopened: dict[str, object] = {}
        self.told: dict[str, object] = {}  # what was read of it last


class _Driver:
    """The driver through ``nvml``, the module; ``tell`` sends a record."""

    def __init__(self, nvml: Any, tell: Callable[[dict[str, object]], None], wait_s: float) -> None:
        self._nvml = nvml
        self._tell = tell
        self._wait_s = wait_s
        self._cards: list[_Card] = []
        self._set: Any = None
        self._deaf: list[str] = []  # GPUs whose events cannot be had, and why
        self._back_s = boottime()  # when the last wait for events returned

    def open(self) -> None:
        """Find the GPUs and begin to record their events. Raises NVMLError."""
        self._nvml.nvmlInit()
        self._cards = [self._card(number) for number in range(self._nvml.nvmlDeviceGetCount())]
        self._register()

    def _card(self, number: int) -> _Card:
        card, nvml = _Card(number), self._nvml
        try:
            card.handle = nvml.nvmlDeviceGetHandleByIndex(number)
        except nvml.NVMLError as error:
            card.unopened = unopened(nvml, error)
            return card
        card.which = identity(nvml, card.handle)
        return card

    def _register(self) -> None:
        """Have events recorded in a new set: of all GPUs that are not lost, since one that is fails every wait."""
        nvml = self._nvml
        if self._set is not None:
            nvml.nvmlEventSetFree(self._set)
        self._set, deaf = nvml.nvmlEventSetCreate(), list[str]()
        for card in self._cards:
            if card.handle is None or card.told.get("lost"):
                continue
            try:
                types = EVENTS & nvml.nvmlDeviceGetSupportedEventTypes(card.handle)
                nvml.nvmlDeviceRegisterEvents(card.handle, types, self._set)
            except nvml.NVMLError as error:
                deaf.append(f"GPU {card.number}: {error}")
        self._deaf = deaf

    def listen(self) -> None:
        """Tell events for ever; call it on a thread of its own."""
        nvml, failed_s = self._nvml, 0.0
        while True:
            self._back_s = boottime()
            try:
                data = nvml.nvmlEventSetWait(self._set, int(self._wait_s * 1000))
            except nvml.NVMLError as error:
                self._look_at_all()
                if error.value != TIMED_OUT:  # a GPU is lost, and the others' events between two sets are, too
                    if self._back_s - failed_s < AGAIN_S:
                        time.sleep(AGAIN_S)
                    failed_s = boottime()
                    self._register()
                continue
            self._heard(data, boottime())

    def _heard(self, data: Any, at_s: float) -> None:
        for card in self._cards:
            if card.handle is not None and _address(card.handle) == _address(data.device):
                kind, said = int(data.eventType), int(data.eventData)
                self._tell({"is": "event", "number": card.number, "type": kind, "data": said, "at_s": at_s})
                self._look(card)

    def answer(self, question: int) -> None:
        """Tell all that is known of every GPU now."""
        self._look_at_all()
        late_s = boottime() - self._back_s - self._wait_s
        self._tell({"is": "looked", "asked": question, "deaf": self._deaf, "late_s": max(0.0, late_s)})

    def answer_use(self) -> None:
        """Tell how busy each GPU is of which the driver says so, in percent."""
        found = [(card.number, use(self._nvml, card.handle)) for card in self._cards if card.handle is not None]
        self._tell({"is": "use", "percent": [one for one in found if one[1] is not None]})

    def _look_at_all(self) -> None:
        for card in self._cards:
            self._look(card)

    def _look(self, card: _Card) -> None:
        """Read one GPU, and tell it unless it is as it was told last."""
        at_s = boottime()
        found = card.unopened or read(self._nvml, card.handle)
        if found != card.told:
            card.told = found
            who = {"number": card.number, "at_s": at_s, **card.which._asdict()}
            self._tell({"is": "gpu", **who, **found})


def _address(handle: Any) -> int | None:
    return ctypes.cast(handle, ctypes.c_void_p).value


def main(fd: int, agent: int, wait_s: float) -> None:
    """Serve the agent whose pid is ``agent`` until it ends, or closes its end of ``fd``."""
    die_with_parent(signal.SIGKILL)  # closing the socket ends no call that hangs
    if os.getppid() != agent:
        os._exit(0)
    retitle(NAME)
    end = _socket.socket(fileno=fd)

    def tell(record: dict[str, object]) -> None:
        try:
            end.send(json.dumps(record).encode())
        except OSError:
            os._exit(0)

    try:
        nvml: Any = importlib.import_module("pynvml")
    except ImportError as error:
        tell({"is": "lacked", "why": f"pynvml cannot be imported ({error}); install nvidia-ml-py"})
        return
    driver = _Driver(nvml, tell, wait_s)
    try:
        driver.open()
    except nvml.NVMLError as error:
        tell({"is": "lacked", "why": f"NVIDIA's driver cannot be asked ({error}); look at nvidia-smi"})
        return
    driver.answer(0)
    threading.Thread(target=driver.listen, daemon=True).start()
    while question := end.recv(64):
        if question == b"use":
            driver.answer_use()
        else:
            driver.answer(int(question))
    os._exit(0)  # no call that still runs is waited for
