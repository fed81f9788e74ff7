"""Is this step directory what its publication promised? An adapter: reads files, changes none, never imports torch.

COMMITTED must hold the digest of manifest.json, and every file of the manifest must be there with its size and
sha256. Absence is doubted first (``Patience``). Called by ``resume``, in a thread of the agent.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

from .digest import never, opened_directory, opened_file, sha256_of
from .errors import BadManifest
from .layout import COMMITTED, MANIFEST, step_of
from .manifest import MAX_BYTES, MAX_COMMITTED_BYTES, FileEntry, Manifest, digest, parse, parse_committed
from .patience import Patience
from .side_by_side import first_of

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Verified:
    """A step that is complete, to the last bit if its files were hashed."""

    manifest: Manifest
    hashed: bool = True

    @property
    def how(self) -> str:
        """Say what was checked."""
        size = sum(f.bytes for f in self.manifest.files)
        what = "sha256" if self.hashed else "sizes"
        return f"COMMITTED, manifest and {what} of {len(self.manifest.files)} file(s), {size} bytes"


@dataclass(frozen=True, slots=True)
class Refused:
    """A step that must not be re-entered, and why."""

    reason: str


def verify(path: Path, patience: Patience | None = None, give_up: Callable[[], bool] = never) -> Verified | Refused:
    """Check one step directory in full. Blocks for as long as its bytes take to read."""
    patience = patience or Patience()
    read = read_manifest(path, patience)
    return read if isinstance(read, Refused) else verify_files(path, read, patience, give_up)


def read_manifest(path: Path, patience: Patience) -> Manifest | Refused:
    """Read a step's manifest if COMMITTED vouches for it: the cheap half of ``verify``."""
    step = step_of(path.name)
    if step is None:
        return Refused(f"{path.name!a} is not the name of a published step (was its publication interrupted?)")

    def read() -> tuple[bytes, bytes]:
        with opened_directory(path) as root:
            return _read(root, COMMITTED, MAX_COMMITTED_BYTES), _read(root, MANIFEST, MAX_BYTES)

    try:
        commit, text = _doubting(path, patience, read)
        if digest(text) != parse_committed(commit):
            return Refused(f"{MANIFEST} is not the one that {COMMITTED} vouches for (their digests differ)")
        manifest = parse(text)
    except BadManifest as e:
        return Refused(str(e))
    except OSError as e:
        return Refused(said(e, path.name))
    if manifest.step != step:
        return Refused(f"{MANIFEST} is of step {manifest.step}")
    return manifest


def verify_files(path: Path, manifest: Manifest, patience: Patience, give_up: Callable[[], bool]) -> Verified | Refused:
    """Check sizes of all files first, which costs little, then hash them, several at a time."""
    sized = files_of_size(path, manifest, patience)
    if isinstance(sized, Refused):
        return sized
    try:
        with opened_directory(path) as root:
            largest_first = sorted(manifest.files, key=lambda f: f.bytes, reverse=True)
            reason = first_of([partial(_hash_one, root, entry) for entry in largest_first], give_up)
    except OSError as e:
        return Refused(said(e, path.name))
    return Refused(reason) if reason else Verified(manifest)


def files_of_size(path: Path, manifest: Manifest, patience: Patience) -> Verified | Refused:
    """Check that every file of the manifest is there with its size."""
    try:
        with opened_directory(path) as root:
            for entry in manifest.files:
                try:
                    found = _doubting(path, patience, partial(_size, root, entry.path))
                except OSError as e:
                    return Refused(said(e, entry.path))
                if found != entry.bytes:
                    return Refused(f"{entry.path!a} has {found} bytes; its manifest says {entry.bytes}")
    except OSError as e:
        return Refused(said(e, path.name))
    return Verified(manifest, hashed=False)


def _size(root: int, path: str) -> int:
    with opened_file(root, path) as (_, size):
        return size


def _hash_one(root: int, entry: FileEntry, give_up: Callable[[], bool]) -> str:
    try:
        with opened_file(root, entry.path) as (fd, _):
            size, sha256 = sha256_of(fd, give_up)
    except OSError as e:
        return said(e, entry.path)
    if size != entry.bytes:
        return f"{entry.path!a} has {size} bytes; its manifest says {entry.bytes}"
    if sha256 != entry.sha256:
        return f"{entry.path!a} has not the content that was published (its sha256 differs)"
    return ""


def _read(root: int, name: str, limit: int) -> bytes:
    with opened_file(root, name) as (fd, size):
        if size > limit:
            raise BadManifest(f"{name} has {size} bytes, more than the {limit} allowed")
        data = bytearray()
        while len(data) <= limit and (block := os.read(fd, min(1 << 20, size + 1, limit + 1 - len(data)))):
            data += block
    return bytes(data)


def _doubting(path: Path, patience: Patience, read: Callable[[], _T]) -> _T:
    """Run ``read``; when something is absent, list its directory anew, wait while patience lasts, and try again."""
    try:
        return read()
    except OSError as e:
        if e.errno not in (errno.ENOENT, errno.ESTALE):
            raise
    while True:
        try:
            os.listdir(path)
            return read()
        except OSError as e:
            if e.errno not in (errno.ENOENT, errno.ESTALE) or not patience.again():
                raise


def said(error: OSError, name: str) -> str:
    """Say why a file of a step could not be read."""
    at = error.filename if isinstance(error.filename, str) else name
    what = os.path.basename(at) or name
    if error.errno == errno.ENOENT:
        return f"{what!a} is missing"
    if error.errno == errno.ELOOP:
        return f"{name!a} is a symbolic link; only real files count"
    if error.errno == errno.ENOTDIR:
        return f"{name!a} is, or lies behind, a symbolic link or a file where a real directory is needed"
    return f"{name!a} {error.args[0]}" if error.errno is None else f"{name!a} cannot be read: {error.strerror}"
