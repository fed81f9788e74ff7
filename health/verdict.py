"""The verdict: which node and rank ended a round, why, and who only suffered from it. A pure function.

``judge`` is called by the leading agent with all evidence of a round; ``policy`` answers what to do, the report shows
it. Explicit errors beat timeouts, a lost node beats the cries of its peers, ranks that we stopped are not failures,
exit status 0 never is. Facts of one node are ordered by its own clock, nodes by the store's revision.

Classes for what is not a rank's end: a member without a lease is ``node_lost``. So is one fenced by its guardian: to
the job it was gone; when every member was fenced it was the store that was gone, ``rdzv_lost``. A guardian that died
was killed by somebody, and nothing says by whom: ``killed_unknown``. So was an agent that a signal from outside ended;
one that ended in another way has failed, and took its node with it. A node that was asked to go is no failure and has
no class in the list: ``leave``, family none. Nor is a round that was ended so that a node can join: ``admit``; nor
one that ended because the launch had been given notice of a stop: ``notice``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from . import exits, words
from .classes import find
from .evidence import AgentDied, Fault, Fenced, GuardianDied, Left, NodeEvidence, RankExit, RoundEvidence, StartError
from .fingerprint import fingerprint
from .reading import Reading, Standing, read
from .signatures import TYPED, match
from .waiting import laggard

LEAVE, ADMIT, NOTICE = "leave", "admit", "notice"
PLANNED = frozenset({LEAVE, ADMIT, NOTICE})
KEEPER_KILLED = 9  # of Left: nobody can ask a node to leave by SIGKILL, so it stands for the keeper's end
READ_RANKS = 256  # ends whose text is read, by order of arrival: bounds the time of one judgement
NOTES = 8
LINE, SENTENCE = 200, 500  # characters: of somebody's output in a sentence; of a sentence of our own in another
# Classes that mean something else when only one node of several shows them: its image or its mounts differ.
ONE_NODE = frozenset({
    "user_import", "user_data_missing", "user_permission", "env_library_mismatch", "network_config",
})  # fmt: skip


@dataclass(frozen=True, slots=True)
class Verdict:
    """Why a round ended. ``rank`` is -1 when no rank is the cause; ``status`` is then the code that stands for it."""

    cls: str
    family: str
    node: str = ""
    rank: int = -1
    local_rank: int = -1
    status: int = 0
    sentence: str = ""
    line: str = ""  # the deciding line
    exception: str = ""  # the type of a Python exception, '' when there was none
    own_exit: bool = False  # the root rank ended by itself: neither stopped nor killed from outside
    fingerprint: str = ""
    victims: tuple[tuple[str, int, int], ...] = ()  # (node, rank, status)
    node_fault: bool = False
    used: tuple[str, ...] = ()
    unused: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Cause:
    """A candidate for the root. Sorted by standing, disturbed ends after free ones, specific before general, order."""

    standing: Standing
    order: tuple[int, float, int]
    verdict: Verdict
    reading: Reading | None = None
    disturbed: bool = False

    @property
    def key(self) -> tuple[object, ...]:
        weight = self.reading.weight if self.reading else 100
        return (self.standing, self.disturbed, weight < TYPED - 10, self.order, self.verdict.node, self.verdict.rank)


def judge(evidence: RoundEvidence) -> Verdict:
    """Return the verdict on a round. Never raises; the order of ``evidence.nodes`` does not matter."""
    nodes = sorted(evidence.nodes, key=lambda node: (node.order, node.node))
    readings = _readings(nodes)
    causes = [_from_reading(node_order(nodes, r.node), r) for r in readings if r.standing < Standing.INNOCENT]
    causes += _without_words(evidence, nodes)
    if evidence.admitted:  # whatever happened then, it was that which ended the round
        return _complete(_admitted(evidence.admitted), readings, nodes)
    left = _left(nodes)
    root = min(causes, key=lambda cause: cause.key, default=None)
    if left is not None and not _beats_leave(root, left):
        root = left
    if root is None:
        return _nothing(evidence, readings)
    root = _waited(evidence, readings, root) if root.standing is Standing.WAITED else root
    verdict = _one_node_only(evidence, readings, root)
    return _complete(verdict, readings, nodes)


def node_order(nodes: Sequence[NodeEvidence], name: str) -> int:
    """Return the order of the node of that name."""
    return next((node.order for node in nodes if node.node == name), 0)


def _readings(nodes: list[NodeEvidence]) -> list[Reading]:
    ends = [(node, fact) for node in nodes for fact in node.facts if isinstance(fact, RankExit)]
    ends.sort(key=lambda pair: (pair[0].order, pair[1].at_s, pair[0].node, pair[1].rank))
    return [read(node.node, end) if i < READ_RANKS else _unread(node.node, end) for i, (node, end) in enumerate(ends)]


def _unread(node: str, end: RankExit) -> Reading:
    """One end too many: it came after hundreds of others and cannot be the first cause."""
    reading = read(node, end._replace(tail=(), error=None))
    return replace(reading, standing=max(reading.standing, Standing.CRIED))


def _from_reading(order: int, r: Reading) -> _Cause:
    name = f"rank {r.exit.rank} on {r.node} ended with {exits.words(r.exit.status)}"
    shown = f": {_short(r.line)}" if r.line else ""
    cls = find(r.cls)
    own = not r.exit.stopping and exits.signal_of(r.exit.status) not in exits.FROM_OUTSIDE
    verdict = Verdict(
        cls.name,
        cls.family,
        r.node,
        r.exit.rank,
        r.exit.local_rank,
        r.exit.status,
        f"{name}: {words.cause(cls.name)}{shown}",
        r.line,
        r.exception,
        own,
        fingerprint(cls.name, r.exception or exits.words(r.exit.status), r.frame, r.line or r.crumb),
        node_fault=cls.always_node_fault,
        used=(f"last lines of rank {r.exit.rank}" if r.line else f"{exits.words(r.exit.status)}, and no words",),
    )
    return _Cause(r.standing, (order, r.exit.at_s, r.exit.rank), verdict, r, r.exit.stopping)


def _without_words(evidence: RoundEvidence, nodes: list[NodeEvidence]) -> list[_Cause]:
    """Causes that are no rank's end: lost and fenced nodes, dead guardians, failed starts, an agent's own trouble."""
    members = [name for name, _ in evidence.members]
    if len(members) > 1 and set(evidence.lost) >= set(members):
        causes = [_all_lost(len(members))]
    else:
        causes = [_lost(i, name, len(evidence.lost) - 1) for i, name in enumerate(evidence.lost)]
    fenced = {node.node for node in nodes if any(isinstance(fact, Fenced) for fact in node.facts)}
    all_fenced = bool(fenced) and fenced >= set(members) - set(evidence.lost) and not evidence.lost
    for node in nodes:
        for fact in node.facts:
            match fact:
                case Fenced(at_s):
                    causes.append(_fenced(node, at_s, all_fenced))
                case GuardianDied(at_s):
                    why = f"the guardian on {node.node} was killed, and its ranks with it; nothing says by whom"
                    causes.append(_plain((node.order, at_s, 0), "killed_unknown", node.node, why, "guardian died", -9))
                case AgentDied(status):
                    causes.append(_agent(node, status))
                case StartError():
                    causes.append(_start(evidence, nodes, node, fact))
                case Fault():
                    causes.append(_fault(node, fact))
                case _:
                    pass
    return causes


def _lost(place: int, name: str, more: int) -> _Cause:
    names = f"{name} and {more} more nodes were" if more else f"{name} was"
    return _plain((-1, 0.0, place), "node_lost", name, f"{names} lost: no lease, and no word of its own", "no lease")


def _all_lost(count: int) -> _Cause:
    """What all nodes lost at once was the store: no single one of them is to blame."""
    why = f"all {count} nodes lost their leases: the store was out of reach for longer than a lease"
    cause = _plain((-1, 0.0, 0), "rdzv_lost", "", why, "no lease")
    return replace(cause, verdict=replace(cause.verdict, used=("every node: no lease",)))


def _fenced(node: NodeEvidence, at_s: float, every: bool) -> _Cause:
    who = "every node stopped its ranks" if every else f"{node.node} stopped its own ranks"
    why = "its lease might have been gone: the store was out of its reach, or the machine was suspended"
    cls = "rdzv_lost" if every else "node_lost"
    return _plain((node.order, at_s, 0), cls, node.node, f"{who}, because {why}", "fenced")


def _agent(node: NodeEvidence, status: int) -> _Cause:
    killed = status < 0 and exits.signal_of(status) in exits.FROM_OUTSIDE
    how = f"was killed by {exits.signal_name(status)}" if killed else f"ended with {exits.words(status)}"
    why = f"the agent on {node.node} {how}, and its ranks were stopped"
    cls = "killed_unknown" if killed else "node_lost"
    return _plain((node.order, 0.0, 0), cls, node.node, why, "agent died", status)


def _plain(order: tuple[int, float, int], name: str, node: str, sentence: str, used: str, status: int = 0) -> _Cause:
    cls = find(name)
    mark = fingerprint(cls.name, "", "", used)
    verdict = Verdict(cls.name, cls.family, node, status=status, sentence=sentence, fingerprint=mark,
                      node_fault=cls.always_node_fault, used=(f"{node}: {used}",))  # fmt: skip
    return _Cause(Standing.NODE, order, verdict)


def _start(evidence: RoundEvidence, nodes: list[NodeEvidence], node: NodeEvidence, fact: StartError) -> _Cause:
    name = exits.class_of_start(fact.errno)
    why = exits.errno_words(fact.errno)
    started = [n.node for n in nodes if n.node != node.node and any(isinstance(f, RankExit) for f in n.facts)]
    sentence = f"rank {fact.rank} on {node.node} could not be started: {_short(fact.program)}: {why}"
    if name == "user_args" and started:
        name, sentence = "node_mount_missing", f"{sentence} (on {started[0]} it started)"
    status = exits.status_of_start(fact.errno)
    cause = _plain((node.order, 0.0, fact.rank), name, node.node, sentence, f"start failed: {why}", status)
    mark = fingerprint(name, "", fact.program, why)
    verdict = replace(cause.verdict, rank=fact.rank, local_rank=fact.local_rank, own_exit=True, fingerprint=mark)
    return replace(cause, standing=Standing.EXPLICIT, verdict=verdict)


def _fault(node: NodeEvidence, fault: Fault) -> _Cause:
    hit = max(match(fault.what.split("\n")), key=lambda hit: hit.weight, default=None)
    name = find(fault.cls or (hit.cls if hit else "")).name
    what = _short(fault.what, SENTENCE)
    return _plain((node.order, 0.0, 0), name, node.node, f"the agent on {node.node} could not do its part: {what}",
                  f"fault: {_short(fault.what)}", 1)  # fmt: skip


def _left(nodes: list[NodeEvidence]) -> _Cause | None:
    for node in nodes:
        for fact in node.facts:
            if isinstance(fact, Left):
                by = exits.words(-fact.signal) if fact.signal else "command"
                why = f"{node.node} was asked to leave by {by}"
                if fact.signal == KEEPER_KILLED:
                    why = f"the keeper on {node.node} was killed: its agent stopped its ranks and left"
                verdict = Verdict(LEAVE, "none", node.node, sentence=why,
                                  fingerprint=fingerprint(LEAVE, "", "", ""), used=(f"{node.node}: left",))  # fmt: skip
                return _Cause(Standing.NODE, (node.order, 0.0, 0), verdict)
    return None


def after_notice(evidence: RoundEvidence, node: str, done: bool) -> Verdict:
    """Return the verdict on a round of a launch that ``node`` was given notice for; ``done``: every rank exited 0."""
    verdict = Verdict("success", "none") if done else judge(evidence)
    if verdict.cls not in PLANNED and verdict.cls != "success":
        return verdict
    why = f"{_short(node)} was given notice of a stop"
    why = f"{why}, and every rank exited 0" if verdict.cls == "success" else why
    return replace(verdict, cls=NOTICE, node=node, sentence=why, used=(f"{node}: notice",))


def _admitted(node: str) -> Verdict:
    why = f"the round was ended so that {node} can join"
    return Verdict(ADMIT, "none", node, sentence=why, used=(f"{node}: ready",))


def _beats_leave(root: _Cause | None, left: _Cause) -> bool:
    """A failure decides over a leave only when it named its cause, undisturbed, and its word came first."""
    if root is None or root.standing > Standing.EXPLICIT or root.disturbed:
        return False
    return root.order[0] < left.order[0] or root.verdict.node == left.verdict.node


def _waited(evidence: RoundEvidence, readings: list[Reading], root: _Cause) -> _Cause:
    """All that is known is that ranks waited: name the one that they waited for, if it can be known."""
    found = laggard(evidence, readings)
    if found is None:
        return root
    node, rank, why, reading = found
    cls = find("rank_hang")
    local = reading.exit.local_rank if reading else -1
    verdict = replace(
        root.verdict, cls=cls.name, family=cls.family, node=node, rank=rank, local_rank=local, own_exit=False,
        status=reading.exit.status if reading else 0, sentence=f"rank {rank} on {node} hung: {why}",
        fingerprint=fingerprint(cls.name, "", reading.frame if reading else "", root.verdict.line),
        used=(*root.verdict.used, why),
    )  # fmt: skip
    return replace(root, verdict=verdict)


def _one_node_only(evidence: RoundEvidence, readings: list[Reading], root: _Cause) -> Verdict:
    """Note a node fault when a class of ``ONE_NODE`` shows on one node, and ranks of another node got on without."""
    verdict = root.verdict
    if root.reading is None or verdict.cls not in ONE_NODE or len(evidence.members) < 2:
        return verdict
    with_it = {r.node for r in readings if r.cls == verdict.cls}
    others = {r.node for r in readings} - with_it
    if len(with_it) > 1 or not others:
        return verdict
    note = f"{verdict.sentence} (seen only on {verdict.node}: its image or mounts may differ)"
    return replace(verdict, node_fault=True, sentence=note)


def _complete(verdict: Verdict, readings: list[Reading], nodes: list[NodeEvidence]) -> Verdict:
    others = [r for r in readings if (r.node, r.exit.rank) != (verdict.node, verdict.rank)]
    failed = [r for r in others if r.standing < Standing.INNOCENT]
    victims = [r for r in failed if r.standing > Standing.EXPLICIT and (r.weight or r.cls != verdict.cls)]
    stopped = sum(1 for r in others if r.exit.stopping and r.standing is Standing.INNOCENT)
    unused = [f"rank {r.exit.rank} on {r.node}: {exits.words(r.exit.status)}, {r.cls}" for r in failed]
    if stopped:
        unused.append(f"{stopped} ranks ended because they were stopped")
    if len(readings) > READ_RANKS:
        unused.append(f"the last lines of {len(readings) - READ_RANKS} ranks were not read")
    silent = sum(1 for node in nodes if not node.facts)
    if silent:
        unused.append(f"{silent} nodes had nothing to say")
    return replace(
        verdict,
        victims=tuple((r.node, r.exit.rank, r.exit.status) for r in victims),
        unused=_bounded(unused),
    )


def _nothing(evidence: RoundEvidence, readings: list[Reading]) -> Verdict:
    if readings and all(r.exit.status == 0 for r in readings):
        return Verdict("success", "none", sentence="all ranks ended with exit status 0")
    cls = find("exit_unknown")
    sentence = f"round {evidence.round} ended, and no evidence says why"
    return Verdict(cls.name, cls.family, status=1, sentence=sentence, fingerprint=fingerprint(cls.name, "", "", ""))


def _bounded(notes: list[str]) -> tuple[str, ...]:
    more = len(notes) - NOTES
    return (*notes[:NOTES], f"and {more} more") if more > 0 else tuple(notes)


def _short(text: str, limit: int = LINE) -> str:
    text = " ".join(text.split())
    return text if len(text) <= limit else text[: limit - 1] + "…"
