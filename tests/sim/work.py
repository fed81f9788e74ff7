"""What the ranks of a round do: train together, save checkpoints, finish, fail, or hang when a peer has gone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from remuster.agent.node_words import Start

from .guardian import Rank
from .parted import Parted

if TYPE_CHECKING:
    from .world import World


class Group:
    """The worker group of one round."""

    def __init__(self, world_size: int, first_step: int) -> None:
        self.size = world_size
        self.first_step = first_step
        self.ranks: list[Rank] = []
        self.began_at: float | None = None
        self.broken_at: float | None = None


class Work:
    """The training job: ``steps`` seconds of work in all, checkpoints in the order in which they were published."""

    def __init__(self, world: World, steps: int) -> None:
        self.world = world
        self.steps = steps
        self.groups: dict[int, Group] = {}
        self.checkpoints: list[int] = []
        self.published_at = -1.0  # the newest of them
        self.victims = 0.6  # of the peers of a rank that failed fail soon; the others hang
        self.unharmed = 0.1  # … or had done their part already, and finish

    def newest(self) -> tuple[str, int]:
        """Return path and step of the newest checkpoint."""
        if not self.checkpoints:
            return "", -1
        return f"step-{self.checkpoints[-1]:06d}", self.checkpoints[-1]

    def begin_again(self, fresh: bool) -> None:
        """A new launch: from the newest checkpoint, or over again."""
        if fresh:
            self.steps += self.steps // 2

    def living(self) -> list[Rank]:
        return [r for g in self.groups.values() for r in g.ranks if r.alive]

    def began(self, ranks: list[Rank], action: Start) -> None:
        """Ranks were forked; the group trains once all are there."""
        n, resume = action.round, action.job.resume
        group = self.groups.setdefault(n, Group(action.roster.world_size, max(0, resume.step if resume else 0)))
        group.ranks += ranks
        if len(group.ranks) < group.size or group.broken_at is not None:
            return
        self.world.stats["groups that trained"] += 1
        group.began_at = self.world.now
        left = max(0.0, self.steps - group.first_step)
        # In some rounds a few ranks write results for a while.
        apart = 1.5 if self.world.injector.fair else self.world.rng.choice((1.5, 1.5, 1.5, 30.0))
        for rank in group.ranks:
            self.world.after(0.1 + left + self.world.rng.random() * apart, lambda r=rank: self._finish(r))
        self._save_later(group)

    def _step(self, group: Group) -> int:
        if group.began_at is None:
            return group.first_step
        until = self.world.now if group.broken_at is None else group.broken_at
        return min(self.steps, group.first_step + int(until - group.began_at))

    def _save_later(self, group: Group) -> None:
        def save() -> None:
            if group.broken_at is None and any(r.alive for r in group.ranks):
                self._publish(group)
                self._save_later(group)

        self.world.after(2 + self.world.rng.random() * 6, save)

    def _publish(self, group: Group) -> None:
        if isinstance(self.world.views, Parted):
            self.world.views.save(group, self._step(group))
        else:
            self.published(self._step(group))

    def published(self, step: int) -> None:
        """Take a checkpoint for one that is there, unless there is a newer one."""
        if step > (self.checkpoints[-1] if self.checkpoints else 0):
            self.checkpoints.append(step)
            self.published_at = self.world.now

    def _finish(self, rank: Rank) -> None:
        if rank.may_finish and not rank.killed:
            self.end(rank, 0)

    def end_stopped(self, rank: Rank, status: int) -> None:
        """A rank ends on SIGTERM; one in three saves a last checkpoint in its grace."""
        if rank.alive and not rank.killed:
            if self.world.rng.random() < 0.3:
                self._publish(self.groups[rank.round])
            self.end(rank, status)

    def end(self, rank: Rank, status: int) -> None:
        """A rank ends; when it did not finish, its peers fail soon as victims, or hang."""
        if not rank.alive:
            return
        rank.alive = False
        self.world.note(rank.agent.name, "rank ends", (rank, status))
        self.world.truth.ended(rank, status)
        group = self.groups[rank.round]
        if status != 0 and group.broken_at is None:
            group.broken_at = self.world.now
            for peer in group.ranks:
                if peer.alive:
                    peer.may_finish = self.world.rng.random() < self.unharmed
                    if self.world.rng.random() < self.victims:
                        self.world.after(0.05 + self.world.rng.random() * 4, lambda r=peer: self._victim(r))
        if status == 0 and any(peer.alive for peer in group.ranks):
            self.world.injector.some_have_finished()
        rank.agent.guardian_of(rank).ended(rank, status)

    def _victim(self, rank: Rank) -> None:
        if not rank.killed and not rank.may_finish:
            self.end(rank, 1)
