"""The console script ``remuster`` and ``python -m remuster``.

Imports next to nothing: the keeper forks in this interpreter while it is young, and everything else is loaded by the
body in the agent's process.
"""

from __future__ import annotations

import gc
import os
import sys

TYPE_CHECKING = False  # typing's own costs 4 ms; checkers know the bare name
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import NoReturn

    from ..agent.seat import Seat
    from ..agent.spec import JobSpec

DEFECT = 70  # exit code: neither the job's fault nor the command line's
UNHEALTHY = 75  # exit code: this machine cannot do it now, another one may


def main() -> NoReturn:
    """Run the command in this process and end it with the job's exit code, or with a sub-command's."""
    word = sys.argv[1] if len(sys.argv) > 1 else ""
    if word[:1] != "-" and word.replace("-", "").isalpha():  # few scripts are called so, and no option
        from . import answers, commands

        name = commands.chosen(sys.argv[1:], _runs)
        if name is not None:
            sys.exit(_unless_defect(lambda: answers.give(lambda: commands.run(name, sys.argv[2:], os.environ))))
    gc.disable()  # nothing that a start allocates is garbage; keeper and agent turn it on when they have time
    sys.exit(_unless_defect(_keep))


def _keep() -> NoReturn:
    from ..agent.keeper import run

    run(body)


def _runs(path: str) -> bool:
    """Tell whether Python would run what lies there: a file, or a folder with a program in it."""
    return os.path.isfile(path) or os.path.isfile(os.path.join(path, "__main__.py"))


def _unless_defect(work: Callable[[], int]) -> int:
    try:
        return work()
    except Exception as error:
        from ..agent import limits

        short = limits.shortage(error)
        if short is not None:
            print(f"remuster: {short}", file=sys.stderr)
            return UNHEALTHY
        import traceback

        traceback.print_exc()
        print("remuster: this is a defect in remuster; please report it with the lines above", file=sys.stderr)
        return DEFECT


def _import_asyncio() -> None:
    """Import asyncio without its TLS, which nothing here uses (gRPC brings its own): a tenth of the start's imports."""
    import importlib

    had = sys.modules.get("ssl")
    sys.modules["ssl"] = None  # type: ignore[assignment]  # the import system's word for absent; asyncio copes
    try:
        importlib.import_module("asyncio")
    finally:
        if had is None:
            del sys.modules["ssl"]
        else:
            sys.modules["ssl"] = had


def body(seat: Seat) -> int:
    """Parse the command line and run this node's agent; return the exit code."""
    from . import cli

    def start(spec: JobSpec) -> int:
        _import_asyncio()
        from ..agent.main import run_agent

        return run_agent(spec, seat)

    return _unless_defect(lambda: cli.run(sys.argv[1:], os.environ, start))
