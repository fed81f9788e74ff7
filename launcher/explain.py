"""``remuster explain LOGDIR|FILE...``: the live verdict, offline, on any launcher's output. No store, GPU or torch.

Finds the files, chooses the attempt, and joins what they say with the exit statuses, kernel log and GPU facts that were
given; ``health`` judges, `explain_show` shows. Called by `commands`.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import cast

import click

from ..health import offline
from ..health.ends import Part, Unfit
from ..health.errors import BadEvidence
from ..health.evidence import Fact
from ..health.layout import Kind, Place, last_attempt, places
from ..health.own_signatures import NONE, OwnSignatures
from ..health.verdict import judge
from . import explain_files as files
from . import explain_record, signatures_file
from . import explain_show as show
from .errors import UsageError
from .explain_record import decoded

USAGE = 2
TOGETHER_S = 120  # logs of one job's nodes end that close to one another; those of another run of the same id do not
GPU_FIELDS = {"uuid": "", "bus": "", "number": 0}


@dataclass(slots=True)
class Asked:
    """What was given on the command line, as values."""

    paths: list[Path]
    statuses: list[int] = field(default_factory=list[int])
    kmsg: list[Path] = field(default_factory=list[Path])
    nvml: list[Path] = field(default_factory=list[Path])
    own: OwnSignatures = NONE


def main(argv: Sequence[str], environ: Mapping[str, str]) -> int:
    """Run the sub-command; return its exit code."""
    try:
        return _explain.main(list(argv), prog_name="remuster explain", standalone_mode=False) or 0
    except click.ClickException as error:
        words = show.visible(error.format_message().rstrip("."))
        print(f"remuster explain: {words}; see remuster explain --help", file=sys.stderr)
        return USAGE
    except (UsageError, Unfit) as error:
        print(f"remuster explain: {show.visible(str(error))}", file=sys.stderr)
        return USAGE


@click.command(
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": show.WIDTH},
    help="Say why a round of training ended: which class of failure, which rank, on what evidence. PATHs are a log "
    "directory of torchrun, remuster or Slurm, or files: one of each rank, or a console that ranks share. Of several "
    "attempts the last is explained; give the directory of another for that one. Kernel logs (dmesg*, kern.log*, "
    "journal*) and lists of pids (pids.txt) beside the logs are read, too.",
)
@click.argument("paths", metavar="PATH...", nargs=-1, required=True)
@click.option(
    "--exit",
    "statuses",
    metavar="CODE,...",
    help="Exit statuses: one for all ranks, or one for each in their order. -9 and 137 are signal 9. Without them they "
    "are concluded from what the logs say.",
)
@click.option("--kmsg", metavar="FILE", multiple=True, help="A kernel log (dmesg, journalctl -k) of the node.")
@click.option(
    "--nvml", metavar="FILE", multiple=True, help="Facts about GPUs: JSON, one object a line (docs/explain.md)."
)
@click.option("--signatures", metavar="FILE", help="What lines and XIDs mean at your site (docs/signatures.md).")
@click.option(
    "--policy", is_flag=True, help="Also show what remuster would do: retry or not, who pays, what of the node."
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def _explain(
    paths: tuple[str, ...],
    statuses: str | None,
    kmsg: tuple[str, ...],
    nvml: tuple[str, ...],
    signatures: str | None,
    policy: bool,
    as_json: bool,
) -> int:
    own = NONE if signatures is None else signatures_file.read("--signatures", signatures)
    asked = Asked([*map(Path, paths)], _statuses(statuses), [*map(Path, kmsg)], [*map(Path, nvml)], own)
    found = explained(asked)
    text = json.dumps(show.plain(found, policy), indent=1) if as_json else show.words_of(found, policy)
    click.echo(text)
    return 0


def explained(asked: Asked) -> show.Explanation:
    """Read and judge. UsageError when there is nothing to read."""
    notes: list[str] = []
    chosen = _chosen(asked.paths, notes)
    earlier = [(place, path) for place, path in chosen if place.kind is Kind.RECORD]
    texts = files.read_all(chosen, asked.own)
    for path in asked.kmsg:
        try:
            files.kernel_file(texts, path)
        except OSError as error:
            raise UsageError(f"--kmsg {path}: {error.strerror}") from error
    more = {"": tuple(fact for path in asked.nvml for fact in _gpus(path))}
    notes += texts.notes
    if not texts.parts and not earlier and not texts.kernel_files and not more[""]:
        raise UsageError("; ".join([*notes[:4], "nothing to explain was found; give the ranks' logs"]))
    verdict = None
    if earlier:
        recorded = files.record(earlier[-1][1])
        if recorded is None:
            notes.append(f"{earlier[-1][1]}: it is no record of remuster's: not used")
        else:
            case, verdict = explain_record.case_of(recorded, str(earlier[-1][1]), texts.parts, asked.statuses)
            case = replace(case, own=asked.own)
            return show.Explanation(verdict or judge(case.evidence, asked.own), case, tuple(notes))
    parts, said = offline.with_reports(texts.parts)
    said.pids |= texts.pids
    parts = parts or [Part(texts.kernel_files[0] if texts.kernel_files else str(asked.paths[0]))]
    case = offline.assembled(offline.numbered(parts), asked.statuses, said, texts.kernel, more, asked.own)
    if not texts.kernel_files:
        notes.append("no kernel log was given (--kmsg): an out-of-memory kill or an XID may not be seen")
    return show.Explanation(judge(case.evidence, asked.own), case, tuple(notes))


def _statuses(text: str | None) -> list[int]:
    if text is None:
        return []
    try:
        found = [int(word) for word in text.split(",")]
    except ValueError:
        found = [256]
    if any(not -64 <= status <= 255 for status in found):
        raise UsageError(f"--exit is {text!r}; give statuses such as 1 or -6,-6,1,-6")
    return found


def _chosen(paths: Sequence[Path], notes: list[str]) -> list[tuple[Place, Path]]:
    """Return the files of the one round that is explained, with what each is."""
    named: dict[str, Path] = {}
    given: set[str] = set()
    for path in paths:
        try:
            if path.is_dir():
                named |= {
                    (f"{path}/{name}" if len(paths) > 1 else name): path / name for name in files.walk(path, notes)
                }
                continue
            path.stat()
            if not path.is_file():
                notes.append(f"{path}: it is not a regular file: not read")
                continue
        except (OSError, ValueError) as error:
            raise UsageError(f"{path}: {error.strerror if isinstance(error, OSError) else error}") from error
        named[str(path)] = path
        given.add(str(path))
    found = places(named)
    found = tuple(_as_given(place, given) for place in found)
    return [(place, named[place.path]) for place in _one_round(found, named, given, notes)]


def _as_given(place: Place, given: set[str]) -> Place:
    """Take a file that was named on the command line as output whatever it is called."""
    wanted = place.path in given and place.kind is Kind.OTHER
    return place._replace(kind=Kind.OUTPUT) if wanted else place


def _one_round(found: Sequence[Place], named: Mapping[str, Path], given: set[str], notes: list[str]) -> list[Place]:
    tree = [place for place in found if place.attempt >= 0]
    if not tree:
        return list(found)
    runs: dict[str, float] = {}
    for place in tree:
        runs[place.run] = max(runs.get(place.run, 0.0), _changed(named[place.path]))
    newest = max(runs, key=lambda run: (runs[run], run))
    chosen = {run for run, at in runs.items() if _id(run) == _id(newest) and runs[newest] - at <= TOGETHER_S}
    if len(chosen) < len(runs):
        notes.append(
            f"{len(runs)} runs are there; the newest is explained, {_shown(newest)}; give the directory of another"
        )
    kept = [place for place in tree if place.run in chosen]
    last = last_attempt(kept)
    attempts = sorted({place.attempt for place in kept})
    if len(attempts) > 1:
        others = ", ".join(f"attempt_{n}" for n in attempts if n != last)
        notes.append(f"attempt {last} is explained, the last; give the directory of another for that: {others}")
    round_ = [place for place in kept if place.attempt == last]
    beside = [
        place
        for place in found
        if place.attempt < 0 and (place.kind in (Kind.KERNEL, Kind.PIDS) or place.path in given)
    ]
    several = len(chosen) > 1
    return [*(place._replace(node=place.node or (_shown(place.run) if several else "")) for place in round_), *beside]


def _changed(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def _id(run: str) -> str:
    return run.rpartition("_")[0]


def _shown(run: str) -> str:
    return os.path.basename(run) or "."


def _gpus(path: Path) -> list[Fact]:
    """Read facts about GPUs, as remuster's own records spell them. UsageError when they are none."""
    try:
        with files.opened(path) as file:
            lines = file.read(files.BLOCK).decode("utf-8", "replace").split("\n")
    except OSError as error:
        raise UsageError(f"--nvml {path}: {error.strerror}") from error
    facts: list[Fact] = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            body: object = json.loads(line)
            entry = cast("dict[str, object]", body) if isinstance(body, dict) else {}
            (fact,) = decoded([{**GPU_FIELDS, **entry, "is": "gpu"}])
        except (ValueError, RecursionError, BadEvidence):
            fact = None
        if fact is None or type(fact).__name__ != "Gpu":
            raise UsageError(
                f"--nvml {path}: line {number} is no JSON object with facts about a GPU; see docs/explain.md"
            )
        facts.append(fact)
    return facts
