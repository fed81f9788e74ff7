"""The manifest of a step as a value, and its bytes. Pure; the only place that knows how manifest.json is spelled.

It says who wrote the step (run, round, incarnation: the fencing token), and names every file with size and sha256.
The text may come from anybody: it is bounded, strict where a mistake could hurt, and never evaluated. Keys this
version does not know are kept. Called by ``publication`` (write) and ``verify`` (read).
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NoReturn, cast

from .errors import BadManifest
from .layout import COMMITTED, MANIFEST

SCHEMA = 1
MAX_BYTES = 32 << 20  # some 200 000 files; a real manifest is a few KB
MAX_COMMITTED_BYTES = 256

_HEX64 = re.compile(r"[0-9a-f]{64}")
_COMMITTED = re.compile(rb"sha256:([0-9a-f]{64})\s*")


@dataclass(frozen=True, slots=True)
class FileEntry:
    """One data file of a step: its path relative to the step's directory, its size and its digest."""

    path: str
    bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """What one published step consists of and which worker group wrote it."""

    run_id: str
    attempt: int
    round: int
    step: int
    files: tuple[FileEntry, ...]
    incarnation: str = ""
    world_size: int | None = None
    parallelism: Mapping[str, object] = field(default_factory=dict[str, object])
    framework: Mapping[str, object] = field(default_factory=dict[str, object])
    code_commit: str | None = None
    dataset_snapshot: str | None = None
    created_at: str | None = None
    save_ms: int | None = None  # from rank 0's entry until the files of all were durable: ranks stood so long
    extra: Mapping[str, object] = field(default_factory=dict[str, object])  # keys of other writers, kept

    def to_bytes(self) -> bytes:
        """Return the text of manifest.json."""
        known: dict[str, object] = {
            "schema_version": SCHEMA,
            "run_id": self.run_id,
            "attempt": self.attempt,
            "round": self.round,
            "incarnation": self.incarnation,
            "step": self.step,
            "world_size": self.world_size,
            "parallelism": dict(self.parallelism),
            "framework": dict(self.framework),
            "code_commit": self.code_commit,
            "dataset_snapshot": self.dataset_snapshot,
            "files": [{"path": f.path, "bytes": f.bytes, "sha256": f.sha256} for f in self.files],
            "created_at": self.created_at,
            "save_ms": self.save_ms,
        }
        return json.dumps({**known, **{k: v for k, v in self.extra.items() if k not in known}}, indent=1).encode()


def digest(data: bytes) -> str:
    """Return the sha256 of ``data`` in hex."""
    return hashlib.sha256(data).hexdigest()


def committed(manifest: bytes) -> bytes:
    """Return what COMMITTED must hold for this manifest."""
    return f"sha256:{digest(manifest)}\n".encode()


def parse_committed(data: bytes) -> str:
    """Return the digest that a COMMITTED file names."""
    found = _COMMITTED.fullmatch(data)
    if found is None:
        raise BadManifest(f"{COMMITTED} does not hold 'sha256:<64 hex digits>'")
    return found[1].decode()


def unsafe_path(path: str) -> str:
    """Return why ``path`` may not name a data file of a step, or an empty string."""
    if not path or "\0" in path:
        return "is empty or holds a NUL"
    try:
        path.encode()
    except UnicodeEncodeError:
        return "is not valid UTF-8"
    if path.startswith("/"):
        return "is absolute; it must be relative to the step's directory"
    if any(part in ("", ".", "..") for part in path.split("/")):
        return "has an empty, '.' or '..' part"
    if path in (MANIFEST, COMMITTED):
        return "is a name of the protocol itself"
    return ""


def parse(data: bytes) -> Manifest:
    """Read manifest.json, or raise ``BadManifest`` with the first thing wrong in it."""
    if len(data) > MAX_BYTES:
        raise BadManifest(f"{MANIFEST} is larger than {MAX_BYTES} bytes")
    try:
        loaded: object = json.loads(data.decode(), object_pairs_hook=_no_twins, parse_constant=_no_constant)
    except (ValueError, RecursionError) as e:  # ValueError: not UTF-8, not JSON, or a number beyond all bounds
        raise BadManifest(f"{MANIFEST} is not JSON: {e}") from e
    if not isinstance(loaded, dict):
        raise BadManifest(f"{MANIFEST} is not a JSON object")
    rest = cast("dict[str, object]", loaded)
    version = _integer(rest, "schema_version")
    if version != SCHEMA:
        raise BadManifest(f"{MANIFEST} has schema_version {version}; this remuster reads {SCHEMA}: use a newer one")
    return Manifest(
        run_id=_required("run_id", _text(rest, "run_id")),
        round=_integer(rest, "round"),
        step=_integer(rest, "step"),
        files=_files(rest.pop("files", None)),
        attempt=_optional_integer(rest, "attempt") or 0,
        incarnation=_text(rest, "incarnation") or "",
        world_size=_optional_integer(rest, "world_size"),
        parallelism=_object(rest, "parallelism"),
        framework=_object(rest, "framework"),
        code_commit=_text(rest, "code_commit"),
        dataset_snapshot=_text(rest, "dataset_snapshot"),
        created_at=_text(rest, "created_at"),
        save_ms=_optional_integer(rest, "save_ms"),
        extra=rest,
    )


def _files(value: object) -> tuple[FileEntry, ...]:
    if not isinstance(value, list) or not value:
        raise BadManifest(f"{MANIFEST} lists no files")
    entries: list[FileEntry] = []
    seen: set[str] = set()
    for item in cast("list[object]", value):
        if not isinstance(item, dict):
            raise BadManifest(f"{MANIFEST}: an entry of 'files' is not an object")
        entry = cast("dict[str, object]", item)
        path = _required("path", _text(entry, "path"))
        if why := unsafe_path(path):
            raise BadManifest(f"{MANIFEST}: file path {path!a} {why}")
        if path in seen:
            raise BadManifest(f"{MANIFEST} lists {path!a} twice")
        seen.add(path)
        sha256 = _required("sha256", _text(entry, "sha256"))
        if _HEX64.fullmatch(sha256) is None:
            raise BadManifest(f"{MANIFEST}: sha256 of {path!a} is not 64 lower-case hex digits")
        entries.append(FileEntry(path, _integer(entry, "bytes"), sha256))
    return tuple(entries)


def _required(key: str, value: str | None) -> str:
    if value is None:
        raise BadManifest(f"{MANIFEST} has no {key!r}")
    return value


def _text(data: dict[str, object], key: str) -> str | None:
    value = data.pop(key, None)
    if value is None or isinstance(value, str):
        return value
    raise BadManifest(f"{MANIFEST}: {key!r} is not a text")


def _optional_integer(data: dict[str, object], key: str) -> int | None:
    value = data.pop(key, None)
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise BadManifest(f"{MANIFEST}: {key!r} is not a whole number from 0 upward")
    return value


def _integer(data: dict[str, object], key: str) -> int:
    value = _optional_integer(data, key)
    if value is None:
        raise BadManifest(f"{MANIFEST} has no {key!r}")
    return value


def _object(data: dict[str, object], key: str) -> Mapping[str, object]:
    value = data.pop(key, None)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise BadManifest(f"{MANIFEST}: {key!r} is not an object")
    return cast("dict[str, object]", value)


def _no_twins(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key stands twice in one object")
    return found


def _no_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is not a JSON value")
