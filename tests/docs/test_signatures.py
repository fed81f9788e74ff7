"""docs/signatures.md: its example is a file that is taken, and its bounds are those of the code."""

from __future__ import annotations

from pathlib import Path

from remuster.health import own_signatures as own

PAGE = (Path(__file__).parents[2] / "docs" / "signatures.md").read_text()


def test_the_example_is_taken() -> None:
    found = own.parse(PAGE.partition("```json\n")[2].partition("```")[0].encode())
    assert [sign.cls for sign in found.signs] == ["fs_transient", "fs_hang", "ignore"]
    assert found.xids == ((31, "gpu_lost"), (94, "watch"))


def test_the_bounds_are_those_of_the_code() -> None:
    assert f"{own.MOST} signatures, {own.MOST} XIDs, {own.LARGEST >> 10} KiB" in PAGE
    assert f"at least {own.LEAST} letters or marks; at most {own.LONGEST} characters and {own.PIECES} pieces" in PAGE
