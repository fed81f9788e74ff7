"""Publish one step so that a reader sees it whole or not at all, whatever is killed while it is written.

Used by training scripts, by all ranks together::

    with publish(step, dataset_snapshot="digits-1797") as p:
        if rank == 0:
            torch.save(state, p.path("model.pt"))
        torch.save(rng_state, p.path(f"rng-{rank}.pt"))

All ranks write into ``step-N.tmp-<attempt>`` → sizes and digests are gathered → rank 0 (``commit``) makes it a step.
An error on any rank becomes a ``PublishError`` on every rank: none waits for one whose disk was full.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import cast

from .commit import commit
from .digest import opened_directory, opened_file, sha256_of
from .disk import Disk
from .errors import PublishError
from .identity import identity
from .layout import writing_name
from .manifest import FileEntry, Manifest, unsafe_path
from .patience import Patience
from .ranks import Gather, Ranks, ranks


@dataclass(frozen=True, slots=True)
class _Report:
    """What one rank tells the others at a meeting point; ``problem`` is empty when all went well."""

    step: int
    node: str
    problem: str
    files: tuple[FileEntry, ...] = ()

    def to_text(self) -> str:
        files = [(f.path, f.bytes, f.sha256) for f in self.files]
        return json.dumps([self.step, self.node, self.problem, files])

    @classmethod
    def from_text(cls, text: str) -> _Report:
        step, node, problem, files = cast("tuple[int, str, str, list[tuple[str, int, str]]]", json.loads(text))
        return cls(step, node, problem, tuple(FileEntry(*f) for f in files))


class Publication:
    """One step being published. A context manager that every rank enters and leaves; no collectives inside it."""

    def __init__(self, directory: Path, draft: Manifest, ranks: Ranks, node: str, disk: Disk) -> None:
        self._directory = directory
        self._writing = directory / writing_name(draft.step, draft.attempt)
        self._draft = draft
        self._ranks = ranks
        self._node = node
        self._disk = disk
        self._begun_s = 0.0
        self._names: list[str] = []

    def path(self, name: str) -> Path:
        """Return where this rank writes its data file ``name``; no other rank may ask for the same name."""
        target = self._place(name)
        if name not in self._names:
            self._names.append(name)
        self._disk.make_dir(target.parent)
        return target

    def folder(self, name: str) -> Path:
        """Return a folder in which a library names its files itself; then ask ``path`` for each one of this rank's."""
        target = self._place(name)
        self._disk.make_dir(target)
        return target

    def _place(self, name: str) -> Path:
        if why := unsafe_path(name):
            raise ValueError(f"checkpoint file name {name!a} {why}")
        return self._writing / name

    def __enter__(self) -> Publication:
        self._begun_s = time.monotonic()
        self._meet(self._try(self._open) if self._ranks.rank == 0 else "")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if error is not None and not isinstance(error, Exception):
            return  # the process is on its way out; the others learn of it from the closed connection
        files: list[FileEntry] = []
        problem = self._blame(error) if error else self._try(lambda: files.extend(self._seal()))
        try:
            reports = self._meet(problem, tuple(files))
            self._meet(self._try(lambda: self._commit(reports)) if self._ranks.rank == 0 else "")
        except PublishError:
            if self._ranks.rank == 0:
                self._tidy()
            if error is None:
                raise  # else this rank's own exception is the better story, and goes on by itself

    def _open(self) -> None:
        self._disk.make_dir(self._directory)
        self._disk.clear(self._writing)
        self._disk.make_dir(self._writing)

    def _seal(self) -> list[FileEntry]:
        """Make this rank's own files durable, from the machine that wrote them, and take their digests."""
        entries: list[FileEntry] = []
        for name in self._names:
            self._disk.sync_file(self._writing / name)
            with opened_directory(self._writing) as root, opened_file(root, name) as (fd, _):
                size, sha256 = sha256_of(fd)
            entries.append(FileEntry(name, size, sha256))
        return entries

    def _commit(self, reports: tuple[_Report, ...]) -> None:
        owners: dict[str, int] = {}
        for rank, report in enumerate(reports):
            for entry in report.files:
                if (other := owners.setdefault(entry.path, rank)) != rank:
                    raise PublishError(f"ranks {other} and {rank} both wrote {entry.path!a}; give each its own name")
        files = tuple(sorted((f for r in reports for f in r.files), key=lambda f: f.path))
        if not files:
            raise PublishError("no rank wrote a file; ask p.path(name) for each one")
        world = self._draft.world_size if self._draft.world_size is not None else len(reports)
        took_ms = round((time.monotonic() - self._begun_s) * 1000)
        manifest = replace(self._draft, files=files, world_size=world, save_ms=took_ms)
        commit(self._directory, manifest, self._disk, Patience())

    def _tidy(self) -> None:
        """Remove what this failed publication wrote, so that a full disk has room for the next one."""
        self._try(lambda: self._disk.clear(self._writing))

    def _try(self, act: Callable[[], None]) -> str:
        """Run ``act``; return what went wrong. Broad on purpose: a rank that raised here would hang the others."""
        try:
            act()
        except Exception as e:
            return self._blame(e)
        return ""

    def _blame(self, error: BaseException) -> str:
        text = str(error) or type(error).__name__
        if isinstance(error, PublishError):
            return text
        if isinstance(error, OSError) and error.strerror and isinstance(error.filename, str):
            return f"{os.path.relpath(error.filename, self._directory)}: {error.strerror}"
        where = f"while writing {self._names[-1]}: " if self._names else ""
        return f"{where}{type(error).__name__}: {text}"

    def _meet(self, problem: str, files: tuple[FileEntry, ...] = ()) -> tuple[_Report, ...]:
        """Exchange reports with all ranks; raise the same error on each of them if any has one."""
        mine = _Report(self._draft.step, self._node, problem, files)
        try:
            reports = tuple(_Report.from_text(text) for text in self._ranks.gather(mine.to_text()))
        except Exception as e:  # whatever the script's own transport raises when a peer is gone
            raise PublishError(f"step {self._draft.step} is not published: the ranks could not agree: {e}") from e
        for rank, report in enumerate(reports):
            at = f"rank {rank}" + (f" on {report.node}" if report.node else "")
            if report.problem:
                raise PublishError(
                    f"step {self._draft.step} is not safely published to {self._directory}: {at}: {report.problem}. "
                    "Steps published before are untouched"
                )
            if report.step != reports[0].step:
                raise PublishError(
                    f"{at} publishes step {report.step}, but rank 0 step {reports[0].step}: the ranks have come apart"
                )
        return reports


def publish(
    step: int,
    directory: str | os.PathLike[str] | None = None,
    *,
    world_size: int | None = None,
    parallelism: Mapping[str, object] | None = None,
    dataset_snapshot: str | None = None,
    code_commit: str | None = None,
    gather: Gather | None = None,
    rank: int | None = None,
    disk: Disk | None = None,
) -> Publication:
    """Begin to publish ``step``; collective, every rank calls it with the same step.

    ``directory`` defaults to the launcher's ``--checkpoint-dir``. The ranks agree through the script's initialised
    ``torch.distributed`` group, or through ``gather`` (then ``rank`` defaults to RANK). Blocks in ``with`` until all
    ranks have written; raises ``PublishError`` on all of them or on none.
    """
    who = identity(os.environ)
    place = os.fspath(directory) if directory is not None else who.directory
    if not place:
        raise PublishError("no checkpoint directory: give directory=, or start the job with --checkpoint-dir")
    if step < 0:
        raise PublishError(f"step {step} is negative")
    torch = sys.modules.get("torch")
    draft = Manifest(
        run_id=who.run_id,
        attempt=who.attempt,
        round=who.round,
        step=step,
        files=(),
        incarnation=who.incarnation,
        world_size=world_size,
        parallelism=parallelism or {},
        framework={"name": "pytorch", "version": str(getattr(torch, "__version__", ""))} if torch else {},
        code_commit=code_commit,
        dataset_snapshot=dataset_snapshot,
        created_at=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    )
    return Publication(Path(place).absolute(), draft, ranks(gather, rank, who), who.node, disk or Disk())
