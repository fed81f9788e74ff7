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
        ("ckpt_100k", 100_000),
        ("ckpt_100K.pt", 100_000),
        ("100k", 100_000),
        ("1.5k", 1500),
        ("checkpoint-0.5k", 500),
        ("step=1.5k-epoch=2", 1500),
        ("step-10M", 10_000_000),
        ("iter_10m", 10_000_000),
        ("10M", 10_000_000),
        ("ckpt_1.25M.pt", 1_250_000),
        ("model_100k.pth", 100_000),
        ("run3_100k", 100_000),
        ("100k_steps", 100_000),
        ("100ksteps", 100_000),
        ("save_2M_rank0", 2_000_000),
        ("gpt_124M_20k", 20_000),
    ],
)
def test_the_step_in_a_name(name: str, step: int) -> None:
    assert candidate(name, is_file=name.endswith((".ckpt", ".tar", ".pth", ".pt"))) == Candidate(name, step, step)


@pytest.mark.parametrize(
    ("name", "step"),
    [
        ("4k-context-step-200", 200),
        ("step-200-4k-context", 200),
        ("ckpt-200-4k-context", 200),
        ("ckpt-200-ctx4k", 200),
        ("seq_len_4k-ckpt-200", 200),
        ("200-vocab32k", 200),
        ("ckpt_100k_resnet", 100_000),
        ("step200kl", 200),
        ("step200kl0.5", 200),
        ("ckpt_16khz", 16),
        ("llama-7b-200", 200),
        ("200-llama-7b", 200),
        ("200-gpt_124M", 200),
        ("1.3B-200", 200),
        ("gpt2_124M_step_500", 500),
        ("step1000-tokens4B", 1000),
        ("step7b", 7),
        ("checkpoint-7b", 7),
        ("3k2", 2),
        ("1.5555k-step-7", 7),
    ],
)
def test_a_letter_behind_a_number_may_mean_something_else(name: str, step: int) -> None:
    assert candidate(name, is_file=False) == Candidate(name, step, step)


def test_numbers_in_thousands_and_millions_order_with_the_others() -> None:
    names = ("ckpt_500", "ckpt_1k", "ckpt_1200", "ckpt_1.5k", "ckpt_900k", "ckpt_1M", "ckpt_1.05M", "ckpt_2000000")
    found = [one.order for name in names if (one := candidate(name, False))]
    assert found == sorted(set(found))
    batches = [candidate(f"epoch-2-batch-{n}.pt", True) for n in ("900", "1k", "1.5k", "1M")]
    assert [one.order % 10**9 for one in batches if one] == [900, 1000, 1500, 1_000_000]


@pytest.mark.parametrize(
    "name",
    [
        *("model_7b", "llama-7B", "model_350M", "pythia-1.4B", "llama-8b-128k-context", "tokens4B", "100M-tokens"),
        "ckpt_1.5555k",
    ],
)
def test_a_models_size_and_what_is_no_whole_number_are_no_step(name: str) -> None:
    assert candidate(name, is_file=False) == Candidate(name, -1)


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
