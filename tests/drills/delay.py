"""Holds each packet of netfilter's queue 0 for DELAY_S seconds, in order: ``delay.py DELAY_S``, in a host's network.

For kernels without netem; speaks nfnetlink itself. Prints "ready" once the queue is its own; ends when it is killed,
and the rule's --queue-bypass lets packets pass from then on.
"""

import select
import socket
import struct
import sys
import time
from collections import deque

NETLINK_NETFILTER, SOL_NETLINK, NO_ENOBUFS = 12, 270, 5
QUEUE = 3  # nfnetlink's subsystem
PACKET, VERDICT, CONFIG = 0, 1, 2
ACCEPT = 1


def attribute(kind: int, data: bytes) -> bytes:
    return struct.pack("=HH", 4 + len(data), kind) + data + bytes(-len(data) % 4)


def message(kind: int, attributes: bytes) -> bytes:
    body = struct.pack("=BBH", 0, 0, 0) + attributes
    return struct.pack("=IHHII", 16 + len(body), (QUEUE << 8) | kind, 1, 0, 0) + body


def packets(data: bytes) -> list[int]:
    """Return the ids of the packets that ``data`` announces."""
    found = []
    while len(data) >= 16:
        length, kind = struct.unpack_from("=IH", data)
        at = 20
        while kind == (QUEUE << 8) | PACKET and at + 4 <= length:
            size, what = struct.unpack_from("=HH", data, at)
            if what & 0x3FFF == 1:  # its header
                found.append(struct.unpack_from("!I", data, at + 4)[0])
                break
            at += (size + 3) & ~3
        data = data[(length + 3) & ~3 :]
    return found


delay_s = float(sys.argv[1])
link = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_NETFILTER)
link.bind((0, 0))
link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8 << 20)
link.setsockopt(SOL_NETLINK, NO_ENOBUFS, 1)
link.send(message(CONFIG, attribute(1, struct.pack("!BBH", 1, 0, 0))))  # bind
link.send(message(CONFIG, attribute(2, struct.pack("!IB", 0, 1))))  # nothing but the headers
link.send(message(CONFIG, attribute(3, struct.pack("!I", 65535))))  # as many as there can be
print("ready", flush=True)
held: deque[tuple[float, int]] = deque()
while True:
    now = time.monotonic()
    while held and held[0][0] <= now:
        link.send(message(VERDICT, attribute(2, struct.pack("!II", ACCEPT, held.popleft()[1]))))
    if select.select([link], [], [], max(0.0, held[0][0] - now) if held else None)[0]:
        held += [(time.monotonic() + delay_s, packet) for packet in packets(link.recv(1 << 20))]
