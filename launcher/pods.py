"""Where the pods of an indexed Kubernetes Job meet: at the pod with index 0, by its name; pure.

The Job controller calls a pod <job>-<index>, and a headless service makes that a name which others can look up:
<job>-<index>.<service>. JobSet does both by itself (<jobset>-<job>-0-<index>.<service>). A pod that is replaced keeps
its name and gets another address, so names are what nodes are told. Called by `gathering`.
"""

from __future__ import annotations

from .errors import UsageError


def head(index: str, hostname: str, full: str) -> str:
    """Return the name of the pod with index 0, as another pod of the Job can look it up.

    ``index`` is JOB_COMPLETION_INDEX, ``full`` this pod's name with its domain, as its /etc/hosts has it.
    """
    if not (index.isdecimal() and len(index) < 16):
        raise UsageError(
            f"JOB_COMPLETION_INDEX is {index[:40]!r}, which is no whole number; unset it, or give --rdzv-endpoint"
        )
    job = hostname.removesuffix(f"-{int(index)}")
    if job == hostname:
        raise UsageError(
            f"JOB_COMPLETION_INDEX is {index}, and this pod's name {hostname!r} does not end with it; "
            "give --rdzv-endpoint HOST:PORT, the same in all pods"
        )
    name, _, domain = full.partition(".")
    if name != hostname or not domain:
        raise UsageError(
            f"this pod's name {hostname!r} has no domain, so that no other pod could look up {job}-0; give the Job's "
            "pods a subdomain, the name of a headless service (docs/other-starts.md), or give --rdzv-endpoint"
        )
    return f"{job}-0.{domain}"
