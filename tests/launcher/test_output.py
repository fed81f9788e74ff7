"""What of the ranks' output goes where, as the command line says it: torchrun's values, and refusals."""

from __future__ import annotations

from pathlib import Path

import pytest
from launcher_lines import Command

from remuster.agent.spec import Output, Streams

TEMPLATE = "TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE"


@pytest.mark.parametrize(
    ("line", "output"),
    [
        ("", Output()),
        ("-r 0 -t 0", Output()),
        ("-r3 -t 1", Output(Streams(3), Streams(1))),
        ("-r 0:3,1:0,2:1,3:2", Output(Streams(0, ((0, 3), (1, 0), (2, 1), (3, 2))))),
        ("-t 0:1,0:2", Output(tee=Streams(0, ((0, 2),)))),  # the last one counts
        ("-t 10:3,123:1", Output(tee=Streams(0, ((10, 3), (123, 1))))),  # which torchrun cannot say
        ("--local-ranks-filter=", Output()),
        ("--local-ranks-filter=2,0,2", Output(only=(0, 2))),
        ("-t 3 --duplicate-stdout-filters=a,,b,c", Output(tee=Streams(3), stdout_filters=("a,b", "c"))),
        ("-t 3 --duplicate-stderr-filters=,,", Output(tee=Streams(3), stderr_filters=(",",))),
        ("--log-limit=1M", Output(limit=1 << 20)),
        ("--log-limit=2GiB --log-dir /dev/null", Output(limit=2 << 30)),
        ("--event-log-handler=dynamic_rendezvous --logs-specs=default", Output()),
    ],
)
def test_torchruns_values(command: Command, line: str, output: Output) -> None:
    assert command.spec(f"{line} t.py").output == output
    assert "not used" not in command.stderr
    assert "no stdout is tee'd" not in command.stderr


def test_numbers_with_spaces_between(command: Command) -> None:
    assert command.spec("", ["--local-ranks-filter", "0, 3", "t.py"]).output.only == (0, 3)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("-r 4", "--redirects is '4'; give 0 (none), 1 (stdout), 2 (stderr) or 3 (both)"),
        ("-r=", "--redirects is ''; give 0"),
        ("--tee=1:a", "--tee is '1:a'; give 0"),
        ("--tee=3,1:1", "--tee is '3,1:1'"),
        ("--tee=1:3,", "--tee is '1:3,'"),
        ("--tee=-1:3", "--tee is '-1:3'"),
        ("--tee=0:4", "--tee is '0:4'"),
        ("--local-ranks-filter=-1", "--local-ranks-filter is '-1'; give local ranks with commas between"),
        ("--local-ranks-filter=0,,1", "--local-ranks-filter is '0,,1'"),
        ("--local-ranks-filter=all", "--local-ranks-filter is 'all'"),
        ("--duplicate-stdout-filters=", "--duplicate-stdout-filters is '' and holds an empty text"),
        ("--duplicate-stderr-filters=a,", "--duplicate-stderr-filters is 'a,' and holds an empty text"),
        ("--log-limit=1023K", "--log-limit is '1023K'; give a size such as 500M or 10G, 1M or more"),
        (
            "--event-log-handler=scuba",
            "'scuba', which is not registered; give one of null, console, dynamic_rendezvous",
        ),
        ("--log-writer=me", "--log-writer is 'me'; give auto, rank, agent"),
        ("--logs-specs=DOESNOT_EXIST", "no installed package has registered that in torchrun.logs_specs; leave it out"),
    ],
)
def test_refused(command: Command, line: str, says: str) -> None:
    assert says in command.refusal(f"{line} t.py")


def test_a_refusal_names_the_variable(command: Command) -> None:
    assert "PET_TEE is 'x'" in command.refusal("t.py", PET_TEE="x")


def test_a_registered_class_for_files_is_refused_by_what_it_is(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Red when ``plugins.logs_specs`` takes every registered name: the class would be silently not used."""
    info = tmp_path / "site" / "theirs-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[torchrun.logs_specs]\nmine = theirs.logs:Specs\n")
    monkeypatch.syspath_prepend(str(info.parent))
    said = command.refusal("--logs-specs=mine t.py")
    assert (
        "--logs-specs is 'mine', which is theirs.logs:Specs: a class of torch's, which remuster does not load" in said
    )


def test_the_prefix_comes_from_torchruns_variable(command: Command) -> None:
    assert command.spec("t.py", **{TEMPLATE: "[rank${rank}]: "}).output.prefix == "[rank${rank}]: "
    assert command.spec("t.py", **{TEMPLATE: ""}).output == Output()


def test_without_files_all_is_shown_as_by_torchrun(command: Command) -> None:
    """Red when ``choose`` does not look at --log-dir."""
    spec = command.spec("--log-dir /dev/null -r 3 --tee 1 --local-ranks-filter 0 t.py")
    assert spec.output == Output()
    assert "--log-dir /dev/null: as with torchrun all streams are shown then" in command.stderr
    command.spec("--log-dir /dev/null -r 0 t.py")
    assert "all streams are shown then" not in command.stderr


@pytest.mark.parametrize(
    ("tee", "said"), [("0", True), ("2", True), ("0:2,1:0", True), ("1", False), ("0:0,1:3", False)]
)
def test_filters_without_a_teed_stream_are_said_to_copy_nothing(command: Command, tee: str, said: bool) -> None:
    command.spec(f"--duplicate-stdout-filters=a --tee {tee} t.py")
    assert ("no stdout is tee'd; give --tee as well" in command.stderr) == said
