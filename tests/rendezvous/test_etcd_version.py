"""Which versions of etcd are refused, advised against, or fine."""

from __future__ import annotations

import pytest

from remuster.rendezvous.etcd_version import advice, parse, refusal


@pytest.mark.parametrize(
    ("version", "refused", "parts"),
    [
        ("2.3.8", True, ()),
        ("3.3.27", True, ()),
        ("3.4.0", False, ("etcd 3.4.0 can lose watch events", "revoke the leases of healthy nodes", "upgrade it to")),
        ("3.4.23", False, ("lose watch events",)),
        ("3.4.30", False, ("lose watch events",)),
        ("3.4.31", False, ("can confirm a lease that it has already revoked", "3.4.38, 3.5.23 or newer")),
        ("3.4.37", False, ("can confirm a lease",)),
        ("3.4.38", False, ()),
        ("3.5.0", False, ("data that differ", "3.5.0 to 3.5.2")),
        ("3.5.2", False, ("data that differ",)),
        ("3.5.3", False, ("lose watch events",)),
        ("3.5.12", False, ("lose watch events",)),
        ("3.5.13", False, ("can confirm a lease",)),
        ("3.5.22+git", False, ("can confirm a lease",)),
        ("3.5.23", False, ()),
        ("3.5.30", False, ()),
        ("3.6.0-alpha.0", False, ()),
        ("4.0.1", False, ()),
        ("", False, ()),
        ("unknown", False, ()),
        ("9" * 5000 + ".1.1", False, ()),
    ],
)
def test_versions(version: str, refused: bool, parts: tuple[str, ...]) -> None:
    assert (refusal(version) is not None) == refused
    if not refused:
        said = advice(version) or ""
        assert bool(said) == bool(parts)
        assert all(part in said for part in parts)
    if refused:
        assert version in (refusal(version) or "")


def test_what_was_mended_early_is_not_said_of_later_versions() -> None:
    assert "watch events" not in (advice("3.5.13") or "")


def test_parse() -> None:
    assert parse("3.5.1") == (3, 5, 1)
    assert parse("3.5") is None
