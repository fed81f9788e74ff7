"""The agent's way into the job's store, whichever it is: in this process, a service, or an etcd of the job's own.

Called once by ``agent/main.py`` before anything of the node is prepared, so that a start that is refused leaves
nothing. gRPC is imported only when the store is an etcd.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from ..rendezvous.errors import PermanentError, StoreError
from ..rendezvous.keys import Keys
from ..rendezvous.memory import MemoryStore
from ..rendezvous.store import Store
from .lease import Timing
from .seat import Seat
from .spec import Backend, Embedded, JobSpec, StoreAccess

if TYPE_CHECKING:
    from pathlib import Path

    from ..rendezvous.etcd import EtcdStore
    from .minder_link import Door

CALL_S = 2.0  # for one try at etcd; less under a short lease, or one silent member would cost all of it

Say = Callable[[str], None]


class Met(NamedTuple):
    """The store, the job as it is known now that the store has been reached, and what keeps a store of its own up."""

    spec: JobSpec
    store: Store
    door: Door | None = None  # ``leave`` it after the last write

    async def part(self) -> None:
        """Let go of the store."""
        await self.store.close()
        if self.door is not None:
            self.door.leave()


async def meet(spec: JobSpec, seat: Seat, say: Say) -> Met:
    """Reach the store; StoreError with a sentence when it cannot be, AddressError when its name leads nowhere."""
    if spec.backend is Backend.MEMORY:
        return Met(spec, MemoryStore(never_expire=True))
    set_grpc_up()
    if spec.embedded is not None:
        return await _own(spec, spec.embedded, seat, say)
    from ..rendezvous.etcd_contact import first_contact

    store = _store(spec)
    try:
        contact = await first_contact(store, Keys(spec.run_id, spec.prefix).job, spec.connect_timeout_s, say)
    except StoreError:
        await store.close()
        raise
    if contact.advice is not None:
        say(contact.advice)
    return Met(spec, store)


def set_grpc_up() -> None:
    """Set what gRPC's core reads from the environment, once, when it is imported; ranks do not see it."""
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # it prints reconnections to stderr
    os.environ.setdefault("GRPC_DNS_RESOLVER", "native")  # its own one asks name servers for what /etc/hosts has


async def _own(spec: JobSpec, embedded: Embedded, seat: Seat, say: Say) -> Met:
    """Start or find the etcd of the job's own on this machine, or wait for the one on the endpoint's machine."""
    from ..rendezvous.embedded import SEAL, EmbeddedError, host_port
    from .minder_greeting import greet, refusal
    from .minder_link import open_store
    from .own_addresses import elsewhere, own_addresses

    addresses = own_addresses(embedded)
    if addresses:
        opened = await open_store(spec, addresses, seat, say)
        spec = replace(spec, run_id=opened.run_id, endpoints=(opened.endpoint,))
        store = _store(spec)
        try:
            await store.range(spec.prefix + SEAL)  # the first look: is our token the store's?
        except StoreError as error:
            await store.close()
            opened.door.leave()
            raise EmbeddedError(refusal(host_port(*opened.endpoint), str(error))) from error
        return Met(spec, store, opened.door)
    host, doubt = elsewhere(embedded)
    if doubt:
        say(doubt)  # not the end: a name can come with its machine
    spec = replace(spec, endpoints=((host, embedded.port),))
    store = _store(spec)
    where = host_port(host, embedded.port)
    try:
        run_id = await greet(store, spec.prefix, where, spec.run_id, spec.join_timeout_s, say)
    except StoreError:
        await store.close()
        raise
    return Met(replace(spec, run_id=run_id), store)


def _store(spec: JobSpec) -> EtcdStore:
    token_file = None if spec.embedded is None else spec.embedded.token_file
    call_s = min(CALL_S, Timing(spec.lease_ttl_s, spec.kill_bound_s).try_s)
    return etcd_store(spec.store, token_file, spec.endpoints, call_s)


def etcd_store(
    access: StoreAccess, token_file: Path | None, endpoints: tuple[tuple[str, int], ...], call_s: float
) -> EtcdStore:
    """Return a store that is reached with the first call to it; PermanentError when a secret's file cannot be read."""
    from ..rendezvous.etcd import EtcdStore
    from ..rendezvous.etcd_config import Endpoint, EtcdConfig, Tls

    tls = None
    if access.cacert or access.cert:
        tls = Tls(*(None if path is None else str(path) for path in (access.cacert, access.cert, access.key)))
    user, password = _login(access, token_file)
    first = int.from_bytes(os.urandom(2), "big") % len(endpoints)  # or all agents of a job would sit on one member
    members = tuple(Endpoint(host, port) for host, port in endpoints[first:] + endpoints[:first])
    return EtcdStore(EtcdConfig(members, tls, user, password, call_s))


def _login(access: StoreAccess, token_file: Path | None) -> tuple[str, str]:
    """Return user name and password, both empty where none are asked for."""
    if token_file is not None:
        from ..rendezvous.embedded import USER, store_password
        from .minder_token import read_token

        return USER, store_password(read_token(str(token_file)))
    path = access.password_file
    try:
        return access.username, "" if path is None else path.read_text(encoding="utf-8").strip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        raise PermanentError(f"the password file {path} cannot be read any more: {error}") from error
