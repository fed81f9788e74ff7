"""The B+tree in which Orbax keeps arrays (tensorstore's "ocdbt"): which pieces of which files must be there?

``manifest.ocdbt`` names the tree's root; its nodes lie in data files and end in a CRC-32C, which is checked; they name
the pieces that hold values, which carry no checksum: of these file and length are seen, and zeros in the place of what
was written. Format: https://google.github.io/tensorstore/kvstore/ocdbt, version 0. Nodes are unpacked and checked in
Python, so of a very large tree only the first part is followed.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from dataclasses import dataclass, field

from ..digest import OVERDUE
from ..errors import GaveUp
from . import zstd_frame
from .folder import Folder
from .zstd import TooLong, unpacked

MANIFEST = 0x0CDB3A2A
NODE = 0x0CDB20DE
LARGEST_NODE = 16 << 20  # bytes, unpacked; a larger one is not followed
MOST_BYTES = 4 << 20  # of packed nodes of one tree: some ten seconds
MOST_NAMES = 16 << 20  # bytes of the names of files in one node
DEEPEST = 16

_CRC: list[int] = []
for _byte in range(256):
    for _ in range(8):
        _byte = _byte >> 1 ^ (0x82F63B78 if _byte & 1 else 0)
    _CRC.append(_byte)


class Broken(ValueError):
    """The tree is not whole; the words say what is wrong. ``lacking``: the file that is not there, if that is all."""

    def __init__(self, words: str, lacking: str = "") -> None:
        super().__init__(words)
        self.lacking = lacking


class _NotKnown(ValueError):
    """It is whole, but of a form that is not known here."""


@dataclass(frozen=True, slots=True)
class _Piece:
    path: str  # in the checkpoint
    inside: str  # what paths in a node there begin with
    offset: int
    length: int


@dataclass(slots=True)
class Tree:
    """What was found of one tree."""

    files: set[str] = field(default_factory=set[str])  # that hold nodes or values
    values: int = 0  # those that were seen to be there
    framed: bool = False  # one of them at least does not begin in zeros
    blank: list[_Piece] = field(default_factory=list["_Piece"])  # values that begin in zeros
    followed: bool = True  # False: it is too large, or too new, to be followed to its ends


class _Reader:
    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def cut(self, size: int) -> bytes:
        piece = self.data[self.at : self.at + size]
        if len(piece) != size:
            raise ValueError("a node that is cut short")
        self.at += size
        return piece

    def number(self) -> int:
        value = shift = 0
        while True:
            byte = self.cut(1)[0]
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value
            if shift > 63:
                raise ValueError("a number that is too large")

    def numbers(self, count: int) -> list[int]:
        if count > len(self.data):
            raise ValueError("more entries than there are bytes")
        return [self.number() for _ in range(count)]


def follow(folder: Folder, prefix: str, give_up: Callable[[], bool]) -> Tree:
    """Follow the tree below ``prefix``, the newest version in its manifest. Broken: it is not whole."""
    path = f"{prefix}manifest.ocdbt"
    tree = Tree()
    if path not in folder.files:
        raise Broken(f"{path!a} is missing", path)
    try:
        root = _root(_opened(folder.read(path, MOST_BYTES), MANIFEST), prefix)
    except _NotKnown:
        return Tree(followed=False)
    except ValueError as error:
        raise Broken(f"{path!a}: {error}") from None
    todo = [(root, 0)] if root is not None else []
    seen: set[tuple[str, int]] = set()
    read = 0
    while todo:
        piece, depth = todo.pop()
        if (piece.path, piece.offset) in seen:
            continue
        seen.add((piece.path, piece.offset))
        if give_up():
            raise GaveUp(OVERDUE)
        _hold(folder, piece, tree)
        read += piece.length
        if read > MOST_BYTES or depth > DEEPEST:
            tree.followed = False
            break
        try:
            for child, is_node in _children(_opened(_read(folder, piece), NODE), piece.inside):
                if is_node:
                    todo.append((child, depth + 1))
                else:
                    _hold(folder, child, tree)
                    _see_value(folder, child, tree)
        except Broken:
            raise
        except _NotKnown:
            tree.followed = False
        except ValueError as error:
            raise Broken(f"{piece.path!a} at byte {piece.offset}: {error}") from None
    if (zeros := len(tree.blank)) and (tree.framed or zeros == tree.values > 1):
        piece = tree.blank[0]
        raise Broken(f"{piece.path!a} at byte {piece.offset} begins in zeros, as no value beside it does")
    return tree


def _see_value(folder: Folder, piece: _Piece, tree: Tree) -> None:
    tree.values += 1
    with folder.opened(piece.path) as (fd, _):
        if zstd_frame.is_blank(fd, piece.offset, piece.length):
            tree.blank.append(piece)
        elif wrong := zstd_frame.wrong_with(fd, piece.offset, piece.length):
            raise Broken(f"{piece.path!a} at byte {piece.offset} holds a value that is not whole: {wrong}")
        else:
            tree.framed = True


def _hold(folder: Folder, piece: _Piece, tree: Tree) -> None:
    """See that a piece is there."""
    size = folder.files.get(piece.path)
    if size is None:
        raise Broken(f"{piece.path!a} is missing, which the tree of arrays needs", piece.path)
    if size < piece.offset + piece.length:
        raise Broken(f"{piece.path!a} has {size} bytes; the tree of arrays needs {piece.offset + piece.length}")
    tree.files.add(piece.path)


def _read(folder: Folder, piece: _Piece) -> bytes:
    with folder.opened(piece.path) as (fd, _):
        return os.pread(fd, piece.length, piece.offset)


def _opened(raw: bytes, magic: int) -> _Reader:
    """Check a manifest or node as it lies in its file, and unpack it."""
    if len(raw) < 18:
        raise ValueError(f"it has {len(raw)} bytes, too few" if raw else "it is empty")
    found, length = struct.unpack(">I", raw[:4])[0], struct.unpack("<Q", raw[4:12])[0]
    if found != magic or length != len(raw):
        raise ValueError("it does not begin as it must: it is cut short or damaged")
    if crc32c(raw[:-4]) != struct.unpack("<I", raw[-4:])[0]:
        raise ValueError("its CRC-32C differs")
    head = _Reader(raw[:-4])
    head.at = 12
    version, packing = head.number(), head.number()
    if version or packing > 1:
        raise _NotKnown(f"it is of version {version}, packing {packing}")
    body = raw[head.at : -4]
    try:
        return _Reader(unpacked(body, LARGEST_NODE) if packing else body)
    except TooLong:
        raise _NotKnown(f"it holds more than {LARGEST_NODE} bytes") from None


def _root(manifest: _Reader, prefix: str) -> _Piece | None:
    """Return the newest version's root; None: the tree is empty."""
    manifest.cut(16)  # the tree's id
    if (
        manifest.number()
    ):  # where versions are kept, if not here: https://github.com/google/tensorstore, config_codec.cc
        raise _NotKnown("its versions are kept in other files")
    manifest.numbers(2)
    manifest.cut(1)
    if manifest.number():  # nodes are packed with Zstandard: at which level
        manifest.cut(4)
    table = _files(manifest, prefix)
    count = manifest.number()
    if not count:
        raise ValueError("it names no version of the tree")
    manifest.numbers(count)  # generations
    manifest.cut(count)  # heights
    ids, offsets, lengths = manifest.numbers(count), manifest.numbers(count), manifest.numbers(count)
    if lengths[-1] == 0 or not table:
        return None
    return _Piece(*_named(table, ids[-1]), offsets[-1], lengths[-1])


def _files(reader: _Reader, inside: str) -> list[tuple[str, str]]:
    """Read a table of files: the path of each, and what paths in its nodes begin with."""
    count = reader.number()
    shared = [0, *reader.numbers(count - 1)] if count else []
    rest, bases = reader.numbers(count), reader.numbers(count)
    table: list[tuple[str, str]] = []
    path, left = b"", MOST_NAMES
    for n in range(count):
        path = path[: shared[n]] + reader.cut(rest[n])
        left -= len(path)
        if left < 0:
            raise ValueError("its files' names are longer than any")
        text = path.decode("utf-8", "surrogateescape")
        base = path[: bases[n]].decode("utf-8", "surrogateescape")
        if ".." in text.split("/") or text.startswith("/"):
            raise ValueError(f"it names a file outside the checkpoint: {text!a}")
        table.append((inside + text, inside + base))
    return table


def _named(table: list[tuple[str, str]], number: int) -> tuple[str, str]:
    if number >= len(table):
        raise ValueError("it points to a file that it does not name")
    return table[number]


def _children(node: _Reader, inside: str) -> list[tuple[_Piece, bool]]:
    """Return the pieces that a node names; True: a node, False: a value. Small values lie in the node itself."""
    height = node.cut(1)[0]
    table = _files(node, inside)
    count = node.number()
    if not count:
        raise ValueError("it is a node without entries")
    node.numbers(count - 1)  # of each key, what it shares with the one before
    suffixes = node.numbers(count)
    if height:
        node.numbers(count)  # what all keys below share
        node.cut(sum(suffixes))
        ids, offsets, lengths = node.numbers(count), node.numbers(count), node.numbers(count)
        return [(_Piece(*_named(table, ids[n]), offsets[n], lengths[n]), True) for n in range(count)]
    node.cut(sum(suffixes))
    lengths, kinds = node.numbers(count), node.numbers(count)
    far = [length for length, kind in zip(lengths, kinds, strict=True) if kind]
    ids, offsets = node.numbers(len(far)), node.numbers(len(far))
    return [(_Piece(*_named(table, ids[n]), offsets[n], far[n]), False) for n in range(len(far))]


def crc32c(data: bytes) -> int:
    """Return the checksum that these files carry; some ten megabytes a second."""
    crc = 0xFFFFFFFF
    table = _CRC
    for byte in data:
        crc = crc >> 8 ^ table[(crc ^ byte) & 255]
    return crc ^ 0xFFFFFFFF
