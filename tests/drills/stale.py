"""A rank that trains, saves, and does its worst when it wakes up in a world that has gone on.

``stale.py ALIVE FINISH DIR``: steps and signs of life as in ``train.py``; every tenth step is published below DIR by
all ranks. Where the file ALIVE.worst names its node and round, it tries to enter the group that runs now, through the
store of its own round, and publishes alone, under its own token, step 1000; what came of it stands in ALIVE.stale. A
rank whose peers are gone does not end: it is to be stopped.
"""

import datetime
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

alive, finish, directory = sys.argv[1:4]
node, attempt, mine = (os.environ[n] for n in ("REMUSTER_NODE", "REMUSTER_ATTEMPT", "REMUSTER_ROUND"))
ALONE = """
import sys
from pathlib import Path
from remuster import checkpoint
with checkpoint.publish(1000, directory=Path(sys.argv[1])) as p:
    p.path("model.txt").write_text("from another world")
"""


def append(suffix: str, text: str) -> None:
    fd = os.open(f"{alive}{suffix}", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(fd, text.encode())
    os.close(fd)


def now() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def live() -> None:
    wanted, done = Path(f"{alive}.worst"), False
    while True:
        append("", f"{node} {mine} {attempt} {now():.6f}\n")
        if not done and wanted.exists() and wanted.read_text() == f"{node} {mine}":
            done = True
            threading.Thread(target=do_the_worst, daemon=True).start()
        time.sleep(0.005)


def do_the_worst() -> None:
    alone = {**os.environ, "RANK": "0", "WORLD_SIZE": "1"}
    line = [sys.executable, "-c", ALONE, directory]
    done = subprocess.run(line, env=alone, capture_output=True, text=True, timeout=60, check=False)
    append(".stale", f"published: {done.returncode} {done.stderr[-200:]!r}\n")
    try:
        where, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
        store = dist.TCPStore(where, port, is_master=False, timeout=datetime.timedelta(seconds=3))
        store.set("stale", "is here")
        append(".stale", "joined: yes\n")
    except Exception as error:  # of whatever kind: it has not come in
        append(".stale", f"joined: no {type(error).__name__}\n")


threading.Thread(target=live, daemon=True).start()

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402

from remuster import checkpoint, resume_point  # noqa: E402

torch.set_num_threads(1)
dist.init_process_group("gloo")
point = resume_point()
step = point.step if point else 0
append(".resumed", f"{node} {mine} {step}\n")
leave = torch.zeros(1)
try:
    while not leave.item():
        leave[0] = float(os.path.exists(finish) and dist.get_rank() == 0)
        dist.all_reduce(leave)
        step += 1
        append(".steps", f"{node} {mine} {step} {now():.6f}\n")
        if step % 10 == 0:
            with checkpoint.publish(step, directory=Path(directory)) as p:
                if dist.get_rank() == 0:
                    p.path("model.txt").write_text(str(step))
        time.sleep(0.02)
except (RuntimeError, checkpoint.PublishError):
    threading.Event().wait()
dist.destroy_process_group()
