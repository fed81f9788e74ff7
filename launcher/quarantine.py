"""``remuster quarantine list|add|lift``: the hosts that no round may use, for all jobs that share an etcd service.

Reaches the service as a job does: --rdzv-endpoint, REMUSTER_ENDPOINT or a configuration file. Called by `commands`.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence

import click

from ..agent.meeting import etcd_store, set_grpc_up
from ..rendezvous import quarantine
from ..rendezvous.errors import BadRecord, StoreError
from ..rendezvous.keys import Keys
from ..rendezvous.quarantine import HOSTS, NEVER_ENDS, QUARANTINE, Bar
from ..rendezvous.store import KeyValue, Store, prefix_end
from . import files, meeting, values
from .build import store_access
from .environment import Environment, read
from .errors import UsageError
from .given import Given, Setting

CALL_S = 2.0
UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
FAILED, USAGE = 1, 2
_PET = ("PET_RDZV_ENDPOINT", "PET_RDZV_CONF", "PET_CONFIG")  # the others are a job's

Work = Callable[[Store, str], Awaitable[int]]  # the store and the root of all keys -> exit code


class _Refused(Exception):
    """What was asked for cannot be done; the message says why."""


def main(argv: Sequence[str], environ: Mapping[str, str]) -> int:
    """Run the sub-command; return its exit code."""
    try:
        env = read({name: value for name, value in environ.items() if not name.startswith("PET_") or name in _PET})
        return _group.main(list(argv), prog_name="remuster quarantine", standalone_mode=False, obj=env) or 0
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message())
        return USAGE
    except click.ClickException as error:
        print(
            f"remuster quarantine: {error.format_message().rstrip('.')}; see remuster quarantine --help",
            file=sys.stderr,
        )
        return USAGE
    except UsageError as error:
        print(f"remuster quarantine: {error}", file=sys.stderr)
        return USAGE
    except (StoreError, BadRecord, _Refused) as error:
        print(f"remuster quarantine: {error}", file=sys.stderr)
        return FAILED


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def _group() -> None:
    """Hosts that no round may use for a while. The record is shared by all jobs that meet at one etcd service."""


def _reaching(command: Callable[..., int]) -> Callable[..., int]:
    """Add the options that say where the service is."""
    for option in (
        click.option("--config", metavar="FILE", help="A file that names the etcd service, as for a job."),
        click.option("--rdzv-conf", "--rdzv_conf", metavar="KEY=VALUE,...", help="How it is entered, as for a job."),
        click.option(
            "--rdzv-endpoint",
            "--rdzv_endpoint",
            metavar="HOST:PORT,...",
            help="Default: REMUSTER_ENDPOINT, else the files, else localhost:2379.",
        ),
    ):
        command = option(command)
    return command


@_group.command("list")
@click.option("--json", "as_json", is_flag=True, help="One JSON object for each host, a line each.")
@_reaching
@click.pass_obj
def _list(env: Environment, /, as_json: bool, **where: str | None) -> int:
    """Show the hosts that are in quarantine, and what is held against others."""

    async def work(store: Store, root: str) -> int:
        now = int(time.time())
        bars = [bar for bar, _ in (await _records(store, root)).values()]
        shown = [bar for bar in bars if bar.offences or bar.holds(now)]
        for bar in shown:
            click.echo(json.dumps(_plain(bar, now)) if as_json else _line(bar, now))
        if not shown:
            _say("no host is in quarantine, and nothing is held against any")
        return 0

    return _with_store(env, where, work)


@_group.command("add")
@click.argument("host")
@click.option("--reason", required=True, help="Why; every waiting node shows it.")
@click.option("--for", "term", metavar="TIME", help="30m, 12h or 7d. Default: until it is lifted.")
@_reaching
@click.pass_obj
def _add(env: Environment, /, host: str, reason: str, term: str | None, **where: str | None) -> int:
    """Keep HOST out of every round that forms from now on. What runs on it goes on until its round ends."""
    if not reason.strip() or not reason.isprintable():
        raise UsageError("--reason must be a line of text; nodes show it")
    seconds = None if term is None else _seconds(term)

    async def work(store: Store, root: str) -> int:
        now = int(time.time())
        until = NEVER_ENDS if seconds is None else now + seconds
        return await _change(store, root, host, lambda name, old: quarantine.added(name, reason, until, old, now))

    return _with_store(env, where, work)


@_group.command("lift")
@click.argument("host")
@_reaching
@click.pass_obj
def _lift(env: Environment, /, host: str, **where: str | None) -> int:
    """Let HOST in again, with a clean record."""

    async def work(store: Store, root: str) -> int:
        now = int(time.time())

        def change(name: str, old: Bar | None) -> Bar:
            if old is None or not (old.offences or old.holds(now)):
                raise _Refused(f"{name} is not in quarantine, and nothing is held against it")
            return quarantine.lifted(old, now)

        return await _change(store, root, host, change)

    return _with_store(env, where, work)


async def _change(store: Store, root: str, host: str, change: Callable[[str, Bar | None], Bar]) -> int:
    for _ in range(3):  # an agent may write the record at the same moment
        records = await _records(store, root)
        found = await store.range(root + HOSTS, prefix_end(root + HOSTS))
        known = {kv.key.rpartition("/")[2]: _address(kv) for kv in found.items}
        name = _named(host, dict.fromkeys(records, "") | known)
        if name not in known and name not in records:
            _say(f"no agent has been on {name} yet")
        old, mod = records.get(name, (None, 0))
        bar = change(name, old)
        if (await store.txn(quarantine.write(root, bar, mod))).succeeded:
            click.echo(_line(bar, int(time.time())))
            return 0
    print(f"remuster quarantine: the record of {host} is being changed by others; try again", file=sys.stderr)
    return FAILED


def _address(kv: KeyValue) -> str:
    try:
        return quarantine.decode_known(kv).address
    except BadRecord:
        return ""


def _named(host: str, known: Mapping[str, str]) -> str:
    """Return the full name of a host that an operator names by its host name or address, or in full."""
    full = {name for name, address in known.items() if host in (name, name.rpartition("~")[0], address)}
    if len(full) == 1:
        return full.pop()
    if full:
        raise UsageError(f"{host} may be {' or '.join(sorted(full))}; give one of these")
    if re.fullmatch(r"[A-Za-z0-9_.-]{1,64}~[0-9a-f]{0,12}", host):
        return host
    names = ", ".join(sorted(known)[:10]) or "none"
    raise UsageError(
        f"no agent has been on {host!r} yet, known are: {names}; one that never was is named NAME~ and the first 12 "
        "letters of its /etc/machine-id"
    )


async def _records(store: Store, root: str) -> dict[str, tuple[Bar, int]]:
    """Return each record of the quarantine with its revision."""
    bars, odd = quarantine.bars_of((await store.range(root + QUARANTINE, prefix_end(root + QUARANTINE))).items)
    for words in odd:
        _say(words)
    return bars


def _line(bar: Bar, now: int) -> str:
    if not bar.holds(now):
        state = f"free; {bar.offences} offence{'s' * (bar.offences != 1)}"
    else:
        state = "until lifted" if bar.until >= NEVER_ENDS else f"until {_clock(bar.until)}"
    return f"{bar.host}  {state}  since {_clock(bar.since)}  by {bar.by}: {bar.reason}"


def _plain(bar: Bar, now: int) -> dict[str, object]:
    return {**bar._asdict(), "until": None if bar.until >= NEVER_ENDS else bar.until, "barred": bar.holds(now)}


def _clock(at: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(at))


def _seconds(text: str) -> int:
    found = re.fullmatch(r"([0-9]{1,6})([smhd])", text)
    seconds = int(found[1]) * UNITS[found[2]] if found else 0
    if not seconds:
        raise UsageError(f"--for is {text!r}; give a time such as 30m, 12h or 7d")
    return seconds


def _with_store(env: Environment, where: Mapping[str, str | None], work: Work) -> int:
    """Reach the service that a job would with these settings, and let ``work`` use it."""
    line: dict[str, str | bool] = {dest: text for dest, text in where.items() if text is not None}
    line |= {"rdzv_backend": "etcd", "nnodes": "1"}
    given = Given(line, env.defaults)
    conf = values.conf(given.origin("rdzv-conf"), given.text("rdzv-conf") or "")
    notes: list[str] = []
    found = meeting.choose(meeting.Asked(given, conf, env, 1, 1, notes))
    token = conf.values.get("token_file")
    token_file = None if token is None else files.secret_word("token_file in --rdzv-conf", token)
    for note in (*notes, *(f"{key} in --rdzv-conf means nothing here" for key in conf.ignored)):
        _say(note)
    access = store_access(found.access, "--rdzv-conf", conf.values.get("protocol"))
    patience_s = values.seconds("connect_timeout in --rdzv-conf", conf.values.get("connect_timeout", "10"))
    prefix = found.access.get("prefix", Setting("/remuster/", ""))
    root = values.prefix(prefix.origin, prefix.text)

    set_grpc_up()

    async def reach() -> int:
        from ..rendezvous.etcd_contact import first_contact

        store = etcd_store(access, token_file, found.endpoints, CALL_S)
        try:
            await first_contact(store, Keys("-", root).job, patience_s, _say)
            return await work(store, root)
        finally:
            await store.close()

    return asyncio.run(reach())


def _say(text: str) -> None:
    print(f"remuster quarantine: {text}", file=sys.stderr)
