"""``remuster --help``, laid out by click. Loaded only when help is asked for: a start has no time for it."""

from __future__ import annotations

import click

from .flags import FLAGS, Flag, Group

WIDTH = 110

ABOUT = (
    "Start a training script's ranks on this node, together with the other nodes; when a rank, a node or the network "
    "fails, say why, and start all of them again from a verified checkpoint."
)
EPILOG = """\b
Examples:
  remuster --nproc-per-node auto train.py --epochs 3
  remuster --nnodes 2 --nproc-per-node gpu --rdzv-backend c10d --rdzv-endpoint $HEAD train.py
  remuster --nnodes 2:4 --nproc-per-node gpu --rdzv-backend etcd \\
      --rdzv-endpoint etcd1,etcd2,etcd3 --rdzv-id big-run \\
      --checkpoint-dir /data/big-run --max-restarts 20 --retry-budget hardware=8,node=4 train.py

Without a file of that name in the current directory, the first word can be a command: explain (why a round failed, from
its logs), check (can this node take part?), leave (this node leaves its run, planned and free), quarantine (hosts that
no round may use), slurm-script (prints a batch script), completion (for bash and zsh), man (the manual page); see
remuster leave --help. remuster -- leave is the script.

Every flag has its default in PET_<NAME>, as with torchrun: PET_NNODES=2, PET_STANDALONE=1. Dashes and underscores mean
the same, and a flag may be shortened as far as it stays unique. From the script on, everything is the script's.

A configuration file names an etcd service for all jobs that do not say how their nodes meet: a table [etcd] with
endpoints = ["HOST:PORT", ...] and, as needed, prefix, cacert, cert, key, username, password_file, binary.
REMUSTER_ENDPOINT=HOST:PORT,... is the same in short, and stronger.

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


def text() -> str:
    """Return the help page."""
    command = _Command(
        "remuster",
        params=[click.Option([f"--{flag.name}", flag.dest], is_flag=not flag.metavar) for flag in FLAGS],
        help=ABOUT,
        epilog=EPILOG,
        add_help_option=False,
    )
    return command.get_help(click.Context(command, info_name="remuster", max_content_width=WIDTH))
