"""``remuster checkpoints`` and ``remuster resume-point``: which checkpoints are whole, and where ranks would re-enter.

The same search as the leading agent's, by hand: no store is asked, so a run's own rounds, which make steps of replaced
groups stale, are not known here. Nothing is changed. Called by `commands`.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import click

from ..checkpoint.errors import CheckpointError
from ..checkpoint.examine import Asked, Look
from ..checkpoint.formats import known
from ..checkpoint.formats.folder import Folder
from ..checkpoint.look_part import is_part
from ..checkpoint.names import shown
from ..checkpoint.patience import Patience
from ..checkpoint.resume import first_whole, looks

NONE, USAGE = 1, 2
SCHEMA_VERSION = 1
HEADS: tuple[str, ...] = ("STEP", "NAME", "FORMAT", "WHOLE", "SIZE", "AGE", "WORLD", "HOW IT IS KNOWN, OR WHY NOT")
ELSEWHERE = "where each node keeps the files of its own ranks, others may have the rest, and a job asks them"
DIRECTORY = click.Path(exists=True, file_okay=False, path_type=Path)


def table(argv: Sequence[str], environ: Mapping[str, str]) -> int:
    """Run ``remuster checkpoints``; return its exit code."""
    return _run(_table, "checkpoints", argv)


def point(argv: Sequence[str], environ: Mapping[str, str]) -> int:
    """Run ``remuster resume-point``; return its exit code."""
    return _run(_point, "resume-point", argv)


def _run(command: click.Command, name: str, argv: Sequence[str]) -> int:
    try:
        return command.main(list(argv), prog_name=f"remuster {name}", standalone_mode=False) or 0
    except click.ClickException as error:
        words = error.format_message().rstrip(".")
        print(f"remuster {name}: {words}; see remuster {name} --help", file=sys.stderr)
        return USAGE
    except CheckpointError as error:
        print(f"remuster {name}: {error}", file=sys.stderr)
        return NONE


def _format(_: click.Context, __: click.Parameter, value: str | None) -> str:
    if value is not None and known.named(value) is None:
        raise click.BadParameter(f"{value!r}; known here are {', '.join(known.names())}")
    if value is not None and (trouble := known.trouble_with(value)):
        raise click.BadParameter(f"{value!r}: {trouble}; install it again, or leave it out")
    return value or ""


_DIRECTORY = click.argument("directory", metavar="DIR", type=DIRECTORY)
_JSON = click.option("--json", "as_json", is_flag=True, help="One JSON object.")
_WORLD = click.option(
    "--world", type=click.IntRange(1), metavar="N", help="Ranks of the job, for formats that do not record it."
)
_FORMAT = click.option(
    "--format",
    "format_name",
    callback=_format,
    metavar="F",
    help="Take everything for this format. Default: found by itself.",
)
_QUICK = click.option("--quick", is_flag=True, help="Names, sizes and markers only: no content is read.")
_SETTINGS = {"help_option_names": ["-h", "--help"]}


@click.command(context_settings=_SETTINGS)
@_DIRECTORY
@_WORLD
@_FORMAT
@_QUICK
@_JSON
def _table(directory: Path, world: int | None, format_name: str, quick: bool, as_json: bool) -> int:
    """Show the checkpoints in DIR, the folder that holds the step folders, newest first.

    Exit codes: 0 one of them is whole; 1 none is, or DIR could not be read; 2 wrong usage.
    """
    asked = Asked(format=format_name, world=world, deep=not quick)
    found = [_hinted(directory, look, asked) for look in looks(directory, asked, Patience(()))]
    rows = [_row(directory, look) for look in found]
    if as_json:
        told = {"schema_version": SCHEMA_VERSION, "directory": str(directory.absolute()), "checkpoints": rows}
        print(json.dumps(told, indent=1))
    elif not rows:
        print(f"no checkpoint in {directory}")
    else:
        _show(rows)
    return 0 if any(look.whole for look in found) else NONE


@click.command(context_settings=_SETTINGS)
@_DIRECTORY
@_WORLD
@_FORMAT
@_QUICK
@_JSON
def _point(directory: Path, world: int | None, format_name: str, quick: bool, as_json: bool) -> int:
    """Say from which checkpoint in DIR all ranks would re-enter, and why not from newer ones.

    Exit codes: 0 there is one, its path is printed; 1 there is none, or DIR could not be read; 2 wrong usage.
    """
    asked = Asked(format=format_name, world=world, deep=not quick)
    found: list[Look] = []
    for look in looks(directory, asked, Patience(())):
        found.append(_hinted(directory, look, asked))
        if look.whole:
            break
    choice = first_whole(directory, found)
    if as_json:
        refused = [{"name": name, "reason": reason} for name, reason in choice.refused]
        step = found[-1].step if choice.path else None
        path, format_, verified = (text or None for text in (choice.path, choice.format, choice.verified))
        known_by = {"format": format_, "verified": verified}
        told = {"path": path, "step": step, **known_by, "refused": refused, "astray": choice.astray or None}
        print(json.dumps({"schema_version": SCHEMA_VERSION, **told}, indent=1))
        return 0 if choice.path else NONE
    for name, reason in choice.refused:
        print(f"{name}: {reason}", file=sys.stderr)
    if choice.path:
        print(choice.path)
        return 0
    why = f" as it was asked for: {choice.astray}" if choice.astray else ""
    print(f"remuster resume-point: no checkpoint in {directory} can be re-entered{why}", file=sys.stderr)
    return NONE


def _hinted(directory: Path, look: Look, asked: Asked) -> Look:
    """Say where the missing files of one may lie."""
    if not look.lacking or not is_part(directory, look.name, asked):
        return look
    return look._replace(words=f"{look.words} ({ELSEWHERE})")


def _row(directory: Path, look: Look) -> dict[str, object]:
    size, newest = _extent(directory / look.name)
    return {
        "name": shown(look.name),
        "path": str(directory.absolute() / look.name),
        "step": look.step,
        "format": look.format or _format_of(directory, look) or None,
        "whole": look.whole,
        "how": look.words if look.whole else None,
        "why_not": None if look.whole else look.words,
        "bytes": size,
        "age_s": None if newest is None else round(time.time() - newest, 1),
        "world": look.world,
    }


def _format_of(directory: Path, look: Look) -> str:
    """Return the format of one that was refused by its name alone."""
    try:
        folder = Folder(directory, look.name)
    except OSError:
        return ""
    format_ = known.format_of(folder)
    return format_.name if format_ is not None else ""


def _extent(path: Path) -> tuple[int | None, float | None]:
    """Return the bytes of all its files, and when the newest of them was written; None: it is not there."""
    try:
        own = path.lstat()
    except OSError:
        return None, None
    if not os.path.isdir(path):  # pathlib's would raise where it may not look
        return own.st_size, own.st_mtime
    size, newest = 0, own.st_mtime
    for parent, _, names in os.walk(path):
        for name in names:
            try:
                found = os.lstat(os.path.join(parent, name))
            except OSError:
                continue  # a save that is being tidied away
            size, newest = size + found.st_size, max(newest, found.st_mtime)
    return size, newest


def _show(rows: Sequence[Mapping[str, object]]) -> None:
    whole = {True: "yes", False: "no", None: "unknown"}
    lines = [HEADS]
    for row in rows:
        age, size = row["age_s"], row["bytes"]
        lines.append(
            (
                _text(row["step"]),
                str(row["name"]),
                _text(row["format"]),
                whole[row["whole"]] if isinstance(row["whole"], bool) or row["whole"] is None else "",
                _bytes(size) if isinstance(size, int) else "-",
                _age(age) if isinstance(age, float) else "-",
                _text(row["world"]),
                str(row["how"] or row["why_not"]),
            )
        )
    widths = [max(len(line[i]) for line in lines) for i in range(len(HEADS) - 1)]
    for line in lines:
        print("  ".join(text.ljust(width) for text, width in zip(line, (*widths, 0), strict=True)).rstrip())


def _text(value: object) -> str:
    return "-" if value is None else str(value)


def _bytes(size: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def _age(seconds: float) -> str:
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s"
