"""``python -m remuster.agent.hook_child module:function``: calls a user's resume hook in an interpreter of its own.

Started by ``hook.py``, so that a hook that imports torch, or crashes, never does so inside the agent. The question
comes as JSON on stdin and is passed to the function as a dict; what it returns (a dict or None) goes to stdout as JSON.
Whatever the function prints goes to stderr. An exception ends the process as usual: its last line is what the log says.
"""

from __future__ import annotations

import importlib
import json
import operator
import os
import sys


def main() -> None:
    """Answer one question."""
    module, _, function = sys.argv[1].partition(":")
    answer = os.dup(1)
    os.dup2(2, 1)
    question = json.load(sys.stdin)
    result = operator.attrgetter(function)(importlib.import_module(module))(question)
    with os.fdopen(answer, "w") as out:
        json.dump(result, out, default=os.fspath)  # a Path is a path


if __name__ == "__main__":
    main()
