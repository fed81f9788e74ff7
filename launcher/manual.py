"""``remuster man``: the manual page, from the table of flags and the words of --help.

``remuster man | man -l -`` shows it; a distribution's package keeps it as remuster.1. Called by `commands`.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping, Sequence

from .flags import FLAGS, SHOWN_ONLY, Flag, Group

USAGE = 2
HELP = """Usage: remuster man [-h]

  Print the manual page. To read it: remuster man | man -l -
  To keep it: remuster man > ~/.local/share/man/man1/remuster.1
"""


def main(argv: Sequence[str], environ: Mapping[str, str]) -> int:
    """Run the sub-command; return its exit code."""
    if list(argv) in (["-h"], ["--help"]):
        print(HELP, end="")
        return 0
    if argv:
        print("remuster man: it takes no arguments; write remuster man", file=sys.stderr)
        return USAGE
    from . import help

    version = importlib.import_module(__name__.partition(".")[0]).__version__
    print(page(help.ABOUT, help.EPILOG, version), end="")
    return 0


def page(about: str, epilog: str, version: str) -> str:
    """Return the page as troff's man macros have it. ``epilog`` is click's: \\b begins what is not to be filled."""
    lines = [
        f'.TH REMUSTER 1 "" "remuster {version}"',
        *(".SH NAME", r"remuster \- start, watch and restart the ranks of a training script, in place of torchrun"),
        *(".SH SYNOPSIS", ".B remuster", r"[\fIOPTIONS\fR] \fISCRIPT\fR [\fISCRIPT'S ARGUMENTS\fR]"),
        *(".SH DESCRIPTION", _text(about)),
        ".SH OPTIONS",
    ]
    for group in Group:
        lines.append(f".SS {group.value}")
        for flag in FLAGS:
            if flag.group is group:
                lines += [".TP", _head(flag), _text(flag.help)]
    for block in epilog.split("\n\n"):
        lines += _block(block)
    lines += [".SH SEE ALSO", _text("torchrun(1), srun(1), etcd(1)")]
    return "\n".join(lines) + "\n"


def _head(flag: Flag) -> str:
    short = rf"\fB\-{flag.short}\fR, " if flag.short else ""
    value = rf" \fI{_text(flag.metavar)}\fR" if flag.metavar else ""
    variable = "" if flag.name in SHOWN_ONLY else f"    ({flag.env})"
    return rf"{short}\fB{_text('--' + flag.name)}\fR{value}{variable}"


def _block(block: str) -> list[str]:
    """Return a paragraph, or what stands as it is, below its first words as a heading."""
    if not block.startswith("\b"):
        return [".PP", _text(block)]
    heading, _, rest = block.removeprefix("\b\n").partition(":")
    return [f".SH {heading.upper()}", ".nf", *(_text(line) for line in rest.strip("\n").split("\n")), ".fi"]


def _text(text: str) -> str:
    r"""Return text that troff takes as it is: no escapes, no commands, dashes that can be copied."""
    text = text.replace("\\", r"\e").replace("-", r"\-")
    return "\n".join(rf"\&{line}" if line[:1] in (".", "'") else line for line in text.split("\n"))
