"""What a command line names on disk: it is there, of the right kind, and may be used, or the command is refused.

Only looks, but for a directory that is asked for and absent, which is made. Called by `build`.
"""

from __future__ import annotations

import os
from pathlib import Path

from .errors import UsageError

_WORD_BYTES = 4096
_FIRST_LINE = 256  # bytes: as much as the kernel looks at


def here() -> str:
    """Return the current directory; on network file systems it may have been deleted under the shell."""
    try:
        return os.getcwd()
    except OSError as error:
        raise UsageError(f"the current directory cannot be used: {error.strerror}; cd to one that exists") from None


def _which(program: str) -> str | None:
    import shutil  # and compression with it, 2 ms: only where a program is named

    return shutil.which(program)


def script(name: str, module: bool, no_python: bool) -> None:
    """Refuse a script that cannot be started. A module is looked for by the ranks' Python, not by this one."""
    if module and no_python:
        raise UsageError("--module and --no-python contradict each other; leave one of them out")
    if module:
        if not name or name.startswith("."):
            raise UsageError(f"{name!r} is no module's name; write it as after python -m")
    elif no_python:
        found = _which(name)
        if found is None:
            raise UsageError(f"no program {name!r} that can be run{_why_not(name)}")
        _check_first_line(name, found)
    elif not os.path.exists(name):
        raise UsageError(
            f"no script {name!r} in {here()}; check the path, or give -m for a module, --no-python for a program"
        )
    elif os.path.isdir(name) and not os.path.exists(os.path.join(name, "__main__.py")):
        raise UsageError(f"the script {name!r} is a directory; give a file, or a directory with a __main__.py")
    elif not os.access(name, os.R_OK):
        raise UsageError(f"the script {name!r} cannot be read by this user; look at ls -l {name!r}")


def _why_not(program: str) -> str:
    if "/" not in program:
        return f" on PATH; give its path{f', ./{program}' if os.path.isfile(program) else ''}"
    if os.path.isdir(program):
        return ": it is a directory; give a file"
    if os.path.exists(program):
        return f": it is not executable; chmod +x {program!r}"
    return "; check its path"


def _check_first_line(name: str, path: str) -> None:
    """Refuse a script whose interpreter is not there: exec would say ENOENT, as if the script were not."""
    try:
        with open(path, "rb") as file:
            first = file.readline(_FIRST_LINE)
    except OSError:
        return  # it may be run without being read
    asked = first[2:].split(maxsplit=1) if first.startswith(b"#!") else []
    if asked and not os.path.exists(asked[0]):
        interpreter = os.fsdecode(asked[0]).replace("\r", "\\r")
        raise UsageError(
            f"{name!r} cannot be run: its first line asks for {interpreter!r}, which is not there; correct that line"
        )


def program(name: str, text: str) -> str:
    """Return the program ``text`` as an absolute path."""
    found = _which(text)
    if found is None:
        raise UsageError(f"{name} is {text!r}, which is no program that can be run; correct it, or leave it out")
    return str(Path(here(), found))


def interpreter(name: str, python: str) -> str:
    """Return the program that --python or PYTHON_EXEC names."""
    found = _which(python)
    if found is None:
        raise UsageError(f"{name} is {python!r}, and there is no such program; correct it, or leave it out")
    return found


def readable(name: str, text: str) -> Path:
    """Return the file ``text`` as an absolute path."""
    path = Path(here(), text)
    if not os.path.isfile(path) or not os.access(path, os.R_OK):
        raise UsageError(f"{name} is {text!r}, which is no file that can be read; check the path and its permissions")
    return path


def secret(name: str, text: str, group_may_read: bool = False) -> Path:
    """Return a file that others may neither read nor write, nor its group unless that is said.

    What root lends to a group of this user's, as Kubernetes does with secrets, is not this user's to mend.
    """
    path = readable(name, text)
    status = path.stat()
    lent = group_may_read or (status.st_uid == 0 and os.geteuid() != 0)
    for who, bits in (("others", 0o006), ("its group", 0o020 if lent else 0o060)):
        open_to = status.st_mode & bits
        if open_to:
            does = "read" if open_to & 0o044 else "write to"
            mode = "640" if group_may_read else "600"
            raise UsageError(f"{name} is {text!r}, which {who} may {does}; run chmod {mode} {str(path)!r}")
    return path


def secret_word(name: str, text: str) -> Path:
    """Return a secret file that holds one line of text, as a password or a token does."""
    path = secret(name, text)
    try:
        with path.open("rb") as file:
            word = file.read(_WORD_BYTES + 1).decode().strip()
    except (OSError, UnicodeDecodeError):
        raise UsageError(
            f"{name} is {text!r}, which holds no text; write the one word into it, and nothing else"
        ) from None
    if not 0 < len(word.encode()) <= _WORD_BYTES:
        size = f"holds more than {_WORD_BYTES} bytes" if word else "is empty"
        raise UsageError(f"{name} is {text!r}, which {size}; write the one word into it")
    return path


def directory(name: str, text: str, read: bool = False) -> Path:
    """Return the directory ``text`` as an absolute path; it is there, or can be `made`. ``read``: it is listed, too."""
    if not text:
        raise UsageError(f"{name} is empty; give a directory, or leave it out")
    path = nearest = Path(here(), text)
    try:
        while not nearest.exists():
            nearest = nearest.parent
    except OSError as error:
        raise UsageError(_unusable(name, text, error)) from None
    if not nearest.is_dir():
        which = "it" if nearest == path else str(nearest)
        raise UsageError(_unusable(name, text, NotADirectoryError(0, f"{which} is not a directory")))
    if not os.access(nearest, os.W_OK | os.X_OK):
        raise UsageError(f"{name} {text!r} cannot be written to; give a directory that this user may write to")
    if read and not os.access(nearest, os.R_OK):
        raise UsageError(f"{name} {text!r} cannot be read; give a directory that this user may read and write")
    return path


def made(name: str, path: Path) -> None:
    """Make the directory if it is absent. Called when nothing is left to refuse: a refused command leaves nothing."""
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(_unusable(name, str(path), error)) from None


def _unusable(name: str, text: str, error: OSError) -> str:
    why = error.strerror or str(error)
    return f"{name} {text!r} cannot be used: {why[:1].lower()}{why[1:]}; give a directory that this user may write to"


def hook(name: str, text: str) -> str:
    """Return a resume hook that can be called: ``module:function``, or a command whose program is there."""
    from ..agent.hook import Command, HookError, parse_hook  # it brings asyncio, which only a hook's user pays for here

    try:
        parsed = parse_hook(text)
    except HookError as error:
        raise UsageError(f"{name}: {error}") from None
    if isinstance(parsed, Command) and _which(parsed.argv[0]) is None:
        raise UsageError(
            f"{name}: no program {parsed.argv[0]!r} that can be run; write module:function, or a command that is there"
        )
    return text


def listener(name: str, text: str) -> tuple[str, ...]:
    """Return what is told of events: a command whose program is there, or a URL alone; it is not shown, for a token."""
    if text.lower().startswith(("http://", "https://")):
        from urllib.parse import urlsplit

        try:
            parts = urlsplit(text)
            good = parts.hostname and parts.port != 0 and parts.username is None  # a port that is none raises
        except ValueError:
            good = False
        if not good or not text.isprintable() or not text.isascii() or " " in text:
            raise UsageError(
                f"{name} is a URL that cannot be used; write http://HOST/PATH or https://HOST/PATH, without a user"
            )
        return (text,)
    return command(name, text, "give a command or a URL, or leave it out")


def command(name: str, text: str, instead: str) -> tuple[str, ...]:
    """Return a command line in words, its program found; ``instead`` says what to give where there is none."""
    import shlex

    try:
        argv = shlex.split(text)
    except ValueError as error:
        raise UsageError(f"{name} is not a command line ({error}); check its quotes") from None
    if not argv:
        raise UsageError(f"{name} is empty; {instead}")
    found = _which(argv[0])
    if found is None:
        if "://" in argv[0]:
            raise UsageError(f"{name} is a URL of another kind than http; write http://HOST/PATH or https://HOST/PATH")
        raise UsageError(f"{name}: no program {argv[0]!r} that can be run{_why_not(argv[0])}")
    _check_first_line(argv[0], found)
    return (str(Path(here(), found)), *argv[1:])
