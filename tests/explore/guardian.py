"""The guardian of a node: orders and kills that it has not come to yet, its fence, its words to the agent.

What may start and what must die is decided by the product's ``Fence``; its clock stands at 0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from remuster.agent import node_words as words
from remuster.agent.fence import Fence
from remuster.rendezvous.records import Incarnation, Round

from . import truth
from .values import ENDING, FROZEN, LIVE, NOW, OVER, UP, Order, Rank

if TYPE_CHECKING:
    from .play import Play, Thawed


def order(play: Play, n: Thawed, action: words.Start) -> None:
    """Send the guardian a start."""
    job, inc = action.job, action.roster.members[action.place].inc
    point = job.resume
    if play.rules.newest_at_start and point is not None:
        point = point._replace(step=play.ledger.checkpoint)
    start = (point.step if point else None, job.master, tuple(m.who for m in action.roster.members))
    n.order = Order(action.round, inc, action.place, start, n.fence.known, len(n.kills))


def fork(play: Play, i: int) -> None:
    """Let the guardian come to a start."""
    n = play.node(i)
    order, n.order = n.order, None
    assert order is not None
    refusal = "ranks are alive" if n.rank else play.rules.may_start(n.fence, order.inc, 0.0)
    if refusal is not None:
        play.note(lambda: f"{play.names[i]}: its guardian refuses: {refusal}")
        say(play, i, words.Refused(NOW, Round(order.round), "refused"))
        return
    n.rank = Rank(order.round, order.inc, True, order.start)
    truth.started(play, i, order)
    say(play, i, words.Started(NOW, Round(order.round)))


def terminate(play: Play, n: Thawed, number: int) -> None:
    """Ask the ranks to end."""
    if n.order is not None:  # not handed over yet: it never will be
        n.order = None if play.rules.kill_cancels else n.order
        n.kills += (number,)
    elif n.rank is not None and n.rank.alive and play.scene.setting.grace:
        n.rank = n.rank._replace(asked=True)


def end(play: Play, i: int, status: int) -> None:
    """Let the node's ranks end by themselves."""
    n = play.node(i)
    rank = n.rank
    assert rank is not None
    n.rank = rank._replace(alive=False)
    if status == 0:
        mark = (rank.round, play.names[i], rank.inc)
        play.ledger = play.ledger._replace(finished=tuple(sorted({*play.ledger.finished, mark})))
    else:
        hurt(play, rank)
    say(play, i, words.Exited(NOW, Round(rank.round), 0, status, 1))


def kill(play: Play, i: int) -> None:
    """Let the guardian kill all there is, drop starts that are on their way, and prove it."""
    n = play.node(i)
    owed, n.kills = n.kills, ()
    later = n.order is not None and 0 < n.order.behind == len(owed)
    slay(play, n, orders=not later)
    if n.order is not None:
        n.order = n.order._replace(behind=0)
    for number in owed:
        say(play, i, words.NothingLeft(NOW, Round(number)))
    if n.process == ENDING:
        play.gone(i, n)


def slay(play: Play, n: Thawed, *, orders: bool = True) -> None:
    """Kill and reap the node's ranks."""
    if orders and play.rules.kill_cancels:
        n.order = None
    hurt(play, n.rank)
    n.rank = None


def lease_told(play: Play, i: int, n: Thawed) -> None:
    """Tell the guardian of a new lease: another incarnation never inherits ranks."""
    before = n.fence
    n.fence = before.lease(n.lease, LIVE)
    if before.inc != n.lease and n.rank is not None:
        number = n.rank.round
        slay(play, n)
        say(play, i, words.FencedHere(NOW, Round(number), Incarnation(before.inc)))


def deadline(play: Play, i: int) -> None:
    """Let the deadline of the node's lease pass: its guardian kills all, and latches."""
    n = play.node(i)
    n.ahead = False
    if n.process != FROZEN:
        fence(play, i)


def fence(play: Play, i: int) -> None:
    """Let the guardian look at its clock after the deadline."""
    n = play.node(i)
    if not play.rules.fences or n.fence.inc != n.lease:
        return
    n.fence = Fence(n.fence.inc, OVER, n.fence.latched, n.fence.known)
    if not n.fence.due(0.0):
        return
    n.fence = n.fence.fenced()
    number = n.rank.round if n.rank else 0
    slay(play, n, orders=False)
    say(play, i, words.FencedHere(NOW, Round(number), Incarnation(n.fence.inc)))


def say(play: Play, i: int, word: words.Event) -> None:
    """Let the agent hear a word of its guardian, in a while."""
    n = play.node(i)
    n.words += (play.m.value(word),)
    n.behind = n.behind or n.process != UP


def hurt(play: Play, rank: Rank | None) -> None:
    """Note that ranks have ended otherwise than well: their peers may fail as well."""
    if rank is not None and rank.alive:
        play.ledger = play.ledger._replace(hurt=max(play.ledger.hurt, rank.round))
