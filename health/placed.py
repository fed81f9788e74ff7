"""What an exception of many meanings means at the place where it was raised. Pure; for ``signatures.py``.

A ``KeyError`` is a sample without its field, or a mistake of the program; a ``ValueError`` is a bad sample, a bad
option, or any other thing. The user's last frame tells which is meant, as far as names of files and functions do; so
what is concluded here is never certain.
"""

from __future__ import annotations

import re

from .tracebacks import Raised

DOUBTFUL = frozenset({"KeyError", "ValueError", "IndexError", "AssertionError"})  # types that say nothing of a cause
_CHECKS = DOUBTFUL | {"RuntimeError", "Exception", "TypeError"}  # what code that looks at options raises
_PROGRAM = re.compile(  # a table of the program's own, its settings, a checkpoint
    r"\b[A-Z][A-Z0-9_]{2,40}\[|\b(?:args|cfg|conf|config|opts?|options|hparams|settings|kwargs|environ|registry|ckpt|"
    r"checkpoint|state_dict)\w{0,12}\b"
)
_READS_SAMPLES = re.compile(r"(?i)__getitem__|collat|dataset|tokeniz|preproc|\bdata(?:_\w{0,20})?\.py|dataload|_sample")
_NO_SAMPLE = re.compile(r"(?i)ckpt|checkpoint|resume|state_?dict|config|registry|build_|optim|sched|argument")
_ARGUMENTS = re.compile(
    r"(?i):(?:(?:parse|validate|check|verify|process)_\w{0,24}(?:args?|arguments|config|flags|options)|__post_init__)\b|"
    r"^(?:arguments?|args|options|flags|configs?|hparams)\.py:"
)


def means(cls: str, raised: Raised) -> str:
    """Return the class that the exception stands for, given the one that its type alone stands for."""
    if cls == "user_exception" and raised.type in _CHECKS and _ARGUMENTS.search(raised.frame):
        return "user_args"
    if raised.type not in DOUBTFUL:
        return cls
    if cls == "user_data_error" and raised.type == "KeyError":
        return cls if _a_field(raised) else "user_exception"
    if cls == "user_exception" and raised.type != "KeyError" and _READS_SAMPLES.search(raised.frame):
        return "user_data_error"
    return cls


def _a_field(raised: Raised) -> bool:
    """Whether a key may have been looked up in a sample: nothing speaks of a table of the program's own."""
    return not _NO_SAMPLE.search(raised.frame) and not _PROGRAM.search(raised.source)
