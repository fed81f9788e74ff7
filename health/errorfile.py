"""Reads what torchelastic's ``@record`` leaves behind: an error file in either of its two forms.

Untrusted text of a rank: it is parsed, bounded and shown, never evaluated, and a malformed one yields a note for the
report instead of an exception (torchrun's agent raises). ``parse`` is pure; the agent calls ``read``.
"""

from __future__ import annotations

import errno
import json
import os
import stat
from pathlib import Path
from typing import cast

from .evidence import ErrorFile
from .tail import split

MAX_BYTES = 1 << 20
MAX_TEXT = 16 << 10


def parse(raw: bytes, path: str = "") -> tuple[ErrorFile | None, str]:
    """Return the error and '', or None and why the file could not be used. Never raises."""
    where = f"error file {path}" if path else "error file"
    if len(raw) > MAX_BYTES:
        return None, f"{where}: more than {MAX_BYTES} bytes: not read"
    try:
        body: object = json.loads(raw)
    except (ValueError, RecursionError):
        return None, f"{where}: not JSON"
    if not isinstance(body, dict):
        return None, f"{where}: not an object"
    top = cast("dict[str, object]", body)
    message = top.get("message")
    if isinstance(message, str):  # the plain form
        return ErrorFile(_bounded(message), "", _stamp(top.get("timestamp")), path), ""
    if not isinstance(message, dict):
        return None, f"{where}: no message"
    inner = cast("dict[str, object]", message)
    text = inner.get("message")
    if not isinstance(text, str):
        return None, f"{where}: no message"
    info = inner.get("extraInfo")
    extra = cast("dict[str, object]", info) if isinstance(info, dict) else {}
    trace = extra.get("py_callstack")
    stamp = _stamp(extra.get("timestamp"))
    return ErrorFile(_bounded(text), _bounded(trace) if isinstance(trace, str) else "", stamp, path), ""


def read(path: Path) -> ErrorFile | None:
    """Return the error in the file, its note as message when it is malformed, None when there is no file. Blocks."""
    try:
        raw = _read_regular(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        return ErrorFile(f"error file {path}: {error.strerror}", path=str(path))
    error_file, note = parse(raw, str(path))
    return error_file or ErrorFile(note, path=str(path))


def whole(path: Path) -> dict[str, object] | None:
    """Return all that is in a well-formed error file, to be handed on; None when there is none. Blocks."""
    try:
        raw = _read_regular(path)
    except OSError:
        return None
    error, _ = parse(raw)
    return None if error is None else cast("dict[str, object]", json.loads(raw))


def _read_regular(path: Path) -> bytes:
    """Read a file that a rank may have replaced by anything: a pipe without a writer must hold nobody up."""
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    with os.fdopen(fd, "rb") as file:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file")
        return file.read(MAX_BYTES + 1)


def _bounded(text: str) -> str:
    """Keep the end: there stands the exception that ended the program."""
    if len(text) > MAX_TEXT:
        text = text[-MAX_TEXT:]
    return "\n".join(split(text.rstrip("\n")))


def _stamp(value: object) -> int:
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 12:
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 10**11 else 0
