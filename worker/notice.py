"""Whether this rank is to stop soon: a scheduler has given notice, or the launcher is about to end it.

For training scripts, once in every step: ``if remuster.stop_requested(): save and leave with exit status 0``. Ranks see
it at slightly different times: let them agree before they act on it (an all-reduce of the answer), or one saves
while another waits for it in the next step. A script that has asked once is not ended by the SIGTERM of a planned stop
(it has until the end of ``--shutdown-timeout`` to save); when another rank has failed there is nothing to wait for, and
SIGTERM comes as ever. Under Slurm, which itself sends SIGTERM to every process, such a script gets a handler for it
that does nothing, unless it has one.
"""

from __future__ import annotations

import os
from functools import cache

TYPE_CHECKING = False  # typing's own costs 4 ms; checkers know the bare name
if TYPE_CHECKING:
    import mmap

PAGE = "remuster-notice"  # what the launcher's page is called
LOOKS, STAYS = 1, 2  # in a rank's byte: it looks at the page; and SIGTERM does not end it
BY_ALL = "+"  # behind the index: a scheduler's SIGTERM comes to every process
_ADDRESS = "REMUSTER_NOTICE"  # the launcher's page, and the index of this rank's byte on it


def stop_requested() -> bool:
    """Return whether this rank is to save and leave. Cheap: one byte of memory; False outside remuster."""
    return _page()[0] != 0


@cache
def _page() -> mmap.mmap | bytes:
    """Map the page and mark that this rank looks at it. What cannot be read, in another container for one, is empty.

    The variable may have come to where its path is another process's file, and that is not to be written to.
    """
    path, _, place = os.environ.get(_ADDRESS, "").rpartition(":")
    if not path:
        return b"\0"
    import mmap

    try:
        if os.readlink(path).partition(" ")[0] != f"/memfd:{PAGE}":
            return b"\0"
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return b"\0"
    try:
        page = mmap.mmap(fd, 0)
        page[int(place.removesuffix(BY_ALL))] = LOOKS
        if place.endswith(BY_ALL) and _outlives_sigterm():
            page[int(place.removesuffix(BY_ALL))] = STAYS
    except (OSError, ValueError, IndexError):
        return b"\0"
    finally:
        os.close(fd)
    return page


def _outlives_sigterm() -> bool:
    """See that SIGTERM does not end this process, which looks at the page instead; its forks end as ever."""
    import signal

    if signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        return False  # the script's own affair
    mine = os.getpid()

    def on_term(signum: int, _: object) -> None:
        if os.getpid() != mine:
            signal.signal(signum, signal.SIG_DFL)
            os.kill(os.getpid(), signum)

    try:
        signal.signal(signal.SIGTERM, on_term)
    except ValueError:  # not in the main thread
        return False
    return True
