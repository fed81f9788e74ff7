"""The whole command on an etcd as operators guard it: TLS, a user who may touch one prefix, tokens that run out."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from command.cluster import Place
from command.processes import until
from etcd_access import PASSWORD, PREFIX, Authority, enable_auth, needs_openssl, tls_server

pytestmark = [pytest.mark.process, needs_openssl]
STEADY = Path(__file__).parent.parent / "command" / "steady.py"


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    made = Place(tmp_path / "place")
    yield made
    made.close()


@pytest.mark.parametrize("by", ["certificate", "password"])
def test_a_job_with_no_more_rights_than_its_prefix(tmp_path: Path, place: Place, by: str) -> None:
    authority = Authority(tmp_path / "home")
    ours = authority.issue("c", cn="worker")
    password = place.folder / "password"
    password.write_text(f"{PASSWORD}\n")
    password.chmod(0o600)
    tokens = ("--auth-token", f"{authority.signing_keys()},ttl=1s", "--bcrypt-cost", "4")
    mutual = authority.ca if by == "certificate" else None
    server = tls_server(tmp_path / "e", authority.issue("s", cn="root"), *tokens, clients=mutual)
    who = {
        "certificate": f"cert={ours.cert},key={ours.key}",
        "password": f"username=worker,password_file={password}",
    }[by]
    conf = f"cacert={authority.ca},{who},prefix={PREFIX},lease_ttl=4,kill_bound=1,last_call_timeout=2,join_timeout=60"
    try:
        server.start()
        enable_auth(server, "worker")
        for number in (2, 3):
            place.command(
                *("--rdzv-backend", "etcd", "--rdzv-endpoint", f"127.0.0.1:{server.port}", "--rdzv-id", "guarded"),
                *("--rdzv-conf", conf, "--local-addr", f"127.0.0.{number}", "--nnodes", "2", "--max-restarts", "1"),
                *("--nproc-per-node", "2", STEADY, place.desk),
            )
        place.wait_round(1, 4)
        rank = next(iter(place.nodes[1].ranks().values()))
        os.kill(rank, signal.SIGKILL)
        place.wait_round(2, 4)
        seen = b"".join(_visible(pid) for node in place.nodes for pid in node.pids())
        place.order("done")
        assert [node.exit_code() for node in place.nodes] == [0, 0]
        kept = b"".join(path.read_bytes() for path in place.folder.rglob("*") if path.is_file() and path != password)
        assert PASSWORD.encode() not in seen + kept
        assert b"guarded" in seen
        assert b"guarded" in kept
    finally:
        server.close()


def _visible(pid: int) -> bytes:
    """Return what others on the machine may see of a process, and what it hands down."""
    return until(lambda: Path(f"/proc/{pid}/cmdline").read_bytes() + Path(f"/proc/{pid}/environ").read_bytes(), "read")
