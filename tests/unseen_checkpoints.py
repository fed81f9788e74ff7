"""Labelled checkpoint directories: what makes one, and what is right to say of it. Not a test module.

``says`` tells for entries what `remuster checkpoints` must say: "whole", "torn" or "unknown", "not whole" for either of
these, "no entry", and after a colon words of the reason. ``step`` is what `remuster resume-point` must choose, or None.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from checkpoint_samples import SAMPLES
from made_files import torch_file

from remuster.launcher import checkpoints


class Case(NamedTuple):
    """One labelled checkpoint directory."""

    name: str
    make: Callable[[Path], object]
    says: dict[str, str]
    step: int | None
    world: int | None = 2
    format: str = ""
    chosen: str = ""  # the name of the entry; for those whose step does not tell it


def copy(sample: str, to: Path) -> Path:
    """Copy a sample, a folder or a file, to a path that is not there yet."""
    to.parent.mkdir(parents=True, exist_ok=True)
    source = SAMPLES / sample
    shutil.copytree(source, to, dirs_exist_ok=True) if source.is_dir() else shutil.copy(source, to)
    return to


def after(path: Path, change: Callable[[Path], object]) -> Path:
    """Change what was made; return it."""
    change(path)
    return path


def cut(path: Path, by: int = 1) -> None:
    """Take bytes from the end of a file."""
    path.write_bytes(path.read_bytes()[:-by])


def half(path: Path) -> None:
    """Leave the first half of a file."""
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def zero(path: Path, last: int | None = None) -> None:
    """Fill a file, or its last bytes, with zeros, as a file system may that lost power."""
    data = path.read_bytes()
    last = len(data) if last is None else last
    path.write_bytes(data[: len(data) - last] + bytes(last))


def flip(path: Path, at: float = 0.5) -> None:
    """Change one byte at a part of a file's length."""
    data = bytearray(path.read_bytes())
    data[int(len(data) * at)] ^= 0xFF
    path.write_bytes(bytes(data))


def append(path: Path, data: bytes = b"\0" * 64) -> None:
    """Add bytes to a file."""
    path.write_bytes(path.read_bytes() + data)


def edit(path: Path, **fields: object) -> None:
    """Set fields of a JSON file; None takes one away."""
    value = {**json.loads(path.read_text()), **fields}
    path.write_text(json.dumps({k: v for k, v in value.items() if v is not None}))


def foreign(directory: Path) -> None:
    """Lay beside checkpoints what is usually there."""
    for name in (
        "runs/Nov29_host/events.out.tfevents.1795952348.host.1.0",
        "logs/rank0.log",
        "wandb/run-1/files/x.yaml",
        ".git/HEAD",
        ".cache/1/x",
        "README.md",
        "config.json",
        "train.log",
        "hparams.yaml",
        "metrics.csv",
    ):
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_text("{}\n")


def hf_step(step: Path, number: int) -> Path:
    """Make a Trainer's checkpoint of another step."""
    copy("transformers/complete/checkpoint-5", step)
    edit(step / "trainer_state.json", global_step=number)
    return step


def rebuilt(path: Path, root: str = "archive") -> Path:
    """Write a file of torch.save anew, with another name inside; it holds nothing of worth."""
    path.unlink(missing_ok=True)
    return torch_file(path, {"x": 1}, root)


def walk(path: Path) -> Iterator[Path]:
    """Every file below a path."""
    return (p for p in path.rglob("*") if p.is_file())


def differences(case: Case, directory: Path, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """Make a case and ask both commands; return what they say otherwise than is right."""
    case.make(directory)
    wrong: list[str] = []
    asked = [str(directory), "--json", *(["--world", str(case.world)] if case.world else [])]
    asked += ["--format", case.format] if case.format else []
    code = checkpoints.point(asked, {})
    told = json.loads(capsys.readouterr().out)
    chosen = Path(told["path"]).name if told["path"] else ""
    if (told["step"], code) != (case.step, 0 if case.step is not None or case.chosen else 1):
        wrong.append(f"chose step {told['step']}, {chosen!r} (exit {code}), not {case.step}; refused {told['refused']}")
    if case.chosen and case.chosen != chosen:
        wrong.append(f"chose {chosen!r}, not {case.chosen!r}")
    checkpoints.table(asked, {})
    entries = {e["name"]: e for e in json.loads(capsys.readouterr().out)["checkpoints"]}
    for name, says in case.says.items():
        verdicts, _, words = says.partition(":")
        entry = entries.get(name)
        got = "no entry" if entry is None else {True: "whole", False: "torn", None: "unknown"}[entry["whole"]]
        allowed = [
            v for said in verdicts.split(" or ") for v in (["torn", "unknown"] if said == "not whole" else [said])
        ]
        if got not in allowed or (words and words not in str(entry and entry["why_not"])):
            wrong.append(f"{name!r} is {got}: {entry and (entry['why_not'] or entry['how'])}; right is {says!r}")
    return wrong
