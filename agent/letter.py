"""What an agent leaves its keeper in case that it is killed: whose lease it had, and how the store is reached.

Secrets go by the paths of their files, never by what is in them. ``main.py`` leaves it on the keeper's page before it
joins; when the agent has died and nothing of its node is left, ``revoker.py`` reads it and gives the lease up.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

from .spec import JobSpec, StoreAccess


class Letter(NamedTuple):
    """One node of one run, and its store."""

    run_id: str
    prefix: str
    node: str
    endpoints: tuple[tuple[str, int], ...]
    access: StoreAccess
    token_file: Path | None  # of a store of the job's own

    def encode(self) -> bytes:
        """Return its bytes; paths become absolute."""
        access = self.access
        files = (access.cacert, access.cert, access.key, access.password_file, self.token_file)
        paths = [None if path is None else str(path.absolute()) for path in files]
        return json.dumps([self.run_id, self.prefix, self.node, self.endpoints, access.username, paths]).encode()

    @staticmethod
    def decode(raw: bytes) -> Letter:
        """Parse what ``encode`` made in a process of the same start; from nobody else's hands is one ever taken."""
        run_id, prefix, node, endpoints, username, paths = json.loads(raw)
        cacert, cert, key, password_file, token_file = (None if path is None else Path(path) for path in paths)
        access = StoreAccess(cacert, cert, key, username, password_file)
        return Letter(run_id, prefix, node, tuple((host, port) for host, port in endpoints), access, token_file)


def write(spec: JobSpec, node: str) -> bytes:
    """Return the letter of ``node`` in the job of ``spec``, as bytes."""
    token_file = None if spec.embedded is None else spec.embedded.token_file
    return Letter(spec.run_id, spec.prefix, node, spec.endpoints, spec.store, token_file).encode()
