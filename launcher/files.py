"""What a command line names on disk: it is there, of the right kind, and may be used, or the command is refused.

Only looks, but for a directory that is asked for and absent, which is made. Called by `build`.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from .errors import UsageError


def here() -> str:
    """Return the current directory; on network file systems it may have been deleted under the shell."""
    try:
        return os.getcwd()
    except OSError as error:
        raise UsageError(f"the current directory cannot be used: {error.strerror}; cd to one that exists") from None


def script(name: str, module: bool, no_python: bool) -> None:
    """Refuse a script that cannot be started. A module is looked for by the ranks' Python, not by this one."""
    if module and no_python:
        raise UsageError("--module and --no-python contradict each other; leave one of them out")
    if module:
        if not name or name.startswith("."):
            raise UsageError(f"{name!r} is no module's name; write it as after python -m")
    elif no_python:
        if shutil.which(name) is None:
            raise UsageError(f"no program {name!r} that can be run; check its path and that it is executable")
    elif not os.path.exists(name):
        raise UsageError(
            f"no script {name!r} in {here()}; check the path, or give -m for a module, --no-python for a program"
        )


def interpreter(python: str) -> str:
    """Return the program that PYTHON_EXEC names."""
    found = shutil.which(python)
    if found is None:
        raise UsageError(f"PYTHON_EXEC is {python!r}, and there is no such program; correct or unset it")
    return found


def readable(name: str, text: str) -> Path:
    """Return the file ``text`` as an absolute path."""
    path = Path(here(), text)
    if not path.is_file() or not os.access(path, os.R_OK):
        raise UsageError(f"{name} is {text!r}, which is no file that can be read; check the path and its permissions")
    return path


def directory(name: str, text: str) -> Path:
    """Return the directory ``text`` as an absolute path; it is made when it is absent."""
    if not text:
        raise UsageError(f"{name} is empty; give a directory, or leave it out")
    path = Path(here(), text)
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        why = "it is not a directory" if path.exists() and not path.is_dir() else (error.strerror or str(error)).lower()
        raise UsageError(
            f"{name} {text!r} cannot be used: {why}; give a directory that this user may write to"
        ) from None
    if not os.access(path, os.W_OK | os.X_OK):
        raise UsageError(f"{name} {text!r} cannot be written to; give a directory that this user may write to")
    return path


def hook(name: str, text: str) -> str:
    """Return a resume hook that can be called: ``module:function``, or a command whose program is there."""
    from ..agent.hook import Command, HookError, parse_hook  # it brings asyncio, which only a hook's user pays for here

    try:
        parsed = parse_hook(text)
    except HookError as error:
        raise UsageError(f"{name}: {error}") from None
    if isinstance(parsed, Command) and shutil.which(parsed.argv[0]) is None:
        raise UsageError(
            f"{name}: no program {parsed.argv[0]!r} that can be run; write module:function, or a command that is there"
        )
    return text
