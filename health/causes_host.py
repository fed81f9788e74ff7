"""Causes that lie in a node's host: memory that ran out or failed, disks, mounts, links. Pure; for ``verdict.py``.

The out-of-memory killer explains a rank that was killed, or one that lost a data worker, when it names that process,
when a counter of its cgroup rose, or when it killed such a process close to that end. A bare SIGKILL without any of
these stays unexplained. What the kernel says of disks, mounts and links decides only where ranks have nothing to say.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator, Sequence
from dataclasses import replace

from . import exits, words
from .causes import CERTAIN, LIKELY, Cause, Proof, Verdict, own_exit, short
from .causes_node import OUT_OF_MEMORY
from .classes import find
from .compare import Suspect
from .fingerprint import fingerprint
from .kernel import Kind
from .observed import FabricPort, OomKill
from .reading import Reading, Standing
from .scene import Scene, Seen

NODE = "node"  # scope of a counter: of all ranks here
AT_ONCE_S = 1.0  # after the first end that was seen: of ranks that die together any may be seen first
POOL = "BrokenProcessPool"  # concurrent.futures: a worker of it was ended from outside
_PYTHON = re.compile(r"python|pt_|torch|ray::")  # names of processes that a rank and its data workers have
_OOM_WORD = re.compile(OUT_OF_MEMORY)
_WORKER = re.compile(
    r"DataLoader worker \(pid(?:\(s\))? (\d{1,9})[^)]{0,200}\) (?:is killed by signal: Killed|exited unexp)"
)


def host_causes(scene: Scene) -> list[Cause]:
    """Return the causes that lie in the node's host."""
    return [*_out_of_memory(scene), *_bad_memory(scene), *_storage(scene), *_links(scene)]


def _out_of_memory(scene: Scene) -> Iterator[Cause]:
    kills = _kills(scene)
    for r in scene.readings:
        if r.exit.status == 0:
            continue
        worker = next((int(m[1]) for line in r.exit.tail if (m := _WORKER.search(line))), 0)
        named = next((k for k in kills if k.sign.pid and k.sign.pid in (r.exit.pid, worker)), None)
        killed = r.cls == "killed_unknown" and exits.signal_of(r.exit.status) in (0, signal.SIGKILL)
        if not (killed or named) and r.cls != "dataloader_killed" and r.exception != POOL:
            continue
        count = _counted(scene, r.exit.rank)
        if named is None and r.exit.stopping and killed and not _before_us(scene, r, count):
            continue
        # Where ranks' kills are counted and none was, it was a process of somebody else's on the same machine.
        elsewhere = bool(scene.kills) and count is None
        close = None if elsewhere else next((k for k in kills if _may_be(scene, r, k)), None)
        kill = named or close
        word = next((text for text in scene.scheduler if _OOM_WORD.search(text)), "")
        if kill is None and count is None and not word:
            continue
        alone = sum(1 for o in scene.readings if o.cls in (r.cls, "killed_unknown") and not o.exit.stopping) == 1
        sure = named is not None or (
            count is not None and (count.scope.startswith("rank ") or (count.scope == NODE and alone))
        )
        yield _memory_cause(scene, r, (kill, count, word), sure)


def _before_us(scene: Scene, r: Reading, count: OomKill | None) -> bool:
    """Whether a rank that was being stopped was killed by the kernel all the same: its own cgroup counted it, or it was
    gone at once, before a grace was over."""
    if count is None or count.scope == f"rank {r.exit.rank}":
        return count is not None
    return count.scope == NODE and scene.first_s is not None and r.exit.at_s - scene.first_s < AT_ONCE_S


def _kills(scene: Scene) -> list[Seen]:
    """Return one sign for each process that the kernel killed, the one that tells its size if there are two."""
    by_pid: dict[int, Seen] = {}
    for seen in scene.signs(Kind.OOM):
        by_pid[seen.sign.pid] = seen
    return list(by_pid.values())


def _may_be(scene: Scene, r: Reading, kill: Seen) -> bool:
    """A process id that is no rank's: of another namespace, or of a child; the name must fit."""
    ours = scene.by_pid(kill.sign.pid)
    return ours is r or (ours is None and bool(_PYTHON.match(kill.sign.process)) and kill.rank in (-1, r.exit.rank))


def _counted(scene: Scene, rank: int) -> OomKill | None:
    """Return the nearest counter that rose: the rank's own cgroup's before that of all, before the machine's."""
    risen = [c for c in scene.kills if c.kills > 0 and (c.scope == f"rank {rank}" or not c.scope.startswith("rank "))]
    return min(risen, key=lambda c: (not c.scope.startswith("rank "), c.scope != NODE, c.scope), default=None)


def _memory_cause(scene: Scene, r: Reading, found: tuple[Seen | None, OomKill | None, str], sure: bool) -> Cause:
    kill, count, word = found
    who = f"rank {r.exit.rank} on {scene.node}"
    worker = r.cls == "dataloader_killed" or r.exception == POOL
    what = "lost a data worker" if worker else f"ended with {exits.words(r.exit.status)}"
    proofs: list[Proof] = []
    said: list[str] = []
    if kill is not None:
        where = scene.node if kill.rank < 0 else f"{scene.node}, last lines of rank {kill.rank}"
        proofs.append(Proof("kernel log", where, kill.sign.text))
        limit = "of its cgroup" if kill.sign.scope == "memcg" else "of the node"
        said.append(f"the kernel killed process {kill.sign.pid} ({kill.sign.process}) for want of memory {limit}")
    if count is not None:
        proofs.append(Proof("cgroup", scene.node, _numbers(count)))
        said.append(_numbers(count))
    if word:
        proofs.append(Proof("scheduler", scene.node, short(word)))
        said.append(f"the scheduler says: {short(word)}")
    if r.line:
        proofs.append(Proof("last lines", who, short(r.line)))
    return _cause(scene, r, "host_oom", f"{who} {what}: {words.cause('host_oom')}: {'; '.join(said)}", proofs, sure,
                  Standing.EXPLICIT, kill.at_s if kill else r.exit.at_s)  # fmt: skip


def _numbers(count: OomKill) -> str:
    who = "all ranks here" if count.scope == NODE else count.scope
    text = f"{count.kills} out-of-memory kill{'s' * (count.kills != 1)} counted for {who}"
    known = (("limit", count.limit), ("peak", count.peak))
    sizes = [f"{name} {size / 2**20:.0f} MiB" for name, size in known if size > 0]
    return f"{text} ({', '.join(sizes)})" if sizes else text


def _bad_memory(scene: Scene) -> Iterator[Cause]:
    """Memory that cannot be corrected: sure when a rank had a bus error, or the kernel names it."""
    found = scene.signs(Kind.MEMORY)
    if not found:
        return
    seen = next((s for s in found if s.sign.pid), found[0])
    named = scene.by_pid(seen.sign.pid)
    hit = [r for r in scene.readings if r.exit.status and (r is named or _bus_error(r))]
    others = [r for r in scene.readings if r.exit.status and not r.exit.stopping]
    r = named if named in hit else next(iter(hit), None)
    who = f"rank {r.exit.rank} on {scene.node}" if r else scene.node
    proofs = [Proof("kernel log", scene.node, s.sign.text) for s in found[:3]]
    sentence = f"{who}: {words.cause('host_memory_ecc')}: {short(seen.sign.text)}"
    standing = Standing.DEVICE if hit else Standing.NODE
    if hit or others or not scene.readings:
        yield _cause(scene, r, "host_memory_ecc", sentence, proofs, bool(hit), standing, seen.at_s)


def _bus_error(r: Reading) -> bool:
    return exits.signal_of(r.exit.status) == signal.SIGBUS or r.cls == "shm_exhausted"


def _storage(scene: Scene) -> Iterator[Cause]:
    near = scene.signs(Kind.DISK, Kind.MOUNT)
    for seen in (near or scene.older(Kind.DISK, Kind.MOUNT))[:1]:
        ended = (r for r in scene.readings if near and exits.signal_of(r.exit.status) == signal.SIGBUS)
        hit = next(ended, None)
        who = f"rank {hit.exit.rank} on {scene.node}" if hit else scene.node
        sentence = f"{who}: {words.cause(seen.sign.cls)}: {short(seen.sign.text)}"
        proof = Proof("kernel log", scene.node, seen.sign.text)
        standing = Standing.NODE if hit else Standing.HINT if near else Standing.DISTURBED
        if (cut := _cut_off(scene, near)) is not None:
            yield cut
        yield _cause(scene, hit, seen.sign.cls, sentence, [proof], False, standing, seen.at_s)


def _cut_off(scene: Scene, near: Sequence[Seen]) -> Cause | None:
    """A server that has cut this client off, or answers no more, explains I/O errors of ranks; no disk did."""
    mounts = [seen for seen in near if seen.sign.kind is Kind.MOUNT]
    r = next((r for r in scene.readings if r.cls == "fs_mount_lost" and r.standing is Standing.EXPLICIT), None)
    if r is None or not mounts or len(mounts) < len(near):
        return None
    who, sign = f"rank {r.exit.rank} on {scene.node}", mounts[0].sign
    sentence = f"{who}: {words.cause(sign.cls)}: {short(sign.text)}"
    proofs = [Proof("kernel log", scene.node, sign.text), Proof("last lines", who, short(r.line))]
    cause = _cause(scene, r, sign.cls, sentence, proofs, False, Standing.EXPLICIT, r.exit.at_s)
    return replace(cause, severity=-1)


def _links(scene: Scene) -> Iterator[Cause]:
    """A port that is down outranks those who could not reach each other; counters that rose do not decide."""
    down = [port for port in scene.ports if not _up(port)]
    for port in down[:1]:
        text = port_words(port)
        proof = Proof("fabric", scene.node, text)
        yield _link(scene, text, proof, scene.first_s or 0.0, CERTAIN)
    for seen in scene.signs(Kind.LINK)[:1]:
        yield _link(scene, seen.sign.text, Proof("kernel log", scene.node, seen.sign.text), seen.at_s, LIKELY)


def _link(scene: Scene, text: str, proof: Proof, at_s: float, confidence: str) -> Cause:
    sentence = f"{scene.node}: {words.cause('ib_link_error')}: {short(text)}"
    cause = _cause(scene, None, "ib_link_error", sentence, [proof], confidence == CERTAIN, Standing.NETWORK, at_s)
    return Cause(cause.standing, cause.order, cause.verdict, severity=-1)


def _up(port: FabricPort) -> bool:
    return port.state.upper() in ("ACTIVE", "LINKUP", "") or "ACTIVE" in port.state.upper()


def port_words(port: FabricPort) -> str:
    """Return a port's state and what of its counters rose, in words."""
    risen = ", ".join(f"{name} +{number}" for name, number in port.counters)
    return f"{port.device} port {port.port} is {port.state or 'in an unknown state'}{f', {risen}' if risen else ''}"


def _cause(
    scene: Scene,
    r: Reading | None,
    name: str,
    sentence: str,
    proofs: list[Proof],
    sure: bool,
    standing: Standing,
    at_s: float,
) -> Cause:
    cls = find(name)
    statuses = [o.exit.status for o in scene.readings if o.exit.status and not o.exit.stopping]
    verdict = Verdict(
        cls.name,
        cls.family,
        scene.node,
        r.exit.rank if r else -1,
        r.exit.local_rank if r else -1,
        r.exit.status if r else next(iter(statuses), 1),
        short(sentence, 500),
        next((p.text for p in proofs if p.source == "kernel log"), ""),
        own_exit=r is not None and own_exit(r),
        fingerprint=fingerprint(cls.name, "", r.frame if r else "", r.line if r else proofs[0].text),
        node_fault=cls.always_node_fault,
        confidence=CERTAIN if sure else LIKELY,
        evidence=tuple(proofs),
    )
    return Cause(standing, (scene.order, at_s, verdict.rank), verdict, None, r is not None and r.exit.stopping)


def not_of_memory(verdict: Verdict, scenes: Sequence[Scene]) -> Verdict:
    """Say of a rank that nobody knows who killed that it was not for want of memory, where that was counted."""
    scene = next((s for s in scenes if s.node == verdict.node), None)
    if verdict.cls != "killed_unknown" or verdict.rank < 0 or exits.signal_of(verdict.status) != signal.SIGKILL:
        return verdict
    if scene is None or not scene.kills or any(count.kills for count in scene.kills):
        return verdict
    text = "the kernel counted no kill for want of memory"
    proof = Proof("cgroup", scene.node, "; ".join(_numbers(count) for count in scene.kills))
    sentence = short(f"{verdict.sentence}; {text}", 500)
    return replace(verdict, sentence=sentence, evidence=(*verdict.evidence, proof))


def blocked(scene: Scene) -> list[Suspect]:
    """Return the ranks that the kernel says are stuck in it."""
    stuck = [*scene.older(Kind.BLOCKED), *scene.signs(Kind.BLOCKED)]
    found = {r.exit.rank: s.sign.text for s in stuck if (r := scene.by_pid(s.sign.pid))}
    return [Suspect(rank, f"it is stuck in the kernel: {short(text)}", "kernel log") for rank, text in found.items()]


def crashed(scene: Scene, rank: int) -> Proof | None:
    """Return what the kernel says of a rank's bad access: it names the library."""
    ours = (s for s in scene.signs(Kind.CRASH) if (r := scene.by_pid(s.sign.pid)) and r.exit.rank == rank)
    return next((Proof("kernel log", scene.node, s.sign.text) for s in ours), None)


def not_deciding(scene: Scene) -> list[str]:
    """Return what was seen of the host that may have to do with it and names no cause: for the list of the unused."""
    found = [f"{scene.node}: {port_words(port)}" for port in scene.ports]
    kinds = (Kind.OOM, Kind.MEMORY, Kind.DISK, Kind.MOUNT, Kind.LINK, Kind.BLOCKED, Kind.CRASH)
    found += [f"{scene.node}: {short(seen.sign.text)}" for seen in scene.signs(*kinds)]
    return [*found, *(f"{scene.node}: {_numbers(count)}" for count in scene.kills if count.kills > 0)]
