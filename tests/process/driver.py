"""A small agent for tests: keeper.run and a GuardianLink that obey JSON lines on one pipe and answer on another.

Executed as a program, with the pipes' numbers and a JSON of options: ``slow_s`` delays the body (before any handler is
installed), ``answer_s`` and ``kill_bound_s`` go to the link, ``patience_s`` to the keeper, ``letter`` onto its page;
``python`` is what stands for the interpreter.
"""

import json
import os
import sys
import time

from remuster.agent.keeper import run

COMMANDS, EVENTS, OPTIONS = int(sys.argv[1]), int(sys.argv[2]), json.loads(sys.argv[3])


def say(**what):
    os.write(EVENTS, json.dumps(what).encode() + b"\n")


def body(seat):
    seat.page.set_letter(OPTIONS.get("letter", "").encode())
    if OPTIONS.get("slow_s"):
        say(event="Young", agent=os.getpid())
        time.sleep(OPTIONS["slow_s"])
    import asyncio
    import signal
    import subprocess

    from remuster.agent.guardian_link import GuardianLink, OrderTooLarge, RankOrder
    from remuster.agent.linux import boottime
    from remuster.agent.node_lock import NodeLock

    async def serve():
        loop = asyncio.get_running_loop()
        loop.slow_callback_duration = 60.0  # -X dev tells of slow steps: on a busy machine they are no finding
        done = asyncio.Event()
        options = {name: OPTIONS[name] for name in ("answer_s", "kill_bound_s") if name in OPTIONS}

        def on_event(event):
            say(event=type(event).__name__, heard_s=boottime(), **event._asdict())
            if type(event).__name__ == "KeeperGone":
                done.set()
            if type(event).__name__ == "RankExited" and OPTIONS.get("kill_what_ended"):
                link.kill(event.round)

        link = GuardianLink(seat, on_event, **options)

        def on_signal(signum):
            say(event="Signal", signum=signum)
            if signum == signal.SIGTERM:
                done.set()

        for signum in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2):
            loop.add_signal_handler(signum, on_signal, signum)

        def renew(inc, fence_s, every_s):
            link.lease(inc, boottime() + fence_s)
            loop.call_later(every_s, renew, inc, fence_s, every_s)

        async def obey(line):
            match json.loads(line):
                case ["lease", inc, for_s]:
                    link.lease(inc, boottime() + (float("inf") if for_s is None else for_s))
                case ["renew", inc, fence_s, every_s]:
                    renew(inc, fence_s, every_s)
                case ["start", n, inc, orders]:
                    try:
                        link.start(n, inc, tuple(RankOrder(**order) for order in orders))
                    except OrderTooLarge as error:
                        say(event="OrderTooLarge", text=str(error))
                case ["start and kill", n, inc, orders]:
                    link.start(n, inc, tuple(RankOrder(**order) for order in orders))
                    link.kill(n)
                case ["kill and start", n, inc, orders]:
                    link.kill(n)
                    link.start(n + 1, inc, tuple(RankOrder(**order) for order in orders))
                case ["term", n, signum, *spared]:
                    link.terminate(n, signum, tuple(spared))
                case ["kill", n]:
                    link.kill(n)
                case ["ack", inc]:
                    link.acknowledge_fence(inc)
                case ["hold", run_id, node]:
                    lock = NodeLock(run_id, node)
                    link.hold(lock.tag, await lock.acquire())
                case ["child", argv]:
                    child = subprocess.Popen(argv, start_new_session=True)
                    link.spare((child.pid,))
                    say(event="Child", pid=child.pid)
                case ["stop"]:
                    say(event="Stopped", survivors=await link.stop())
                case ["hang", for_s]:
                    time.sleep(for_s)
                case ["give up"]:
                    seat.page.set_lease(0)
                    say(event="GivenUp")
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
        say(event="Up", keeper=seat.keeper, agent=os.getpid(), guardian=seat.guardian)
        await done.wait()
        say(event="Left", survivors=await link.stop())

    asyncio.run(serve())
    return OPTIONS.get("code", 0)


if __name__ == "__main__":
    sys.executable = OPTIONS.get("python", sys.executable)
    run(body, **{name: OPTIONS[name] for name in ("patience_s",) if name in OPTIONS})
