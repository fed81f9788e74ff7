"""Ranks that meet as torch's do, and end: ``meet.py DESK``. Standard library only.

Rank 0 listens at the master port, with SO_REUSEADDR as TCPStore does; the others connect to the master address. Then
each says in DESK/met-<round>-<rank> where that was. Rank 0 hangs up first, so its port is left in TIME_WAIT.
"""

import json
import os
import socket
import sys
import time
from pathlib import Path

NAMES = ("RANK", "MASTER_ADDR", "MASTER_PORT", "REMUSTER_RUN_ID", "REMUSTER_NODE", "TORCHELASTIC_RESTART_COUNT")
said = {name: os.environ[name] for name in NAMES}
rank, where = said["RANK"], (said["MASTER_ADDR"], int(said["MASTER_PORT"]))
if rank == "0":
    family = socket.AF_INET6 if ":" in where[0] else socket.AF_INET
    with socket.create_server(("", where[1]), family=family) as server:
        for _ in range(int(os.environ["WORLD_SIZE"]) - 1):
            with server.accept()[0] as peer:
                peer.recv(16)
                peer.send(b"ok")
                peer.shutdown(socket.SHUT_WR)
                peer.recv(1)
else:
    end = time.monotonic() + 15
    while True:
        try:
            with socket.create_connection(where, 5) as peer:
                peer.settimeout(None)
                peer.send(rank.encode())
                assert peer.recv(2) == b"ok"
                assert peer.recv(1) == b""
            break
        except ConnectionRefusedError:
            if time.monotonic() > end:
                raise
            time.sleep(0.01)
Path(sys.argv[1], f"met-{os.environ['REMUSTER_ROUND']}-{rank}").write_text(json.dumps(said))
