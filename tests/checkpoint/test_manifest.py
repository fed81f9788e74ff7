"""The manifest as a value: what is read, what is kept, what is refused and with which words."""

from __future__ import annotations

import json

import pytest

from remuster.checkpoint import BadManifest
from remuster.checkpoint.manifest import (
    MAX_BYTES,
    FileEntry,
    Manifest,
    committed,
    digest,
    parse,
    parse_committed,
    unsafe_path,
)

SHA = "ab" * 32
GOOD = {
    "schema_version": 1,
    "run_id": "run-digits-001",
    "attempt": 2,
    "round": 2,
    "step": 5,
    "world_size": 2,
    "parallelism": {"dp": 2},
    "framework": {"name": "pytorch", "version": "2.13.0+cpu"},
    "code_commit": None,
    "dataset_snapshot": "sklearn-digits-1797",
    "files": [{"path": "state.pt", "bytes": 59069, "sha256": SHA}],
    "created_at": "2026-11-29T11:39:00Z",
}


def bytes_of(**changed: object) -> bytes:
    """Spell GOOD with some keys changed; a value of ``...`` drops the key."""
    return json.dumps({k: v for k, v in {**GOOD, **changed}.items() if v is not ...}).encode()


def entry(**changed: object) -> list[object]:
    return [{"path": "state.pt", "bytes": 1, "sha256": SHA, **changed}]


def test_a_manifest_without_incarnation_is_ours() -> None:
    manifest = parse(bytes_of())
    assert (manifest.run_id, manifest.round, manifest.step, manifest.incarnation) == ("run-digits-001", 2, 5, "")
    assert manifest.files == (FileEntry("state.pt", 59069, SHA),)


def test_what_is_written_is_read_back_and_unknown_keys_are_kept() -> None:
    first = parse(bytes_of(incarnation="6f", tuned_by={"who": ["me"]}))
    assert first.extra == {"tuned_by": {"who": ["me"]}}
    assert parse(first.to_bytes()) == first
    assert json.loads(first.to_bytes()) == {**GOOD, "incarnation": "6f", "save_ms": None, "tuned_by": {"who": ["me"]}}


def test_an_unknown_key_never_replaces_a_known_one() -> None:
    manifest = Manifest("r", 0, 1, 7, (FileEntry("a", 1, SHA),), extra={"step": 9})
    assert parse(manifest.to_bytes()).step == 7


@pytest.mark.parametrize("key", ["run_id", "round", "step", "files", "schema_version"])
def test_what_a_reader_decides_by_must_be_there(key: str) -> None:
    with pytest.raises(BadManifest, match=key):
        parse(bytes_of(**{key: ...}))


@pytest.mark.parametrize("key", ["attempt", "world_size", "parallelism", "framework", "code_commit", "created_at"])
def test_what_no_reader_decides_by_may_be_absent(key: str) -> None:
    parse(bytes_of(**{key: ...}))
    parse(bytes_of(**{key: None}))


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "not JSON"),
        (b"\xff\xfe", "not JSON"),
        (b"[]", "not a JSON object"),
        (b"null", "not a JSON object"),
        (b"[" * 100_000, "not JSON"),
        (b'{"step": 1, "step": 2}', "a key stands twice"),
        (b'{"schema_version": NaN}', "NaN"),
        (b'{"step": ' + b"9" * 10_000 + b"}", "not JSON"),
        (b" " * (MAX_BYTES + 1), "larger than"),
        (bytes_of(schema_version=2), "schema_version 2; this remuster reads 1: use a newer one"),
        (bytes_of(schema_version="1"), "'schema_version' is not a whole number"),
        (bytes_of(step=True), "'step' is not a whole number"),
        (bytes_of(step=5.0), "'step' is not a whole number"),
        (bytes_of(step=-1), "'step' is not a whole number"),
        (bytes_of(round="2"), "'round' is not a whole number"),
        (bytes_of(run_id=7), "'run_id' is not a text"),
        (bytes_of(parallelism=[]), "'parallelism' is not an object"),
        (bytes_of(files=[]), "lists no files"),
        (bytes_of(files={"state.pt": 1}), "lists no files"),
        (bytes_of(files=["state.pt"]), "is not an object"),
        (bytes_of(files=entry(bytes=-1)), "'bytes'"),
        (bytes_of(files=[{"path": "a", "sha256": SHA}]), "no 'bytes'"),
        (bytes_of(files=entry(sha256="AB" * 32)), "64 lower-case hex digits"),
        (bytes_of(files=entry(sha256=SHA[1:])), "64 lower-case hex digits"),
        (bytes_of(files=entry(path="/etc/passwd")), "is absolute"),
        (bytes_of(files=entry(path="../x")), "'..' part"),
        (bytes_of(files=entry(path="a/../../x")), "'..' part"),
        (bytes_of(files=entry(path="COMMITTED")), "name of the protocol"),
        (bytes_of(files=entry() * 2), "lists 'state.pt' twice"),
    ],
)
def test_a_bad_manifest_is_refused_in_words(data: bytes, words: str) -> None:
    with pytest.raises(BadManifest) as caught:
        parse(data)
    assert words in str(caught.value)


@pytest.mark.parametrize("path", ["", "a\0b", "/a", "..", "a/..", "a//b", "./a", "a/", "manifest.json", "\udcff.pt"])
def test_unsafe_paths(path: str) -> None:
    assert unsafe_path(path)


@pytest.mark.parametrize("path", ["a", "a/b/c.pt", "..a", "größe.pt", "sub/COMMITTED", "with space"])
def test_safe_paths(path: str) -> None:
    assert unsafe_path(path) == ""


def test_committed_names_the_digest_of_the_manifest() -> None:
    assert parse_committed(committed(b"text")) == digest(b"text")
    assert parse_committed(b"sha256:" + SHA.encode()) == SHA


@pytest.mark.parametrize(
    "data", [b"", b"\n", SHA.encode(), b"sha256:", b"md5:" + SHA.encode(), b"sha256:ff\n", b"\xff"]
)
def test_committed_that_names_nothing(data: bytes) -> None:
    with pytest.raises(BadManifest, match="COMMITTED does not hold"):
        parse_committed(data)
