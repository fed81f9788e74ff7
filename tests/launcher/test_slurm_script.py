"""The batch script is one that bash reads, and does what it says: run with an srun and a scontrol of ours."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest

from remuster.launcher.argv import split
from remuster.launcher.errors import UsageError
from remuster.launcher.slurm_script import Wish, main, script

WIDE = Wish(nodes=4, spares=1, gpus=8, cpus=96, time="24:00:00")


class Ran(NamedTuple):
    """One run of a batch script."""

    code: int
    srun: list[str]  # its arguments
    token: str  # the token file as srun's task saw it: mode and number of words
    scontrol: list[str]


def directives(text: str) -> list[str]:
    return [line.removeprefix("#SBATCH ") for line in text.splitlines() if line.startswith("#SBATCH ")]


def made(line: list[str], wish: Wish = WIDE) -> str:
    return script(wish, split(line))


def run(folder: Path, text: str, code: int = 0, **environ: str) -> Ran:
    """Run a batch script in ``folder``, whose srun ends with ``code``."""
    tools = folder / "tools"
    tools.mkdir(exist_ok=True)
    for name, body in (
        (
            "srun",
            f'printf "%s\\0" "$@" > {folder}/srun; stat -c %a .remuster-* > {folder}/mode 2>/dev/null; exit {code}',
        ),
        ("scontrol", f'echo "$@" > {folder}/scontrol'),
    ):
        (tools / name).write_text(f"#!/bin/bash\n{body}\n")
        (tools / name).chmod(0o755)
    variables = {"PATH": f"{tools}:/usr/bin:/bin", "SLURM_JOB_ID": "812", "SLURM_CPUS_ON_NODE": "64", **environ}
    batch = folder / "job.sh"
    batch.write_text(text)
    assert subprocess.run(["bash", "-n", batch], check=False, timeout=30).returncode == 0
    done = subprocess.run(
        ["bash", batch], cwd=folder, env=variables, capture_output=True, timeout=30, text=True, check=False
    )
    assert done.stderr == ""
    assert not list(folder.glob(".remuster-*"))  # whatever the end
    said, mode = folder / "scontrol", folder / "mode"
    words = (folder / "srun").read_text().split("\0")[:-1]
    found = said.read_text().split() if said.exists() else []
    return Ran(done.returncode, words, mode.read_text().strip(), found)


def test_what_is_asked_of_slurm() -> None:
    assert directives(made(["train.py"])) == [
        *("--job-name=train", "--nodes=5", "--ntasks-per-node=1", "--gpus-per-node=8", "--cpus-per-task=96"),
        *("--time=24:00:00", "--output=%x-%j.out", "--signal=USR1@120", "--open-mode=append", "--requeue", "--no-kill"),
    ]
    small = directives(made(["--notice-signal", "SIGUSR2", "a b.py"], Wish()))
    assert {"--job-name='a b'", "--nodes=1", "--exclusive", "--signal=USR2@120"} <= set(small)
    assert not any("signal" in line for line in directives(made(["--notice-signal=none", "t.py"])))
    assert not any(line.startswith(("--gpus", "--cpus", "--time")) for line in small)


def test_the_command_arrives_word_for_word(tmp_path: Path) -> None:
    args = ["--lr", "3e-4", "it's", "$HOME `id` $(id)", 'a "b"', "*", "", "--", "${local_rank}", "näher"]
    ran = run(tmp_path, made(["--max-restarts", "9", "--", "my train.py", *args]), SLURM_CPUS_PER_TASK="96")
    at = ran.srun.index("remuster")
    assert ran.srun[:at] == [
        *("--no-kill", "--kill-on-bad-exit=0", "--wait=0", "--ntasks-per-node=1", "--cpus-per-task=96"),
    ]
    token = ran.srun[at + 4]
    assert ran.srun[at + 1 : at + 4] == ["--nnodes=4", "--max-restarts=9", "--requeue"]
    assert token == f"--rdzv-conf=token_file={tmp_path}/.remuster-812-0"
    assert ran.srun[at + 5 :] == ["--", "my train.py", *args]
    assert split(ran.srun[at + 1 :]).script_args == tuple(args)
    assert ran.token == "600"


def test_no_token_where_none_is_used(tmp_path: Path) -> None:
    for line, wish in (
        (["train.py"], Wish()),
        (["--rdzv-backend=etcd", "--rdzv-endpoint=etcd1", "t.py"], Wish(nodes=2)),
        (["--rdzv-conf=lease_ttl=20,token_file=mine", "t.py"], WIDE),
    ):
        assert "$token" not in made(line, wish)
    ran = run(tmp_path, made(["t.py"], Wish()))
    assert "--cpus-per-task=64" in ran.srun


def test_the_token_stands_behind_what_rdzv_conf_says(tmp_path: Path) -> None:
    ran = run(tmp_path, made(["--rdzv-conf=lease_ttl=20,launch_id=a b", "t.py"]))
    assert [word for word in ran.srun if "rdzv-conf" in word] == [
        f"--rdzv-conf=lease_ttl=20,launch_id=a b,token_file={tmp_path}/.remuster-812-0"
    ]
    assert ran.token == "600"


@pytest.mark.parametrize("code", [0, 1, 2, 69, 75, 137])
def test_exit_codes(tmp_path: Path, code: int) -> None:
    ran = run(tmp_path, made(["t.py"]), code)
    assert ran.code == code
    assert ran.scontrol == (["requeue", "812"] if code == 75 else [])


def test_a_job_is_not_requeued_for_ever(tmp_path: Path) -> None:
    """Twenty times when it ends within ten minutes; SECONDS is bash's own, and counts from what it is set to."""
    assert run(tmp_path, made(["t.py"]), 75, SLURM_RESTART_COUNT="19").scontrol == ["requeue", "812"]
    (tmp_path / "scontrol").unlink()
    ran = run(tmp_path, made(["t.py"]), 75, SLURM_RESTART_COUNT="20")
    assert (ran.code, ran.scontrol) == (75, [])
    assert run(tmp_path, made(["t.py"]), 75, SLURM_RESTART_COUNT="20", SECONDS="601").scontrol == ["requeue", "812"]


@pytest.mark.parametrize(
    ("line", "wish", "why"),
    [
        ([], WIDE, "no script given"),
        (["t.py", "a\nrm -rf x"], WIDE, "line break"),
        (["t.py\n#SBATCH --uid=0"], WIDE, "line break"),
        (["t.py", "a\x1bb"], WIDE, "control character"),
        (["t.py", "\udce9"], WIDE, "control character"),
        (["t.py"], WIDE._replace(output="a\nb"), "line break"),
        (["t.py"], WIDE._replace(time="1\n"), "line break"),
        (["--nnodes", "2", "t.py"], WIDE, "--spares and --nnodes"),
        (["--no-such", "t.py"], WIDE, "no such option"),
    ],
)
def test_what_is_refused(line: list[str], wish: Wish, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        made(line, wish)


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = "--nodes 2 --gpus-per-node 4 --time 5 --max-restarts 3 --log-dir logs t.py --nodes 7"
    assert main(line.split(), {}) == 0
    said = capsys.readouterr()
    assert "#SBATCH --nodes=2\n" in said.out
    assert "-- t.py --nodes 7\n" in said.out
    assert said.err == "remuster slurm-script: no --checkpoint-dir: a requeued job begins anew\n"
    assert main(["--max-restarts", "3", "--time", "5", "t.py"], {}) == 2
    assert "give slurm-script's own options first" in capsys.readouterr().err
    for bad in (["--nodes", "0", "t.py"], ["--nodes", "x", "t.py"], [], ["--bad", "t.py"]):
        assert main(bad, {}) == 2
        said = capsys.readouterr()
        assert said.out == ""
        assert said.err.startswith("remuster slurm-script: ")
        assert said.err.count("\n") == 1
