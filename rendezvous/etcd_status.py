"""What a failed call to etcd means for the caller: a table from gRPC's code and etcd's words. Pure.

Codes are by name, so that nothing here needs gRPC. Called by ``etcd.py``; the sentences are for a person.
"""

from __future__ import annotations

import re
from enum import Enum

_SHOWN = 300


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


def remedy(code: str, words: str, token: bool) -> Remedy:
    """Return what a call that ended with ``code`` and etcd's ``words`` calls for; ``token``: it carried one."""
    if "requested lease not found" in words:
        return Remedy.LEASE_GONE
    if "lease already exists" in words:
        return Remedy.LEASE_EXISTS
    if "revision of auth store is old" in words or "auth: revision in header is old" in words:
        # users or roles were changed under the call
        return Remedy.LOGIN if token else Remedy.WAIT
    if "invalid auth token" in words and token:
        return Remedy.LOGIN
    if "too many requests" in words:
        return Remedy.WAIT
    return Remedy.REFUSE if code in _REFUSING else Remedy.MOVE


def printable(words: str) -> str:
    """Return a server's words as they may be shown to a person, and no more of them than one reads."""
    return "".join(c if c.isprintable() else " " for c in words[:_SHOWN])


def brief(code: str, words: str) -> str:
    """Return what a person needs of gRPC's report."""
    if code == "DEADLINE_EXCEEDED":
        return "no answer in time"
    cause = words.rpartition("last error: ")[2]
    cause = re.sub(r"^[A-Z_]+: (ipv[46]|unix):\S+: ", "", cause).replace("Failed to connect to remote host: ", "")
    if "CERTIFICATE_VERIFY_FAILED" in cause:
        why = cause.partition("CERTIFICATE_VERIFY_FAILED: ")[2].removesuffix(": OK")
        return f"its certificate is not accepted ({why or 'gRPC does not say why'})"
    return cause if code == "UNAVAILABLE" and cause else f"{cause or 'no details'} ({code})"


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
            f"etcd at {endpoint} denied access to the run's keys: grant the user (where none is given, the one that the"
            " client's certificate names) a role with readwrite on their prefix (/remuster/, or what prefix= says)"
        )
    if "database space exceeded" in words or "alarm:NOSPACE" in words:
        return (
            f"etcd at {endpoint} is out of space (its quota is used up) and takes no more writes:"
            " compact and defragment it, then run 'etcdctl alarm disarm'"
        )
    if "corrupt cluster" in words or "alarm:CORRUPT" in words:
        return (
            f"etcd at {endpoint} has found that its members' data differ (alarm CORRUPT) and serves nobody:"
            " replace the member that 'etcdctl alarm list' names, then run 'etcdctl alarm disarm'"
        )
    return f"etcd at {endpoint} refused the request: {words or 'no reason given'} ({code})"
