"""Which signals stop a job or announce its end, and how long ranks then have: what may be asked for, and in which words
the rest is refused."""

from __future__ import annotations

import pytest
from launcher_lines import Command

from remuster.launcher import values
from remuster.launcher.errors import UsageError


def test_by_default_four_signals_and_30_s(command: Command) -> None:
    spec = command.spec("t.py")
    assert (spec.grace_s, spec.stop_signals, spec.notice_signals) == (30.0, (), ())


def test_torchruns_own_variable_for_the_grace(command: Command) -> None:
    variable = {"TORCH_ELASTIC_SHUTDOWN_TIMEOUT": "120"}
    assert command.spec("t.py", **variable).grace_s == 120.0
    assert command.spec("t.py", **variable, PET_SHUTDOWN_TIMEOUT="60").grace_s == 60.0
    assert command.spec("--shutdown-timeout=0 t.py", **variable).grace_s == 0.0
    command.started.clear()
    said = command.refusal("t.py", TORCH_ELASTIC_SHUTDOWN_TIMEOUT="soon")
    assert "TORCH_ELASTIC_SHUTDOWN_TIMEOUT is 'soon', which is no number" in said


@pytest.mark.parametrize(
    ("text", "numbers", "ignored"),
    [
        ("", (), ()),
        ("SIGTERM,SIGINT,SIGHUP,SIGQUIT", (), ()),
        (" SIGUSR1 , SIGXCPU,SIGUSR1", (10, 24), ()),
        ("SIGUSR2,SIGFOO,SIGCHLD,usr1", (12, 10), ("SIGFOO", "SIGCHLD")),
    ],
)
def test_signals_to_handle(text: str, numbers: tuple[int, ...], ignored: tuple[str, ...]) -> None:
    assert values.stop_signals("--signals-to-handle", text) == (numbers, ignored)


def test_a_name_that_means_nothing_is_said_and_passed_over(command: Command) -> None:
    assert command.spec("--signals-to-handle=SIGTERM,SIGTREM t.py").stop_signals == ()
    assert "--signals-to-handle: ignored, as no signal that can stop a job here: SIGTREM" in command.stderr


@pytest.mark.parametrize("word", ["SIGKILL", "SIGSTOP"])
def test_what_no_program_can_handle(word: str) -> None:
    with pytest.raises(UsageError, match=f"^--signals-to-handle holds {word}, which no program can handle; take"):
        values.stop_signals("--signals-to-handle", f"SIGTERM,{word}")


@pytest.mark.parametrize(("text", "number"), [("SIGUSR1", 10), ("usr2", 12), ("XCPU", 24)])
def test_notice_signal(text: str, number: int) -> None:
    assert values.notice_signal("--notice-signal", text) == number


@pytest.mark.parametrize(
    ("text", "why"),
    [("SIGTERM", ", and that stops the job"), ("", ""), ("SIGKILL", ""), ("10", ""), ("USR1,USR2", "")],
)
def test_bad_notice_signal(text: str, why: str) -> None:
    with pytest.raises(UsageError) as refusal:
        values.notice_signal("--notice-signal", text)
    assert str(refusal.value) == f"--notice-signal is {text!r}{why}; give SIGUSR1, SIGUSR2, SIGXCPU, or none"


@pytest.mark.parametrize(
    ("line", "notices", "stops"),
    [
        ("t.py", (10, 12), ()),
        ("--notice-signal=USR2 t.py", (12,), ()),
        ("--notice-signal=none t.py", (), ()),
        ("--signals-to-handle=SIGTERM,SIGUSR2 t.py", (10,), (12,)),
    ],
)
def test_under_slurm_nothing_need_be_typed(
    command: Command, line: str, notices: tuple[int, ...], stops: tuple[int, ...]
) -> None:
    spec = command.spec(line, SLURM_JOB_ID="812", SLURM_STEP_ID="0")
    assert (spec.notice_signals, spec.stop_signals) == (notices, stops)


def test_a_requeue_is_slurms(command: Command) -> None:
    assert command.spec("--requeue t.py", SLURM_JOB_ID="812").requeue is True
    assert command.spec("t.py", SLURM_JOB_ID="812").requeue is False
    assert "--requeue is for a job of Slurm's, and SLURM_JOB_ID is not set; " in command.refusal("--requeue t.py")


def test_one_signal_cannot_do_both(command: Command) -> None:
    said = command.refusal("--notice-signal=USR1 --signals-to-handle=SIGTERM,SIGUSR1 t.py")
    assert "--notice-signal is 'USR1', and --signals-to-handle names it too; take it out of one of them" in said
