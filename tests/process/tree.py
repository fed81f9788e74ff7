"""A rank with everything that usually survives: prints ``up`` when the whole tree stands. All of it ends by itself.

worker + setsid grandchild of it, a double-forked daemon, a setsid child that ignores TERM, and (with ``hop``) a hopper:
forks, the parent exits, every millisecond.
"""

import os
import signal
import sys
import time

END = time.monotonic() + 40


def rest():
    while time.monotonic() < END:
        time.sleep(1)
    os._exit(0)


def child(*steps):
    if os.fork() == 0:
        for step in steps:
            step()
        rest()


def hop():
    while time.monotonic() < END:
        if os.fork():
            os._exit(0)
        time.sleep(0.001)


def bear():
    if os.fork():
        os._exit(0)


child(lambda: child(os.setsid))
child(os.setsid, bear)
child(os.setsid, lambda: signal.signal(signal.SIGTERM, signal.SIG_IGN))
if "hop" in sys.argv:
    child(hop)
os.write(1, b"up\n")
rest()
