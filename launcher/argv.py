"""Where the launcher's options end and the script begins; pure, and the only place that knows how a flag may be typed.

torchrun's habits before the script: ``--flag value`` and ``--flag=value``, dashes or underscores, unique prefixes,
a ``--`` in front of the script. From the script on nothing is looked at, let alone changed. An abbreviation that is
unique among torchrun's flags means torchrun's flag, so that a flag of ours never makes an old command line ambiguous.
Called by `cli`, which then sees canonical ``--flag=value`` tokens only.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from .errors import UsageError
from .flags import BY_NAME, BY_SHORT, Flag


class Split(NamedTuple):
    """The command line in its two halves; ``script`` is None when there is none."""

    options: tuple[str, ...]
    script: str | None
    script_args: tuple[str, ...]


def split(argv: Sequence[str]) -> Split:
    """Return canonical options, the script and its arguments; UsageError for a flag that cannot be understood."""
    options: list[str] = []
    at = 0
    while at < len(argv):
        token = argv[at]
        at += 1
        if token == "--":  # noqa: S105 - the end of options, not a password
            return _halves(options, argv[at:])
        if not token.startswith("-") or token == "-":  # noqa: S105
            # torchrun's parser drops a -- right behind the script; scripts are launched with one there.
            return _halves(options, (token, *argv[at + (argv[at : at + 1] == ["--"]) :]))
        flag, typed, attached = _resolve(token)
        if not flag.metavar:
            if attached is not None:
                raise UsageError(f"{typed} takes no value, got {attached!r}; write just {typed}")
            options.append(f"--{flag.name}")
            continue
        if attached is None:
            if at == len(argv) or argv[at] == "--" or _is_flag(argv[at]):
                raise UsageError(f"{typed} needs a value; write {typed} {flag.metavar}")
            attached = argv[at]
            at += 1
        options.append(f"--{flag.name}={attached}")
    return _halves(options, ())


def _halves(options: list[str], rest: Sequence[str]) -> Split:
    return Split(tuple(options), rest[0] if rest else None, tuple(rest[1:]))


def _resolve(token: str) -> tuple[Flag, str, str | None]:
    """Return the flag, the flag as typed, and the value attached to it, if any."""
    if not token.startswith("--"):
        return _resolve_short(token)
    typed, equals, value = token.partition("=")
    return BY_NAME[_full_name(typed)], typed, value if equals else None


def _resolve_short(token: str) -> tuple[Flag, str, str | None]:
    letter, rest = token[1], token[2:]
    flag = BY_SHORT.get(letter)
    if flag is None or (rest and not flag.metavar):
        raise UsageError(f"no such option {token!r}; see remuster --help, and put the script's own options after it")
    return flag, f"-{letter}", rest.removeprefix("=") if rest else None


def _full_name(typed: str) -> str:
    """Return the canonical name that ``--typed`` stands for."""
    name = typed[2:].replace("_", "-")
    if name in BY_NAME:
        return name
    alike = [n for n in BY_NAME if n.startswith(name)]
    found = [n for n in alike if not BY_NAME[n].ours] or alike
    if len(found) == 1:
        return found[0]
    if found:
        raise UsageError(f"{typed} is short for several flags; write one of {_listed(found)}")
    raise UsageError(f"no such option {typed!r}; {_nearest(name)} Put the script's own options after the script")


def _nearest(name: str) -> str:
    import difflib

    close = difflib.get_close_matches(name, list(BY_NAME), n=2)
    return f"did you mean {' or '.join(f'--{n}' for n in close)}?" if close else "see remuster --help."


def _listed(names: list[str]) -> str:
    return ", ".join(f"--{n}" for n in sorted(names))


def _is_flag(token: str) -> bool:
    """Say whether ``token`` is a whole flag rather than a value that happens to begin with a dash."""
    name = token.partition("=")[0]
    if name.startswith("--"):
        return name[2:].replace("_", "-") in BY_NAME
    return len(name) == 2 and name[0] == "-" and name[1] in BY_SHORT
