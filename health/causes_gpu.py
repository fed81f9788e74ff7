"""Causes that lie in a GPU: what the driver said of it in the kernel log and through NVML. Pure; for ``verdict.py``.

A hardware XID near the node's first failure outranks whatever programs say, except a rank's own error that was seen
more than a minute earlier; one of some minutes before outranks only what says nothing, for others may have waited for
its rank since; older ones, and later ones, decide nothing. An application XID is the program's
doing: of its own words only those that say more are preferred. XIDs that follow from something else never decide.
The driver's recovery action (XID 154, NVML field 230) is the authority on whether the node can be used again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from . import words
from .causes import CERTAIN, LIKELY, Cause, Proof, Verdict, own_exit, short
from .classes import find
from .fingerprint import fingerprint
from .kernel import Kind, bus_of
from .observed import Gpu
from .reading import Reading, Standing
from .scene import BEFORE_S, Scene, Seen
from .xid import RECOVERY, RECOVERY_WORDS, Recovery, Role, Xid, lookup, recovery_of, role_of

# Which says most, when a GPU or a node shows several: what is lost takes the rest along.
SEVERITY = ("gpu_lost", "gpu_ecc", "gpu_driver_hang", "gpu_unavailable", "gpu_nvlink", "gpu_ecc_contained")
MEMORY_COUNTERS = ("ecc_uncorrected", "row_remap_failed")
OWN_WORDS = frozenset({"user_device_assert"})  # of a program: they say more than the XID that it caused


@dataclass(frozen=True, slots=True)
class Event:
    """Something that the driver said of one GPU. ``xid`` is None when it is no XID."""

    cls: str
    what: str  # in words, for a sentence
    at_s: float | None  # None = not said: the attempt's
    proof: Proof
    role: Role = Role.ROOT
    xid: Xid | None = None
    pid: int = 0
    rank: int = -1  # whose last lines held it
    switch: bool = False
    counted: bool = False  # a counter rose

    @property
    def hardware(self) -> bool:
        """Return whether it speaks against the device."""
        return find(self.cls).family == "hardware"


@dataclass(frozen=True, slots=True)
class Device:
    """A GPU and all that was said of it; ``bus`` is '' for what names none."""

    bus: str
    gpu: Gpu | None
    events: tuple[Event, ...]
    recovery: Recovery

    @property
    def name(self) -> str:
        """Return its name for people."""
        if self.switch:
            return f"NVSwitch {self.bus}"
        if self.gpu is None or self.gpu.number < 0:
            return f"GPU {self.bus or 'of unknown place'}"
        return f"GPU {self.gpu.number} ({self.bus})" if self.bus else f"GPU {self.gpu.number}"

    @property
    def switch(self) -> bool:
        """Return whether it is no GPU but what joins them."""
        return self.gpu is None and all(event.switch for event in self.events)

    @property
    def failed(self) -> bool:
        """Return whether an XID that decides was seen, or the GPU is gone."""
        lost = self.gpu is not None and self.gpu.lost
        return lost or any(event.xid and event.role is Role.ROOT for event in self.events)


def gpu_causes(scene: Scene, table: Mapping[int, Xid] | None = None) -> list[Cause]:
    """Return at most one cause for each GPU of the node. ``table``: the XID catalogue as the site has it."""
    found: list[Cause] = []
    for device in devices(scene, table):
        causes = [cause for event in device.events if (cause := _cause(scene, device, event))]
        found += [min(causes, key=lambda cause: cause.key)] if causes else []
    return found


def devices(scene: Scene, table: Mapping[int, Xid] | None = None) -> list[Device]:
    """Return the GPUs of which anything was said, in the order of their buses."""
    by_bus = {bus_of(gpu.bus) or gpu.uuid: gpu for gpu in scene.gpus}
    events: dict[str, list[Event]] = {bus: _of_nvml(scene, gpu, table) for bus, gpu in by_bus.items()}
    said: dict[str, Recovery] = {}
    for seen in scene.seen:
        if seen.sign.kind in (Kind.XID, Kind.LOST, Kind.SWITCH):
            bus = seen.sign.bus
            events.setdefault(bus, []).append(_of_kernel(scene, seen, table))
            if seen.sign.code == RECOVERY:
                said[bus] = recovery_of(seen.sign.text)  # the last word counts
    return [
        Device(bus, by_bus.get(bus), _worded(events[bus]), said.get(bus) or _recovery(by_bus.get(bus)))
        for bus in sorted(events)
    ]


def _of_kernel(scene: Scene, seen: Seen, table: Mapping[int, Xid] | None) -> Event:
    sign = seen.sign
    where = scene.node if seen.rank < 0 else f"{scene.node}, last lines of rank {seen.rank}"
    proof = Proof("kernel log", where, sign.text)
    if sign.kind is Kind.XID:
        xid = lookup(sign.code, table)
        return Event(xid.cls, _words(xid), seen.at_s, proof, role_of(xid, sign.text), xid, sign.pid, seen.rank)
    what = f"fatal NVSwitch error {sign.code}" if sign.kind is Kind.SWITCH else words.cause(sign.cls)
    return Event(sign.cls, what, seen.at_s, proof, rank=seen.rank, switch=sign.kind is Kind.SWITCH)


def _of_nvml(scene: Scene, gpu: Gpu, table: Mapping[int, Xid] | None) -> list[Event]:
    found: list[Event] = []
    for code, at_s in gpu.xids:
        xid = lookup(code, table)
        role = Role.WATCH if code == RECOVERY and not gpu.recovery else xid.role
        text = f"XID {code} on {gpu.uuid or gpu.bus}"
        found.append(Event(xid.cls, _words(xid), at_s, Proof("nvml", scene.node, text), role, xid))
    if gpu.lost:
        text = f"{gpu.uuid or gpu.bus} does not answer: lost"
        found.append(Event("gpu_lost", "the driver has lost it", None, Proof("nvml", scene.node, text)))
    for name, risen in gpu.counters:
        if name in MEMORY_COUNTERS:
            proof = Proof("nvml", scene.node, f"{name} of {gpu.uuid or gpu.bus} rose by {risen}")
            found.append(Event("gpu_ecc", f"{name} rose by {risen}", None, proof, counted=True))
    if gpu.recovery:
        asked = RECOVERY_WORDS[_recovery(gpu)]
        proof = Proof("nvml", scene.node, f"recovery action of {gpu.uuid or gpu.bus}: {asked}")
        found.append(Event("gpu_driver_hang", "the driver asks for a recovery", None, proof))
    return found


def _worded(events: list[Event]) -> tuple[Event, ...]:
    """Let the kernel's words decide about numbers that NVML gives without any: Nonfatal, a recovery of none."""
    told = {event.xid.code: event.role for event in events if event.xid and event.proof.source == "kernel log"}
    kept = (
        e for e in events if not (e.xid and e.proof.source == "nvml" and told.get(e.xid.code, e.role) is not e.role)
    )
    return tuple(sorted(kept, key=lambda event: event.proof.source == "nvml"))  # of equal ones that with words


def _cause(scene: Scene, device: Device, event: Event) -> Cause | None:
    if event.role is not Role.ROOT:
        return None
    near = event.at_s is None or scene.near(event.at_s)
    if not near and not scene.lately(event.at_s or 0.0):
        return None  # long before, or after: the round went on with it, or had ended
    at_s = scene.first_s or 0.0 if event.at_s is None else event.at_s
    reading, sure = _whose(scene, device, event)
    if not near:
        standing = Standing.HINT if event.xid is None or event.xid.needs_reset else Standing.DISTURBED
    elif event.hardware:
        standing = Standing.NODE if _told_before(scene, at_s) else Standing.DEVICE
        if event.at_s is None and (event.counted or not device.failed):
            standing = Standing.NODE  # counters and a wish for a reset say what is ill, not what ended the round
    else:
        standing = Standing.EXPLICIT  # a peer of what programs say: the first counts
        if reading and (reading.cls in OWN_WORDS or find(reading.cls).family == "hardware"):
            return None
    severity = _severity(event) if event.hardware else 0
    verdict = _verdict(scene, device, event, reading, CERTAIN if near and sure else LIKELY)
    return Cause(standing, (scene.order, at_s, verdict.rank), verdict, None, False, severity)


def _severity(event: Event) -> int:
    asks = (event.at_s is None and not event.counted) or (event.xid is not None and event.xid.code == RECOVERY)
    if event.cls not in SEVERITY or (asks and event.cls != "gpu_lost"):
        return len(SEVERITY)  # says what is to be done, not what happened
    return SEVERITY.index(event.cls)


def _verdict(scene: Scene, device: Device, event: Event, reading: Reading | None, confidence: str) -> Verdict:
    cls = find(event.cls)
    who = f"rank {reading.exit.rank} on {scene.node}" if reading else scene.node
    asked = f"; the driver asks for {RECOVERY_WORDS[device.recovery]}" if device.recovery else ""
    what = "" if event.what == words.cause(cls.name) else f": {event.what}"
    sentence = f"{who}: {words.cause(cls.name)}: {device.name}{what}{asked}"
    proofs = [event.proof]
    if reading and reading.line:
        proofs.append(Proof("last lines", f"rank {reading.exit.rank} on {scene.node}", short(reading.line)))
    rest = (e.proof for e in device.events if e.role is Role.ROOT and e is not event)
    proofs += [proof for proof in dict.fromkeys(rest) if proof != event.proof]
    exits = [r.exit.status for r in scene.readings if r.exit.status and not r.exit.stopping]
    gpu = device.gpu.uuid if device.gpu and device.gpu.uuid else "" if device.switch else device.bus
    return Verdict(
        cls.name,
        cls.family,
        scene.node,
        reading.exit.rank if reading else -1,
        reading.exit.local_rank if reading else -1,
        reading.exit.status if reading else next(iter(exits), 1),
        short(sentence, 500),
        event.proof.text if event.proof.source == "kernel log" else "",
        reading.exception if reading and not event.hardware else "",
        own_exit(reading) if reading else False,
        _mark(event, reading),
        node_fault=cls.always_node_fault or device.recovery is not Recovery.NONE,
        gpu=gpu,
        confidence=confidence,
        evidence=tuple(proofs),
    )


def _mark(event: Event, reading: Reading | None) -> str:
    """An application's fault is known again by where the program was, hardware's by what it was."""
    code = str(event.xid.code) if event.xid else event.what
    if event.hardware or reading is None:
        return fingerprint(event.cls, "", "", f"XID {code}")
    return fingerprint(event.cls, reading.exception, reading.frame, reading.line or f"XID {code}")


def _whose(scene: Scene, device: Device, event: Event) -> tuple[Reading | None, bool]:
    """Return the rank that used the GPU, and whether that is known rather than inferred."""
    if device.gpu is not None:
        using = [r for rank in device.gpu.ranks if (r := scene.by_rank(rank))]
        if using:  # of several that share it, the one that ended first by itself
            return min(using, key=lambda r: (r.standing, r.exit.at_s, r.exit.rank)), True
    for pid in (event.pid, *(e.pid for e in device.events)):
        if (r := scene.by_pid(pid)) is not None:
            return r, True
    if len(scene.readings) == 1:
        return scene.readings[0], True
    held = scene.by_rank(event.rank) if event.rank >= 0 else None
    if held is not None and held.standing < Standing.WAITED:  # else it only was the one that people pasted it into
        return held, False
    spoke = [r for r in scene.readings if find(r.cls).family in ("hardware", "gpu-app") and r.exit.status]
    ended = [r for r in scene.readings if r.exit.status and r.standing <= Standing.BARE]
    for among in (spoke, ended):
        if len(among) == 1:
            return among[0], False
    return None, True


def _told_before(scene: Scene, at_s: float) -> bool:
    """Return whether a rank had named a cause of its own, more than a minute before, that it still ended with."""
    return any(
        s.at_s < at_s - BEFORE_S
        and (r := scene.by_rank(s.rank)) is not None
        and r.line.strip() == s.line.strip()
        and find(r.cls).family in ("user", "config", "numerical", "oom")
        for s in scene.sightings
    )


def _recovery(gpu: Gpu | None) -> Recovery:
    """Return the driver's word; one that is newer than this catalogue asks for a reset at least."""
    if gpu is None or gpu.recovery <= 0:
        return Recovery.NONE
    return Recovery(gpu.recovery) if gpu.recovery in list(Recovery) else Recovery.RESET


def _words(xid: Xid) -> str:
    means = xid.cls if xid.role is Role.ROOT else xid.role.value
    return f"XID {xid.code} ({xid.mnemonic}{f'; {means} by --signatures' if xid.own else ''})"


def not_deciding(scene: Scene, table: Mapping[int, Xid] | None = None) -> list[str]:
    """Return what was said of GPUs that cannot be a cause: for the list of what was not used."""
    found: list[str] = []
    for device in devices(scene, table):
        roles = {(e.what, e.role) for e in device.events if e.role is not Role.ROOT}
        for what, role in sorted(roles, key=lambda pair: pair[0]):
            why = "follows from something else" if role is Role.CONSEQUENCE else "decides nothing by itself"
            found.append(f"{device.name} of {scene.node}: {what} {why}")
        for name, risen in device.gpu.counters if device.gpu else ():
            if name not in MEMORY_COUNTERS:
                found.append(f"{device.name} of {scene.node}: {name} rose by {risen}")
    return found
