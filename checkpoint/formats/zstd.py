"""Unpacks small frames of Zstandard, in Python alone: B+trees in Orbax' checkpoints are kept so.

Follows RFC 8878, without dictionaries, and passes over the optional checksum: a node of the tree has its own. About a
megabyte a second. A frame that is not valid, or larger than asked for, is a ValueError.
"""

from __future__ import annotations

from dataclasses import dataclass, field

MAGIC = b"\x28\xb5\x2f\xfd"


class TooLong(ValueError):
    """It holds more than was asked for."""


_LL = (
    [(n, 0) for n in range(16)]
    + [(16, 1), (18, 1), (20, 1), (22, 1), (24, 2), (28, 2), (32, 3), (40, 3), (48, 4), (64, 6)]
    + [(1 << n, n) for n in range(7, 17)]
)
_ML = (
    [(n + 3, 0) for n in range(32)]
    + [(35, 1), (37, 1), (39, 1), (41, 1), (43, 2), (47, 2), (51, 3), (59, 3), (67, 4), (83, 4), (99, 5)]
    + [((1 << n) + 3, n) for n in range(7, 17)]
)
_OF = [(1 << n, n) for n in range(32)]
_LL_DEFAULT = [4, 3, *[2] * 11, 1, 1, 1, *[2] * 9, 3, 2, 1, 1, 1, 1, 1, -1, -1, -1, -1]
_ML_DEFAULT = [1, 4, 3, *[2] * 6, *[1] * 37, *[-1] * 7]
_OF_DEFAULT = [*[1] * 6, 2, 2, 2, *[1] * 15, *[-1] * 5]

_Cell = tuple[int, int, int]  # symbol, bits to read for the next state, what is added to them


@dataclass(slots=True)
class _Fse:
    log: int
    cells: list[_Cell]


@dataclass(slots=True)
class _Frame:
    """What later blocks of a frame may refer to."""

    out: bytearray = field(default_factory=bytearray)
    huffman: tuple[int, list[tuple[int, int]]] | None = None  # longest code, (symbol, length) for each of its values
    tables: list[_Fse | None] = field(default_factory=lambda: [None, None, None])
    repeats: list[int] = field(default_factory=lambda: [1, 4, 8])


class _Bits:
    """Bits that are read from the end; the last byte's highest set bit marks where they begin."""

    def __init__(self, data: bytes) -> None:
        if not data or not data[-1]:
            raise ValueError("a bit stream without its mark")
        self.data = data
        self.left = 8 * len(data) - 9 + data[-1].bit_length()

    def peek(self, count: int) -> int:
        begin = self.left - count
        if begin >= 0:
            chunk = int.from_bytes(self.data[begin >> 3 : (self.left + 7) >> 3], "little")
            return (chunk >> (begin & 7)) & ((1 << count) - 1)
        held = max(self.left, 0)
        return (int.from_bytes(self.data[: (held + 7) >> 3], "little") & ((1 << held) - 1)) << (count - held)

    def take(self, count: int) -> int:
        value = self.peek(count)
        self.left -= count
        return value


def unpacked(data: bytes, most: int) -> bytes:
    """Return the content of one frame, at most ``most`` bytes. ValueError: it is not valid, or holds more."""
    try:
        return _frame(data, most)
    except IndexError:
        raise ValueError("a frame that is cut short") from None


def _frame(data: bytes, most: int) -> bytes:
    if data[:4] != MAGIC:
        raise ValueError("no frame of Zstandard")
    about = data[4]
    single = about >> 5 & 1
    at = 5 + (not single) + (0, 1, 2, 4)[about & 3] + ((single, 2, 4, 8)[about >> 6])
    frame = _Frame()
    last = 0
    while not last:
        head = int.from_bytes(_cut(data, at, 3), "little")
        last, kind, size = head & 1, head >> 1 & 3, head >> 3
        at += 3
        if kind == 0:
            frame.out += _cut(data, at, size)
        elif kind == 1:
            if size > most:
                raise TooLong("more than is asked for")
            frame.out += _cut(data, at, 1) * size
            size = 1
        elif kind == 2:
            _block(frame, _cut(data, at, size), most)
        else:
            raise ValueError("a block of an unknown kind")
        at += size
        if len(frame.out) > most:
            raise TooLong("more than is asked for")
    return bytes(frame.out)


def _cut(data: bytes, at: int, size: int) -> bytes:
    piece = data[at : at + size]
    if len(piece) != size:
        raise ValueError("a frame that is cut short")
    return piece


def _block(frame: _Frame, data: bytes, most: int) -> None:
    literals, at = _literals(frame, data)
    count, at = _count(data, at)
    used = 0
    if count:
        modes = data[at]
        at += 1
        for n, (default, log, longest) in enumerate(((_LL_DEFAULT, 6, 9), (_OF_DEFAULT, 5, 8), (_ML_DEFAULT, 6, 9))):
            at = _table(frame, n, (modes >> (6 - 2 * n) & 3, default, log, longest), data, at)
        ll, of, ml = (table for table in frame.tables if table is not None)
        bits = _Bits(data[at:])
        ll_at, of_at, ml_at = bits.take(ll.log), bits.take(of.log), bits.take(ml.log)
        for n in range(count):
            (ll_code, ll_bits, ll_base), (of_code, of_bits, of_base), (ml_code, ml_bits, ml_base) = (
                ll.cells[ll_at],
                of.cells[of_at],
                ml.cells[ml_at],
            )
            offset = _OF[of_code][0] + bits.take(of_code)
            length = _ML[ml_code][0] + bits.take(_ML[ml_code][1])
            plain = _LL[ll_code][0] + bits.take(_LL[ll_code][1])
            frame.out += _cut(literals, used, plain)
            used += plain
            _copy(frame.out, _offset(frame.repeats, offset, plain), length, most)
            if n < count - 1:
                ll_at = ll_base + bits.take(ll_bits)
                ml_at = ml_base + bits.take(ml_bits)
                of_at = of_base + bits.take(of_bits)
        if bits.left:
            raise ValueError("a block whose sequences do not come out even")
    frame.out += literals[used:]


def _copy(out: bytearray, offset: int, length: int, most: int) -> None:
    if not 0 < offset <= len(out):
        raise ValueError("a sequence that points before the beginning")
    if len(out) + length > most:
        raise TooLong("more than is asked for")
    begin = len(out) - offset
    while length:  # what is copied may overlap what is being written
        piece = out[begin : begin + min(length, offset)]
        out += piece
        begin += len(piece)
        length -= len(piece)


def _offset(repeats: list[int], value: int, plain: int) -> int:
    if value > 3:
        repeats[:] = [value - 3, *repeats[:2]]
        return repeats[0]
    which = value - 1 if plain else value
    offset = repeats[0] - 1 if which == 3 else repeats[which]
    if which:
        repeats[:] = [offset, repeats[0], repeats[1] if which > 1 else repeats[2]]
    return offset


def _count(data: bytes, at: int) -> tuple[int, int]:
    first = data[at]
    if first < 128:
        return first, at + 1
    if first < 255:
        return ((first - 128) << 8) + data[at + 1], at + 2
    return data[at + 1] + (data[at + 2] << 8) + 0x7F00, at + 3


def _table(frame: _Frame, n: int, choice: tuple[int, list[int], int, int], data: bytes, at: int) -> int:
    mode, default, log, longest = choice
    if mode == 0:
        frame.tables[n] = _cells(default, log)
    elif mode == 1:
        frame.tables[n] = _Fse(0, [(data[at], 0, 0)])
        at += 1
    elif mode == 2:
        shares, log, size = _shares(data[at:], longest)
        frame.tables[n] = _cells(shares, log)
        at += size
    elif frame.tables[n] is None:
        raise ValueError("a table repeated that there never was")
    return at


def _shares(data: bytes, longest: int) -> tuple[list[int], int, int]:
    """Read how often each symbol stands in a table; return also its logarithm and how many bytes that took."""
    stream = int.from_bytes(data[:256], "little")
    log = (stream & 15) + 5
    if log > longest:
        raise ValueError("a table that is too large")
    at, left, shares = 4, (1 << log) + 1, list[int]()
    while left > 1:
        if len(shares) > 255:
            raise ValueError("a table of too many symbols")
        bits = left.bit_length()
        low = (1 << bits) - 1 - left
        value = stream >> at & ((1 << bits) - 1)
        if value & ((1 << (bits - 1)) - 1) < low:
            value &= (1 << (bits - 1)) - 1
            at += bits - 1
        else:
            value -= low if value >= 1 << (bits - 1) else 0
            at += bits
        shares.append(value - 1)
        left -= abs(value - 1)
        again = 3 if value == 1 else 0  # after a share of none it says how many more of them follow
        while again == 3:
            again = stream >> at & 3
            at += 2
            shares += [0] * again
    if left != 1 or (at + 7) // 8 > len(data):
        raise ValueError("a table that does not come out even")
    return shares, log, (at + 7) // 8


def _cells(shares: list[int], log: int) -> _Fse:
    size = 1 << log
    symbols, high = [0] * size, size - 1
    for symbol, share in enumerate(shares):
        if share == -1:
            symbols[high] = symbol
            high -= 1
    at = 0
    for symbol, share in enumerate(shares):
        for _ in range(max(share, 0)):
            symbols[at] = symbol
            at = (at + (size >> 1) + (size >> 3) + 3) & (size - 1)
            while at > high:
                at = (at + (size >> 1) + (size >> 3) + 3) & (size - 1)
    following = [abs(share) for share in shares]
    cells: list[_Cell] = []
    for symbol in symbols:
        state = following[symbol]
        following[symbol] += 1
        bits = log - state.bit_length() + 1
        cells.append((symbol, bits, (state << bits) - size))
    return _Fse(log, cells)


def _literals(frame: _Frame, data: bytes) -> tuple[bytes, int]:
    kind, form = data[0] & 3, data[0] >> 2 & 3
    if kind < 2:
        head = (1, 2, 1, 3)[form]
        size = int.from_bytes(_cut(data, 0, head), "little") >> (4 if form & 1 else 3)
        return (_cut(data, head, size), head + size) if kind == 0 else (_cut(data, head, 1) * size, head + 1)
    head, width = ((3, 10), (3, 10), (4, 14), (5, 18))[form]
    sizes = int.from_bytes(_cut(data, 0, head), "little") >> 4
    whole, packed = sizes & ((1 << width) - 1), sizes >> width
    body = _cut(data, head, packed)
    if kind == 2:
        frame.huffman, used = _tree(body)
        body = body[used:]
    if frame.huffman is None:
        raise ValueError("a Huffman tree repeated that there never was")
    if form == 0:
        return _stream(frame.huffman, body, whole), head + packed
    ends = [6]
    for n in range(3):
        ends.append(ends[-1] + int.from_bytes(_cut(body, 2 * n, 2), "little"))
    each = (whole + 3) // 4
    parts = [_stream(frame.huffman, body[ends[n] : ends[n + 1]], each) for n in range(3)]
    return b"".join((*parts, _stream(frame.huffman, body[ends[3] :], whole - 3 * each))), head + packed


def _stream(huffman: tuple[int, list[tuple[int, int]]], data: bytes, count: int) -> bytes:
    longest, codes = huffman
    bits, out = _Bits(data), bytearray()
    for _ in range(count):
        symbol, length = codes[bits.peek(longest)]
        bits.left -= length
        out.append(symbol)
    if bits.left:
        raise ValueError("literals that do not come out even")
    return bytes(out)


def _tree(data: bytes) -> tuple[tuple[int, list[tuple[int, int]]], int]:
    head = data[0]
    if head >= 128:
        count = head - 127
        used = 1 + (count + 1) // 2
        weights = [weight for byte in _cut(data, 1, used - 1) for weight in (byte >> 4, byte & 15)][:count]
    else:
        used = 1 + head
        weights = _weights(_cut(data, 1, head))
    total = sum(1 << weight >> 1 for weight in weights)
    longest = total.bit_length()
    rest = (1 << longest) - total
    if not total or longest > 11 or rest & (rest - 1):
        raise ValueError("a Huffman tree that is not whole")
    weights.append(rest.bit_length())
    codes: list[tuple[int, int]] = []
    for weight in range(1, longest + 1):
        for symbol, held in enumerate(weights):
            if held == weight:
                codes += [(symbol, longest + 1 - weight)] * (1 << weight >> 1)
    return (longest, codes), used


def _weights(data: bytes) -> list[int]:
    shares, log, used = _shares(data, 6)
    table, bits = _cells(shares, log), _Bits(data[used:])
    weights: list[int] = []
    states = [bits.take(log), bits.take(log)]
    turn = 0
    while len(weights) < 255:
        symbol, count, base = table.cells[states[turn]]
        weights.append(symbol)
        if bits.left < count:  # the other state's symbol is the last one
            weights.append(table.cells[states[1 - turn]][0])
            return weights
        states[turn] = base + bits.take(count)
        turn = 1 - turn
    raise ValueError("a Huffman tree of too many symbols")
