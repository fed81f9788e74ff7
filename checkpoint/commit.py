"""Turn a directory that all ranks have written into a published step: rank 0's part of a publication.

manifest.json → fsync of it and of the directories → COMMITTED → fsync → rename → fsync → ``latest.json``. The data
files were made durable by the ranks that wrote them. A kill between any two operations leaves the step either absent
or whole. Called by ``publication`` only.
"""

from __future__ import annotations

import json
import logging
from pathlib import Path

from .digest import opened_directory, opened_file
from .disk import Disk
from .errors import PublishError
from .layout import COMMITTED, LATEST, MANIFEST, step_name, superseded_name, writing_name
from .manifest import FileEntry, Manifest, committed
from .patience import Patience
from .verify import Refused, read_manifest

_log = logging.getLogger("remuster.checkpoint")


def commit(directory: Path, manifest: Manifest, disk: Disk, patience: Patience) -> None:
    """Publish the step; after ``PublishError`` or ``OSError`` it is not in place, or not known to be durable."""
    writing = directory / writing_name(manifest.step, manifest.attempt)
    for entry in manifest.files:
        _see(writing, entry, patience)
    text = manifest.to_bytes()
    disk.write(writing / MANIFEST, text)
    disk.sync_file(writing / MANIFEST)
    for folder in _folders(writing, manifest):
        disk.sync_dir(folder)
    disk.write(writing / COMMITTED, committed(text))
    disk.sync_file(writing / COMMITTED)
    disk.sync_dir(writing)
    _put_in_place(directory, manifest, writing, disk)
    disk.sync_dir(directory)
    try:
        _point(directory, manifest, disk)
    except OSError as e:  # the step is published; the pointer is only a hint
        _log.warning("step %d is published, but %s could not be updated: %s", manifest.step, LATEST, e)


def _see(writing: Path, entry: FileEntry, patience: Patience) -> None:
    """Make sure that what another node wrote is really in the same directory, and not on a disk of its own."""
    while True:
        try:
            with opened_directory(writing) as root, opened_file(root, entry.path) as (_, size):
                if size == entry.bytes:
                    return
                found = f"has {size} bytes here, {entry.bytes} where it was written"
        except FileNotFoundError:
            found = "is not there"
        if not patience.again():
            raise PublishError(
                f"{entry.path!a} {found}: the checkpoint directory must be one shared by all nodes, "
                "and a file must not be changed once it is written"
            )


def _folders(writing: Path, manifest: Manifest) -> list[Path]:
    """Return the step's directory and every one below it, deepest first."""
    folders = {writing}
    for entry in manifest.files:
        folders.update(writing / parent for parent in Path(entry.path).parents)
    return sorted(folders, key=lambda f: len(f.parts), reverse=True)


def _put_in_place(directory: Path, manifest: Manifest, writing: Path, disk: Disk) -> None:
    final = directory / step_name(manifest.step)
    if not (final.is_symlink() or final.exists()):
        disk.rename(writing, final)
        return
    old = read_manifest(final, Patience(()))
    if not isinstance(old, Refused) and old.run_id == manifest.run_id and old.round > manifest.round:
        raise PublishError(
            f"round {old.round} has already published step {manifest.step}, and this is round {manifest.round}: "
            "this worker group was replaced and must stop"
        )
    aside = _free_name(directory, manifest)
    disk.rename(final, aside)
    try:
        disk.rename(writing, final)
    except OSError:
        disk.rename(aside, final)
        raise


def _free_name(directory: Path, manifest: Manifest) -> Path:
    count = 0
    while (aside := directory / superseded_name(manifest.step, manifest.round, count)).exists():
        count += 1
    return aside


def _point(directory: Path, manifest: Manifest, disk: Disk) -> None:
    fresh = directory / f"{LATEST}.tmp-{manifest.attempt}"
    text = json.dumps({"schema_version": 1, "step": manifest.step, "name": step_name(manifest.step)})
    disk.write(fresh, f"{text}\n".encode())
    disk.sync_file(fresh)
    disk.rename(fresh, directory / LATEST)
    disk.sync_dir(directory)
