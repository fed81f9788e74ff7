"""Runs a script by ``runpy`` and leaves torchelastic's error file when it raises: what --run-path starts a rank with.

A program, executed by its path in the ranks' interpreter, which need not have this package: ``run_path.py SCRIPT
ARGUMENTS``. Standard library only; torch is imported if the script imports it.
"""

from __future__ import annotations

import contextlib
import os
import sys


def main(argv: list[str]) -> None:
    """Run the script ``argv[0]`` as ``__main__``; what it raises is recorded, and shown as Python shows it."""
    safe = getattr(sys.flags, "safe_path", False)
    if not safe:
        del sys.path[0]  # this program's folder: nothing that the script imports is there
    import faulthandler
    import runpy

    faulthandler.enable()  # as torchrun does
    if not safe and os.path.isfile(argv[0]):  # a folder with a program in it, runpy adds itself
        sys.path.insert(0, os.path.dirname(os.path.realpath(argv[0])))
    sys.argv[:] = argv
    try:
        runpy.run_path(argv[0], run_name="__main__")
    except Exception as error:
        _drop_frames(error, (__file__, runpy.__file__, runpy.run_path.__code__.co_filename))
        with contextlib.suppress(Exception):  # the script's own error is the one that counts
            _record(error, os.environ.get("TORCHELASTIC_ERROR_FILE", ""))
        sys.excepthook(type(error), error, error.__traceback__)
        sys.exit(1)


def _drop_frames(error: Exception, files: tuple[str, ...]) -> None:
    """Let the traceback begin with the script, as it does without us."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename in files:
        trace = trace.tb_next
    error.__traceback__ = trace


def _record(error: Exception, path: str) -> None:
    """Write the error file, unless the script's own @record has."""
    import json
    import time
    import traceback

    trace = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    extra = {"py_callstack": trace, "timestamp": str(int(time.time()))}
    said = {"message": {"message": f"{type(error).__name__}: {error}", "extraInfo": extra}}
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(fd, "w") as file:
        json.dump(said, file)


if __name__ == "__main__":
    main(sys.argv[1:])
