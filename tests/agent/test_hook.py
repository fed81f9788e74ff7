"""Resume hooks as real processes: good ones, and ones that raise, hang, print nonsense or leave children behind."""

from __future__ import annotations

import asyncio
import ctypes
import json
import os
import shlex
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from remuster.agent import proc
from remuster.agent.files import FileThread
from remuster.agent.hook import (
    BuiltIn,
    Care,
    Command,
    Function,
    HookError,
    HookRequest,
    find_resume_point,
    parse_hook,
    question,
    read_answer,
)
from remuster.rendezvous.records import Incarnation, Member, NodeId, ResumePoint, Roster, Round

PR_SET_CHILD_SUBREAPER = 36

ROSTER = Roster(
    Round(4),
    (
        Member(NodeId("a"), Incarnation(1), "m", 2, "10.0.0.1"),
        Member(NodeId("b"), Incarnation(2), "n", 4, "10.0.0.2"),
    ),
)


@dataclass
class Hooked:
    """A request, and what the hook's surroundings saw."""

    care: Care
    request: HookRequest
    spared: list[tuple[int, ...]] = field(default_factory=list)
    said: list[str] = field(default_factory=list)


@pytest.fixture
def hooked(tmp_path: Path) -> Iterator[Hooked]:
    files = FileThread("hook-files")
    directory = tmp_path / "ckpt"
    directory.mkdir()
    spared: list[tuple[int, ...]] = []
    said: list[str] = []
    request = HookRequest("run", 2, directory, ROSTER, ((1, None), (2, 10)))
    yield Hooked(Care(files, 20.0, spared.append, said.append), request, spared, said)
    files.close()


def command(code: str) -> Command:
    return Command((sys.executable, "-ISc", code))


def test_forms() -> None:
    assert parse_hook("my.pkg:find") == Function("my.pkg:find")
    assert parse_hook("find-step --run 'a b'") == Command(("find-step", "--run", "a b"))
    assert parse_hook("/opt/x:y") == Command(("/opt/x:y",))
    with pytest.raises(HookError, match="check its quotes"):
        parse_hook("find 'open")
    with pytest.raises(HookError, match="empty"):
        parse_hook("  ")


def test_the_question(tmp_path: Path) -> None:
    request = HookRequest("run", 2, tmp_path, ROSTER, ((1, None), (2, 10)))
    assert json.loads(question(request)) == {
        "run_id": "run",
        "round": 4,
        "attempt": 2,
        "checkpoint_dir": str(tmp_path),
        "members": [
            {"node": "a", "address": "10.0.0.1", "slots": 2, "first_rank": 0},
            {"node": "b", "address": "10.0.0.2", "slots": 4, "first_rank": 2},
        ],
        "world_size": 6,
        "history": [[1, None], [2, 10]],
    }


@pytest.mark.parametrize(
    ("out", "point"),
    [
        (b"null\n", ResumePoint()),
        (b'loading...\n{"path": "/c/9", "step": 9}\n', ResumePoint("/c/9", 9)),
        (b'{\n "path": "/c/9",\n "step": 0\n}', ResumePoint("/c/9", 0)),
        (
            b'{"path": "x", "step": 1, "format": "dcp", "verified": "by me", "env": {"LR": "1"}, "more": []}',
            ResumePoint("x", 1, "dcp", "by me", (("LR", "1"),)),
        ),
    ],
)
def test_answers(out: bytes, point: ResumePoint) -> None:
    assert read_answer(out) == point


@pytest.mark.parametrize(
    ("out", "why"),
    [
        (b"", "it printed nothing; expected null or"),
        (b"step 7\n", "it printed 'step 7'; expected null or"),
        (b"[1]", "it answered '\\[1\\]'"),
        (b"[" * 100_000, "it printed '\\["),
        (b'{"path": "/c"}', "its step is None"),
        (b'{"path": "/c", "step": true}', "its step is True"),
        (b'{"path": "/c", "step": -1}', "its step is -1"),
        (b'{"path": "/c", "step": 1.0}', "its step is 1.0"),
        (b'{"step": 1}', "its path is None"),
        (b'{"path": "", "step": 1}', "its path is ''"),
        (b'{"path": "/c\\u0000", "step": 1}', "its path is"),
        (b'{"path": "/c\\nd", "step": 1}', "its path is"),
        (b'{"path": "/c", "step": 1, "format": 3}', "its format is no text"),
        (b'{"path": "/c", "step": 1, "verified": "%s"}' % (b"v" * 201), "its verified is no text of at most 200"),
        (b'{"path": "/c", "step": 1, "env": []}', "its env is"),
        (b'{"path": "/c", "step": 1, "env": {"RANK": "0"}}', "it may not set 'RANK'"),
        (b'{"path": "/c", "step": 1, "env": {"LD_PRELOAD": "x"}}', "it may not set 'LD_PRELOAD'"),
        (b'{"path": "/c", "step": 1, "env": {"A": 1}}', "its value for A is 1"),
        (b'{"path": "/c", "step": 1, "env": {"A": "%s"}}' % (b"v" * 1024), "more than 1024 bytes"),
    ],
)
def test_no_answers(out: bytes, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        read_answer(out)


async def test_a_good_command(hooked: Hooked) -> None:
    assert hooked.request.checkpoint_dir is not None
    step = hooked.request.checkpoint_dir / "step-7"
    step.mkdir()
    (step.parent / "latest").symlink_to(step)
    code = """
import json, sys
asked = json.load(sys.stdin)
print("looking", file=sys.stderr)
print(json.dumps({"path": "latest", "step": asked["round"], "env": {"ASKED": str(asked["history"])}}))
"""
    result = await find_resume_point(command(code), hooked.request, hooked.care)
    # a relative path is below the checkpoint directory, and a link is followed at once
    assert result.point == ResumePoint(str(step), 4, "", "", (("ASKED", "[[1, None], [2, 10]]"),))
    assert hooked.said == ["looking"]
    assert result.took_s > 0
    (pid,), over = hooked.spared
    assert over == ()
    assert not proc.alive(pid)


async def test_a_good_function_may_print_and_import_what_it_likes(
    hooked: Hooked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "my_hook.py").write_text(
        "import os, pathlib\n"
        "class Finder:\n"
        "    @staticmethod\n"
        "    def find(asked):\n"
        "        print('on stdout')\n"
        "        os.write(1, b'and below it\\n')\n"
        "        return {'path': pathlib.Path(asked['checkpoint_dir']), 'step': asked['world_size']}\n"
        "def nothing(asked):\n"
        "    return None\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    result = await find_resume_point(Function("my_hook:Finder.find"), hooked.request, hooked.care)
    assert result.point == ResumePoint(str(hooked.request.checkpoint_dir), 6)
    assert sorted(hooked.said) == ["and below it", "on stdout"]
    assert (await find_resume_point(Function("my_hook:nothing"), hooked.request, hooked.care)).point == ResumePoint()


@pytest.mark.parametrize(
    ("hook", "why"),
    [
        (command("raise KeyError('x')"), r"resume hook '.*' ended with exit code 1: KeyError: 'x'"),
        (command("import sys; sys.exit(3)"), "exit code 3: it said nothing on stderr"),
        (command("import os; os.kill(os.getpid(), 9)"), "was killed by signal 9"),
        (command("print('nonsense')"), "it printed 'nonsense'; expected"),
        (command('print(\'{"path": "/no/such/place", "step": 1}\')'), "names '/no/such/place', which is not there"),
        (command("while True: print('x' * 10000)"), "printed more than 1048576 bytes and was killed"),
        (Command(("/no/such/program",)), "could not be started: No such file or directory"),
        (Function("no_such_module_of_mine:f"), "there is no module 'no_such_module_of_mine' in .*; correct no_such_"),
        (Function("json.no_such:f"), "1: there is no module 'json.no_such' in "),
        (Function("json:no_such"), "1: there is no function 'no_such' in json; correct json:no_such"),
        (Function("json:loads.no_such"), "1: there is no function 'loads.no_such' in json"),
        (Function("builtins:set"), "1: set returned set, which cannot be put into JSON: "),
        (Function("json:loads"), "resume hook json:loads ended with exit code 1: TypeError"),
    ],
)
async def test_bad_ones(hooked: Hooked, hook: Command | Function, why: str) -> None:
    with pytest.raises(HookError, match=why):
        await find_resume_point(hook, hooked.request, hooked.care)
    assert hooked.spared[-1:] in ([], [()])


FAMILY = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
for own_session in (False, True):
    if os.fork() == 0:
        if own_session:
            os.setsid()
        while True:
            time.sleep(100)
print(os.getpid(), file=sys.stderr, flush=True)
"""


def alive_with(mark: str) -> list[int]:
    return [p for p in proc.all_pids() if proc.alive(p) and mark.encode() in proc.read(f"/proc/{p}/cmdline")]


@pytest.fixture
def subreaper() -> Iterator[None]:
    """Be given the orphans, as the agent is."""
    libc = ctypes.CDLL(None)
    assert libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0
    yield
    libc.prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


@pytest.mark.usefixtures("subreaper")
@pytest.mark.parametrize("ending", ["time.sleep(100)", "print('null')", "print('x' * 2_000_000)"])
async def test_its_children_die_with_it(hooked: Hooked, ending: str, tmp_path: Path) -> None:
    hook = command(f"{FAMILY}{ending}# {tmp_path}")
    care = replace(hooked.care, timeout_s=1.0)
    if "null" in ending:
        assert (await find_resume_point(hook, hooked.request, care)).point == ResumePoint()
    else:
        with pytest.raises(HookError, match="was killed"):
            await find_resume_point(hook, hooked.request, care)
    assert hooked.said  # it had its children by then
    assert alive_with(str(tmp_path)) == []
    assert not [pid for pid in proc.children(os.getpid()) if proc.state(pid) == "Z"]


async def test_cancelling_kills_it(hooked: Hooked, tmp_path: Path) -> None:
    told = asyncio.Event()
    care = replace(hooked.care, say=lambda _: told.set())
    hook = command(f"{FAMILY}time.sleep(100)# {tmp_path}")
    task = asyncio.ensure_future(find_resume_point(hook, hooked.request, care))
    await asyncio.wait_for(told.wait(), 20)
    assert len(alive_with(str(tmp_path))) == 3
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert alive_with(str(tmp_path)) == []
    assert hooked.spared[-1] == ()


async def test_what_it_says_is_bounded(hooked: Hooked) -> None:
    code = "import sys\nfor i in range(3000): print('w' * 2000, file=sys.stderr)\nsys.stderr.write('z' * 10000)"
    await find_resume_point(command(code + "\nprint('null')"), hooked.request, hooked.care)
    assert 900_000 < sum(map(len, hooked.said)) < 1_200_000
    assert hooked.said[-1] == "(it says more; only this much is kept)"


async def test_a_large_job_fits_into_the_question(hooked: Hooked) -> None:
    members = tuple(ROSTER.members[0]._replace(node=NodeId(f"node{i}")) for i in range(4000))
    request = replace(hooked.request, roster=Roster(Round(4), members))
    code = "import json, sys; print(json.dumps({'path': '.', 'step': len(json.load(sys.stdin)['members'])}))"
    assert (await find_resume_point(command(code), request, hooked.care)).point.step == 4000


async def test_built_in_names_what_it_refused(hooked: Hooked) -> None:
    assert hooked.request.checkpoint_dir is not None
    step = hooked.request.checkpoint_dir / "step-000000000007"
    step.mkdir()
    (step / "COMMITTED").write_text("sha256:" + "0" * 64)
    (step / "manifest.json").write_text("nonsense")
    result = await find_resume_point(BuiltIn(hooked.request.checkpoint_dir), hooked.request, hooked.care)
    assert result.point == ResumePoint()
    assert [name for name, _ in result.refused] == [step.name]


async def test_built_in_is_bounded_in_time(hooked: Hooked) -> None:
    assert hooked.request.checkpoint_dir is not None
    (hooked.request.checkpoint_dir / "step-000000000007").mkdir()  # waits for files that NFS may still hide
    care = replace(hooked.care, timeout_s=0.2)
    with pytest.raises(HookError, match=r"no verified checkpoint was found in .* within 0\.2 s"):
        await find_resume_point(BuiltIn(hooked.request.checkpoint_dir), hooked.request, care)


def test_a_command_is_split_as_a_shell_would() -> None:
    assert parse_hook(shlex.join(("a", "b c", "$HOME"))) == Command(("a", "b c", "$HOME"))
