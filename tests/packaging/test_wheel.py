"""What ships, and that nothing is dropped from it without a word: setuptools leaves out what is not listed."""

from __future__ import annotations

import configparser
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import remuster

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("agent", "checkpoint", "health", "launcher", "rendezvous", "worker")


def shipped() -> set[str]:
    """Every file that must be in the wheel, by its path there."""
    code = {f"remuster/{p.relative_to(ROOT)}" for room in ROOMS for p in (ROOT / room).rglob("*.py")}
    face = {f"remuster/{name}" for name in ("__init__.py", "__main__.py", "py.typed")}
    return code | face | {"remuster/health/classes.csv", "remuster/health/xids.csv"}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from a copy so that the checkout stays clean; a root-level file tries to slip in."""
    copy = tmp_path_factory.mktemp("checkout")
    for name in (*ROOMS, "remuster"):
        shutil.copytree(ROOT / name, copy / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("__init__.py", "pyproject.toml", "setup.cfg", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy)
    (copy / "noxfile.py").touch()
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", "out"]
    done = subprocess.run(build, cwd=copy, capture_output=True, text=True, timeout=110, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (made,) = (copy / "out").iterdir()
    return made


def test_the_wheel_holds_all_code_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if not name.endswith("/")}
    about = {name for name in names if re.match(r"remuster-[0-9.]+\.dist-info/", name)}
    assert names - about == shipped()
    assert any(name.endswith("/LICENSE") for name in about)
    assert any(name.endswith("/entry_points.txt") for name in about)


def test_the_wheel_runs_by_itself(wheel: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path)
    code = (
        "import remuster; from remuster.launcher.cli import run; print(remuster.__file__); run(['--version'], {}, exit)"
    )
    env = {**os.environ, "PYTHONPATH": str(tmp_path), "PYTHONSAFEPATH": "1"}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"{tmp_path}/remuster/__init__.py\nremuster {remuster.__version__}\n"


def test_the_links_are_there_and_point_right() -> None:
    links = {p.name: os.readlink(p) for p in (ROOT / "remuster").iterdir() if p.is_symlink()}
    assert links == {room: f"../{room}" for room in ROOMS}


def test_the_listed_packages_are_the_folders() -> None:
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg", encoding="utf-8")
    inits = [p.parent.relative_to(ROOT) for room in ROOMS for p in (ROOT / room).rglob("__init__.py")]
    packages = {"remuster.{}".format(".".join(folder.parts)): str(folder) for folder in inits}
    assert set(setup["options"]["packages"].split()) == {"remuster", *packages}
    mapped = dict(line.split(" = ") for line in setup["options"]["package_dir"].strip().splitlines())
    assert mapped == {name: folder for name, folder in packages.items() if name.count(".") == 1}


def test_every_room_is_a_package() -> None:
    at_root = {p.parent.name for p in ROOT.glob("*/__init__.py")}
    assert at_root == {*ROOMS, "remuster"}


def test_there_is_one_version() -> None:
    found = re.search(r'^version = "(.*)"$', (ROOT / "pyproject.toml").read_text(encoding="utf-8"), re.MULTILINE)
    assert found is not None
    assert found[1] == remuster.__version__
