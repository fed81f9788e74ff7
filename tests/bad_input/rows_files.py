"""Rows about what the command line names on disk: the script, the log directory, the checkpoint directory."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping

from bad_input.scene import RANK, Arrange, Row, Scene
from bad_input.stores import tiny_disk

USAGE, STORAGE = 2, 75
MOUNTS = "" if os.geteuid() == 0 else "a file system of one's own size needs root: played by the run of CI as root"
LONG = "x" * 300
REPORT = "ChildFailedError: "  # a rank was tried: torchrun's report, and no sentence of our own


def _file(name: str, content: str | bytes, mode: int = 0o644) -> Arrange:
    def arrange(scene: Scene) -> Mapping[str, object]:
        scene.path(name, content, mode)
        return {}

    return arrange


def _folder(name: str, mode: int = 0o755, **files: str) -> Arrange:
    def arrange(scene: Scene) -> Mapping[str, object]:
        folder = scene.path(name)
        folder.mkdir()
        for file, content in files.items():
            (folder / f"{file}.py").write_text(content)
        folder.chmod(mode)
        return {}

    return arrange


def _nowhere(scene: Scene) -> Mapping[str, object]:
    return {"file": scene.path("file", "")}


def _full(scene: Scene) -> Mapping[str, object]:
    disk = scene.path("disk")
    disk.mkdir()
    scene.closing.enter_context(tiny_disk(disk))
    with (disk / "filler").open("wb", buffering=0) as filler, contextlib.suppress(OSError):
        while True:
            filler.write(bytes(1024))
    return {"disk": disk}


def _elf(machine: int) -> bytes:
    """Return the head of a 64-bit little-endian program for a machine that this one is not."""
    return b"\x7fELF\x02\x01\x01" + bytes(9) + (2).to_bytes(2, "little") + machine.to_bytes(2, "little") + bytes(100)


def _site(*classes: str) -> str:
    signs = [{"pattern": "SITE-42", "class": cls} for cls in classes]
    return json.dumps({"schema_version": 1, "signatures": signs})


ROWS = (
    # --- the script ---------------------------------------------------------------------------------------------------
    Row("script-missing", "train.py --lr 1", USAGE, ("no script 'train.py'", "{folder}", "check the path")),
    Row("script-in-a-file", "t.py/train.py", USAGE, ("no script 't.py/train.py'", "check the path")),
    Row("script-is-a-directory", "src", USAGE, ("'src'", "directory", "__main__.py"), _folder("src")),
    Row("script-is-a-package", "src", 0, (), _folder("src", __main__=RANK), makes=("src/__pycache__.*",)),
    Row("script-unreadable", "sealed.py", USAGE, ("'sealed.py'", "read"), _file("sealed.py", RANK, 0o200),
        powerless=True),
    Row("script-is-a-dangling-link", "gone.py", USAGE, ("no script 'gone.py'",),
        lambda scene: scene.path("gone.py").symlink_to("nothing") or {}),
    Row("script-name-too-long", LONG, USAGE, ("no script", "check the path")),
    Row("program-missing", "--no-python ./train", USAGE, ("'./train'", "check its path")),
    Row("program-not-on-path", "--no-python no-such-program", USAGE, ("'no-such-program'", "on PATH", "give its path")),
    Row("program-not-executable", "--no-python ./t.py", USAGE, ("'./t.py'", "executable")),
    Row("program-is-a-directory", "--no-python ./src", USAGE, ("'./src'",), _folder("src")),
    Row("program-bad-interpreter", "--no-python ./train", USAGE, ("'./train'", "/no/such/shell", "first line"),
        _file("train", "#!/no/such/shell -e\n", 0o755)),
    Row("program-of-another-machine", "--no-python ./train", 126, ("./train", "could not be started", "Exec format"),
        _file("train", _elf(243 if os.uname().machine != "riscv64" else 62), 0o755), voice=REPORT),
    Row("program-without-a-first-line", "--no-python ./train", 126, ("./train", "could not be started", "Exec format"),
        _file("train", "echo no interpreter is named\n", 0o755), voice=REPORT),
    Row("module-missing", "-m no_such_module", 1, ("no_such_module", "could not be imported"), voice=REPORT),
    Row("module-is-no-name", "-m ./t.py", USAGE, ("'./t.py'", "python -m")),
    # --- the log directory --------------------------------------------------------------------------------------------
    Row("log-dir-is-a-file", "--log-dir file t.py", USAGE, ("--log-dir", "'file'", "not a directory"), _nowhere),
    Row("log-dir-below-a-file", "--log-dir file/logs t.py", USAGE, ("--log-dir", "'file/logs'", "give a directory"),
        _nowhere),
    Row("log-dir-empty", "--log-dir= t.py", USAGE, ("--log-dir is empty", "give a directory")),
    Row("log-dir-read-only", "--log-dir sealed t.py", USAGE, ("--log-dir", "'sealed'", "written to"),
        _folder("sealed", 0o500), powerless=True),
    Row("log-dir-in-a-read-only", "--log-dir sealed/logs t.py", USAGE, ("--log-dir", "'sealed/logs'", "written to"),
        _folder("sealed", 0o500), powerless=True),
    Row("log-dir-in-proc", "--log-dir /proc/logs t.py", USAGE, ("--log-dir", "'/proc/logs'", "give a directory")),
    Row("log-dir-full", "--log-dir {disk} t.py", STORAGE, ("{disk}", "o space left", "give another --log-dir"), _full,
        unless=MOUNTS),
    Row("log-dir-name-too-long", f"--log-dir {LONG} t.py", USAGE, ("--log-dir", "name too long")),
    # --- the site's signatures ----------------------------------------------------------------------------------------
    Row("signatures-missing", "--signatures site.json t.py", USAGE,
        ("--signatures 'site.json'", "there is no such file", "give a JSON file")),
    Row("signatures-is-a-directory", "--signatures src t.py", USAGE, ("--signatures 'src'", "is no file"),
        _folder("src")),
    Row("signatures-is-a-pipe", "--signatures pipe t.py", USAGE, ("--signatures 'pipe'", "is no file"),
        lambda scene: os.mkfifo(scene.folder / "pipe") or {}),
    Row("signatures-unreadable", "--signatures site.json t.py", USAGE,
        ("--signatures 'site.json'", "cannot be read: Permission denied"), _file("site.json", "{}", 0o200),
        powerless=True),
    Row("signatures-is-yaml", "--signatures site.json t.py", USAGE,
        ("--signatures 'site.json'", "not JSON", "line 1 column 1", "docs/signatures.md"),
        _file("site.json", "xids:\n")),
    Row("signatures-of-no-class", "--signatures site.json t.py", USAGE,
        ("the class of signature 1, 'gpu_lots'", "did you mean gpu_lost"), _file("site.json", _site("gpu_lots"))),
    Row("signatures-twice", "--signatures site.json t.py", USAGE,
        ("signatures 1 and 2 have the same pattern", "take one out"), _file("site.json", _site("fs_hang", "gpu_lost"))),
    # --- the checkpoint directory -------------------------------------------------------------------------------------
    Row("checkpoint-dir-is-a-file", "--checkpoint-dir file t.py", USAGE,
        ("--checkpoint-dir", "'file'", "not a directory"), _nowhere),
    Row("checkpoint-dir-name-too-long", f"--checkpoint-dir {LONG} t.py", USAGE, ("--checkpoint-dir", "name too long")),
    Row("checkpoint-dir-below-a-file", "--checkpoint-dir file/c t.py", USAGE,
        ("--checkpoint-dir", "'file/c'", "give a directory"), _nowhere),
    Row("checkpoint-dir-read-only", "--checkpoint-dir sealed t.py", USAGE,
        ("--checkpoint-dir", "'sealed'", "written to"), _folder("sealed", 0o500), powerless=True),
    Row("checkpoint-dir-unreadable", "--checkpoint-dir sealed t.py", USAGE, ("--checkpoint-dir", "'sealed'", "read"),
        _folder("sealed", 0o300), powerless=True),
)  # fmt: skip
