"""The table of flags: the one list that spelling, abbreviations, PET_ variables, click and the help page are made from.

Every flag of torchrun's is in it: `ours` marks those that torchrun does not have. It is as long as there are flags: a
table in two files is two tables.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple


class Group(Enum):
    """Sections of the help page, in its order."""

    NODES = "Nodes and ranks"
    MEETING = "Meeting the other nodes"
    RETRY = "Failures and retries"
    RESUME = "Checkpoints"
    SCRIPT = "The script"
    OUTPUT = "Output"
    OTHER = "Other"


class Flag(NamedTuple):
    """One accepted flag. Without ``metavar`` it is a switch; ``ours`` marks those that torchrun does not have."""

    name: str
    group: Group
    help: str
    metavar: str = ""
    short: str = ""
    ours: bool = False
    repeat: bool = False  # given twice, both count (elsewhere the last one wins, as in torchrun)

    @property
    def dest(self) -> str:
        return self.name.replace("-", "_")

    @property
    def env(self) -> str:
        """The variable that gives its default, by torchrun's rule."""
        return "PET_" + self.dest.upper()


FLAGS: tuple[Flag, ...] = (
    Flag(
        "nnodes",
        Group.NODES,
        "How many nodes the job runs on. With MIN:MAX it starts with MIN nodes and takes up to MAX; more stand by as "
        "spares. Default 1; under srun the step's nodes.",
        metavar="N|MIN:MAX",
    ),
    Flag(
        "nproc-per-node",
        Group.NODES,
        "Ranks on this node: a number, gpu (one per visible GPU), cpu (one per core), or auto (gpu if there are any, "
        "else cpu). Default 1; under srun the GPUs that Slurm gives.",
        metavar="N|auto|gpu|cpu",
    ),
    Flag(
        "admit",
        Group.NODES,
        "When a node that stands by makes a group of fewer than MAX nodes grow: restart (when the round ends by "
        "itself), now (the round is ended for it, free of charge), checkpoint (as now, right after the next "
        "checkpoint). Default restart.",
        metavar="restart|now|checkpoint",
        ours=True,
    ),
    Flag(
        "rank-order",
        Group.NODES,
        "In which order the nodes' ranks are numbered: sticky (who stays keeps its place), or hostname (by name in "
        "every round, node2 before node10). Default sticky.",
        metavar="sticky|hostname",
        ours=True,
    ),
    Flag(
        "numa-binding",
        Group.NODES,
        "Bind each rank to the CPUs near its GPU, of those that this command may use: node (all of the GPU's NUMA "
        "node), socket (of its socket), exclusive (a share of the node's cores for each of its ranks), core-complex "
        "(cores that share a last-level cache). Without GPUs the ranks are spread over the NUMA nodes. Where it cannot "
        "be done, a line says why, and ranks run unbound.",
        metavar="node|socket|exclusive|core-complex",
    ),
    Flag(
        "virtual-local-rank",
        Group.NODES,
        "Each rank sees its own GPU alone, as device 0: LOCAL_RANK is 0 everywhere, CUDA_VISIBLE_DEVICES one entry.",
    ),
    Flag("standalone", Group.NODES, "One node that needs no server. The default when only one node is asked for."),
    Flag(
        "local-addr",
        Group.NODES,
        "Where the other nodes reach this one: an address, an interface (eth1, ib0; the same word on all nodes), or a "
        "name. Default: the address from which this node reaches the store.",
        metavar="ADDR|INTERFACE",
    ),
    Flag("role", Group.NODES, "Name of the ranks' role, in ROLE_NAME and in the output's prefix.", metavar="NAME"),
    Flag(
        "rdzv-backend",
        Group.MEETING,
        "How several nodes meet. c10d and static need no service: an etcd of the job's own runs on one of the nodes. "
        "etcd is a service (v3; etcd-v2 and etcd-v3 mean the same). Default: the service that a configuration names, "
        "else static; under srun c10d on the step's first node.",
        metavar="c10d|static|etcd",
    ),
    Flag(
        "rdzv-endpoint",
        Group.MEETING,
        "c10d: address of one of the nodes, port 29400 unless given. etcd: the service's addresses, port 2379 unless "
        "given; name all members, so that one of them may die.",
        metavar="HOST[:PORT],...",
    ),
    Flag(
        "rdzv-id",
        Group.MEETING,
        "Name of the run, the same on all nodes. Default: Slurm's job and step, another batch system's job, else a new "
        "name each time; several nodes that meet at a service must have one.",
        metavar="ID",
    ),
    Flag(
        "rdzv-conf",
        Group.MEETING,
        "lease_ttl=15 (s until a silent node is given up), kill_bound=3 (s from SIGKILL to gone), "
        "last_call_timeout=30 (s to wait for more than MIN nodes), join_timeout=600 (s to wait for MIN), "
        "admit_after=60 (s that a round runs before --admit ends it), "
        "connect_timeout=10 (s to wait for a service that never answered), resume_timeout=600 (s to choose a "
        "checkpoint), launch_id. A service: prefix, cacert, "
        "cert, key, username, password_file. The job's own etcd: token_file (who has it may join; else whoever "
        "reaches the port), is_host (whether it runs here; else found by addresses), etcd_port (static: else the "
        "master port + 1; --hosts: else 29400).",
        metavar="KEY=VALUE,...",
    ),
    Flag(
        "rdzv-timeout",
        Group.MEETING,
        "How long to wait for MIN nodes, at the start and whenever too few are left. Default 600.",
        metavar="SECONDS",
        ours=True,
    ),
    Flag(
        "hosts",
        Group.MEETING,
        "The job's nodes, the same list on each of them, where you start the same command (docs/other-starts.md): how "
        "many they are, and that they meet at the first, as with c10d. HOST:N: N ranks there, unless "
        "--nproc-per-node says otherwise.",
        metavar="HOST[:N],...",
        ours=True,
    ),
    Flag(
        "hostfile",
        Group.MEETING,
        "The same from a file with a host in each line: HOST, HOST:N or HOST slots=N, as for mpirun and deepspeed.",
        metavar="FILE",
        ours=True,
    ),
    Flag("node-rank", Group.MEETING, "static: this node's number, 0 to N-1. Default 0.", metavar="R"),
    Flag(
        "master-addr",
        Group.MEETING,
        "static: address of node 0, where rank 0's store listens in every round. Default 127.0.0.1.",
        metavar="ADDR",
    ),
    Flag("master-port", Group.MEETING, "static: port of rank 0's store. Default 29500.", metavar="PORT"),
    Flag(
        "etcd-binary",
        Group.MEETING,
        "The etcd program that c10d and static start. Default: the one on PATH, else that of remuster[etcd].",
        metavar="FILE",
        ours=True,
    ),
    Flag(
        "config",
        Group.MEETING,
        "A file that names the etcd service; stronger than ~/.config/remuster.toml and /etc/remuster.toml, weaker "
        "than REMUSTER_ENDPOINT and flags.",
        metavar="FILE",
        ours=True,
    ),
    Flag(
        "on-store-loss",
        Group.MEETING,
        "What becomes of the ranks of a node that cannot reach the etcd: fence (they are stopped before others may go "
        "on without them), or hold (they go on; only with one number of nodes: no round begins without the very nodes "
        "and machines of the last). Default fence.",
        metavar="fence|hold",
        ours=True,
    ),
    Flag(
        "fresh",
        Group.MEETING,
        "Start a run id over that is done, or give a failed one its whole budget back.",
        ours=True,
    ),
    Flag(
        "max-restarts", Group.RETRY, "How many failures this launch may pay for with a restart. Default 0.", metavar="N"
    ),
    Flag(
        "retry-budget",
        Group.RETRY,
        "How many failures of a family the job pays for: in its whole life, e.g. hardware=8,node=4, or in any window "
        "of time, e.g. hardware=3/24h (s, m, h, d). Without --max-restarts, families that are not named may fail 3 "
        "times.",
        metavar="FAMILY=N[/WINDOW],...",
        ours=True,
        repeat=True,
    ),
    Flag(
        "alarm-window",
        Group.RETRY,
        "How long ranks have for their dumps after the first line of a living one that says that it cannot go on (a "
        "timeout of torch's watchdog or of gloo, a GPU that is lost): then the round ends, on all nodes. off: such "
        "lines end nothing. Default 10.",
        metavar="SECONDS|off",
        ours=True,
    ),
    Flag(
        "hang-timeout",
        Group.RETRY,
        "How long ranks may do nothing until they are taken for hung, and the round ends: say no step "
        "(remuster.heartbeat); or, where they say none, write nothing while one of them uses neither processor nor "
        "GPU. Longer than your longest pause: a save, an evaluation. Default: computed from the steps that are said, "
        "at least 300; off without steps. off (or 0): never.",
        metavar="SECONDS|off",
        ours=True,
    ),
    Flag(
        "exit-code-map",
        Group.RETRY,
        "What your program's own exit codes mean, e.g. 16=retry-elsewhere,17=stop (Megatron-LM), 93=stop (NVRx), "
        "14=gpu_lost, SIGUSR1=retry: retry, retry-elsewhere (its node is taken last), stop, or a class of failures. It "
        "counts where the rank that is the cause ended so by itself; budgets still bound retries.",
        metavar="CODE=ACTION|CLASS,...",
        ours=True,
        repeat=True,
    ),
    Flag(
        "signatures",
        Group.RETRY,
        "A JSON file that says what lines of your programs, and XIDs of NVIDIA's driver, mean at your site: patterns "
        "with a class of failures (docs/signatures.md). The same on all nodes.",
        metavar="FILE",
        ours=True,
    ),
    Flag(
        "node-check",
        Group.RETRY,
        "What this node must pass before it takes part: on: GPUs and RDMA ports, where it has any; all: what is "
        "installed as remuster.node_checks too; a command: that too (0 passes, 1 to 125 fails); off: nothing. See "
        "remuster check. Default on.",
        metavar="on|all|off|CMD",
        ours=True,
    ),
    Flag(
        "on-event",
        Group.RETRY,
        "What to tell when the budget is nearly spent, a node is lost or put in quarantine, a round went back behind "
        "an earlier one, or the job has failed: a command (JSON on stdin) or an http URL (POST).",
        metavar="CMD|URL",
        ours=True,
    ),
    Flag(
        "exit-code",
        Group.RETRY,
        "The command's exit code when the job fails: that of the cause (see below), or 1 for every failure, as "
        "torchrun has it. Default cause.",
        metavar="cause|torchrun",
        ours=True,
    ),
    Flag(
        "kernel-log",
        Group.RETRY,
        "Where the kernel's messages are read, as evidence of failures: a file or named pipe that a log daemon writes, "
        "or none. Default /dev/kmsg, which needs root or kernel.dmesg_restrict=0.",
        metavar="FILE|none",
        ours=True,
    ),
    Flag(
        "checkpoint-dir",
        Group.RESUME,
        "Where the job's checkpoints are; ranks re-enter from the newest one that is verified.",
        metavar="DIR",
        ours=True,
    ),
    Flag(
        "checkpoint-format",
        Group.RESUME,
        "The checkpoints are of this format: manifest (remuster.checkpoint), dcp, megatron, deepspeed, transformers, "
        "accelerate, lightning, orbax, colossalai, ray, torch, or one that is installed. Default: found by itself.",
        metavar="NAME",
        ours=True,
    ),
    Flag(
        "checkpoint-arg",
        Group.RESUME,
        "Added to the script's arguments when there is a checkpoint to re-enter from, e.g. "
        "--resume_from_checkpoint={path} or '--load {dir} --ckpt-step {step}'.",
        metavar="TEMPLATE",
        ours=True,
    ),
    Flag(
        "resume-hook",
        Group.RESUME,
        "Your own choice of the resume point: module:function, or a command.",
        metavar="HOOK",
        ours=True,
    ),
    Flag("module", Group.SCRIPT, "SCRIPT is a module's name, as with python -m.", short="m"),
    Flag("no-python", Group.SCRIPT, "SCRIPT is a program of its own, not run by Python."),
    Flag(
        "run-path",
        Group.SCRIPT,
        "Run SCRIPT by runpy, and record what it raises in the rank's error file, as @record does.",
    ),
    Flag(
        "python",
        Group.SCRIPT,
        "The ranks' interpreter. Default: PYTHON_EXEC, else the one that remuster is installed for.",
        metavar="FILE",
        ours=True,
    ),
    Flag(
        "scrub-env",
        Group.SCRIPT,
        "Take out of the ranks' environment what makes libraries believe that MPI or srun has started them: PMI*, "
        "PMIX*, OMPI* and the like, and Slurm's task numbers (SLURM_PROCID, SLURM_NTASKS, ...); SLURM_JOB_ID and the "
        "job's others stay. LOGLEVEL=DEBUG tells which. Default where Slurm has started this command.",
        ours=True,
    ),
    Flag(
        "no-scrub-env",
        Group.SCRIPT,
        "Leave it all in the ranks' environment under Slurm, too: for programs that are to find srun's MPI.",
        ours=True,
    ),
    Flag(
        "shutdown-timeout",
        Group.SCRIPT,
        "How long ranks that are to end have from SIGTERM to SIGKILL, whatever the reason. Default 30, or "
        "TORCH_ELASTIC_SHUTDOWN_TIMEOUT. A second SIGINT or SIGTERM leaves them 3 s.",
        metavar="SECONDS",
    ),
    Flag(
        "signals-to-handle",
        Group.SCRIPT,
        "Signals that stop the job, such as SIGUSR2,SIGXCPU. SIGTERM, SIGINT, SIGHUP and SIGQUIT always do.",
        metavar="SIG,...",
    ),
    Flag(
        "notice-signal",
        Group.SCRIPT,
        "A signal by which a scheduler says that the job is to end soon: SIGUSR1, SIGUSR2, SIGXCPU, or none. On all "
        "nodes stop_requested() is true then, and ranks with a handler get the signal; when they have ended the "
        "command ends with 75, worth a requeue. Default under Slurm: SIGUSR1 and SIGUSR2; elsewhere none.",
        metavar="SIG|none",
        ours=True,
    ),
    Flag(
        "requeue",
        Group.RETRY,
        "Under Slurm, when the launch ends with 75 (a notice, a time limit, a preemption, a lost node, sick hardware): "
        "run `scontrol requeue` last of all. The next launch goes on.",
        ours=True,
    ),
    Flag("log-dir", Group.OUTPUT, "Where ranks' output and the run's records go. Default: below /tmp.", metavar="DIR"),
    Flag(
        "log-writer",
        Group.OUTPUT,
        "Who writes the ranks' files: rank (each its own; what an agent that dies had seen is all there), or agent (a "
        "disk that is full or hangs stops no rank; a mark stands where bytes are missing). Default auto: agent where "
        "--log-dir is on a network file system, else rank.",
        metavar="auto|rank|agent",
        ours=True,
    ),
    Flag(
        "log-limit",
        Group.OUTPUT,
        "How much one stream of one rank keeps in its file: its head and its newest output; a line in the middle says "
        "how much is missing. Default: all, while the disk has room.",
        metavar="SIZE",
        ours=True,
    ),
    Flag(
        "redirects",
        Group.OUTPUT,
        "Which streams of the ranks are not shown: 0 none, 1 stdout, 2 stderr, 3 both, of all ranks of this node or by "
        "local rank, as in 0:3,1:1. Their files have everything in any case. Default 0.",
        metavar="N|RANK:N,...",
        short="r",
    ),
    Flag(
        "tee",
        Group.OUTPUT,
        "Which streams are shown with a prefix on each line, written in the same way; stronger than -r. Default 0.",
        metavar="N|RANK:N,...",
        short="t",
    ),
    Flag(
        "local-ranks-filter",
        Group.OUTPUT,
        "Show only these local ranks. Default: all.",
        metavar="RANK,...",
    ),
    Flag(
        "duplicate-stdout-filters",
        Group.OUTPUT,
        "Copy those lines of tee'd stdouts that hold one of these texts into attempt_N/filtered_stdout.log; ,, is a "
        "comma.",
        metavar="TEXT,...",
    ),
    Flag(
        "duplicate-stderr-filters",
        Group.OUTPUT,
        "The same of tee'd stderrs, into filtered_stderr.log.",
        metavar="TEXT,...",
    ),
    Flag(
        "logs-specs",
        Group.OUTPUT,
        "Only default: where files lie is not up to a class of torch's, which remuster does not load.",
        metavar="default",
    ),
    Flag(
        "event-log-handler",
        Group.OUTPUT,
        "console: the run's events also on stderr, one JSON object a line. null and dynamic_rendezvous: only in the "
        "run's records. Default null.",
        metavar="null|console|dynamic_rendezvous",
    ),
    Flag("monitor-interval", Group.OTHER, "Accepted, without effect: remuster waits on events.", metavar="SECONDS"),
    Flag(
        "start-method",
        Group.OTHER,
        "Accepted, without effect: ranks are started as commands.",
        metavar="spawn|fork|forkserver",
    ),
    Flag("version", Group.OTHER, "Print the version and exit.", ours=True),
    Flag("help", Group.OTHER, "Print this page and exit.", short="h"),
)

SHOWN_ONLY = ("version", "help")  # switches that have no PET_ variable

BY_NAME: dict[str, Flag] = {flag.name: flag for flag in FLAGS}
BY_SHORT: dict[str, Flag] = {flag.short: flag for flag in FLAGS if flag.short}
