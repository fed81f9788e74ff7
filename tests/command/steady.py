"""A rank that stands until it is told to end: ``steady.py DESK``. It needs nothing but the standard library.

It writes who it is to DESK/round-<n>/rank-<r>, and when a SIGTERM came to DESK/round-<n>/term-<r>. Orders are files:
DESK/done ends all with 0; DESK/round-<n>/exit-<r> ends one with the status in it, its words on stderr.
"""

import json
import os
import signal
import sys
import time
from pathlib import Path

desk = Path(sys.argv[1])
rank = os.environ["RANK"]
place = desk / f"round-{os.environ['REMUSTER_ROUND']}"
place.mkdir(exist_ok=True)


def put(name, text):
    fresh = place / f".{name}"
    fresh.write_text(text)
    fresh.rename(place / name)


def on_term(signum, frame):
    put(f"term-{rank}", repr(time.clock_gettime(time.CLOCK_BOOTTIME)))
    os._exit(0)


signal.signal(signal.SIGTERM, on_term)
said = {name: value for name, value in os.environ.items() if name.startswith(("REMUSTER_", "TORCHELASTIC_"))}
names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "GROUP_RANK", "LOCAL_WORLD_SIZE", "MASTER_PORT")
said |= {name: os.environ[name] for name in names}
put(f"rank-{rank}", json.dumps({**said, "pid": os.getpid(), "at": time.clock_gettime(time.CLOCK_BOOTTIME)}))
order = place / f"exit-{rank}"
end = time.monotonic() + 100
while time.monotonic() < end and not (desk / "done").exists():
    if order.exists():
        status, _, words = order.read_text().partition(" ")
        sys.stderr.write(words + "\n" if words else "")
        sys.exit(int(status))
    time.sleep(0.005)
