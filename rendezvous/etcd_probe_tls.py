"""The part of ``etcd_probe`` that speaks TLS: whose certificate is wrong, and how. Blocking; loads ``ssl``.

The standard library says in words and numbers what gRPC keeps to itself. Called by ``etcd_contact``, beside the loop.
"""

from __future__ import annotations

import ssl

from .etcd_config import Endpoint, Tls
from .etcd_probe import (
    ANSWER_S,
    BANNER_S,
    CONNECT_S,
    REQUEST,
    SILENT,
    SPEAKS_HTTP2,
    Seen,
    Site,
    http,
    look_plainly,
    unreachable,
)

_NO_TLS = Seen("is an etcd without TLS: leave cacert out of --rdzv-conf, or give the address that speaks TLS", True)
_HANGS_UP = Seen("closes the connection after the TLS handshake, perhaps because of the client's certificate", False)
_NOT_YET, _EXPIRED = 9, 10  # OpenSSL's numbers
_OTHER_NAME = (62, 64)
_ABOUT_US = (
    "certificate",
    "unknown ca",
    "access denied",
    "handshake failure",
)  # alerts that a client's certificate gets
_ROUNDS = 4  # more than any handshake takes


def look_with_tls(endpoint: Endpoint, tls: Tls, timeout_s: float) -> Seen:
    """Return what answers at ``endpoint`` to a client with these files; as ``etcd_probe.look`` otherwise."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    flaw = _flaw(context, tls)
    if flaw:
        return Seen(f"cannot be asked: {flaw}", True)
    site = Site(endpoint, timeout_s)
    try:
        return _handshake(site, context, tls) or look_plainly(site, _NO_TLS)
    except (OSError, ValueError) as error:
        return unreachable(error)


def speaks_tls(site: Site) -> bool:
    """Whether the other side answers a handshake, whatever it thinks of us."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    with site.connect() as conn:
        conn.settimeout(site.left_s(ANSWER_S))
        try:
            context.wrap_socket(conn).close()
        except ssl.SSLError as error:
            return _alert(error) != ""
        except OSError:
            return False
    return True


def _handshake(site: Site, context: ssl.SSLContext, tls: Tls) -> Seen | None:
    """Return what came of it; None: the other side does not speak TLS."""
    with site.connect() as conn:
        conn.settimeout(site.left_s(CONNECT_S))
        try:
            secure = context.wrap_socket(conn, server_hostname=site.endpoint.host)
        except ssl.SSLCertVerificationError as error:
            return Seen(_distrust(error, site.endpoint, tls), True)
        except ssl.SSLError as error:
            return _refused(_alert(error), tls) if _alert(error) else None
        except TimeoutError:
            return SILENT
        except OSError:
            return None
        with secure:
            return _conversation(site, secure, tls)


def _conversation(site: Site, secure: ssl.SSLSocket, tls: Tls) -> Seen:
    try:
        # A TLS 1.3 server says here what it thinks of our certificate; to talk before that may cost us its words.
        answer = site.read(secure, BANNER_S)
        if answer is None:
            secure.sendall(REQUEST)
            answer = site.read(secure, CONNECT_S)
    except ssl.SSLError as error:
        return _refused(_alert(error), tls)
    except OSError:
        return _HANGS_UP
    if answer is None:
        return SILENT
    if answer.startswith(b"HTTP/"):
        return http(answer)
    if answer[3:4] == b"\x04":  # a frame of HTTP/2: settings
        return SPEAKS_HTTP2
    return Seen("speaks TLS, but neither gRPC nor HTTP: check the port", True) if answer else _HANGS_UP


def _distrust(error: ssl.SSLCertVerificationError, endpoint: Endpoint, tls: Tls) -> str:
    if error.verify_code == _EXPIRED:
        return "shows a certificate that has expired (or an authority's has): renew it, or set this machine's clock"
    if error.verify_code == _NOT_YET:
        return "shows a certificate that is not valid yet: check both machines' clocks"
    if error.verify_code in _OTHER_NAME:
        return (
            f"shows a certificate that does not name {endpoint.host}: give a name or IP address that stands in it,"
            f" or add {endpoint.host} to its subjectAltName"
        )
    authority = f"no authority in {tls.ca}" if tls.ca else "no known authority"
    return f"shows a certificate that {authority} has signed ({error.verify_message}): give its own as cacert"


def _alert(error: ssl.SSLError) -> str:
    """Return the words of the alert that the other side has sent, if that is what ``error`` is."""
    return (error.reason or "").partition("_ALERT_")[2].replace("_", " ").lower()


def _refused(alert: str, tls: Tls) -> Seen:
    if not any(words in alert for words in _ABOUT_US):
        return Seen(f"breaks TLS off ({alert or 'without a reason'})", False)
    if tls.cert is None:
        return Seen(f"asks for a client certificate ({alert}): give cert=FILE and key=FILE in --rdzv-conf", True)
    return Seen(
        f"refuses the client certificate {tls.cert} ({alert}): an authority that the server trusts"
        " (its --trusted-ca-file) must have signed it, for client authentication",
        True,
    )


def _flaw(context: ssl.SSLContext, tls: Tls) -> str:
    """Load our files into ``context``; return what is wrong with them."""
    try:
        if tls.ca is None:
            context.load_default_certs()
        else:
            context.load_verify_locations(tls.ca)
    except OSError:
        return f"{tls.ca} holds no certificate in PEM form"
    if tls.cert is None:
        return ""
    asked: list[bool] = []

    def passphrase() -> str:
        asked.append(True)
        return ""

    try:
        context.load_cert_chain(tls.cert, tls.key, passphrase)
    except (OSError, ValueError) as error:
        if asked:
            return f"the key {tls.key} is encrypted, and nobody is there to give its passphrase: store it decrypted"
        if getattr(error, "reason", "") == "KEY_VALUES_MISMATCH":
            return f"the key {tls.key} does not belong to the certificate {tls.cert}"
        return f"{tls.cert} holds no certificate in PEM form, or {tls.key} no key"
    return _expiry(tls.cert, tls.key)


def _expiry(cert: str, key: str | None) -> str:
    """Say if our own certificate cannot be used: many a server only says "bad certificate".

    The standard library judges a certificate in handshakes alone; so here is one, in memory, with ourselves.
    """
    judge = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    judge.verify_mode = ssl.CERT_REQUIRED
    judge.verify_flags |= (
        ssl.VERIFY_X509_PARTIAL_CHAIN
    )  # what is in the file is trusted: who signed it, the server knows
    judge.load_verify_locations(cert)
    ours = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    ours.check_hostname = False
    ours.verify_mode = ssl.CERT_NONE
    for context in (judge, ours):
        context.load_cert_chain(cert, key)
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = (judge.wrap_bio(there, back, server_side=True), ours.wrap_bio(back, there))
    for _ in range(_ROUNDS):
        for side in sides:
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
            except ssl.SSLCertVerificationError as error:
                return f"the client certificate {cert} cannot be used: {error.verify_message}"
            except ssl.SSLError:
                return ""
    return ""
