"""The verdict: which node, rank and GPU ended a round, why, and who only suffered from it. A pure function.

``judge`` is called by the leading agent with all evidence of a round; ``policy`` answers what to do, the report shows
it. Hardware that failed near the first end beats what programs say, explicit errors beat timeouts, a lost node beats
the cries of its peers, ranks that we stopped are not failures, exit status 0 never is, whatever else was seen. Facts of
one node are ordered by its own clock, nodes by the store's revision.

The causes themselves are found in ``reading.py`` (a rank's own words and status), ``causes_node.py``, ``causes_gpu.py``
and ``causes_host.py``; ``waiting.py`` names whom the others waited for. A node that was asked to go is no failure and
has no class in the list: ``leave``, family none. Nor is a round that was ended so that a node can join: ``admit``; nor
one that ended because the launch had been given notice of a stop: ``notice``.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from . import causes_gpu, causes_host, exits, words
from .causes import CERTAIN, GUESS, LIKELY, Cause, Proof, Verdict, own_exit, short
from .causes_node import ADMIT, LEAVE, NOTICE, admitted, alarms, left, node_causes, scheduled
from .classes import find
from .evidence import NodeEvidence, RankExit, RoundEvidence
from .fingerprint import fingerprint
from .observed import NO_DRIVER, Early, HookWord, Lacked, SchedulerWord, Sighting, Silence, Slow
from .own_signatures import NONE, OwnSignatures, xids_of
from .placed import DOUBTFUL
from .reading import Reading, Standing, read
from .scene import Scene, scene_of, with_sightings
from .waiting import LEFT, Laggard, laggard, left_early
from .xid import Xid

__all__ = ["ADMIT", "LEAVE", "NOTICE", "PLANNED", "Proof", "Verdict", "after_notice", "judge"]

PLANNED = frozenset({LEAVE, ADMIT, NOTICE})
SIGABRT = 6
READ_RANKS = 256  # ends whose text is read, by order of arrival: bounds the time of one judgement
NOTES = 8
PROOFS = 8
# Classes that mean something else when only one node of several shows them: its image or its mounts differ.
ONE_NODE = frozenset({
    "user_import", "user_data_missing", "user_permission", "env_library_mismatch", "network_config",
})  # fmt: skip
NO_PROGRAM = (126, 127)  # of a shell: the program cannot be run, is not there
_SURE = {Standing.SCHEDULER: CERTAIN, Standing.DEVICE: CERTAIN, Standing.EXPLICIT: CERTAIN, Standing.NODE: CERTAIN,
         Standing.CRASHED: LIKELY, Standing.NETWORK: LIKELY, Standing.DISTURBED: LIKELY}  # fmt: skip


def judge(evidence: RoundEvidence, own: OwnSignatures = NONE) -> Verdict:
    """Return the verdict on a round. Never raises; the order of ``evidence.nodes`` does not matter.

    ``own`` is what the site has said of lines and XIDs of its own.
    """
    nodes = sorted(evidence.nodes, key=lambda node: (node.order, node.node))
    readings, xids = _in_order(evidence, nodes, own), xids_of(own)
    scenes = _scenes(nodes, readings)
    if evidence.admitted:  # whatever happened then, it was that which ended the round
        return _complete(admitted(evidence.admitted), readings, nodes, scenes, xids)
    orders = {node.node: node.order for node in nodes}
    causes = [_from_reading(orders[r.node], r) for r in readings if r.standing < Standing.INNOCENT]
    causes += node_causes(evidence, nodes)
    if causes or not _all_well(nodes, readings):
        causes += scheduled(nodes)
        for scene in scenes:
            causes += [*causes_gpu.gpu_causes(scene, xids), *causes_host.host_causes(scene)]
        if all(cause.standing > Standing.WAITED for cause in causes):  # an alarm only reports what others did
            causes += alarms(nodes)
    leave = left(nodes)
    root = min(causes, key=lambda cause: cause.key, default=None)
    if leave is not None and not _beats_leave(root, leave):
        root = leave
    if root is None:
        return replace(_nothing(evidence, readings), lacked=_lacked(nodes))
    if root.standing in (Standing.WAITED, Standing.CRIED):
        blocked = [b for scene in scenes for b in causes_host.blocked(scene)]
        found = laggard(evidence, readings, blocked) if root.standing is Standing.WAITED else None
        if found is None or found.confidence == GUESS:
            found = left_early(readings) or found
        root = _named(root, found) if found else _after_an_early_end(readings, root)
    verdict = _with_rank(evidence, readings, _one_node_only(evidence, readings, root))
    verdict = causes_host.not_of_memory(verdict, scenes)
    return _complete(verdict, readings, nodes, scenes, xids)


def _all_well(nodes: Sequence[NodeEvidence], readings: Sequence[Reading]) -> bool:
    """Every rank exited 0 and nobody gave an alarm: nothing that was seen can have been the end of it."""
    alarm = any(isinstance(fact, Early) for node in nodes for fact in node.facts)
    return bool(readings) and all(r.exit.status == 0 for r in readings) and not alarm


def _in_order(evidence: RoundEvidence, nodes: Sequence[NodeEvidence], own: OwnSignatures) -> list[Reading]:
    """Read all ends. What a rank raised after its own wait had run out counts only where no other explains the wait.

    It does not where another rank is known to have been waited for, nor where all who waited raised something then.
    """
    readings = _readings(nodes, own)
    late = {r.exit.rank for r in readings if r.late}
    if not late:
        return readings
    waited = _readings(nodes, own, late=False)
    found = laggard(evidence, waited)
    known = found is not None and found.confidence != GUESS and found.rank not in late
    alike = len(late) > 1 and not any(r.standing is Standing.WAITED for r in readings)
    return waited if known or alike else readings


def _readings(nodes: Sequence[NodeEvidence], own: OwnSignatures, late: bool = True) -> list[Reading]:
    ends: list[tuple[NodeEvidence, RankExit]] = []
    for node in nodes:
        sightings = [fact for fact in node.facts if isinstance(fact, Sighting)]
        exits_here = (fact for fact in node.facts if isinstance(fact, RankExit))
        ends += ((node, with_sightings(end, sightings) if sightings else end) for end in exits_here)
    ends.sort(key=lambda pair: (pair[0].order, pair[1].at_s, pair[0].node, pair[1].rank))
    read_ends = enumerate(ends)
    return _aborted(
        [read(n.node, end, own, late) if i < READ_RANKS else _unread(n.node, end) for i, (n, end) in read_ends]
    )


def _aborted(readings: list[Reading]) -> list[Reading]:
    """Where ranks say that their wait ran out, one that aborted without a word did so for the same reason.

    The watchdog that tells of it ends its process so. Had the rank died first, the others had not waited so long.
    """
    if not any(r.standing is Standing.WAITED for r in readings):
        return readings
    return [
        replace(r, standing=Standing.CRIED)
        if r.standing is Standing.BARE and not r.weight and exits.signal_of(r.exit.status) == SIGABRT
        else r
        for r in readings
    ]


def _unread(node: str, end: RankExit) -> Reading:
    """One end too many: it came after hundreds of others and cannot be the first cause."""
    reading = read(node, end._replace(tail=(), error=None))
    return replace(reading, standing=max(reading.standing, Standing.CRIED))


def _scenes(nodes: Sequence[NodeEvidence], readings: Sequence[Reading]) -> list[Scene]:
    by_node: dict[str, list[Reading]] = defaultdict(list)
    for r in readings:
        by_node[r.node].append(r)
    return [scene_of(node, by_node[node.node]) for node in nodes]


def _from_reading(order: int, r: Reading) -> Cause:
    who = f"rank {r.exit.rank} on {r.node}"
    shown = f": {short(r.line)}" if r.line else ""
    cls = find(r.cls)
    sure = _SURE.get(r.standing, GUESS) if cls.name != "killed_unknown" else GUESS
    if sure == CERTAIN and r.exception in DOUBTFUL and cls.name in ("user_data_error", "user_args"):
        sure = LIKELY  # by the names of the place where it was raised
    if r.line and r.own:
        proof = Proof(r.own.name, who, short(r.line))
        shown = f"{shown} ({r.own.name})"
    elif r.line:
        proof = Proof("last lines", who, short(r.line))
    else:
        proof = Proof("exit status", who, f"{exits.words(r.exit.status)}, and no words")
    verdict = Verdict(
        cls.name,
        cls.family,
        r.node,
        r.exit.rank,
        r.exit.local_rank,
        r.exit.status,
        f"{who} ended with {exits.words(r.exit.status)}: {words.cause(cls.name)}{shown}",
        r.line,
        r.exception,
        own_exit(r),
        fingerprint(cls.name, r.exception or exits.words(r.exit.status), r.frame, r.line or r.crumb),
        node_fault=cls.always_node_fault,
        confidence=sure,
        evidence=(proof,),
    )
    return Cause(r.standing, (order, r.exit.at_s, r.exit.rank), verdict, r, r.exit.stopping)


def after_notice(evidence: RoundEvidence, node: str, done: bool, own: OwnSignatures = NONE) -> Verdict:
    """Return the verdict on a round of a launch that ``node`` was given notice for; ``done``: every rank exited 0."""
    verdict = Verdict("success", "none") if done else judge(evidence, own)
    if verdict.cls not in PLANNED and verdict.cls != "success":
        return verdict
    why = f"{short(node)} was given notice of a stop"
    why = f"{why}, and every rank exited 0" if verdict.cls == "success" else why
    return replace(verdict, cls=NOTICE, node=node, sentence=why, evidence=(Proof("scheduler", node, "notice"),))


def _beats_leave(root: Cause | None, leave: Cause) -> bool:
    """A failure decides over a leave only when it named its cause, undisturbed, and its word came first."""
    if root is None or root.standing > Standing.EXPLICIT or root.disturbed:
        return False
    return root.order[0] < leave.order[0] or root.verdict.node == leave.verdict.node


def _named(root: Cause, found: Laggard) -> Cause:
    """All that the ranks say is that they waited, or lost somebody: name the one that they missed."""
    r, cls, how = found.reading, find("rank_hang"), "left early" if found.source == LEFT else "hung"
    if root.verdict.cls == "collective_init_timeout" and found.source != LEFT:
        cls, how = find(root.verdict.cls), "did not come"
    verdict = replace(
        root.verdict, cls=cls.name, family=cls.family, node=found.node, rank=found.rank,
        local_rank=r.exit.local_rank if r else -1, own_exit=False, status=r.exit.status if r else 0,
        sentence=f"rank {found.rank} on {found.node} {how}: {found.why}", node_fault=cls.always_node_fault,
        fingerprint=fingerprint(cls.name, "", r.frame if r else "", root.verdict.line), confidence=found.confidence,
        evidence=(Proof(found.source, f"rank {found.rank} on {found.node}", found.why), *root.verdict.evidence),
    )  # fmt: skip
    return replace(root, verdict=verdict)


def _with_rank(evidence: RoundEvidence, readings: list[Reading], verdict: Verdict) -> Verdict:
    """A GPU of which nobody knows whose it is: of the rank on its node that all others waited for."""
    if not verdict.gpu or verdict.rank >= 0:
        return verdict
    found = laggard(evidence, readings)
    if found is None or found.node != verdict.node or found.reading is None:
        return verdict
    end = found.reading.exit
    sentence = verdict.sentence.replace(f"{verdict.node}: ", f"rank {found.rank} on {verdict.node}: ", 1)
    proof = Proof(found.source, f"rank {found.rank} on {found.node}", found.why)
    return replace(
        verdict, rank=found.rank, local_rank=end.local_rank, status=end.status, sentence=sentence, confidence=LIKELY,
        evidence=(*verdict.evidence, proof),
    )  # fmt: skip


def _after_an_early_end(readings: list[Reading], root: Cause) -> Cause:
    """Nobody else is left to wait for, but somebody had gone: say so."""
    gone = [r for r in readings if r.exit.status == 0 and not r.exit.stopping]
    if not gone:
        return root
    who = f"rank {gone[0].exit.rank} on {gone[0].node}"
    proof = Proof("exit status", who, "exit status 0 while others waited")
    sentence = short(f"{root.verdict.sentence} ({who} had exited 0 before)", 600)
    return replace(root, verdict=replace(root.verdict, sentence=sentence, evidence=(*root.verdict.evidence, proof)))


def _one_node_only(evidence: RoundEvidence, readings: list[Reading], root: Cause) -> Verdict:
    """Note a node fault when a class of ``ONE_NODE`` shows on one node, and ranks of another node got on without."""
    verdict = root.verdict
    missing = verdict.cls == "user_args" and verdict.status in NO_PROGRAM
    if root.reading is None or not (missing or verdict.cls in ONE_NODE) or len(evidence.members) < 2:
        return verdict
    with_it = {r.node for r in readings if r.cls == verdict.cls}
    others = {r.node for r in readings} - with_it
    if len(with_it) > 1 or not others:
        return verdict
    if missing:
        cls = find("node_mount_missing")
        mark = fingerprint(cls.name, "", "", verdict.line or exits.words(verdict.status))
        verdict = replace(verdict, cls=cls.name, family=cls.family, fingerprint=mark)
    note = f"{verdict.sentence} (seen only on {verdict.node}: its image or mounts may differ)"
    return replace(verdict, node_fault=True, compared=True, confidence=LIKELY, sentence=note)


def _complete(
    verdict: Verdict,
    readings: list[Reading],
    nodes: Sequence[NodeEvidence],
    scenes: Sequence[Scene],
    xids: Mapping[int, Xid] | None,
) -> Verdict:
    others = [r for r in readings if (r.node, r.exit.rank) != (verdict.node, verdict.rank)]
    failed = [r for r in others if r.standing < Standing.INNOCENT]
    victims = [r for r in failed if r.standing > Standing.EXPLICIT and (r.weight or r.cls != verdict.cls)]
    stopped = sum(1 for r in others if r.exit.stopping and r.standing is Standing.INNOCENT)
    unused = [f"rank {r.exit.rank} on {r.node}: {exits.words(r.exit.status)}, {r.cls}" for r in failed]
    counts = [f"{stopped} ranks ended because they were stopped"] if stopped else []
    if len(readings) > READ_RANKS:
        counts.append(f"the last lines of {len(readings) - READ_RANKS} ranks were not read")
    if silent := sum(1 for node in nodes if not node.facts):
        counts.append(f"{silent} nodes had nothing to say")
    evidence = (*verdict.evidence, *_around(verdict, nodes, scenes))[:PROOFS]
    used = {proof.text for proof in evidence}
    seen = [note for note in _seen(nodes, scenes, xids) if not any(text and text in note for text in used)]
    return replace(
        verdict,
        victims=tuple((r.node, r.exit.rank, r.exit.status) for r in victims),
        evidence=evidence,
        unused=(*_bounded(unused), *counts, *_bounded(seen)),
        lacked=_lacked(nodes),
    )


def _around(verdict: Verdict, nodes: Sequence[NodeEvidence], scenes: Sequence[Scene]) -> list[Proof]:
    """Return what goes with any cause: why the round was ended early, and what the kernel says of a crash."""
    found = [
        Proof("alarm", node.node, short(fact.why)) for node in nodes for fact in node.facts if isinstance(fact, Early)
    ]
    crash = (causes_host.crashed(scene, verdict.rank) for scene in scenes if scene.node == verdict.node)
    found = [*(proof for proof in crash if proof), *found[:2]]
    return [proof for proof in found if proof not in verdict.evidence]


def _seen(nodes: Sequence[NodeEvidence], scenes: Sequence[Scene], xids: Mapping[int, Xid] | None) -> list[str]:
    found: list[str] = []
    for scene in scenes:
        found += [*causes_gpu.not_deciding(scene, xids), *causes_host.not_deciding(scene)]
    for node in nodes:
        for fact in node.facts:
            match fact:
                case Slow(rank, ratio):
                    found.append(f"rank {rank} on {node.node}: its steps took {ratio:.1f} times the median")
                case Silence(rank, _, silent_s):
                    found.append(f"rank {rank} on {node.node}: silent for {silent_s:.0f} s")
                case SchedulerWord(text):
                    found.append(f"scheduler on {node.node}: {short(text)}")
                case HookWord(text):
                    found.append(f"resume hook on {node.node}: {short(text)}")
                case _:
                    pass
    return list(dict.fromkeys(found))


def _lacked(nodes: Iterable[NodeEvidence]) -> tuple[str, ...]:
    """Return the sources that had nothing to say, each reason once."""
    told = (
        (fact, node.node) for node in nodes for fact in node.facts if isinstance(fact, Lacked) and fact != NO_DRIVER
    )
    missing = [(fact.source, fact.why, node) for fact, node in told]
    counts = Counter((source, why) for source, why, _ in missing)
    first = {(source, why): node for source, why, node in reversed(missing)}
    return _bounded([
        f"{source} on {first[source, why]}{f' and {n - 1} more nodes' if n > 1 else ''}: {short(why)}"
        for (source, why), n in counts.items()
    ])  # fmt: skip


def _nothing(evidence: RoundEvidence, readings: list[Reading]) -> Verdict:
    if readings and all(r.exit.status == 0 for r in readings):
        return Verdict("success", "none", sentence="all ranks ended with exit status 0")
    cls = find("exit_unknown")
    sentence = f"round {evidence.round} ended, and no evidence says why"
    mark = fingerprint(cls.name, "", "", "")
    return Verdict(cls.name, cls.family, status=1, sentence=sentence, fingerprint=mark, confidence=GUESS)


def _bounded(notes: list[str]) -> tuple[str, ...]:
    more = len(notes) - NOTES
    return (*notes[:NOTES], f"and {more} more") if more > 0 else tuple(notes)
