"""What of the ranks' output is shown and copied, as the command line says it in torchrun's words. Called by `build`.

The files under --log-dir have everything in any case, so these are choices for the eye only; a value that torchrun
would not take is refused here, and what is taken and shows nothing is said.
"""

from __future__ import annotations

import re

from ..agent.room_plan import LEAST_LIMIT
from ..agent.spec import Output, Streams, Writer
from . import plugins, values
from .errors import UsageError
from .given import Given

_NULL = "/dev/null"


def choose(given: Given, prefix: str, notes: list[str]) -> Output:
    """Return the choice that the flags and the template of the prefix make; ``notes`` takes what is not used."""
    plugins.logs_specs(given.origin("logs-specs"), given.text("logs-specs"))
    out, err = (_needles(given, name) for name in ("duplicate-stdout-filters", "duplicate-stderr-filters"))
    chosen = Output(
        _streams(given, "redirects"),
        _streams(given, "tee"),
        ranks(given.origin("local-ranks-filter"), given.text("local-ranks-filter") or ""),
        prefix,
        out,
        err,
        _limit(given),
        plugins.events_shown(given.origin("event-log-handler"), given.text("event-log-handler")),
        writer(given.origin("log-writer"), given.text("log-writer") or Writer.AUTO.value),
    )
    if given.text("log-dir") == _NULL:
        return _all_shown(chosen, notes)
    for name, needles, stream in (("duplicate-stdout-filters", out, 1), ("duplicate-stderr-filters", err, 2)):
        if needles and not any(n & stream for n in (chosen.tee.every, *dict(chosen.tee.by_rank).values())):
            word = ("stdout", "stderr")[stream - 1]
            notes.append(
                f"{given.origin(name)} copies lines of tee'd ranks, and no {word} is tee'd; give --tee as well"
            )
    return chosen


def streams(name: str, text: str) -> Streams:
    """Return the streams that ``N``, or ``RANK:N,...``, chooses; as in torchrun, but for ranks of several digits."""
    if re.fullmatch("[0-3]", text):
        return Streams(int(text))
    if not re.fullmatch(r"[0-9]{1,6}:[0-3](,[0-9]{1,6}:[0-3])*", text):
        raise UsageError(
            f"{name} is {text!r}; give 0 (none), 1 (stdout), 2 (stderr) or 3 (both), or such a number by local rank, "
            "as in 0:3,1:1"
        )
    pairs = (part.split(":") for part in text.split(","))
    return Streams(0, tuple({int(rank): int(n) for rank, n in pairs}.items()))


def writer(name: str, text: str) -> Writer:
    """Return who writes the ranks' files."""
    try:
        return Writer(text)
    except ValueError:
        raise UsageError(f"{name} is {text!r}; give {', '.join(one.value for one in Writer)}") from None


def ranks(name: str, text: str) -> tuple[int, ...]:
    """Return local ranks, comma separated; none, as in torchrun, means all."""
    if not text:
        return ()
    if not re.fullmatch(r"\s*[0-9]{1,6}\s*(,\s*[0-9]{1,6}\s*)*", text):
        raise UsageError(f"{name} is {text!r}; give local ranks with commas between, as in 0,1,2")
    return tuple(sorted({int(part) for part in text.split(",")}))


def needles(name: str, text: str) -> tuple[str, ...]:
    """Return texts, comma separated; ``,,`` is a comma in one of them."""
    found = tuple(part.replace("\0", ",") for part in text.replace(",,", "\0").split(","))
    if "" in found:
        raise UsageError(
            f"{name} is {text!r} and holds an empty text, which every line has; leave that comma out, or write ,, for "
            "a comma"
        )
    return found


def _needles(given: Given, name: str) -> tuple[str, ...]:
    text = given.text(name)
    return () if text is None else needles(given.origin(name), text)


def _limit(given: Given) -> int:
    text = given.text("log-limit")
    return 0 if text is None else values.size(given.origin("log-limit"), text, LEAST_LIMIT)


def _streams(given: Given, name: str) -> Streams:
    text = given.text(name)
    return Streams() if text is None else streams(given.origin(name), text)


def _all_shown(chosen: Output, notes: list[str]) -> Output:
    """Show all: torchrun's --log-dir /dev/null leaves every stream on the console, whatever else is said."""
    shown = Output(prefix=chosen.prefix, limit=chosen.limit, events=chosen.events, writer=chosen.writer)
    if chosen != shown:
        notes.append(
            f"--log-dir {_NULL}: as with torchrun all streams are shown then, as they are; redirects, tee and filters "
            "are not used"
        )
    return shown
