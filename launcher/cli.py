"""The command itself: argv and environment in, exit code out. Everything heavy is imported only when it is needed.

Called by `entry` inside the agent's process, and by tests with a body of their own in the agent's place.
"""

from __future__ import annotations

import contextlib
import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from ..agent.spec import JobSpec
from .argv import split
from .environment import read
from .errors import SaidByAnother, UsageError
from .flags import BY_NAME
from .given import Given

if TYPE_CHECKING:
    from ..rendezvous.budget import Bound

USAGE = 2  # exit code: the command cannot mean anything


def run(argv: Sequence[str], environ: Mapping[str, str], start: Callable[[JobSpec], int]) -> int:
    """Parse, check, and let ``start`` run the job; return the command's exit code."""
    try:
        halves = split(argv)
        line = _line(halves.options)
        if "help" in line or "version" in line:
            from .answers import give

            return give(lambda: print(_help() if "help" in line else _version()) or 0)
        env = read(environ)
        from .build import build

        built = build(Given(line, env.defaults), halves, env, _parse_budget)
    except UsageError as error:
        print(f"remuster: {error}", file=sys.stderr)
        return USAGE
    except SaidByAnother:
        # srun ends with the highest code, 2; the first code that is not 0 would have it kill the one that speaks.
        return 0
    with contextlib.suppress(OSError):  # a full or broken stderr is no reason not to run the job
        for note in built.notes:
            print(f"remuster: {note}", file=sys.stderr)
    code = start(built.spec)
    if built.plain_exit and code > 1:
        with contextlib.suppress(OSError):
            print(f"remuster: exit code 1 in place of {code}, as --exit-code=torchrun asks", file=sys.stderr)
        return 1
    return code


def _line(options: Sequence[str]) -> dict[str, str | bool]:
    """Take the canonical options in: the last one wins, as in torchrun, but where both count."""
    line: dict[str, str | bool] = {}
    for option in options:
        name, given, value = option[2:].partition("=")
        flag = BY_NAME[name]
        before = line.get(flag.dest)
        line[flag.dest] = True if not given else f"{before},{value}" if flag.repeat and before is not None else value
    return line


def _help() -> str:
    from .help import text

    return text()


def _version() -> str:
    face = importlib.import_module(__name__.partition(".")[0])
    return f"remuster {face.__version__}"


def _parse_budget(text: str) -> tuple[Bound, ...]:
    from ..health.classes import families
    from ..rendezvous.budget import parse

    return parse(text, families())
