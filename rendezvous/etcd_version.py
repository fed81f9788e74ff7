"""What a version of etcd is worth: refused, advised against with the reason, or fine. Pure.

The numbers are those of etcd's change logs. Called by ``etcd_channel`` (refusal) and ``etcd_contact`` (advice).
"""

from __future__ import annotations

import re

_OLDEST = (3, 4, 0)
# line: where lost watch events and wrongly revoked leases were mended, and where all that is known was
_MENDED = {(3, 4): ((3, 4, 31), (3, 4, 38)), (3, 5): ((3, 5, 13), (3, 5, 23))}
_DIVERGING = ((3, 5, 0), (3, 5, 2))


def parse(version: str) -> tuple[int, int, int] | None:
    """Return the three numbers of ``version``; None when it does not begin with them."""
    found = re.match(r"(\d{1,6})\.(\d{1,6})\.(\d{1,6})", version)
    return None if found is None else (int(found[1]), int(found[2]), int(found[3]))


def refusal(version: str) -> str | None:
    """Say why no job may depend on ``version``, if so."""
    numbers = parse(version)
    if numbers is not None and numbers < _OLDEST:
        return f"runs etcd {version}, and remuster needs 3.4 or newer (3.4.38 or 3.5.23 at best): upgrade it"
    return None


def diverging(version: str) -> bool:
    """Tell whether a killed ``version`` may come back without a write that it has confirmed (etcd issue 13766)."""
    numbers = parse(version)
    return numbers is not None and _DIVERGING[0] <= numbers <= _DIVERGING[1]


def advice(version: str) -> str | None:
    """Say what a job risks on ``version``, if anything is known, and what to do."""
    numbers = parse(version)
    if numbers is None or numbers[:2] not in _MENDED:
        return None
    half, whole = _MENDED[numbers[:2]]
    if numbers >= whole:
        return None
    upgrade = "upgrade it to 3.4.38, 3.5.23 or newer"
    if diverging(version):
        return (
            f"etcd {version} can come back from a crash with data that differ from its other members'"
            f" (all of 3.5.0 to 3.5.2): {upgrade} before a job depends on it"
        )
    gone = "can confirm a lease that it has already revoked, so that a node cut off is noticed late"
    if numbers < half:
        gone = f"can lose watch events, can revoke the leases of healthy nodes after a change of its leader, and {gone}"
    return f"etcd {version} {gone}: {upgrade}"
