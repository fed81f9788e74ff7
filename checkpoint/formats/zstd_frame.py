"""Is a frame of Zstandard there to its end? Its blocks are stepped over, not unpacked, so that large ones cost little.

For values in Orbax' B+trees, which carry no checksum of their own. Zeros where a file system lost what was written are
seen: a block's head of zeros, a compressed block that ends in zeros (its last bit stream ends in a mark), and a stored
block that ends in more of them than compressing it would have saved. Format: RFC 8878.
"""

from __future__ import annotations

import os

from .zstd import MAGIC

TAIL = 8  # zeros that no compressed block ends in
LONGEST_HEAD = 18
LEAST = 64  # bytes of a value whose being zero says something


def wrong_with(fd: int, offset: int, length: int) -> str:
    """Say what is wrong with the frame at ``offset``; "" if nothing that can be seen, or if it is none."""
    head = os.pread(fd, min(LONGEST_HEAD, length), offset)
    if head[:4] != MAGIC or len(head) < 5:
        return ""
    about, single = head[4], head[4] >> 5 & 1
    at = 5 + (not single) + (0, 1, 2, 4)[about & 3] + ((single, 2, 4, 8)[about >> 6])
    last = 0
    while not last:
        block = int.from_bytes(os.pread(fd, 3, offset + at), "little") if at + 3 <= length else 0
        last, kind, size = block & 1, block >> 1 & 3, block >> 3
        held = 1 if kind == 1 else size
        at += 3 + held
        if at > length or kind == 3 or not (last or size):
            return "a block of it is not there"
        if kind != 1 and held >= TAIL:
            least = TAIL if kind == 2 else LEAST + held // LEAST
            end = os.pread(fd, min(least, held), offset + at - min(least, held))
            if not any(end):
                return "a block of it ends in zeros"
    return ""


def is_blank(fd: int, offset: int, length: int) -> bool:
    """Say whether a value begins in zeros, as no frame does."""
    return length >= LEAST and not any(os.pread(fd, LEAST, offset))
