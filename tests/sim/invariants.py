"""What must hold, checked from the ground truth of the simulator and never from what a machine believes.

``Truth`` is told of every change of the store and of every birth and death of a rank; the numbers are the order's.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any

from remuster.agent.node_words import Start
from remuster.health.observed import Lacked
from remuster.rendezvous.admission import CALM_S, FLAPS, Admit, mark
from remuster.rendezvous.errors import BadRecord
from remuster.rendezvous.gate import blamed_for
from remuster.rendezvous.membership import Order
from remuster.rendezvous.records import (
    Incarnation,
    Job,
    Node,
    NodeId,
    Phase,
    Roster,
    Round,
    StoreLoss,
    decode_job,
    decode_node,
    decode_roster,
    decode_terms,
)
from remuster.rendezvous.store import WatchBatch, prefix_end
from remuster.rendezvous.tree import Tree

from . import telling
from .guardian import Rank

if TYPE_CHECKING:
    from .agents import Agent
    from .world import World

F, R, S, D, X = Phase.FORMING, Phase.RUNNING, Phase.STOPPING, Phase.DONE, Phase.FAILED
STEPS = {
    **dict.fromkeys(((F, F), (F, R), (F, X), (R, R), (R, S), (R, D), (R, X), (S, S), (S, X)), 0),
    **dict.fromkeys(((S, F), (X, F), (D, F)), 1),
}
ONCE = ["attempts", "history", "rounds", "evidence", "started", "finished"]

COLLECTED = Lacked("agent", "all of this was collected")  # marks what a node tells when its ranks are dead


class Violation(AssertionError):
    """An invariant does not hold; ``name`` is its short name."""

    def __init__(self, name: str, what: str) -> None:
        super().__init__(f"[{name}] {what}")
        self.name = name


class Truth:
    """The ledger of what really happened."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.stats = world.stats
        self.job: Job | None = None
        self.before: Job | None = None
        self.rosters: dict[int, Roster] = {}
        self.alive: dict[int, set[Rank]] = defaultdict(set)
        self.starts: dict[int, tuple[Any, ...]] = {}
        self.exited_zero: Counter[tuple[int, str, int]] = Counter()
        self.promised: dict[int, int] = {}  # inc → ready
        self.promised_at: dict[int, float] = {}
        self.charges: Counter[int] = Counter()
        self.stray = False  # what is applied now was delivered late, or for the second time
        self.stray_keys: set[str] = set()
        self.over: set[str] = set()
        self.terms: tuple[tuple[str, str], ...] = ()  # of the present launch
        self.chronicle: list[str] = []  # every step of the job, for the stories
        self.joined_at: dict[int, float] = {}
        self.formed_at = self.launched_at = self.forming_at = 0.0
        self.blamed_at: dict[tuple[str, int], float] = {}  # by (mark of the node, the round that it ended)
        self.blamed: dict[tuple[str, str], list[float]] = defaultdict(list)  # by (node, machine): rounds that it ended
        self.done: set[str] = set()

    def expect(self, holds: bool, name: str, what: str) -> None:
        """Raise ``Violation`` when ``holds`` is False."""
        if not holds:
            raise Violation(name, what)

    def _living(self) -> list[Rank]:
        return [r for ranks in self.alive.values() for r in ranks]

    # -- ranks

    def started(self, rank: Rank, action: Start) -> None:
        """A rank has been forked: (1), (2), (6), (7)."""
        n, expect = rank.round, self.expect
        self.stats["rank starts checked"] += 1
        expect(n in self.rosters, "1 one world", f"{rank} started, but that round was never formed")
        newest = max(self.rosters)
        expect(n == newest, "1 one world", f"{rank} started after round {newest} had formed")
        others = [r for r in self._living() if r.round != n]
        expect(not others, "1 one world", f"{rank} started while {others} live")
        roster, name = self.rosters[n], rank.agent.name
        index = next((i for i, m in enumerate(roster.members) if m.who == (name, rank.inc)), None)
        expect(index is not None, "2 membership", f"{rank} started, but is no member of {roster}")
        expect(index == action.place, "6 same start", f"{rank} has place {action.place}, not {index}")
        own = (action.job.resume, action.job.master, action.roster)
        first = self.starts.setdefault(n, own)
        expect(own == first, "6 same start", f"{rank} starts from {own}, another rank of the round from {first}")
        expect(bool(action.job.master), "6 same start", f"{rank} starts without a master address")
        expect(action.roster == roster, "6 same start", f"{rank} starts with another roster than was written")
        promise = self.promised.get(rank.inc, 0)
        expect(n >= promise, "7 ready", f"{rank} started after ready({promise}) of its incarnation")
        assert self.job is not None
        expect(self.job.launch not in self.over, "4 over is over", f"{rank} started after its launch had ended")
        self.alive[n].add(rank)

    def ended(self, rank: Rank, status: int) -> None:
        self.alive[rank.round].discard(rank)
        if status == 0:
            self.exited_zero[rank.round, rank.agent.name, rank.inc] += 1

    # -- the store

    def changed(self, batch: WatchBatch, before: Tree, after: Tree, inc: int | None) -> None:
        """A revision was made, by incarnation ``inc``, or by an expiry or a revocation (None)."""
        keys = self.world.cfg.keys
        if inc is not None:
            self.stats["writes applied"] += 1
            self.expect(inc in after.leases, "5 lease", f"a write of {inc:x}, which has no lease, took effect: {batch}")
        for event in batch.events:
            if event.kv is None:
                continue
            if self.stray:
                self.stats["late or doubled writes that took effect"] += 1
                self.stray_keys.add(event.key)
            if event.key.startswith(f"{keys.prefix}evidence/"):
                self._words(event.key, event.kv.value, before)
            elif event.key.startswith(keys.nodes):
                self._node(event.key[len(keys.nodes) :], decode_node(event.kv.value), after)
            elif event.key == keys.job:
                self._job(decode_job(event.kv.value), before, after)

    def _words(self, key: str, words: bytes, before: Tree) -> None:
        """What a node has collected is never replaced by the first word of it."""
        was, mark = before.range(key).one(), COLLECTED.why.encode()
        whole = mark in words
        self.stats["words collected"] += whole
        self.expect(whole or was is None or mark not in was.value, "17 whole words", f"{key} falls back to less")

    def _agent(self, inc: int) -> Agent | None:
        return next((a for a in self.world.agents if a.lease == inc), None)

    def _joined(self, inc: int, after: Tree) -> None:
        """Nobody joins who was given another command line than the node that began the launch."""
        agent, kv = self._agent(inc), after.range(self.world.cfg.keys.terms).one()
        self.expect(kv is not None, "11 terms", "a node has joined a launch without terms")
        if agent is not None and kv is not None:
            said = decode_terms(kv.value).said
            self.stats["terms checked"] += 1
            self.expect(agent.given.terms == said, "11 terms", f"{agent} joins with {agent.given.terms}, not {said}")

    def _node(self, name: str, record: Any, after: Tree) -> None:
        inc, ready = record.inc, record.ready
        self.stats["ready checked"] += 1
        if inc not in self.promised:
            agent = self._agent(inc)
            left = [r for r in self._living() if r.agent.name == name]
            if (
                self.world.cfg.hold and agent
            ):  # a namesake may come and wait; what is held elsewhere is not for it to end
                left = [r for r in left if r.agent.machine is agent.machine]
            self.expect(not left, "5 join after sweep", f"{name}@{inc:x} joins while {left} live")
            self._joined(inc, after)
            self.joined_at[inc] = self.world.now
        before = self.promised.get(inc, 0)
        self.expect(ready >= before, "7 ready", f"ready of {name}@{inc:x} falls from {before} to {ready}")
        self.promised[inc], self.promised_at[inc] = ready, self.world.now
        older = [r for r in self._living() if r.inc == inc and r.round < ready]
        self.expect(not older, "7 ready", f"{name}@{inc:x} says ready({ready}) while {older} live")

    def _job(self, new: Job, before: Tree, after: Tree) -> None:
        old, expect = self.job, self.expect
        self.before, self.job = old, new
        self.chronicle.append(self._told(old, new, after))
        self.world.note("job", self.chronicle[-1], "")
        if old is None:
            expect((new.phase, new.round) == (F, 1), "2 rounds", f"the job begins as {new}")
            return
        n = new.round
        for who in set(new.blamed) - set(old.blamed):
            self.blamed_at[who] = self.world.now
            self.stats["blamed"] += 1
        if new.phase is F and old.phase is not F:
            self.forming_at = self.world.now
        if new.launch != old.launch:
            self.launched_at = self.world.now
        expect(n >= old.round, "2 rounds", f"the round falls from {old.round} to {n}")
        pair = (old.phase, new.phase)
        expect(STEPS.get(pair) == n - old.round, "2 rounds", f"{old.phase.name}({old.round}) → {new.phase.name}({n})")
        if old.phase.over:
            expect(old.launch != new.launch, "4 over is over", f"launch {old.launch} goes on after {old.phase.name}")
            if new.launch in self.over:  # known: ``job`` remembers the last launch only, and a third one came between
                self.stats["a launch went on after a later one had ended"] += 1
                self.over.discard(new.launch)
        expect(new.launch not in self.over, "4 over is over", f"launch {new.launch} has ended, and is {new.phase.name}")
        if new.launch == old.launch:
            expect(new.notice == old.notice or not old.notice, "16 notice", f"{old.notice}'s becomes {new.notice}'s")
            expect(not (pair == (F, R) and old.notice), "16 notice", f"round {n} begins after {old.notice} was told")
        if pair == (F, F):
            expect((old.notice != new.notice) ^ (old.asked != new.asked), "2 rounds", f"{old} → {new}")
        self._budget(old, new, before)
        if pair == (R, S):
            self._stopped(new, before)
        if pair == (F, R):
            self._formed(old, new, after)
        elif pair != (R, R) or new.formed != old.formed:
            expect(new.formed == old.formed, "2 rounds", f"the last formed round becomes {new.formed}: {old} → {new}")
        expect(pair != (R, X) or bool(old.notice), "16 notice", f"round {n} has failed, and nobody stopped it")
        if pair in ((R, D), (R, X)):
            for m in self.rosters[n].members:
                zero = self.exited_zero[n, m.node, m.inc]
                expect(
                    zero == m.slots, "4 done", f"round {n} is done, but {zero} of {m.slots} ranks of {m.node} exited 0"
                )
        if pair == (R, D):
            self.done.add(new.launch)
        if pair == (F, X) and new.outcome and new.outcome.cls == "rdzv_lost":
            self._too_few(new, after)
        if new.phase.over:
            self.over.add(new.launch)
            self.stats[f"launches ended {new.phase.name}"] += 1
        self.world.phase_changed(old, new)

    def _stopped(self, new: Job, before: Tree) -> None:
        """Only a member stops a round, or its loss before it had finished."""
        keys, cause, n = self.world.cfg.keys, new.cause, new.round
        assert cause is not None
        who = (cause.node, cause.inc)
        members = {m.who for m in self.rosters[n].members}
        if cause.kind == "admit":
            self._admitted(new, before)
            return
        if cause.kind in ("lost", "fenced", "leave") and who in members:
            self._blame(cause.node, n)
        self.stats["ended by an alarm"] += cause.kind == "alarm"
        self.expect(who in members, "2 membership", f"round {n} is stopped for {who}, which is no member of {members}")
        if cause.kind == "lost":
            kv = before.range(keys.node(NodeId(cause.node))).one()
            report = keys.report("finished", new.round, NodeId(cause.node), Incarnation(cause.inc))
            here = kv is not None and kv.lease == cause.inc
            self.stats["losses checked"] += 1
            self.expect(not here, "3 no false loss", f"round {n} is stopped for the loss of {who}, which is here")
            done = before.range(report).one() is not None
            self.expect(not done, "3 no false loss", f"round {n} is stopped for the loss of {who}, which had finished")

    def _blame(self, node: str, n: int) -> None:
        machine = next(m.machine for m in self.rosters[n].members if m.node == node)
        self.blamed[node, machine].append(self.world.now)

    def _comes_and_goes(self, node: str, machine: str) -> bool:
        """Tell whether a node has ended too many rounds of this launch, and no calm can have made up for them."""
        ended = [at for at in self.blamed[node, machine] if at >= self.launched_at]
        return len(ended) >= FLAPS and self.world.now - ended[-FLAPS] < CALM_S

    def _admitted(self, new: Job, before: Tree) -> None:
        """A round is ended for a newcomer only as the launch wants it, when it has run, for one that can join."""
        keys, limits, n, cause = self.world.cfg.keys, self.world.cfg.limits, new.round, new.cause
        expect, now, rule = self.expect, self.world.now, "14 newcomers"
        assert cause is not None
        roster, what = self.rosters[n], f"round {n} is ended for {cause.node}@{cause.inc:x}"
        self.stats["rounds ended for a newcomer"] += 1
        expect(limits.admit is not Admit.RESTART, rule, f"{what}, which was not asked for")
        expect(len(roster.members) < new.max_nodes, rule, f"{what}, and is full")
        expect(cause.inc not in {m.inc for m in roster.members}, rule, f"{what}, a member")
        expect(self.promised.get(cause.inc, 0) >= n, rule, f"{what}, which has not proven its old ranks dead")
        slack = 1.0 - 1e-3
        expect(now - self.formed_at >= slack * limits.admit_after_s, rule, f"{what} {now - self.formed_at:.1f} s old")
        stood = now - self.joined_at[cause.inc]
        expect(stood >= slack * limits.gather_s, rule, f"{what}, which joined {stood:.1f} s ago")
        finished = before.range(*keys.reports("finished", Round(n))).items
        started = before.range(*keys.reports("started", Round(n))).items
        expect(not finished, rule, f"{what}, and {[kv.key for kv in finished]} are there")
        expect(len(started) == len(roster.members), rule, f"{what}, and not all have started")
        if limits.admit is Admit.CHECKPOINT:
            late = self.world.work.published_at > self.joined_at[cause.inc]
            expect(late, rule, f"{what} before the next checkpoint")
            self.stats["rounds ended at a checkpoint"] += 1
        kv = before.range(keys.node(NodeId(cause.node))).one()
        if kv is not None and kv.lease == cause.inc:
            flaps = self._comes_and_goes(cause.node, decode_node(kv.value).machine)
            expect(not flaps, rule, f"{what}, which comes and goes: {dict(self.blamed)}")

    def _kept_out(self, name: str, node: Node) -> bool:
        """Tell whether a node that is ready may be passed over: unfit, blamed, or standing aside."""
        who, job = mark(NodeId(name), node.machine), self.before or self.job
        assert job is not None
        return bool(node.unfit) or who in job.aside or dict(job.blamed).get(who, 0) > node.checked

    def _steady(self, new: Job, roster: Roster, after: Tree) -> None:
        """Who comes and goes is a member only where there are too few others."""
        held = [m for m in roster.members if self._comes_and_goes(m.node, m.machine)]
        if not held:
            return
        keys, known = self.world.cfg.keys, self.world.now - 30.0  # what came later, a leader may not have seen
        others = []
        for kv in after.range(keys.nodes, keys.nodes + "\x7f").items:
            node = decode_node(kv.value)
            steady = not self._comes_and_goes(kv.key[len(keys.nodes) :], node.machine)
            steady = steady and not self._kept_out(kv.key[len(keys.nodes) :], node)
            if steady and node.ready >= new.round and self.promised_at[node.inc] < known:
                others.append(node)
        last = self.rosters.get(new.formed - 1)
        alike = (
            len({m.slots for m in (*roster.members, *(last.members if last else ()))} | {o.slots for o in others}) == 1
        )
        self.stats["comes and goes, and is needed"] += 1
        needed = len(others) < new.min_nodes or not alike or self.world.cfg.static or self.world.cfg.hold
        self.expect(needed, "14 newcomers", f"{held} come and go, and {others} were there for round {new.round}")

    def _gate(self, old: Job, roster: Roster, after: Tree) -> None:
        """Nobody who is blamed takes part before its check has ended, or its time is over; nor anybody who is unfit."""
        keys, rule = self.world.cfg.keys, "17 gate"
        paused = self.world.now - self.forming_at
        self.expect(paused >= old.pause * (1 - 1e-3), rule, f"round {roster.round} closed {paused:.1f} s after S")
        for m in roster.members:
            kv = after.range(keys.node(m.node)).one()
            if kv is None or kv.lease != m.inc:
                continue  # it went in this moment
            try:
                record = decode_node(kv.value)
            except BadRecord:
                continue  # somebody else has written over it
            self.expect(not record.unfit, rule, f"{m.node} runs in round {roster.round} and is unfit: {record.unfit}")
            n = blamed_for(old, m.node, m.machine)
            if n <= record.checked:
                self.stats["runs after its check"] += n > 0
                continue
            known = max(self.joined_at[m.inc], self.blamed_at.get((mark(m.node, m.machine), n), 0.0))
            waited = self.world.now - known
            self.stats["runs unchecked when time is over"] += 1
            limit = self.world.cfg.limits.check_s * (1 - 1e-3)
            self.expect(waited >= limit, rule, f"{m.node} runs in round {roster.round}, {waited:.1f} s after its blame")

    def _in_order(self, roster: Roster) -> None:
        if self.world.cfg.limits.order is Order.HOSTNAME and not self.world.cfg.static:
            names = [m.node for m in roster.members]
            expected = sorted(names, key=lambda name: (name[0], int(name[1:])))
            self.stats["orders checked"] += 1
            self.expect(names == expected, "15 order", f"round {roster.round} stands as {names}")

    def _told(self, old: Job | None, new: Job, after: Tree) -> str:
        said = f"{self.world.now:6.1f}  {telling.job(new)}"
        if old and old.phase is F and new.phase is R:
            kv = after.range(self.world.cfg.keys.roster(new.round)).one()
            said += f" on {telling.members(decode_roster(kv.value))}" if kv else ""
        spent = sum(n for _, n in new.spent) - sum(n for _, n in old.spent) if old else 0
        return (
            said
            + (f", charge {spent:+d}" if spent else "")
            + (f", {new.launch}" if not old or new.launch != old.launch else "")
        )

    def _too_few(self, new: Job, after: Tree) -> None:
        """Nobody gives up for want of nodes while enough are ready, unless their slots do not fit the holes."""
        keys = self.world.cfg.keys
        found = after.range(keys.nodes, keys.nodes + "\x7f").items
        here = [decode_node(kv.value) for kv in found]
        name_of = {node.inc: kv.key[len(keys.nodes) :] for node, kv in zip(here, found, strict=True)}
        known = self.world.now - 30.0  # what came later, a leader whose watch lags may not have seen
        if any(agent.seat and agent.laggy_until > known for agent in self.world.living()):
            return  # and one whose watch has lagged since then, nothing
        ready = [node for node in here if node.ready >= new.round and self.promised_at[node.inc] < known]
        ready = [node for node in ready if not self._kept_out(name_of[node.inc], node)]
        last = self.rosters.get(new.formed)
        slots = {node.slots for node in ready} | {m.slots for m in (last.members if last else ())}
        fits = len(slots) == 1 or new.round == new.first
        enough = len(ready) >= new.min_nodes
        if self.world.cfg.static:
            places = {node.place for node in ready}
            enough = len(places) >= new.min_nodes and 0 in places
        if last and last.store_loss is StoreLoss.HOLD:
            here_now = {(node.machine, m.node) for node in ready for m in last.members if node.address == m.address}
            enough = enough and all((m.machine, m.node) in here_now for m in last.members)
        self.stats["gave up for want of nodes"] += 1
        self.expect(not enough or not fits, "9 liveness", f"round {new.round} was given up with {ready} ready")

    def _in_places(self, roster: Roster) -> None:
        """Every member has the place that it was started for, and no two have the same."""
        asked = [agent.given.place for m in roster.members if (agent := self._agent(m.inc))]
        self.stats["places checked"] += 1
        self.expect(asked == sorted(set(asked)), "12 places", f"round {roster.round} runs on the places {asked}")
        if self.world.cfg.min_nodes == self.world.cfg.max_nodes:
            here = [roster.place(*m.who) for m in roster.members if self._agent(m.inc)]
            self.expect(asked == here, "12 places", f"round {roster.round}: {asked} were asked for, {here} given")

    def _formed(self, old: Job, new: Job, after: Tree) -> None:
        n, keys, expect = new.round, self.world.cfg.keys, self.expect
        self.stats["rounds formed"] += 1
        expect(n not in self.rosters, "2 rounds", f"round {n} is formed twice")
        kv = after.range(keys.roster(n)).one()
        expect(kv is not None, "2 rounds", f"round {n} has no roster")
        assert kv is not None
        roster = self.rosters[n] = decode_roster(kv.value)
        size = len(roster.members)
        expect(old.min_nodes <= size <= old.max_nodes, "2 rounds", f"{size} nodes in {old.min_nodes}:{old.max_nodes}")
        if self.world.cfg.static:
            self._in_places(roster)
        self._in_order(roster)
        self._steady(new, roster, after)
        self._gate(old, roster, after)
        self.formed_at = self.world.now
        left = self._living()
        expect(not left, "1 one world", f"round {n} is formed while {left} live")
        for m in roster.members:
            ready = self.promised.get(m.inc, 0)
            expect(ready >= n, "2 membership", f"{m.node}@{m.inc:x} is chosen for round {n} with ready({ready})")
        self._closed_roster(old, roster)
        if old.formed:
            here = {kv.key: kv.lease for kv in after.range(keys.nodes, keys.nodes + "\x7f").items}
            for m in self.rosters[old.formed].members:
                gone = here.get(keys.node(m.node)) != m.inc
                self.stats["closes after a member was gone"] += gone
                expect(gone or self.promised[m.inc] >= n, "1 one world", f"round {n} closed; {m.node} had not answered")
            self.stats["closes after another round"] += 1
        if self.world.cfg.views:
            self.world.views.formed(old, new, roster, after)
            return
        newest = self.world.work.newest()[1]
        step = new.resume.step if new.resume else None
        expect(step == newest, "8 resume", f"round {n} resumes from {step}, the newest checkpoint is {newest}")

    def _closed_roster(self, old: Job, roster: Roster) -> None:
        """Within a launch that holds its ranks, every round is of the same nodes on the same machines."""
        last = self.rosters.get(old.formed)
        if old.store_loss is not StoreLoss.HOLD or last is None or old.formed < old.first:
            return
        now, before = ({(m.node, m.machine.partition("-")[0]) for m in r.members} for r in (roster, last))
        self.stats["closed rosters checked"] += 1
        self.expect(now == before, "13 closed roster", f"round {roster.round} is of {now}, the last was of {before}")

    def _budget(self, old: Job, new: Job, before: Tree) -> None:
        spent, was = (sum(k for _, k in job.spent) for job in (new, old))
        n = old.round
        if spent == was or (old.phase.over and spent == 0):
            return
        self.charges[n] += spent - was
        self.stats["charges"] += 1
        self.expect(self.charges[n] == 1, "3 budget", f"round {n} is charged {self.charges[n]} times")
        self.expect(old.phase is S, "3 budget", f"a charge in {old.phase.name}({n})")
        limit = self.world.cfg.budget
        self.expect(new.charged <= limit, "3 budget", f"{new.charged} charges in launch {new.launch}, {limit} allowed")
        planned = old.cause is not None and old.cause.kind in ("leave", "admit")
        self.expect(not planned, "3 budget", f"round {n} ended by a planned change and is charged")
        start, end = self.world.cfg.keys.reports("started", n)
        started = len(before.range(start, end).items)
        members = len(self.rosters[n].members)
        self.expect(started == members, "3 budget", f"round {n} is charged; {started} of {members} had started")

    def choosing(self, n: int) -> None:
        """A leader asks for the resume point of round ``n``: (8)."""
        older = [r for r in self._living() if r.round < n]
        self.stats["resume choices checked"] += 1
        self.expect(not older, "8 resume", f"the resume point of round {n} is chosen while {older} live")

    # -- the command

    def exited(self, agent: Agent, code: int, sentence: str) -> None:
        self.world.note(agent.name, "EXIT", (code, sentence))
        self.stats[f"exit {code}"] += 1
        left = [r for r in self._living() if r.agent is agent]
        self.expect(not left, "4 nothing is left", f"{agent} exits while {left} live")
        if code == 0 and not agent.leaving:
            seen = agent.node.job.job.launch if agent.node.job else agent.node.launch or agent.launch
            self.expect(seen in self.done, "4 done", f"{agent} exits 0, but launch {seen} is not done")

    def left_over(self, tree: Tree) -> None:
        """At the end: only what the protocol keeps is in the store: (10)."""
        keys, job = self.world.cfg.keys, self.job
        if job is None:
            return
        for kv in tree.range(keys.prefix, prefix_end(keys.prefix)).items:
            kind, _, rest = kv.key[len(keys.prefix) :].lstrip("~").partition("/")
            if kind not in ("rounds", "evidence", "started", "reentered", "finished", "looked"):
                self.expect(kind in ("job", "leader", "nodes", "terms", *ONCE), "10 left over", f"{kv.key} is left")
                continue
            n = int(rest.partition("/")[0])
            self.stats["left-over keys checked"] += 1
            expected = n >= job.formed + (kind == "looked") or kv.key in self.stray_keys
            self.expect(expected, "10 left over", f"{kv.key} is left, the last formed round is {job.formed}")
