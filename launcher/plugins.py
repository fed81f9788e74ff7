"""Names that torchrun looks up among installed packages: which of them mean something here. Called by `output`.

The rule: what such a name stands for is a class or a handler of torch's, and the launcher never imports torch. A name
that torchrun itself defines is taken at its meaning; any other is refused before anything starts, whether a package has
registered it or not: a choice that is silently not followed is worse than one that is not there.
"""

from __future__ import annotations

from .errors import UsageError

LOGS_SPECS = "torchrun.logs_specs"
HANDLERS = {"null": False, "console": True, "dynamic_rendezvous": False}  # all that torch has; no package can add one


def logs_specs(name: str, text: str | None) -> None:
    """Refuse any class for ranks' files but torchrun's own, whose layout is remuster's."""
    if text is None or text == "default":
        return
    from importlib.metadata import entry_points

    found = [point.value for point in entry_points(group=LOGS_SPECS) if point.name == text]
    if not found:
        raise UsageError(
            f"{name} is {text!r}, and no installed package has registered that in {LOGS_SPECS}; leave it out, or give "
            "default"
        )
    raise UsageError(
        f"{name} is {text!r}, which is {found[0]}: a class of torch's, which remuster does not load; leave it out, and "
        "files lie as with torchrun's default, <run>/attempt_N/<local rank>/"
    )


def events_shown(name: str, text: str | None) -> bool:
    """Tell whether events are shown on the console."""
    if text is not None and text not in HANDLERS:
        raise UsageError(
            f"{name} is {text!r}, which is not registered; give one of {', '.join(HANDLERS)}, or leave it out: events "
            "are kept in the run's events.jsonl"
        )
    return HANDLERS[text or "null"]
