"""A move in words, for the trace of a counterexample."""

from __future__ import annotations

from remuster.rendezvous.records import decode_job

from .moves import Move
from .play import Scene
from .values import ROUNDS, World, owner

SAID = {
    "begin": "the agent is started",
    "resume": "the agent goes on",
    "heal": "the link heals",
    "thaw": "the machine thaws",
    "hear": "the agent hears its guardian",
    "skip": "the watch skips to the newest job record",
    "leader": "sees the leader key",
    "run": "the leader sees a change of the run",
    "wait": "its wait is over",
    "patience": "the leader has waited long enough",
    "lost": "learns that its lease is gone",
    "fork": "the guardian comes to the start",
    "kill": "the guardian kills all and proves it",
    "sweep": "the dead agent's guardian sweeps",
    "deadline": "the deadline passes",
    "victim": "ranks fail as victims",
    "rank": "A RANK FAILS",
    "guardian": "THE GUARDIAN IS KILLED",
    "crash": "THE AGENT IS KILLED",
    "power": "THE MACHINE LOSES POWER",
    "stop": "THE AGENT IS STOPPED",
    "hang": "THE AGENT'S LOOP HANGS FOR EVER",
    "freeze": "THE WHOLE MACHINE FREEZES",
    "cut": "CUT OFF FROM THE STORE",
    "leave": "ASKED TO LEAVE",
    "checkpoint": "a checkpoint is published",
    "late": "the write that was held up is applied",
    "never": "the write that was held up is lost",
    "outage": "THE STORE IS DOWN",
    "store back": "the store is back",
}


def tell(scene: Scene, world: World, move: Move) -> str:
    """Say a move in a line."""
    what = move[0]
    if len(move) == 1:
        return SAID[what]
    if what == "expire":
        return f"store: the lease {scene.setting.names[owner(move[1])]}@{move[1] % ROUNDS} ends"
    name = scene.setting.names[move[1]]
    match what:
        case "call":
            said = f"{move[2][0]} reaches the store"
        case "delay":
            said = f"THE WRITE {move[2][0]} IS HELD UP, its outcome unknown"
        case "ends":
            said = "ranks exit 0" if move[2] == 0 else "ranks end on SIGTERM"
        case "job":
            number = scene.nodes[world.nodes[move[1]]].jobs[0]
            job = decode_job(scene.machines.values[number].value)
            said = f"sees {job.phase.value}({job.round})"
        case _:
            said = SAID[what]
    return f"{name}: {said}"
