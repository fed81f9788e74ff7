"""What a failed call to etcd means for the caller: a table from gRPC's code and etcd's words. Pure.

Codes are by name, so that nothing here needs gRPC. Called by ``etcd.py``; the sentences are for a person.
"""

from __future__ import annotations

from enum import Enum


class Remedy(Enum):
    """What to do after a failed call."""

    MOVE = "go on with the next endpoint; a write may have been applied"
    WAIT = "ask again a little later; nothing was applied"
    LOGIN = "get a new token and ask again; nothing was applied"
    LEASE_GONE = "the lease has expired or was revoked"
    LEASE_EXISTS = "the lease id is taken: our own earlier try"
    REFUSE = "give up; nothing was applied"


_REFUSING = {
    "INVALID_ARGUMENT",
    "FAILED_PRECONDITION",
    "PERMISSION_DENIED",
    "UNAUTHENTICATED",
    "RESOURCE_EXHAUSTED",
    "UNIMPLEMENTED",
    "OUT_OF_RANGE",
    "NOT_FOUND",
    "ALREADY_EXISTS",
    "DATA_LOSS",
}


def remedy(code: str, words: str) -> Remedy:
    """Return what a call that ended with ``code`` and etcd's ``words`` calls for."""
    if "requested lease not found" in words:
        return Remedy.LEASE_GONE
    if "lease already exists" in words:
        return Remedy.LEASE_EXISTS
    if "invalid auth token" in words or "revision of auth store is old" in words:
        return Remedy.LOGIN
    if "too many requests" in words:
        return Remedy.WAIT
    return Remedy.REFUSE if code in _REFUSING else Remedy.MOVE


def sentence(code: str, words: str, endpoint: str) -> str:
    """Say why ``endpoint`` refused, and what to do about it."""
    if code == "UNIMPLEMENTED":
        return f"{endpoint} is not an etcd v3 server (it does not know etcd's calls): check the address and port"
    if "user name is empty" in words or "invalid auth token" in words:
        return f"etcd at {endpoint} has authentication on: give a user name and password"
    if "invalid user ID or password" in words:
        return f"etcd at {endpoint} refused the user name or password"
    if "authentication is not enabled" in words:
        return f"etcd at {endpoint} has authentication off, but a user name was given: leave it out"
    if code == "PERMISSION_DENIED" or "permission denied" in words:
        return (
            f"etcd at {endpoint} denied access to the run's keys: grant the user a role with readwrite on their prefix"
        )
    if "database space exceeded" in words:
        return (
            f"etcd at {endpoint} is out of space (its quota is used up) and takes no more writes:"
            " compact and defragment it, then run 'etcdctl alarm disarm'"
        )
    return f"etcd at {endpoint} refused the request: {words or 'no reason given'} ({code})"
