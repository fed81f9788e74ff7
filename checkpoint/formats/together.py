"""Several questions to one checkpoint at once; see ``side_by_side``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from ..side_by_side import first_of
from .finding import Question

Job = Callable[[Question], str]
"""Reads something and says what is wrong with it, or "". It raises GaveUp when the question's ``give_up`` says so."""


def first_wrong(jobs: Sequence[Job], question: Question) -> str:
    """Return what one of the jobs found wrong (the first in order, of those that came to an end), or ""."""
    return first_of([partial(_asked, job, question) for job in jobs], question.give_up)


def _asked(job: Job, question: Question, give_up: Callable[[], bool]) -> str:
    return job(replace(question, give_up=give_up))
