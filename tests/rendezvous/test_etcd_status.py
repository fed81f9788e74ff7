"""What gRPC's codes and etcd's words are taken for."""

from __future__ import annotations

import pytest

from remuster.rendezvous.etcd_status import Remedy, remedy, sentence


@pytest.mark.parametrize(
    ("code", "words", "expected"),
    [
        ("UNAVAILABLE", "failed to connect to all addresses", Remedy.MOVE),
        ("UNAVAILABLE", "etcdserver: leader changed", Remedy.MOVE),
        ("UNAVAILABLE", "etcdserver: request timed out", Remedy.MOVE),
        ("DEADLINE_EXCEEDED", "", Remedy.MOVE),
        ("CANCELLED", "", Remedy.MOVE),
        ("UNKNOWN", "raft proposal dropped", Remedy.MOVE),
        ("INTERNAL", "stream reset", Remedy.MOVE),
        ("OK", "", Remedy.MOVE),
        ("RESOURCE_EXHAUSTED", "etcdserver: too many requests", Remedy.WAIT),
        ("RESOURCE_EXHAUSTED", "etcdserver: mvcc: database space exceeded", Remedy.REFUSE),
        ("NOT_FOUND", "etcdserver: requested lease not found", Remedy.LEASE_GONE),
        ("FAILED_PRECONDITION", "etcdserver: lease already exists", Remedy.LEASE_EXISTS),
        ("UNAUTHENTICATED", "etcdserver: invalid auth token", Remedy.LOGIN),
        ("INVALID_ARGUMENT", "etcdserver: revision of auth store is old", Remedy.LOGIN),
        ("INVALID_ARGUMENT", "etcdserver: user name is empty", Remedy.REFUSE),
        ("INVALID_ARGUMENT", "etcdserver: authentication failed, invalid user ID or password", Remedy.REFUSE),
        ("INVALID_ARGUMENT", "etcdserver: request is too large", Remedy.REFUSE),
        ("FAILED_PRECONDITION", "etcdserver: authentication is not enabled", Remedy.REFUSE),
        ("PERMISSION_DENIED", "etcdserver: permission denied", Remedy.REFUSE),
        ("DATA_LOSS", "etcdserver: corrupt cluster", Remedy.REFUSE),
        ("UNIMPLEMENTED", "", Remedy.REFUSE),
    ],
)
def test_remedy(code: str, words: str, expected: Remedy) -> None:
    assert remedy(code, words) is expected


@pytest.mark.parametrize(
    ("code", "words", "part"),
    [
        ("UNIMPLEMENTED", "unknown service", "h:1 is not an etcd v3 server"),
        ("INVALID_ARGUMENT", "etcdserver: user name is empty", "give a user name and password"),
        ("INVALID_ARGUMENT", "authentication failed, invalid user ID or password", "refused the user name or password"),
        ("FAILED_PRECONDITION", "etcdserver: authentication is not enabled", "has authentication off"),
        ("PERMISSION_DENIED", "etcdserver: permission denied", "grant the user a role"),
        ("RESOURCE_EXHAUSTED", "etcdserver: mvcc: database space exceeded", "out of space"),
        ("INVALID_ARGUMENT", "etcdserver: request is too large", "request is too large (INVALID_ARGUMENT)"),
        ("DATA_LOSS", "", "no reason given"),
    ],
)
def test_a_refusal_says_who_refused_and_what_to_do(code: str, words: str, part: str) -> None:
    said = sentence(code, words, "h:1")
    assert part in said
    assert "h:1" in said
