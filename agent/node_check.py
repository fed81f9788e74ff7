"""Looks whether this node can take part: reads what ``health/node_check.py`` judges, runs tests and plug-ins.

Called before a node joins (``main.py``), between rounds on a node that a verdict blames, and by ``remuster check``.
What may hang, the driver and the tests, is a child with a time of its own; file systems are read on a thread. A time
that runs out is "unknown" and lets pass, but for a test of a GPU: one of seconds that does not end in a minute is bad.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import sys
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import NamedTuple, cast

from ..health.node_check import (
    SHM,
    Finding,
    GpuReading,
    PortReading,
    State,
    clock,
    conclude,
    fabric,
    gpus,
    limits,
    room,
    shared_memory,
)
from ..health.tail import clean
from .bounded_child import ChildTrouble, NoAnswer, Reply, ask_child
from .fabric import ports
from .gpu_cards import VISIBLE, Card, chosen
from .gpu_start import driver_here
from .spec import FABRIC

READ_S = 3.0  # for file systems and /sys
PROBE_S = 12.0  # for the driver: its first call on an idle node loads firmware
DEEP_S = 120.0
OWN_SHARE = 0.9  # of those, after which a test of RDMA ends by itself, and says so
TESTS_S = 20.0  # of the same, what the memory of all GPUs is tested for
PLUGIN_S = 60.0
LONGEST = 500  # characters of what a check says
_UNSYNCHRONISED = 0x40  # STA_UNSYNC of adjtimex(2)

Spare = Callable[[tuple[int, ...]], None]


class Wish(NamedTuple):
    """What is to be looked at."""

    log_dir: Path  # where this job writes
    environ: Mapping[str, str]  # the ranks': which GPUs they see
    python: str = sys.executable  # the ranks' interpreter
    command: tuple[str, ...] = ()  # of the site's own
    installed: bool = False  # what is installed under remuster.node_checks is run too
    gpus: int | None = None  # how many there must be
    deep: bool = False
    own: int = 0  # pid whose descendants' GPU memory is the job's own
    deep_s: float = DEEP_S
    sysfs: Path = Path(FABRIC)  # where RDMA devices are


class Looking(NamedTuple):
    """What a check needs of whoever runs it."""

    spare: Callable[[str], Spare]  # for a child of that name: what is told of its pid
    say: Callable[[str], None]  # a child's words


def unspared(_who: str) -> Spare:
    """Return what takes a child's pid where no sweep meets it."""

    def ignore(_pids: tuple[int, ...]) -> None:
        pass

    return ignore


async def check_node(wish: Wish, around: Looking) -> tuple[Finding, ...]:
    """Return all findings; never raises, and takes no longer than the bounds above."""
    work: list[Coroutine[object, object, list[Finding]]] = [_host(wish), _plugins(wish, around)]
    if wish.gpus or driver_here(os.environ):
        work.append(_gpus(wish, around))
    found = [finding for part in await asyncio.gather(*work) for finding in part]
    if wish.deep and conclude(found).passed is not False:
        live = any(finding.check == "fabric" and finding.state is State.OK for finding in found)
        found += await _deep(wish, around, live)
    return tuple(found)


# --- this host --------------------------------------------------------------------------------------------------------
async def _host(wish: Wish) -> list[Finding]:
    try:
        return await asyncio.wait_for(asyncio.to_thread(_read_host, wish), READ_S)
    except asyncio.TimeoutError:
        return [Finding("host", "this host", State.UNKNOWN, f"its file systems gave no answer within {READ_S:g} s")]


def _read_host(wish: Wish) -> list[Finding]:
    found = [_room("the log directory", wish.log_dir)]
    try:
        shm = os.statvfs(SHM)
        found.append(shared_memory(shm.f_blocks * shm.f_frsize, shm.f_bavail * shm.f_frsize))
    except OSError as error:
        found.append(Finding("shm", SHM, State.NOTE, f"{error.strerror}; data workers need it"))
    links = [PortReading(port.device, port.number, port.state, port.physical) for port in ports(wish.sysfs)]
    files, locked = (resource.getrlimit(which)[0] for which in (resource.RLIMIT_NOFILE, resource.RLIMIT_MEMLOCK))
    return [*found, *limits(files, locked, bool(links)), clock(_synchronised()), *fabric(links)]


def _room(what: str, path: Path) -> Finding:
    while not path.exists() and path != path.parent:
        path = path.parent
    try:
        found = os.statvfs(path)
    except OSError as error:
        return Finding("disk", what, State.UNKNOWN, f"{path}: {error.strerror}")
    return room(what, str(path), found.f_bavail * found.f_frsize, found.f_favail if found.f_files else -1)


def _synchronised() -> bool | None:
    """Ask the kernel whether its clock is disciplined; None when it does not say."""
    import ctypes

    page = (ctypes.c_long * 64)()  # struct timex: modes, offset, freq, maxerror, esterror, status, …
    try:
        if ctypes.CDLL(None, use_errno=True).adjtimex(page) < 0:
            return None
    except (OSError, AttributeError):
        return None
    status = ctypes.cast(page, ctypes.POINTER(ctypes.c_int))[10]  # after an int, its padding and four longs
    return not status & _UNSYNCHRONISED


# --- GPUs -------------------------------------------------------------------------------------------------------------
async def _gpus(wish: Wish, around: Looking) -> list[Finding]:
    argv = [sys.executable, "-m", f"{__package__}.gpu_probe", str(wish.own or os.getpid())]
    try:
        reply = await ask_child(argv, b"", timeout_s=PROBE_S, spare=around.spare("GPU probe"), say=around.say)
        return _judged(wish, reply)
    except ChildTrouble as error:
        return [Finding("gpu", "GPU driver", State.UNKNOWN, f"the look at it {error}")]


def _judged(wish: Wish, reply: Reply) -> list[Finding]:
    try:
        body: object = json.loads(reply.out)
    except ValueError:
        return [Finding("gpu", "GPU driver", State.UNKNOWN, f"the look at it failed: {reply.last_words or 'no word'}")]
    if not isinstance(body, list):
        why = str(cast("dict[str, object]", body).get("error")) if isinstance(body, dict) else "no list"
        state = State.UNKNOWN if wish.gpus is None else State.BAD
        return [Finding("gpu", "GPU driver", state, f"{why}; see nvidia-smi on the node")]
    readings = [_reading(cast("dict[str, object]", item)) for item in cast("list[object]", body)]
    seen = chosen(wish.environ.get(VISIBLE), (Card(gpu.number, gpu.uuid, gpu.bus, gpu.migs) for gpu in readings))
    return gpus((gpu for gpu in readings if gpu.number in seen), wish.gpus)


def _reading(item: dict[str, object]) -> GpuReading:
    holders = tuple(
        (int(pid), int(size), str(name)) for pid, size, name in cast("list[list[str]]", item.pop("holders", []))
    )
    migs = tuple(cast("list[str]", item.pop("migs", [])))
    return GpuReading(**{**item, "holders": holders, "migs": migs})  # type: ignore[arg-type]  # our own child's words


# --- tests ------------------------------------------------------------------------------------------------------------
async def _deep(wish: Wish, around: Looking, rdma: bool) -> list[Finding]:
    """Run the tests in the ranks' interpreter and, beside them, those of the RDMA ports when one is active."""
    program = Path(__file__).parent.parent / "worker" / "deep_check.py"
    argv = [wish.python, str(program), "cuda", f"{min(TESTS_S, wish.deep_s / 3):g}"]
    work = [_tests("deep check", argv, wish, around)]
    if rdma:
        argv = [sys.executable, "-m", f"{__package__}.rdma_loopback", str(wish.sysfs), f"{wish.deep_s * OWN_SHARE:g}"]
        work.append(_tests("RDMA test", argv, wish, around))
    return [finding for part in await asyncio.gather(*work) for finding in part]


async def _tests(name: str, argv: list[str], wish: Wish, around: Looking) -> list[Finding]:
    """Run one program of tests; what was found until its time ran out counts."""
    lines: list[str] = []
    try:
        reply = await ask_child(argv, b"", timeout_s=wish.deep_s, spare=around.spare(name), say=lines.append)
        ended = f"the tests ended with status {reply.status}" if reply.status else ""
    except NoAnswer:
        ended = f"it did not end within {wish.deep_s:g} s"
    except ChildTrouble as error:
        return [*tested(lines, ""), Finding("deep", "tests", State.UNKNOWN, f"the child {error}")]
    return tested(lines, ended)


def tested(lines: list[str], ended: str) -> list[Finding]:
    """Return what the tests' lines say; ``ended``: how they ended before they were through, '' when they were."""
    found: list[Finding] = []
    begun = ""
    for line in lines:
        try:
            item: object = json.loads(line)
        except ValueError:
            continue  # a warning of torch's
        words = cast("dict[str, object]", item) if isinstance(item, dict) else {}
        if "begin" in words:
            begun = str(words["begin"])
        elif "check" in words:
            begun = ""
            state = State(words["state"]) if words.get("state") in set(State) else State.UNKNOWN
            what, text = _shown(str(words.get("what"))), _shown(str(words.get("text")))
            found.append(Finding(str(words["check"]), what, state, text))
    if ended:
        device = "cuda" in begun or "GPUs" in begun
        what = begun or "tests"
        found.append(Finding("deep", what, State.BAD if device else State.UNKNOWN, ended))
    return found


# --- the site's own ---------------------------------------------------------------------------------------------------
async def _plugins(wish: Wish, around: Looking) -> list[Finding]:
    work: list[Coroutine[object, object, list[Finding]]] = []
    if wish.command:
        work.append(_command(wish, around))
    if wish.installed:
        work.append(_installed(around))
    return [finding for part in await asyncio.gather(*work) for finding in part]


async def _command(wish: Wish, around: Looking) -> list[Finding]:
    """Run the site's command: 0 passes, 1 to 125 fails with its last line, all else is unknown."""
    what, lines = Path(wish.command[0]).name, list[str]()
    try:
        reply = await ask_child(
            wish.command, b"", timeout_s=PLUGIN_S, spare=around.spare("node check"), say=lines.append
        )
    except ChildTrouble as error:
        return [Finding("plugin", what, State.UNKNOWN, f"it {error}")]
    printed = reply.out.decode(errors="replace").strip().split("\n")[-1]
    text = _shown(reply.last_words) or _shown(printed) or f"exit status {reply.status}"
    state = State.OK if reply.status == 0 else State.BAD if 0 < reply.status < 126 else State.UNKNOWN
    return [Finding("plugin", what, state, text if reply.status else _shown(printed) or "passed")]


def _shown(text: str) -> str:
    """Return a strange program's words as one may print them: they go to terminals and into the quarantine's record."""
    return " ".join(clean(text).split())[:LONGEST]


async def _installed(around: Looking) -> list[Finding]:
    """Run what is installed under the entry points of ``remuster.node_checks``, in an interpreter of its own."""
    argv = [sys.executable, "-m", f"{__package__}.check_plugins"]
    lines: list[str] = []
    try:
        reply = await ask_child(argv, b"", timeout_s=PLUGIN_S, spare=around.spare("node checks"), say=lines.append)
        ended = f"status {reply.status}: {reply.last_words}" if reply.status else ""
    except ChildTrouble as error:
        ended = str(error)
    return tested(lines, ended)
