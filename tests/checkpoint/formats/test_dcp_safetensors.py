"""Shards of DCP that hold safetensors: a save of torch 2.13 by two ranks, and damage to it; Hugging Face's writer."""

from __future__ import annotations

import json
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from checkpoint_samples import SAMPLES, format_name, judged
from like_torch import Holder, saved
from made_files import safetensors_bytes, safetensors_file

from remuster.checkpoint.formats.finding import Finding, Torn, Unknown, Whole

SAMPLE = SAMPLES / "dcp/safetensors/step-5"
SIZE = tuple[int, ...]


def of_ranks(step: Path, *ranks: int) -> None:
    for rank in ranks:
        safetensors_file(step / f"shard-{rank:05d}-model-00001-of-00001.safetensors")


def joined(step: Path, count: int = 2) -> None:
    of_ranks(step / "sharded", 1, 2)
    names = [f"model-{n:05d}-of-{count:05d}.safetensors" for n in range(1, count + 1)]
    for n, name in enumerate(names):
        safetensors_file(step / name, (f"w{n}",))
    index = {"metadata": {}, "weight_map": {f"w{n}": name for n, name in enumerate(names)}}
    (step / "model.safetensors.index.json").write_text(json.dumps(index))


def alone(
    step: Path,
    *,
    place: SIZE = (4,),
    length: int | None = None,
    transformed: object = None,
    held: str = "w",
    shape: SIZE = (4,),
    data: bytes = b"\1" * 16,
) -> None:
    """Make a save with one tensor in its shard, as single_file_per_rank=False leaves them."""
    step.mkdir(parents=True)
    about = {"DCP_SHARDING_INFO": json.dumps({held: {"saved_offsets": [4]}}), "format": "pt"}
    header = {"__metadata__": about, held: {"dtype": "F32", "shape": shape, "data_offsets": [0, len(data)]}}
    first = saved(1)
    (step / "__0_0.distcp").write_bytes(first + safetensors_bytes(header, data))
    size = Holder(relative_path="__0_0.distcp", offset=0, length=len(first))
    length = len(data) if length is None else length
    info = Holder(relative_path="__0_0.distcp", offset=len(first), length=length, transform_descriptors=transformed)
    index = Holder(fqn="w", offset=Size(place), index=0)
    told = {Holder(fqn="step", offset=None, index=None): size, index: info}
    state = {"w": Holder(chunks=[Holder(offsets=Size(place))]), "step": Holder()}
    (step / ".metadata").write_bytes(
        pickle.dumps(Holder(state_dict_metadata=state, planner_data={}, storage_data=told))
    )


class Size(tuple[int, ...]):
    """Stands for torch.Size."""

    def __reduce__(self) -> tuple[type, tuple[SIZE]]:
        return Size, (tuple(self),)


@pytest.mark.parametrize(
    ("shape", "data", "whole"),
    [
        pytest.param((0,), b"", True, id="an empty tensor"),
        pytest.param((8, 64), bytes(2048), True, id="a part that is all zeros"),
        pytest.param((8, 64), b"\1" * 1024 + bytes(1024), True, id="rows of zeros"),
        pytest.param((8, 64), b"\1" * 1000 + bytes(1048), False, id="zeros from within a row on"),
    ],
)
def test_a_part_may_be_zeros_but_not_from_within_a_row_on(
    tmp_path: Path, shape: SIZE, data: bytes, whole: bool
) -> None:
    alone(tmp_path / "step-5", shape=shape, data=data)
    assert isinstance(judged(tmp_path / "step-5"), Whole if whole else Torn)


def test_each_tensor_that_is_alone_in_its_shard_is_found(tmp_path: Path) -> None:
    alone(tmp_path / "step-5")
    found = judged(tmp_path / "step-5")
    assert isinstance(found, Whole)
    assert "CRC-32 of 1 pieces in them (sizes only of 1: without checksums)" in found.how


@pytest.mark.parametrize(
    ("make", "words"),
    [
        pytest.param(lambda s: alone(s, place=(0,)), "holds another part of 'w'", id="another rank's part"),
        pytest.param(lambda s: alone(s, length=12), "does not hold the 12 bytes of 'w'", id="another length"),
        pytest.param(lambda s: alone(s, held="v"), "does not hold the 16 bytes of 'w'", id="another tensor"),
    ],
)
def test_what_the_header_says_must_be_what_the_metadata_says(
    tmp_path: Path, make: Callable[[Path], None], words: str
) -> None:
    make(tmp_path / "step-5")
    found = judged(tmp_path / "step-5")
    assert isinstance(found, Torn)
    assert words in found.reason


@pytest.mark.parametrize("data", [b"\1" * 16, b""])
def test_what_an_extension_has_transformed_is_known_by_its_size(tmp_path: Path, data: bytes) -> None:
    alone(tmp_path / "step-5", transformed=["some"], data=data, shape=(len(data) // 4,), held="other")
    found = judged(tmp_path / "step-5")
    assert isinstance(found, Whole)
    assert "sizes only of 1: transformed" in found.how


@pytest.mark.parametrize("lengths", [(16, 0), (0, 16), (16, 16), (0, 0)], ids=str)
def test_what_an_extension_has_transformed_at_one_place_is_unknown(tmp_path: Path, lengths: SIZE) -> None:
    (tmp_path / "step-5").mkdir()
    (tmp_path / "step-5/__0_0.distcp").write_bytes(bytes(99))
    told = {
        Holder(fqn=f"w{n}", offset=None, index=None): Holder(
            relative_path="__0_0.distcp", offset=9, length=length, transform_descriptors=["some"]
        )
        for n, length in enumerate(lengths)
    }
    state = {"w0": Holder(), "w1": Holder()}
    whole = Holder(state_dict_metadata=state, planner_data={}, storage_data=told)
    (tmp_path / "step-5/.metadata").write_bytes(pickle.dumps(whole))
    assert isinstance(judged(tmp_path / "step-5"), Unknown)


def test_every_save_of_safetensors_that_was_cut_short_is_seen(tmp_path: Path) -> None:
    place = Path(shutil.copytree(SAMPLE, tmp_path / "step-5"))
    for shard in ("__0_0.distcp", "__1_0.distcp"):
        data = (place / shard).read_bytes()
        for size in (*range(0, len(data), 97), len(data) - 1):
            (place / shard).write_bytes(data[:size])
            for deep in (True, False):
                found = judged(place, deep=deep)
                assert isinstance(found, Torn), (shard, size, deep)
                assert shard in found.reason
        (place / shard).write_bytes(data + b"\0")
        assert isinstance(judged(place), Torn)
        (place / shard).write_bytes(data)
    assert isinstance(judged(place), Whole)


def test_a_byte_of_what_is_no_tensor_is_seen(tmp_path: Path) -> None:
    place = Path(shutil.copytree(SAMPLE, tmp_path / "step-5"))
    data = bytearray((place / "__1_0.distcp").read_bytes())
    data[data.index(b"\x80\x02") + 4] ^= 1
    (place / "__1_0.distcp").write_bytes(data)
    found = judged(place)
    assert isinstance(found, Torn)
    assert "'optim.param_groups.0.lr'" in found.reason


@pytest.mark.parametrize("shard", ["__0_0.distcp", "__1_0.distcp"])
def test_another_ranks_shard_in_its_place_is_seen(tmp_path: Path, shard: str) -> None:
    place = Path(shutil.copytree(SAMPLE, tmp_path / "step-5"))
    shutil.copy(place / shard, place / ({"__0_0.distcp", "__1_0.distcp"} - {shard}).pop())
    assert isinstance(judged(place), Torn)


@pytest.mark.parametrize(
    ("make", "says", "words"),
    [
        pytest.param(lambda s: of_ranks(s, 1, 2), Unknown, "nothing says how many there must be", id="ranks' files"),
        pytest.param(lambda s: of_ranks(s, 2), Unknown, "nothing says how many", id="one rank had nothing to write"),
        pytest.param(
            lambda s: (of_ranks(s, 1), cut(s / "shard-00001-model-00001-of-00001.safetensors")),
            Torn,
            "bytes of tensors; its header promises",
            id="a rank's file, cut short",
        ),
        pytest.param(joined, Unknown, "not what a job resumes from", id="joined"),
        pytest.param(
            lambda s: (joined(s), (s / "model-00002-of-00002.safetensors").unlink()),
            Torn,
            "'model-00002-of-00002.safetensors' is missing",
            id="joined, one gone",
        ),
        pytest.param(
            lambda s: (joined(s), (s / "model.safetensors.index.json").unlink()),
            Torn,
            "'model.safetensors.index.json' is missing",
            id="joined, not to the end",
        ),
        pytest.param(
            lambda s: (joined(s), cut(s / "model-00001-of-00002.safetensors")), Torn, "promises", id="joined, cut short"
        ),
        pytest.param(
            lambda s: (joined(s), cut(s / "sharded/shard-00002-model-00001-of-00001.safetensors")),
            Torn,
            "shard-00002",
            id="joined, a rank's file cut short",
        ),
    ],
)
@pytest.mark.parametrize("name", ["step-5", "checkpoint-5", "checkpoint_5"])
def test_what_hugging_faces_writer_leaves_is_never_whole(
    tmp_path: Path, name: str, make: Callable[[Path], object], says: type[Finding], words: str
) -> None:
    make(tmp_path / name)
    assert format_name(tmp_path / name) == "dcp"
    found = judged(tmp_path / name)
    assert isinstance(found, says)
    assert isinstance(found, (Torn, Unknown))
    assert words in found.reason


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])
