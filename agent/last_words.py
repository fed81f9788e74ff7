"""What the command says and leaves when its agent has ended: the report or a sentence, the record of a round that
nobody else has judged, and the error for whoever started it. Used by ``main.py``.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

from .chronicle import Chronicle
from .files import FileThread
from .loop import Agent
from .node_state import NodeState
from .node_words import Exit
from .notes import Notes
from .spec import JobSpec


def voiced(sentence: str) -> str:
    """Return a sentence of this command's as a line for people."""
    from .report import one_line

    return f"remuster: {one_line(sentence)}\n"


def _coloured(report: str) -> str:
    from . import colour

    return colour.painted(report) if colour.wanted(os.environ, os.isatty(2)) else report


async def keep_last(spec: JobSpec, agent: Agent, chronicle: Chronicle, files: FileThread, log: Notes) -> None:
    """Keep the record of the round that this agent leaves, if nobody else has judged it."""
    state = agent.state
    if state.round and not chronicle.has(state.round):
        from .counsel import Bench

        record = Bench(spec, files, log.line).own_record(state)
        if record is not None:
            await chronicle.keep(state.round, json.loads(record))
    await chronicle.settle()


def over(state: NodeState) -> bool:
    """Tell whether the job has ended, and not only this node's part."""
    return state.job is not None and state.job.job.phase.over


def reason(end: Exit, state: NodeState) -> dict[str, str]:
    """Return why the command ends, for its last line; nothing where the line of the job's end has just said it."""
    outcome = state.job.job.outcome if state.job is not None and over(state) else None
    return {} if outcome is not None and outcome.sentence == end.sentence else {"why": end.sentence}


def closing(end: Exit, state: NodeState, report: str) -> str:
    """Return what is to be said of the end; nothing where all is well and the lines before have told it."""
    said = _coloured(report) if end.code and report else ""
    if (end.code and not (report and over(state))) or (not end.code and not over(state)):
        said += voiced(end.sentence)  # the report does not say how it ended
    elif not end.code and not state.round:
        said += voiced("this node stood by as a spare and ran nothing; the job is done")
    return said


async def hand_up(record: dict[str, object], sentence: str, node: str, files: FileThread, log: Notes) -> None:
    """Leave the error for whoever started this command and asked for it by a variable."""
    target = os.environ.get("TORCHELASTIC_ERROR_FILE")
    if not target:
        return
    from . import parent_file

    try:
        await files.run(parent_file.write, Path(target), record, node, sentence, int(time.time()))
    except (OSError, TimeoutError) as error:
        log.line("the error was not written for the parent", file=target, why=str(error))
