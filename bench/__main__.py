"""``make bench``, or ``python bench [LETTERS] [--runs N]``: remuster beside torchrun, bare processes and bare etcd.

Runs the measurements in turn, prints one table with the bar of each ratio, and writes it with all samples and the
machine's facts to ``out/``. Exit code 1 when a bar was not held or a measurement could not be made. Nothing that was
started is left behind, interrupted or not.
"""

from __future__ import annotations

import argparse
import datetime
import json
import signal
import sys
import time
from collections.abc import Callable
from types import FrameType
from typing import NamedTuple, NoReturn

import checkpoints
import first_line
import heartbeat
import idle
import machine
import many_ranks
import memory
import output
import restarts
import scanning
import store
from rows import Found, Row, table
from stage import HERE, CannotMeasure, Stage

RUNS = 7
OUT = HERE / "out"
MEASUREMENTS: dict[str, tuple[str, Callable[[Stage, int], Found]]] = {
    "a": ("first line of a trivial worker", first_line.measure),
    "b": ("restart after kill -9 of a rank", restarts.measure),
    "c": ("memory at rest", memory.measure),
    "d": ("CPU of an idle agent", idle.measure),
    "e": ("64 ranks on one node", many_ranks.measure),
    "f": ("store: latencies and joins", store.measure),
    "g": ("output of 8 ranks through the console", output.measure),
    "h": ("watching what ranks write", scanning.measure),
    "i": ("a heartbeat", heartbeat.measure),
    "j": ("checkpoints: verifying and choosing", checkpoints.measure),
}


class Asked(NamedTuple):
    letters: str
    runs: int


def main(argv: list[str]) -> int:
    asked = _asked(argv)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupted)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job is started with it ignored
    began, load = datetime.datetime.now(datetime.timezone.utc), machine.load()
    found: dict[str, Found] = {}
    failed: dict[str, str] = {}
    for letter in asked.letters:
        what, measure = MEASUREMENTS[letter]
        print(f"({letter}) {what} …", end="", file=sys.stderr, flush=True)
        since = time.monotonic()
        try:
            with Stage() as stage:
                found[letter] = measure(stage, asked.runs)
        except CannotMeasure as error:
            failed[letter] = str(error)
        print(f" {time.monotonic() - since:.0f} s", file=sys.stderr)
    rows = [row for one in found.values() for row in one.rows]
    _show(asked, rows, found, failed)
    facts = {"began": began.isoformat(), "runs": asked.runs, "machine": machine.facts()}
    loads = {"load_before": load, "load_after": machine.load()}
    OUT.mkdir(exist_ok=True)
    path = OUT / f"{began:%Y-%m-%dT%H-%M-%SZ}.json"
    kept = {letter: {"samples": one.samples, "notes": one.notes} for letter, one in found.items()}
    plain = [{**row._asdict(), "ratio": row.ratio, "held": row.held} for row in rows]
    path.write_text(
        json.dumps({**facts, **loads, "rows": plain, "measurements": kept, "failed": failed}, indent=1) + "\n"
    )
    print(f"\n{path}")
    return 1 if failed or any(row.held is False for row in rows) else 0


def _asked(argv: list[str]) -> Asked:
    parser = argparse.ArgumentParser(
        "bench", description="; ".join(f"({letter}) {what}" for letter, (what, _) in MEASUREMENTS.items())
    )
    every = "".join(MEASUREMENTS)
    parser.add_argument("letters", nargs="?", default=every, help=f"which of {every}; all by default")
    parser.add_argument("--runs", type=int, default=RUNS, help=f"counted runs of each program ({RUNS})")
    given = parser.parse_args(argv)
    unknown = set(given.letters) - set(every)
    if unknown:
        parser.error(f"no measurement {', '.join(sorted(unknown))}; choose from {every}")
    if given.runs < 1:
        parser.error(f"--runs {given.runs}; give 1 or more")
    return Asked(given.letters, given.runs)


def _interrupted(number: int, _frame: FrameType | None) -> NoReturn:
    raise SystemExit(128 + number)


def _show(asked: Asked, rows: list[Row], found: dict[str, Found], failed: dict[str, str]) -> None:
    facts = machine.facts()
    what = f"{facts['cores']} cores, Python {facts['python']}, torch {facts['torch']}"
    print(f"medians of {asked.runs} alternating runs; {what}")
    print(table(rows))
    for one in found.values():
        print(*one.notes, sep="\n")
    for letter, why in failed.items():
        print(f"({letter}) could not be measured: {why}")
    missed = [row for row in rows if row.held is False]
    if missed:
        print(f"{len(missed)} of {sum(row.held is not None for row in rows)} bars not held")


if __name__ == "__main__":
    try:
        code = main(sys.argv[1:])
    except KeyboardInterrupt:
        code = 128 + signal.SIGINT
    sys.exit(code)
