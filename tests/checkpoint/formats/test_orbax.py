"""Orbax' step folders: the real ones, and what is wrong with others; the B+tree and its packing."""

from __future__ import annotations

import base64
import json
import os
import random
import shutil
from pathlib import Path

import pytest
from checkpoint_samples import SAMPLES, format_name, judged

from remuster.checkpoint.errors import GaveUp
from remuster.checkpoint.formats import ocdbt
from remuster.checkpoint.formats.finding import Question, Torn, Whole
from remuster.checkpoint.formats.folder import Folder
from remuster.checkpoint.formats.orbax import Orbax
from remuster.checkpoint.formats.zstd import TooLong, unpacked

REAL = SAMPLES / "orbax" / "complete" / "5"
KILLED = SAMPLES / "orbax" / "torn-rank0-killed-in-save" / "10.orbax-checkpoint-tmp"
ROOT = "default/d/66edf621369a8391045d15956d95a35e"
VALUES = (
    "default/ocdbt.process_0/d/184ef54caaa036fde008245a591cd61b",
    "default/ocdbt.process_1/d/3bd0fe5ed2bca9a4fb84518440fe3974",
)


@pytest.fixture
def real(tmp_path: Path) -> Path:
    """A copy of the real one, which two processes wrote."""
    return Path(shutil.copytree(REAL, tmp_path / "5"))


def torn(path: Path) -> Torn:
    finding = judged(path)
    assert isinstance(finding, Torn), finding
    return finding


def test_the_real_one_is_whole() -> None:
    finding = judged(REAL)
    assert format_name(REAL) == "orbax"
    assert isinstance(finding, Whole)
    assert (finding.step, finding.world) == (None, 2)  # the step is its name's
    assert "the CRC-32C of the index and the presence of 6 pieces" in finding.how
    assert isinstance(judged(REAL, deep=False), Whole)


def test_killed_before_its_rename() -> None:
    assert format_name(KILLED) == "orbax"
    assert torn(KILLED).reason == "it is a temporary folder: the save did not come to its end"


@pytest.mark.parametrize("name", ["10.orbax-checkpoint-tmp", "10.orbax-checkpoint-tmp-1690000000"])
def test_an_empty_temporary_folder(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    assert format_name(tmp_path / name) == "orbax"
    assert isinstance(judged(tmp_path / name), Torn)


def test_an_item_that_was_not_renamed(real: Path) -> None:
    (real / "default").rename(real / "default.orbax-checkpoint-tmp")
    assert "temporary folder" in torn(real).reason


@pytest.mark.parametrize(
    "gone",
    [
        "_CHECKPOINT_METADATA",
        "commit_success.txt",
        "default/_METADATA",
        "default/array_metadatas/process_0",
        "default/manifest.ocdbt",
        "default/ocdbt.process_1/manifest.ocdbt",
        "default/array_metadatas/process_1",
        ROOT,
        *VALUES,
    ],
)
def test_a_file_that_is_gone(real: Path, gone: str) -> None:
    (real / gone).unlink()
    assert torn(real).lacking == (gone,)


def test_an_item_that_is_gone(real: Path) -> None:
    shutil.rmtree(real / "default")
    assert torn(real).lacking == ("default/_METADATA",)


@pytest.mark.parametrize("path", ["default/manifest.ocdbt", ROOT, *VALUES])
def test_a_file_of_the_tree_that_was_cut_short(real: Path, path: str) -> None:
    os.truncate(real / path, (real / path).stat().st_size - 10)
    assert path in torn(real).reason


def test_a_piece_of_an_array_that_was_cut_off(real: Path) -> None:
    os.truncate(real / VALUES[0], 15_521)  # its last piece ends at 15522
    with pytest.raises(ocdbt.Broken, match="has 15521 bytes; the tree of arrays needs 15522"):
        ocdbt.follow(Folder(real.parent, real.name), "default/", lambda: False)


def test_any_byte_of_the_index_that_was_changed(real: Path) -> None:
    chance = random.Random(7)
    for path in ("default/manifest.ocdbt", ROOT):
        data = (real / path).read_bytes()
        for at in (*range(12), *chance.sample(range(20, len(data)), 12), len(data) - 1):
            (real / path).write_bytes(data[:at] + bytes([data[at] ^ 1 << chance.randrange(8)]) + data[at + 1 :])
            assert path in torn(real).reason, at
        (real / path).write_bytes(data)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"commit_timestamp_nsecs": None}, "has no commit time"),
        ({"item_handlers": {"default": "X", "state": "Y"}}, "'state/_METADATA' is missing"),
    ],
)
def test_its_own_metadata(real: Path, change: dict[str, object], words: str) -> None:
    metadata = json.loads((real / "_CHECKPOINT_METADATA").read_text())
    (real / "_CHECKPOINT_METADATA").write_text(json.dumps({**metadata, **change}))
    assert words in torn(real).reason


@pytest.mark.parametrize("path", ["_CHECKPOINT_METADATA", "default/_METADATA", "default/_sharding"])
def test_metadata_that_was_cut_short(real: Path, path: str) -> None:
    os.truncate(real / path, 40)
    assert f"{path!r} is cut short or no JSON" in torn(real).reason


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("default/_METADATA", "does not describe a tree"),
        ("default/array_metadatas/process_0", "does not describe arrays"),
        ("default/_sharding", "does not describe how arrays were sharded"),
        ("commit_success.txt", "does not say that the commit was successful"),
    ],
)
def test_a_file_with_the_content_of_another(real: Path, path: str, words: str) -> None:
    shutil.copy(real / "_CHECKPOINT_METADATA", real / path)
    assert words in torn(real).reason


def test_one_that_was_saved_without_items(real: Path) -> None:
    for path in (real / "default").iterdir():
        if path.name != "commit_success.txt":
            path.rename(real / path.name)
    shutil.rmtree(real / "default")
    metadata = json.loads((real / "_CHECKPOINT_METADATA").read_text())
    handler = metadata["item_handlers"]["default"]
    (real / "_CHECKPOINT_METADATA").write_text(json.dumps({**metadata, "item_handlers": handler}))
    assert isinstance(judged(real), Whole)
    (real / VALUES[0].removeprefix("default/")).unlink()
    assert isinstance(judged(real), Torn)


def test_it_ends_when_its_time_is_over() -> None:
    with pytest.raises(GaveUp):
        Orbax().judge(Folder(REAL.parent, REAL.name), Question(give_up=lambda: True))


def test_the_checksum() -> None:
    assert ocdbt.crc32c(b"123456789") == 0xE3069283  # the check value that its catalogue gives


KEYS = b"".join(b"opt.0.mu.layer_%d.w%d/%d.%d" % (n % 7, n % 3, n * n % 11, n % 5) for n in range(60))
NOISE = bytes(n * n * 7 % 251 for n in range(300))
LETTERS = bytes(97 + (n * n + n // 7) % 13 % 5 for n in range(1500))
FRAMES = [  # as libzstd 1.5 packed them, at levels 1 (with a checksum) and 19
    (
        KEYS,
        "KLUv/WRkBD0HAOIIFhWgNekJd4cll/RVZVchUkqZEv9/CAG0GhSiO8OlqeEW/opm6E+K/Vyiv8LsV6V8NMR+Ip+l3rBf0Q3lK1rRH80G+42M"
        "KJ94pj93Zb8GEIMAAWEAhXWJgyFlqLGyIIUK7mcwQwlq9BF0lREeY1ZrA5D5wtPT2jP/zd3tekI670CNbfP6WtX4n/ujfLB9+7nuzYRt90II"
        "a+ewVq3utDdz7dZui63eM39sebZ6IYS1cyw7G9alKXPxX1pl0qo9m+bXZqjZTN8j6PPFheHnsXFuc9QYlJZrnGykdQhoKVCvpaUZ1Pr5KvIB"
        "60I=",
    ),
    (
        KEYS,
        "KLUv/WBkBF0GAPIOHxSgGdIBhO/+5beryuY+kXtLmf8PQ33UhC7nXmddmvCxq/WgCe9mX026nOzRq+jByW5nPZq8m/RRF/ExtMmwd1ZziN6Q"
        "czZila7iRXuwqwugOfi6Wb1UE9J4zcqAXUPl0cew3JrMykV3qEycwzL3ZuUFEIOFgLCi8E4cDAFJqCFMATpYcj8DwFUKHSEkASLCE4VOgMcB"
        "0utrseGiqGHX22s3bP64ASIBkcG4p2BvRpIfQyAEMJDGlJTWli6V6BWy7uv5PM9p3UgV",
    ),
    (bytes(5000), "KLUv/WSIEk0AABAAAAEAg9MDLCW3MjA="),
    (
        NOISE,
        "KLUv/WAsAC0IAMQPAAccP3CvAVzFQcZeBLN1RSMPCREnS329EGzWU9lyGcmMXTwpJC1EaZzdMY75dwOYQPG1h2dVUVtzmc0UZMIzrTrQeTDw"
        "w6STkJu02xVYqQ169YMfxHxCFvPj4e0MNGquBWXTVN57JtqhdllKSVZxmtEbbs9DwFDplU8X6My+vszoF0+V6VDAQ89uG9GacVZJSll2odom"
        "e95U02UFrmo0DO3h4/MWQnzEH4P1eg2pWBXbtJuQk6TD8DB50DqtM8JkFM2Zc1tRVWeHtfFAmAN3+Y4x3ZxpRC0kKTxdjMkZctlT1mwQvX1L"
        "JxEJDyNFdbMEXsZBxVwBr3A/HAcAAQD8/JGRAg==",
    ),
    (LETTERS, "KLUv/WDcBGUBALKFCAbwOTLN5x4Bm+TvWj5XqXgtxBAJKMeMgOIQ5P1N4ZVsJBYBAJtf3h+i"),
    (b"raw", "KLUv/SADGQAAcmF3"),
]


@pytest.mark.parametrize(("content", "packed"), FRAMES)
def test_what_was_packed_is_unpacked(content: bytes, packed: str) -> None:
    frame = base64.b64decode(packed)
    assert unpacked(frame, 1 << 20) == content
    with pytest.raises(TooLong):
        unpacked(frame, len(content) - 1)


def test_any_other_bytes_end_in_words() -> None:
    chance = random.Random(3)
    for content, packed in FRAMES:
        frame = base64.b64decode(packed)
        for _ in range(60):
            bad = bytearray(frame[: chance.choice([len(frame), chance.randrange(len(frame))])])
            for _ in range(chance.randrange(4) if bad else 0):
                bad[chance.randrange(len(bad))] = chance.randrange(256)
            try:
                assert len(unpacked(bytes(bad), 1 << 16)) <= 1 << 16, content
            except ValueError:
                continue


@pytest.mark.parametrize("kind", ["packed", "plain"])
def test_a_tree_of_several_levels(tmp_path: Path, kind: str) -> None:
    """As tensorstore wrote it, with nodes of 400 bytes; of its 60 values half are too large to lie in them."""
    path = Path(shutil.copytree(SAMPLES / "ocdbt" / kind, tmp_path / kind))
    tree = ocdbt.follow(Folder(tmp_path, kind), "", lambda: False)
    assert (tree.values, tree.followed) == (30, True)
    chance = random.Random(1)
    for file in sorted(tree.files):
        data = (path / file).read_bytes()
        (path / file).write_bytes(data[: chance.randrange(len(data) // 2)])
        with pytest.raises(ocdbt.Broken, match=file):
            ocdbt.follow(Folder(tmp_path, kind), "", lambda: False)
        (path / file).write_bytes(data)
