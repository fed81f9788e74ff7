"""Who is publishing: the rank's run, round, attempt and incarnation, from the environment that its agent gave it.

The only place of this room that reads the environment. Outside remuster the run has no name and the round is 0, so
what is published carries nobody's token.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from .errors import PublishError


@dataclass(frozen=True, slots=True)
class Identity:
    """The fencing token's parts, where to publish, and this rank's place in the world as the environment has it."""

    run_id: str = ""
    round: int = 0
    attempt: int = 0
    incarnation: str = ""
    node: str = ""
    directory: str = ""
    rank: int = 0
    world_size: int = 1


def identity(environ: Mapping[str, str]) -> Identity:
    """Read the publishing rank's identity, or raise ``PublishError`` naming the malformed variable."""
    return Identity(
        run_id=environ.get("REMUSTER_RUN_ID", ""),
        round=_count(environ, "REMUSTER_ROUND", 0),
        attempt=_count(environ, "REMUSTER_ATTEMPT", 0),
        incarnation=environ.get("REMUSTER_INCARNATION", ""),
        node=environ.get("REMUSTER_NODE", ""),
        directory=environ.get("REMUSTER_CHECKPOINT_DIR", ""),
        rank=_count(environ, "RANK", 0),
        world_size=_count(environ, "WORLD_SIZE", 1),
    )


def resume_from(environ: Mapping[str, str]) -> str:
    """Return the checkpoint that the launcher chose for this round, or an empty string."""
    return environ.get("REMUSTER_RESUME_FROM", "")


def _count(environ: Mapping[str, str], name: str, default: int) -> int:
    text = environ.get(name, "")
    if not text:
        return default
    if not (text.isascii() and text.isdigit() and len(text) <= 18):
        raise PublishError(f"{name}={text!a} is not a whole number; it is set by the launcher: do not change it")
    return int(text)
