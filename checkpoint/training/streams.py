"""Files that remember what the kernel said: torch turns a full disk into "unexpected pos 64 vs 0".

Used by ``saving`` and ``sharded`` around whatever torch writes.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any


class _Remembering:
    """A binary stream that keeps the first ``OSError`` of its writes."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self.error: OSError | None = None

    def write(self, data: Any) -> Any:
        try:
            return self._stream.write(data)
        except OSError as e:
            self.error = self.error or e
            raise

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextmanager
def telling(stream: Any, path: str) -> Generator[Any, None, None]:
    """Lend ``stream`` for writing; raise the kernel's own error, with the path, instead of what torch made of it."""
    lent = _Remembering(stream)
    try:
        yield lent
    except Exception as e:
        if lent.error is None:
            raise
        raise OSError(lent.error.errno, lent.error.strerror, path) from e
