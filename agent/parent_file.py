"""The error file of whoever started this command: torchelastic's way to hand a failure up, kept so that it nests.

When the command was started with TORCHELASTIC_ERROR_FILE and fails, the root rank's error file is copied there with its
exit code added, as torchrun does. Every node of the job writes the same error, also those that cannot reach the root's
file, for the record of the round holds it. A root that left no error file is told of in the verdict's words. Loaded by
``main`` at such an end; ``write`` blocks.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import cast

from ..health import errorfile
from .occurrences import part


def write(target: Path, record: Mapping[str, object], node: str, sentence: str, now: int) -> None:
    """Replace ``target``. ``record`` is that of the round that failed, empty without one; ``sentence`` how we end."""
    root = _root(record)
    error = part(root, "error")
    found = None
    if part(record, "verdict").get("node") == node and error:  # its file lies here
        found = errorfile.whole(Path(str(error.get("path"))))
    told = _told(error, str(part(record, "verdict").get("sentence") or sentence), now)
    status = root.get("status")
    code = status if isinstance(status, int) else 0
    try:
        data = _spelled(found or told, code)
    except RecursionError:  # it could just be read, and cannot be written
        data = _spelled(told, code)
    _replace(target, data)


def _spelled(content: dict[str, object], code: int) -> bytes:
    """Return the content with the exit code where torchrun puts it: nowhere, in the form whose message is a text."""
    message = content.get("message")
    if isinstance(message, dict) and code:
        content = {**content, "message": {**cast("dict[str, object]", message), "errorCode": code}}
    return json.dumps(content).encode()


def _root(record: Mapping[str, object]) -> Mapping[str, object]:
    """Return the end of the root rank as the record has it, empty when no rank was the root."""
    verdict = part(record, "verdict")
    for said in _objects(record.get("evidence")):
        for fact in _objects(said.get("facts")) if said.get("node") == verdict.get("node") else ():
            if fact.get("is") == "exit" and fact.get("rank") == verdict.get("rank"):
                return fact
    return {}


def _objects(value: object) -> list[Mapping[str, object]]:
    items = cast("list[object]", value) if isinstance(value, list) else []
    return [cast("Mapping[str, object]", item) for item in items if isinstance(item, dict)]


def _told(error: Mapping[str, object], sentence: str, now: int) -> dict[str, object]:
    """Return an error in torchelastic's form: the root's own as the record has it, else the sentence."""
    info = {"timestamp": str(error.get("timestamp") or now)}
    if error.get("traceback"):
        info["py_callstack"] = str(error["traceback"])
    return {"message": {"message": str(error.get("message") or sentence), "extraInfo": info}}


def _replace(target: Path, data: bytes) -> None:
    """Write the file anew, where there is a file or none: what stands there is of an earlier start."""
    if target.is_file():
        target.unlink()
    with os.fdopen(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as file:
        file.write(data)
