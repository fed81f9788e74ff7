"""What agents must know to join a run whose store asks for it (--rdzv-conf token_file=PATH): a file's one word.

The token goes into no command line, environment, log or record. Called by the minder and by every agent of the run.
"""

from __future__ import annotations

import os
import stat

from ..rendezvous.embedded import EmbeddedError

MAX_BYTES = 4096


def read_token(path: str) -> str:
    """Return the token in the file at ``path``; EmbeddedError when it has none, or others may read it."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # a pipe must not make a start wait
    except OSError as error:
        raise EmbeddedError(f"the token file {path} cannot be read: {error.strerror}") from error
    try:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode):
            raise EmbeddedError(f"the token file {path} is no regular file")
        lent = found.st_uid == 0 != os.geteuid()  # root may lend it to a group of this user's, as Kubernetes does
        if found.st_mode & (0o026 if lent else 0o066):
            mode = stat.S_IMODE(found.st_mode)
            raise EmbeddedError(f"the token file {path} has mode {mode:04o}, so others may read it: chmod 600 {path}")
        data = os.read(fd, MAX_BYTES + 1)
    except OSError as error:
        raise EmbeddedError(f"the token file {path} cannot be read: {error.strerror}") from error
    finally:
        os.close(fd)
    try:
        token = data.decode().strip()
    except UnicodeDecodeError as error:
        raise EmbeddedError(f"the token file {path} holds something else than text") from error
    if not token or len(data) > MAX_BYTES:
        size = "is empty" if not token else f"has more than {MAX_BYTES} bytes"
        raise EmbeddedError(f"the token file {path} {size}: write one long random word into it")
    return token
