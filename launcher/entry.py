"""The console script ``remuster`` and ``python -m remuster``.

Imports next to nothing: the keeper forks in this interpreter while it is young, and everything else is loaded by the
body in the agent's process.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from ..agent.keeper import run

if TYPE_CHECKING:
    from ..agent.seat import Seat
    from ..agent.spec import JobSpec

DEFECT = 70  # exit code: neither the job's fault nor the command line's


def main() -> NoReturn:
    """Run the command in this process and end it with the job's exit code."""
    run(body)


def _import_asyncio() -> None:
    """Import asyncio without its TLS, which nothing here uses (gRPC brings its own): a tenth of the start's imports."""
    import importlib
    import sys

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
    import gc
    import os
    import sys

    gc.disable()  # nothing that the start allocates is garbage; the agent turns it on when its ranks run
    from . import cli

    def start(spec: JobSpec) -> int:
        _import_asyncio()
        from ..agent.main import run_agent

        return run_agent(spec, seat)

    try:
        return cli.run(sys.argv[1:], os.environ, start)
    except Exception:
        import traceback

        traceback.print_exc()
        print("remuster: this is a defect in remuster; please report it with the lines above", file=sys.stderr)
        return DEFECT
