"""Trains without torch, in lockstep: ``train.py OUT STEPS [STEP_MS]``. Its weights are whole numbers, and so exact.

Each step adds up what all samples of the step say, which the ranks share out: the weights are the same at any number
of ranks. The ranks meet at MASTER_ADDR and wait for each other without a timeout, as collectives may. They publish
every five steps and, when the job is to stop, at once; then they leave with 0. OUT/final is there when all is done.
OUT/round-N has
the step at which round N begins; OUT/alive and OUT/alive.steps have the signs of life that ``drills.signs`` reads.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TextIO

from remuster import checkpoint, heartbeat, resume_point, stop_requested

MODULUS, SAMPLES, SAVE_EVERY = 2**61 - 1, 12, 5
out, steps = Path(sys.argv[1]), int(sys.argv[2])
step_s = float(sys.argv[3]) / 1000 if len(sys.argv) > 3 else 0.0
rank, world = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
node, round_ = os.environ.get("REMUSTER_NODE", "alone"), os.environ.get("REMUSTER_ROUND", "0")


def signs(name: str) -> Callable[[int], None]:
    fd = os.open(out / name, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    return lambda n: os.write(fd, f"{node} {round_} {n} {time.clock_gettime(time.CLOCK_BOOTTIME):.6f}\n".encode())


def beat() -> None:
    alive = signs("alive")
    while True:
        alive(0)
        time.sleep(0.01)


def meet() -> list[TextIO]:
    """Return rank 0's lines to the others by rank, or another rank's one line to rank 0."""
    place = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
    if rank == 0:
        lines: dict[int, TextIO] = {}
        server = socket.create_server(("", place[1]))
        while len(lines) < world - 1:
            line = server.accept()[0].makefile("rw")
            lines[int(line.readline())] = line
        return [lines[n] for n in sorted(lines)]
    while True:
        with contextlib.suppress(ConnectionRefusedError):
            line = socket.create_connection(place).makefile("rw")
            break
        time.sleep(0.02)
    say(line, str(rank))
    return [line]


def say(line: TextIO, text: str) -> None:
    line.write(text + "\n")
    with contextlib.suppress(ConnectionResetError, BrokenPipeError):  # hear() says it
        line.flush()


def hear(line: TextIO) -> str:
    text = ""
    with contextlib.suppress(ConnectionResetError):
        text = line.readline()
    if not text:  # in gloo's words
        raise RuntimeError("[../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer")
    return text


def gather(text: str) -> list[str]:
    if rank:
        say(peers[0], json.dumps(text))
        return json.loads(hear(peers[0]))
    texts = [text, *(json.loads(hear(peer)) for peer in peers)]
    for peer in peers:
        say(peer, json.dumps(texts))
    return texts


def save(done: int) -> None:
    if "REMUSTER_CHECKPOINT_DIR" not in os.environ:
        return
    with checkpoint.publish(done, gather=gather) as p:
        if rank == 0:
            p.path("weights").write_text(json.dumps(weights))


threading.Thread(target=beat, daemon=True).start()
trained = signs("alive.steps")
peers = meet() if world > 1 else []
point, weights, done = resume_point(), [1, 2, 3, 5], 0
if point is not None:
    weights, done = json.loads((point.path / "weights").read_text()), point.step
    if rank == 0:
        print(f"round {round_} goes on at step {done}", flush=True)
if rank == 0:
    (out / f"round-{round_}").write_text(f"{done}")
stop = False
while done < steps and not stop:
    mine = range(done * SAMPLES, (done + 1) * SAMPLES)[rank::world]
    shares = [sum(pow(w + sample, 3, MODULUS) for sample in mine) for w in weights]
    told = [json.loads(text) for text in gather(json.dumps([*shares, stop_requested()]))]
    weights = [(w + sum(share)) % MODULUS for w, share in zip(weights, zip(*told, strict=True), strict=False)]
    stop = any(one[-1] for one in told)
    done += 1
    heartbeat(done)
    trained(done)
    if stop or done % SAVE_EVERY == 0 or done == steps:
        save(done)
    time.sleep(step_s)
if rank == 0:
    print(f"round {round_} ends at step {done}", flush=True)
    if done == steps:
        (out / "final").write_text(json.dumps(weights))
