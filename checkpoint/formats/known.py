"""Which format is this entry of a checkpoint directory? The built-in ones, then those that others have installed."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from itertools import islice

from . import (
    accelerate,
    colossalai,
    dcp,
    deepspeed,
    lightning,
    megatron,
    orbax,
    published,
    ray,
    torch_files,
    transformers,
)
from .finding import Finding, Format, Question, Unknown
from .folder import Folder
from .installed import installed

SOME = 1000  # files of an unknown entry, among which a checkpoint is looked for, for the words alone

BUILT_IN: tuple[Format, ...] = (  # the more particular before the more general
    published.Published(),
    orbax.Orbax(),
    ray.Ray(),
    transformers.Transformers(),
    accelerate.Accelerate(),
    lightning.Lightning(),
    deepspeed.DeepSpeed(),
    megatron.Megatron(),
    colossalai.ColossalAI(),
    dcp.Dcp(),
    torch_files.TorchFiles(),
)


def named(name: str) -> Format | None:
    """Return the format of this name, or None."""
    return next((format_ for format_ in _all() if format_.name == name), None)


def trouble_with(name: str) -> str:
    """Say why a format that is installed cannot be used; "" when it can, or is none of those."""
    return next((other.trouble for other in installed() if other.name == name), "")


def names() -> tuple[str, ...]:
    """Return the names that may be given."""
    return tuple(format_.name for format_ in _all())


def format_of(folder: Folder) -> Format | None:
    """Return the first format that claims an entry."""
    return claiming(folder.name, folder.files)


def claiming(name: str, files: Collection[str]) -> Format | None:
    """Return the first format that claims these names."""
    return next((format_ for format_ in _all() if format_.claims(name, files)), None)


def judge(folder: Folder, question: Question, format_: Format | None) -> Finding:
    """Judge an entry by its format; without one it is unknown."""
    if format_ is None:
        if inside := _checkpoint_in(folder):
            above = f"{folder.name}/{inside}".rpartition("/")[0]
            return Unknown(f"it holds {inside!a}: if that is a checkpoint, give {above!a} as the directory", True)
        trouble = "".join(f"; {other.trouble}" for other in installed() if other.trouble)
        return Unknown(f"none of the formats known here has such files ({', '.join(names())}){trouble}")
    return format_.judge(folder, question)


def _checkpoint_in(folder: Folder) -> str:
    """Return the path of an entry in it, at any depth, that could be a framework's checkpoint; "" without one."""
    inside: dict[str, list[str]] = {}
    for path in islice(folder.files, SOME):
        parts = path.split("/")
        for depth in range(1, len(parts) + 1):
            inside.setdefault("/".join(parts[:depth]), []).append("/".join(parts[depth:]) or parts[-1])
    for entry, files in sorted(inside.items(), key=lambda item: (item[0].count("/"), item[0])):
        format_ = claiming(entry.rpartition("/")[2], files)
        if format_ is not None and format_.name != torch_files.TorchFiles.name:
            return entry
    return ""


def _all() -> Iterator[Format]:
    yield from BUILT_IN
    yield from installed()
