"""Certificates and users for an etcd under test: made by openssl and through etcd's JSON gateway. Not a test module."""

from __future__ import annotations

import base64
import shutil
import ssl
import subprocess
import urllib.error
from pathlib import Path

import pytest
from etcd_server import EtcdServer

from remuster.rendezvous.etcd_config import Tls
from remuster.rendezvous.store import prefix_end

PREFIX = "/mine/"
PASSWORD = "open-sesame-4711"
needs_openssl = pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl to make certificates with")

_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


class Authority:
    """A root of its own, and the certificates that it signs, in one folder."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self._folder = folder
        self._openssl("req", "-x509", *_KEY, "-keyout", "ca.key", "-out", "ca.pem", "-subj", f"/CN={folder.name}")
        self.ca = str(folder / "ca.pem")

    def issue(self, name: str, san: str = "IP:127.0.0.1,DNS:localhost", cn: str = "worker", days: int = 30) -> Tls:
        """Return a certificate for servers and clients; one of -1 days has expired."""
        self._openssl("req", *_KEY, "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={cn}")
        (self._folder / "ext").write_text(f"subjectAltName={san}\nextendedKeyUsage=serverAuth,clientAuth\n")
        signing = ("-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-extfile", "ext", "-days", str(days))
        self._openssl("x509", "-req", "-in", f"{name}.csr", *signing, "-out", f"{name}.pem")
        return Tls(self.ca, str(self._folder / f"{name}.pem"), str(self._folder / f"{name}.key"))

    def encrypted(self, key: str) -> str:
        """Return a copy of ``key`` that nobody can read without a passphrase."""
        self._openssl("ec", "-in", key, "-aes256", "-passout", "pass:x", "-out", f"{key}.encrypted")
        return f"{key}.encrypted"

    def signing_keys(self) -> str:
        """Return etcd's options for tokens that this folder's RSA key signs."""
        self._openssl("genrsa", "-out", "jwt.key", "2048")
        self._openssl("rsa", "-in", "jwt.key", "-pubout", "-out", "jwt.pub")
        return f"jwt,pub-key={self._folder}/jwt.pub,priv-key={self._folder}/jwt.key,sign-method=RS256"

    def _openssl(self, *args: str) -> None:
        subprocess.run(["openssl", *args], cwd=self._folder, check=True, capture_output=True)


def tls_server(at: Path, own: Tls, *extra: str, clients: str | None = None, binary: str | None = None) -> EtcdServer:
    """Return a server that shows ``own``, and asks for certificates signed by ``clients``; not started."""
    assert own.cert is not None
    assert own.key is not None
    mutual = () if clients is None else ("--client-cert-auth", "--trusted-ca-file", clients)
    files = ("--cert-file", own.cert, "--key-file", own.key)
    server = EtcdServer(at, scheme="https", extra=(*files, *mutual, *extra), binary=binary)
    server.context = ssl.create_default_context(cafile=own.ca)
    server.context.check_hostname = False
    server.context.load_cert_chain(own.cert, own.key)
    return server


def enable_auth(etcd: EtcdServer, *users: str, prefix: str = PREFIX) -> None:
    """Add ``users``, who may touch what begins with ``prefix`` and nothing else, and root; switch authentication on."""
    grant = {
        "permType": "READWRITE",
        "key": base64.b64encode(prefix.encode()).decode(),
        "range_end": base64.b64encode(prefix_end(prefix).encode()).decode(),
    }
    for role in ("root", "mine"):
        etcd.post("auth/role/add", {"name": role})
    etcd.post("auth/role/grant", {"name": "mine", "perm": grant})
    for user in ("root", *users):
        etcd.post("auth/user/add", {"name": user, "password": PASSWORD})
        etcd.post("auth/user/grant", {"user": user, "role": "root" if user == "root" else "mine"})
    etcd.post("auth/enable", {})


def as_root(etcd: EtcdServer, path: str, body: dict[str, object]) -> None:
    """Call the gateway as the user root; again when users were changed meanwhile."""
    while True:
        token = etcd.post("auth/authenticate", {"name": "root", "password": PASSWORD})["token"]
        try:
            etcd.post(path, body, token=token)
        except urllib.error.HTTPError as error:
            if b"auth store is old" not in error.read():
                raise
        else:
            return
