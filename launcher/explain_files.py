"""The files that ``remuster explain`` reads: found, opened without waiting, and read in blocks of bounded memory.

What each of them is stands in ``health/layout.py`` and ``health/consoles.py``; what is kept of it, in
``health/excerpt.py``. Whatever cannot be read is a note in words, and costs no other file.
"""

from __future__ import annotations

import errno
import gzip
import io
import json
import os
import stat
import zlib
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, cast

from ..health import consoles, kernel
from ..health.ends import Part, Said
from ..health.errorfile import read as read_error
from ..health.excerpt import BUDGET, Excerpt, Signs
from ..health.layout import Kind, Place
from ..health.own_signatures import NONE, OwnSignatures
from ..health.reported import pids

BLOCK = 1 << 20
SAMPLE = 256 << 10  # bytes at either end of a file by which it is known
ALL_TEXTS = 64 << 20  # bytes kept of all files together
LEAST = 16 << 10
DEEP, MANY = 16, 20_000  # folders in one another, files
KERNEL_LINES = 400  # kept of a kernel log: the first and the last of those that mean something
RECORD_SIZE = 16 << 20
_GZIP = b"\x1f\x8b"
_JSON_KEYS = ("log", "message", "msg", "MESSAGE")


@dataclass(slots=True)
class Texts:
    """What the files gave."""

    parts: list[Part] = field(default_factory=list[Part])
    kernel: list[tuple[str, Said]] = field(default_factory=list[tuple[str, Said]])  # (node, line)
    kernel_files: list[str] = field(default_factory=list[str])
    pids: dict[int, int] = field(default_factory=dict[int, int])
    notes: list[str] = field(default_factory=list[str])


def walk(path: Path, notes: list[str]) -> Iterator[str]:
    """Yield the regular files below a directory, relative to it; links are followed, but in no circle."""
    here = path.stat()
    seen = {(here.st_dev, here.st_ino)}
    stack = [("", 0)]
    count = 0
    while stack:
        relative, depth = stack.pop()
        try:
            with os.scandir(path / relative) as entries:
                found = sorted(entries, key=lambda entry: entry.name)
        except OSError as error:
            notes.append(f"{path / relative}: {error.strerror}: not read")
            continue
        for entry in found:
            name = f"{relative}/{entry.name}" if relative else entry.name
            try:
                about = entry.stat()
            except OSError as error:
                notes.append(f"{path / name}: {error.strerror}: not read")
                continue
            if stat.S_ISDIR(about.st_mode):
                if (about.st_dev, about.st_ino) not in seen and depth < DEEP:
                    seen.add((about.st_dev, about.st_ino))
                    stack.append((name, depth + 1))
            elif not stat.S_ISREG(about.st_mode):
                notes.append(f"{path / name}: it is not a regular file: not read")
            elif count < MANY:
                count += 1
                yield name
            else:
                notes.append(f"{path}: more than {MANY} files: the others are not read; give a smaller directory")
                return


class _AsItWas(io.FileIO):
    """A file up to the end that it had when it was opened: one that grows faster than it is read has no other."""

    def __init__(self, fd: int) -> None:
        super().__init__(fd)
        self._end = os.fstat(fd).st_size

    def readinto(self, buffer: memoryview, /) -> int:  # type: ignore[override]  # what io.BufferedReader gives
        return super().readinto(buffer[: max(0, self._end - self.tell())]) or 0

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        return super().seek(self._end + offset) if whence == os.SEEK_END else super().seek(offset, whence)


@contextmanager
def opened(path: Path) -> Generator[IO[bytes], None, None]:
    """Open a regular file, unpacked where it is gzip's. A FIFO holds nobody up; OSError says what is wrong."""
    raw = _AsItWas(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY))
    with io.BufferedReader(raw) as file:
        if not stat.S_ISREG(os.fstat(raw.fileno()).st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file")
        packed = file.read(2) == _GZIP
        file.seek(0)
        if packed:
            with gzip.GzipFile(fileobj=file) as unpacked:
                yield cast("IO[bytes]", unpacked)
        else:
            yield file


def blocks(file: IO[bytes]) -> Iterator[tuple[bytes, int]]:
    """Yield blocks of whole lines and the number of the first; a line longer than a block comes in pieces."""
    rest, number = b"", 1
    while True:
        data = file.read(BLOCK)
        if not data:
            break
        data = rest + data
        cut = data.rfind(b"\n") + 1
        if cut == 0 and len(data) >= BLOCK:
            yield data, number
            rest = b""
            continue
        block, rest = data[:cut], data[cut:]
        if block:
            yield block, number
            number += block.count(b"\n")
    if rest:
        yield rest, number


def read_all(places: Sequence[tuple[Place, Path]], own: OwnSignatures = NONE) -> Texts:
    """Read all files of one round; lines that the site's ``own`` signatures fit are kept, too. Blocks."""
    texts = Texts()
    if len(places) == 1 and places[0][0].kind is Kind.KERNEL:  # people paste the kernel's words into a rank's, as one
        places = [(places[0][0]._replace(kind=Kind.OUTPUT), places[0][1])]
    outputs = [(place, path) for place, path in places if place.kind is Kind.OUTPUT]
    budget = max(LEAST, min(BUDGET, ALL_TEXTS // max(1, len(outputs))))
    signs = Signs(own)
    for place, path in places:
        try:
            match place.kind:
                case Kind.KERNEL:
                    _read_kernel(texts, place, path)
                case Kind.PIDS:
                    with opened(path) as file:
                        texts.pids |= pids(file.read(SAMPLE).decode("utf-8", "replace").split("\n"))
                case Kind.ERROR:
                    error = read_error(path)
                    if error is not None:
                        texts.parts.append(
                            Part(
                                str(path),
                                place.node,
                                place.rank,
                                place.local_rank,
                                error=error._replace(path=str(path)),
                            )
                        )
                case Kind.OUTPUT:
                    _read_output(texts, place, path, signs, budget, alone=len(places) == 1)
                case _:
                    pass
        except (OSError, EOFError, zlib.error) as error:
            why = error.strerror if isinstance(error, OSError) and error.strerror else "damaged gzip file"
            texts.notes.append(f"{path}: {why}: not read")
    texts.parts = _paired(texts.parts)
    return texts


def kernel_file(texts: Texts, path: Path) -> None:
    """Read a file that was given as a kernel log. OSError when it cannot be."""
    _read_kernel(texts, Place(str(path), Kind.KERNEL), path)


def record(path: Path) -> dict[str, object] | None:
    """Return one of remuster's own records; None when it is none."""
    try:
        with opened(path) as file:
            value: object = json.loads(file.read(RECORD_SIZE))
    except (OSError, ValueError, RecursionError, EOFError, zlib.error):
        return None
    return cast("dict[str, object]", value) if isinstance(value, dict) else None


def _read_kernel(texts: Texts, place: Place, path: Path) -> None:
    first: list[Said] = []
    last: list[Said] = []
    with opened(path) as file:
        for block, start in blocks(file):
            for number, line in enumerate(_unwrapped(block).decode("utf-8", "replace").split("\n"), start):
                if kernel.interesting(line):
                    kept = first if len(first) < KERNEL_LINES // 2 else last
                    kept.append(Said(str(path), number, line[: kernel.LINE]))
            del last[: -KERNEL_LINES // 2]
    texts.kernel += [(place.node, line) for line in (*first, *last)]
    texts.kernel_files.append(str(path))


def _read_output(texts: Texts, place: Place, path: Path, signs: Signs, budget: int, alone: bool) -> None:
    with opened(path) as file:
        sample = _sample(file)
        if not alone and consoles.kernel_like(sample):
            _read_kernel(texts, place, path)
            return
        named = place.rank >= 0 or place.local_rank >= 0
        style = consoles.Style() if named else consoles.style(sample)
        if style:
            texts.parts += _split(file, str(path), place, consoles.Splitter(style), signs, budget)
            return
        excerpt = Excerpt(signs, budget)
        for block, number in blocks(file):
            plain = _unwrapped(block)
            excerpt.feed(plain, range(number, number + plain.count(b"\n") + 1))
    rank = place.rank if place.rank >= 0 else consoles.only_rank(sample)
    texts.parts.append(Part(str(path), place.node, rank, place.local_rank, _said(str(path), excerpt)))


def _split(
    file: IO[bytes], name: str, place: Place, splitter: consoles.Splitter, signs: Signs, budget: int
) -> list[Part]:
    """Read a console that several ranks share."""
    excerpts: dict[consoles.Writer, Excerpt] = {}
    for block, first in blocks(file):
        theirs: dict[consoles.Writer, tuple[list[bytes], list[int]]] = {}
        for number, line in enumerate(_unwrapped(block).removesuffix(b"\n").split(b"\n"), first):
            writer, text = splitter.writer(line)
            lines, numbers = theirs.setdefault(writer, ([], []))
            lines.append(text)
            numbers.append(number)
        for writer, (lines, numbers) in theirs.items():
            excerpt = excerpts.get(writer) or excerpts.setdefault(writer, Excerpt(signs, budget))
            excerpt.feed(b"\n".join(lines), numbers)
    ranks = splitter.named()
    return [
        Part(name, w.node or place.node, ranks.get(w, w.rank), w.local, _said(name, excerpt),
             launcher=w == consoles.LAUNCHER)
        for w, excerpt in excerpts.items()
    ]  # fmt: skip


def _said(name: str, excerpt: Excerpt) -> list[Said]:
    return [Said(name, number, text) for number, text in excerpt.lines()]


def _sample(file: IO[bytes]) -> list[bytes]:
    """Return lines from both ends of a file, and go back to its start."""
    data = file.read(SAMPLE)
    if len(data) == SAMPLE and not isinstance(file, gzip.GzipFile):
        size = file.seek(0, os.SEEK_END)
        file.seek(max(SAMPLE, size - SAMPLE))
        data = data[: data.rfind(b"\n") + 1] + file.read(SAMPLE).partition(b"\n")[2]
    file.seek(0)
    return _unwrapped(data).split(b"\n")


def _unwrapped(block: bytes) -> bytes:
    """Take lines out of the JSON objects that container runtimes and log shippers put them in; one for one."""
    if not block.startswith(b"{") and b'\n{"' not in block and b': {"log":' not in block:
        return block
    return b"\n".join(_unwrapped_line(line) for line in block.split(b"\n"))


def _unwrapped_line(line: bytes) -> bytes:
    shipped = line.find(b': {"log":', 0, 200)  # behind fluentd's clock and tag
    text = line if line.startswith(b"{") else line[shipped + 2 :] if shipped >= 0 else b""
    try:
        value: object = json.loads(text) if text else None
    except (ValueError, RecursionError):
        return line
    if not isinstance(value, dict):
        return line
    entry = cast("dict[str, object]", value)
    said = next((said for key in _JSON_KEYS if isinstance(said := entry.get(key), str)), None)
    if said is None:
        return line
    return said.rstrip("\n").replace("\n", "\r").encode("utf-8", "replace")  # what was one line stays one


def _paired(parts: list[Part]) -> list[Part]:
    """Join what one rank left in several files: stdout before stderr, as the agent reads them, and its error file."""
    joined: dict[tuple[object, ...], Part] = {}
    for part in sorted(parts, key=lambda p: ("err" in os.path.basename(p.file)) if not p.error else -1):
        numbered = part.rank >= 0 or part.local >= 0
        key = (
            (part.node, part.rank, part.local, part.launcher) if numbered or part.launcher else (_bare_name(part.file),)
        )
        if part.launcher:
            key = (*key, part.file)
        known = joined.get(key)
        if known is None:
            joined[key] = part
            continue
        known.lines += part.lines
        known.error = known.error or part.error
        if part.lines:
            known.file = part.file
    order = {id(part): i for i, part in enumerate(parts)}
    return sorted(joined.values(), key=lambda part: order[id(part)])


def _bare_name(path: str) -> str:
    """The path without what tells stdout from stderr: the two of one rank have it in common."""
    folder, name = os.path.split(path)
    stem = name.removesuffix(".gz")
    for old in ("stdout", "stderr", ".out", ".err", "_out", "_err", "-out", "-err"):
        stem = stem.replace(old, "*")
    return os.path.join(folder, stem)
