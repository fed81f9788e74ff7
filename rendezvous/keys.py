"""Names of the keys of one run. Round numbers are padded, so that ranges over rounds sort as numbers do."""

from __future__ import annotations

from dataclasses import dataclass

from .records import Incarnation, NodeId, Round
from .store import prefix_end

ROOT = "/remuster/"
RECORDS = "~attempts/"  # sorts behind all other names of a run


@dataclass(frozen=True, slots=True)
class Keys:
    """The keys of run ``run_id`` under ``root``. A slash in a run id would leave its folder: refused."""

    run_id: str
    root: str = ROOT

    def __post_init__(self) -> None:
        if not self.run_id or "/" in self.run_id:
            raise ValueError(f"run id {self.run_id!r}: must not be empty or contain '/'")

    @property
    def prefix(self) -> str:
        return f"{self.root}{self.run_id}/"

    @property
    def end(self) -> str:
        """The end of the range that the leader reads: everything but the attempt records, which only grow."""
        return self.prefix + RECORDS

    @property
    def job(self) -> str:
        return self.prefix + "job"

    @property
    def leader(self) -> str:
        return self.prefix + "leader"

    @property
    def terms(self) -> str:
        """What every node of the launch must have been given alike."""
        return self.prefix + "terms"

    @property
    def nodes(self) -> str:
        return self.prefix + "nodes/"

    def node(self, node: NodeId) -> str:
        return self.nodes + node

    @property
    def rosters(self) -> str:
        return self.prefix + "rounds/"

    def roster(self, n: Round) -> str:
        return f"{self.rosters}{n:010d}"

    @property
    def histories(self) -> str:
        return self.prefix + "history/"

    def history(self, n: Round) -> str:
        """Where round ``n`` resumed from; kept for the life of the job (it is what makes a token stale)."""
        return f"{self.histories}{n:010d}"

    def attempt(self, n: Round) -> str:
        """The attempt record of round ``n``, mirrored from the run directory; kept."""
        return f"{self.prefix}{RECORDS}{n:010d}"

    def report(self, kind: str, n: Round, node: NodeId, inc: Incarnation) -> str:
        """A node's durable word about round ``n``; ``kind``: evidence, started, reentered, finished, looked."""
        return f"{self.prefix}{kind}/{n:010d}/{node}@{inc:x}"

    def reports(self, kind: str, n: Round) -> tuple[str, str]:
        """The range of all nodes' reports of ``kind`` about round ``n``."""
        start = f"{self.prefix}{kind}/{n:010d}/"
        return start, prefix_end(start)

    def older(self, kind: str, n: Round) -> tuple[str, str]:
        """The range of ``kind`` (those, and rounds) of all rounds below ``n``."""
        return f"{self.prefix}{kind}/", f"{self.prefix}{kind}/{n:010d}"
