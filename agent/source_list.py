"""Which sources of evidence an agent has, and in which order they are loaded once its ranks run. For ``crew.py``."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from . import gpu_start
from . import node_words as words
from .beats import Beats
from .sources import Maker, Source
from .spec import JobSpec

if TYPE_CHECKING:
    from ..health.evidence import Beat, Said
    from .gpu_start import GpuChild
    from .gpu_watch import GpuWatch


class Around(NamedTuple):
    """What sources are made from."""

    spec: JobSpec
    environ: Mapping[str, str]  # the ranks', but for what each is given
    post: Callable[[words.Event], None]  # takes alarms
    beats: Callable[[], Beats | None]  # the page of the present round
    gpus: GpuChild | None  # what reads the GPUs' driver, if it was started before the ranks
    spare: Callable[[tuple[int, ...]], None]  # the pids of children of sources, to be left alone by sweeps


def makers(around: Around) -> tuple[Maker, ...]:
    """Return what makes each source; the ones whose beginning matters most come first."""
    spec, post = around.spec, around.post
    gpu_watch: list[GpuWatch] = []  # once it is made, which is before that for hangs

    def memory() -> Source:
        from .oom import OomCounters

        return OomCounters()

    def gpus() -> Source:
        from .gpu_watch import GpuWatch

        made = GpuWatch(around.gpus, around.environ, post, lambda: gpu_start.start(os.environ), spec.signatures)
        gpu_watch.append(made)
        return made

    def lines() -> Source:
        from .line_watch import LineWatch

        return LineWatch(post, spec.alarm_window_s, said, spec.signatures)

    def kernel() -> Source:
        from .kernel_log import KernelLog

        return KernelLog(spec.kernel_log, post, own=spec.signatures)

    def hangs() -> Source:
        from .hang_watch import HangWatch, Means

        return HangWatch(spec.hang_timeout_s, Means(said, post, gpu_watch[0].computing))

    def reentry() -> Source:
        from .reentry_watch import ReentryWatch

        return ReentryWatch(steps, post)

    def stacks() -> Source:
        from .stacks import Stacks

        return Stacks(stack)

    def dumps() -> Source:
        from .dumps import Dumps

        return Dumps(around.environ)

    def fabric() -> Source:
        from .fabric import Fabric

        return Fabric()

    def slurm() -> Source:
        from .slurm_watch import SlurmWatch

        assert spec.slurm is not None
        # The list that is asked for has one part of a heterogeneous job, which need not be this node's.
        node = "" if "SLURM_HET_SIZE" in around.environ else around.environ.get("SLURMD_NODENAME", "")
        return SlurmWatch(spec.slurm, node, spec.lease_ttl_s, post, around.spare)

    def said() -> dict[int, Beat]:
        page = around.beats()
        return page.read() if page is not None else {}

    def steps(local_rank: int) -> Said:
        from ..health.evidence import Said

        page = around.beats()
        return page.said(local_rank) if page is not None else Said()

    def stack(local_rank: int) -> bytes:
        page = around.beats()
        return page.stack(local_rank) if page is not None else b""

    log = (kernel,) if spec.kernel_log else ()
    scheduler = (slurm,) if spec.slurm is not None else ()
    return (memory, gpus, lines, *log, hangs, reentry, stacks, dumps, fabric, *scheduler)
