"""What may differ between a worker of torchrun's and the same worker of ours: this list, each with its reason, no more.

A pure comparison of what workers said. Used by `test_command_lines`.
"""

from __future__ import annotations

import re
import signal
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

Said = Mapping[str, Any]  # what one worker told of itself
Ranks = Mapping[int, Said]
Allows = Callable[[str, str], bool]  # torchrun's value and ours; a variable that is not set is ABSENT

ABSENT = "(not set)"
OURS = "REMUSTER_"  # variables that only our workers have
_INVENTED = re.compile(r"none|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")  # torchrun's ids where it heeds none
_ORDER = ("RANK", "GROUP_RANK", "ROLE_RANK")


@dataclass(frozen=True, slots=True)
class Difference:
    """A variable whose value need not be torchrun's, and why; ``allows`` says which pairs of values are meant."""

    name: str
    reason: str
    allows: Allows


def _is_port(text: str) -> bool:
    return text.isdecimal() and 1024 < int(text) < 65536


def _is_here(host: str) -> bool:
    """Tell whether ``host`` is an address, not a name, of this machine."""
    try:
        family = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)[0][0]
        with socket.socket(family) as probe:
            probe.bind((host, 0))
    except OSError:
        return False
    return True


DIFFERENCES = (
    Difference(
        "TORCHELASTIC_USE_AGENT_STORE",
        "no agent of ours has torch to host a store with: rank 0's worker hosts it, and False makes it do so",
        lambda theirs, ours: theirs == "True" and ours == "False",
    ),
    Difference(
        "TORCHELASTIC_SIGNALS_TO_HANDLE",
        "torchrun sets it in its own environment, and its workers happen to inherit it",
        lambda theirs, ours: ours == ABSENT,
    ),
    Difference(
        "TORCHELASTIC_ERROR_FILE",
        "it lies in a log directory that each program makes for itself, and the place in it is the same; torchrun has "
        "none with `--log-dir /dev/null`, where ours are kept all the same",
        lambda theirs, ours: theirs == "" or theirs.split("/")[-3:] == ours.split("/")[-3:],
    ),
    Difference(
        "TORCHELASTIC_RUN_ID",
        "where torchrun heeds no id it invents one or says 'none'; ours is the one given, or a new one",
        lambda theirs, ours: _INVENTED.fullmatch(theirs) is not None and ours not in ("", ABSENT),
    ),
    Difference(
        "MASTER_PORT",
        "nobody chose it: any free port; a port that was chosen is @PORT in both",
        lambda theirs, ours: _is_port(theirs) and _is_port(ours),
    ),
    Difference(
        "MASTER_ADDR",
        "this machine by its address, where torchrun gives whatever name it finds for it",
        lambda theirs, ours: theirs in ("localhost", socket.gethostname(), socket.getfqdn()) and _is_here(ours),
    ),
    *(
        Difference(
            name,
            "a Slurm task is one agent and none of its ranks, and a library that reads its numbers takes the rank for "
            "another one; so are all others of a task, of PMI's and of MPI's taken out (`--no-scrub-env` leaves them)",
            lambda theirs, ours: ours == ABSENT,
        )
        for name in ("SLURM_PROCID", "SLURM_LOCALID", "SLURM_NTASKS")
    ),
)

_BY_NAME = {difference.name: difference for difference in DIFFERENCES}


def _signals(said: Said) -> object:
    """Return which signals a worker ignores, but for those that Slurm sends to all of a step when its end is near."""
    found = said.get("signals")
    if "SLURM_JOB_ID" not in said["env"] or not isinstance(found, dict):
        return found
    notices = 1 << (signal.SIGUSR1 - 1) | 1 << (signal.SIGUSR2 - 1)
    return {**found, "SigIgn": f"{int(found['SigIgn'], 16) & ~notices:x}"}


def unknown(theirs: Said, ours: Said) -> list[str]:
    """Return each way in which our worker differs from torchrun's that is not on the list."""
    theirs, ours = ({**said, "signals": _signals(said)} for said in (theirs, ours))
    found = [
        f"{fact}: torchrun {theirs.get(fact)!r}, ours {ours.get(fact)!r}"
        for fact in sorted({*theirs, *ours})
        if fact != "env" and theirs.get(fact) != ours.get(fact)
    ]
    names = {*theirs["env"], *ours["env"]}
    for name in sorted(name for name in names if not name.startswith(OURS)):
        pair = theirs["env"].get(name, ABSENT), ours["env"].get(name, ABSENT)
        listed = _BY_NAME.get(name)
        if pair[0] != pair[1] and not (listed and listed.allows(*pair)):
            found.append(f"{name}: torchrun {pair[0]!r}, ours {pair[1]!r}")
    return found


def in_our_order(theirs: Ranks, ours: Ranks) -> dict[int, Said]:
    """Return what torchrun's workers would have said with its nodes in the order that ours have.

    Unless a line says it, torchrun promises no order of nodes: its c10d sorts them by address as text, its etcd takes
    them as they come. ``NODE`` in a worker's environment is its node's address; so is the master's, with two nodes.
    """
    workers = {(said["env"]["NODE"], said["env"]["LOCAL_RANK"]): said for said in theirs.values()}
    places = {(said["env"]["GROUP_RANK"], said["env"]["LOCAL_RANK"]): said for said in theirs.values()}
    groups = {said["env"]["NODE"]: said["env"]["GROUP_RANK"] for said in ours.values()}
    expected: dict[int, Said] = {}
    for rank, said in ours.items():
        node, local = said["env"]["NODE"], said["env"]["LOCAL_RANK"]
        worker, place = workers[node, local], places[groups[node], local]
        moved = {name: place["env"][name] for name in _ORDER}
        if worker["env"]["MASTER_ADDR"] == theirs[0]["env"]["NODE"]:
            moved["MASTER_ADDR"] = ours[0]["env"]["NODE"]
        expected[rank] = {**worker, "env": worker["env"] | moved}
    return expected
