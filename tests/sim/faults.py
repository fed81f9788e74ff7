"""Faults by kind, at times that the seed chose: at random, or right after the job has changed its phase."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from remuster.agent.node_state import Ranks
from remuster.agent.node_words import Alarmed, LeaveAsked, Withdrawn
from remuster.health.observed import Early
from remuster.rendezvous.records import NO_PLACE, Job, Phase

from .agents import TERMS, Agent, Given, Machine
from .keeper import Keeper

if TYPE_CHECKING:
    from .world import World

KINDS = (
    "rank failure",
    "alarm",
    "crash of agent",
    "crash of guardian",
    "power loss",
    "pause",
    "hang",
    "partition",
    "store outage",
    "lagging watch",
    "slow guardian",
    "stall of node",
    "leave",
    "late join",
    "coming and going",
    "restart",
    "namesake",
    "other terms",
)
THEMES = (  # what a schedule has more of
    KINDS,
    ("rank failure", "crash of agent", "restart"),
    ("stall of node", "partition", "pause"),
    ("leave", "rank failure", "late join"),
    ("coming and going", "late join", "restart"),
    ("crash of agent", "lagging watch", "rank failure"),
)
OTHERS = ("thaw", "heal", "unknown outcome", "late message", "duplicate message", "new launch", "fresh")


class Injector:
    """Starts the agents, harms them, and heals all in the end."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.rng = world.rng
        self.machines: dict[str, Machine] = {}
        self.given: dict[str, Given] = {}
        self.terms = TERMS  # of the present launch
        self.home: dict[str, Machine] = {}
        self.launch = 1
        self.hold = world.cfg.hold  # of the present launch
        self.coming = 0  # agents that are about to start
        self.waiting: list[Callable[[], None]] = []  # faults for the next changes of phase
        self.fair = False
        self.extra = 0

    # -- agents

    def begin(self) -> None:
        """Start the first agents and plan the faults."""
        cfg, rng = self.world.cfg, self.rng
        theme = rng.choice(THEMES)
        for i in range(cfg.nodes):
            shared = i > 0 and rng.random() < 0.15
            slots = 2 if rng.random() < 0.25 else 1
            self.place(f"n{i}", self.home[f"n{i - 1}"] if shared else None, slots, i % cfg.max_nodes)
            self.bring(f"n{i}", rng.random() * (20.0 if rng.random() < 0.1 else 3.0))
        for _ in range(cfg.faults):
            kind = rng.choice(KINDS) if rng.random() < 0.6 else rng.choice(theme)
            if rng.random() < 0.4:
                self.world.after(rng.random() * cfg.fault_phase_s, lambda k=kind: self.strike(k))
            else:
                self.waiting.append(lambda k=kind: self.strike(k))

    def place(self, name: str, machine: Machine | None = None, slots: int = 1, place: int = NO_PLACE) -> None:
        """Give a node its machine: one of its own, unless another's is given."""
        if machine is None:
            number = len(self.machines)
            rate = 1.0 + self.rng.uniform(-4e-4, 4e-4)
            machine = self.machines[f"m{number}"] = Machine(f"m{number}", self.rng.uniform(1e3, 1e6), rate)
        self.home[name] = machine
        self.given[name] = Given(slots, place if self.world.cfg.static else NO_PLACE)

    def bring(self, name: str, delay: float, machine: Machine | None = None, fresh: bool = False) -> None:
        """Start the agent of a node after ``delay``, once its lock is free."""
        self.coming += 1
        self.world.after(delay, lambda: self._begin(name, machine or self.home[name], fresh))

    def _begin(self, name: str, machine: Machine, fresh: bool) -> None:
        same = [a for a in self.world.agents if a.name == name and a.machine is machine]
        locked = any(a.alive for a in same) or (
            self.world.rules.sweep_first and any(g.holds_lock for a in same for g in a.guardians)
        )
        runs = any(a.alive and not a.leaving for a in same) and not self.world.truth.over
        if locked and (runs or any(a.alive and a.hung for a in same)):
            self.coming -= 1  # it runs already, or will never be gone
            return
        if locked:
            self.world.after(0.5, lambda: self._begin(name, machine, fresh))
            return
        self.coming -= 1
        given = self.given[name]
        if given.terms == TERMS:
            given = given._replace(terms=self.terms)
        if self.world.cfg.hold:
            given = given._replace(terms=(*given.terms, ("--on-store-loss", str(self.hold))), hold=self.hold)
        agent = Agent(self.world, name, machine, given, f"launch-{self.launch}", fresh)
        self.world.agents.append(agent)

    # -- faults

    def phase_changed(self, job: Job) -> None:
        """Let a waiting fault strike soon; begin the next launch when this one is over."""
        if self.fair:
            return
        if self.waiting and self.rng.random() < 0.7:
            self.world.after(self.rng.random() ** 2 * 2.0, self.waiting.pop())
        if job.phase.over and self.launch < 3 and self.rng.random() < 0.7:
            self.world.after(self.rng.random() * 6.0, lambda: self._relaunch(job.phase))

    def some_have_finished(self) -> None:
        """Let a waiting fault strike while some ranks of a round have finished and others have not."""
        if not self.fair and self.waiting and self.rng.random() < 0.5:
            self.world.after(self.rng.random() * 20.0, self.waiting.pop())

    def _relaunch(self, phase: Phase) -> None:
        fresh = phase is Phase.DONE or self.rng.random() < 0.3
        self.launch += 1
        self.terms = (("--max-restarts", str(self.rng.randint(3, 4))),)
        self.hold = self.world.cfg.hold and self.rng.random() < 0.7
        self.world.faults["fresh" if fresh else "new launch"] += 1
        self.world.note("world", "launch", self.launch)
        self.world.work.begin_again(fresh)
        for name in sorted(self.home):
            self.bring(name, self.rng.random() * 6.0, fresh=fresh)

    def strike(self, kind: str) -> None:
        """Let a fault of ``kind`` happen, if there is something to happen to; else somebody starts the nodes again."""
        if not self.fair and not self.coming and len(self.world.living()) < 2 and not self.world.truth.over:
            self._start_again()
        if not self.fair and getattr(self, "_" + kind.replace(" ", "_"))():
            self.world.faults[kind] += 1

    def _some(self) -> Agent | None:
        living = self.world.living()
        if not living:
            return None
        leaders = [a for a in living if a.seat]
        agent = self.rng.choice(leaders if leaders and self.rng.random() < 0.4 else living)
        self.world.note("world", "FAULT", agent)
        return agent

    def _rank_failure(self) -> bool:
        ranks = [r for r in self.world.work.living() if not r.killed]
        if not ranks:
            return False
        self.world.work.end(self.rng.choice(ranks), self.rng.choice((1, 1, -11, -9)))
        return True

    def _alarm(self) -> bool:
        """A living rank writes that it cannot go on; some do so, and go on all the same."""
        agent = self._some()
        if agent is None or agent.node.ranks is not Ranks.LIVE:
            return False
        n, why = agent.node.round, Early(0, 1.0, "rank 0 wrote a line", "nccl-timeout")
        window = self.rng.choice((0.0, 1.0, 10.0))
        agent.post("lines", lambda: agent.take(Alarmed(agent.clock(), n, why, window)))
        if self.rng.random() < 0.3:
            self.world.after(
                self.rng.random() * 12.0,
                lambda: agent.post("lines", lambda: agent.take(Withdrawn(agent.clock(), n, why))),
            )
        return True

    def _crash_of_agent(self) -> bool:
        agent = self._some()
        if agent is None:
            return False
        self.world.note(agent.name, "CRASHES", "")
        agent.stop()
        if self.rng.random() < 0.7:  # else its keeper was killed, too
            Keeper(agent).bury()
        if self.rng.random() < 0.5:
            self.strike_restart(agent)
        return True

    def strike_restart(self, agent: Agent) -> None:
        """Start the same node's agent again, on the same machine, soon."""
        self.world.faults["restart"] += 1
        self.bring(agent.name, self.rng.random() ** 2 * 6.0, agent.machine)

    def _restart(self) -> bool:
        dead = [a for a in self.world.agents if not a.alive and not a.leaving]
        if not dead or self.world.truth.over:
            return False
        self.bring(self.rng.choice(dead).name, 0.0)
        return True

    def _crash_of_guardian(self) -> bool:
        agent = self._some()
        if agent is None or not agent.guardian.alive:
            return False
        self.world.note(agent.name, "GUARDIAN CRASHES", "")
        agent.guardian.crash()
        return True

    def _power_loss(self) -> bool:
        agent = self._some()
        if agent is None:
            return False
        machine = agent.machine
        self.world.note(machine.name, "LOSES POWER", "")
        for other in self.world.agents:
            if other.machine is machine:
                other.lose_power()
        machine.boot += 1
        return True

    def _pause(self) -> bool:
        agent = self._some()
        if agent is None or agent.paused:
            return False
        self.world.note(agent.name, "PAUSED", "")
        agent.pause()
        self.world.after(
            self.rng.choice((2.0, 12.0, 16.0, 30.0)) * (0.5 + self.rng.random()), lambda: self._thaw(agent)
        )
        return True

    def _hang(self) -> bool:
        """The agent's loop stands still for ever; its node is lost, and nobody else may be."""
        agent = self._some()
        if agent is None or agent.paused:
            return False
        self.world.note(agent.name, "HANGS", "")
        agent.pause()
        agent.hung = True
        return True

    def _thaw(self, agent: Agent) -> None:
        if agent.alive and agent.paused and not agent.hung:
            self.world.faults["thaw"] += 1
            self.world.note(agent.name, "THAWS", "")
            agent.thaw()

    def _partition(self) -> bool:
        agent = self._some()
        if agent is None or agent.cut:
            return False
        self.world.note(agent.name, "CUT OFF", "")
        agent.cut = True
        self.world.after(self.rng.choice((3.0, 14.0, 30.0)) * (0.5 + self.rng.random()), lambda: self._mend(agent))
        return True

    def _mend(self, agent: Agent) -> None:
        if agent.cut:
            self.world.faults["heal"] += 1
            self.world.note(agent.name, "HEALED", "")
            agent.cut = False
            self.world.store.poke()

    def _store_outage(self) -> bool:
        store = self.world.store
        if store.out:
            return False
        self.world.note("store", "OUT", "")
        store.go_out(down=self.rng.random() < 0.5)
        self.world.after(self.rng.choice((3.0, 13.0, 25.0)) * (0.5 + self.rng.random()), self._back)
        return True

    def _back(self) -> None:
        if self.world.store.out:
            self.world.faults["heal"] += 1
            self.world.note("store", "BACK", "")
            self.world.store.come_back()

    def _lagging_watch(self) -> bool:
        agent = self._some()
        if agent is None:
            return False
        agent.laggy_until = self.world.now + self.rng.uniform(5, 40)
        return True

    def _slow_guardian(self) -> bool:
        agent = self._some()
        if agent is None:
            return False
        agent.slow_pipe(self.rng.choice((2.0, 8.0, 20.0)), self.rng.uniform(5, 40))
        return True

    def _stall_of_node(self) -> bool:
        """The machine thrashes: first what is told to the guardian comes late, then the agent stands still as well."""
        agent = self._some()
        if agent is None or agent.paused:
            return False
        self.world.note(agent.name, "STALLS", "")
        agent.slow_pipe(25.0, self.rng.uniform(1, 4))
        stop = self.world.cfg.timing.ttl_s * (0.8 + self.rng.random())

        def pause() -> None:
            if agent.alive and not agent.paused and not self.fair:
                agent.pause()
                self.world.after(stop, lambda: self._thaw(agent))

        self.world.after(0.3 + self.rng.random() * 2.0, pause)
        return True

    def _leave(self) -> bool:
        agent = self._some()
        if agent is None or agent.leaving:
            return False
        self.world.note(agent.name, "ASKED TO LEAVE", "")
        agent.leaving = True
        agent.post("signal", lambda: agent.take(LeaveAsked(agent.clock(), self.rng.choice((0, 15)))))
        return True

    def _coming_and_going(self) -> bool:
        """A node that leaves or dies soon after it has come, and comes again."""
        agent = self._some()
        if agent is None:
            return False
        name, machine, turns = agent.name, agent.machine, self.rng.randint(2, 6)

        def turn(left: int) -> None:
            here = [a for a in self.world.living() if a.name == name and a.machine is machine and not a.leaving]
            if self.fair or not left or self.world.truth.over:
                return
            for one in here:
                if self.rng.random() < 0.5:
                    one.leaving = True
                    one.post("signal", lambda a=one: a.take(LeaveAsked(a.clock(), 0)))
                else:
                    one.stop()
            self.bring(name, self.rng.random() * 3.0, machine)
            self.world.after(self.rng.uniform(4.0, 25.0), lambda: turn(left - 1))

        turn(turns)
        return True

    def _late_join(self) -> bool:
        self.extra += 1
        name = f"x{self.extra}"
        slots = self.rng.choice((1, 1, 2))
        self.place(name, slots=slots, place=self.extra % self.world.cfg.max_nodes)
        self.bring(name, 0.0)
        return True

    def _other_terms(self) -> bool:
        """A node is started for this run with another command line."""
        if self.world.truth.job is None or self.world.truth.job.phase.over:
            return False
        self.extra += 1
        name = f"z{self.extra}"
        self.place(name, place=self.extra % self.world.cfg.max_nodes)
        self.given[name] = self.given[name]._replace(terms=(("--max-restarts", "7"),))
        self.bring(name, 0.0)
        return True

    def _namesake(self) -> bool:
        agent = self._some()
        if agent is None:
            return False
        self.extra += 1
        machine = self.machines[f"y{self.extra}"] = Machine(f"y{self.extra}", self.rng.uniform(1e3, 1e6), 1.0)
        self.bring(agent.name, 0.0, machine)
        return True

    # -- the end of the harm

    def heal(self) -> None:
        """Nothing goes wrong from now on; most nodes that are down come back."""
        self.fair = True
        self.waiting.clear()
        self.world.net.calm()
        self._back()
        for agent in list(self.world.agents):
            if agent.alive and agent.hung and agent.given.hold:
                agent.stop()  # nobody fences what is held: a person sees to it
            agent.laggy_until = 0.0
            agent.slow_pipe(0.0, 0.0)
            self._mend(agent)
            self._thaw(agent)
        if not self.world.truth.over and self.rng.random() < 0.8:
            self._start_again()

    def _start_again(self) -> None:
        """Start most nodes that are down."""
        for name in sorted(self.home):
            if not any(a.alive and a.name == name for a in self.world.agents) and self.rng.random() < 0.9:
                self.bring(name, self.rng.random() * 3.0)
