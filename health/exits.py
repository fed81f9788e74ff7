"""What an exit status says when nothing better is known: a table, and the words for a status.

The verdict falls back on it; the report prints its words. Statuses are subprocess's: 0.., or -N for signal N. A shell
in between turns signal N into 128+N, so those read the same. Sites give other codes a meaning of their own; that
belongs in a map given by the user, not here.
"""

from __future__ import annotations

import errno
import os
import signal

_BY_STATUS = {
    0: "success",
    2: "user_args",  # argparse and Python's "can't open file"
    124: "rank_hang",  # coreutils timeout
    126: "user_args",
    127: "user_args",
    247: "killed_unknown",  # -9 taken modulo 256 by a launcher in between
}
_BY_SIGNAL = {
    signal.SIGINT: "user_interrupt",
    signal.SIGQUIT: "killed_unknown",
    signal.SIGILL: "segfault",  # the processor refused: wrong build, or a bad one
    signal.SIGBUS: "segfault",  # a mapped file or /dev/shm gave out, or memory did; only a kernel log can tell
    signal.SIGSEGV: "segfault",
    signal.SIGFPE: "user_exception",  # a native division by zero: the same inputs give it again
    signal.SIGKILL: "killed_unknown",  # not out of memory without proof
    signal.SIGTERM: "killed_unknown",
    signal.SIGHUP: "killed_unknown",
    signal.SIGUSR1: "preempted",  # schedulers' warning before the end; unhandled, it kills
    signal.SIGUSR2: "preempted",
}
# Signals that only the sender knows the reason of: the program itself did nothing wrong that we can see.
FROM_OUTSIDE = frozenset({signal.SIGKILL, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGINT})

_BY_ERRNO = {
    errno.ENOENT: "user_args",
    errno.ENOTDIR: "user_args",
    errno.EACCES: "user_args",
    errno.EPERM: "user_args",
    errno.ENOEXEC: "user_args",
    errno.EISDIR: "user_args",
    errno.E2BIG: "user_args",
    errno.EMFILE: "resource_limit",
    errno.ENFILE: "resource_limit",
    errno.EAGAIN: "resource_limit",
    errno.ENOMEM: "host_oom",
    errno.EIO: "fs_mount_lost",
    errno.ENOTCONN: "fs_mount_lost",
    errno.ESTALE: "fs_transient",
}


def signal_of(status: int) -> int:
    """Return the signal that ended the process, 0 when none did; 128+N of a shell counts."""
    number = -status if status < 0 else status - 128
    return number if number in set(signal.Signals) else 0


def class_of(status: int) -> str:
    """Return the class of a status when there is no better evidence."""
    if status in _BY_STATUS:
        return _BY_STATUS[status]
    number = signal_of(status)
    return _BY_SIGNAL.get(signal.Signals(number), "exit_unknown") if number else "exit_unknown"


def class_of_start(number: int) -> str:
    """Return the class of an exec that failed with errno ``number``."""
    return _BY_ERRNO.get(number, "exit_unknown")


def status_of_start(number: int) -> int:
    """Return the exit status that a shell gives for an exec that failed with errno ``number``."""
    return 127 if number in (errno.ENOENT, errno.ENOTDIR) else 126


def signal_name(status: int) -> str:
    """Return SIGNAME for a status that is a signal, '' for any other (a shell's 128+N stays a number)."""
    return signal.Signals(-status).name if status < 0 and signal_of(status) else ""


def words(status: int) -> str:
    """Return the status in words: 'exit status 7', 'signal 9 (SIGKILL)'."""
    if status >= 0:
        return f"exit status {status}"
    name = signal_name(status)
    return f"signal {-status} ({name})" if name else f"signal {-status}"


def errno_words(number: int) -> str:
    """Return an errno in words: 'No such file or directory'."""
    return os.strerror(number)
