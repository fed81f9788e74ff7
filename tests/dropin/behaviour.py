"""What the command does in another way than torchrun's: this list, each with its reason and where it is shown, no more.

Data only. What differs in a worker's environment stands in `differences`; `page` makes docs/differences.md of both.
"""

from __future__ import annotations

from typing import NamedTuple


class Behaviour(NamedTuple):
    """One thing that differs. ``shown`` is a file of the tests, or a page that tests write, ``::`` and a name in it."""

    what: str
    torchrun: str
    ours: str
    reason: str
    shown: str


_ENDINGS = "tests/dropin/test_endings.py"
_LINES = "tests/bad_input/rows_line.py"
_MEMBERS = "tests/command/test_membership.py"
_POLICY = "tests/health/test_policy.py"
_FAULTS = "docs/faults.md"

COMMAND_LINE = (
    Behaviour(
        "a value that means nothing (`--nnodes 1:2:3`, `--nproc-per-node 0`)",
        "a traceback, exit code 1; some are found only after the nodes have met",
        "one sentence with what to do, exit code 2, before anything starts",
        "2 is what wrong usage is everywhere, and what nobody should requeue",
        f"{_ENDINGS}::test_a_line_that_means_nothing_starts_nothing_in_either",
    ),
    Behaviour(
        "an argument of the script that begins like several flags (`train.py --d=/tmp`)",
        "refused as ambiguous, exit code 2",
        "reaches the script",
        "what stands behind the script is the script's",
        f"{_ENDINGS}::test_a_scripts_argument_is_no_flag_cut_short",
    ),
    Behaviour(
        "`--nproc 2`",
        "ambiguous: the two spellings of one flag count as two",
        "`--nproc-per-node 2`",
        "a prefix is unique when one flag has it",
        f"{_ENDINGS}::test_a_prefix_of_one_flag_in_two_spellings",
    ),
    Behaviour(
        "`$$` in an argument of the script",
        "becomes `$`",
        "stays `$$`; `${local_rank}` and `$local_rank` are replaced as there",
        "an argument that silently loses a sign is a defect, and no script can want it",
        f"{_ENDINGS}::test_a_doubled_dollar_is_kept_where_torchrun_loses_one",
    ),
    Behaviour(
        "`--standalone --nnodes 2`",
        "runs on one node",
        "refused",
        "one of the two is a mistake, and half of the nodes is the costlier one",
        f"{_LINES}::standalone-and-nodes",
    ),
    Behaviour(
        "a key in `--rdzv-conf` that is nearly one of ours (`join_timout=`)",
        "passed over",
        "refused; what is nobody's is passed over, and named",
        "a misspelt `token_file` would leave the door open",
        "tests/launcher/test_values.py::test_a_key_that_is_nearly_one_of_ours_is_refused",
    ),
    Behaviour(
        "`--rdzv-backend etcd`",
        "the v2 interface, which etcd 3.6 has no more; one address",
        "the v3 interface; all members of the cluster, TLS, users",
        "the old one is gone",
        "tests/dropin/test_command_lines.py::test_the_same_workers_with_the_same_environment",
    ),
    Behaviour(
        "`--rdzv-backend c10d` or static, several nodes",
        "a store inside one agent; it dies with it",
        "a real etcd, started for the job on that node; needs an etcd program there (`pip install 'remuster[etcd]'`)",
        "one protocol for all; any agent may die",
        "tests/process/test_minder.py::test_it_stays_for_nodes_elsewhere_and_ends_after_the_last",
    ),
    Behaviour(
        "`srun` without a flag that says how nodes meet",
        "each task is a job of its own, of one rank",
        "one job of all nodes of the step, with a rank for each GPU; refused with more than one task on a node",
        "Slurm has said it all; `--standalone` is a job on each node",
        "tests/launcher/test_slurm.py::test_srun_needs_no_flag",
    ),
    Behaviour(
        "no flag that says how nodes meet, in a job of PBS, LSF or OAR with several hosts",
        "one node, alone",
        "one job of all hosts of the job's host file, which meet at the first; `--nnodes 1` is one node alone",
        "the batch system has said it; one job a node would write over the others' checkpoints",
        "tests/launcher/test_gathering.py::test_a_pbs_job_needs_nothing_typed",
    ),
    Behaviour(
        "`--nnodes N` alone in a pod of an indexed Kubernetes Job",
        "meets at 127.0.0.1, where no other pod is",
        "meets at pod 0, by its name",
        "that is where the others can come to",
        "tests/launcher/test_batch_systems.py::test_where_pods_meet",
    ),
    Behaviour(
        "no `--rdzv-id`",
        "`none`, for every job: two on one store merge",
        "a new name for each run, or the batch system's job (Slurm's step); several nodes that meet at "
        "a service must be "
        "given one",
        "two jobs must never meet",
        "tests/command/test_scenarios.py::test_b07_two_jobs_without_an_id_never_meet",
    ),
    Behaviour(
        "a run id that is done",
        "starts again, or hangs at what is left in the store",
        "refused with exit code 2; `--fresh` starts it over",
        "the results of a run that is done are not overwritten by mistake",
        "tests/command/test_scenarios.py::test_b07_a_finished_id_is_refused_at_once_and_nothing_of_it_changes",
    ),
    Behaviour(
        "`--numa-binding`",
        "needs CUDA and numactl; a failure ends the launch",
        "within the CPUs that the command may use, also without a GPU; a line says why ranks run unbound",
        "a launch must not fail for where it runs best",
        "tests/launcher/test_binding.py::test_no_rank_leaves_the_mask_and_none_is_without_a_cpu",
    ),
    Behaviour(
        "`--virtual-local-rank` with more ranks than entries in CUDA_VISIBLE_DEVICES",
        "a traceback",
        "one sentence, exit code 2",
        "it names both numbers",
        f"{_LINES}::fewer-devices-than-ranks",
    ),
    Behaviour(
        "`--run-path`",
        "stdin is empty, and `sys.path` begins with torchrun's own folder",
        "stdin is the command's for a single rank, and `sys.path` begins with the script's folder",
        "as python does it",
        "tests/dropin/test_command_lines.py::test_a_script_by_run_path_and_the_error_file_it_leaves",
    ),
)

OUTPUT = (
    Behaviour(
        "files of what ranks write",
        "with `--redirects` or `--tee` alone; the directory is there anyway",
        "always, in the same places, with `--log-dir /dev/null` too; beside them records of each attempt",
        "the last words of a rank that died are worth more than the disk they need",
        f"{_ENDINGS}::test_the_same_rank_is_blamed_and_the_logs_lie_in_the_same_places",
    ),
    Behaviour(
        "no `--log-dir`",
        "a new directory `/tmp/torchelastic_…` for each run",
        "a new one below `/tmp/remuster-<uid>`, of mode 0700; neither is removed",
        "nobody else on the machine may read what a rank writes, or get there first",
        "tests/agent/test_attempts.py::test_the_default_is_this_users_own",
    ),
    Behaviour(
        "the report",
        "after a traceback of its own; ranks that it stopped itself are listed as failures",
        "the verdict, the same block, last lines, where the files are and what to do; who was stopped is no failure",
        "tools and people find what they know",
        "tests/agent/test_report.py::test_torchruns_layout",
    ),
    Behaviour(
        "an error file that cannot be read",
        "ends the agent with an error of its own",
        "is named in the report",
        "the reason of the failure must not be lost for the way it was told",
        "tests/health/test_wire.py::test_malformed_error_files_yield_a_note",
    ),
    Behaviour(
        "prefix of tee'd lines, several nodes",
        "`[default0]:`",
        "`[node7 rank57][default1]:`",
        "the lines of eight nodes are told apart, and torchrun's mark stays whole for tools that look for it",
        "tests/agent/test_showing.py::test_b15_of_several_nodes_the_prefix_has_node_and_rank_and_then_torchruns",
    ),
    Behaviour(
        "`--duplicate-stdout-filters` with `--local-ranks-filter`",
        "ranks that are not shown are not copied",
        "all tee'd ranks are copied",
        "so torchrun's own help says",
        "tests/agent/test_showing.py::test_a_rank_that_is_not_shown_is_still_teed",
    ),
    Behaviour(
        "`--logs-specs NAME`",
        "loads the class that a package registered by that name",
        "`default`, or refused",
        "such a class is torch's, and the launcher loads no torch",
        "tests/launcher/test_output.py::test_a_registered_class_for_files_is_refused_by_what_it_is",
    ),
    Behaviour(
        "several failed ranks in the report",
        "a block of seven lines for each",
        "one block, and one line for the rest",
        "800 blocks hide the cause",
        "tests/agent/test_report.py::test_it_fits_a_screen",
    ),
    Behaviour(
        "the parent's error file (TORCHELASTIC_ERROR_FILE of the command)",
        "written where the root rank left one, on its node",
        "written on all nodes; without one, the verdict's sentence",
        "whoever started the command learns the cause in any case",
        "tests/command/test_failures.py::test_the_root_ranks_error_is_in_the_file_of_every_nodes_parent",
    ),
    Behaviour(
        "progress bars (`\\r`) of tee'd ranks",
        "each drawing is a line of its own",
        "stays a drawing; of several ranks the newest, ten times a second at most",
        "a bar of an hour is not a million lines",
        "tests/agent/test_splice.py::test_a_bar_is_painted_now_and_then_and_at_its_end",
    ),
    Behaviour(
        "a full disk under `--log-dir`",
        "the rank that prints ends",
        "ranks go on; their logs lose their middle, with a line in its place",
        "a log is worth less than the job",
        "tests/command/test_full_disk.py::test_ranks_write_more_than_a_disk_holds",
    ),
)

ENDS = (
    Behaviour(
        "exit code after a rank failed",
        "1, whatever happened",
        "the code of the rank at which it began, 128+N for a signal; 75 where a requeue is worth it, 69, 70 (README)",
        "schedulers decide by it",
        "tests/dropin/test_command_lines.py::test_a_failing_rank_gives_the_command_its_code_where_torchrun_gives_one",
    ),
    Behaviour(
        "a living rank writes that a collective timed out, or that its GPU is lost",
        "its end is waited for: one to ten minutes",
        "the round ends 10 s later (`--alarm-window`), unless that rank goes on",
        "no rank can go on, and the hours of a whole group are spent",
        "tests/command/test_alarms.py::test_all_ranks_are_signalled_at_the_windows_end",
    ),
    Behaviour(
        "exit code after SIGTERM",
        "1",
        "143",
        "as every other program",
        f"{_ENDINGS}::test_the_same_rank_is_blamed_and_the_logs_lie_in_the_same_places",
    ),
    Behaviour(
        "a rank that exits with 138 (128 + SIGUSR1)",
        "a failure like any other",
        "a node that the scheduler wants back: up to five free attempts in a row, then 75",
        "that is how a script answers Slurm's notice",
        f"{_ENDINGS}::test_an_exit_status_that_schedulers_use_is_tried_again_for_free",
    ),
    Behaviour(
        "the launcher is killed (`kill -9`)",
        "its ranks go on, with nobody above them",
        "nothing of it is left",
        "a GPU must not be held by a job that nobody has any more",
        f"{_ENDINGS}::test_a_killed_launcher_leaves_its_ranks_in_torchrun_and_none_in_ours",
    ),
    Behaviour(
        "children of a rank that crashed",
        "go on",
        "killed with it",
        "a DataLoader worker holds memory and ports",
        "tests/command/test_nothing_left.py::test_what_a_rank_leaves_goes_with_it",
    ),
    Behaviour(
        "a spare at the end of the job",
        "exits 1, its store is gone",
        "exits 0",
        "a job that is done is no failure on any of its nodes",
        f"{_MEMBERS}::test_b39_surplus_agents_are_parked_in_every_round",
    ),
)

SIGNALS = (
    Behaviour(
        "SIGINT, SIGHUP and SIGQUIT",
        "passed on as they are",
        "ranks get SIGTERM",
        "one signal means: save and leave; a Ctrl-C on a terminal reaches no rank by itself",
        "tests/command/test_exit_codes.py::test_a_signal_to_the_command_stops_the_job",
    ),
    Behaviour(
        "SIGUSR1, SIGUSR2",
        "end the agent and leave its ranks behind, unless listed in `--signals-to-handle`",
        "passed on to ranks that have a handler; nobody ends; under Slurm they are stop notices",
        "schedulers send them before a job's end",
        "tests/command/test_signals.py::test_b17_user_signals_reach_all_ranks_and_end_nobody",
    ),
    Behaviour(
        "`--signals-to-handle` without SIGTERM",
        "SIGTERM ends the agent at once and leaves its ranks behind",
        "SIGTERM, SIGINT, SIGHUP and SIGQUIT always stop the job in order",
        "a GPU must not be held by a job that nobody has any more",
        "tests/command/test_signals.py::test_signals_to_handle_adds_one_that_stops_the_job_and_ranks_get_it",
    ),
    Behaviour(
        "`--shutdown-timeout`",
        "heeded after a signal; 30 s after a failure and before a restart",
        "the same time on every path",
        "a restart waits for it",
        "tests/command/test_signals.py::test_the_grace_is_the_same_after_a_failure_and_before_a_restart",
    ),
    Behaviour(
        "a second SIGINT or SIGTERM",
        "waits on",
        "leaves 3 s",
        "somebody insists",
        "tests/command/test_signals.py::test_b16_a_second_signal_shortens_the_grace",
    ),
    Behaviour(
        "`nohup`",
        "a hangup ends the job",
        "a hangup that was ignored stays ignored",
        "that is what nohup is for",
        "tests/command/test_signals.py::test_a_hangup_under_nohup_ends_nothing",
    ),
)

RETRIES = (
    Behaviour(
        "`--max-restarts`",
        "for each agent: a new one has them all again, and a restart by others is not counted",
        "for the launch, over all nodes; one failure is charged once",
        "a budget that grows with the number of nodes bounds nothing",
        f"{_MEMBERS}::test_b38_a_node_that_is_killed_and_comes_again_spends_the_jobs_budget_and_no_other",
    ),
    Behaviour(
        "TORCHELASTIC_RESTART_COUNT",
        "each node's own: 0 here and 1 there in one attempt",
        "the number of the attempt, the same on all nodes",
        "scripts name files and keys by it",
        f"{_MEMBERS}::test_b39_surplus_agents_are_parked_in_every_round",
    ),
    Behaviour(
        "the same failure twice in a row, without a newer checkpoint in `--checkpoint-dir`",
        "tried again while restarts are left",
        "ends the job",
        "the third time is as the second; not so for a killed rank, hardware, network, storage, a lost node",
        f"{_POLICY}::test_the_same_failure_without_progress_stops",
    ),
    Behaviour(
        "a usage, syntax or import error in the script",
        "tried again while restarts are left",
        "not tried again",
        "a typing error is not paid for with GPU hours",
        f"{_POLICY}::test_first_time",
    ),
)

NODES = (
    Behaviour(
        "a node that dies or is cut off",
        "not noticed; the others wait in their collectives",
        "its lease ends (15 s), the others form a new group, with a spare if there is one",
        "this is what the program is for",
        f"{_FAULTS}::all processes of a host killed (RST)",
    ),
    Behaviour(
        "a node that comes while the job runs",
        "stops the running ranks at once; in 2.13 both agents can then hang and end",
        "stands by until the round ends by itself; `--admit=now` or `checkpoint` ends it, free of charge",
        "a newcomer must not cost the others their work",
        f"{_MEMBERS}::test_a_group_that_shrank_grows_again_when_a_node_comes",
    ),
    Behaviour(
        "order of nodes",
        "by address, as text (10.0.0.10 before 10.0.0.2), anew in every round",
        "as they came; who stays keeps its place; `--rank-order=hostname`",
        "rank 0's files lie where rank 0 was",
        f"{_MEMBERS}::test_ranks_follow_host_names_and_slots_when_nodes_differ",
    ),
    Behaviour(
        "`--local-addr` of another machine, or loopback with several machines",
        "taken",
        "refused with exit code 69 before workers start",
        "the other nodes could never reach it",
        "tests/bad_input/rows_nodes.py::c10d-local-addr-is-loopback",
    ),
    Behaviour(
        "a host whose own name is loopback (Debian's 127.0.1.1)",
        "gloo announces loopback, and the group does not form",
        "GLOO_SOCKET_IFNAME is set for the ranks, unless somebody has",
        "the interface that leads to the store is known",
        "tests/agent/test_gloo_interface.py::test_the_rule",
    ),
    Behaviour(
        "too few open files, processes or memory (ulimit)",
        "a traceback, somewhere",
        "a sentence before anything starts, exit code 75",
        "it names the limit",
        "tests/command/test_limits.py::test_too_few_files_are_refused_before_anything_starts",
    ),
)

CHAPTERS = {
    "The command line": COMMAND_LINE,
    "Output": OUTPUT,
    "Ends and exit codes": ENDS,
    "Signals": SIGNALS,
    "Retries": RETRIES,
    "Nodes": NODES,
}
