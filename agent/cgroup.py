"""A private cgroup v2 for the ranks of one guardian, where the node lets us have one: its kill leaves nobody out.

Made by the guardian inside its own cgroup, so every limit that holds there holds for the ranks too; entered by each
rank before it becomes the user's program; killed and removed by guardian, agent or keeper, whoever is left, and by the
next start on this node. It only helps: the proof of death is the sweep. Blocking calls, all on the cgroup file system.
"""

from __future__ import annotations

import os
import time

from . import proc

_MOUNTS = ("/sys/fs/cgroup/unified", "/sys/fs/cgroup")  # hybrid and pure layouts
_PREFIX = "remuster"
_SLURM = "slurmstepd.scope/"  # of one slurmd; several on a machine put their names before it


def own_directory() -> str | None:
    """Return this process's cgroup v2 directory when children may be made and entered there, else None.

    Below a task of Slurm's they had better not: its cgroup/v2 sends signals to who is in the task's own, and looks no
    deeper, so that a step whose agent is gone would pass for over while ranks live.
    """
    path = next((line[3:] for line in proc.read("/proc/self/cgroup").decode().splitlines() if line[:3] == "0::"), "")
    for mount in _MOUNTS:
        own = mount + path.rstrip("/")
        if path and ".." not in path and _SLURM not in path and os.path.exists(own + "/cgroup.procs"):
            return own if os.access(own, os.W_OK) and os.access(own + "/cgroup.procs", os.W_OK) else None
    return None


def create(tag: str) -> str | None:
    """Make this guardian's cgroup, ``tag`` naming run and node; None when the node does not let us."""
    own = own_directory()
    if own is None:
        return None
    path = f"{own}/{_PREFIX}-{tag}-{os.getpid()}"
    try:
        os.mkdir(path, 0o700)
    except OSError:
        return None
    if os.path.exists(path + "/cgroup.kill"):  # Linux 5.14
        return path
    os.rmdir(path)
    return None


def enter(path: str) -> None:
    """Move this process into ``path``; where that fails the sweep alone must find it."""
    _write(path + "/cgroup.procs", b"0")


def kill(path: str) -> None:
    """Kill every process in ``path``, those that keep forking included."""
    _write(path + "/cgroup.kill", b"1")


def remove(path: str) -> None:
    """Kill what is in ``path`` and remove it; waits up to a second for the killed to be gone."""
    for _ in range(200):
        kill(path)
        try:
            os.rmdir(path)
        except FileNotFoundError:
            return
        except OSError:
            time.sleep(0.005)
        else:
            return


def of_guardian(pid: int) -> list[str]:
    """Return the cgroup that guardian ``pid`` made, in a list that is mostly empty."""
    return _matching("", f"-{pid}")


def of_tag(tag: str) -> list[str]:
    """Return the cgroups of all guardians of one run and node, dead ones included."""
    return _matching(f"-{tag}-", "")


def remove_empty() -> None:
    """Remove what guardians of any run have left empty, all three processes of their nodes having been killed."""
    for path in _matching("-", ""):
        pid = path.rpartition("-")[2]
        if pid.isdigit() and not proc.alive(int(pid)):
            _remove(path)


def _remove(path: str) -> None:
    try:
        os.rmdir(path)
    except OSError:
        return  # not empty, or gone


def _matching(start: str, end: str) -> list[str]:
    own = own_directory()
    if own is None:
        return []
    return [f"{own}/{name}" for name in os.listdir(own) if name.startswith(_PREFIX + start) and name.endswith(end)]


def _write(path: str, data: bytes) -> None:
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    except OSError:
        return
    try:
        os.write(fd, data)
    except OSError:
        return
    finally:
        os.close(fd)
