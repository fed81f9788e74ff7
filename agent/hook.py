"""The resume hook: from where do all ranks of the round that is forming re-enter? Built in, a function, or a command.

Called by the leading agent when a round closes and all old ranks are dead; the answer is written once, with the round.
Nothing of the user's runs inside the agent: a function gets an interpreter of its own (``hook_child.py``), a command
is started as it is, both with a time limit, the question as JSON on stdin and the answer as JSON on stdout. Whatever
goes wrong is a ``HookError`` with a sentence; it is for the caller to decide what that means for the round.
"""

from __future__ import annotations

import functools
import json
import os
import re
import shlex
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, cast

from ..checkpoint.examine import unopposed
from ..rendezvous.asked import Held, ranges
from ..rendezvous.records import ResumePoint, Roster
from .bounded_child import ChildTrouble, NoAnswer, ask_child
from .files import FileThread
from .worker_env import hook_may_set

if TYPE_CHECKING:
    from ..checkpoint.examine import Seen

MAX_ENV_BYTES = 1024  # it travels with the round, in the job's record
MAX_WORD = 200  # of the format and of how it was verified

Found = tuple[ResumePoint, tuple[tuple[str, str], ...], Held]

_FUNCTION = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*", re.ASCII)
_EXPECTED = 'expected null or {"path": …, "step": …} as JSON on the last line'


class HookError(Exception):
    """The resume hook gave no usable answer; the sentence says why and what to do."""


class Astray(HookError):
    """What was asked for cannot be meant: checkpoints are there, and none is as the command line has it."""


@dataclass(frozen=True, slots=True)
class BuiltIn:
    """Search ``directory`` for the newest checkpoint that verifies."""

    directory: Path
    format: str = ""  # empty: each entry's own
    seen: Seen | None = None  # what was found whole before, by this agent


@dataclass(frozen=True, slots=True)
class Function:
    """Call ``module:function`` of the user's, in an interpreter of its own."""

    name: str


@dataclass(frozen=True, slots=True)
class Command:
    """Run a program of the user's; no shell is involved."""

    argv: tuple[str, ...]


Hook = BuiltIn | Function | Command


@dataclass(frozen=True, slots=True)
class HookRequest:
    """What the hook is told."""

    run_id: str
    attempt: int
    checkpoint_dir: Path | None
    roster: Roster
    history: tuple[tuple[int, int | None], ...]  # every formed round and the step it resumed from; None: from nothing
    objection: Callable[[str], str] = unopposed  # why other nodes cannot load a checkpoint of that name
    below: tuple[int, str] | None = None  # which step one must be below, and why
    worlds: tuple[tuple[int, int | None, int], ...] = ()  # rounds, where they resumed, and their number of ranks
    part: bool = False  # each node may hold the files of its own ranks alone: such a part will do


@dataclass(frozen=True, slots=True)
class HookResult:
    """Where to re-enter, which candidates were passed over and why, and how long the choice took."""

    point: ResumePoint
    refused: tuple[tuple[str, str], ...]
    took_s: float
    held: Held = Held()  # whose files are here, where it is a part


@dataclass(frozen=True, slots=True)
class Care:
    """What a hook runs with. ``files`` is a thread for it alone: reading a checkpoint can take minutes."""

    files: FileThread
    timeout_s: float
    spare: Callable[[tuple[int, ...]], None]  # the pids of hooks that run, to be left alone by sweeps; () when over
    say: Callable[[str], None]  # a line of the hook's stderr, for the log


def parse_hook(text: str) -> Function | Command:
    """Read ``--resume-hook``: ``module:function``, or a command line as a shell would split it."""
    if _FUNCTION.fullmatch(text):
        return Function(text)
    try:
        argv = shlex.split(text)
    except ValueError as error:
        raise HookError(f"resume hook {text!r} is not a command line ({error}); check its quotes") from error
    if not argv:
        raise HookError("the resume hook is empty; give module:function or a command, or leave it out")
    return Command(tuple(argv))


async def find_resume_point(hook: Hook, request: HookRequest, care: Care) -> HookResult:
    """Ask the hook and check its answer; HookError when it raises, hangs, prints nonsense or names a missing path.

    Cancelling it ends the search and kills the hook's processes.
    """
    begun = time.monotonic()
    refused: tuple[tuple[str, str], ...] = ()
    held = Held()
    match hook:
        case BuiltIn():
            point, refused, held = await _search(hook, request, care)
        case Function(name):
            argv = (sys.executable, "-m", f"{__package__}.hook_child", name)
            point = await _ask(f"resume hook {name}", argv, request, care)
        case Command(argv):
            point = await _ask(f"resume hook {argv[0]!r}", argv, request, care)
    return HookResult(point, refused, time.monotonic() - begun, held)


async def _search(hook: BuiltIn, request: HookRequest, care: Care) -> Found:
    enough, directory = threading.Event(), hook.directory
    try:
        return await care.files.run(_choose, hook, request, enough.is_set, timeout_s=care.timeout_s)
    except TimeoutError as error:
        raise HookError(
            f"no verified checkpoint was found in {directory} within {care.timeout_s:g} s; "
            "is its file system away? Otherwise give the search more time (resume_timeout in --rdzv-conf)"
        ) from error
    except OSError as error:
        raise HookError(f"the checkpoints in {directory} could not be read: {error}") from error
    finally:
        enough.set()


def _choose(hook: BuiltIn, request: HookRequest, give_up: Callable[[], bool]) -> Found:
    from ..checkpoint.errors import CheckpointError
    from ..checkpoint.examine import Asked
    from ..checkpoint.resume import search

    asked = Asked(
        request.run_id,
        request.history,
        hook.format,
        request.roster.world_size,
        True,
        give_up,
        request.objection,
        request.below,
        request.worlds,
        request.part,
    )
    try:
        choice = search(hook.directory, asked, seen=hook.seen)
    except CheckpointError as error:
        raise HookError(str(error)) from error
    if choice.astray:
        raise Astray(f"no checkpoint can be re-entered as it was asked for: {choice.astray}")
    name = os.path.relpath(choice.path, hook.directory) if choice.path else ""
    held = Held(ranges(choice.ranks), choice.world or 0) if choice.ranks else Held()
    verified = f"{choice.verified}; the other nodes have the rest" if choice.ranks else choice.verified
    return ResumePoint(choice.path, choice.step, choice.format, verified, name=name), choice.refused, held


async def _ask(who: str, argv: tuple[str, ...], request: HookRequest, care: Care) -> ResumePoint:
    try:
        reply = await ask_child(argv, question(request), timeout_s=care.timeout_s, spare=care.spare, say=care.say)
    except ChildTrouble as error:
        more = " (resume_timeout in --rdzv-conf gives it more time)" if isinstance(error, NoAnswer) else ""
        raise HookError(f"{who} {error}{more}") from error
    if reply.status != 0:
        how = f"ended with exit code {reply.status}" if reply.status > 0 else f"was killed by signal {-reply.status}"
        raise HookError(f"{who} {how}: {reply.last_words or 'it said nothing on stderr'}")
    try:
        point = read_answer(reply.out)
    except ValueError as error:
        raise HookError(f"{who}: {error}") from error
    if not point.path:
        return point
    base = request.checkpoint_dir or Path()
    try:
        path = await care.files.run(functools.partial(_resolve, base / point.path))
    except (OSError, RuntimeError) as error:  # RuntimeError: a loop of links, before Python 3.13
        why = getattr(error, "strerror", None) or error
        raise HookError(f"{who} names {point.path!r}, which is not there for this node: {why}") from error
    return ResumePoint(path, point.step, point.format, point.verified, point.env)


def _resolve(path: Path) -> str:
    """Follow links now: one that is moved later would send the ranks of one round to different checkpoints."""
    return str(path.resolve(strict=True))


def question(request: HookRequest) -> bytes:
    """Return what a function or command reads on stdin."""
    roster = request.roster
    members = [
        {"node": m.node, "address": m.address, "slots": m.slots, "first_rank": roster.first_rank(i)}
        for i, m in enumerate(roster.members)
    ]
    body = {
        "run_id": request.run_id,
        "round": roster.round,
        "attempt": request.attempt,
        "checkpoint_dir": None if request.checkpoint_dir is None else str(request.checkpoint_dir),
        "members": members,
        "world_size": roster.world_size,
        "history": [list(item) for item in request.history],
    }
    return json.dumps(body).encode() + b"\n"


def read_answer(out: bytes) -> ResumePoint:
    """Read what a hook printed; ValueError with the end of a sentence when it is no answer."""
    text = out.decode(errors="replace").strip()
    answer: object = None
    for candidate in (text.rpartition("\n")[2], text):
        try:
            answer = json.loads(candidate)
            break
        except (ValueError, RecursionError):
            continue
    else:
        raise ValueError(f"it printed {text[:80]!r}; {_EXPECTED}" if text else f"it printed nothing; {_EXPECTED}")
    if answer is None:
        return ResumePoint()
    if not isinstance(answer, dict):
        raise ValueError(f"it answered {candidate[:80]!r}; {_EXPECTED}")
    return _point(cast("dict[str, object]", answer))


def _point(answer: dict[str, object]) -> ResumePoint:
    path, step = answer.get("path"), answer.get("step")
    if not isinstance(path, str) or not path or "\0" in path or not path.isprintable():
        raise ValueError(f"its path is {path!r}; give the checkpoint's path, or answer null to start from nothing")
    if not isinstance(step, int) or isinstance(step, bool) or step < 0:
        raise ValueError(f"its step is {step!r}; give the number of the checkpoint's step, 0 or more")
    return ResumePoint(path, step, _word(answer, "format"), _word(answer, "verified"), _env(answer.get("env")))


def _word(answer: dict[str, object], name: str) -> str:
    word = answer.get(name)
    if word is None:
        return ""
    if not isinstance(word, str) or len(word) > MAX_WORD:
        raise ValueError(f"its {name} is no text of at most {MAX_WORD} characters")
    return word


def _env(env: object) -> tuple[tuple[str, str], ...]:
    if env is None:
        return ()
    if not isinstance(env, dict):
        raise ValueError(f"its env is {env!r:.80}; give an object of names and texts")
    pairs: list[tuple[str, str]] = []
    for name, value in cast("dict[str, object]", env).items():
        if not hook_may_set(name):
            raise ValueError(
                f"it may not set {name!r} for the ranks; use a name of your own, like MYJOB_{name.upper()}"
            )
        if not isinstance(value, str) or "\0" in value:
            raise ValueError(f"its value for {name} is {value!r:.80}; give a text")
        pairs.append((name, value))
    if sum(len(name) + len(value.encode()) for name, value in pairs) > MAX_ENV_BYTES:
        raise ValueError(f"its env has more than {MAX_ENV_BYTES} bytes; put them into a file and give its path")
    return tuple(pairs)
