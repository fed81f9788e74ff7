"""A mark by which the same failure is known again in a later attempt, whatever rank, node, time or process it hits.

Called by the verdict; kept in the job record, so it is short. Only what the program itself determines goes into it.
"""

from __future__ import annotations

import hashlib
import re

_CHANGES = re.compile(
    r"""0x[0-9a-fA-F]+
    | \b[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b     # uuid
    | /(?:tmp|var/tmp|dev/shm|run)/[^\s'",:)]+                      # temporary paths
    | \b(?=[a-f]*\d)[0-9a-f]{7,}\b                                   # digests, attempt names
    | \[(?:rank|default|[Rr]ank\ )\d+\]:?
    | \d+
    """,
    re.VERBOSE,
)
LIMIT = 1000


def fingerprint(cls: str, exception: str, frame: str, line: str) -> str:
    """Return '<class>:<16 hex digits>' of what stays the same over attempts."""
    parts = (cls, exception, normal(frame), normal(line))
    digest = hashlib.sha256("\0".join(parts).encode("utf-8", "replace")).hexdigest()
    return f"{cls}:{digest[:16]}"


def normal(text: str) -> str:
    """Return the text without numbers, addresses, temporary paths and ranks, its spaces made equal."""
    return " ".join(_CHANGES.sub("#", text[:LIMIT]).split())
