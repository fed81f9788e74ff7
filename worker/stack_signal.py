"""How a rank shows where it is, even while it hangs in a library's code: Python's faulthandler, asked by a signal.

Called by ``beat.py`` with the first heartbeat; ``agent/stacks.py`` is the other side. The signal is a real-time one:
SIGUSR1 and SIGUSR2 belong to users and schedulers, and nobody's is taken away here. Its default action would end the
process, so the launcher sends it only to a process that catches it.
"""

from __future__ import annotations

NUMBER = 47  # SIGRTMIN+13 with glibc


def answer(fd: int) -> bool:
    """Have the stack of the thread that gets the signal, mostly the main one, written to ``fd``, which stays open.

    False where the signal has another use already, or Python cannot do it.
    """
    import faulthandler
    import signal

    try:
        if signal.getsignal(NUMBER) is not signal.SIG_DFL:
            return False
        faulthandler.register(NUMBER, file=fd, all_threads=False)
    except (OSError, ValueError, RuntimeError, AttributeError):
        return False
    return True
