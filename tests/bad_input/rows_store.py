"""Rows about the store: it cannot be reached, will not let us in, or holds what nobody of ours has written."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace

from bad_input.scene import CONF, HERE, Arrange, Row, Scene
from bad_input.stores import PASSWORD, Stores
from command.cluster import Node as Command

from remuster.rendezvous.records import (
    SCHEMA,
    Incarnation,
    Job,
    Node,
    Phase,
    Round,
    encode,
)

REFUSED, UNKNOWN, USAGE = 69, 75, 2
CONNECT = 25.0  # seconds: connect_timeout is 2, and many rows wait for it at once


def _at(store: Callable[[Stores], str]) -> Arrange:
    return lambda scene: {"at": store(scene.stores)}


def _away(name: str, store: Callable[[Stores], str], *says: str) -> Row:
    """Nobody answers there; given up after connect_timeout."""
    return Row(f"etcd-{name}", "{meet} t.py", REFUSED, ("{at}", *says), _at(store), within_s=CONNECT)


def _tls(certificate: str, root: str) -> Arrange:
    def arrange(scene: Scene) -> Mapping[str, object]:
        at = scene.stores.tls(certificate)
        return {"at": at, "conf": f"{CONF},cacert={scene.stores.certificates() / root}.pem"}

    return arrange


def _tls_of(conf: str, store: Callable[[Stores], str] | None = None) -> Arrange:
    """The store, or else the sound etcd, and these files."""

    def arrange(scene: Scene) -> Mapping[str, object]:
        files = conf.format(certificates=scene.stores.certificates())
        return {"conf": f"{CONF},{files}", **({} if store is None else {"at": store(scene.stores)})}

    return arrange


def _as(user: str, password: str | bytes) -> Arrange:
    def arrange(scene: Scene) -> Mapping[str, object]:
        file = scene.path("password", password, 0o600)
        return {"at": scene.stores.locked(), "conf": f"{CONF},username={user},password_file={file}"}

    return arrange


def _user_of_an_open_one(scene: Scene) -> Mapping[str, object]:
    return {"conf": f"{CONF},username=worker,password_file={scene.path('password', PASSWORD, 0o600)}"}


def _holds(key: str, value: bytes) -> Arrange:
    def arrange(scene: Scene) -> Mapping[str, object]:
        scene.put(key, value)
        return {}

    return arrange


def _strangers(scene: Scene) -> Mapping[str, object]:
    """What nobody of ours has written, in every folder of the run."""
    for i in range(20):
        for name in ("nodes", "evidence", "evidence/0000000001", "started/0000000001", "finished", "history", "other"):
            scene.put(f"{name}/{i:010d}", b"\xff" * 1000)
    return {}


def _ran(scene: Scene, script: str = "t.py") -> None:
    """Run the job to its end on another node, from which all records are those of a real one."""
    scene.start(3, script).exit_code()
    for path in scene.folder.glob("ran-*"):
        path.unlink()


def _ended_as(**outcome: object) -> Arrange:
    """A run that has failed, and whose end somebody has written anew."""

    def arrange(scene: Scene) -> Mapping[str, object]:
        _ran(scene)
        job = scene.job()
        scene.put("job", json.dumps({**job, "phase": "X", "outcome": {**job["outcome"], **outcome}}).encode())
        return {}

    return arrange


def _standing(phase: str, *, roster: bytes | None = None, rounds: int = 0) -> Arrange:
    """A run in the midst of something, with a roster that is not what was agreed, or none."""

    def arrange(scene: Scene) -> Mapping[str, object]:
        _ran(scene)
        job = scene.job()
        n = job["round"] + rounds
        scene.put("job", json.dumps({**job, "phase": phase, "round": n, "outcome": None}).encode())
        for key in scene.tree():
            if key.startswith("rounds/"):
                scene.delete(key) if roster is None else scene.put(key, roster)
        return {}

    return arrange


def _done(scene: Scene) -> Mapping[str, object]:
    _ran(scene)
    return {"conf": f"{CONF},launch_id=another"}


def _failed(scene: Scene) -> Mapping[str, object]:
    scene.path("t.py", "raise SystemExit(3)\n")
    _ran(scene)
    return {}


def _again(*says: str) -> Callable[[Scene, Command], None]:
    """Starting it once more ends as it did: the refusal changes nothing in the store, so nothing gets worse."""

    def check(scene: Scene, node: Command) -> None:
        before = scene.tree()
        again = scene.command(*node.args[2:], name=f"again-{HERE}")  # without the other's log directory
        assert again.exit_code(20.0) == node.process.returncode, scene.say()
        sentence = [line for line in again.err.splitlines() if line.startswith("remuster: ")][-1]
        assert [part for part in says if part not in sentence] == [], scene.say()
        assert scene.tree() == before

    return check


def _held(name: str, key: str, value: bytes, *says: str) -> Row:
    """The run's keys hold something that no agent of this version has written."""
    return Row(f"store-{name}", "{meet} t.py", REFUSED, says, _holds(key, value), after=_again(*says))


def _stood(name: str, arrange: Arrange, *says: str, code: int = REFUSED) -> Row:
    """The run's keys hold what an agent could have written, but for one thing."""
    return Row(f"store-{name}", "{meet} t.py", code, says, arrange, after=_again(*says))


BEGUN = Job(Phase.FORMING, Round(1), 1, 1, "")
NEWER = json.dumps({**json.loads(encode(BEGUN)), "v": SCHEMA + 1}).encode()
NO_PHASE = encode(BEGUN).replace(b'"F"', b'"Q"')


FOREIGN = encode(Node(Incarnation(7), "another-machine", "boot", "203.0.113.9", 1, Round(1)))


def _namesake(scene: Scene) -> Mapping[str, object]:
    """Another machine has this node's name, and its lease is kept."""
    lease = scene.grant(600)
    scene.put(f"nodes/{HERE}", FOREIGN, lease)
    return {"conf": CONF.replace("join_timeout=4", "join_timeout=60").replace("lease_ttl=300", "lease_ttl=4")}


def _namesake_ends(scene: Scene, node: Command) -> None:
    (lease,) = scene.leased().values()
    scene.revoke(lease)


def _namesake_of_garbage(scene: Scene) -> Mapping[str, object]:
    scene.put(f"nodes/{HERE}", b"{", scene.grant(600))
    return {}


ROWS = (
    # --- nobody there -------------------------------------------------------------------------------------------------
    _away("refuses", Stores.nobody, "within 2 s", "nothing listens", "connect_timeout"),
    _away("silent", Stores.silent, "within 2 s", "stays silent", "connect_timeout"),
    _away("closing", Stores.closing, "within 2 s", "closes them at once"),
    _away("black-hole", Stores.hole, "within 2 s", "does not answer", "firewall"),
    Row("etcd-too-slow", "{meet} t.py", REFUSED, ("{at}", "within 2 s", "connect_timeout"),
        lambda scene: {"at": scene.stores.slow(scene.etcd, 3)}, within_s=CONNECT),
    Row("etcd-slow", "{meet} t.py", 0, (), lambda scene: {"at": scene.stores.slow(scene.etcd, 0.1)}, within_s=40.0),
    Row("etcd-unknown-name", "{meet} --rdzv-endpoint no-such-etcd.invalid t.py", REFUSED,
        ("no-such-etcd.invalid", "not a known name", "Check the address"), within_s=CONNECT),
    Row("etcd-one-of-two-is-there", "{meet} --rdzv-endpoint {dead},{at} t.py", 0, ("{dead}",),
        lambda scene: {"dead": scene.stores.nobody()}),
    Row("etcd-one-of-two-is-a-web-server", "{meet} --rdzv-endpoint {web},{at} t.py", 0, (),
        lambda scene: {"web": scene.stores.web()}),
    Row("etcd-none-of-two-is-there", "{meet} --rdzv-endpoint {dead},{silent} t.py", REFUSED, ("{dead}", "{silent}"),
        lambda scene: {"dead": scene.stores.nobody(), "silent": scene.stores.silent()}, within_s=CONNECT),
    # --- somebody else, or not for us ---------------------------------------------------------------------------------
    _away("is-a-web-server", Stores.web, "HTTP server that is no etcd", "check the address and port"),
    _away("is-an-ssh-server", Stores.ssh, "ssh server", "check the port"),
    _away("is-a-torchruns-store", Stores.tcpstore, "store of a torchrun job", "choose another address or port"),
    _away("is-another-service", Stores.foreign, "not an etcd v3 server", "check the address and port"),
    _away("is-too-old", Stores.old, "3.3.27", "3.4", "upgrade"),
    _away("is-full", Stores.full, "out of space", "defragment"),
    _away("is-locked", Stores.locked, "authentication on", "user name and password"),
    Row("etcd-wrong-password", "{meet} t.py", REFUSED, ("{at}", "user name or password"), _as("worker", "wrong")),
    Row("etcd-unknown-user", "{meet} t.py", REFUSED, ("{at}", "user name or password"), _as("nobody", PASSWORD)),
    Row("etcd-user-without-a-role", "{meet} t.py", REFUSED, ("{at}", "denied", "/remuster/"),
        _as("stranger", PASSWORD)),
    Row("etcd-empty-password-file", "{meet} t.py", USAGE, ("{folder}/password", "empty"), _as("worker", "")),
    Row("etcd-password-file-of-bytes", "{meet} t.py", USAGE, ("{folder}/password", "text"), _as("worker", b"\xff\xfe")),
    Row("etcd-user-and-no-authentication", "{meet} t.py", REFUSED, ("{at}", "authentication off", "leave it out"),
        _user_of_an_open_one),
    Row("etcd-right-password", "{meet} t.py", 0, (), _as("worker", PASSWORD)),
    # --- TLS ----------------------------------------------------------------------------------------------------------
    Row("tls-expired", "{meet} t.py", REFUSED, ("{at}", "has expired", "renew it"), _tls("expired", "ca"),
        within_s=CONNECT),
    Row("tls-unknown-root", "{meet} t.py", REFUSED, ("{at}", "stranger.pem", "give its own as cacert"),
        _tls("server", "stranger"), within_s=CONNECT),
    Row("tls-of-another-host", "{meet} t.py", REFUSED, ("{at}", "does not name 127.0.0.1", "subjectAltName"),
        _tls("elsewhere", "ca"), within_s=CONNECT),
    Row("tls-not-asked-for", "{meet} t.py", REFUSED, ("{at}", "speaks TLS", "cacert=FILE"),
        lambda scene: {"at": scene.stores.tls("server")}, within_s=CONNECT),
    Row("tls-not-spoken", "{meet} t.py", REFUSED, ("{at}", "without TLS", "leave cacert out"),
        _tls_of("cacert={certificates}/ca.pem"), within_s=CONNECT),
    Row("tls-without-a-client-certificate", "{meet} t.py", REFUSED, ("{at}", "client certificate", "cert=FILE"),
        _tls_of("cacert={certificates}/ca.pem", Stores.client_certificates), within_s=CONNECT),
    Row("tls-with-a-strangers-certificate", "{meet} t.py", REFUSED, ("{at}", "refuses the client certificate"),
        _tls_of("cacert={certificates}/ca.pem,cert={certificates}/stranger.pem,key={certificates}/stranger.key",
                Stores.client_certificates), within_s=CONNECT),
    Row("tls-with-the-wrong-key", "{meet} t.py", REFUSED, ("server.pem", "stranger.key", "does not belong"),
        _tls_of("cacert={certificates}/ca.pem,cert={certificates}/server.pem,key={certificates}/stranger.key",
                Stores.client_certificates), within_s=CONNECT),
    Row("tls-cacert-is-no-certificate", "{meet} t.py", REFUSED, ("{folder}/ca.pem", "no certificate in PEM form"),
        lambda scene: {"conf": f"{CONF},cacert={scene.path('ca.pem', 'hello')}"}, within_s=CONNECT),
    Row("tls-with-a-client-certificate", "{meet} t.py", 0, (),
        _tls_of("cacert={certificates}/ca.pem,cert={certificates}/server.pem,key={certificates}/server.key",
                Stores.client_certificates), within_s=40.0),
    Row("tls-right", "{meet} t.py", 0, (), _tls("server", "ca"), within_s=40.0),
    # --- what the keys of the run hold --------------------------------------------------------------------------------
    _held("job-is-garbage", "job", b"\xff\x00 not a record", "/remuster/", "not JSON", "--rdzv-id"),
    _held("job-is-empty", "job", b"", "job", "not JSON"),
    _held("job-is-deep", "job", b"[" * 60_000, "job", "not JSON"),
    _held("job-is-huge", "job", b"x" * 1_400_000, "job", "1400000 bytes"),
    _held("job-is-another-type", "job", b"[1, 2]", "job", "not an object"),
    _held("job-lacks-a-field", "job", b'{"v": 1}', "job", "field"),
    _held("job-is-newer", "job", NEWER, "job", "newer remuster", f"schema {SCHEMA + 1}"),
    _held("job-of-an-unknown-phase", "job", NO_PHASE, "job", "unknown phase 'Q'"),
    _held("job-of-round-0", "job", encode(replace(BEGUN, round=Round(0))), "job", "round"),
    _held("job-of-no-nodes", "job", encode(replace(BEGUN, min_nodes=0, max_nodes=0)), "job", "min_nodes"),
    _held("job-and-nothing-else", "job", encode(BEGUN), "terms", "missing", "--rdzv-id"),
    _held("node-of-nobody", f"nodes/{HERE}", b"{", f"/nodes/{HERE}", "no agent", "delete it"),
    _held("leader-of-nobody", "leader", b"x", "/leader", "no agent", "delete it"),
    Row("store-keys-of-strangers", "{meet} t.py", 0, (), _strangers),
    _stood("no-roster", _standing("R"), "/rounds/0000000001", "missing"),
    _stood("no-roster-while-stopping", _standing("S"), "/rounds/0000000001", "missing"),
    _stood("no-roster-while-forming", _standing("F", rounds=1), "/rounds/0000000001", "missing"),
    _stood("roster-is-garbage", _standing("R", roster=b"{"), "/rounds/0000000001", "not JSON"),
    _stood("roster-of-nobody", _standing("R", roster=b'{"v": 1, "round": 1, "members": [], "spares": []}'),
           "/rounds/0000000001", "members"),
    # --- an end that is kept there ------------------------------------------------------------------------------------
    _stood("done", _done, "done", "--rdzv-id", "--fresh", code=USAGE),
    _stood("failed-under-this-launch", _failed, "rank 0", "exit status 3", "launch_id=NAME", code=2),
    _stood("failed-with-256", _ended_as(exit_code=256), "job", "exit_code"),
    _stood("failed-with-0", _ended_as(exit_code=0), "job", "exit_code"),
    _stood("failed-in-colour", _ended_as(exit_code=3, sentence="rank 0\n\x1b[2J died"), "rank 0", "died",
           "launch_id=NAME", code=2),
    # --- a name that is taken -----------------------------------------------------------------------------------------
    Row("store-node-is-garbage", "{meet} t.py", REFUSED, (f"nodes/{HERE}", "not JSON"), _namesake_of_garbage,
        after=_namesake_ends),
    Row("node-name-of-another-machine", "{meet} t.py", REFUSED, (f"'{HERE}'", "another machine", "203.0.113.9",
        "--local-addr"), _namesake, after=_namesake_ends, within_s=30.0),
)  # fmt: skip
