"""What the text of a flag means: pure parsers, one per notation, each refusing with a sentence that names the flag.

``name`` is how the value was given ("--nnodes" or "PET_NNODES"), for the person who has to find it again.
Called by `build`, `meeting` and `config`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from ..agent.spec import RESUME_WORDS
from ..rendezvous.records import MAX_ROLE
from .errors import UsageError

ETCD_PORT = 2379
C10D_PORT = 29400  # torchrun's
_HOST = r"[A-Za-z0-9._-]+"  # compiled when needed: most starts have no address
_IPV6 = r"[0-9A-Fa-f:.]+(%[A-Za-z0-9._-]+)?"

_CONF_NAMES: dict[str, str] = {
    **{
        key: key
        for key in (
            "lease_ttl", "kill_bound", "last_call_timeout", "join_timeout", "launch_id", "prefix",
            "cacert", "cert", "key", "username", "password_file", "protocol",
            "connect_timeout", "resume_timeout", "admit_after", "token_file", "is_host", "etcd_port", "store_type",
        )
    },
    "ca_cert": "cacert",
    "ssl_cert": "cert",
    "ssl_cert_key": "key",
}  # fmt: skip


_PLACE = r"\{([A-Za-z_]+)\}"

_ALWAYS = ("SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT")  # stop the job
_WARNINGS = {"SIGUSR1": 10, "SIGUSR2": 12, "SIGXCPU": 24}  # by Linux's numbers; the keeper passes these on, too
NOTICES = (10, 12)  # SIGUSR1, SIGUSR2: what `sbatch --signal` is asked for, and submitit

_NEVER_HERE = {"password": "password_file", "token": "token_file"}  # and not even in the sentence that refuses them


_TORCHRUN = frozenset({
    "timeout", "read_timeout", "close_timeout", "heartbeat_timeout", "keep_alive_interval", "keep_alive_max_attempt",
    "rank", "world_size",
})  # fmt: skip


class Conf(NamedTuple):
    """What --rdzv-conf says: our keys under their one name, and the keys that are not ours."""

    values: Mapping[str, str]
    ignored: tuple[str, ...] = ()


def whole(name: str, text: str, least: int, most: int | None = None) -> int:
    """Return a whole number, at least ``least``, at most ``most``."""
    try:
        number = int(text)
    except ValueError:
        raise UsageError(f"{name} is {text!r}, which is no whole number; give one, {least} or more") from None
    if number < least:
        raise UsageError(f"{name} is {number}; give {least} or more")
    if most is not None and number > most:
        raise UsageError(f"{name} is {number}; give {least} to {most}")
    return number


def seconds(name: str, text: str) -> float:
    """Return a time in seconds, 0 or more."""
    try:
        number = float(text)
    except ValueError:
        raise UsageError(f"{name} is {text!r}, which is no number; give seconds") from None
    if not 0 <= number < 1e9:
        raise UsageError(f"{name} is {text!r}; give seconds, 0 or more")
    return number


def hang_timeout(name: str, text: str) -> float:
    """Return seconds, 1 or more, or 0 for ``off``."""
    if text.strip().lower() == "off":
        return 0.0
    number = seconds(name, text)
    if 0 < number < 1:
        raise UsageError(f"{name} is {text!r}; give 1 second or more, or off")
    return number


class StopSignals(NamedTuple):
    """What --signals-to-handle adds to the signals that always stop a job, and the names that mean nothing here."""

    numbers: tuple[int, ...]
    ignored: tuple[str, ...] = ()


def stop_signals(name: str, text: str) -> StopSignals:
    """Return the signals of a list; names that are not known are passed over, as torchrun does."""
    numbers: list[int] = []
    ignored: list[str] = []
    for part in text.split(","):
        word = _signal(part)
        if word in ("SIGKILL", "SIGSTOP"):
            raise UsageError(f"{name} holds {word}, which no program can handle; take it out")
        if word in _WARNINGS:
            numbers.append(_WARNINGS[word])
        elif part.strip() and word not in _ALWAYS:
            ignored.append(part.strip())
    return StopSignals(tuple(dict.fromkeys(numbers)), tuple(dict.fromkeys(ignored)))


def _signal(text: str) -> str:
    """Return a signal's full name, of one that may be written without SIG and in small letters."""
    word = text.strip().upper()
    return word if word.startswith("SIG") else f"SIG{word}"


def notice_signal(name: str, text: str) -> int:
    """Return the number of a signal that may announce a job's end, with or without SIG."""
    word = _signal(text)
    number = _WARNINGS.get(word)
    if number is None:
        why = ", and that stops the job" if word in _ALWAYS else ""
        raise UsageError(f"{name} is {text!r}{why}; give {', '.join(_WARNINGS)}, or none")
    return number


def size(name: str, text: str, least: int) -> int:
    """Return bytes: a whole number, with K, M, G or T for powers of 1024; ``least`` is whole mebibytes."""
    found = re.fullmatch(r"([0-9]{1,15})([kmgt]?)(i?b)?", text.strip().lower())
    number = int(found[1]) << 10 * " kmgt".index(found[2] or " ") if found else 0
    if not least <= number < 1 << 62:
        raise UsageError(f"{name} is {text!r}; give a size such as 500M or 10G, {least >> 20}M or more")
    return number


def nnodes(name: str, text: str) -> tuple[int, int]:
    """Return (min, max) of ``N`` or ``MIN:MAX``."""
    parts = text.split(":")
    if len(parts) > 2 or not all(re.fullmatch(r"\s*[0-9]{1,7}\s*", part) for part in parts):
        raise UsageError(f"{name} is {text!r}, which is not in MIN:MAX format; write a number of nodes, or MIN:MAX")
    least, most = int(parts[0]), int(parts[-1])
    if not 1 <= least <= most:
        raise UsageError(f"{name} is {text!r}; write N >= 1, or MIN:MAX with 1 <= MIN <= MAX")
    return least, most


def switch(name: str, text: str) -> bool:
    """Return a yes or no in torchrun's words for it."""
    word = text.lower()
    if word not in ("1", "true", "t", "yes", "y", "0", "false", "f", "no", "n"):
        raise UsageError(f"{name} is {text!r}; give true or false")
    return word[0] in "1ty"


def port(name: str, text: str, least: int = 1) -> int:
    """Return a port; 0, where ``least`` allows it, means any."""
    return whole(name, text, least, 65535)


def host(name: str, text: str) -> str:
    """Return a name or an address; an IPv6 address may stand in brackets, as torchrun wants it."""
    bare = text.strip()
    if bare.startswith("[") and bare.endswith("]"):
        bare = bare[1:-1]
    if not re.fullmatch(_HOST, bare) and (bare.count(":") < 2 or not re.fullmatch(_IPV6, bare)):
        raise UsageError(f"{name} is {text!r}; give the name or the address of one node")
    return bare


def endpoints(name: str, text: str, port: int | None = ETCD_PORT, least: int = 1) -> tuple[tuple[str, int], ...]:
    """Return (host, port) for each of ``host[:port]`` or ``[v6][:port]``, comma separated; none twice.

    ``port`` is the default, None when it must be given; ``least`` the lowest that is allowed.
    """
    found = [_endpoint(name, part.strip(), port, least) for part in text.split(",") if part.strip()]
    return tuple(dict.fromkeys(found))


def _endpoint(name: str, text: str, default: int | None, least: int) -> tuple[str, int]:
    if "@" in text:  # not shown: what stands before it may be a password
        raise UsageError(f"{name} holds a user or password; write HOST:PORT, and --rdzv-conf username=,password_file=")
    if "://" in text:
        raise UsageError(
            f"{name} holds {text!r}; write HOST:PORT without the scheme (--rdzv-conf cacert=FILE turns TLS on)"
        )
    if text.startswith("["):
        host, bracket, rest = text[1:].partition("]")
        good = bool(bracket) and re.fullmatch(_IPV6, host) is not None
        colon, port = rest[:1], rest[1:]
    else:
        host, colon, port = text.partition(":")
        good = re.fullmatch(_HOST, host) is not None
    if not good or colon not in ("", ":") or ":" in port or (colon and not re.fullmatch("[0-9]{1,5}", port)):
        raise UsageError(f"{name} holds {text!r}; write HOST, HOST:PORT or [IPV6]:PORT")
    if not colon and default is None:
        raise UsageError(f"{name} holds {text!r}, which has no port; write HOST:PORT")
    number = int(port) if colon else default or 0
    if not least <= number <= 65535:
        raise UsageError(f"{name} holds {text!r}; a port is a number from {least} to 65535")
    return host, number


def conf(name: str, text: str) -> Conf:
    """Return the keys of ``k=v,k=v``. Quotes around the whole or a value fall away: torchrun's own tests have them."""
    values: dict[str, str] = {}
    ignored: list[str] = []
    for item in _bare(text).split(","):
        if not item.strip():
            continue
        key, equals, value = _bare(item).partition("=")
        if not equals or not key.strip():
            raise UsageError(f"{name} holds {item.strip()!r}; write KEY=VALUE, several with commas between")
        secret = key.strip(" '\"").lower()
        if secret in _NEVER_HERE:
            raise UsageError(
                f"{name} holds a {secret}, and a command line or variable is read by others; write it into a file of "
                f"mode 600 and give {_NEVER_HERE[secret]}=FILE"
            )
        known = _CONF_NAMES.get(key.strip())
        if known is None:
            _check_typo(name, key.strip())
            ignored.append(key.strip())
        else:
            values[known] = _bare(value)
    return Conf(values, tuple(dict.fromkeys(ignored)))


def _check_typo(name: str, key: str) -> None:
    """Refuse a key that is nearly one of ours: passed over, a misspelt token_file would open the door."""
    if key in _TORCHRUN:
        return
    import difflib

    near = difflib.get_close_matches(key, _CONF_NAMES, n=1, cutoff=0.8)
    if near:
        raise UsageError(f"{name} has {key!r}; did you mean {near[0]}? Correct it, or leave it out")


def _bare(text: str) -> str:
    text = text.strip()
    if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"":
        return text[1:-1]
    return text


def run_id(name: str, text: str) -> str:
    """Return a run id that can name a key and a folder."""
    if not text.isprintable() or "/" in text or text in ("", ".", "..") or len(text.encode("utf-8", "replace")) > 128:
        raise UsageError(f"{name} is {text!r}; give 1 to 128 printable characters without '/'")
    if text.startswith("~"):
        raise UsageError(f"{name} is {text!r}, and keys that begin with ~ belong to no run; give another name")
    return text


def role(name: str, text: str) -> str:
    """Return a role's name, which every node reads in the store and ranks find in their environment."""
    if len(text) > MAX_ROLE or "\0" in text:
        raise UsageError(f"{name} has {len(text)} characters; give at most {MAX_ROLE}")
    return text


def prefix(name: str, text: str) -> str:
    """Return the root of all keys, with a slash at both ends."""
    if not text.isprintable() or not text.strip("/"):
        raise UsageError(f"{name} is {text!r}; give a path such as /remuster/")
    return f"/{text.strip('/')}/"


def template(name: str, text: str) -> tuple[str, ...]:
    """Return the words of an argument template, whose places for a checkpoint are still in their braces."""
    import shlex

    try:
        words = tuple(shlex.split(text))
    except ValueError as error:
        raise UsageError(f"{name} {text!r} is not a command line ({error}); check its quotes") from None
    places = {place for word in words for place in re.findall(_PLACE, word)}
    known = ", ".join("{" + word + "}" for word in RESUME_WORDS)
    if unknown := sorted(places - {*RESUME_WORDS}):
        raise UsageError(f"{name} has {{{unknown[0]}}}; what can be filled in is {known}")
    if not places:
        raise UsageError(f"{name} {text!r} names no checkpoint; write where it goes with one of {known}")
    return words
