"""The console script ``remuster`` and ``python -m remuster``.

Imports next to nothing: the keeper forks in this interpreter while it is young, and everything else is loaded by the
body in the agent's process.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from ..agent.keeper import run

if TYPE_CHECKING:
    from ..agent.keeper import Seat
    from ..agent.spec import JobSpec


def main() -> NoReturn:
    """Run the command in this process and end it with the job's exit code."""
    run(body)


def body(seat: Seat) -> int:
    """Parse the command line and run this node's agent; return the exit code."""
    import os
    import sys

    from . import cli

    def start(spec: JobSpec) -> int:
        from ..agent.loop import run_agent

        return run_agent(spec, seat)

    return cli.run(sys.argv[1:], os.environ, start)
