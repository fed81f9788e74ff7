"""Which file of a log directory is which rank, node, stream and attempt: read from the names alone. Pure.

Knows torchrun's tree (``<id>_<random>/attempt_N/<local rank>/stderr.log``), remuster's own, names of Slurm's patterns
(``%t``, ``%N``), of pods, and any set of names that differ in one number. Called by ``remuster explain``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from enum import Enum
from typing import NamedTuple


class Kind(Enum):
    """What a file is, as far as its name tells."""

    OUTPUT = "output"  # of one rank, or of several on one console
    ERROR = "error"  # torchelastic's error file
    KERNEL = "kernel"
    PIDS = "pids"
    RECORD = "record"  # remuster's attempts/attempt-NNN.json
    OTHER = "other"  # nothing that explain reads


class Place(NamedTuple):
    """One file. Numbers are -1, texts '' where the name does not say."""

    path: str
    kind: Kind
    run: str = ""  # the run's directory, in torchrun's tree
    attempt: int = -1
    node: str = ""
    rank: int = -1
    local_rank: int = -1
    stream: str = ""  # stdout, stderr


_ATTEMPT = re.compile(r"attempt_(\d{1,6})(?:\.\d{1,4})?$")
_RECORD = re.compile(r"attempt-(\d{1,6})(?:\.\d{1,4}|-round-\d{1,9})?\.json$")
_KERNEL = re.compile(r"(?i)(?:^|[^a-z])(?:dmesg|kmsg|kern(?:el)?|journal(?:ctl)?|syslog|messages)(?:[^a-z]|$)")
_PIDS = re.compile(r"(?i)^(?:rank_?)?pids?(?:_map)?\.(?:txt|tsv|csv|log)$")
_GLOBAL = re.compile(r"(?i)(?:^|[^a-z])(?:global[_-]?)?rank[_.=-]?(\d{1,7})(?!\d)")
_LOCAL = re.compile(r"(?i)(?:^|[^a-z])(?:local[_.-]?(?:rank)?|lr)[_.=-]?(\d{1,4})(?!\d)")
_TASK = re.compile(
    r"(?i)(?:^|[^a-z])(?:task|worker|proc(?:ess)?|replica)[_.=-]?(\d{1,7})(?!\d)|[._-][rtw](\d{1,7})(?!\d)"
)
_NODE = re.compile(r"(?i)(?:^|[^a-z])((?:node|host|machine|agent)(?:[_.-]?rank)?[_.=-]?[a-z]{0,3}\d{1,6})(?![a-z0-9])")
_POD = re.compile(r"(?i)(?:^|[^a-z])(master|worker)-(\d{1,6})(?!\d)")
_STREAM = re.compile(r"(?i)(?:^|[^a-z])(?:(stdout|out)|(stderr|err))(?:[^a-z]|$)")
_TEXT = re.compile(r"(?i)\.(?:log|txt|out|err|o\d*|e\d*|stdout|stderr|jsonl?|gz|\d+)$|^[^.]+$|^(?:std(?:out|err))$")
_NEVER = re.compile(
    r"(?i)\.(?:py|pyc|csv|pt|pth|bin|safetensors|npy|npz|ckpt|ya?ml|toml|sh|md|html|png|jpe?g|pdf|zip|tar|tgz|so|h5|pkl|"
    r"parquet|sqlite|db|cfg|ini|lock|tfevents.*)$|^events\.jsonl$|^summary.*\.json$|^job\.json$|^filtered_std(?:out|err)\.log$"
)
_DIGITS = re.compile(r"\d+")


def places(paths: Iterable[str]) -> tuple[Place, ...]:
    """Return what each file is, in the order of their names with numbers as numbers."""
    found = [_place(path) for path in sorted(paths, key=natural)]
    return tuple(_by_differences(found))


def natural(path: str) -> tuple[object, ...]:
    """Return a key by which rank10 comes after rank9."""
    return tuple(
        (0, int(part), "") if part.isdecimal() else (1, 0, part) for part in re.split(r"(\d{1,18})", path) if part
    )


def last_attempt(found: Sequence[Place]) -> int:
    """Return the newest attempt that the names tell of, -1 without any."""
    return max((place.attempt for place in found), default=-1)


def _place(path: str) -> Place:
    parts = path.split("/")
    name, folders = parts[-1], parts[:-1]
    plain = name.removesuffix(".gz")
    run = attempt = None
    local = -1
    for i, folder in enumerate(folders):
        if found := _ATTEMPT.match(folder):
            attempt, run = int(found[1]), "/".join(folders[:i])
            following = folders[i + 1] if i + 1 < len(folders) else ""
            local = int(following) if following.isdecimal() and len(following) < 6 else -1
    if found := _RECORD.match(plain):
        if folders[-1:] in (["attempts"], []):
            return Place(path, Kind.RECORD, "/".join(folders[:-1]), int(found[1]))
        return Place(path, Kind.OTHER)
    if _NEVER.search(plain) or name.startswith("."):
        return Place(path, Kind.OTHER)
    node = _node(folders, plain)
    if _PIDS.match(plain):
        return Place(path, Kind.PIDS, node=node)
    if attempt is not None and run is not None:
        kind = Kind.ERROR if plain == "error.json" else Kind.OUTPUT if plain.startswith("std") else Kind.OTHER
        return Place(path, kind, run, attempt, node, -1, local, _stream(plain))
    if _KERNEL.search(plain):
        return Place(path, Kind.KERNEL, node=node)
    rank, local = _numbers(folders, plain)
    if plain in ("error.json", "error") or re.search(r"(?i)error[_-]?(?:file)?[_.-]?\d*\.json$", plain):
        return Place(path, Kind.ERROR, node=node, rank=rank, local_rank=local)
    if plain.endswith(".json") or not _TEXT.search(plain):
        return Place(path, Kind.OTHER)
    return Place(path, Kind.OUTPUT, "", -1, node, rank, local, _stream(plain))


def _node(folders: Sequence[str], name: str) -> str:
    for text in (name, *reversed(folders)):
        if found := _NODE.search(text):
            return found[1]
    return ""


def _numbers(folders: Sequence[str], name: str) -> tuple[int, int]:
    """Return (rank, local rank) as the name says them, or else the folders from the innermost."""
    for text in (name, *reversed(folders)):
        local, spared = -1, text
        if found := _LOCAL.search(text):
            local, spared = int(found[1]), text[: found.start()] + " " + text[found.end() :]
        spared = _NODE.sub(" ", spared)
        if found := _GLOBAL.search(spared):
            return int(found[1]), local
        if local >= 0:
            return -1, local
        if text is not name and text.isdecimal() and len(text) < 6:  # 3/stderr.log
            return -1, int(text)
        if found := _POD.search(text):
            return int(found[2]), -1
        if text is name and (found := _TASK.search(spared)):
            return int(found[1] or found[2]), -1
    return -1, -1


def _stream(name: str) -> str:
    found = _STREAM.search(name)
    return "" if found is None else "stdout" if found[1] else "stderr"


def _by_differences(found: list[Place]) -> list[Place]:
    """Give ranks to files whose names differ in one number alone, and to master-0 beside worker-0, worker-1, …"""
    pods = [p for p in found if p.kind is Kind.OUTPUT and _POD.search(p.path)]
    masters = len({p.path for p in pods if _pod(p.path) == "master"})
    if masters and masters < len(pods):
        found = [p._replace(rank=p.rank + masters) if p in pods and _pod(p.path) == "worker" else p for p in found]
    groups: dict[str, list[Place]] = {}
    for place in found:
        if place.kind is Kind.OUTPUT and place.rank < 0 and place.local_rank < 0:
            groups.setdefault(_DIGITS.sub("#", _without_stream(place.path)), []).append(place)
    given: dict[str, Place] = {}
    for group in groups.values():
        rows = [[int(n) for n in _DIGITS.findall(place.path) if len(n) < 19] for place in group]
        if len(group) < 2 or len({len(row) for row in rows}) > 1:
            continue
        varying = [i for i in range(len(rows[0])) if len({row[i] for row in rows}) > 1]
        if len(varying) == 1:
            given |= {p.path: p._replace(rank=row[varying[0]]) for p, row in zip(group, rows, strict=True)}
        elif len(varying) == 2:
            first, second = varying
            given |= {
                p.path: p._replace(node=p.node or f"node{row[first]}", local_rank=row[second])
                for p, row in zip(group, rows, strict=True)
            }
    return [given.get(place.path, place) for place in found]


def _pod(path: str) -> str:
    found = _POD.search(path)
    return found[1].lower() if found else ""


def _without_stream(path: str) -> str:
    return re.sub(r"(?i)(?<![a-z])(?:std)?(?:out|err)(?![a-z])", "*", path)
