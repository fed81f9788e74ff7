"""One row of the table of bad input, played: arranged, started, timed, and searched for what it left.

A ``Row`` says what a person typed, on what kind of a world, and what must come of it. ``play`` starts the real command
in a ``Scene`` of its own and returns an ``Outcome``, in which everything is noted that must hold for every row alike.
Rows are played on threads, many at a time; nothing here asserts but the time limit. Used by ``conftest.py``.
"""

from __future__ import annotations

import base64
import contextlib
import ctypes
import fcntl
import os
import re
import shlex
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from bad_input.stores import Stores
from command.cluster import Cluster, Node
from command.processes import until
from etcd_server import EtcdServer

from remuster.agent.cgroup import of_tag
from remuster.agent.minder_folder import folder_of
from remuster.agent.node_lock import LOCKS, NodeLock

RANK = "import os\nopen(f'ran-{os.environ[\"RANK\"]}', 'w').close()\n"
# The lease outlives the table, so that one that is left is found at its end.
CONF = "lease_ttl=300,kill_bound=1,last_call_timeout=1,join_timeout=4,connect_timeout=2"
HERE = "127.0.0.2"  # the address, and so the node's name, of a row's command
MEET = f"--rdzv-backend etcd --rdzv-endpoint {{at}} --rdzv-id {{run}} --rdzv-conf {{conf}} --local-addr {HERE}"
PR_CAPBSET_DROP, CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH = 24, 1, 2
RUN = r"[^/]+_[0-9a-f]{8}"
KEPT = re.compile(
    RUN + r"(/events\.jsonl|/summary\.json|/attempts|/attempts/attempt-\d+\.json)?"
)  # of a run that never ran
RANKS = re.compile(
    RUN + r"/(attempt_\d+(/\d+(/(stdout|stderr)\.log)?)?|bundles(/attempt-\d+(/[\w.-]+)?)?)"
)  # where a rank was to be started


class Scene(Cluster):
    """Where one row is played: a folder, an environment, a run id, and stores of every kind to point at."""

    conf = CONF

    def __init__(self, folder: Path, etcd: EtcdServer, stores: Stores) -> None:
        super().__init__(folder, etcd)
        self.stores = stores
        self.closing = contextlib.ExitStack()  # what an arrangement has opened
        self.script("t.py", RANK)

    def path(self, name: str, content: str | bytes | None = None, mode: int = 0o644) -> Path:
        """Return a path in the scene's folder; with ``content`` a file is made there."""
        path = self.folder / name
        if content is not None:
            path.write_bytes(content if isinstance(content, bytes) else content.encode())
            path.chmod(mode)
        return path

    def put(self, key: str, value: bytes, lease: int = 0) -> None:
        """Write into the run's keys, as a stranger would."""
        name = base64.b64encode(f"{self.prefix}{key}".encode()).decode()
        self.etcd.post("kv/put", {"key": name, "value": base64.b64encode(value).decode(), "lease": lease})

    def delete(self, key: str) -> None:
        """Delete one of the run's keys."""
        name = base64.b64encode(f"{self.prefix}{key}".encode()).decode()
        self.etcd.post("kv/deleterange", {"key": name})

    def grant(self, ttl_s: int) -> int:
        """Return a lease of ``ttl_s``, kept by nobody."""
        return int(self.etcd.post("lease/grant", {"TTL": ttl_s})["ID"])

    def revoke(self, lease: int) -> None:
        """Give up a lease of the test's own."""
        self.etcd.post("lease/revoke", {"ID": lease})

    def leased(self) -> dict[str, int]:
        """Return the run's keys that hang on a lease, and that lease."""
        return {key: int(self._lease(key)) for key in self.tree() if int(self._lease(key))}

    def close(self) -> None:
        """End all that runs, and put away what was arranged."""
        super().close()
        self.closing.close()

    def files(self) -> set[str]:
        """Return everything that lies in the folder now, but for the nodes' own folders."""
        found = (str(path.relative_to(self.folder)) for path in self.folder.rglob("*"))
        return {name for name in found if not name.startswith(("nodes", "desk/"))}


Arrange = Callable[[Scene], Mapping[str, object]]


class Row(NamedTuple):
    """What is typed, and what must come of it.

    ``line`` is split as a shell would, and {names} in its words are filled in: what ``arrange`` returned, and ``run``,
    ``conf``, ``at`` (the etcd), ``folder``. The word {meet} stands for all that an etcd needs.
    """

    id: str
    line: str
    code: int
    says: tuple[str, ...] = ()  # what the one sentence must hold; with code 0: what the log must
    arrange: Arrange = lambda scene: {}
    env: Mapping[str, str] = {}
    within_s: float = 20.0  # on a busy machine: a quiet one needs a tenth of a second, or what the row waits for
    voice: str = "remuster: "  # how the sentence begins; a rank's own failure has torchrun's report
    makes: tuple[str, ...] = ()  # files that may be there afterwards, and were not before; patterns
    trace: bool = False  # the traceback of a function of the user's belongs into the log
    after: Callable[[Scene, Node], None] = lambda scene, node: None  # what else must hold; asserts
    powerless: bool = False  # root without its powers over files, so that their modes count
    unless: str = ""  # why it cannot be played here


class Outcome(NamedTuple):
    """How a row ended; ``ran`` are the ranks that did, ``left`` is all that it should not have left, in words."""

    node: Node
    code: int
    took_s: float
    says: tuple[str, ...]  # the row's, filled in
    ran: tuple[str, ...]
    left: tuple[str, ...]


def play(row: Row, scene: Scene) -> Outcome:
    """Arrange the row, run the command to its end, and look at what is left; AssertionError when it does not end."""
    usual = {"run": scene.run_id, "conf": CONF, "at": f"127.0.0.1:{scene.etcd.port}", "folder": scene.folder}
    given = {**usual, **row.arrange(scene)}

    def filled(text: str) -> str:
        return text.format_map(given)

    words = [filled(word) for word in shlex.split(row.line.replace("{meet}", MEET))]
    env = {name: filled(text) for name, text in row.env.items()}

    def start() -> Node:
        return scene.command(*words, name=f"{row.id}-{HERE}", env=env)

    before = scene.files()
    started = time.monotonic()
    node = _powerless(start) if row.powerless and os.geteuid() == 0 else start()
    code = node.exit_code(row.within_s)
    took_s = time.monotonic() - started
    row.after(scene, node)
    ran = {name for name in scene.files() - before if re.fullmatch(r"ran-\d+", name)}
    new = {name for name in scene.files() - before - ran if not any(re.fullmatch(p, name) for p in row.makes)}
    left = [f"file {name}" for name in sorted(new)]
    left += [f"in the log directory: {name}" for name in _logs_left(node, code, row)]
    left += _held(scene)
    if "port" in given:
        left += _stores_left(int(str(given["port"])))
    says = tuple(filled(part) for part in row.says)
    return Outcome(node, code, took_s, says, tuple(sorted(ran)), tuple(left))


def _powerless(start: Callable[[], Node]) -> Node:
    """Start a process that may not pass over the modes of files, from a thread that has given up the right to."""

    def give_up() -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        for capability in (CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH):
            if libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0):
                raise OSError(ctypes.get_errno(), "prctl")

    with ThreadPoolExecutor(1, initializer=give_up) as thread:
        return thread.submit(start).result()


def _logs_left(node: Node, code: int, row: Row) -> list[str]:
    """Return what lies in the log directory and should not; wrong usage makes not even the directory."""
    if not node.log_dir.exists():
        return []
    if code == 2 and not list(node.log_dir.iterdir()):
        return ["the directory itself"]
    names = [str(path.relative_to(node.log_dir)) for path in node.log_dir.rglob("*")]
    ranks = code == 0 or row.voice != Row._field_defaults["voice"]
    return [name for name in names if not KEPT.fullmatch(name) and not (ranks and RANKS.fullmatch(name))]


def _held(scene: Scene) -> list[str]:
    """Return what holds others up: keys on a lease in the store, a node's lock, its cgroup."""
    held = [f"key {key} on lease {lease:x}" for key, lease in scene.leased().items()]
    lock = NodeLock(scene.run_id, HERE)
    path = LOCKS / f"remuster-{os.getuid()}" / f"{lock.tag}.lock"
    if path.exists():
        with path.open("rb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                held.append(f"the lock {path}")
    return held + [f"cgroup {group}" for group in of_tag(lock.tag)]


def _stores_left(port: int) -> list[str]:
    """Return the folders of etcds of a job's own, at that port and, for static, the next."""
    folders = [folder_of(str(LOCKS / f"remuster-{os.getuid()}"), "127.0.0.1", at) for at in (port, port + 1)]
    return [f"folder {folder}" for folder in folders if os.path.exists(folder)]


def steady(scene: Scene, number: int, *args: str) -> Node:
    """Start a node whose two ranks stand until they are told to end, and wait for them."""
    node = scene.steady(number, *args)
    scene.wait_round(1, 2)
    return node


def undisturbed(scene: Scene, node: Node) -> None:
    """Check that the other nodes' round is still the first one, and end it well."""
    assert scene.job()["phase"] == "R", scene.job()
    assert scene.job()["round"] == 1, scene.job()
    scene.order("done")
    others = [other for other in scene.nodes if other is not node]
    assert [other.exit_code() for other in others] == [0] * len(others), scene.say()
    until(lambda: not scene.leased(), "leases of the other nodes are given up", show=scene.say)
