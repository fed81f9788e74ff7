"""A small agent for tests of the embedded store: opens it, then obeys JSON lines on one pipe and answers on another.

Executed as a program, with the pipes' numbers and a JSON of options: ``host``, ``port``, ``binary``, ``token_file``,
``run_id``, ``ttl_s``, ``timeout_s``, ``code``.
"""

import json
import os
import sys

from remuster.agent.keeper import run

COMMANDS, EVENTS, OPTIONS = int(sys.argv[1]), int(sys.argv[2]), json.loads(sys.argv[3])


def say(**what):
    os.write(EVENTS, json.dumps(what).encode() + b"\n")


def body(seat):
    import asyncio
    import signal
    from pathlib import Path

    from remuster.agent.guardian_link import GuardianLink, RankOrder
    from remuster.agent.linux import boottime
    from remuster.agent.minder_link import open_store
    from remuster.agent.node_lock import NodeLock
    from remuster.agent.own_addresses import own_addresses
    from remuster.agent.spec import Backend, Embedded, JobSpec
    from remuster.rendezvous.embedded import EmbeddedError

    token = OPTIONS.get("token_file")
    embedded = Embedded(
        OPTIONS.get("host", "127.0.0.1"), OPTIONS["port"], OPTIONS.get("binary"), Path(token) if token else None
    )
    spec = JobSpec(
        1,
        2,
        1,
        OPTIONS.get("run_id", ""),
        "script",
        backend=Backend.ETCD,
        endpoints=((embedded.host, embedded.port),),
        embedded=embedded,
        lease_ttl_s=OPTIONS.get("ttl_s", 1),
        kill_bound_s=0.1,
        join_timeout_s=OPTIONS.get("timeout_s", 30.0),
    )

    async def serve():
        loop = asyncio.get_running_loop()
        loop.slow_callback_duration = 60.0  # -X dev tells of slow steps: on a busy machine they are no finding
        done = asyncio.Event()

        def on_event(event):
            say(event=type(event).__name__, **event._asdict())
            if type(event).__name__ == "KeeperGone":
                done.set()

        link = GuardianLink(seat, on_event)
        for signum in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            loop.add_signal_handler(signum, done.set)
        say(event="Up", keeper=seat.keeper, agent=os.getpid(), guardian=seat.guardian)
        try:
            opened = await open_store(spec, own_addresses(embedded), seat, lambda text: say(event="Say", text=text))
        except EmbeddedError as error:
            say(event="Refused", text=str(error))
            await link.stop()
            return
        opened.door.gone.add_done_callback(lambda gone: gone.cancelled() or say(event="Say", text=gone.result()))
        say(event="Opened", run_id=opened.run_id, endpoint=opened.endpoint, minder=opened.minder)

        async def obey(line):
            match json.loads(line):
                case ["leave"]:
                    opened.door.leave()
                case ["lease", inc, for_s]:
                    link.lease(inc, boottime() + (float("inf") if for_s is None else for_s))
                case ["start", n, inc, orders]:
                    link.start(n, inc, tuple(RankOrder(**order) for order in orders))
                case ["hold", run_id, node]:
                    lock = NodeLock(run_id, node)
                    link.hold(lock.tag, await lock.acquire())
                case ["quit"]:
                    done.set()

        tasks = set()
        rest = b""

        def on_command():
            nonlocal rest
            data = os.read(COMMANDS, 1 << 20)
            if not data:
                loop.remove_reader(COMMANDS)
                done.set()
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                task = loop.create_task(obey(line))
                tasks.add(task)
                task.add_done_callback(lambda t: (tasks.discard(t), t.result()))

        loop.add_reader(COMMANDS, on_command)
        await done.wait()
        await link.stop()
        opened.door.leave()

    asyncio.run(serve())
    say(event="Left")
    return OPTIONS.get("code", 0)


if __name__ == "__main__":
    run(body)
