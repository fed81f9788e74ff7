"""The table of docs/faults.md: rows of our drills and what torchrun did, kept beside it as JSON. Not a test module.

A run adds its rows to those that are kept, so that the long drills and torchrun need not be run with all others.
"""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from drills.catalogue import FAULTS
from drills.course import ELECTION_S, FAULTS_CONF, RENEWAL_S, Fault, Row
from drills.job import LEASE_S
from etcd_server import find_etcds


def keep(page: Path, key: str, rows: dict[str, Any]) -> None:
    """Add ``rows`` by fault under ``key`` ("remuster" or "torchrun") to what is kept, and write the page anew."""
    store = page.with_suffix(".json")
    kept: dict[str, dict[str, Any]] = json.loads(store.read_text()) if store.exists() else {}
    kept.setdefault(key, {}).update(
        {name: {"when": _today(), "load": round(os.getloadavg()[0], 1), **row} for name, row in rows.items()}
    )
    kept.setdefault("on", {})[key] = _machine()
    store.write_text(json.dumps(kept, indent=1, sort_keys=True) + "\n")
    page.write_text(render(kept))


def keep_outcome(page: Path, name: str, said: str) -> None:
    """Keep what torchrun did, beside what it did in earlier runs: it is not always the same."""
    store = page.with_suffix(".json")
    before = (
        json.loads(store.read_text()).get("torchrun", {}).get(name, {}).get("outcomes", []) if store.exists() else []
    )
    keep(page, "torchrun", {name: {"outcomes": [*before, said]}})


def keep_rows(page: Path, rows: Sequence[Row]) -> None:
    """Keep what our drills measured."""
    keep(page, "remuster", {row.name: row._asdict() for row in rows})


def render(kept: dict[str, dict[str, Any]]) -> str:
    """Return the page."""
    ours, theirs, on = (kept.get(key, {}) for key in ("remuster", "torchrun", "on"))
    rows = [_row(fault, ours.get(fault.name), theirs.get(fault.name)) for fault in FAULTS]
    notes = [
        f"| {who} | {_span(kept[who].values())} | {on[who]}; {_load(kept[who].values())} |"
        for who in ("remuster", "torchrun")
        if who in on
    ]
    return (
        "\n\n".join(
            (
                "# Whatever dies, hangs, freezes or is cut off",
                _INTRODUCTION,
                "\n".join((_HEAD, *rows)),
                _READING,
                "\n".join(("| | measured | on |", "| --- | --- | --- |", *notes)),
            )
        )
        + "\n"
    )


def _row(fault: Fault, ours: dict[str, Any] | None, theirs: dict[str, Any] | None) -> str:
    said = "" if fault.theirs is None else fault.theirs
    beside = "; another time: ".join(dict.fromkeys(theirs["outcomes"])) if theirs else said
    if ours is None:
        return f"| {fault.title} | *not run* | | | | {beside} |"
    first = "" if ours["first_s"] is None else f"{ours['first_s']:.1f} ({_bound(ours)})"
    verdict = ours["verdict"] and f"`{ours['verdict']}`, {ours['node']}; {_charge(ours['charged'])}"
    cells = (
        fault.title,
        ours["expected"],
        first,
        f"{ours['step_s']:.1f}" if ours["step_s"] is not None else "",
        verdict or "nothing to judge",
        beside,
    )
    return f"| {' | '.join(cells)} |"


def _bound(ours: dict[str, Any]) -> str:
    late = ours["late_s"]
    return f"≤ {ours['bound_s']:.0f}" + ("" if late is None else f"; at a first try {late:.1f}")


def _charge(charged: str) -> str:
    return f"one of {charged}" if charged else "free"


def _today() -> str:
    return time.strftime("%Y-%m-%d", time.gmtime())


def _machine() -> str:
    import torch

    return "; ".join(
        (
            f"{os.cpu_count()} cores ({platform.machine()})",
            f"Linux {platform.release()}",
            f"Python {platform.python_version()}",
            f"torch {torch.__version__}",
            f"etcd {next(iter(find_etcds()), 'none')}",
        )
    )


def _span(rows: Iterable[dict[str, Any]]) -> str:
    days = sorted({row["when"] for row in rows})
    return days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"


def _load(rows: Iterable[dict[str, Any]]) -> str:
    loads = [row["load"] for row in rows]
    return f"load average {min(loads):.1f} to {max(loads):.1f}"


_HEAD = (
    "| fault | what comes of it | new ranks after s (bound) | first all-reduce after s | verdict; charge | torchrun |\n"
    "| --- | --- | --- | --- | --- | --- |"
)

_INTRODUCTION = f"""\
Written by the drills (`REMUSTER_FAULTS=docs/faults.md .venv/bin/pytest -m drill tests/drills/test_faults.py`;
torchrun's column by `tests/drills/torchrun_beside.py`); not edited. Three hosts, each a network, PID, mount, UTS and
IPC namespace with an address of its own, train with DDP over gloo, one rank each; etcd runs on a host of its own, or
on three. The command is `remuster --nnodes 2:3 --max-restarts 3 --rdzv-conf {FAULTS_CONF}`:
the lease is {LEASE_S:.0f} s here instead of 15. One fault strikes; `make drills` fails unless all of this holds:

- the survivors have new ranks within the bound, and these train;
- verdict, node and charge are those of the table, once for one fault; each survivor keeps the record, all alike;
- no rank of the old round lived on any host when the first one of the new round started: each rank says every 5 ms
  from its first line on that it lives, and holds a lock on its round, which the kernel keeps for as long as its
  process exists;
- a host that was cut off, stopped or frozen and comes back joins again, and disturbs nobody;
- at the end nothing is left: no process on any host, no lease, no key but the job's record, rounds and attempts; no
  namespace, no mount."""

_READING = f"""\
*New ranks*: from the fault, or from its end where nobody can go on before, to the first line of the last new rank.
The bound is in brackets: {LEASE_S:.0f} s of lease + 2 s where a host falls silent, {ELECTION_S:.0f} s more where etcd
must elect as well, and one renewal ({RENEWAL_S:.1f} s) more where it is deaf but not dumb. *First all-reduce* is the
same to the first training step of the last rank: its import of torch (two cores for all hosts) and the process group
are the difference; it is empty where torch came to it only once the fault was over. Where the round goes on, the
figure is how long after the end of the fault all ranks had taken their next step. *Charge* is what the fault cost of
the budget.

torchrun ran beside it in the same lab, with the same script and faults: `torchrun --nnodes 2:3 --max-restarts 3
--rdzv-backend c10d`, its store on h1 where its leader is, default settings. "No reaction" means that after the time
named agents and ranks still stood as the fault had left them."""
