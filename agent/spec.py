"""What one command line asks of this node: a frozen value, checked once, that the launcher builds and the agent obeys.

No flag, environment variable or default is looked up anywhere below the command line: whatever the agent may need to
know is a field here. The launcher (`launcher/build.py`) has already checked everything that needs the outside world
(files, devices); what can be checked from the numbers alone is checked here, so that tests cannot build nonsense.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ..rendezvous.admission import Admit
from ..rendezvous.membership import Order
from ..rendezvous.records import ROLE, StoreLoss

if TYPE_CHECKING:
    from ..health.exit_map import Mapped
    from ..health.own_signatures import OwnSignatures
    from ..rendezvous.budget import Bound

DRIFT = 1e-3  # relative clock drift between this node and the store; generous, NTP slews by at most 5e-4 a side
MARGIN_S = 0.25  # from the decision to kill to the first SIGKILL, on a busy machine
KERNEL_LOG = "/dev/kmsg"
FABRIC = "/sys/class/infiniband"  # RDMA devices, where there are any
DRAIN_WORDS = ("host", "reason", "run", "class")  # of a host in quarantine, for the site's command
RESUME_WORDS = ("path", "dir", "name", "step")  # of a checkpoint, for templates: path is dir/name
KEEPALIVES_PER_TTL = 5  # one is sent every TTL/5


class Backend(str, Enum):
    """Where the job's state is kept."""

    ETCD = "etcd"
    MEMORY = "memory"  # one node, no server


class StoreAccess(NamedTuple):
    """How to be let in: TLS and password files, by path; nothing secret is held in a value that may be printed."""

    cacert: Path | None = None
    cert: Path | None = None
    key: Path | None = None
    username: str = ""
    password_file: Path | None = None


class Embedded(NamedTuple):
    """An etcd of the job's own, on the machine that has the endpoint's address: its agent starts it (c10d, static)."""

    host: str  # as given: a name or an address; never decided by comparing names
    port: int
    binary: str | None = None  # path of the etcd program; None: looked for on PATH and beside the interpreter
    token_file: Path | None = None  # what agents must know to join; None: whoever reaches the port may
    here: bool | None = None  # is_host in --rdzv-conf, or the scheduler; None: decided by this machine's addresses
    address: str = ""  # of that machine, from the scheduler: for where the host's name leads nowhere


class Streams(NamedTuple):
    """A choice of ranks' streams: torchrun's 0 none, 1 stdout, 2 stderr, 3 both, for all ranks or by local rank."""

    every: int = 0
    by_rank: tuple[tuple[int, int], ...] = ()

    def has(self, local_rank: int, stream: int) -> bool:
        """Tell whether the stream, 1 or 2, of that rank is chosen."""
        return bool(dict(self.by_rank).get(local_rank, self.every) & stream)


class Writer(str, Enum):
    """Who puts what ranks write into their files."""

    AUTO = "auto"  # the agent where the log directory is on a file system that can hang, else the rank
    RANK = "rank"  # nothing is lost when an agent dies, and nothing is copied
    AGENT = "agent"  # a disk that is full or hangs stops no rank


class Output(NamedTuple):
    """What becomes of the ranks' output besides their files, which have all of it."""

    redirects: Streams = Streams()  # not shown
    tee: Streams = Streams()  # shown with a prefix
    only: tuple[int, ...] = ()  # local ranks that are shown; empty: all
    prefix: str = ""  # a template of torchrun's; empty: the usual one
    stdout_filters: tuple[str, ...] = ()  # lines of tee'd ranks that hold one of these are copied
    stderr_filters: tuple[str, ...] = ()
    limit: int = 0  # bytes that one stream of one rank keeps in its file; 0: all
    events: bool = False  # the agent's events are shown, too, as lines of JSON
    writer: Writer = Writer.AUTO


class NodeCheck(NamedTuple):
    """What this node must pass before it takes part: see ``node_check.py``."""

    on: bool = True
    installed: bool = False  # what is installed under remuster.node_checks too
    command: tuple[str, ...] = ()  # of the site's own


class SlurmStep(NamedTuple):
    """The Slurm step that this agent is a task of, as its environment has it."""

    job_id: str
    step_id: str = ""  # empty: started by the batch script itself, without srun
    restarts: int = 0  # how often Slurm has requeued the job
    node: int = 0  # this node's number in the step


class SpecError(ValueError):
    """A job that contradicts itself: what is wrong, then after a semicolon what to do."""


@dataclass(frozen=True, slots=True)
class JobSpec:
    """One job as seen by one node. SpecError when its numbers contradict each other."""

    min_nodes: int
    max_nodes: int
    nproc: int
    run_id: str  # empty: the embedded store made one, and says it
    script: str
    script_args: tuple[str, ...] = ()
    module: bool = False
    no_python: bool = False
    python: str = sys.executable  # the ranks' interpreter; PYTHON_EXEC overrides it, as in torchrun
    runner: str | None = None  # a program of ours that runs the script in the ranks' interpreter (--run-path)
    role: str = ROLE
    virtual_local_rank: bool = False
    scrub_env: bool = False  # take other launchers' variables out of the ranks' environment
    cpus: tuple[tuple[int, ...], ...] = ()  # which CPUs each local rank is bound to; empty: not bound

    backend: Backend = Backend.MEMORY
    endpoints: tuple[tuple[str, int], ...] = ()
    store: StoreAccess = field(default_factory=StoreAccess)
    embedded: Embedded | None = None  # then ``endpoints`` is its one address
    place: int | None = None  # static's --node-rank: the group rank that this node asks for
    master: tuple[str, int] | None = None  # static's --master-addr and --master-port, the same in every round
    prefix: str = "/remuster/"
    launch_id: str = ""  # tells one launch of a run id from the next; empty: not known
    fresh: bool = False
    new_run: bool = False  # the run id was made for this launch: nothing of it can be anywhere
    local_addr: str | None = None

    lease_ttl_s: int = 15
    kill_bound_s: float = 3.0  # from SIGKILL to reaped, GPU memory torn down
    last_call_timeout_s: float = 30.0  # torchrun's; how long a round with min nodes waits for more
    join_timeout_s: float = 600.0  # torchrun's; how long to wait for min nodes
    resume_timeout_s: float = 600.0  # for a choice of the resume point: digests of a large checkpoint take minutes
    connect_timeout_s: float = 10.0  # how long an etcd service that has never answered is tried
    grace_s: float = 30.0  # torchrun's; from SIGTERM to SIGKILL
    stop_signals: tuple[int, ...] = ()  # those that stop the job, beside SIGTERM, SIGINT, SIGHUP and SIGQUIT
    alarm_window_s: float | None = 10.0  # dumps and the other ranks' own alarms take seconds; None: no line is an alarm
    hang_timeout_s: float | None = None  # how long ranks may do nothing; None: computed from their steps; 0: for ever
    notice_signals: tuple[int, ...] = ()  # each says that the job is to end soon
    store_loss: StoreLoss = StoreLoss.FENCE
    admit: Admit = Admit.RESTART
    admit_after_s: float = 60.0  # a round runs for so long before it is ended for a newcomer
    rank_order: Order = Order.STICKY

    max_restarts: int = 0
    bound_restarts: bool = True  # False: --retry-budget was given and --max-restarts was not
    retry_budget: tuple[Bound, ...] = ()
    exit_map: tuple[Mapped, ...] = ()  # what the program's own exit codes mean
    signatures: OwnSignatures | None = None  # what lines and XIDs mean at this site
    on_event: tuple[str, ...] = field(default=(), repr=False)  # a command, or a URL alone, which may hold a token

    drain_command: tuple[str, ...] = ()  # of the site's own: takes a host in quarantine out of its scheduler

    kernel_log: str = KERNEL_LOG  # where the kernel's words are read; empty: nowhere
    node_check: NodeCheck = NodeCheck()

    slurm: SlurmStep | None = None  # None: started by something else
    requeue: bool = False  # under Slurm: a launch that ends with 75 and may be gone on with is requeued

    output: Output = Output()
    timer_file: str | None = None  # file timers are served: at this path; empty: in the run directory
    log_dir: Path | None = None  # None: a new one of this user's
    checkpoint_dir: Path | None = None
    checkpoint_format: str = ""  # empty: each entry's own
    checkpoint_args: tuple[
        str, ...
    ] = ()  # added to the script's when there is a checkpoint, with RESUME_WORDS in braces
    resume_hook: str | None = None

    def __post_init__(self) -> None:
        if not 1 <= self.min_nodes <= self.max_nodes:
            raise SpecError(f"nodes {self.min_nodes}:{self.max_nodes}; write MIN:MAX with 1 <= MIN <= MAX")
        if self.nproc < 1:
            raise SpecError(f"{self.nproc} ranks per node; at least 1 is needed")
        if self.max_restarts < 0:
            raise SpecError(f"{self.max_restarts} restarts; give 0 or more")
        if self.backend is Backend.MEMORY and self.min_nodes > 1:
            raise SpecError(f"{self.min_nodes} nodes cannot meet without a server; use --rdzv-backend etcd")
        if self.backend is Backend.ETCD and not self.endpoints:
            raise SpecError("no address of etcd; give --rdzv-endpoint HOST:2379")
        if not self.run_id and self.embedded is None:
            raise SpecError("a run needs a name; give --rdzv-id NAME")
        if self.place is not None and not 0 <= self.place < self.max_nodes:
            raise SpecError(f"--node-rank {self.place} of {self.max_nodes} nodes; give 0 to {self.max_nodes - 1}")
        if self.store_loss is StoreLoss.HOLD and self.min_nodes != self.max_nodes:
            raise SpecError(
                f"--on-store-loss=hold with {self.min_nodes}:{self.max_nodes} nodes: while one that is cut off holds "
                "its ranks, the others could begin a round without it; give one number of nodes, or leave "
                "--on-store-loss out, and ranks that are cut off are stopped in time"
            )
        room, needed = self.fence_after_s, 2 * self.lease_ttl_s / KEEPALIVES_PER_TTL
        if room < needed:
            least = (self.kill_bound_s + MARGIN_S) / (1 - DRIFT - 2 / KEEPALIVES_PER_TTL)
            raise SpecError(
                f"a lease of {self.lease_ttl_s} s with a kill bound of {self.kill_bound_s:g} s would stop healthy "
                f"ranks after one late renewal; give lease_ttl={int(least) + 1} or more, or a smaller kill_bound"
            )

    @property
    def least_others(self) -> int:
        """How many nodes on other hosts there must be for this job to put a host in quarantine: its own are needed."""
        return sys.maxsize if self.store_loss is StoreLoss.HOLD else self.min_nodes

    @property
    def fence_after_s(self) -> float:
        """Return how long after the last acknowledged renewal was sent the ranks are killed."""
        return self.lease_ttl_s * (1 - DRIFT) - self.kill_bound_s - MARGIN_S
