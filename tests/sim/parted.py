"""Checkpoints of which each machine holds the files of the ranks that ran on it: who finds what, and what must hold.

Chosen and answered as the product's search and its look at a part do, by the rules of a format that leaves one file
for each rank and that records how many ranks there were, or does not.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING

from remuster.agent.node_words import Look, Looked
from remuster.rendezvous.agreement import NO_ANSWER, NOT_FOR_ALL, STORAGE
from remuster.rendezvous.asked import MOST_STEPS, Asked, Found, Held, Sight, ranges
from remuster.rendezvous.leader_words import Resumed, SelectResume
from remuster.rendezvous.records import Job, Member, Phase, ResumePoint, Roster
from remuster.rendezvous.tree import Tree

from .views import Views

if TYPE_CHECKING:
    from .agents import Agent, Machine
    from .guardian import Rank
    from .work import Group
    from .world import World

FILES, WROTE, NOTHING, FIRST = "19 own files", "20 same ranks", "21 not from nothing", "22 a torn first save"
NEWER = 8  # steps that an answer names although nobody asked about them
WIPED = 0.3  # of the machines that lose their power lose their files, too


@dataclass(slots=True)
class Save:
    """One checkpoint: which ranks' files lie on which disk, and on which disk a file is cut short."""

    step: int
    round: int
    size: int
    done: bool = False
    ranks: dict[str, set[int]] = field(default_factory=dict[str, set[int]])
    bad: set[str] = field(default_factory=set[str])

    @property
    def name(self) -> str:
        return f"step-{self.step:06d}"

    def on(self, disk: str) -> set[int]:
        """Return whose files lie on a disk."""
        return self.ranks.get(disk, set())


class Parted(Views):
    """The machines' disks, or the one directory that they share."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.rng = Random(world.seed * 7919 + 1)  # its own: other draws stay what they were
        self.shared = self.rng.random() < 0.2
        self.recorded = self.rng.random() < 0.5
        self.saves: dict[int, Save] = {}
        self.coming: Roster | None = None  # for which a checkpoint was looked for last
        self.disks: dict[str, tuple[int, int]] = {}  # of a machine: its boot, and how often it was wiped

    @property
    def about(self) -> str:
        return f"shared: {self.shared}, recorded: {self.recorded}"

    def kind(self, machine: Machine) -> str:
        return "shared"

    def disk(self, machine: Machine) -> str:
        """Return where a machine keeps its files now."""
        if self.shared:
            return "shared"
        boot, turn = self.disks.get(machine.name, (0, 0))
        if boot != machine.boot:
            turn += self.rng.random() < WIPED
        self.disks[machine.name] = (machine.boot, turn)
        return f"{machine.name}.{turn}"

    # -- saving

    def save(self, group: Group, step: int) -> None:
        """Have every rank that lives write its file, some time later, unless it has died by then."""
        n = group.ranks[0].round
        if step <= 0 or step in self.saves or n not in self.world.truth.rosters:
            return
        save = self.saves[step] = Save(step, n, group.size)
        most = self.rng.choice((0.01, 0.5, 3.0))
        for rank in group.ranks:
            wrote = self.world.truth.rosters[n]
            place = next(i for i, m in enumerate(wrote.members) if m.inc == rank.inc)
            number = wrote.first_rank(place) + rank.local
            self.world.after(self.rng.random() * most, lambda r=rank, i=number: self._write(save, i, r))

    def _write(self, save: Save, number: int, rank: Rank) -> None:
        disk = self.disk(rank.agent.machine)
        if not rank.alive:
            if self.rng.random() < 0.15:
                save.bad.add(disk)
            self.world.stats["torn"] += 1
            return
        save.ranks.setdefault(disk, set()).add(number)
        if set(range(save.size)) <= set[int]().union(*save.ranks.values()):
            save.done = True
            self.world.stats["complete over all nodes"] += 1
            self.world.work.published(save.step)

    # -- what a node finds

    def there(self, disk: str) -> list[Save]:
        """Return what lies on a disk, newest first."""
        found = (save for save in self.saves.values() if save.on(disk) or disk in save.bad)
        return sorted(found, key=lambda save: -save.step)

    def whole(self, save: Save, disk: str, world: int | None) -> bool:
        """Say whether nothing is missing there, as far as the format can tell."""
        have = save.on(disk)
        need = save.size if self.recorded else max(max(have, default=-1) + 1, world or 1)
        return disk not in save.bad and have >= set(range(need))

    def chosen(self, agent: Agent, ask: SelectResume) -> Resumed:
        at, disk, world = agent.clock(), self.disk(agent.machine), ask.roster.world_size
        self.coming = ask.roster
        against, refused = dict(ask.against), list[tuple[str, str]]()
        hinted = {name for name, *_ in ask.hints}
        for save in self.there(disk):
            name, have = save.name, save.on(disk)
            why = against.get(name, "")
            if not why and ask.within is not None and name not in ask.within and name not in hinted:
                why = NOT_FOR_ALL
            if why or disk in save.bad:
                refused.append((name, why or "torn"))
                continue
            asked, held = Asked(0, 0, name, save.step, "sim", len(have), 1, f"{sorted(have)}"), Held()
            if not self.whole(save, disk, world):
                asked = Asked(name=name, step=save.step, format="sim", part=world)
                held = Held(ranges(sorted(have)), save.size if self.recorded else 0)
                self.world.stats["parts chosen"] += 1
            point = ResumePoint(name, save.step, name=name)
            return Resumed(at, ask.round, point, tuple(refused), question=asked, held=held, world=world)
        return Resumed(at, ask.round, ResumePoint(), tuple(refused), question=Asked(part=world), world=world)

    def _looked(self, agent: Agent, action: Look) -> None:
        sight = self.sight(action.asked, self.disk(agent.machine))
        self.answered[agent.inc, action.asked.mark] = sight
        self.world.stats[f"look: {sight.found.value}"] += 1
        agent.take(Looked(agent.clock(), action.round, sight))

    def sight(self, asked: Asked, disk: str) -> Sight:
        """Answer a question as a node with that disk does."""
        there = self.there(disk)
        newer = [save for save in there if save.step > asked.step][:NEWER]
        listed = [save for save in newer if self.whole(save, disk, asked.part or None)]
        listed += [save for save in there if save.step <= asked.step][: MOST_STEPS - NEWER]
        steps = tuple((save.name, save.step) for save in listed)
        if not asked.name:
            of = (save for save in there if save.on(disk) and disk not in save.bad)
            part = next((save for save in of if not self.whole(save, disk, asked.part)), None)
            return Sight(asked.mark, Found.CAN, "", steps, parts=((part.name, part.step),) if part else ())
        save = next((save for save in there if save.step == asked.step), None)
        if save is None:
            return Sight(asked.mark, Found.LACKS, "it is not there", steps)
        have = sorted(save.on(disk))
        if disk in save.bad:
            return Sight(asked.mark, Found.DIFFERS, "torn", steps)
        if asked.part:
            return Sight(asked.mark, Found.CAN, "", steps, ranges(have))
        if f"{have}" == asked.digest:
            return Sight(asked.mark, Found.CAN, "", steps)
        return Sight(asked.mark, Found.LACKS if len(have) < asked.files else Found.DIFFERS, "other files", steps)

    # -- the rules

    def formed(self, old: Job, new: Job, roster: Roster, after: Tree) -> None:
        step = new.resume.step if new.resume else -1
        members = [(m, agent) for m in roster.members if (agent := self._agent(m))]
        if step >= 0:
            self._runs(new.round, self.saves[step], roster, members)
        else:
            self._begins(new.round, roster, members)

    def _agent(self, m: Member) -> Agent | None:
        return next((a for a in self.world.agents if a.lease == m.inc and a.alive), None)

    def _runs(self, n: int, save: Save, roster: Roster, members: list[tuple[Member, Agent]]) -> None:
        expect, stats = self.world.truth.expect, self.world.stats
        for m, agent in members:
            first = roster.first_rank(roster.members.index(m))
            need, disk = set(range(first, first + m.slots)), self.disk(agent.machine)
            have, what = save.on(disk), f"round {n} resumes from {save.step}, of {save.size} ranks"
            entire = self.recorded and len(have) == save.size  # what that is worth to others is for the format
            able = entire or (need <= have and disk not in save.bad)
            expect(able, FILES, f"{what}: {m.node} runs {need} and holds {have}")
            part = len(have) < save.size
            same = not (part and self.recorded) or save.size == roster.world_size
            expect(same, WROTE, f"{what}, with {roster.world_size}, and {m.node} holds {have}")
            stats["own files checked"] += 1
            stats["runs with a part"] += part

    def _begins(self, n: int, roster: Roster, members: list[tuple[Member, Agent]]) -> None:
        done = [save for save in self.saves.values() if save.done]
        if not done:
            self.world.stats["begins from nothing, past a torn one"] += bool(self.saves)
            return
        disks = {m.node: self.disk(agent.machine) for m, agent in members}
        held = {save.step: {node: save.on(disk) for node, disk in disks.items() if save.on(disk)} for save in done}
        known = {step: have for step, have in held.items() if have}
        if len(set(disks.values())) == 1:  # one directory, as far as they can see: torn, or of fewer ranks, or …
            known = {step: have for step, have in known.items() if self._told(self.saves[step], roster)}
        self.world.stats["begins from nothing: nobody here has a file"] += not known
        sizes = {save.step: save.size for save in done}
        what = f"round {n} of {roster.world_size} begins from nothing: {known} of {sizes}; {self.about}"
        self.world.truth.expect(not known, NOTHING, what)

    def _told(self, save: Save, roster: Roster) -> bool:
        """Say whether members who all see the same can tell a save that was complete from one that was torn.

        Not where they are one machine's and others ran on more, nor where it may be one of as many ranks as they are.
        """
        return self.shared and (self.recorded or save.size >= roster.world_size)

    def ended(self, new: Job) -> None:
        """No torn save ends the job while all who made it are there, on their places, if none was ever complete.

        With others beside them, or on other places, the rest may lie on a node that is gone, as far as they can tell.
        """
        out = new.outcome
        if new.phase is not Phase.FAILED or out is None or out.cls != "fs_transient" or out.exit_code != STORAGE:
            return
        self.world.stats["ended for its checkpoints"] += 1
        if any(save.done for save in self.saves.values()) or NO_ANSWER in out.sentence:
            return
        here = all(self._again(save) for save in self.saves.values())
        self.world.truth.expect(not here, FIRST, f"{out.sentence}; {self.saves}, {self.about}")

    def _again(self, save: Save) -> bool:
        """Say whether the round that was about to begin is the one that saved, by incarnation and place."""
        wrote, now = self.world.truth.rosters[save.round], self.coming
        agents = [agent for m in wrote.members if (agent := self._agent(m))]
        disks = {self.disk(agent.machine) for agent in agents}
        if len(agents) < len(wrote.members) or not (self.shared or len(disks) == len(agents)):
            return False  # two of one machine see each other's files, as where they have changed places
        return now is not None and [m.who for m in wrote.members] == [m.who for m in now.members]
