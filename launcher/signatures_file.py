"""Reads the file that --signatures names, before anything starts. Called by `build` and `explain`."""

from __future__ import annotations

import errno
import os
import stat

from ..health.own_signatures import LARGEST, BadSignatures, OwnSignatures, parse
from .errors import UsageError


def read(origin: str, text: str) -> OwnSignatures:
    """Return what the file says; UsageError, with the reason, when it is none."""
    try:
        raw = _content(text)
    except (OSError, ValueError) as error:
        why = str(error) if isinstance(error, ValueError) else error.strerror
        if isinstance(error, OSError) and error.errno in (errno.ENOENT, errno.ENOTDIR):
            why = "there is no such file"
        raise UsageError(f"{origin} {text!r} cannot be read: {why}; give a JSON file of signatures") from None
    if raw is None:
        raise UsageError(f"{origin} {text!r} is no file; give a JSON file of signatures")
    try:
        return parse(raw)
    except BadSignatures as error:
        raise UsageError(f"{origin} {text!r}: {error} (docs/signatures.md)") from None


def _content(path: str) -> bytes | None:
    """Return no more than one byte too much; None for what is no regular file."""
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)  # a pipe must not hold the start up
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            return None
        with open(fd, "rb", closefd=False) as file:
            return file.read(LARGEST + 1)
    finally:
        os.close(fd)
