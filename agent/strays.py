"""What an earlier start left on this node when keeper, agent and guardian were all killed: found by its token, killed.

Called by an agent that has the node's lock and has not joined yet, so whatever carries the token of this run and node
is left over. The token is in each rank's environment; a cgroup of a dead guardian holds even what keeps forking faster
than a scan of /proc can follow. Processes of other runs, nodes and users are never touched.
"""

from __future__ import annotations

import os
import signal
import time
from typing import NamedTuple

from . import cgroup, proc
from .linux import boottime
from .node_lock import NodeLock

RUN_VARIABLE = "REMUSTER_RUN_ID"
NODE_VARIABLE = "REMUSTER_NODE"
_CLEAN_SCANS = 2
_PAUSE_S = 0.01


class Strays(NamedTuple):
    """What was found: pids that were killed, and those that would not die (the node must take no round then)."""

    killed: tuple[int, ...]
    survivors: tuple[int, ...]


def sweep_strays(run_id: str, node: str, keeper: int, bound_s: float = 30.0) -> Strays:
    """Kill all strays of this run and node until two scans find none. Blocks, for milliseconds where there are none.

    ``keeper`` is this start's own: its family, and the shells above it, may carry the same variables.
    """
    for group in cgroup.of_tag(NodeLock(run_id, node).tag):
        if not proc.alive(int(group.rpartition("-")[2])):
            cgroup.remove(group)
    cgroup.remove_empty()
    token = {os.fsencode(f"{RUN_VARIABLE}={run_id}"), os.fsencode(f"{NODE_VARIABLE}={node}")}
    end_s = boottime() + bound_s
    killed: set[int] = set()
    clean = 0
    while True:
        found = [pid for pid in _candidates(keeper) if _carries(pid, token)]
        killed.update(pid for pid in found if _kill(pid, token))
        clean = 0 if found else clean + 1
        if clean >= _CLEAN_SCANS or boottime() >= end_s:
            return Strays(tuple(sorted(killed - set(found))), tuple(found))
        if found:
            time.sleep(_PAUSE_S)


def _candidates(keeper: int) -> list[int]:
    own = {keeper, *proc.below(keeper)}
    above = keeper
    while above := proc.parent(above):
        own.add(above)
    return [pid for pid in proc.all_pids() if pid not in own]


def _carries(pid: int, token: set[bytes]) -> bool:
    """Tell whether ``pid`` is this user's and was started with the token in its environment."""
    try:
        if os.stat(f"/proc/{pid}").st_uid != os.getuid():
            return False
    except FileNotFoundError:
        return False
    return token <= set(proc.read(f"/proc/{pid}/environ").split(b"\0"))


def _kill(pid: int, token: set[bytes]) -> bool:
    """Kill ``pid`` if, now that it is pinned, it still carries the token."""
    try:
        pidfd = os.pidfd_open(pid)
    except OSError:
        return False
    try:
        if not _carries(pid, token):
            return False
        signal.pidfd_send_signal(pidfd, signal.SIGKILL)
    except OSError:
        return False
    else:
        return True
    finally:
        os.close(pidfd)
