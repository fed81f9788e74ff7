"""The course of a drill from the catalogue: start, strike, see what follows, heal, finish; one row of the table.

Not a test module. ``Fault`` says what is broken and what must come of it, ``play`` does it and checks it.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from contextlib import ExitStack
from enum import Enum
from typing import NamedTuple

from drills.etcd import Etcd
from drills.job import HERE, LEASE_S, Command, Job
from drills.lab import Host, Lab
from drills.sight import boottime, until

STEP_PATIENCE_S = 60.0  # for torch to find itself together again while the network is bad
AT_ONCE_S = 2.0  # two transactions and three starts, on two busy cores
REVOKED_S = 1.0  # a dead agent's keeper revokes its lease
SILENT_S = LEASE_S + 2.0
RENEWAL_S = LEASE_S / 5
GUARDIAN_ANSWER_S = 2.0  # after which the agent takes a guardian for dead
COLLECTIVE_S = 8  # the timeout that a script gives its process group, where the drill is about that
ELECTION_S = 1.0  # etcd's, at 0.4 s of election timeout


FAULTS_CONF = "lease_ttl=6,kill_bound=2,last_call_timeout=20"  # all three are there at first, on a busy machine too


class Scene:
    """A job on three hosts, and the one to be struck. Strikes may leave in ``undo`` what must be undone in any case."""

    def __init__(self, fault: Fault, lab: Lab, undo: ExitStack) -> None:
        self.fault = fault
        self.lab = lab
        self.undo = undo
        self.hosts = lab.host("h1", "h2", "h3")
        more = lab.host(*(name for name in fault.stores if name not in lab.hosts))
        members = [lab.hosts[name] for name in fault.stores]
        assert set(more) <= set(members)
        self.etcd = Etcd(lab, members, *fault.options)
        self.job = Job(lab, self.etcd)
        self.job.nnodes = "2:3"
        self.job.conf = FAULTS_CONF
        self.job.script = HERE / "train.py"
        self.job.arguments = fault.arguments
        self.victim = self.hosts[1]
        self.heal: Callable[[], object] = lambda: None  # set by the strike

    def end_fault(self) -> None:
        """Undo the strike where it still lasts."""
        heal, self.heal = self.heal, lambda: None
        heal()

    @property
    def rest(self) -> list[Host]:
        return [host for host in self.hosts if host is not self.victim]

    @property
    def command(self) -> Command:
        """The victim's."""
        return self.job.commands[self.victim.name]


Strike = Callable[[Scene], object]


class Victim(Enum):
    """Which host is struck."""

    LEADER = "the leader's host"
    OTHER = "not the leader's"
    SECOND = "h2, whoever leads"
    FIRST = "h1, whoever leads"


class After(Enum):
    """What must come of a fault."""

    ON = "the round goes on"
    ALL = "the next round on all three hosts"
    REST = "the next round on the two others"
    WAITS = "all wait; once it is over, the next round on all three hosts"
    HEALED = "all ranks are killed in time; once it is over, a later round on two or three hosts"


class Fault(NamedTuple):
    """A fault and what must come of it."""

    name: str
    title: str
    strike: Strike
    after: After
    cls: str = ""
    at: str = ""  # the node that the verdict names: "victim", or '' for nobody
    charged: str | None = None
    within_s: float = AT_ONCE_S  # from the fault, or from its end, to the first line of the last new rank
    hold_s: float = 0.0  # how long it lasts, where the round goes on or all wait
    victim: Victim = Victim.OTHER
    before: Strike | None = None  # before the job starts
    rejoins: bool = False  # once healed, the victim's agent has a lease again
    heals_early: bool = False  # once there are new ranks: they cannot train before
    arguments: tuple[str, ...] = ()  # the script's
    exits: int | None = None  # the victim's command ends by itself, with this code
    proof: bool = False  # a rank is killed while the fault lasts, or after it, and all must start again
    frozen: bool = False  # a whole host stands still: for its first moment after the thaw nothing on it can fence
    stores: tuple[str, ...] = ("e1",)
    options: tuple[str, ...] = ()  # etcd's
    needs: tuple[str, ...] = ()  # programs
    says: str = ""  # what a command says while all wait
    soak: bool = False  # too long for CI
    theirs: str | None = None  # why torchrun is not struck so; None: it is


class Row(NamedTuple):
    """What one drill measured; times are from the fault, or from its end where nothing can go on before."""

    name: str
    title: str
    expected: str
    first_s: float | None
    bound_s: float | None
    step_s: float | None
    verdict: str
    node: str
    charged: str
    late_s: float | None = None  # a first try, which missed the bound


def play(fault: Fault, lab: Lab) -> Row:
    """Carry ``fault`` out, check all that must hold, and return its row."""
    with ExitStack() as undo:
        scene = Scene(fault, lab, undo)
        if fault.before:
            fault.before(scene)
        job = scene.job
        job.start(*scene.hosts)
        job.wait_round(1, *scene.hosts)
        job.wait_steps(1, *scene.hosts)
        scene.victim = _victim(scene)
        at = boottime()
        fault.strike(scene)
        if fault.after is After.ON:
            row = _goes_on(scene)
        elif fault.after is After.WAITS:
            row = _waits(scene)
        elif fault.after is After.HEALED:
            row = _after_the_heal(scene, at)
        else:
            row = _goes_on_anew(scene, at)
        thawed = _heal(scene)
        _end(scene, thawed)
        return row


def _victim(scene: Scene) -> Host:
    if scene.fault.victim is Victim.SECOND:
        return scene.hosts[1]
    if scene.fault.victim is Victim.FIRST:
        return scene.hosts[0]
    leader = scene.job.leader()
    if scene.fault.victim is Victim.LEADER:
        return leader
    return next(host for host in reversed(scene.hosts) if host is not leader)


def _goes_on(scene: Scene) -> Row:
    """See that nothing comes of it, during it and for a lease after it; then, as proof, what comes of a killed rank."""
    job, fault = scene.job, scene.fault
    job.steady(1, *scene.hosts, for_s=fault.hold_s)
    if not fault.proof:
        scene.end_fault()
    healed = boottime()
    step = job.wait_steps(1, *scene.hosts, after=healed)
    job.steady(1, *scene.hosts, for_s=LEASE_S)
    job.check_unharmed()
    if not fault.proof:
        return _row(scene, "", None, step - healed, None)
    at = boottime()
    job.commands[scene.hosts[2].name].ranks[0].signal(signal.SIGKILL)
    first = job.wait_round(2, *scene.hosts)
    job.check_recovery(at, first, fault.within_s / LEASE_S)
    record = job.check_failure(0, "killed_unknown", scene.hosts[2].name, "unknown", *scene.hosts)
    step = _step_under_fault(scene, at)
    return _row(scene, record["verdict"]["class"], first - at, step, record["charged_to"])


def _step_under_fault(scene: Scene, at: float) -> float | None:
    """Return how long after ``at`` round 2 trained; None where torch came to it only when the fault was over."""
    job, end = scene.job, boottime() + STEP_PATIENCE_S
    until(
        lambda: boottime() > end or job.steps_of(2, *scene.hosts), "a step, or an end of waiting", 2 * STEP_PATIENCE_S
    )
    if (step := job.steps_of(2, *scene.hosts)) is not None:
        return step - at
    scene.end_fault()
    job.wait_steps(2, *scene.hosts)
    return None


def _goes_on_anew(scene: Scene, at: float) -> Row:
    job, fault = scene.job, scene.fault
    hosts = scene.rest if fault.after is After.REST else scene.hosts
    first = job.wait_round(2, *hosts)
    record = job.check_failure(0, fault.cls, scene.victim.name if fault.at else None, fault.charged, *hosts)
    job.check_recovery(at, first, fault.within_s / LEASE_S)
    if fault.heals_early:
        scene.end_fault()
    if fault.after is After.REST and not fault.frozen:
        job.check_fenced(1, scene.victim, at)
    step = job.wait_steps(2, *hosts)
    return _row(scene, record["verdict"]["class"], first - at, step - at, record["charged_to"])


def _waits(scene: Scene) -> Row:
    """See that nobody gives up and nothing starts while nobody can go on, and what comes when it is over."""
    job, fault = scene.job, scene.fault
    until_at = boottime() + fault.hold_s
    until(lambda: boottime() > until_at, "it lasts", fault.hold_s + 5.0)
    assert set(job.rounds()) == {1}
    assert fault.says in scene.command.said()
    at = boottime()
    scene.end_fault()
    return _goes_on_anew(scene, at)


def _after_the_heal(scene: Scene, at: float) -> Row:
    """See that all ranks fall silent, and that those hosts that are back first go on together once it is over."""
    job, fault = scene.job, scene.fault
    job.wait_silence(fault.hold_s)
    for host in scene.hosts:
        job.check_fenced(1, host, at)
    at = boottime()
    scene.end_fault()
    n = job.wait_trained_round(1, at_least=2)
    first = job.first_lines(n)
    record = job.check_failure(0, fault.cls, None, fault.charged, *scene.hosts)
    job.check_recovery(at, first, fault.within_s / LEASE_S)
    step = max(beat.at for beat in job.steps.first(n).values())
    return _row(scene, record["verdict"]["class"], first - at, step - at, record["charged_to"])


def _row(scene: Scene, cls: str, first_s: float | None, step_s: float | None, charged: str | None) -> Row:
    fault = scene.fault
    return Row(
        name=fault.name,
        title=fault.title,
        expected=fault.after.value + (", and a rank killed then is answered as ever" if fault.proof else ""),
        first_s=first_s,
        bound_s=None if first_s is None else fault.within_s,
        step_s=step_s,
        verdict=cls,
        node=("the struck host" if fault.at or fault.proof else "nobody") if cls else "",
        charged=charged or "",
    )


def _heal(scene: Scene) -> tuple[Host, float] | None:
    """End the fault where it still lasts; see that a host which can join again does, and disturbs nobody."""
    fault, job = scene.fault, scene.job
    at = boottime()
    scene.end_fault()
    if fault.exits is not None:
        code = scene.command.waiter.wait(10.0)
        assert code == fault.exits, f"the struck command ended with {code}:\n{scene.command.said()[-2000:]}"
    if fault.rejoins:
        job.wait_joined_again(scene.victim)
        job.steady(max(job.rounds()), *scene.rest, for_s=1.0)
    return (scene.victim, at) if fault.frozen else None


def _end(scene: Scene, thawed: tuple[Host, float] | None) -> None:
    fault, job = scene.fault, scene.job
    gone = fault.exits is not None or (fault.after is After.REST and not fault.rejoins)
    job.finish(*(scene.rest if gone else scene.hosts))
    job.check_one_world(thawed)
    overlaps = scene.lab.directory / "alive.overlaps"
    if thawed is None:
        assert not overlaps.exists(), overlaps.read_text()
    job.check_nothing_left()
    until(lambda: all(c.waiter.poll() is not None for c in job.commands.values() if c.host.up), "all commands ended")
