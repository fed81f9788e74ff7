"""(h) Watching what ranks write for signs of failure: beside one ``re`` of the same, and its share of a core.

Both read the same output, mostly steps with some of a library's chatter and a progress bar, in the same blocks and in
turn, in this process. The share is that of the watch itself, its thread, its wake-ups and its reads: two ranks write
1 MB/s into files that it follows.
"""

from __future__ import annotations

import asyncio
import random
import re
import time
from pathlib import Path

from rows import Found, Row, medians
from stage import CannotMeasure, Stage

from remuster.agent.line_watch import LineWatch
from remuster.agent.linux import boottime
from remuster.agent.sources import Begun, RankHere
from remuster.health.live import LIVE
from remuster.health.scan import Scanner
from remuster.health.signatures import table
from remuster.rendezvous.records import Round

MB = 4
BLOCK = 64 * 1024
LIVE_S = 6.0  # a run of the watch
RATE, RANKS, PIECES_PER_S = 1_000_000, 2, 20
SHARE = 0.015  # of a core, at 1 MB/s
SCAN, ONE_RE, WATCH = "scanner", "one re of the same signatures", "the watch at 1 MB/s"


def measure(stage: Stage, runs: int) -> Found:
    """Compare the two, then watch files grow."""
    data = _output(MB * 1_000_000)
    blocks = [data[start : start + BLOCK] for start in range(0, len(data), BLOCK)]
    patterns = {signature.name: signature.pattern for signature in table()}
    one = re.compile("|".join(f"(?:{patterns[live.sign]})" for live in LIVE).encode())
    samples: dict[str, list[float]] = {SCAN: [], ONE_RE: [], WATCH: []}
    Scanner().feed(blocks[0])
    for _ in range(runs):
        samples[SCAN].append(_scan(blocks))
        samples[ONE_RE].append(_search(one, blocks))
    for _ in range(min(runs, 3)):
        samples[WATCH].append(asyncio.run(_watch(stage.folder, data)) / LIVE_S)
    found = medians(samples)
    rows = [
        Row("h", f"scanning {MB} MB of output", found[SCAN] * 1e3, ONE_RE, found[ONE_RE] * 1e3, "ms", at_least=4),
        Row("h", f"{WATCH}, of {RANKS} ranks", found[WATCH] * 100, "the bar", SHARE * 100, "% of a core", at_most=1),
    ]
    note = f"(h) the scanner alone: {found[SCAN] / MB * 1e3:.1f} ms a MB"
    return Found(rows, samples, (note,))


def _scan(blocks: list[bytes]) -> float:
    scanner, began = Scanner(), time.process_time()
    seen = [one for block in blocks for one in scanner.feed(block)]
    took_s = time.process_time() - began
    if seen:
        raise CannotMeasure(f"healthy output passes for {seen[0]}")
    return took_s


def _search(one: re.Pattern[bytes], blocks: list[bytes]) -> float:
    began = time.process_time()
    for block in blocks:
        for _ in one.finditer(block):
            pass
    return time.process_time() - began


async def _watch(folder: Path, data: bytes) -> float:
    """Return the CPU seconds that this process spends while the files grow, without those of writing them."""
    places = [folder / f"rank{rank}" for rank in range(RANKS)]
    for place in places:
        place.mkdir(exist_ok=True)
        for name in ("stdout.log", "stderr.log"):
            (place / name).write_bytes(b"")
    watch = LineWatch(lambda event: None, 10.0, dict)
    watch.begin(Begun(Round(1), boottime(), tuple(RankHere(n, n, 0, place, {}) for n, place in enumerate(places))))
    await asyncio.sleep(1.0)
    began, ours, at = time.monotonic(), 0.0, 0
    piece = RATE // RANKS // PIECES_PER_S
    used = time.process_time()
    for turn in range(int(LIVE_S * PIECES_PER_S)):
        since = time.thread_time()
        for place in places:
            with (place / "stdout.log").open("ab") as file:
                file.write(data[at : at + piece])
            at = (at + piece) % (len(data) - piece)
        ours += time.thread_time() - since
        await asyncio.sleep(max(0.0, began + (turn + 1) / PIECES_PER_S - time.monotonic()))
    used = time.process_time() - used - ours
    await watch.facts()
    return used


def _output(size: int) -> bytes:
    rng, lines, length, step = random.Random(1), list[str](), 0, 0
    while length < size:
        step += 1
        clock = f"2026-03-11 12:{step // 60 % 60:02}:{step % 60:02}"
        line = (
            f"{clock} [rank2] step {step} loss {rng.random():.4f} lr 3.0e-4 grad_norm {rng.random():.3f} "
            f"tokens/s {rng.random() * 1e5:.1f} mem 61.2GB\n"
        )
        if step % 50 == 0:
            line = f"node-a3:9911:10222 [2] NCCL INFO Channel {step % 32:02}/0 : 3[3] -> 4[0] [receive] via NET/IB/2\n"
        if step % 10 == 0:
            line = f"\rEpoch 3:  12%|#2        | {step}/90000 [00:10<01:11, {rng.random() * 9:.2f}it/s]"
        if step % 97 == 0:
            line = f"{clock} INFO trainer: saved checkpoint to /shared/ckpt/step-{step}, {step % 9} files, no errors\n"
        lines.append(line)
        length += len(line)
    return "".join(lines).encode()
