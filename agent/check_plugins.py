"""``python -m remuster.agent.check_plugins``: runs the node checks that are installed as entry points.

The group is ``remuster.node_checks``; each is a function without arguments that returns nothing (or '') when the node
may take part, and the reason as a string when it may not. What raises is unknown, and lets pass. Run as a child by
``node_check.py``, so that the agent never imports them; speaks on stderr as ``worker/deep_check.py`` does.
"""

from __future__ import annotations

import json
import os
import sys
from importlib.metadata import entry_points

GROUP = "remuster.node_checks"


def main() -> int:
    """Run them one after the other."""
    said = os.fdopen(os.dup(2), "w")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # what a plug-in prints is not what it found
    for point in sorted(entry_points(group=GROUP), key=lambda point: point.name):
        print(json.dumps({"begin": f"plug-in {point.name}"}), file=said, flush=True)
        try:
            answer: object = point.load()()
            state, text = ("bad", str(answer)) if answer else ("ok", "passed")
        except Exception as error:
            state, text = "unknown", f"{type(error).__name__}: {error}"
        words = {"check": "plugin", "what": point.name, "state": state, "text": text[:500]}
        print(json.dumps(words), file=said, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
