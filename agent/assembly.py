"""Joins the agent's parts: the node machine's settings, the ranks, and whoever judges and chooses while it leads.

Called by ``main.py`` once the node has its name, its directory and its store. What a failure asks for is loaded then.
"""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from ..rendezvous.keys import Keys
from ..rendezvous.leader_words import Conclude, Concluded, Limits, ProofSeen, Prove, Resumed, SelectResume
from ..rendezvous.records import NO_PLACE, Incarnation, Job, Node, NodeId, Phase, Round
from ..rendezvous.store import Store
from . import node_words as words
from .aside import Aside, Spared
from .chronicle import Chronicle
from .crew import Crew, Place
from .identity import Machine, loopback_of, this_process
from .leading import Counsel
from .lease import Timing
from .linux import boottime
from .loop import Agent, Surroundings
from .node_state import Settings
from .notes import Notes
from .ports import is_loopback
from .reentry import Entrance
from .seat import Seat
from .spec import Backend, JobSpec
from .terms import ELSEWHERE, terms

if TYPE_CHECKING:
    from .wards import Wards

STOP_S = 600.0  # beyond the grace, for a node that lives to prove its ranks dead
STALL_S = 1800.0  # beyond all that a leader waits for: who stands longer has no leader that can go on
ALONE_S = 5.0  # for a node that meets nobody else: when it is not ready now, it is not fit
RECORDS_S = 5.0  # for the newest checkpoint to be verified, and records: what a scheduler's limit must leave
SLACK_S = 2.0  # after a TTL, for the store to say that a lease has expired


class Parts(NamedTuple):
    """What one agent is made from."""

    spec: JobSpec
    seat: Seat
    store: Store
    settings: Settings
    log: Notes
    place: Place
    chronicle: Chronicle
    aside: Aside
    spared: Spared


def assemble(parts: Parts) -> Agent:
    """Return the agent; it runs when it is told to."""
    spec, settings, log, place = parts.spec, parts.settings, parts.log, parts.place

    def crew(post: Callable[[words.Event], None]) -> Crew:
        return Crew(spec, parts.seat, post, place, parts.spared)

    async def judge(ask: Conclude) -> Concluded:
        from .counsel import Bench

        barring = None if wards is None else wards()
        bench = Bench(spec, place.shown.files, log.line, barring, settings.node, agent.crew.pace, place.shown.run_dir)
        return await bench.judge(ask)

    async def newest() -> int | None:
        from .counsel import Bench

        return await Bench(spec, place.shown.files, log.line).newest()

    async def choose(ask: SelectResume) -> Resumed:
        resumed = await entrance.choose(ask)
        parts.aside.call(lambda ledger: ledger.chosen(ask, resumed))
        agent.crew.hooked(resumed.refused)
        return resumed

    async def prove(ask: Prove) -> ProofSeen | None:
        from .proof import Verifier

        return await Verifier(spec, entrance.seen, recovered).prove(ask)

    def recovered(ask: Prove, step: int) -> None:
        log.line(
            f"round {ask.round} has recovered: {ask.said.steps} steps after step {ask.above} agree, "
            f"step {step} is verified"
        )
        parts.aside.call(lambda ledger: ledger.recovered(ask, step))

    def job_seen(job: Job) -> None:
        agent.crew.foresee(job)
        if job.phase is Phase.FORMING and spec.checkpoint_dir is not None and spec.max_nodes > 1:
            # While the leader searches: this node will be asked.
            asyncio.get_running_loop().call_soon(importlib.import_module, ".sight", __package__)
        parts.chronicle.job_seen(job)
        parts.aside.job_seen(job, bool(agent.state.leading))

    def made_wards() -> Wards:
        from .wards import Wards

        earlier = None if spec.embedded is None or settings.kept.run is None else settings.kept.run.bars
        return Wards(parts.store, settings.keys, log.line, earlier)

    async def vet(n: Round) -> words.Checked:
        from .blamed import Suspected, vet
        from .fitness import Here, when_blamed

        here = Here(spec, place.shown.run_dir, parts.seat.environ, parts.spared.by, log.line)
        about = Suspected(settings.node, spec.run_id, spec.least_others, wards and wards(), log.line)
        return await vet(lambda: when_blamed(here), n, about)

    async def look(action: words.Look) -> words.Looked:
        from .sight import answer

        sight = await answer(action.asked, spec.checkpoint_dir, spec.resume_timeout_s)
        return words.Looked(boottime(), action.round, sight)

    async def ask(action: words.AskLimit) -> words.Limited:
        from .limit import ask_limit

        assert spec.slurm is not None  # nobody else is asked
        return await ask_limit(spec.slurm, action, parts.spared.by("scontrol"))

    wards = made_wards if spec.backend is Backend.ETCD else None
    entrance = Entrance(spec, parts.spared.by("resume hook"), log.line, {})
    around = Surroundings(
        parts.store,
        Timing.of(spec),
        Limits(
            spec.last_call_timeout_s,
            spec.join_timeout_s if wards else min(spec.join_timeout_s, ALONE_S),
            spec.lease_ttl_s + SLACK_S,
            spec.admit,
            spec.admit_after_s,
            spec.rank_order,
            spec.grace_s,
            STOP_S + spec.grace_s,
            look_s=spec.resume_timeout_s + SLACK_S,
        ),
        Counsel(judge, choose, log.line, newest, prove, wards),
        log.line,
        job_seen,
        vet,
        look,
        ask,
    )
    agent = Agent(settings, around, crew)
    return agent


def settings_of(spec: JobSpec, node: NodeId, machine: Machine, address: str) -> Settings:
    """Return what does not change in the life of this node's agent."""
    pid, start = this_process()
    place = NO_PLACE if spec.place is None else spec.place
    return Settings(
        Keys(spec.run_id, spec.prefix),
        node,
        Node(
            Incarnation(0),
            machine.name,
            machine.boot,
            address,
            spec.nproc,
            Round(0),
            pid,
            start,
            place,
            machine.lasting,
            spec.role,
        ),
        Job(Phase.FORMING, Round(1), spec.min_nodes, spec.max_nodes, spec.launch_id, store_loss=spec.store_loss),
        spec.fresh,
        spec.grace_s,
        spec.join_timeout_s,
        held_s=0.0 if spec.backend is Backend.MEMORY else spec.lease_ttl_s + SLACK_S,  # nobody else has leases there
        stall_s=spec.join_timeout_s + spec.last_call_timeout_s + spec.resume_timeout_s + spec.grace_s + STALL_S,
        terms=terms(spec, loopback_of(machine) if is_loopback(address) else ELSEWHERE),
        master=spec.master,
        asks=spec.slurm is not None,
        reserve_s=spec.kill_bound_s + RECORDS_S,
    )
