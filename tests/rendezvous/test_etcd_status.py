"""What gRPC's codes and etcd's words are taken for."""

from __future__ import annotations

import pytest

from remuster.rendezvous.etcd_status import Remedy, brief, printable, remedy, sentence


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
        ("UNKNOWN", "auth: revision in header is old", Remedy.LOGIN),
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
    assert remedy(code, words, token=True) is expected


@pytest.mark.parametrize(
    ("code", "words", "expected"),
    [
        ("UNAUTHENTICATED", "etcdserver: invalid auth token", Remedy.REFUSE),
        ("INVALID_ARGUMENT", "etcdserver: revision of auth store is old", Remedy.WAIT),  # the user is a certificate's
        ("UNKNOWN", "auth: revision in header is old", Remedy.WAIT),
        ("INVALID_ARGUMENT", "etcdserver: user name is empty", Remedy.REFUSE),
    ],
)
def test_remedy_for_who_has_no_token(code: str, words: str, expected: Remedy) -> None:
    assert remedy(code, words, token=False) is expected


@pytest.mark.parametrize(
    ("code", "words", "expected"),
    [
        (
            "UNAVAILABLE",
            "failed to connect to all addresses; last error: UNKNOWN: ipv4:127.0.0.1:1:"
            " Failed to connect to remote host: Connection refused",
            "Connection refused",
        ),
        (
            "UNAVAILABLE",
            "failed to connect to all addresses; last error: UNKNOWN: ipv4:127.0.0.1:1: Tls handshake failed"
            " (TSI_PROTOCOL_FAILURE): SSL_ERROR_SSL: error:1000007d:SSL routines:OPENSSL_internal:"
            "CERTIFICATE_VERIFY_FAILED: certificate has expired: OK",
            "its certificate is not accepted (certificate has expired)",
        ),
        (
            "UNAVAILABLE",
            "last error: UNKNOWN: ipv4:127.0.0.1:1: Ssl handshake failed: SSL_ERROR_SSL: error:1000007d:SSL routines:"
            "OPENSSL_internal:CERTIFICATE_VERIFY_FAILED",
            "its certificate is not accepted (gRPC does not say why)",
        ),
        ("UNAVAILABLE", "last error: UNAVAILABLE: ipv6:%5B::1%5D:1: Socket closed", "Socket closed"),
        ("UNAVAILABLE", "etcdserver: leader changed", "etcdserver: leader changed"),
        ("UNAVAILABLE", "", "no details (UNAVAILABLE)"),
        ("DEADLINE_EXCEEDED", "Deadline Exceeded", "no answer in time"),
        ("INTERNAL", "stream reset", "stream reset (INTERNAL)"),
    ],
)
def test_brief(code: str, words: str, expected: str) -> None:
    assert brief(code, words) == expected


def test_a_servers_words_are_shown_as_one_short_line() -> None:
    assert printable("a\x1b[2Jb\nc") == "a [2Jb c"
    assert len(printable("x" * 10_000)) == 300


@pytest.mark.parametrize(
    ("code", "words", "part"),
    [
        ("UNIMPLEMENTED", "unknown service", "h:1 is not an etcd v3 server"),
        ("INVALID_ARGUMENT", "etcdserver: user name is empty", "give a user name and password"),
        ("INVALID_ARGUMENT", "authentication failed, invalid user ID or password", "refused the user name or password"),
        ("FAILED_PRECONDITION", "etcdserver: authentication is not enabled", "has authentication off"),
        ("PERMISSION_DENIED", "etcdserver: permission denied", "a role with readwrite on their prefix"),
        ("RESOURCE_EXHAUSTED", "etcdserver: mvcc: database space exceeded", "out of space"),
        ("DATA_LOSS", "etcdserver: corrupt cluster", "alarm CORRUPT"),
        ("INVALID_ARGUMENT", "etcdserver: request is too large", "request is too large (INVALID_ARGUMENT)"),
        ("DATA_LOSS", "", "no reason given"),
    ],
)
def test_a_refusal_says_who_refused_and_what_to_do(code: str, words: str, part: str) -> None:
    said = sentence(code, words, "h:1")
    assert part in said
    assert "h:1" in said
