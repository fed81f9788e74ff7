"""``remuster completion bash|zsh``: prints what makes a shell complete the command's flags, from their table.

A distribution's package, or a person once, puts it where the shell looks. Up to the script it completes flags, and
values that are words or paths; from the script on, files. Called by `commands`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence

from .commands import COMMANDS
from .flags import FLAGS, Flag

USAGE = 2
PATHS = ("FILE", "DIR")
HELP = """Usage: remuster completion bash|zsh

  Print what makes the shell complete remuster's flags. Once, for this user:

  remuster completion bash > ~/.local/share/bash-completion/completions/remuster
  remuster completion zsh > "${fpath[1]}/_remuster"
"""

# COMP_WORDS is split at = and : as well; the line itself says more. Readline asks for what stands behind the last =.
_BASH = """\
# bash completion for remuster, made by: remuster completion bash
_remuster() {
    local line=${COMP_LINE:0:COMP_POINT} cur="" flag="" words word
    COMPREPLY=()
    read -ra words <<< "$line"
    [[ $line == *[[:space:]] ]] || { cur=${words[-1]}; unset 'words[-1]'; }
    for word in "${words[@]:1}"; do
        if [[ $flag ]]; then flag=""; continue; fi
        case ${word//_/-} in
            --) compopt -o default; return ;;
            @VALUED@) flag=${word//_/-} ;;
            -*) ;;
            *) compopt -o default; return ;;
        esac
    done
    [[ $flag || $cur != --*=* ]] || { flag=${cur%%=*}; flag=${flag//_/-}; cur=${cur#*=}; }
    case $flag in
        "") ;;
@VALUES@
        *) return ;;
    esac
    if [[ $cur == -* ]]; then
        COMPREPLY=($(compgen -W "@FLAGS@" -- "$cur"))
    else
        compopt -o default
        ((${#words[@]} > 1)) || COMPREPLY=($(compgen -W "@COMMANDS@" -- "$cur") $(compgen -f -- "$cur"))
    fi
}
complete -F _remuster remuster
"""

_ZSH = """\
#compdef remuster
# zsh completion for remuster, made by: remuster completion zsh
_arguments -S \\
@FLAGS@
    '(-)1:script:_files' \\
    '*::argument:_files'
"""


def main(argv: Sequence[str], environ: Mapping[str, str]) -> int:
    """Run the sub-command; return its exit code."""
    if list(argv) in (["-h"], ["--help"]):
        print(HELP, end="")
        return 0
    if len(argv) != 1 or argv[0] not in SHELLS:
        print(
            f"remuster completion: say for which shell; write remuster completion {'|'.join(SHELLS)}", file=sys.stderr
        )
        return USAGE
    print(SHELLS[argv[0]](), end="")
    return 0


def bash() -> str:
    """Return the function for bash."""
    valued = [flag for flag in FLAGS if flag.metavar]
    lines: list[str] = []
    for flag in valued:
        if words(flag):
            lines.append(
                f'        --{flag.name}) COMPREPLY=($(compgen -W "{" ".join(words(flag))}" -- "$cur")); return ;;'
            )
        elif flag.metavar in PATHS:
            lines.append(f"        --{flag.name}) compopt -o default; return ;;")
    return _filled(
        _BASH,
        VALUED="|".join(f"--{flag.name}" for flag in valued),
        VALUES="\n".join(lines),
        FLAGS=" ".join(f"--{flag.name}" for flag in FLAGS),
        COMMANDS=" ".join(COMMANDS),
    )


def zsh() -> str:
    """Return the function for zsh."""
    lines: list[str] = []
    for flag in FLAGS:
        about = "".join(f"\\{c}" if c in "[]:\\" else c for c in flag.help.split(". ")[0].rstrip(".")).replace("'", "’")
        value = flag.metavar.replace(":", "\\:")
        action = "_files" if flag.metavar in PATHS else f"({' '.join(words(flag))})" if words(flag) else " "
        names = (f"-{flag.short}", f"--{flag.name}") if flag.short else (f"--{flag.name}",)
        equals, rest = ("=", f":{value}:{action}") if flag.metavar else ("", "")
        lines += [f"    '{name}{equals}[{about}]{rest}' \\" for name in names]
    return _filled(_ZSH, FLAGS="\n".join(lines))


def words(flag: Flag) -> list[str]:
    """Return the values of a flag that are words of its own: now in restart|now, auto in N|auto."""
    return [part for part in flag.metavar.split("|") if part.islower()]


def _filled(text: str, **parts: str) -> str:
    for name, part in parts.items():
        text = text.replace(f"@{name}@", part)
    return text


SHELLS: dict[str, Callable[[], str]] = {"bash": bash, "zsh": zsh}
