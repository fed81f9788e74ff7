"""``remuster check``: whether this node can take part in a job, as an agent looks before it joins. No store is needed.

For the operator, a prolog of the scheduler, or a health check of the cluster. Called by `commands`.
"""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import click

from ..agent.node_check import DEEP_S, Looking, Wish, check_node, unspared
from ..health.node_check import Finding, State, conclude

FAILED, USAGE = 1, 2
WIDTH = 110


def main(argv: Sequence[str], environ: Mapping[str, str]) -> int:
    """Run the sub-command; return its exit code."""
    try:
        return _check.main(list(argv), prog_name="remuster check", standalone_mode=False, obj=environ) or 0
    except click.ClickException as error:
        words = error.format_message().rstrip(".")
        print(f"remuster check: {words}; see remuster check --help", file=sys.stderr)
        return USAGE


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--deep", is_flag=True, help="Test memory, GPUs and the links between them too; needs torch. Minutes.")
@click.option(
    "--gpus", type=click.IntRange(0), metavar="N", help="How many GPUs there must be. Default: as many as answer."
)
@click.option("--log-dir", type=click.Path(path_type=Path), default=Path("/tmp"), help="Where there must be room.")  # noqa: S108
@click.option("--run", "command", metavar="CMD", help="A check of the site's own: 0 passes, 1 to 125 fails.")
@click.option("--python", default=sys.executable, help="The interpreter that has torch. Default: this one.")
@click.option("--timeout", type=click.FloatRange(1), default=DEEP_S, show_default=True, help="Seconds for --deep.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
@click.pass_obj
def _check(
    environ: Mapping[str, str],
    /,
    deep: bool,
    gpus: int | None,
    log_dir: Path,
    command: str | None,
    python: str,
    timeout: float,
    as_json: bool,
) -> int:
    """Look whether this node can take part in a job.

    Exit codes: 0 it can, as far as could be found out; 1 it cannot; 2 wrong usage.
    """
    words = _words(command)
    wish = Wish(log_dir, environ, python, words, True, gpus, deep, os.getpid(), timeout)
    found = asyncio.run(check_node(wish, Looking(unspared, _unheard)))
    answer = conclude(found)
    if as_json:
        items = [finding._asdict() | {"state": finding.state.value} for finding in found]
        click.echo(json.dumps({"passed": answer.passed, "sentence": answer.sentence, "findings": items}))
    else:
        for finding in sorted(found, key=_weight):
            click.echo(_line(finding))
        heading = "This node cannot take part" if answer.passed is False else "This node can take part"
        click.echo(f"\n{heading}: {answer.sentence}")
    return FAILED if answer.passed is False else 0


def _unheard(_: str) -> None:
    """Take a child's words, which nobody asks for."""


def _words(command: str | None) -> tuple[str, ...]:
    try:
        words = tuple(shlex.split(command or ""))
    except ValueError as error:
        raise click.UsageError(f"--run {command!r} cannot be split into words: {error}") from error
    if command is not None and not words:
        raise click.UsageError("--run is empty")
    return words


def _weight(finding: Finding) -> int:
    return (State.BAD, State.UNKNOWN, State.NOTE, State.OK).index(finding.state)


def _line(finding: Finding) -> str:
    text = " ".join(f"{finding.what}: {finding.text}".split())
    return f"{finding.state.value:8}{text if len(text) <= WIDTH - 8 else text[: WIDTH - 9] + '…'}"
