#!/usr/bin/env python3
"""Drain a Slurm node when remuster puts its host in quarantine: ``remuster --on-event examples/drain.py ...``.

remuster gives one event as JSON on stdin; the host's name is what stands before the ``~``. No shell is involved, so
nothing that a rank wrote can be run.
"""

import json
import subprocess
import sys

event = json.load(sys.stdin)
if event["event"] == "quarantine":
    node, why = event["host"].partition("~")[0], f"remuster {event['run_id']}: {event['sentence']}"
    line = ["scontrol", "update", f"nodename={node}", "state=drain", f"reason={why[:200]}"]
    sys.exit(subprocess.run(line, timeout=8, check=False).returncode)
