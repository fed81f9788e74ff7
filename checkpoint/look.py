"""How one checkpoint looks from here: a short mark of it for others to compare with, and the comparison. An adapter.

The leading agent has verified what it asks the others about. Each of them looks whether the same files are there with
the same sizes under the same marker; where its directory is another one than the leader's, a copy local to the node,
it checks the digests too, for nobody has read that copy. Blocks: called in a thread.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from .digest import never, opened_directory, opened_file
from .errors import GaveUp
from .examine import Asked, examine
from .layout import COMMITTED, MANIFEST, step_of
from .manifest import MAX_COMMITTED_BYTES, FileEntry, Manifest
from .patience import Patience
from .scan import scan
from .verify import Refused, read_manifest, verify_files

MOST_FILES = 200_000  # of a checkpoint without a manifest
NAMED = 3  # missing files in a reason
NEWER = 8  # steps that are looked at although nobody asked about them
_AWAY = (errno.ESTALE, errno.EIO, errno.ENOTCONN, errno.ETIMEDOUT, errno.ESHUTDOWN, errno.EHOSTDOWN)


class View(str, Enum):
    """What can be said of a checkpoint from here."""

    CAN = "can"
    LACKS = "lacks"
    DIFFERS = "differs"
    UNKNOWN = "unknown"  # nothing can: no checkpoint that exists is called absent for it


@dataclass(frozen=True, slots=True)
class Print:
    """A checkpoint in a few words: equal prints are one checkpoint, as far as names, sizes and marker can tell."""

    files: int
    bytes: int
    digest: str
    sign: str  # inode and change time of the marker: equal where the directory is shared; '' without a marker


@dataclass(frozen=True, slots=True)
class Looked:
    """The answer, with the reason if it is not ``CAN``."""

    view: View
    why: str = ""


def print_of(path: Path) -> Print:
    """Return the print of a checkpoint that is whole here; OSError when it cannot be read."""
    manifest = read_manifest(path, Patience(())) if step_of(path.name) is not None else None
    if isinstance(manifest, Manifest):
        return _print(path, manifest.files)
    return _tree(path)


def sign_of(path: Path) -> str:
    """Return what tells a folder from any copy of it: equal where it is seen from nodes that share the directory."""
    return _sign(path.stat())


def look(directory: Path, name: str, there: Print, patience: Patience, give_up: Callable[[], bool] = never) -> Looked:
    """Compare what stands under ``name`` in a checkpoint directory with the print of one that another node has."""
    try:
        return _look(directory, name, there, patience, give_up)
    except OSError as error:
        view = View.UNKNOWN if error.errno in _AWAY else View.DIFFERS
        return Looked(view, f"it cannot be read: {error.strerror or error}")


def _look(directory: Path, name: str, there: Print, patience: Patience, give_up: Callable[[], bool]) -> Looked:
    path = directory / name
    if not inside(directory, path):
        return Looked(View.DIFFERS, f"{name!a} is no name of a checkpoint")
    while not present(path):  # NFS hides for a while what another node has written
        if not patience.again():
            what = "" if directory.is_dir() else f", and there is no directory {str(directory)!a}"
            return Looked(View.LACKS, f"it is not there ({there.files} files){what}")
    if not there.sign:
        return _compare_trees(path, there, patience)
    manifest = read_manifest(path, patience)
    if isinstance(manifest, Manifest):
        return _compare(path, manifest, there, patience, give_up)
    absent = not all(_is_file(path / marker) for marker in (COMMITTED, MANIFEST))
    return Looked(View.LACKS if absent else View.DIFFERS, manifest.reason)


def steps(directory: Path, above: int, most: int, world: int | None = None) -> tuple[tuple[str, int], ...]:
    """Return up to ``most`` steps that there are, newest first; of those above ``above`` a few, with good markers only.

    ``world``: ranks of the round, where a few ranks' files are not to pass for all of it. ``Unreadable`` means that the
    directory could not be listed.
    """
    patience = Patience(())
    listed = [(one, one.step) for one in scan(directory, patience).candidates if one.step is not None]
    newer = [(one, step) for one, step in listed if step > above][:NEWER]
    quick = Asked(world=world, deep=False)
    newer = [(one, step) for one, step in newer if examine(directory, one, quick, patience, {}).whole]
    older = [(one, step) for one, step in listed if step <= above][: most - NEWER]
    return tuple((one.name, step) for one, step in (*newer, *older))


def awaited(directory: Path, names: Iterable[str], patience: Patience) -> None:
    """Wait while patience lasts until checkpoints show that others have: a listing makes the client ask its server."""
    missing = [name for name in names if inside(directory, directory / name)]
    while True:
        try:
            there = set(os.listdir(directory))
        except OSError:
            there = set[str]()
        if there.issuperset(missing) or not patience.again():
            return


def inside(directory: Path, path: Path) -> bool:
    """Say whether a name that somebody else wrote leads to an entry of the directory, as far as names go."""
    return path != directory and directory in path.parents and ".." not in path.parts


def present(path: Path) -> bool:
    """Say whether something is there; listing its directory makes an NFS client ask its server."""
    try:
        os.listdir(path.parent)
    except OSError:
        return False
    return path.exists()


def _compare(path: Path, manifest: Manifest, there: Print, patience: Patience, give_up: Callable[[], bool]) -> Looked:
    while gone := [entry.path for entry in manifest.files if not _is_file(path / entry.path)]:
        if patience.again():
            os.listdir(path)
            continue
        named = ", ".join(ascii(name) for name in gone[:NAMED])
        more = ", …" if len(gone) > NAMED else ""
        return Looked(View.LACKS, f"{len(gone)} of {len(manifest.files)} files are not there ({named}{more})")
    here = _print(path, manifest.files)
    if here.digest != there.digest:
        return Looked(View.DIFFERS, f"its {MANIFEST} is not the one that the choosing node has")
    shared = bool(here.sign) and here.sign == there.sign
    try:
        reason = _sizes(path, manifest.files) if shared else _whole(path, manifest, patience, give_up)
    except GaveUp as error:
        return Looked(View.UNKNOWN, str(error))
    return Looked(View.DIFFERS, reason) if reason else Looked(View.CAN)


def _whole(path: Path, manifest: Manifest, patience: Patience, give_up: Callable[[], bool]) -> str:
    result = verify_files(path, manifest, patience, give_up)
    return result.reason if isinstance(result, Refused) else ""


def _sizes(path: Path, files: tuple[FileEntry, ...]) -> str:
    for entry in files:
        size = (path / entry.path).stat().st_size
        if size != entry.bytes:
            return f"{entry.path!a} has {size} bytes; its manifest says {entry.bytes}"
    return ""


def _compare_trees(path: Path, there: Print, patience: Patience) -> Looked:
    """Compare one that has no manifest: by the names and sizes of all its files."""
    while True:
        here = _tree(path)
        if here.digest == there.digest:
            return Looked(View.CAN)
        if not patience.again():
            break
    if here.files < there.files:
        return Looked(View.LACKS, f"{there.files - here.files} of {there.files} files are not there")
    if (here.files, here.bytes) != (there.files, there.bytes):
        sizes = f"{here.files} files of {here.bytes} bytes, not {there.files} of {there.bytes}"
        return Looked(View.DIFFERS, f"there are {sizes}")
    return Looked(View.DIFFERS, "names or sizes of its files are others")


def _print(path: Path, files: tuple[FileEntry, ...]) -> Print:
    with opened_directory(path) as root, opened_file(root, COMMITTED) as (fd, _):
        marker, found = os.read(fd, MAX_COMMITTED_BYTES), os.fstat(fd)
    size = sum(entry.bytes for entry in files)
    return Print(len(files), size, hashlib.sha256(marker).hexdigest(), _sign(found))


def _tree(path: Path) -> Print:
    """Return the print of a file or folder by names and sizes. Links are followed no further than the path itself."""
    found = path.stat()
    lines: list[str] = []
    total = 0
    if stat.S_ISREG(found.st_mode):
        lines, total = [f"{found.st_size}"], found.st_size
    for folder, _, names in os.walk(path, onerror=_raise) if not lines else ():
        for name in names:
            one = os.stat(os.path.join(folder, name), follow_symlinks=False)
            lines.append(f"{os.path.relpath(os.path.join(folder, name), path)}\0{one.st_size}")
            total += one.st_size
            if len(lines) > MOST_FILES:
                raise OSError(f"more than {MOST_FILES} files")
    digest = hashlib.sha256("\n".join(sorted(lines)).encode("utf-8", "surrogateescape")).hexdigest()
    return Print(len(lines), total, digest, "")


def _raise(error: OSError) -> None:
    raise error


def _sign(found: os.stat_result) -> str:
    """Return what no copy shares with its original: rsync keeps names, sizes and times, but not the change time."""
    return f"{found.st_ino:x}@{found.st_ctime_ns:x}"


def _is_file(path: Path) -> bool:
    try:
        return stat.S_ISREG(path.stat(follow_symlinks=False).st_mode)
    except OSError:
        return False
