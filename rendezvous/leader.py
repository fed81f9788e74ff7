"""The job machine: what the leading agent decides. Pure: ``step(state, event) -> (state, actions)``.

The leader compares what stands in the store with what the phase asks for, on every change and on its first look, and
keeps nothing that a successor would miss (only how long it has waited). Every decision is one transaction guarded by
its own lease, its token and the revision of ``job`` that it acted on; while one is under way no other is made.
``agent/leading.py`` carries out the actions; the simulator does so in virtual time.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

from . import writes
from .admission import after, held_back, muster, pardon_s
from .agreement import Agreement, apart_words, nothing_for_all
from .closed_roster import awaited, reunite, way_out
from .errors import BadRecord
from .gate import after_close, after_verdict, aside, owing, unfit
from .leader_admit import COMES_AND_GOES, admissible, admit, seen_in
from .leader_reentry import proof_seen, prove, recovered, said_together
from .leader_resume import settle
from .leader_state import Decision, Leader, submit
from .leader_words import (
    Abandon,
    Barred,
    Changed,
    CheckpointSeen,
    Conclude,
    Concluded,
    Depose,
    Elected,
    Event,
    ProofSeen,
    Resumed,
    Stamps,
    Tick,
    Wake,
    Wrote,
)
from .membership import NAMED, Candidate, Order, lack, listed, returned, vacant
from .records import Cause, Member, NodeId, Outcome, Phase, Roster, Round, StoreLoss, unusable
from .replacing import replace
from .snapshot import Snapshot, Who, candidates
from .suspects import after_round, none_older
from .writes import Kind, Seen

TOO_FEW = 75  # exit code: too few nodes, worth a requeue
NOTICED = 75  # and so is a job whose time was up
NEVER_FORMED = 69  # the group could not be formed
NO_ANSWER = "the store did not answer; trying again"
TRY_AGAIN = "something has changed as the round was about to begin; looking again"
AGAIN_S = 0.2  # pause before a write of unknown outcome is tried again


def resumed_bytes(resumed: Resumed, world: int) -> bytes:
    """Return the history entry of a round of so many ranks: where it resumed and what was refused, bounded."""
    point = resumed.point
    refused = [list(pair) for pair in resumed.refused[:32]]
    entry: dict[str, object] = {
        "path": point.path,
        "step": point.step,
        "format": point.format,
        "verified": point.verified,
    }
    entry |= {"name": point.name, "refused": refused, "wall": resumed.wall, "world": world}
    return json.dumps(entry).encode()


def step(s: Leader, event: Event) -> Decision:
    """Take one event; return the new state and what to do."""
    match event:
        case Elected(token=token, found=found):
            s = replace(s, token=token, view=Snapshot.read(s.view.keys, found), busy=-1)
        case Changed(batch=batch):
            s = replace(s, view=s.view.after(batch))
        case Concluded(round=n):
            s = replace(s, concluded=event, asked=None if s.asked == ("judge", n) else s.asked)
            if event.barred:
                s = replace(s, barred=s.barred | {event.barred})
        case CheckpointSeen():
            s = replace(s, look=seen_in(s.look, event))
        case ProofSeen():
            s = replace(s, proof=proof_seen(s.proof, event))
        case Barred(hosts=hosts):
            s = replace(s, barred=hosts)
        case Resumed(round=n):
            s = replace(s, resumed=event, asked=None if s.asked == ("resume", n) else s.asked)
        case Wrote(kind=kind, result=result):
            # Applied, or refused because the world has moved on: the watch will show it. Unknown: try again soon;
            # the guards make a second application impossible.
            moved = kind is Kind.CLOSE and result is not None and not result.succeeded  # perhaps a member's key alone
            if (result is None or moved) and kind is s.writing:
                return replace(s, busy=-1), (Wake(event.at + AGAIN_S, TRY_AGAIN if moved else NO_ANSWER),)
            return s, ()
        case Tick():
            pass
    try:
        return _decide(s, event.at)
    except BadRecord as error:
        return replace(s, token=0), (Abandon(unusable(error)),)


def _decide(s: Leader, at: float) -> Decision:
    if not s.token:
        return s, ()
    if s.view.token() != s.token:
        return replace(s, token=0), (Depose("the leader key is no longer this agent's"),)
    mine = s.view.tree.get(s.view.keys.node(s.own.node))
    if mine is None or mine.lease != s.own.inc:  # it goes together with the leader key, or somebody has been at it
        raise BadRecord(f"{s.view.keys.node(s.own.node)} does not hang on the lease of this agent, which leads")
    seen = s.view.job()
    if seen is None or seen.mod == s.busy:
        return s, ()
    if s.phase != (seen.job.phase, seen.job.round):
        s = replace(
            s, phase=(seen.job.phase, seen.job.round), since=at, enough_since=None, stamps=_stamp(s.stamps, seen, at)
        )
        if seen.job.phase is Phase.FORMING:  # who was left out of a round stays out of it while it runs
            s = replace(s, agreement=Agreement())
    s = replace(s, busy=-1)
    match seen.job.phase:
        case Phase.RUNNING:
            return _running(s, seen, at)
        case Phase.STOPPING:
            return _stopping(s, seen, at)
        case Phase.FORMING:
            return _forming(s, seen, at)
        case Phase.DONE | Phase.FAILED:
            return s, ()


def _stamp(stamps: Stamps, seen: Seen, at: float) -> Stamps:
    match seen.job.phase:
        case Phase.FORMING:
            return Stamps(forming=at, failed=stamps.stopping)
        case Phase.RUNNING:
            return stamps._replace(formed=at)
        case Phase.STOPPING:
            return stamps._replace(stopping=at)
        case _:
            return stamps


def _conclude(s: Leader, seen: Seen, roster: Roster, lost: tuple[NodeId, ...], done: bool) -> Decision:
    n = seen.job.round
    if s.asked == ("judge", n):
        return s, ()
    words = s.view.reports("evidence", n)
    evidence = tuple((m.node, words[m.who]) for m in roster.members if m.who in words)
    started = s.view.reports("started", n)
    why = f"round {n} ended" if not done else f"round {n} is done"
    ask = Conclude(
        n,
        seen.job,
        roster,
        evidence,
        lost,
        all(m.who in started for m in roster.members),
        done,
        s.view.history(),
        s.stamps,
        why,
        said_together(s, roster),
        s.proof.step if s.proof is not None and s.proof.round == n else None,
    )
    return replace(s, asked=("judge", n)), (ask,)


def _members(s: Leader, seen: Seen) -> Roster:
    """Return the roster of a round that has formed."""
    roster = s.view.roster(seen.job)
    assert roster is not None  # the record says that it has
    return roster


def _running(s: Leader, seen: Seen, at: float) -> Decision:
    n, roster = seen.job.round, _members(s, seen)
    if s.stamps.started is None and set(s.view.reports("started", n)) >= {m.who for m in roster.members}:
        s = replace(s, stamps=s.stamps._replace(started=at))
    finished: set[Who] = set(s.view.reports("finished", n))
    gone = set(s.view.absent(roster))
    lost = [m for m in roster.members if m.node in gone and m.who not in finished]
    if lost:
        cause = Cause("lost", lost[0].node, lost[0].inc)
        return submit(s, seen, writes.lost(s.view.keys, s.own, s.token, seen, cause))
    if any(m.who not in finished for m in roster.members):
        s, proving = prove(s, seen, roster)
        s, then = (s, ()) if finished or seen.job.notice else admit(s, seen, roster, at)
        return s, (*proving, *then)
    if s.concluded is None or s.concluded.round != n or not s.concluded.done:
        return _conclude(s, seen, roster, (), done=True)
    c = s.concluded
    if c.outcome.exit_code:  # it was given notice: what exited 0 has saved, and is not done
        return submit(s, seen, writes.fail(s.view.keys, s.own, s.token, seen, c.outcome, c.record))
    over = roster._replace(store_loss=StoreLoss.FENCE)  # no rank of it can be held any more
    return submit(s, seen, writes.done(s.view.keys, s.own, s.token, seen, c.outcome, c.record, over))


def _stopping(s: Leader, seen: Seen, at: float) -> Decision:
    n, roster = seen.job.round, _members(s, seen)
    nodes = s.view.nodes()
    gone = set(s.view.absent(roster))
    slow = [m.node for m in roster.members if m.node not in gone and nodes[m.node].record.ready <= n]
    until = s.since + s.limits.gather_s + s.limits.grace_s
    if slow and at < until:
        return s, (Wake(until, f"round {n} is being stopped; waiting for {', '.join(slow)}"),)
    if s.stamps.gathered is None or s.stamps.gathered < s.since:
        s = replace(s, stamps=s.stamps._replace(gathered=at))
    if s.concluded is None or s.concluded.round != n or s.concluded.done:
        words = s.view.reports("evidence", n)
        finished = s.view.reports("finished", n)
        lost = tuple(m.node for m in roster.members if m.node in gone and m.who not in words and m.who not in finished)
        return _conclude(s, seen, roster, lost, done=False)
    c, keys = s.concluded, s.view.keys
    lasted = s.since - s.stamps.formed if s.stamps.formed is not None else 0.0
    job = after_verdict(seen.job, c.blame, roster, lasted)
    job = after_round(job, n, c.suspect, recovered(s, n))
    seen = seen._replace(job=replace(job, pause=c.pause_s if c.retry else 0))
    if c.retry:
        flaps = after(seen.job.flaps, seen.job.cause, roster, lasted)
        return submit(s, seen, writes.advance(keys, s.own, s.token, seen, c.charge, flaps, c.record))
    return submit(s, seen, writes.fail(keys, s.own, s.token, seen, c.outcome, c.record))


def _forming(s: Leader, seen: Seen, at: float) -> Decision:
    job = seen.job
    n = job.round
    nodes = s.view.nodes()
    last = s.view.roster(job)
    if last is not None:
        gone = set(s.view.absent(last))
        alive = [m.node for m in last.members if m.node not in gone and nodes[m.node].record.ready < n]
        if alive:  # their ranks of an earlier round may live: nobody replaces them before they answer or are gone
            return _wait_for(s, n, ", ".join(alive), at)
    if job.notice:
        why = f"{job.notice} was given notice of a stop before round {n} had begun"
        return submit(s, seen, writes.fail(s.view.keys, s.own, s.token, seen, Outcome(NOTICED, why), None))
    begins = s.since + job.pause
    if at < begins:  # before all other waits, which begin after it
        return s, (Wake(begins, f"round {n}: a pause of {job.pause} s after what ended the last one"),)
    again = job.round > job.first
    nodes = admissible(s)
    ready, missing = reunite(last, candidates(nodes, n), job)
    s = replace(s, owing=owing(s.owing, job, nodes, at))
    ends = {who: since + s.limits.check_s for who, _, since in s.owing}
    checks = {who: end for who, end in ends.items() if at < end}
    ready = tuple(c for c in ready if c.member.who not in checks)
    size, held = (job.min_nodes, job.max_nodes), held_back(job.flaps, ready)
    held += tuple(c for c in aside(job, ready) if c not in held)
    roster = muster(last if again else None, ready, size, s.limits.order, held)._replace(round=n)
    if last is not None and not again and s.limits.order is Order.STICKY:
        roster = returned(last, roster)
    count = len(roster.members)
    places = vacant(roster, job.min_nodes, job.max_nodes)
    if count < job.min_nodes or places or missing:
        s = replace(s, enough_since=None)
        if (outcome := nothing_for_all(s.agreement, s.view.here())) is not None:
            return submit(s, seen, writes.fail(s.view.keys, s.own, s.token, seen, outcome, None))
        until = begins + s.limits.join_timeout_s + (s.limits.check_s if checks else 0.0)
        if at >= until:
            return _too_few(s, seen, roster, places, missing)
        ready_now = f"{count} of {job.min_nodes} nodes are ready"
        why = "; ".join(filter(None, (ready_now, awaited(missing), lack(roster, places), _kept_out(s, checks))))
        return s, (Wake(min((until, *checks.values())), f"round {n}: {why}; waiting for more"),)
    since = at if s.enough_since is None else s.enough_since
    s = replace(s, enough_since=since)
    known = again and len(ready) == len(nodes)
    until = since + s.limits.last_call_s
    if count < job.max_nodes and not known and at < until:
        why = f"round {n}: {count} of {job.min_nodes}:{job.max_nodes} nodes are ready; last call"
        return s, (Wake(min((until, *checks.values())), why),)
    return _close(s, seen, roster, at)


def _kept_out(s: Leader, checks: Iterable[Who]) -> str:
    """Say which waiting nodes are not chosen: in quarantine, being checked, or unfit."""
    nodes = s.view.nodes()
    hosts = sorted({standby.record.host for standby in nodes.values()} & s.barred)
    names = sorted(node[:64] for node, _ in checks)
    barred = f"in quarantine: {', '.join(hosts[:NAMED])}" if hosts else ""
    waits = f"{listed(names)} was blamed and is being checked" if names else ""
    return "; ".join(filter(None, (barred, waits, unfit(nodes), apart_words(s.agreement))))


def _close(s: Leader, seen: Seen, roster: Roster, at: float) -> Decision:
    n, keys = seen.job.round, s.view.keys
    s, decision = settle(s, seen, roster, at)
    if decision is not None:
        return decision
    assert s.resumed is not None  # it stands
    if not s.resumed.point.path and (why := none_older(seen.job)):
        return submit(s, seen, writes.fail(keys, s.own, s.token, seen, Outcome(1, why, "ckpt_corrupt"), None))
    roster = roster._replace(store_loss=seen.job.store_loss)
    new = replace(
        seen.job, phase=Phase.RUNNING, formed=n, resume=s.resumed.point, master="", cause=None, pause=0, asked=None
    )
    new = after_close(new, roster)
    unsaid = {node for (node, _), *_ in s.owing}  # let pass: unless they have said in this moment that they are unfit
    as_seen = tuple(s.view.tree[keys.node(m.node)] for m in roster.members if m.node in unsaid)
    write = writes.close(keys, s.own, s.token, seen, new, roster, resumed_bytes(s.resumed, roster.world_size), as_seen)
    held = [m.node[:64] for m in roster.spares if pardon_s(seen.job.flaps, m)]
    if held:
        write = write._replace(reason=f"{write.reason}; {listed(held)} stands by: {COMES_AND_GOES}")
    if apart := [c.member.node[:64] for c in aside(new, (Candidate(m, 0) for m in roster.spares))]:
        write = write._replace(reason=f"{write.reason}; {listed(apart)} stands aside: a failure was laid on it")
    return submit(s, seen, write)


def _wait_for(s: Leader, n: Round, alive: str, at: float) -> Decision:
    until = s.since + s.limits.stop_s
    if at < until:
        return s, (Wake(until, f"round {n}: waiting for {alive} to stop"),)
    kept = f"kept the lease for {s.limits.stop_s:g} s and did not stop"
    why = f"round {n}: {alive} {kept}; see to it there, then start again"
    return replace(s, token=0), (Abandon(why),)


def _too_few(s: Leader, seen: Seen, roster: Roster, places: tuple[int, ...], missing: tuple[Member, ...]) -> Decision:
    job, count, left = seen.job, len(roster.members), len(roster.spares)
    code = TOO_FEW if job.round > job.first else NEVER_FORMED
    few = (
        f"only {count} of at least {job.min_nodes} nodes were ready"
        if count < job.min_nodes
        else "no round could begin"
    )
    wanted = lack(roster, places)
    sentence = f"{few} after {s.limits.join_timeout_s:g} s; {wanted or 'start more nodes'}"
    if missing:
        sentence = f"{awaited(missing)} and did not within {s.limits.join_timeout_s:g} s; {way_out(missing)}"
    elif wanted:
        sentence = f"{sentence}; start each node with a --node-rank of its own"
    elif left:
        sentence = f"{sentence} ({left} more had other numbers of ranks than those they would have replaced)"
    if kept_out := _kept_out(s, ()):
        sentence = f"{sentence}; {kept_out}{' (remuster quarantine lists and lifts)' if s.barred else ''}"
    return submit(s, seen, writes.fail(s.view.keys, s.own, s.token, seen, Outcome(code, sentence, "rdzv_lost"), None))
