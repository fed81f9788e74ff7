"""How a flag may be typed, and where the script begins."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuster.launcher.argv import Split, split
from remuster.launcher.errors import UsageError
from remuster.launcher.flags import FLAGS

S = "train.py"


@pytest.mark.parametrize(
    ("typed", "options"),
    [
        ([], []),
        (["--nnodes=2"], ["--nnodes=2"]),
        (["--nnodes", "2:4"], ["--nnodes=2:4"]),
        (["--nproc_per_node", "2"], ["--nproc-per-node=2"]),
        (["--nproc-per_node=2"], ["--nproc-per-node=2"]),
        (["--nproc_per", "2", "--max_r", "1"], ["--nproc-per-node=2", "--max-restarts=1"]),
        (["--nproc", "1"], ["--nproc-per-node=1"]),  # torchrun calls this ambiguous; one meaning is left here
        (["--stand"], ["--standalone"]),
        (["--rdzv-e=[::1]:2379"], ["--rdzv-endpoint=[::1]:2379"]),
        (["--v"], ["--virtual-local-rank"]),  # torchrun's, not our --version
        (["--run"], ["--run-path"]),
        (["--ver"], ["--version"]),
        (["--fr"], ["--fresh"]),
        (["-m"], ["--module"]),
        (["-h"], ["--help"]),
        (["--standalone", "--no_python", "--"], ["--standalone", "--no-python"]),
        (["--role=--nnodes"], ["--role=--nnodes"]),
        (["--role", "-x"], ["--role=-x"]),
        (["--role", "-1"], ["--role=-1"]),
        (["--role", ""], ["--role="]),
        (["--role="], ["--role="]),
        (["--rdzv-conf='a=1,b=2'"], ["--rdzv-conf='a=1,b=2'"]),
        (["-r", "3"], ["--redirects=3"]),
        (["-r3", "-t=0:1"], ["--redirects=3", "--tee=0:1"]),
        (["-t0:3,1:1"], ["--tee=0:3,1:1"]),
        (["--redirect=3", "--te", "1"], ["--redirects=3", "--tee=1"]),
        (["--rdzv-conf", "a=1,b=2"], ["--rdzv-conf=a=1,b=2"]),
        (["--nnodes", "1", "--nnodes", "2"], ["--nnodes=1", "--nnodes=2"]),
    ],
)
def test_spelling(typed: list[str], options: list[str]) -> None:
    assert split([*typed, S, "--r=16"]) == Split(tuple(options), S, ("--r=16",))


@pytest.mark.parametrize(
    "rest",
    [
        ["t.py", "--r=16", "--role=x", "-m", "y", "--nnodes", "9"],
        ["t.py", "--help", "--version"],
        ["t.py", "x", "--", "--nnodes", "--", "2"],
        ["t.py", "", "-", "--", "", " ", "\n", "$local_rank", "'", '"'],
        ["t.py", "caf\udce9", "\udcff\udcfe"],
        ["", "a"],
        ["-", "a"],
    ],
)
@pytest.mark.parametrize("before", [[], ["--"], ["--nnodes", "1"], ["--nnodes=1", "--"], ["-m"]])
def test_from_the_script_on_nothing_is_touched(before: list[str], rest: list[str]) -> None:
    found = split([*before, *rest])
    assert [found.script, *found.script_args] == rest


@given(st.lists(st.text(st.characters(), max_size=8) | st.sampled_from([f"--{f.name}" for f in FLAGS] + ["--", "-m"])))
def test_any_script_arguments_come_through(args: list[str]) -> None:
    dropped = args[:1] == ["--"]  # torchrun's parser drops it
    assert split(["--nnodes=1", "t.py", *args]).script_args == tuple(args[dropped:])
    assert split(["--", "t.py", *args]).script_args == tuple(args)


def test_dashes_right_behind_the_script_are_dropped_once() -> None:
    assert split(["-m", "t", "--", "--depth=2", "--", "x"]).script_args == ("--depth=2", "--", "x")
    assert split(["t.py", "--"]).script_args == ()
    assert split(["--", "t.py", "--", "--depth=2"]).script_args == ("--", "--depth=2")  # dropped before the script


def test_a_script_may_look_like_an_option_after_the_dashes() -> None:
    assert split(["--", "--nnodes", "2"]) == Split((), "--nnodes", ("2",))


def test_no_script() -> None:
    assert split(["--standalone"]) == Split(("--standalone",), None, ())
    assert split(["--"]) == Split((), None, ())


@pytest.mark.parametrize(
    ("typed", "says"),
    [
        (["--nodes", "2", S], "no such option '--nodes'; did you mean --nnodes"),
        (["--zzz", S], "see remuster --help"),
        (["--rdzv", "x", S], "short for several flags; write one of --rdzv-backend"),
        (["--", "--"], None),
        (["--log", "x", S], "--log-dir, --logs-specs"),
        (["--standalone=1", S], "--standalone takes no value"),
        (["--nnodes"], "--nnodes needs a value; write --nnodes N|MIN:MAX"),
        (["--log-dir", "--standalone", S], "--log-dir needs a value"),
        (["--log-dir", "-m", S], "--log-dir needs a value"),
        (["--log-dir", "--", S], "--log-dir needs a value"),
        (["-x", S], "no such option '-x'"),
        (["-mfoo"], "no such option '-mfoo'"),
        (["-r"], "-r needs a value; write -r N|RANK:N,..."),
        (["-t", "-m", S], "-t needs a value"),
    ],
)
def test_refused(typed: list[str], says: str | None) -> None:
    if says is None:
        assert split(typed).script == "--"
        return
    with pytest.raises(UsageError) as refusal:
        split(typed)
    assert says in str(refusal.value)
    assert "; " in str(refusal.value)
    assert "\n" not in str(refusal.value)


TORCHRUN = {
    "nnodes", "nproc-per-node", "rdzv-backend", "rdzv-endpoint", "rdzv-id", "rdzv-conf", "standalone", "max-restarts",
    "monitor-interval", "start-method", "event-log-handler", "role", "module", "no-python", "run-path", "log-dir",
    "redirects", "tee", "local-ranks-filter", "duplicate-stdout-filters", "duplicate-stderr-filters", "node-rank",
    "master-addr", "master-port", "local-addr", "logs-specs", "numa-binding", "signals-to-handle", "shutdown-timeout",
    "virtual-local-rank", "help",
}  # fmt: skip


def test_every_flag_of_torchrun_is_known() -> None:
    accepted = {flag.name for flag in FLAGS if not flag.ours}
    assert accepted == TORCHRUN


@pytest.mark.parametrize("name", sorted(TORCHRUN))
@pytest.mark.parametrize("spell", ["dash", "underscore"])
def test_every_flag_of_torchrun_is_taken(name: str, spell: str) -> None:
    typed = "--" + (name if spell == "dash" else name.replace("-", "_"))
    switch = not next(flag for flag in FLAGS if flag.name == name).metavar
    found = split([typed, S] if switch else [typed, "1", S])
    assert found == Split((f"--{name}" if switch else f"--{name}=1",), S, ())


def test_our_own_flags_make_no_abbreviation_of_torchruns_ambiguous() -> None:
    for name in TORCHRUN:
        for end in range(1, len(name) + 1):
            if [n for n in TORCHRUN if n.startswith(name[:end])] == [name]:
                try:
                    found = split([f"--{name[:end]}=1", S])
                except UsageError as refusal:
                    assert f"--{name} is torchrun's" in str(refusal) or "takes no value" in str(refusal)  # noqa: PT017
                else:
                    assert found.options == (f"--{name}=1",)
