"""``remuster leave``: asks this user's agent on this node to leave its run: planned, and free of charge.

The agents are found by the node locks that they hold (`agent/node_lock.py`) and asked by a signal of their own. Called
by `commands`.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
from collections.abc import Mapping, Sequence

import click

from ..agent import proc
from ..agent.node_lock import Holder, NodeLockError, holders
from ..agent.signals import LEAVE_SIGNAL

USAGE, FAILED = 2, 1
PATIENCE_S = 60.0  # for ranks that save, and last words: their grace is 30 s
COMMAND_S = 5.0  # for the command, once its agent has ended


def main(argv: Sequence[str], environ: Mapping[str, str]) -> int:
    """Run the sub-command; return its exit code."""
    try:
        return _leave.main(list(argv), prog_name="remuster leave", standalone_mode=False) or 0
    except click.ClickException as error:
        print(f"remuster leave: {error.format_message().rstrip('.')}; see remuster leave --help", file=sys.stderr)
        return USAGE
    except NodeLockError as error:
        print(f"remuster leave: {error}", file=sys.stderr)
        return FAILED


@click.command(
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Ask this node to leave its run. Its ranks are stopped as by SIGTERM, with time to save; the others go on "
    "without it or with a spare (under --on-store-loss=hold they wait for it); it costs no budget, and the node's "
    "command ends with 0. A job of one node has ended then without being done: 75.",
)
@click.option("--rdzv-id", "--rdzv_id", "run_id", metavar="ID", help="The run, when this user has several here.")
@click.option("--node", metavar="NAME", help="The node, when the run has several here.")
def _leave(run_id: str | None, node: str | None) -> int:
    found = holders()
    wanted = [h for h in found if run_id in (None, h.run_id) and node in (None, h.node)]
    if len(wanted) != 1:
        print(f"remuster leave: {_why_not(found, wanted)}", file=sys.stderr)
        return FAILED
    return _ask(wanted[0])


def _why_not(found: Sequence[Holder], wanted: Sequence[Holder]) -> str:
    if not found:
        return "no agent of this user is in a run on this node"
    listed = "".join(f"\n  --rdzv-id {h.run_id} --node {h.node} (pid {h.agent})" for h in wanted or found)
    if not wanted:
        return f"none of this user's agents on this node fits; there are:{listed}"
    return f"several agents of this user are on this node, and nobody was asked; say which one:{listed}"


def _ask(holder: Holder) -> int:
    """Ask an agent to leave, wait until its command has gone, and say what became of it."""
    name = f"node {holder.node} of run {holder.run_id}"
    with contextlib.ExitStack() as files:
        agent = _opened(files, holder.agent)
        keeper = _opened(files, holder.keeper) if holder.keeper else None
        if agent is None or proc.start_ticks(holder.agent) != holder.start:
            print(f"remuster leave: {name} has gone by itself", file=sys.stderr)
            return FAILED
        signal.pidfd_send_signal(agent, LEAVE_SIGNAL)
        print(f"{name} (pid {holder.agent}) is asked to leave", flush=True)
        if not _ended(agent, PATIENCE_S):
            print(
                f"remuster leave: {name} is still there after {PATIENCE_S:g} s; its ranks may have a longer "
                "--shutdown-timeout to save, and its log says what it waits for; what "
                f"will not go is ended with: kill -9 {holder.agent}",
                file=sys.stderr,
            )
            return FAILED
        if keeper is not None and not _ended(keeper, COMMAND_S):
            print(
                f"{name} has left; its command (pid {holder.keeper}) still serves the rendezvous of the run to other "
                "nodes and ends with the last of them"
            )
            return 0
    print(f"{name} has left")
    return 0


def _opened(files: contextlib.ExitStack, pid: int) -> int | None:
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return None
    files.callback(os.close, fd)
    return fd


def _ended(pidfd: int, patience_s: float) -> bool:
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    return bool(poll.poll(1000 * patience_s))
