"""``remuster slurm-script``: prints a batch script that runs a job under Slurm as it should be run.

For `sbatch`, whose own options on its command line are stronger than the script's. Called by `commands`.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import click

from .argv import Split, split
from .errors import UsageError
from .slurm_step import MEETING

USAGE = 2
NOTICE_S = 120  # before the end of the time limit; Slurm may be a minute late
SHORT_S, SHORT_REQUEUES = 600, 20  # a job that ends so soon, so often, is not started again
OWN = ("--nodes", "--spares", "--gpus-per-node", "--cpus-per-task", "--time", "--output")


class Wish(NamedTuple):
    """What the job asks of Slurm. None: whole nodes (CPUs), no GPUs, the partition's time."""

    nodes: int = 1
    spares: int = 0
    gpus: int | None = None
    cpus: int | None = None
    time: str | None = None
    output: str = "%x-%j.out"


def main(argv: Sequence[str], environ: Mapping[str, str]) -> int:
    """Run the sub-command; return its exit code."""
    try:
        return _print.main(list(argv), prog_name="remuster slurm-script", standalone_mode=False) or 0
    except click.ClickException as error:
        words = error.format_message().rstrip(".")
        print(f"remuster slurm-script: {words}; see remuster slurm-script --help", file=sys.stderr)
    except UsageError as error:
        print(f"remuster slurm-script: {error}", file=sys.stderr)
    return USAGE


_AT_LEAST_1 = click.IntRange(1)


@click.command(
    context_settings={
        "help_option_names": ["-h", "--help"],
        "ignore_unknown_options": True,
        "allow_interspersed_args": False,
    }
)
@click.option("--nodes", type=_AT_LEAST_1, default=1, metavar="N", help="How many nodes train. Default 1.")
@click.option("--spares", type=click.IntRange(0), default=0, metavar="N", help="So many more stand by. Default 0.")
@click.option("--gpus-per-node", "gpus", type=_AT_LEAST_1, metavar="N", help="Each with a rank. Default: none.")
@click.option("--cpus-per-task", "cpus", type=_AT_LEAST_1, metavar="N", help="CPUs of a node. Default: whole nodes.")
@click.option("--time", metavar="TIME", help="The time limit, as sbatch takes it. Default: the partition's.")
@click.option("--output", default=Wish().output, metavar="FILE", show_default=True, help="As sbatch takes it.")
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="[REMUSTER'S OPTIONS] SCRIPT [ITS ARGUMENTS]")
def _print(
    nodes: int, spares: int, gpus: int | None, cpus: int | None, time: str | None, output: str, words: tuple[str, ...]
) -> int:
    """Print a batch script for sbatch that runs SCRIPT on several nodes.

    It survives the loss of nodes, saves before the time limit when the script asks remuster.stop_requested(), and is
    requeued where that helps. Options of this command come first. What you give sbatch on its own command line is
    stronger than the script:

    \b
      remuster slurm-script --nodes 4 --spares 1 --gpus-per-node 8 --time 24:00:00 \\
          --max-restarts 10 --checkpoint-dir ckpt --log-dir logs train.py --lr 3e-4 > job.sh
      sbatch --partition gpu --account project job.sh
    """
    halves = _halves(words)
    click.echo(script(Wish(nodes, spares, gpus, cpus, time, output), halves), nl=False)
    for name, why in (
        ("checkpoint-dir", "a requeued job begins anew"),
        ("max-restarts", "the first failure ends the launch"),
        ("log-dir", "what ranks write is in files in each node's /tmp, not all of it here"),
    ):
        if not _has(halves, name) and not (name == "max-restarts" and _has(halves, "retry-budget")):
            click.echo(f"remuster slurm-script: no --{name}: {why}", err=True)
    return 0


def _halves(words: Sequence[str]) -> Split:
    try:
        return split(words)
    except UsageError as error:
        late = [name for name in OWN if any(word.partition("=")[0] == name for word in words)]
        if not late:
            raise
        raise UsageError(
            f"{late[0]} stands behind an option of remuster's; give slurm-script's own options first"
        ) from error


def script(wish: Wish, halves: Split) -> str:
    """Return the batch script; UsageError for what cannot stand in one. Pure."""
    if halves.script is None:
        raise UsageError("no script given; write remuster slurm-script [its options] [remuster's options] script.py …")
    if wish.spares and _has(halves, "nnodes"):
        raise UsageError("--spares and --nnodes both say how many nodes train; leave one of them out")
    own = [*halves.options, *(() if _has(halves, "requeue") else ("--requeue",))]
    if wish.spares:
        own.insert(0, f"--nnodes={wish.nodes}")
    signal = (_value(halves, "notice-signal") or "USR1").removeprefix("SIG")
    together = wish.nodes + wish.spares > 1 and not any(_has(halves, name) for name in (*MEETING, "standalone"))
    conf = _value(halves, "rdzv-conf")
    token = together and "token_file=" not in (conf or "")
    if token:
        own = [option for option in own if not option.startswith("--rdzv-conf=")]
    command = [*map(_quoted, own), *([_with_token(conf)] if token else [])]
    command += [_quoted(word) for word in ("--", halves.script, *halves.script_args)]
    name = os.path.splitext(os.path.basename(halves.script))[0]
    asked = {
        "job-name": name or "remuster",
        "nodes": wish.nodes + wish.spares,
        "ntasks-per-node": 1,
        "gpus-per-node": wish.gpus,
        "cpus-per-task": wish.cpus,
        "time": wish.time,
        "output": wish.output,
        "signal": None if signal == "none" else f"{signal}@{NOTICE_S}",
    }
    lines = [
        *(f"#SBATCH --{key}={_quoted(str(value))}" for key, value in asked.items() if value is not None),
        *(() if wish.cpus else ("#SBATCH --exclusive",)),
        *("#SBATCH --open-mode=append", "#SBATCH --requeue", "#SBATCH --no-kill"),
    ]
    return _SCRIPT.format(
        directives="\n".join(lines),
        token=_KEEPING_OUT if token else "",
        command=" ".join(command),
        short=SHORT_S,
        requeues=SHORT_REQUEUES,
    )


def _quoted(word: str) -> str:
    """Write one word as the shell, and sbatch, read it. A line break would end a directive and begin a command."""
    if not word.isprintable():
        raise UsageError(f"{word!r} cannot stand in a batch script: it has a line break or another control character; "
                         "put it into a file that the script reads")  # fmt: skip
    return shlex.quote(word)


def _with_token(conf: str | None) -> str:
    """Write the token file, a variable of the script's, behind what --rdzv-conf says."""
    return f'{_quoted(f"--rdzv-conf={conf},")}"token_file=$token"' if conf else '--rdzv-conf="token_file=$token"'


def _has(halves: Split, name: str) -> bool:
    return any(option.partition("=")[0] == f"--{name}" for option in halves.options)


def _value(halves: Split, name: str) -> str | None:
    found = [option.partition("=")[2] for option in halves.options if option.startswith(f"--{name}=")]
    return found[-1] if found else None


_SCRIPT = """\
#!/bin/bash
{directives}

{token}# One task on each node: it starts all ranks of its node, and the nodes find each other by Slurm's variables.
# --no-kill, --kill-on-bad-exit=0 and --wait=0: what becomes of the job when a node ends is remuster's decision.
trap : TERM  # Slurm may send it to this script, too, which has to wait for the end of srun
srun --no-kill --kill-on-bad-exit=0 --wait=0 --ntasks-per-node=1 \\
    --cpus-per-task="${{SLURM_CPUS_PER_TASK:-$SLURM_CPUS_ON_NODE}}" \\
    remuster {command}
code=$?

# 75: the next start may go well, or goes on after the time limit. Where remuster could not ask for it by itself, for
# want of scontrol in a container, it is done here. 2: wrong usage. 69: the nodes could not meet.
# Other codes are the script's own, or 128 + the signal that ended it: a requeue would only repeat them.
if [ "$code" -eq 75 ] && [[ $SECONDS -ge {short} || ${{SLURM_RESTART_COUNT:-0}} -lt {requeues} ]]; then
    scontrol requeue "$SLURM_JOB_ID" && exit 75
fi
exit "$code"
"""

_KEEPING_OUT = """\
# Only who can read this file can join the run. Every node must see it: submit from a directory that they share.
token=$PWD/.remuster-$SLURM_JOB_ID-${SLURM_RESTART_COUNT:-0}
(umask 077 && head -c 32 /dev/urandom | base64 > "$token") || exit
trap 'rm -f "$token"' EXIT

"""
