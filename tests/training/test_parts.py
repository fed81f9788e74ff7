"""The parts that a training state is read into and set from, one at a time, in one process."""

from __future__ import annotations

import io
import os
import pickle
import random
import threading
from collections import Counter, OrderedDict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
np = pytest.importorskip("numpy")

from torch.utils.data import DataLoader, RandomSampler, TensorDataset  # noqa: E402
from torch.utils.data.distributed import DistributedSampler  # noqa: E402

from remuster import checkpoint  # noqa: E402
from remuster.checkpoint import PublishError, RestoreError, TrainState  # noqa: E402
from remuster.checkpoint.training import rng, sharded  # noqa: E402
from remuster.checkpoint.training.plain import NotPlain, plain  # noqa: E402


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Run outside remuster, as the only rank, and leave the random states as they were."""
    for name in [n for n in os.environ if n.startswith("REMUSTER_") or n in ("RANK", "WORLD_SIZE")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("REMUSTER_CHECKPOINT_DIR", str(tmp_path / "kept"))
    before = rng.capture()
    yield
    rng.put_back(before)


def read_again(value: Any) -> Any:
    """Write a value and read it as ``restore`` does."""
    file = io.BytesIO()
    torch.save(value, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


def drawn() -> list[float]:
    """Draw from every source of chance, and such that half of a pair of normal numbers is left over."""
    return [random.random(), random.gauss(0, 1), float(np.random.standard_normal()), float(torch.randn(3)[0])]


def test_random_states_are_plain_and_come_back() -> None:
    drawn()
    kept = read_again(plain(rng.capture(), "rng", copied=True))
    first = [drawn() for _ in range(3)]
    rng.put_back(kept)
    assert [drawn() for _ in range(3)] == first


def test_what_is_plain_is_read_again_as_it_was() -> None:
    value = {
        "none": None,
        "numbers": [1, 2.5, True, 1j],
        "texts": ("a", b"b"),
        "tensors": OrderedDict(w=torch.ones(2), p=torch.nn.Parameter(torch.zeros(1))),
        "milestones": Counter({3: 1}),
        "kinds": [torch.float16, torch.Size([2]), torch.device("cpu")],
        7: {"deep": [[{}]]},
    }
    again = read_again(plain(value, "value", copied=False))
    assert again["milestones"] == value["milestones"]
    assert str(again) == str({**value, "tensors": OrderedDict(w=torch.ones(2), p=torch.zeros(1))})


class Shards:
    """Has what a DTensor has."""

    placements = device_mesh = ()


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ({"a": [1, threading.Lock()]}, r"extra\['a'\]\[1\] is a _thread.lock"),
        (np.float64(1.0), r"extra is a numpy.float64"),
        ([Shards()], r"extra\[0\] is a DTensor: only the model and its optimizer"),
    ],
)
def test_what_could_not_be_read_again_is_not_written(value: Any, words: str) -> None:
    with pytest.raises(NotPlain, match=words):
        plain(value, "extra", copied=False)


def test_a_copy_shares_no_memory_and_a_part_does_not_bring_the_whole() -> None:
    whole = torch.zeros(1000)
    copy = plain({"w": whole}, "w", copied=True)["w"]
    whole += 1
    assert float(copy.sum()) == 0
    part = plain(whole[:3], "part", copied=False)
    assert part.untyped_storage().nbytes() == 12
    assert plain(whole, "w", copied=False).data_ptr() == whole.data_ptr()


def network() -> Any:
    return torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.BatchNorm1d(3))


SCHEDULES = {
    "steps": lambda o: torch.optim.lr_scheduler.MultiStepLR(o, [2, 4]),
    "plateau": lambda o: torch.optim.lr_scheduler.ReduceLROnPlateau(o),
    "lambda": lambda o: torch.optim.lr_scheduler.LambdaLR(o, lambda step: 0.9**step),
    "cycle": lambda o: torch.optim.lr_scheduler.OneCycleLR(o, 1.0, 100),
    "warm": lambda o: torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(o, 3),
    "row": lambda o: torch.optim.lr_scheduler.SequentialLR(
        o,
        [torch.optim.lr_scheduler.LinearLR(o), torch.optim.lr_scheduler.CosineAnnealingLR(o, 9)],
        milestones=[2],
    ),
}


def made(schedule: str) -> TrainState:
    """Build a state from nothing, as a script does each time it starts."""
    torch.manual_seed(len(schedule))
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    return TrainState(
        model=model,
        optimizer=optimizer,
        scheduler=SCHEDULES[schedule](optimizer),
        scaler=torch.amp.GradScaler("cpu"),
        extra={"ema": network()},
        per_rank={"noise": torch.Generator()},
    )


def advance(state: TrainState, schedule: str) -> list[str]:
    """Take three steps; return their losses to the last bit."""
    losses = []
    for _ in range(3):
        loss = state.model(torch.randn(4, 3)).square().sum()
        state.optimizer.zero_grad()
        loss.backward()
        state.optimizer.step()
        state.scheduler.step(*([loss.item()] if schedule == "plateau" else []))
        rate = state.optimizer.param_groups[0]["lr"]
        losses.append(f"{loss.item().hex()} {rate.hex()} {torch.rand((), generator=state.per_rank['noise'])}")
    return losses


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("save", [checkpoint.save, checkpoint.async_save])
def test_one_process_alone_goes_on_to_the_last_bit(schedule: str, save: Any, tmp_path: Path) -> None:
    state = made(schedule)
    advance(state, schedule)
    save(3, state)
    went_on = advance(state, schedule)
    checkpoint.finish(state)
    fresh = made(schedule)
    assert checkpoint.restore(fresh, tmp_path / "kept" / "step-000000000003") == 3
    assert advance(fresh, schedule) == went_on


def test_without_a_checkpoint_nothing_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    state = made("steps")
    before = torch.get_rng_state()
    assert checkpoint.restore(state) == 0
    assert torch.equal(torch.get_rng_state(), before)
    monkeypatch.setenv("REMUSTER_RESUME_FROM", "/nowhere/step-000000000003")
    with pytest.raises(
        RestoreError, match=r"/nowhere/step-000000000003 is not restored: rank 0: 'step-0+3' is missing"
    ):
        checkpoint.restore(state)


def test_half_of_a_state_is_refused_before_anything_is_set(tmp_path: Path) -> None:
    state = made("steps")
    checkpoint.save(3, state)
    with torch.no_grad():
        for parameter in state.model.parameters():
            parameter.zero_()
    state.extra = {"average": network()}
    state.scaler = None
    with pytest.raises(RestoreError, match=r"it also has extra\['ema'\], scaler; it has no extra\['average'\]$"):
        checkpoint.restore(state, tmp_path / "kept" / "step-000000000003")
    assert all(not parameter.any() for parameter in state.model.parameters())


def test_a_step_of_another_version_is_named(tmp_path: Path) -> None:
    with checkpoint.publish(4) as p:
        torch.save({"version": 2, "extra": {}}, p.path("state.pt"))
        torch.save({}, p.path("rank-0.pt"))
    with pytest.raises(RestoreError, match="it is of version 2, and this remuster reads 1"):
        checkpoint.restore(made("steps"), tmp_path / "kept" / "step-000000000004")


def test_a_step_that_publish_has_written_is_named(tmp_path: Path) -> None:
    with checkpoint.publish(4) as p:
        p.path("weights.pt").write_bytes(b"x")
    with pytest.raises(RestoreError, match=r"it has no state.pt, so remuster.checkpoint.save has not written it"):
        checkpoint.restore(made("steps"), tmp_path / "kept" / "step-000000000004")


def test_gradients_that_are_not_there_are_missed() -> None:
    state = made("steps")
    state.accumulated = 1
    with pytest.raises(PublishError, match="no parameter has a gradient: FSDP2 keeps those"):
        checkpoint.save(3, state)


def test_fsdp1_is_named() -> None:
    class FullyShardedDataParallel(torch.nn.Module):  # type: ignore[misc]
        pass

    state = made("steps")
    state.model = FullyShardedDataParallel()
    with pytest.raises(PublishError, match="wrapped by FSDP1, which is not known here: use fully_shard"):
        checkpoint.save(3, state)


def test_no_place_to_save_to_is_said_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("REMUSTER_CHECKPOINT_DIR")
    for save in (checkpoint.save, checkpoint.async_save):
        with pytest.raises(PublishError, match="no checkpoint directory"):
            save(3, made("steps"))


class Evil:
    """A pickle that leaves a mark when it is loaded."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.mark),)


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled, unavailable or uninitialized")
def test_no_pickle_of_a_checkpoint_is_executed(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    with checkpoint.publish(5) as p:
        torch.save(Evil(mark), p.path("state.pt"))
        torch.save({}, p.path("rank-0.pt"))
    step = tmp_path / "kept" / "step-000000000005"
    with pytest.raises(RestoreError, match="is not restored: rank 0: "):
        checkpoint.restore(made("steps"), step)
    (step / "dcp").mkdir()
    (step / "dcp" / ".metadata").write_bytes(pickle.dumps(Evil(mark)))
    with pytest.raises(RuntimeError, match=r"\.metadata names posix\.mkdir, which is no record of DCP's"):
        sharded.read({}, step)
    assert not mark.exists()


DATA = TensorDataset(torch.arange(23))


def loaders() -> dict[str, Any]:
    """Make loaders whose order depends on chance in different ways."""
    generator = torch.Generator().manual_seed(3)
    return {
        "global": DataLoader(DATA, 4, shuffle=True),
        "own generator": DataLoader(DATA, 4, shuffle=True, generator=generator),
        "sampler's generator": DataLoader(DATA, 4, sampler=RandomSampler(DATA, generator=generator)),
        "by epoch": DataLoader(DATA, 4, sampler=DistributedSampler(DATA, 2, 0)),
        "worker": DataLoader(DATA, 4, shuffle=True, num_workers=1),
    }


def endless(cursor: checkpoint.Cursor) -> Iterator[list[int]]:
    """Yield what a training loop sees of batch after batch, with a draw of the model's after each."""
    while True:
        for [batch] in cursor:
            yield [cursor.epoch, *batch.tolist(), int(torch.randint(1000, ()))]


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded, use of fork")  # of the loader's worker
@pytest.mark.parametrize("name", loaders())
@pytest.mark.parametrize("stop", [1, 3, 6, 8])  # 3 and 6 are the last batch of an epoch
def test_a_cursor_goes_on_where_it_stood(name: str, stop: int) -> None:
    torch.manual_seed(1)
    cursor = checkpoint.Cursor(loaders()[name])
    stream = endless(cursor)
    before = [next(stream) for _ in range(stop)]
    position, states = read_again(plain([cursor.state_dict(), rng.capture()], "cursor", copied=True))
    after = [next(stream) for _ in range(9)]
    stream.close()
    torch.manual_seed(77)
    fresh = checkpoint.Cursor(loaders()[name])
    fresh.load_state_dict(position)
    rng.put_back(states)
    stream = endless(fresh)
    assert [next(stream) for _ in range(9)] == after
    stream.close()
    assert before[0][0] == 0
    assert after[-1][0] > 0


@pytest.mark.parametrize("before", range(1, 6))
@pytest.mark.parametrize("now", range(1, 6))
def test_a_position_is_shared_out_so_that_no_sample_is_left_out(before: int, now: int) -> None:
    samples = TensorDataset(torch.arange(60))

    def part(world: int, rank: int, done: int, position: dict[str, Any] | None = None) -> tuple[set[int], Any]:
        cursor = checkpoint.Cursor(DataLoader(samples, 2, sampler=DistributedSampler(samples, world, rank)))
        if position is not None:
            cursor.load_state_dict(cursor.reshared(position, before, world))
        stream = iter(cursor)
        return {i for [batch], _ in zip(stream, range(done), strict=False) for i in batch.tolist()}, cursor

    for done in range(6):
        seen = [part(before, rank, done) for rank in range(before)]
        position = {"epoch": 0, "batches": done, "began": seen[0][1].state_dict()["began"]}
        old = {i for ids, _ in seen for i in ids}
        new = {i for rank in range(now) for i in part(now, rank, 60, position)[0]}
        assert old | new == set(range(60))
        assert len(old & new) < now * 2
