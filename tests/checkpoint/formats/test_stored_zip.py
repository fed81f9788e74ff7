"""Archives of torch.save are read more strictly than the standard library does."""

from __future__ import annotations

import io
import os
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from checkpoint_samples import SAMPLES

from remuster.checkpoint.errors import GaveUp
from remuster.checkpoint.formats.stored_zip import NotWhole, StoredZip

REAL = SAMPLES / "deepspeed/z2/global_step2/mp_rank_00_model_states.pt"


def checked(path: Path, data: bytes, start: int = 0) -> None:
    path.write_bytes(b"-" * start + data + b"-" * start)
    fd = os.open(path, os.O_RDONLY)
    try:
        StoredZip(fd, start, len(data)).check()
    finally:
        os.close(fd)


@pytest.fixture
def descriptor() -> Iterator[int]:
    fd = os.open(REAL, os.O_RDONLY)
    yield fd
    os.close(fd)


def test_members_are_those_that_the_standard_library_finds(descriptor: int) -> None:
    archive = StoredZip(descriptor, 0, REAL.stat().st_size)
    with zipfile.ZipFile(REAL) as other:
        assert {m.name.decode(): archive.content(m) for m in archive.members} == {
            name: other.read(name) for name in other.namelist()
        }


def test_an_archive_inside_a_file_is_read_by_its_place(tmp_path: Path) -> None:
    checked(tmp_path / "a", REAL.read_bytes(), start=1000)


def test_cut_short_anywhere_it_is_not_whole(tmp_path: Path) -> None:
    whole = REAL.read_bytes()
    for length in range(0, len(whole), 7):
        with pytest.raises(NotWhole):
            checked(tmp_path / "a", whole[:length])


def test_any_changed_byte_of_a_members_content_is_seen(tmp_path: Path) -> None:
    whole = REAL.read_bytes()
    with zipfile.ZipFile(REAL) as archive:
        starts = [(whole.index(archive.read(m), m.header_offset), m.file_size) for m in archive.infolist()]
    places = [at for start, size in starts for at in range(start, start + size, 13)]
    for at in places:
        with pytest.raises(NotWhole):
            checked(tmp_path / "a", whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])


@pytest.mark.parametrize("fields", [(8, 12), (16, 12), (24, 8)], ids=["method to CRC", "CRC and sizes", "size, length"])
def test_zeros_in_an_entry_of_the_directory_are_seen(tmp_path: Path, fields: tuple[int, int]) -> None:
    whole = REAL.read_bytes()
    at, length = whole.index(b"PK\1\2") + fields[0], fields[1]
    with pytest.raises(NotWhole):
        checked(tmp_path / "a", whole[:at] + bytes(length) + whole[at + length :])


@pytest.mark.parametrize("back", range(1, 99, 4))
def test_zeros_in_the_end_are_seen_unless_they_were_zeros(tmp_path: Path, back: int) -> None:
    whole = REAL.read_bytes()
    now = (
        whole[:-back] + bytes(min(8, back)) + whole[len(whole) - back + 8 :]
        if back > 8
        else whole[:-back] + bytes(back)
    )
    versions = range(98 - 12 - 4, 98 - 12)  # "made by" and "needed" in the end record: nobody reads them
    if now == whole or set(range(back - 8, back)) & set(versions):
        return
    with pytest.raises(NotWhole):
        checked(tmp_path / "a", now)


def test_compressed_members_are_refused(tmp_path: Path) -> None:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data.pkl", b"a" * 1000)
    with pytest.raises(NotWhole, match="compressed"):
        checked(tmp_path / "a", data.getvalue())


def test_large_members_are_read_in_blocks_and_until_told_to_stop(tmp_path: Path) -> None:
    path, asked = tmp_path / "large", 0

    def stop() -> bool:
        nonlocal asked
        asked += 1
        return asked > 3

    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data/0", os.urandom(5 << 20))
    fd = os.open(path, os.O_RDONLY)
    archive = StoredZip(fd, 0, path.stat().st_size)
    archive.check()
    with pytest.raises(GaveUp):
        archive.check(stop)
    os.close(fd)
    assert asked == 4
