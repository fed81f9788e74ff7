"""Two nodes train, each with a checkpoint directory of its own that no other node sees, and lose ranks and a node.

The scripts are those of the other drills, with what their framework wants for directories of the nodes' own. The
reference is a run of as many ranks on one node, undisturbed: losses and last weights must be the same to the last bit.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import pytest
from command.cluster import Cluster, Node, Place
from command.processes import until
from frameworks.cases import CASES
from frameworks.resuming import HERE, LOST_AT, PATIENCE_S, STEPS, TORN, Case, Kill, Line, built_shim, lines

PYTHON = Path(__file__).parents[2] / ".venv-frameworks" / "bin" / "python"
BY_NAME = {case.name: case for case in CASES}
NODES = (2, 3)
PATIENT = "lease_ttl=15,kill_bound=3,last_call_timeout=2,join_timeout=60"  # ranks that load torch take every core
BRIEF = "lease_ttl=6,kill_bound=1,last_call_timeout=2,join_timeout=60"

pytestmark = [
    pytest.mark.drill,
    pytest.mark.timeout(900),
    pytest.mark.skipif(not PYTHON.exists(), reason="there is no .venv-frameworks; run make .venv-frameworks/stamp"),
]


@dataclass(frozen=True, slots=True)
class Local:
    """A case on nodes of so many ranks; the torn save is one of the last rank's, on the second node."""

    case: Case
    slots: int
    torn: Kill
    weights: str  # files of the last checkpoint that hold a rank's, or all, weights

    @property
    def world(self) -> int:
        return self.slots * len(NODES)

    def ranks(self, number: int) -> range:
        first = self.slots * NODES.index(number)
        return range(first, first + self.slots)


FSDP2 = Local(BY_NAME["FSDP2 with DCP"], 2, Kill(3, "half", 1, "step-15/__3_0"), "step-20/__{}_0.distcp")
ACCELERATE = Local(
    BY_NAME["Accelerate"], 1, Kill(1, "open", 1, "checkpoint_15/random_states_1"), "checkpoint_20/model.safetensors"
)
OF_RANK = re.compile(r"(?:__|random_states_)(\d+)[._]")  # a file's name, of either


@dataclass(frozen=True, slots=True)
class Calm:
    """What each rank saw of an undisturbed run, and where its checkpoints lie."""

    losses: tuple[dict[int, str], ...]
    kept: Path


@pytest.fixture(scope="module")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What kills ranks."""
    return built_shim(tmp_path_factory.mktemp("shim"))


def environment(case: Case, more: dict[str, str]) -> dict[str, str]:
    threads = {"OMP_NUM_THREADS": "1"}  # else a node of one rank adds up in another order than one of two
    return {"PYTHON_EXEC": str(PYTHON), "HF_HUB_OFFLINE": "1", "NODE_LOCAL": "1", **threads, **case.env, **more}


def undisturbed(local: Local, folder: Path) -> Calm:
    """Run it on one node."""
    place, out = Place(folder / "calm"), folder / "calm" / "out"
    out.mkdir()
    script = HERE / "scripts" / local.case.script
    line = ("--nproc-per-node", str(local.world), script, out)
    node = place.command(*line, env=environment(local.case, {}))
    try:
        assert node.exit_code(PATIENCE_S) == 0, node.say()
    finally:
        place.close()
    losses = tuple({line.step: line.loss for line in lines(out, rank)} for rank in range(local.world))
    assert all(sorted(one) == list(range(1, STEPS + 1)) for one in losses), node.say()
    return Calm(losses, out / "checkpoints")


@pytest.fixture(scope="module")
def calm(tmp_path_factory: pytest.TempPathFactory) -> Calm:
    """Run Accelerate's script undisturbed, once for all."""
    return undisturbed(ACCELERATE, tmp_path_factory.mktemp("accelerate"))


@dataclass(frozen=True, slots=True)
class Nodes:
    """Starts nodes of a cluster, each with a folder of its own: the script's, with its checkpoints."""

    cluster: Cluster
    local: Local

    def out(self, number: int) -> Path:
        return self.cluster.folder / f"disk-{number}"

    def start(self, number: int, *flags: str, conf: str = "", env: dict[str, str] | None = None) -> Node:
        case, out = self.local.case, self.out(number)
        out.mkdir(exist_ok=True)
        return self.cluster.start(
            number,
            *("--nproc-per-node", str(self.local.slots), *case.flags, *flags),
            *("--checkpoint-dir", out / "checkpoints", f"--checkpoint-arg={case.argument}"),
            *(HERE / "scripts" / case.script, out),
            conf=conf,
            env=environment(case, env or {}),
        )

    def both(
        self, *flags: str, conf: str = "", leads: int = NODES[0], second: dict[str, str] | None = None
    ) -> list[Node]:
        """Start both, first the one that is to lead; ``second`` is the environment of the last one's ranks."""
        started: dict[int, Node] = {}
        for number in sorted(NODES, key=lambda number: number != leads):
            started[number] = self.start(number, *flags, conf=conf, env=second if number == NODES[-1] else None)
            self.cluster.leader()
        return [started[number] for number in NODES]

    def lines(self, rank: int) -> list[Line]:
        return lines(self.out(NODES[rank // self.local.slots]), rank)

    def repeats(self, calm: Calm) -> None:
        """Assert that every step of every rank is as it was undisturbed, and that they end with the same weights."""
        for rank, losses in enumerate(calm.losses):
            other = [line for line in self.lines(rank) if line.loss != losses[line.step]]
            assert not other, f"rank {rank} does not repeat {losses} to the last bit: {other}"
            kept = self.out(NODES[rank // self.local.slots]) / "checkpoints"
            name = self.local.weights.format(rank)
            (was,), (now,) = (list(where.glob(name)) for where in (calm.kept, kept))
            assert was.read_bytes() == now.read_bytes(), f"rank {rank} ends with other weights"

    def apart(self) -> None:
        """Assert that each node has the files of its own ranks, and of no others."""
        for number in NODES:
            names = (path.name for path in (self.out(number) / "checkpoints").rglob("*"))
            whose = {int(found[1]) for name in names if (found := OF_RANK.match(name))}
            assert whose == set(self.local.ranks(number)), f"node {number} has files of ranks {whose}"

    def lose_the_second_in_mid_run(self, *flags: str) -> Node:
        """Start both, switch the second one off when it has begun what comes after step 10; return the first one."""
        self.cluster.conf = BRIEF
        first, second = self.both(*flags, second={"STAND_AT": str(LOST_AT)})
        log = self.out(NODES[-1]) / "losses-1"
        begun = f"0 {LOST_AT} "
        until(lambda: log.exists() and begun in log.read_text(), "it is in mid-run", PATIENCE_S, self.cluster.say)
        second.power_off()
        return first


def survives(cluster: Cluster, shim: Path, local: Local, calm: Calm) -> None:
    """Kill the last rank in mid-run, then in mid-save, and compare with what was seen undisturbed."""
    cluster.conf = PATIENT  # no lease has to end here
    nodes, last = Nodes(cluster, local), local.world - 1
    kills = (Kill(last, "write", LOST_AT, f"losses-{last}"), local.torn)
    orders = (f"{cluster.folder / f'kill-{n}'}|{'|'.join(map(str, kill))}" for n, kill in enumerate(kills))
    killed = {"LD_PRELOAD": str(shim), "KILL_AT": "\n".join(orders)}
    started = nodes.both("--nnodes", "2", "--max-restarts", "2", second=killed)
    assert [node.exit_code(PATIENCE_S) for node in started] == [0, 0], cluster.say()
    assert len(list(cluster.folder.glob("kill-*"))) == len(kills), cluster.say()
    nodes.apart()

    first, second, third = cluster.records().values()
    assert [record["state"] for record in (first, second, third)] == ["retried", "retried", "done"], cluster.say()
    assert first["resume"] is None
    assert [record["resume"]["step"] for record in (second, third)] == [10, 10], cluster.say()
    assert third["resume"]["format"] == local.case.format
    assert "the other nodes have the rest" in third["resume"]["verified"]
    assert [entry["name"] for entry in third["refused"]] == [local.case.refused], cluster.say()
    spans = [(0, 1, LOST_AT - 1), (1, 11, TORN), (2, 11, STEPS)]
    steps = [(attempt, step) for attempt, begin, end in spans for step in range(begin, end + 1)]
    assert [(line.attempt, line.step) for line in nodes.lines(last)] == steps, cluster.say()
    nodes.repeats(calm)
    assert not cluster.leaked_keys()


def test_a_rank_of_fsdp2_is_killed_in_run_and_in_save(cluster: Cluster, shim: Path, tmp_path: Path) -> None:
    survives(cluster, shim, FSDP2, undisturbed(FSDP2, tmp_path))


def test_a_rank_of_accelerate_is_killed_in_run_and_in_save(cluster: Cluster, shim: Path, calm: Calm) -> None:
    survives(cluster, shim, ACCELERATE, calm)


def test_a_node_is_replaced_by_a_blank_one_and_comes_back_with_its_disk(cluster: Cluster, calm: Calm) -> None:
    """No rank of the blank node ever runs, and nothing is begun from nothing."""
    nodes, flags = Nodes(cluster, ACCELERATE), ("--nnodes", "2", "--max-restarts", "2")
    first = nodes.lose_the_second_in_mid_run(*flags)
    blank = nodes.start(4, *flags)
    assert [node.exit_code(PATIENCE_S) for node in (first, blank)] == [75, 75], cluster.say()
    for node in (first, blank):
        assert "node 127.0.0.4 lacks it: it is not there" in node.err, node.say()
        assert "from nothing its progress would be lost" in node.err, node.say()
    assert not list(nodes.out(4).glob("losses-*")), blank.say()

    again = nodes.both(*flags, conf="launch_id=again", leads=NODES[-1])
    assert [node.exit_code(PATIENCE_S) for node in again] == [0, 0], cluster.say()
    last = list(cluster.records().values())[-1]
    assert (last["state"], last["resume"]["step"]) == ("done", 10), cluster.say()
    nodes.repeats(calm)


def test_one_node_goes_on_without_the_other_where_that_is_enough(cluster: Cluster) -> None:
    """Of Accelerate's files each node has all but the others' random states."""
    nodes = Nodes(cluster, ACCELERATE)
    first = nodes.lose_the_second_in_mid_run("--nnodes", "1:2", "--max-restarts", "2")
    assert first.exit_code(PATIENCE_S) == 0, cluster.say()
    lost, last = cluster.records().values()
    assert (lost["state"], last["state"]) == ("retried", "done"), cluster.say()
    assert last["resume"]["step"] == 10
    assert [line.step for line in nodes.lines(0) if line.attempt == 1] == list(range(11, STEPS + 1))
