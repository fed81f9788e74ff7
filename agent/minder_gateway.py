"""The minder's way to its etcd: JSON over HTTP on a unix socket, one short connection for each question. Blocks.

gRPC would cost the minder more than all the rest of it, and http.client three times the imports. HTTP/1.0 is asked for,
so that an answer comes whole and ends with the connection.
"""

from __future__ import annotations

import binascii
import json
import os
import socket
from typing import Any, cast

from ..rendezvous.embedded import CLIENT, HOST, USER, JobState, Look, Seal, job_state

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

TIMEOUT_S = 1.0  # for one answer: the minder is deaf to a signal for so long
MAX_ANSWER = 1 << 20
_EVERYTHING = {"key": "AA==", "range_end": "AA=="}  # etcd's way to say: all keys


class NoAnswer(Exception):
    """etcd could not be asked, or refused; its words."""


class Gateway:
    """One etcd's socket ``CLIENT`` in the working directory, and the token that it gave us if it asks for one."""

    def __init__(self) -> None:
        self._password = ""
        self._token = ""

    def version(self) -> str:
        """Return etcd's version, once it serves: until then this waits, or raises NoAnswer."""
        return str(self._ask("maintenance/status", {}).get("version", ""))

    def require_password(self, password: str) -> None:
        """Turn etcd's authentication on, for one user that may do everything with keys."""
        steps: tuple[tuple[str, Mapping[str, object]], ...] = (
            ("user/add", {"name": "root", "password": os.urandom(16).hex()}),  # needed for it to be on; nobody's
            ("role/add", {"name": "root"}),
            ("user/grant", {"user": "root", "role": "root"}),
            ("role/add", {"name": USER}),
            ("role/grant", {"name": USER, "perm": {"permType": "READWRITE", **_EVERYTHING}}),
            ("user/add", {"name": USER, "password": password}),
            ("user/grant", {"user": USER, "role": USER}),
            ("enable", {}),
        )
        for path, body in steps:
            self._ask(f"auth/{path}", body)
        self._password = password

    def put_seal(self, prefix: str, seal: Seal) -> None:
        """Say whose store this is. Whatever stands there was not written by us: the data are new."""
        self._ask("kv/put", {"key": _text(seal.key(prefix)), "value": _base64(seal.encode())})

    def look(self, prefix: str, run_id: str) -> Look:
        """Read how many nodes the run has and how its job stands."""
        nodes, job = f"{prefix}{run_id}/nodes/", f"{prefix}{run_id}/job"
        answer = self._ask(
            "kv/txn",
            {
                "success": [
                    {"request_range": {"key": _text(nodes), "range_end": _text(nodes[:-1] + "0"), "count_only": True}},
                    {"request_range": {"key": _text(job)}},
                ]
            },
        )
        there = int(answer["responses"][0]["response_range"].get("count", 0))
        found = _values(answer)
        return Look(there, job_state(found[0]) if found else JobState.ABSENT)

    def _ask(self, path: str, body: Mapping[str, object]) -> dict[str, Any]:
        try:
            return self._post(path, body)
        except NoAnswer:
            if not self._password or path.startswith("auth/"):
                raise
        # a token runs out, and a restarted etcd knows none; a second refusal is one
        self._token = str(self._post("auth/authenticate", {"name": USER, "password": self._password}).get("token", ""))
        return self._post(path, body)

    def _post(self, path: str, body: Mapping[str, object]) -> dict[str, Any]:
        data = json.dumps(body).encode()
        token = f"Authorization: {self._token}\r\n" if self._token and not path.startswith("auth/") else ""
        head = f"POST /v3/{path} HTTP/1.0\r\nHost: {HOST}\r\n{token}Content-Length: {len(data)}\r\n\r\n"
        with socket.socket(socket.AF_UNIX) as end:
            try:
                end.settimeout(TIMEOUT_S)
                end.connect(CLIENT)
                end.sendall(head.encode() + data)
                answer = b""
                while (part := end.recv(65536)) and len(answer) <= MAX_ANSWER:
                    answer += part
            except OSError as error:
                raise NoAnswer(str(error)) from error
        status, _, rest = answer.partition(b"\r\n")
        try:
            said: object = json.loads(rest.partition(b"\r\n\r\n")[2])
        except ValueError as error:
            raise NoAnswer(f"no JSON came from etcd: {status!r}") from error
        if not isinstance(said, dict):
            raise NoAnswer(f"no object came from etcd: {status!r}")
        reply = cast("dict[str, Any]", said)
        if status.split()[1:2] != [b"200"]:
            raise NoAnswer(str(reply.get("error", status)))
        return reply


def _base64(data: bytes) -> str:
    return binascii.b2a_base64(data, newline=False).decode()


def _text(key: str) -> str:
    return _base64(key.encode())


def _values(answer: Mapping[str, Any]) -> list[bytes]:
    """Return the values of the last range of a transaction's answer."""
    found = answer["responses"][-1]["response_range"].get("kvs", ())
    return [binascii.a2b_base64(kv.get("value", "")) for kv in found]
