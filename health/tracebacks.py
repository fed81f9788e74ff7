"""Finds the Python exceptions in a text: their type, their line, and the last frame of the user's own code.

Output of a rank arrives with prefixes (rank, log shipper, srun's label), in boxes, glued to progress bars and without
its first lines. What stays the same is the header, the indented frames and the line that names the exception.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

_PREFIX = re.compile(
    r"""\[[\w.:/@\ +-]{1,48}\]:\ ?                                      # [rank0]: [default0]:
    | \[\d{1,6},\d{1,6}\]<std(?:err|out)>:\ ?                           # mpirun
    | \d{4}-\d\d-\d\d[T\ ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?\ (?:std(?:out|err)\ [FP]\ )?
    | [A-Z][a-z]{2}\ {1,2}\d{1,2}\ \d\d:\d\d:\d\d\ [\w.-]{1,64}\ [\w./-]{1,64}(?:\[\d{1,9}\])?:\ ?   # syslog
    | \([\w.:-]{1,64}\ pid=\d{1,9}(?:,\ ip=[\d.:a-f]{1,40})?\)\ ?       # ray
    | \d{1,6}:\                                                         # srun -l
    | \[pod/[\w./-]{1,160}\]\                                           # kubectl logs --prefix
    | [IWEFDC]\d{4}\ \d\d:\d\d:\d\d\.\d{1,9}\ {1,8}\d{1,16}(?:\ \d{1,16})?\ [\w/.<>-]{1,160}:\d{1,6}\]\ ?  # glog, torch
    | (?![\w.]{0,60}(?:Error|Exception))[a-z][\w.-]{0,62}\d:\             # pdsh: host names end in a number
    | [\w.-]{1,64}\ {0,16}[|│]\ ?                                       # docker compose
    | \|\ (?:ERROR|CRITICAL)\ {1,8}\|\ [\w.<>]{1,80}:[\w<>]{1,80}:\d{1,6}\ -\  # loguru
    | (?:ERROR|CRITICAL)\ \d\d-\d\d\ \d\d:\d\d:\d\d\ \[[\w./-]{1,80}:\d{1,6}\]\ ?    # vllm
    | (?:-\ [\w.]{1,64}\ )?-\ (?:ERROR|CRITICAL)\ -\                       # logging: with dashes,
    | (?:ERROR|CRITICAL):[\w.]{1,64}:(?=\S)|(?:ERROR|CRITICAL):?\ {1,4}     # basicConfig's, or the level alone
    | \[\d{4}-\d\d-\d\d\ [\d:,.]{8,15}\](?:\[[\w.]{1,64}\]){0,2}\[(?:ERROR|CRITICAL)\]\ -\    # hydra
    | \[(?:ERROR|CRITICAL)\]:?\                                            # a level in brackets
    | ErrorMessage\ "                                                    # SageMaker
    | (?![^|]{0,80}(?:Error|Exception))[^|]{0,80}\d%\|[^|]{0,160}\|                # a bar of tqdm, to its end
      \ \d[\w.]{0,15}/\d[\w.]{0,15}\ \[\d\d:[^\]]{0,200}\]\ ?
    | \ {0,8}[|│]\ ?                                                    # exception groups, boxes
    """,
    re.VERBOSE,
)
_HEADER = re.compile(r"Traceback \(most recent call last\)")
_FRAME = re.compile(r'\s{0,12}File "([^"]{1,512})", line \d{1,9}(?:, in (.{1,128}))?')
_FRAMED = re.compile(r'(.{0,128}?) {1,2}File \\?"[^"]{1,512}", line \d{1,9}, in .')
_RAISED = re.compile(r"((?:[A-Za-z_]\w{0,63}\.){0,12}[A-Za-z_]\w{0,80})(?:\(\w{1,80}\))?(?::(?: |$)|$)")
_TELLING = re.compile(r"\w(?:Error|Exception|Interrupt|Failure|OutOfMemory)|^Exception$")
_TELLING_DOTTED = re.compile(
    r"\w(?:Unavailable|Timeout|TimedOut|Failed|Exceeded|Requests|Invalid|OutOfResources|Expired|NotFound|File|Mismatch|Denied|Forbidden|Closed|Conflict)$|^[Ee]rror$"
)
_OF_ERRORS = re.compile(r"\.(?:exc|exceptions?|errors?|errorfactory)\.[A-Z]\w{0,80}$")
_LEVELS = frozenset(
    {"INFO", "WARNING", "WARN", "ERROR", "DEBUG", "CRITICAL", "FATAL", "NOTE", "Error", "Warning", "LustreError"}
)
LIBRARY = re.compile(r"site-packages|dist-packages|/lib/python\d|<frozen |^<string>$")
_REPORTED = re.compile(r"( {1,8})traceback ?: Traceback")  # torchrun's report: the rest stands under its label
_DURING = re.compile(r"During handling of the above exception, another exception occurred")
_DIGIT = re.compile(r"\d")
_MAX_LEAD = 256
_MAX_ESCAPED = 8192
MOST_SOURCE = 512
_IGNORED = re.compile(
    r"Exception ignored in|Error in atexit\._run_exitfuncs|Exception in thread |"
    r"Falling back to rank local metadata\."  # torch's dcp.load, of what was saved with use_collectives=False
)


class Frame(NamedTuple):
    """One call of a traceback; ``source`` is its line of code, as far as that is shown."""

    path: str
    function: str
    source: str = ""


@dataclass(frozen=True, slots=True)
class Raised:
    """One exception; ``text`` is its line from the type on, ``frame`` the user's last frame as 'file:function'."""

    index: int
    type: str  # the last part of the dotted name
    text: str
    frame: str = ""
    source: str = ""  # what stands below that frame: its line, perhaps others' between
    ignored: bool = False  # Python itself, or torch, said that it went on
    replaced: bool = False  # another exception came while it was handled
    frames: tuple[Frame, ...] = field(default=(), compare=False)  # the innermost last


def strip(line: str) -> str:
    """Return the line without the prefixes that launchers and log shippers put before it."""
    for _ in range(4):
        found = _PREFIX.match(line)
        if not found:
            break
        line = line[found.end() :]
    return line


def find(lines: Sequence[str]) -> tuple[Raised, ...]:
    """Return the exceptions in the order in which they stand in the text."""
    raised: list[Raised] = []
    frames: list[Frame] = []
    in_block = ignored = False
    frame = library = lead = source = ""
    for index, line in enumerate(lines):
        body = strip(line)
        if header := _HEADER.search(body):
            ignored = index > 0 and bool(_IGNORED.search(lines[index - 1]))
            in_block, frame, library, source, lead = True, "", "", "", _lead(body, header.start())
            frames = []
            if escaped := _in_one_line(body[header.start() :], index):
                raised += escaped
                in_block = False
            continue
        if lead and _DIGIT.sub("0", body[: len(lead)]) == lead:
            body = body[len(lead) :]
        if raised and _DURING.match(body):
            raised = [replace(r, replaced=True) if r.text == raised[-1].text else r for r in raised]
        if framed := _FRAMED.match(body):  # with its prefix, or below a header that was cut off
            in_block = True
            if framed[1].strip():
                lead = _DIGIT.sub("0", framed[1])
                body = body[len(lead) :]
        if found := _FRAME.match(body):
            where = f"{found[1].rsplit('/', 1)[-1]}:{found[2] or ''}"
            frames.append(Frame(found[1], found[2] or ""))
            if not LIBRARY.search(found[1]):
                frame, source = where, ""
            else:
                library = where
            continue
        named = _RAISED.match(body)
        if not named or named[1] in _LEVELS:
            if frames and not frames[-1].source:
                frames[-1] = frames[-1]._replace(source=body.strip()[:MOST_SOURCE])
            if frame and len(source) < MOST_SOURCE:
                source += f"{body}\n"
            continue
        kind = named[1].rsplit(".", 1)[-1]
        dotted = kind != named[1]
        if in_block and not dotted and kind.islower():  # another rank's line in between: no exception is named so
            continue
        if (
            in_block
            or _TELLING.search(kind)
            or (dotted and (_TELLING_DOTTED.search(kind) or _OF_ERRORS.search(named[1])))
        ):
            text = kind + body[named.end(1) :]
            raised.append(Raised(index, kind, text, frame or library, source, ignored, frames=tuple(frames)))
            in_block = ignored = False
            frames = []
            frame = library = source = ""
    return tuple(raised)


def _lead(body: str, end: int) -> str:
    """What stands before a traceback's header may stand before its other lines too, but for its numbers: a prefix of
    somebody's own logger, or the indent of torchrun's report. A progress bar does not come again, and changes nothing.
    """
    reported = _REPORTED.match(body)
    return reported[1] if reported else _DIGIT.sub("0", body[:end]) if end <= _MAX_LEAD else ""


def _in_one_line(text: str, index: int) -> list[Raised]:
    """Read a traceback that stands in one line as a JSON string, as torchelastic's error handler logs it."""
    lines = text[:_MAX_ESCAPED].replace('\\"', '"').split("\\n")
    return [replace(inner, index=index) for inner in find(lines)] if len(lines) > 2 else []
