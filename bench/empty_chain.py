"""Keeper, agent, guardian and ranks, and nothing else: ``empty_chain.py [--loop] RANKS SCRIPT`` starts them.

What remuster's start is compared with, and why that is fair: remuster promises that somebody outlives the agent (the
keeper), that the ranks' parent is small and has no threads (the guardian), and that each rank is a fresh interpreter on
the user's script. These generations cost a fork, an exec of a bare Python, and a fork and an exec for each rank; they
are made here in the same way (fork while young, posix_spawn of ``python -I -S``, fork and exec; sessions of their own,
by which the kernel shares the cores out), by an interpreter that is started as the command's own is. Left out is all
that they do: no flag is parsed, no module of the agent imported, no store, lease, log file or round. What remuster
takes above this is its own code and the libraries it loads.

With ``--loop`` the agent does one thing more, as every agent that is an asyncio loop must before it can give the word:
it imports asyncio (without TLS, as ours does). Shown beside, no bar.
"""

import os
import sys

GUARDIAN = """
import os, sys
word, ranks, *command = sys.argv[1:]
os.setsid()
os.read(int(word), 1)
for _ in range(int(ranks)):
    if os.fork() == 0:
        os.setsid()
        os.execv(command[0], command)
try:
    while True:
        os.wait()
except ChildProcessError:
    pass
"""


def agent(ranks: str, script: str, loop: bool) -> None:
    """Start the guardian at once; give it the word, first thing or from a loop; stay until it has ended."""
    hear, tell = os.pipe()
    os.set_inheritable(hear, True)
    python = sys.executable
    command = [python, "-I", "-S", "-c", GUARDIAN, str(hear), ranks, python, "-u", script]
    guardian = os.posix_spawn(python, command, os.environ)
    if loop:
        sys.modules["ssl"] = None  # type: ignore[assignment]  # absent
        import asyncio

        async def word() -> None:
            os.write(tell, b"!")

        asyncio.run(word())
    else:
        os.write(tell, b"!")
    os.waitpid(guardian, 0)


def main() -> None:
    loop = sys.argv[1] == "--loop"
    ranks, script = sys.argv[-2:]
    child = os.fork()
    if child == 0:
        agent(ranks, script, loop)
        os._exit(0)
    os.waitpid(child, 0)


main()
