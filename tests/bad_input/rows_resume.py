"""Rows about the way back in: a resume hook that answers badly or not at all, and checkpoints that are none.

No rank is started from a point that was not found: a hook's failure is its author's (exit code 1), a directory that
cannot be read is the storage's (75). Where there is simply nothing to resume from, the job starts from nothing, and
where what is there was torn, it says so; but not where the directory or the format was given wrongly (2).
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping

from bad_input.scene import Arrange, Row, Scene
from command.cluster import Node
from like_torch import dcp

from remuster.checkpoint import publish

USAGE, USER = 2, 1
NOT_STARTED = "no rank was started: mend the hook"

HOOKS = """
import json, os, sys, time
def raises(question): raise RuntimeError("no bucket called models")
def hangs(question): time.sleep(600)
def exits(question): sys.exit(3)
def dies(question): os.kill(os.getpid(), 9)
def says_a_word(question): return "yes"
def half(question): return {"step": 3}
def negative(question): return {"path": "here", "step": -1}
def missing(question): return {"path": "not/there", "step": 3}
def not_json(question): return object()
def forbidden(question): return {"path": ".", "step": 3, "env": {"LD_PRELOAD": "x.so"}}
def none(question): return None
a_number = 3
"""


def _hooks(scene: Scene) -> Mapping[str, object]:
    scene.script("hooks.py", HOOKS)
    scene.path("broken.py", "import no_such_library\n")
    scene.path("nonsense", "#!/bin/sh\necho hello\n", 0o755)
    scene.path("endless", "#!/bin/sh\nexec yes\n", 0o755)
    scene.path("silent", "#!/bin/sh\n", 0o755)
    scene.path("three", "#!/bin/sh\necho 'no such bucket' >&2\nexit 3\n", 0o755)
    scene.path("gone", "#!/no/such/shell\n", 0o755)
    scene.path("plain", "#!/bin/sh\n", 0o644)
    scene.path("daemon", "#!/bin/sh\nsleep 600 &\nsetsid sleep 600 &\necho nonsense\n", 0o755)
    return {}


def _hook(name: str, hook: str, *says: str, code: int = USER, trace: bool = False) -> Row:
    made = ("__pycache__.*",)
    return Row(f"hook-{name}", f"--resume-hook {hook} t.py", code, says, _hooks, makes=made, trace=trace)


def _published(*steps: int, spoil: Callable[[Scene, int], None]) -> Arrange:
    """Publish these steps, each with one file, and spoil each of them."""

    def arrange(scene: Scene) -> Mapping[str, object]:
        for step in steps:
            with publish(step, directory=scene.path("kept"), gather=lambda text: [text], rank=0) as p:
                p.path("state").write_text(f"after {step}")
            spoil(scene, step)
        return {}

    return arrange


def _cut(scene: Scene, step: int) -> None:
    (scene.path("kept") / f"step-{step:012d}" / "state").write_text("aft")


def _other_words(scene: Scene, step: int) -> None:
    (scene.path("kept") / f"step-{step:012d}" / "state").write_text(f"After {step}")


def _uncommitted(scene: Scene, step: int) -> None:
    (scene.path("kept") / f"step-{step:012d}" / "COMMITTED").unlink()


def _garbled(scene: Scene, step: int) -> None:
    (scene.path("kept") / f"step-{step:012d}" / "manifest.json").write_bytes(b"\xff{" * 1000)


def _sealed(scene: Scene, step: int) -> None:
    (scene.path("kept") / f"step-{step:012d}" / "state").chmod(0)


def _a_file(scene: Scene, step: int) -> None:
    folder = scene.path("kept") / f"step-{step:012d}"
    shutil.rmtree(folder)
    folder.write_text("moved to the archive")


def _elsewhere(*folders: str, names: tuple[str, ...] = ("step-10",)) -> Arrange:
    """Leave whole checkpoints of DCP in these folders."""

    def arrange(scene: Scene) -> Mapping[str, object]:
        for folder in folders:
            for name in names:
                dcp(scene.path(folder), name)
        return {}

    return arrange


def _from_nothing(*steps: int) -> Callable[[Scene, Node], None]:
    """The record says that each of the steps was passed over, and why; and they are still there."""

    def check(scene: Scene, node: Node) -> None:
        (record,) = node.records()
        assert record["resume"] is None, record
        assert [one["name"] for one in record["refused"]] == [f"step-{step:012d}" for step in sorted(steps)[::-1]]
        assert all(one["reason"] for one in record["refused"])
        assert len(list(scene.path("kept").glob("step-*"))) == len(steps)

    return check


def _torn(name: str, spoil: Callable[[Scene, int], None], *says: str) -> Row:
    """All steps are spoiled: the job starts from nothing, and says why for each."""
    steps = (5, 10)
    return Row(
        f"checkpoints-{name}", "--checkpoint-dir kept t.py", 0,
        ("step-000000000010 is passed over", "the job begins from nothing", *says),
        _published(*steps, spoil=spoil), after=_from_nothing(*steps), makes=(r"kept/\.remuster.*",),
    )  # fmt: skip


ROWS = (
    _hook("missing-program", "./nothing", "--resume-hook", "'./nothing'", "module:function", code=USAGE),
    _hook("not-executable", "./plain", "--resume-hook", "'./plain'", code=USAGE),
    _hook("bad-interpreter", "./gone", "./gone", "the interpreter that its first line asks for", NOT_STARTED),
    _hook("raises", "hooks:raises", "hooks:raises", "RuntimeError: no bucket called models", NOT_STARTED, trace=True),
    _hook("no-module", "no_such_hooks:choose", "no_such_hooks", "no module", NOT_STARTED),
    _hook("no-function", "hooks:choose", "hooks:choose", "no function", NOT_STARTED),
    _hook("no-callable", "hooks:a_number", "hooks:a_number", "no function", NOT_STARTED),
    _hook("module-breaks", "broken:choose", "broken:choose", "no_such_library", NOT_STARTED, trace=True),
    _hook("exits", "hooks:exits", "hooks:exits", "exit code 3", NOT_STARTED),
    _hook("exits-3", "./three", "./three", "exit code 3", "no such bucket", NOT_STARTED),
    _hook("is-killed", "hooks:dies", "hooks:dies", "signal 9", NOT_STARTED),
    _hook("nonsense", "./nonsense", "./nonsense", "printed 'hello'", "JSON", NOT_STARTED),
    _hook("nothing", "./silent", "./silent", "printed nothing", "JSON", NOT_STARTED),
    _hook("endless", "./endless", "./endless", "printed more than", NOT_STARTED),
    _hook("leaves-daemons", "./daemon", "./daemon", "printed 'nonsense'", NOT_STARTED),
    _hook("a-word", "hooks:says_a_word", "hooks:says_a_word", "JSON", NOT_STARTED),
    _hook("not-json", "hooks:not_json", "not_json returned object", "JSON", NOT_STARTED),
    _hook("no-path", "hooks:half", "hooks:half", "path is None", NOT_STARTED),
    _hook("negative-step", "hooks:negative", "hooks:negative", "step is -1", NOT_STARTED),
    _hook("missing-path", "hooks:missing", "hooks:missing", "'not/there'", "not there", NOT_STARTED),
    _hook("forbidden-name", "hooks:forbidden", "hooks:forbidden", "'LD_PRELOAD'", NOT_STARTED),
    _hook("none", "hooks:none", code=0),
    Row("hook-hangs", "--rdzv-conf resume_timeout=1 --resume-hook hooks:hangs t.py", USER,
        ("hooks:hangs", "within 1 s", "resume_timeout", NOT_STARTED), _hooks, makes=("__pycache__.*",)),
    Row("checkpoints-none", "--checkpoint-dir kept t.py", 0, (), makes=("kept", r"kept/\.remuster.*")),
    Row("checkpoints-one-level-up", "--checkpoint-dir kept t.py", USAGE,
        ("run: it holds 'step-10'", "give 'run' as the directory", "no rank was started"), _elsewhere("kept/run"),
        makes=(r"kept/\.remuster.*",)),
    Row("checkpoints-one-level-down", "--checkpoint-dir kept/step-10 t.py", USAGE,
        ("it is itself a checkpoint: give the directory that holds it", "no rank was started"), _elsewhere("kept"),
        makes=(r"kept/step-10/\.remuster.*",)),
    Row("checkpoints-of-another-format", "--checkpoint-dir kept --checkpoint-format orbax t.py", USAGE,
        ("it is of the format dcp, not orbax", "no rank was started", "--checkpoint-format"), _elsewhere("kept"),
        makes=(r"kept/\.remuster.*",)),
    _torn("cut", _cut, "has 3 bytes"),
    _torn("other-content", _other_words, "sha256 differs"),
    _torn("uncommitted", _uncommitted, "'COMMITTED' is missing"),
    _torn("garbled", _garbled, "manifest.json"),
    _torn("unreadable", _sealed, "'state' cannot be read")._replace(powerless=True),
    _torn("files", _a_file, "a real directory is needed"),
)  # fmt: skip
