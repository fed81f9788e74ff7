"""Which format is this entry of a checkpoint directory? The built-in ones, then those that others have installed."""

from __future__ import annotations

from collections.abc import Collection, Iterator

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

GROUP = "remuster.checkpoint_formats"  # of entry points: name = module:object, which is a Format

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
        return Unknown(f"none of the formats known here has such files ({', '.join(names())})")
    return format_.judge(folder, question)


def _all() -> Iterator[Format]:
    yield from BUILT_IN
    from importlib.metadata import entry_points

    for point in entry_points(group=GROUP):
        yield point.load()
