"""What a machine, a user or a site says once for all jobs: the etcd service, and what is to be done about sick hosts.

Said by REMUSTER_ENDPOINT and configuration files. Every source is a layer of settings, each with where it stands, for a
sentence about it; the strongest layer comes first. A file is TOML with a table ``[etcd]``, and one ``[site]``, which
`site` reads. Called by `meeting`, and only when nodes may have to meet: a job of one node reads no file.
"""

from __future__ import annotations

import errno
import importlib
import os
import stat
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import cast

from . import files, site, values
from .errors import UsageError
from .given import Setting

SYSTEM = Path("/etc/remuster.toml")
FILE = "remuster.toml"  # of a user's, in the folder of configuration files
LARGEST = 1 << 20  # bytes; a table of ten keys has far fewer

_PATHS = ("cacert", "cert", "key", "password_file", "binary")
_KEYS = ("endpoints", "prefix", *_PATHS[:3], "username", "password_file", "binary")
_FREE = ("binary", site.DRAIN)  # they speak of no service
_TABLES = ("etcd", "site")
_PARTNER = {"cert": "key", "key": "cert", "username": "password_file", "password_file": "username"}


Layer = Mapping[str, Setting]


def merged(layers: Iterable[Layer]) -> dict[str, Setting]:
    """Return each key from the strongest layer that has it.

    Who names other endpoints speaks of another service, so a weaker layer that does counts no more: nobody's password
    goes to a server that it was not meant for. A certificate and its key, a name and its password stay together.
    """
    found: dict[str, Setting] = {}
    for layer in layers:
        other = "endpoints" in found and "endpoints" in layer and not _meet(found["endpoints"], layer["endpoints"])
        found |= {
            key: setting
            for key, setting in layer.items()
            if key not in found and _PARTNER.get(key) not in found and (not other or key in _FREE)
        }
    return found


def _meet(one: Setting, other: Setting) -> bool:
    return not set(values.endpoints(one.origin, one.text)).isdisjoint(values.endpoints(other.origin, other.text))


def from_files(asked: Setting | None, config_home: str, system: Path = SYSTEM) -> list[Layer]:
    """Return what the files say; ``asked`` is the one that was named and so must be there."""
    layers: list[Layer] = []
    if asked is not None:
        path = files.readable(asked.origin, asked.text)
        layers.append(_table(path, _read(path)))
    usual = (*([Path(config_home, FILE)] if config_home else []), system)
    # A folder that may not be searched counts as one without a file.
    return layers + [_table(path, _read(path)) for path in usual if os.path.exists(path)]


def _read(path: Path) -> bytes:
    try:
        # A pipe that nobody writes to must not hold the start up.
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise UsageError(f"{path} is no file; put a table [etcd] into one, or remove it")
            if status.st_mode & stat.S_IWOTH:
                raise UsageError(f"{path} may be written to by others; run chmod o-w {str(path)!r}")
            if status.st_size > LARGEST:
                raise UsageError(f"{path} has {status.st_size} bytes; a table [etcd] is all that may stand in it")
            return file.read(LARGEST)
    except OSError as error:
        why = "permission denied" if error.errno == errno.EACCES else error.strerror or str(error)
        raise UsageError(f"{path} cannot be read: {why}; mend or remove it") from None


def _table(path: Path, content: bytes) -> Layer:
    document = _parsed(path, content)
    for name, value in document.items():
        if name in _TABLES and not isinstance(value, dict):
            raise UsageError(f"{path}: {name} is no table; write [{name}], and its keys below it")
        if not isinstance(value, dict):
            raise UsageError(f"{path}: {name!r} stands outside of a table; write it below [etcd]")
        if name not in _TABLES:
            raise UsageError(f"{path}: the table {name!r} is not known; those there are are [etcd] and [site]")
    etcd, of_site = (cast("dict[str, object]", document.get(name, {})) for name in _TABLES)
    layer = {key: _setting(path, key, value) for key, value in etcd.items()}
    return layer | {key: site.checked(path, key, value) for key, value in of_site.items()}


def _parsed(path: Path, content: bytes) -> dict[str, object]:
    toml = importlib.import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
    loads = cast("Callable[[str], dict[str, object]]", toml.loads)
    try:
        return loads(content.decode())
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not UTF-8 at byte {error.start}; write it anew") from None
    except (ValueError, RecursionError) as error:  # both modules' own error is a ValueError; it tells line and column
        said = str(error).splitlines()[0] if str(error) else "it nests too deeply"
        raise UsageError(f"{path} is not TOML: {said}; mend it") from None


def _setting(path: Path, key: str, value: object) -> Setting:
    """Check one key. No value is ever shown: it may be a password in the wrong place."""
    origin = f"{key} in {path}"
    if key == "password":
        raise UsageError(f"{path} holds a password; write it into a file of mode 600 and give password_file = its path")
    if key not in _KEYS:
        raise UsageError(f"{path}: {key!r} in [etcd] is not known; the keys are {', '.join(_KEYS)}")
    if key == "endpoints":
        listed = cast("list[object]", value) if isinstance(value, list) else [value]
        if not all(isinstance(part, str) for part in listed):
            raise UsageError(f'{origin} is no list of texts; write ["HOST:PORT", ...]')
        text = ",".join(cast("list[str]", listed))
        if not values.endpoints(origin, text):
            raise UsageError(f'{origin} names no address; write ["HOST:PORT", ...], or leave it out')
        return Setting(text, origin)
    if not isinstance(value, str):
        raise UsageError(f"{origin} is no text; put it in quotes")
    return Setting(os.path.join(path.parent, value) if key in _PATHS else value, origin)
