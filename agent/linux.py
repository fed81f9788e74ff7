"""The few system calls that ``os`` does not offer: prctl, a timer that counts suspend, signals as a file, own title.

For the keeper, the guardian and the child of its fork, which must start in milliseconds and import nothing later:
only ``os``, ``ctypes`` and ``time`` are loaded. Each call raises ``OSError`` with the kernel's reason.
"""

from __future__ import annotations

import ctypes
import os
import sys
import time

TYPE_CHECKING = False  # typing's own costs 4 ms; checkers know the bare name
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Final

NEVER = float("inf")
SI_KERNEL = 0x80  # siginfo's code of a signal that a terminal sent, not a process

_PR_SET_PDEATHSIG = 1
_PR_SET_NAME = 15
_PR_SET_CHILD_SUBREAPER = 36
_TFD_TIMER_ABSTIME = 1
_SIGINFO_BYTES = 128

_libc = ctypes.CDLL(None, use_errno=True)


class _Timespec(ctypes.Structure):
    _fields_ = (("s", ctypes.c_long), ("ns", ctypes.c_long))


class _Itimerspec(ctypes.Structure):
    _fields_ = (("interval", _Timespec), ("value", _Timespec))


def _checked(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


def _prctl(option: int, value: object) -> None:
    zero = ctypes.c_ulong(0)
    _checked(_libc.prctl(option, value, zero, zero, zero))


def boottime() -> float:
    """Return seconds since boot, suspended time included."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def become_subreaper() -> None:
    """Make orphans among this process's descendants its children."""
    _prctl(_PR_SET_CHILD_SUBREAPER, ctypes.c_ulong(1))


def die_with_parent(signum: int) -> None:
    """Ask for ``signum`` when the thread that forked this process ends; then compare getppid: it may be late."""
    _prctl(_PR_SET_PDEATHSIG, ctypes.c_ulong(signum))


def retitle(name: str) -> None:
    """Overwrite the command line that ``ps`` and ``pkill -f`` see with ``name``, and the process's short name."""
    with open("/proc/self/stat", "rb") as file:
        fields = file.read().rpartition(b")")[2].split()
    start, end = int(fields[45]), int(fields[46])  # proc(5): arg_start and arg_end, fields 48 and 49
    title = os.fsencode(name)[: end - start - 1]  # the last byte stays 0, or ps reads on into the environment
    ctypes.memset(start, 0, end - start)
    ctypes.memmove(start, title, len(title))
    _prctl(_PR_SET_NAME, ctypes.c_char_p(os.fsencode(name)[:15]))


def signal_file(signals: Iterable[int]) -> int:
    """Return a non-blocking file that yields ``signals``, which the caller has blocked."""
    width = 8 * ctypes.sizeof(ctypes.c_ulong)
    words = [0] * (1024 // width)
    for number in signals:
        words[(number - 1) // width] |= 1 << ((number - 1) % width)
    mask = (ctypes.c_ulong * len(words))(*words)
    return _checked(_libc.signalfd(-1, mask, os.O_CLOEXEC | os.O_NONBLOCK))


def read_signals(fd: int) -> list[tuple[int, int]]:
    """Return (number, si_code) of each signal that waits in ``fd``."""
    try:
        data = os.read(fd, 32 * _SIGINFO_BYTES)
    except BlockingIOError:
        return []
    return [
        (
            int.from_bytes(data[at : at + 4], sys.byteorder),
            int.from_bytes(data[at + 8 : at + 12], sys.byteorder, signed=True),
        )
        for at in range(0, len(data), _SIGINFO_BYTES)
    ]


class BootTimer:
    """A file that becomes readable at a time of ``boottime()``; poll's own timeout does not count suspended time."""

    fd: Final[int]

    def __init__(self) -> None:
        self.fd = _checked(_libc.timerfd_create(time.CLOCK_BOOTTIME, os.O_CLOEXEC | os.O_NONBLOCK))

    def arm(self, at_s: float) -> None:
        """Fire at ``at_s``, at once when that is over, or not at all for ``NEVER``."""
        ns = 0 if at_s == NEVER else max(1, int(at_s * 1e9))  # 0 disarms
        value = _Itimerspec(_Timespec(0, 0), _Timespec(ns // 10**9, ns % 10**9))
        _checked(_libc.timerfd_settime(self.fd, _TFD_TIMER_ABSTIME, ctypes.byref(value), None))

    def clear(self) -> None:
        """Take a firing off the file, so that poll rests until the next."""
        try:
            os.read(self.fd, 8)
        except BlockingIOError:
            return


def sealed_memory(name: str, size: int) -> int:
    """Return the descriptor of ``size`` bytes of shared memory that nobody can cut short, whoever opens it in /proc.

    Whoever has mapped a file that is cut short dies of SIGBUS.
    """
    import fcntl  # not for the guardian

    fd = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.ftruncate(fd, size)
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
    except BaseException:
        os.close(fd)
        raise
    return fd
