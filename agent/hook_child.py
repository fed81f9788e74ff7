"""``python -m remuster.agent.hook_child module:function``: calls a user's resume hook in an interpreter of its own.

Started by ``hook.py``, so that a hook that imports torch, or crashes, never does so inside the agent. The question
comes as JSON on stdin and is passed to the function as a dict; what it returns (a dict or None) goes to stdout as JSON.
Whatever the function prints goes to stderr. An exception of the user's ends the process as usual: its last line is what
the log says.
"""

from __future__ import annotations

import importlib
import json
import os
import sys


def main() -> str | None:
    """Answer one question; what is returned instead goes to stderr, in one line."""
    name = sys.argv[1]
    module, _, function = name.partition(":")
    answer = os.dup(1)
    os.dup2(2, 1)
    question = json.load(sys.stdin)
    try:
        found: object = importlib.import_module(module)
        for part in function.split("."):
            found = getattr(found, part, None)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise  # something that the module itself imports
        return f"there is no module {error.name!r} in {os.getcwd()}, on PYTHONPATH or installed; correct {name}"
    if not callable(found):
        return f"there is no function {function!r} in {module}; correct {name}"
    result: object = found(question)
    try:
        text = json.dumps(result, default=os.fspath)  # a Path is a path
    except (TypeError, ValueError, RecursionError) as error:
        return f"{function} returned {type(result).__name__}, which cannot be put into JSON: {error}"
    with os.fdopen(answer, "w") as out:
        out.write(text)
    return None


if __name__ == "__main__":
    sys.exit(main())
