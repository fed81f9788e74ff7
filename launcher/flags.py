"""The table of flags: the one list that spelling, abbreviations, PET_ variables, click and the help page are made from.

`FLAGS` are accepted. `LATER` are torchrun's that are not in remuster yet: naming one is an error that says what to do,
never silence, since a flag that does nothing is worse than one that is missing.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple


class Group(Enum):
    """Sections of the help page, in its order."""

    NODES = "Nodes and ranks"
    MEETING = "Meeting the other nodes"
    RETRY = "Failures and retries"
    RESUME = "Checkpoints"
    SCRIPT = "The script"
    OTHER = "Other"


class Flag(NamedTuple):
    """One accepted flag. Without ``metavar`` it is a switch; ``ours`` marks those that torchrun does not have."""

    name: str
    group: Group
    help: str
    metavar: str = ""
    short: str = ""
    ours: bool = False
    repeat: bool = False  # given twice, both count (elsewhere the last one wins, as in torchrun)

    @property
    def dest(self) -> str:
        return self.name.replace("-", "_")

    @property
    def env(self) -> str:
        """The variable that gives its default, by torchrun's rule."""
        return "PET_" + self.dest.upper()


FLAGS: tuple[Flag, ...] = (
    Flag(
        "nnodes",
        Group.NODES,
        "How many nodes the job runs on. With MIN:MAX it starts with MIN nodes and takes up to MAX; more stand by as "
        "spares. Default 1.",
        metavar="N|MIN:MAX",
    ),
    Flag(
        "nproc-per-node",
        Group.NODES,
        "Ranks on this node: a number, gpu (one per visible GPU), cpu (one per core), or auto (gpu if there are any, "
        "else cpu). Default 1.",
        metavar="N|auto|gpu|cpu",
    ),
    Flag("standalone", Group.NODES, "One node that needs no server. The default when only one node is asked for."),
    Flag("local-addr", Group.NODES, "The address at which the other nodes reach this one.", metavar="ADDR"),
    Flag("role", Group.NODES, "Name of the ranks' role, in ROLE_NAME and in the output's prefix.", metavar="NAME"),
    Flag(
        "rdzv-backend",
        Group.MEETING,
        "Where the nodes meet: etcd (v3; etcd-v2 and etcd-v3 mean the same).",
        metavar="etcd",
    ),
    Flag(
        "rdzv-endpoint",
        Group.MEETING,
        "Addresses of etcd, port 2379 unless given; name all members, so that one of them may die.",
        metavar="HOST[:PORT],...",
    ),
    Flag(
        "rdzv-id",
        Group.MEETING,
        "Name of the run, the same on all nodes. Default: SLURM_JOB_ID; for one node otherwise a new name each time.",
        metavar="ID",
    ),
    Flag(
        "rdzv-conf",
        Group.MEETING,
        "lease_ttl=15 (s until a silent node is given up), kill_bound=3 (s from SIGKILL to gone), "
        "last_call_timeout=30 (s to wait for more than MIN nodes), join_timeout=600 (s to wait for MIN), "
        "launch_id, prefix, cacert, cert, key, username, password_file.",
        metavar="KEY=VALUE,...",
    ),
    Flag(
        "fresh",
        Group.MEETING,
        "Start a run id over that is done, or give a failed one its whole budget back.",
        ours=True,
    ),
    Flag(
        "max-restarts", Group.RETRY, "How many failures this launch may pay for with a restart. Default 0.", metavar="N"
    ),
    Flag(
        "retry-budget",
        Group.RETRY,
        "How many failures of a family the job pays for in its whole life, e.g. hardware=8,node=4. "
        "Without --max-restarts it is the only bound.",
        metavar="FAMILY=N,...",
        ours=True,
        repeat=True,
    ),
    Flag(
        "checkpoint-dir",
        Group.RESUME,
        "Where the job's checkpoints are; ranks re-enter from the newest one that is verified.",
        metavar="DIR",
        ours=True,
    ),
    Flag(
        "resume-hook",
        Group.RESUME,
        "Your own choice of the resume point: module:function, or a command.",
        metavar="HOOK",
        ours=True,
    ),
    Flag("module", Group.SCRIPT, "SCRIPT is a module's name, as with python -m.", short="m"),
    Flag("no-python", Group.SCRIPT, "SCRIPT is a program of its own, not run by Python."),
    Flag("log-dir", Group.SCRIPT, "Where ranks' output and the run's records go. Default: a new one.", metavar="DIR"),
    Flag("version", Group.OTHER, "Print the version and exit.", ours=True),
    Flag("help", Group.OTHER, "Print this page and exit.", short="h"),
)

SHOWN_ONLY = ("version", "help")  # switches that have no PET_ variable

_FILES = "every rank's output is kept whole in its own file under --log-dir"
_MASTER = (
    "for one node leave it out (a free port is found in every round), for several use "
    "--rdzv-backend etcd --rdzv-endpoint HOST:2379"
)

LATER: dict[str, str] = {
    "monitor-interval": "leave it out: remuster waits on events and polls nothing",
    "start-method": "leave it out: ranks are started as commands",
    "event-log-handler": "leave it out: events stand in the run's records under --log-dir",
    "run-path": "leave it out: the script is then run as a command",
    "redirects": f"leave it out: {_FILES}",
    "tee": f"leave it out: {_FILES}, and shown too",
    "local-ranks-filter": f"leave it out: {_FILES}",
    "duplicate-stdout-filters": f"leave it out and search the files: {_FILES}",
    "duplicate-stderr-filters": f"leave it out and search the files: {_FILES}",
    "node-rank": "leave it out: the nodes are numbered when they meet (--rdzv-backend etcd)",
    "master-addr": _MASTER,
    "master-port": _MASTER,
    "logs-specs": f"leave it out: {_FILES}",
    "numa-binding": "leave it out, and start the script through numactl with --no-python",
    "signals-to-handle": "leave it out: SIGTERM, SIGINT, SIGHUP and SIGQUIT stop the job",
    "shutdown-timeout": "leave it out: ranks get 30 s between SIGTERM and SIGKILL",
    "virtual-local-rank": "leave it out, and let the script read LOCAL_RANK",
}

LATER_SHORT: dict[str, str] = {"r": "redirects", "t": "tee"}
LATER_SWITCHES = ("run-path", "virtual-local-rank")  # PET_RUN_PATH=0 asks for nothing

BY_NAME: dict[str, Flag] = {flag.name: flag for flag in FLAGS}
BY_SHORT: dict[str, Flag] = {flag.short: flag for flag in FLAGS if flag.short}


def refuse_later(name: str, shown: str) -> str:
    """Return the sentence for a flag of torchrun's that is not in remuster yet; ``shown`` is how it was given."""
    return f"{shown} is torchrun's and not in remuster yet; {LATER[name]}"
