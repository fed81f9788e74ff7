"""The command itself: argv and environment in, exit code out. Everything heavy is imported only when it is needed.

Called by `entry` inside the agent's process, and by tests with a body of their own in the agent's place.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import cast

import click

from ..agent.spec import JobSpec
from .argv import split
from .environment import read
from .errors import UsageError
from .flags import FLAGS, Flag, Group
from .given import Given

USAGE = 2  # exit code: the command cannot mean anything

_EPILOG = """\b
Examples:
  remuster --nproc-per-node auto train.py --epochs 3
  remuster --nnodes 2:4 --nproc-per-node gpu --rdzv-backend etcd \\
      --rdzv-endpoint etcd1,etcd2,etcd3 --rdzv-id big-run \\
      --checkpoint-dir /data/big-run --retry-budget hardware=8,node=4 train.py

Every flag has its default in PET_<NAME>, as with torchrun: PET_NNODES=2, PET_STANDALONE=1. Dashes and underscores mean
the same, and a flag may be shortened as far as it stays unique. From the script on, everything is the script's.

\b
Exit codes: 0 done; 2 wrong usage; 69 the nodes could not meet; 70 a defect in
remuster; 75 worth a requeue; 128+N stopped by signal N; else the code of the
rank at which the failure began."""


class _Command(click.Command):
    """A click command whose options stand in groups; the script is not click's to see."""

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        return ["[OPTIONS]", "SCRIPT", "[SCRIPT'S ARGUMENTS]"]

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for group in Group:
            with formatter.section(group.value):
                formatter.write_dl([_row(flag) for flag in FLAGS if flag.group is group])


def _row(flag: Flag) -> tuple[str, str]:
    short = f"-{flag.short}, " if flag.short else ""
    return f"{short}--{flag.name} {flag.metavar}".rstrip(), flag.help


def _option(flag: Flag) -> click.Option:
    names = [f"--{flag.name}", flag.dest]
    if flag.metavar:
        return click.Option(names, type=click.UNPROCESSED, multiple=flag.repeat)
    if flag.name == "version":
        return click.Option(names, is_flag=True, is_eager=True, expose_value=False, callback=_print_version)
    return click.Option(names, is_flag=True)


def _print_version(ctx: click.Context, _param: click.Parameter, asked: bool) -> None:
    if asked:
        face = importlib.import_module(__name__.partition(".")[0])
        click.echo(f"remuster {face.__version__}")
        ctx.exit(0)


def _command() -> click.Command:
    options: list[click.Parameter] = [_option(flag) for flag in FLAGS if flag.name != "help"]
    return _Command(
        "remuster",
        params=options,
        help="Start a training script's ranks on this node, together with the other nodes; when a rank, a node or the "
        "network fails, say why, and start all of them again from a verified checkpoint.",
        epilog=_EPILOG,
        callback=_what_was_given,
    )


def _what_was_given(**values: object) -> dict[str, str | bool]:
    given: dict[str, str | bool] = {}
    for dest, value in values.items():
        if isinstance(value, tuple):
            if value:
                given[dest] = ",".join(cast("tuple[str, ...]", value))
        elif isinstance(value, str) or value is True:
            given[dest] = value
    return given


def run(argv: Sequence[str], environ: Mapping[str, str], start: Callable[[JobSpec], int]) -> int:
    """Parse, check, and let ``start`` run the job; return the command's exit code."""
    try:
        halves = split(argv)
        with _command().make_context("remuster", list(halves.options), max_content_width=110) as ctx:
            line: dict[str, str | bool] = ctx.command.invoke(ctx)
        env = read(environ)
        from .build import build

        built = build(Given(line, env.defaults), halves, env, _parse_budget)
    except click.exceptions.Exit as done:
        return done.exit_code
    except UsageError as error:
        print(f"remuster: {error}", file=sys.stderr)
        return USAGE
    for note in built.notes:
        print(f"remuster: {note}", file=sys.stderr)
    return start(built.spec)


def _parse_budget(text: str) -> tuple[tuple[str, int], ...]:
    from ..health.classes import families
    from ..rendezvous.budget import parse

    return parse(text, families())
