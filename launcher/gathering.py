"""Which nodes a command is one of, where a list of hosts or a batch system says it: how many, and where they meet.

Listed hosts are --hosts and --hostfile; else PBS, LSF and OAR are asked by their host files, and Kubernetes by the
index of a pod, but only where the line itself says nothing of the meeting. Reads files and looks names up, and decides
no more than that: what becomes of it is `meeting`'s. Called by `build`.
"""

from __future__ import annotations

import socket
from typing import NamedTuple

from . import batch_systems, files, host_files, pods, values
from .environment import Environment
from .errors import UsageError
from .given import Given
from .host_files import Host
from .meeting import LISTS, PLACES

LONGEST = 4 << 20  # bytes; a hundred thousand nodes have long names in less
_SAID = ("rdzv-endpoint", *PLACES)  # who gives one of these says where to meet


class Gathering(NamedTuple):
    """The nodes of a job as those who started it know them. ``origin`` is how that is known, for a sentence."""

    origin: str
    nodes: int  # that there are; 0: not known
    host: str  # where they meet
    port: int
    here: bool | None = None  # whether that is this node; None: decided by addresses
    ranks: int = 1  # of this node: what is written beside its name
    listed: bool = False  # by the command line itself
    trouble: str = ""  # why neither number nor host is known: a refusal, for whoever needs them
    least: int = 1  # of them that are asked for
    most: int = 1


def told(given: Given, env: Environment, notes: list[str]) -> Gathering | None:
    """Return what is known of the job's nodes beside the line's own words; UsageError where that contradicts itself."""
    if any(given.text(name) is not None for name in LISTS):
        return _asked_for(given, _listed(given))
    if (
        given.on("standalone")
        or env.slurm is not None
        or given.text("rdzv-backend") not in (None, "c10d")
        or any(given.text(name) is not None for name in _SAID)
    ):
        return None
    found = _of_batch(env.batch, notes) if env.batch is not None else _of_pod(given, env)
    return None if found is None else _asked_for(given, found)


def _asked_for(given: Given, found: Gathering) -> Gathering:
    """Add how many of the nodes --nnodes asks for; all of them where it is not given."""
    text, origin = given.text("nnodes"), given.origin("nnodes")
    least, most = values.nnodes(origin, str(found.nodes or 1) if text is None else text)
    if found.nodes and most > found.nodes:
        raise UsageError(
            f"{origin} asks for {most} nodes, and {found.origin} has {found.nodes}; give {found.nodes} or fewer, "
            "leave it out, or say by --rdzv-endpoint where others come to"
        )
    if found.listed and most == 1 < found.nodes:
        raise UsageError(
            f"{origin} asks for one node, and {found.origin} has {found.nodes}, which would all run alone; leave one "
            "of the two out"
        )
    return found._replace(least=least, most=most)


def _listed(given: Given) -> Gathering:
    name, other = LISTS if given.text(LISTS[0]) is not None else LISTS[::-1]
    origin, text = given.origin(name), given.text(name) or ""
    for idle in (other, *PLACES):
        if given.text(idle) is not None:
            raise UsageError(f"{origin} and {given.origin(idle)} contradict each other; leave one of them out")
    if given.on("standalone"):
        raise UsageError(f"{origin} and --standalone contradict each other; leave one of them out")
    hosts = host_files.in_list(origin, text) if name == "hosts" else host_files.in_file(text, _read(origin, text))
    if not hosts:
        raise UsageError(f"{origin} is {text!r}, where no host stands; write one of each node, or leave it out")
    me = _this_one(hosts, given.text("local-addr") or "")
    if me is None:
        raise UsageError(
            f"this node, {socket.gethostname()}, is none of the {len(hosts)} hosts of {origin} ({_some(hosts)}), by "
            "name or by address; start the command on those alone, or add it"
        )
    return Gathering(origin, len(hosts), hosts[0].name, values.C10D_PORT, ranks=me.slots or 1, listed=True)


def _read(origin: str, text: str) -> str:
    path = files.readable(origin, text)
    try:
        with path.open("rb") as file:
            content = file.read(LONGEST + 1)
        if len(content) > LONGEST:
            raise UsageError(f"{origin} is {text!r}, which is longer than {LONGEST} bytes; give a host file")
        return content.decode()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{origin} is {text!r}, which cannot be read as text ({error}); give a host file") from None


def _some(hosts: tuple[Host, ...]) -> str:
    names = [host.name for host in hosts]
    return ", ".join(names if len(names) < 5 else (*names[:3], "...", names[-1]))


def _this_one(hosts: tuple[Host, ...], local_addr: str) -> Host | None:
    """Return which host this node is: by --local-addr, else by its name, else by its addresses."""
    name = socket.gethostname()
    told = [host for host in hosts if host.name == local_addr] or [host for host in hosts if _same(host.name, name)]
    return told[0] if told else next((host for host in hosts if _is_own(host.name)), None)


def _same(one: str, other: str) -> bool:
    """Compare names of which one may lack its domain."""
    short = "." not in one or "." not in other
    return one == other or (short and one.partition(".")[0] == other.partition(".")[0])


def _is_own(host: str) -> bool:
    from ..agent.own_addresses import is_own
    from ..agent.ports import AddressError

    try:
        return is_own(host)
    except AddressError:
        return False  # another node, whose name is not known here


def _of_batch(batch: batch_systems.Batch, notes: list[str]) -> Gathering | None:
    told = _hosts(batch)
    if told is None:
        return None
    origin, found = told
    port = batch_systems.port(batch.run_id.text)
    if isinstance(found, str):
        if batch.later_node:
            raise UsageError(found)
        notes.append(found)
        return Gathering(origin, 0, "", port, trouble=found)
    if len(found) == 0:
        return None
    if len(found) > 1 and batch.tasks is not None and batch.tasks.text not in ("0", "1"):
        raise UsageError(
            f"{batch.tasks.text} of these commands were started on this node ({batch.tasks.origin}), and one starts "
            "all ranks of its node; start one on each node (mpiexec -ppn 1), with --nproc-per-node"
        )
    return Gathering(origin, len(found), found[0].name, port)


def _hosts(batch: batch_systems.Batch) -> tuple[str, tuple[Host, ...] | str] | None:
    """Return where the hosts stand and what they are, or why they cannot be read; None where nothing names any."""
    file, counts = batch.file, batch.counts
    if file is not None:
        try:
            return file.origin, host_files.in_file(file.text, _read(file.origin, file.text))
        except UsageError:
            if counts is None:
                return file.origin, (
                    f"{file.origin} is {file.text!r}, which is not on this node ({batch.system} may have it on the "
                    "first one alone); several nodes need --hosts (docs/other-starts.md), one alone --nnodes 1"
                )
    return None if counts is None else (counts.origin, host_files.counted(counts.origin, counts.text))


def _of_pod(given: Given, env: Environment) -> Gathering | None:
    """Return nothing for one pod, or where nobody says how many there are: its index does not tell."""
    text = given.text("nnodes")
    if text is None:
        return None
    _, most = values.nnodes(given.origin("nnodes"), text)
    if most == 1:
        return None
    origin = "JOB_COMPLETION_INDEX"
    try:
        host = pods.head(env.job_index, socket.gethostname(), socket.getfqdn())
    except UsageError as error:
        return Gathering(origin, 0, "", values.C10D_PORT, trouble=str(error))
    return Gathering(origin, most, host, values.C10D_PORT, here=int(env.job_index) == 0)
