"""Where the nodes meet: what each rendezvous backend of a command line means here (docs/decisions/0005).

etcd is a service that somebody runs. c10d and static are torchrun's ways without one: an etcd of the job's own,
`Embedded`, stands where torchrun's store would. A single node needs neither. Called by `build`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ..agent.spec import Backend, Embedded
from . import files, site, values
from .environment import Environment
from .errors import UsageError
from .given import Given, Setting

if TYPE_CHECKING:
    from .gathering import Gathering

PLACES = ("node-rank", "master-addr", "master-port")  # static's own
LISTS = ("hosts", "hostfile")  # the job's nodes, one of the two ways
_SERVICE = ("cacert", "cert", "key", "username", "password_file")  # keys for an etcd service alone
_OWN = ("token_file", "is_host", "etcd_port")  # keys for an etcd of the job's own alone
_ETCD = ("etcd", "etcd-v2", "etcd-v3")
_PLAINLY_HERE = r"localhost|::1|127(\.[0-9]+){3}"  # usual, and told without a look at interfaces


class Asked(NamedTuple):
    """What a command line says that bears on the meeting; ``notes`` grows."""

    given: Given
    conf: values.Conf
    env: Environment
    least: int
    most: int
    notes: list[str]
    step: Embedded | None = None  # Slurm tells where the nodes can meet, and nothing else does
    around: Gathering | None = None  # what those who started the command say of its nodes

    def setting(self, key: str) -> Setting | None:
        """Return one key of --rdzv-conf."""
        text = self.conf.values.get(key)
        return None if text is None else Setting(text, f"{key} in {self.given.origin('rdzv-conf')}")

    def settings(self, keys: Sequence[str]) -> dict[str, Setting]:
        """Return those of ``keys`` that --rdzv-conf has."""
        found = ((key, self.setting(key)) for key in keys)
        return {key: setting for key, setting in found if setting is not None}

    def say_unused(self, keys: Sequence[str], why: str) -> None:
        """Name the keys of --rdzv-conf that were given in vain."""
        idle = list(self.settings(keys))
        if idle:
            self.notes.append(f"{self.given.origin('rdzv-conf')}: {', '.join(idle)} not used: {why}")

    def say_ignored(self, flags: Sequence[str], why: str) -> None:
        """Name the flags that were given in vain."""
        idle = [self.given.origin(name) for name in flags if self.given.text(name) is not None]
        if idle:
            self.notes.append(f"{', '.join(idle)} not used: {why}")


class _Own(NamedTuple):
    """What --rdzv-conf says of an etcd of the job's own; checked even where there will be none."""

    token: Path | None
    here: bool | None
    port: int | None


class Meeting(NamedTuple):
    """The store of a job. ``access`` says how a service is entered, by key."""

    backend: Backend
    least: int
    most: int
    access: Mapping[str, Setting]
    endpoints: tuple[tuple[str, int], ...] = ()
    embedded: Embedded | None = None
    place: int | None = None
    master: tuple[str, int] | None = None
    drain: Setting | None = None  # the site's command for hosts in quarantine


def choose(asked: Asked) -> Meeting:
    """Return where the nodes of this command line meet; UsageError where they cannot."""
    given, own = asked.given, _own(asked)
    if asked.step is not None:
        return _in_step(asked, own, asked.step)
    name, address = given.text("rdzv-backend"), given.text("rdzv-endpoint")
    if given.on("standalone"):
        if asked.least > 1:
            raise UsageError(
                f"--standalone is one node and {given.origin('nnodes')} asks for {asked.least}; leave one of them out"
            )
        asked.say_ignored(("rdzv-backend", "rdzv-endpoint", *PLACES), "--standalone is one node without a server")
        return _alone(asked)
    if name not in (None, "static", "c10d", *_ETCD):
        raise UsageError(
            f"{given.origin('rdzv-backend')} is {name!r}, which is not registered; give c10d, static or etcd"
        )
    if asked.around is not None and name in (None, "c10d") and address is None:
        return _gathered(asked, asked.around, own)
    if name in (None, "static") and asked.most == 1:
        return _one_static_node(asked)
    if name == "c10d":
        return _c10d(asked, own)
    configured = _configured(asked)
    if name is not None and name in _ETCD:
        if name != "etcd":
            asked.notes.append(f"rendezvous backend {name} means etcd here: etcd's v3 interface")
        asked.say_ignored(PLACES, "they are static's; the nodes are numbered when they meet")
        return _service(asked, configured)
    if (
        name is None
        and address is None
        and all(given.text(flag) is None for flag in PLACES)
        and "endpoints" in configured
    ):
        return _service(asked, configured)
    return _static(asked, own, configured)


def _in_step(asked: Asked, own: _Own, step: Embedded) -> Meeting:
    """Meet at the service that a configuration names, else at an etcd of the job's own on the step's first node."""
    configured = _configured(asked)
    if "endpoints" in configured:
        return _service(asked, configured)
    asked.say_unused(("is_host",), "Slurm tells which node keeps the store")
    port = step.port if own.port is None else own.port
    return _embedded(asked, own._replace(here=step.here), configured, step.host, port, step.address)


def _own(asked: Asked) -> _Own:
    token, here, port = (asked.setting(key) for key in _OWN)
    return _Own(
        None if token is None else files.secret_word(token.origin, token.text),
        None if here is None else values.switch(here.origin, here.text),
        None if port is None else values.port(port.origin, port.text),
    )


def _alone(asked: Asked, master: tuple[str, int] | None = None) -> Meeting:
    asked.say_unused(_OWN, "one node needs no server")
    if asked.given.text("config") is not None:
        _configured(asked)  # a file that was named is checked, needed or not
    return Meeting(Backend.MEMORY, asked.least, asked.least, asked.settings(("prefix", *_SERVICE)), master=master)


def _configured(asked: Asked) -> dict[str, Setting]:
    """Return what the command line, REMUSTER_ENDPOINT and the configuration files say of an etcd service."""
    from .config import from_files, merged

    given = asked.given
    name, address, file, binary = (given.text(n) for n in ("rdzv-backend", "rdzv-endpoint", "config", "etcd-binary"))
    line = asked.settings(("prefix", *_SERVICE))
    if binary is not None:
        line["binary"] = Setting(binary, given.origin("etcd-binary"))
    if address is not None and name in _ETCD:
        line["endpoints"] = Setting(address, given.origin("rdzv-endpoint"))
    variable = {"endpoints": Setting(asked.env.etcd_endpoint, "REMUSTER_ENDPOINT")} if asked.env.etcd_endpoint else {}
    named = None if file is None else Setting(file, given.origin("config"))
    return merged([line, variable, *from_files(named, asked.env.config_home)])


def _service(asked: Asked, configured: Mapping[str, Setting]) -> Meeting:
    asked.say_unused(_OWN, "they are for the etcd that c10d and static start")
    where = configured.get("endpoints", Setting("localhost", "--rdzv-endpoint"))
    found = values.endpoints(where.origin, where.text)
    if not found:
        raise UsageError(f"{where.origin} is {where.text!r}; write HOST:PORT, several with commas between")
    access = {key: configured[key] for key in ("prefix", *_SERVICE) if key in configured}
    return Meeting(Backend.ETCD, asked.least, asked.most, access, found, drain=configured.get(site.DRAIN))


def _c10d(asked: Asked, own: _Own) -> Meeting:
    given, origin = asked.given, asked.given.origin("rdzv-endpoint")
    kind = asked.setting("store_type")
    if kind is not None and kind.text.lower() != "tcp":
        raise UsageError(
            f"{kind.origin} is {kind.text!r}, and nodes meet over the network alone here; leave it out and give "
            f"--rdzv-endpoint HOST:PORT, the address of one of them"
        )
    address = given.text("rdzv-endpoint") or ""
    host, port = _one_address(origin, address, values.C10D_PORT) if address.strip() else ("localhost", values.C10D_PORT)
    asked.say_ignored(PLACES, "they are static's; the nodes are numbered when they meet")
    if asked.most == 1 and (port == 0 or _serves_itself(host, own.here)):
        return _alone(asked)
    if port == 0:
        raise UsageError(f"{origin} is {address!r}, and no other node finds port 0; give a port, the same on all nodes")
    if not address.strip():
        asked.notes.append(_only_here("--rdzv-endpoint", host, port))
    asked.say_unused(("etcd_port",), "it is static's; c10d has its port in --rdzv-endpoint")
    return _embedded(asked, own, _configured(asked), host, port)


def _gathered(asked: Asked, around: Gathering, own: _Own) -> Meeting:
    """Meet at the service that is configured, else as c10d does, at the first of the nodes."""
    if asked.most == 1:
        return _alone(asked)
    configured = _configured(asked)
    if "endpoints" in configured and asked.given.text("rdzv-backend") is None:
        return _service(asked, configured)
    if around.trouble:
        raise UsageError(around.trouble)
    port = around.port if own.port is None else own.port
    alone = "" if around.listed else "; --nnodes 1 is this one alone"
    asked.notes.append(f"{around.origin}: {asked.most} of {around.nodes} nodes meet at {around.host}:{port}{alone}")
    return _embedded(
        asked, own if own.here is not None else own._replace(here=around.here), configured, around.host, port
    )


def _serves_itself(host: str, here: bool | None) -> bool:
    """Say whether the one node would host the store: then nobody else can join, who would look for a server there."""
    if here is not None or re.fullmatch(_PLAINLY_HERE, host):
        return here is not False
    from ..agent.own_addresses import own_addresses
    from ..agent.ports import AddressError

    try:
        return bool(own_addresses(Embedded(host, values.C10D_PORT)))
    except AddressError:
        return False  # the agent will look for it, and say what is wrong


def _one_static_node(asked: Asked) -> Meeting:
    """torchrun's silent rule is kept: one node and no port means no server, and a free port in every round."""
    given = asked.given
    if not given.text("rdzv-endpoint") and given.text("master-port") is None:
        asked.say_ignored(("node-rank", "master-addr"), "one node without --master-port finds a free port by itself")
        return _alone(asked)
    _node_rank(asked)
    host, port = _master(asked, 0)
    return _alone(asked, (host, port) if port else None)


def _static(asked: Asked, own: _Own, configured: Mapping[str, Setting]) -> Meeting:
    given = asked.given
    host, port = _master(asked, 1)
    place = _node_rank(asked)
    if asked.least < asked.most:
        asked.notes.append(f"static waits for all of {asked.most} nodes, as in torchrun; c10d and etcd know a minimum")
    if not given.text("rdzv-endpoint") and given.text("master-addr") is None:
        asked.notes.append(_only_here("--master-addr", host, port))
    etcd_port = port + 1 if own.port is None else own.port
    if etcd_port > 65535:
        origin = given.origin("rdzv-endpoint" if given.text("rdzv-endpoint") else "master-port")
        raise UsageError(f"{origin} is {port}, and etcd's is the next one; give another, or --rdzv-conf etcd_port=")
    if etcd_port == port:
        raise UsageError(f"etcd_port is the master port, {port}, where rank 0 listens; give another, or leave it out")
    if own.here is None and asked.env.job_index:  # a pod's name is known a while after the pod is there, to itself too
        own = own._replace(here=place == 0)
    found = _embedded(asked, own, configured, host, etcd_port)
    return found._replace(least=asked.most, place=place, master=(host, port))


def _embedded(
    asked: Asked, own: _Own, configured: Mapping[str, Setting], host: str, port: int, address: str = ""
) -> Meeting:
    asked.say_unused(_SERVICE, "they are for an etcd service, and the job's own has token_file")
    binary = configured.get("binary")
    program = None if binary is None else files.program(binary.origin, binary.text)
    embedded = Embedded(host, port, program, own.token, own.here, address)
    access = asked.settings(("prefix", *_SERVICE))
    drain = configured.get(site.DRAIN)
    return Meeting(Backend.ETCD, asked.least, asked.most, access, ((host, port),), embedded, drain=drain)


def _master(asked: Asked, least: int) -> tuple[str, int]:
    """Return where rank 0's store listens: an endpoint takes the place of --master-addr and --master-port."""
    given, address = asked.given, asked.given.text("rdzv-endpoint")
    if address:
        asked.say_ignored(("master-addr", "master-port"), f"{given.origin('rdzv-endpoint')} takes their place")
        return _one_address(given.origin("rdzv-endpoint"), address, None, least)
    host, port = given.text("master-addr"), given.text("master-port")
    return (
        "127.0.0.1" if host is None else values.host(given.origin("master-addr"), host),
        29500 if port is None else values.port(given.origin("master-port"), port, least),
    )


def _node_rank(asked: Asked) -> int:
    origin, text, given = asked.given.origin("node-rank"), asked.given.text("node-rank"), asked.given.origin("nnodes")
    rank = 0 if text is None else values.whole(origin, text, 0)
    last = asked.most - 1
    if rank > last:
        right = f"0 to {last}, another on each node" if last else "0"
        raise UsageError(f"{origin} is {rank}, and {given} asks for {asked.most}; give {right}")
    return rank


def _one_address(origin: str, text: str, port: int | None, least: int = 0) -> tuple[str, int]:
    found = values.endpoints(origin, text, port, least)
    if len(found) != 1:
        raise UsageError(f"{origin} is {text!r}; give the one HOST:PORT where the nodes meet")
    return found[0]


def _only_here(flag: str, host: str, port: int) -> str:
    return f"no {flag}: the nodes meet at {host}:{port}, on this machine alone; give it if there are other machines"
