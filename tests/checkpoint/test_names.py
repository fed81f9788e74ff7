"""What names say: which entries can be checkpoints, which is newer, which was never finished."""

from __future__ import annotations

import pytest

from remuster.checkpoint.names import Candidate, candidate, shown


@pytest.mark.parametrize(
    ("name", "step"),
    [
        ("step-000000000005", 5),
        ("step-00000005", 5),
        ("global_step5", 5),
        ("global_step10_universal", 10),
        ("iter_0000005", 5),
        ("checkpoint-5", 5),
        ("checkpoint_5", 5),
        ("steps_100", 100),
        ("5", 5),
        ("epoch=0-step=5.ckpt", 5),
        ("epoch=1-step=35-v1.ckpt", 35),
        ("step_5-val0.91", 5),
        ("ckpt-1000.pth.tar", 1000),
        ("model_v2_epoch3.pth", 3),
        ("iteration-7.pt", 7),
        ("epoch=3-step=1200.ckpt", 1200),
        ("step=1200-epoch=3.ckpt", 1200),
        ("epoch=3-step=1200-train_loss_step=0.25.ckpt", 1200),
        ("epoch=3-step=1200-val_step=7.ckpt", 1200),
        ("my_step=7-step=1200.ckpt", 1200),
        ("mine--val_loss=2.34-step=1000-consumed_samples=256000.0-last.ckpt", 1000),
        ("epoch=3-val_loss=0.25-global_step=1200.0.ckpt", 1200),
        ("epoch=3-step=0.25.ckpt", 3),
        ("checkpoint-epoch-12", 12),
        ("epoch=03-val_acc=95.ckpt", 3),
        ("epoch=3-val_loss=0.25.ckpt", 3),
        ("ep3-ba1200-rank0.pt", 1200),
        ("train_step_500.pt", 500),
        ("checkpoint_3_1200.pt", 1200),
        ("bar7-2.pt", 2),
    ],
)
def test_the_step_in_a_name(name: str, step: int) -> None:
    assert candidate(name, is_file=name.endswith((".ckpt", ".tar", ".pth", ".pt"))) == Candidate(name, step, step)


@pytest.mark.parametrize(
    "name", ["last.ckpt", "best-loss=0.25.ckpt", "model.pt", "release", "step-" + "9" * 40, "step-٢٠"]
)
def test_a_name_without_a_step_comes_after_those_that_have_one(name: str) -> None:
    assert candidate(name, is_file="." in name) == Candidate(name, -1)


def test_a_batch_counts_within_its_epoch() -> None:
    names = ("epoch-1-batch-900.pt", "epoch-2-batch-90.pt", "epoch-2-batch-100.pt")
    found = [one for name in names if (one := candidate(name, True))]
    assert [one.order for one in found] == sorted(one.order for one in found)
    assert len({one.order for one in found}) == 3
    assert {one.step for one in found} == {None}


def test_a_date_orders_but_is_no_step() -> None:
    older, newer = (candidate(f"checkpoint_2026-11-29_11-4{n}", False) for n in ("3-28.575354", "5-01"))
    assert older is not None
    assert newer is not None
    assert older.order < newer.order
    assert older.step is newer.step is None


@pytest.mark.parametrize(
    ("name", "step"),
    [
        ("10.orbax-checkpoint-tmp", 10),
        ("10.orbax-checkpoint-tmp-1700000000", 10),
        ("step-000000000010.tmp-attempt-03", 10),
        ("step-000000000010.superseded-3-1", 10),
        ("step-000000000010.tmp", 10),
        ("epoch=3.ckpt.part.ckpt", 3),
    ],
)
def test_what_was_not_finished_says_so(name: str, step: int) -> None:
    assert candidate(name, is_file=name.endswith(".ckpt")) == Candidate(name, step, step, unfinished=True)


@pytest.mark.parametrize(
    ("name", "is_file"),
    [
        (".remuster", False),
        (".step-5", False),
        ("latest_checkpointed_iteration.txt", True),
        ("train-5.log", True),
        ("zero_to_fp32.py", True),
        ("5.json", True),
    ],
)
def test_what_is_no_checkpoint(name: str, is_file: bool) -> None:
    assert candidate(name, is_file) is None


def test_template_words_name_no_unfinished_step() -> None:
    found = candidate("step-5.template", is_file=False)
    assert found is not None
    assert not found.unfinished


def test_a_name_of_any_bytes_can_be_shown() -> None:
    assert (shown("step-5"), shown("a\nb"), shown("step-\udcff")) == ("step-5", r"a\nb", r"step-\udcff")


def test_a_date_without_hyphens_orders_too() -> None:
    older, newer = (candidate(f"run_{date}", False) for date in ("20261129_235959", "20261130-000001"))
    assert older is not None
    assert newer is not None
    assert older.order < newer.order
    assert older.step is newer.step is None
