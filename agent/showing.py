"""What the console shows of a rank's output, and with which prefix. Pure; called by ``crew.py`` for each round.

torchrun's rule, over files that have everything in any case: a stream that is tee'd is shown with a prefix on each
line, one that is only redirected is not shown, any other is shown as it is; where ranks are chosen, of those alone.
"""

# Annotations are evaluated here: a named tuple is made sooner from types than from their names.
from typing import NamedTuple

from .spec import JobSpec
from .worker_env import RankPlace

STREAMS = (("stdout.log", 1), ("stderr.log", 2))  # numbers of torchrun's flags, of descriptors, and of ``follow``


class View(NamedTuple):
    """One file of a rank: is it shown, is it tee'd, and what goes in front of its lines."""

    path: str
    stream: int
    label: bytes
    shown: bool
    tee: bool


def views(spec: JobSpec, place: RankPlace, directory: str) -> list[View]:
    """Return the two files of a rank, which lie in ``directory``."""
    out, local = spec.output, place.local_rank
    chosen = not out.only or local in out.only
    found: list[View] = []
    for name, stream in STREAMS:
        tee = out.tee.has(local, stream)
        shown = chosen and (tee or not out.redirects.has(local, stream))
        found.append(View(f"{directory}/{name}", stream, prefix(spec, place) if tee else b"", shown, tee))
    return found


def prefix(spec: JobSpec, place: RankPlace) -> bytes:
    """Return what stands before a tee'd line.

    By itself torchrun's ``[default0]:``, which tools look for. Where a job may have several nodes that names neither
    node nor rank, so both stand before it.
    """
    node, local = place.roster.members[place.group_rank].node, place.local_rank
    text = f"[{spec.role}{local}]:"
    if spec.output.prefix:
        from string import Template

        words = {"role_name": spec.role, "rank": place.rank, "local_rank": local, "node": node}
        text = Template(spec.output.prefix).safe_substitute(words)
    elif spec.max_nodes > 1:
        text = f"[{node} rank{place.rank}]{text}"
    return text.encode(errors="surrogateescape")
