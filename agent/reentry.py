"""Where a round re-enters: asks the resume hook, on the leading agent, when all ranks of earlier rounds are dead.

The answer is written into the store with the close of the round, so every rank of every node gets the same one.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from ..rendezvous.agreement import NOT_FOR_ALL
from ..rendezvous.asked import Asked, Held
from ..rendezvous.history import sized, steps
from ..rendezvous.leader_words import Resumed, SelectResume
from ..rendezvous.records import Outcome, ResumePoint
from .files import FileThread
from .linux import boottime
from .spec import JobSpec

if TYPE_CHECKING:
    from ..checkpoint.examine import Seen

SENTENCE = 240  # characters of what went wrong: it travels in the job record
STORAGE = (75, "fs_transient", "start again when it can be read")  # exit code, class, and what to do
HOOK = (1, "user_exception", "mend the hook, or leave --resume-hook out")
USAGE = (2, "user_args", "correct --checkpoint-dir or --checkpoint-format; from nothing its progress would be lost")


class Others:
    """The other nodes of the round, where there are none: nobody objects, and nobody is asked."""

    def objection(self, _name: str) -> str:
        """Return why the checkpoint of that name is not to be taken; '' when nobody has anything against it."""
        return ""

    def await_hints(self) -> None:
        """Wait a little for what other nodes have seen. Blocks."""

    def question(self, _point: ResumePoint, _held: Held) -> Asked | None:
        """Return what they are to be asked about a chosen point. Blocks; OSError when it cannot be read any more."""
        return None


class Entrance(NamedTuple):
    """The resume hook of one agent. ``spare`` names the hook's process, which no sweep may take."""

    spec: JobSpec
    spare: Callable[[tuple[int, ...]], None]
    say: Callable[[str], None]
    seen: Seen

    async def choose(self, ask: SelectResume) -> Resumed:
        """Choose where a round re-enters; a hook that fails ends the job, in words."""
        spec = self.spec
        if spec.resume_hook is None and spec.checkpoint_dir is None:
            return Resumed(boottime(), ask.round, ResumePoint(), wall=time.time())
        from .hook import Astray, BuiltIn, Care, Hook, HookError, HookRequest, find_resume_point, parse_hook

        care = Care(FileThread("hook"), spec.resume_timeout_s, self.spare, self.say)
        others = self._others(ask)
        history = steps(ask.history)
        request = HookRequest(
            spec.run_id,
            ask.attempt,
            spec.checkpoint_dir,
            ask.roster,
            history,
            others.objection,
            ask.below,
            sized(ask.history),
            spec.max_nodes > 1,
        )
        question: Asked | None = None
        try:
            hook: Hook
            if spec.resume_hook is not None:
                hook = parse_hook(spec.resume_hook)
            else:
                assert spec.checkpoint_dir is not None
                hook = BuiltIn(spec.checkpoint_dir, spec.checkpoint_format, self.seen)
                await care.files.run(others.await_hints, timeout_s=spec.resume_timeout_s)
            result = await find_resume_point(hook, request, care)
            if spec.resume_hook is None or result.point.path:
                question = await care.files.run(
                    others.question, result.point, result.held, timeout_s=spec.resume_timeout_s
                )
        except (OSError, TimeoutError) as error:
            why = f"the checkpoints in {spec.checkpoint_dir} could not be read: {error}"
            return Resumed(boottime(), ask.round, ResumePoint(), outcome=_ended(why, *STORAGE))
        except HookError as error:
            ending = USAGE if isinstance(error, Astray) else STORAGE if spec.resume_hook is None else HOOK
            return Resumed(boottime(), ask.round, ResumePoint(), outcome=_ended(str(error), *ending))
        finally:
            care.files.close()
        for name, reason in result.refused:
            if reason != NOT_FOR_ALL:
                self.say(f"checkpoint {name} is passed over: {reason}")
        if result.refused and not (result.point.path or ask.against):
            self.say(f"no checkpoint in {spec.checkpoint_dir} can be re-entered: the job begins from nothing")
        world = ask.roster.world_size if spec.resume_hook is None else 0
        found = (result.point, result.refused, None, time.time(), question)
        return Resumed(boottime(), ask.round, *found, held=result.held, world=world)

    def _others(self, ask: SelectResume) -> Others:
        """Return what the other nodes have to do with the choice, and what the job has against checkpoints."""
        if self.spec.max_nodes == 1 and not ask.against:
            return Others()
        from .sight import Asking

        return Asking(ask, self.spec.checkpoint_dir)


def _ended(why: str, code: int, cls: str, then: str) -> Outcome:
    return Outcome(code, f"{why[:SENTENCE]}; no rank was started: {then}", cls)
