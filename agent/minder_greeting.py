"""How a node without the endpoint's address comes to the store: it waits for it, and sees that it is the right one.

Called once by the agent before it joins. The store is started by the agent on the endpoint's machine
(`minder_link.py`), which may be later, or while an older run's store is still there; both are waited for and said once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from ..rendezvous.embedded import SEAL, EmbeddedError, JobState, Seal, job_state, other_run
from ..rendezvous.errors import BadRecord, PermanentError, TransientError
from ..rendezvous.store import Store

FOREIGN_S = 5.0  # an etcd without a seal for so long was started by somebody else: the minder puts it there at once
AGAIN_S = 0.2


async def greet(
    store: Store, prefix: str, where: str, wanted: str, timeout_s: float, say: Callable[[str], None]
) -> str:
    """Return the run id of the store at ``where``; ``wanted`` is the one given, if one was. EmbeddedError if it is not.

    Waits at most ``timeout_s`` for a store, and for an older run that is over to leave it.
    """
    loop = asyncio.get_running_loop()
    end_s = loop.time() + timeout_s
    unsealed_s: float | None = None
    said: list[str] = []

    def tell(words: str) -> None:
        if words not in said:
            said.append(words)
            say(words)

    while True:
        try:
            found = (await store.range(prefix + SEAL)).one()
            if found is not None:
                seal = Seal.decode(found.value)
                job = (await store.range(f"{prefix}{seal.run_id}/job")).one()
                if job_state(None if job is None else job.value) is not JobState.OVER:
                    if wanted and seal.run_id != wanted:
                        raise EmbeddedError(other_run(where, seal.run_id, seal.machine, wanted))
                    return seal.run_id
                tell(f"the store at {where} is still that of run {seal.run_id!r}, which is over; waiting for the next")
        except TransientError:
            unsealed_s = None
            tell(f"waiting for the store at {where}, which the agent on that machine starts")
        except BadRecord as bad:
            raise EmbeddedError(f"the store at {where} was not started by this version of remuster: {bad}") from bad
        except EmbeddedError:
            raise
        except PermanentError as refused:
            raise EmbeddedError(refusal(where, str(refused))) from refused
        else:
            now_s = loop.time()
            unsealed_s = None if found is not None else now_s if unsealed_s is None else unsealed_s
            if unsealed_s is not None and now_s > min(unsealed_s + FOREIGN_S, end_s):
                raise EmbeddedError(
                    f"an etcd that remuster did not start listens at {where}: give another port, or, to use it as a "
                    f"service, --rdzv-backend etcd --rdzv-endpoint {where}"
                )
        if loop.time() >= end_s:
            last = f": {said[-1]}" if said else ""
            raise EmbeddedError(f"no store of this run at {where} within {timeout_s:g} s{last}")
        await asyncio.sleep(AGAIN_S)


def refusal(where: str, words: str) -> str:
    """Say what etcd's refusal means where the store is the job's own."""
    if "authentication on" in words:
        return f"the store at {where} asks for a token: give the run's with --rdzv-conf token_file=PATH"
    if "authentication off" in words:
        return f"the store at {where} knows no token: leave token_file out of --rdzv-conf, on all nodes or on none"
    if "refused the user name or password" in words:
        return f"the store at {where} was started with another token: give all nodes the same token_file"
    return f"what listens at {where} is no store of remuster's: {words}"
