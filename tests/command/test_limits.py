"""The command under low limits: it makes room for itself, or says in words which limit to raise; never a traceback.

The limits of processes count for all of a user and not for root, so root becomes somebody that nobody else is.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
from pathlib import Path

import pytest
from command.cluster import COMMAND, STEADY, Node, Place
from command.processes import read, until

from remuster.agent.node_lock import LOCKS

pytestmark = pytest.mark.process

SHORT = 75
LONGEST = 600  # characters: a sentence
NOBODY = "54321"
READING = "-all,+dac_read_search,+dac_override"  # the interpreter may lie in a home of root's
TOLD = ["/bin/sh", "-c", "ulimit -n"]


def run(place: Place, limit: tuple[str, ...], *args: str | Path) -> subprocess.CompletedProcess[str]:
    """Run the command by a program that sets ``limit``."""
    words = [*limit, str(COMMAND), *map(str, args)]
    return subprocess.run(
        words, env=place.env, cwd=place.folder, capture_output=True, text=True, timeout=60, check=False
    )


def under(limit: str) -> tuple[str, ...]:
    return ("sh", "-c", f'ulimit {limit} && exec "$@"', "sh")


def files(limit: str, place: Place, ranks: int) -> subprocess.CompletedProcess[str]:
    """Run ranks that print how many files they may open."""
    logs = place.folder / "logs"
    return run(place, under(limit), "--log-dir", logs, "--nproc-per-node", str(ranks), "--no-python", *TOLD)


def sentence(done: subprocess.CompletedProcess[str]) -> str:
    """Return the one sentence that the command ended with."""
    assert done.returncode == SHORT, done.stderr
    assert "Traceback" not in done.stderr
    assert "defect" not in done.stderr
    said = done.stderr.splitlines()[-1]
    assert said.startswith("remuster: ")
    assert len(said) < LONGEST
    return said


@pytest.mark.parametrize(("limit", "ranks"), [("-n 7", 1), ("-n 20", 1), ("-n 64", 5)])
def test_too_few_files_are_refused_before_anything_starts(place: Place, limit: str, ranks: int) -> None:
    """Red without ``_see_to_limits`` in keeper.py (7) and without the look in ``run_agent`` (64)."""
    done = files(limit, place, ranks)
    assert re.search(rf"needs \d+ open files, and {limit[3:]} are allowed here; raise .*ulimit -Hn", sentence(done))
    assert done.stdout == ""
    assert not (place.folder / "logs").exists() or not list((place.folder / "logs").iterdir())


@pytest.mark.parametrize(("soft", "ranks", "told"), [(7, 2, 24), (40, 16, 40)])
def test_a_soft_limit_is_raised_for_the_agent_and_the_ranks_keep_theirs(
    place: Place, soft: int, ranks: int, told: int
) -> None:
    done = files(f"-Sn {soft}", place, ranks)
    assert done.returncode == 0, done.stderr
    assert "cannot be shown" not in done.stderr
    assert done.stdout.split() == [str(told)] * ranks


def test_ranks_of_another_guardian_have_the_limit_of_the_first_ones(place: Place) -> None:
    """Red when ``Seat.spawn_guardian`` does not give the limit back."""
    shell = place.script("few.sh", f'ulimit -Sn 64; exec {COMMAND} "$@"\n')
    ranks = 8
    script = place.script(
        "t.py",
        "import pathlib, runpy, subprocess, sys\n"
        "pathlib.Path('told-' + __import__('os').environ['REMUSTER_ROUND']).write_text(\n"
        "    subprocess.run(['/bin/sh', '-c', 'ulimit -n'], capture_output=True, text=True).stdout)\n"
        f"sys.argv[0] = {str(STEADY)!r}\nrunpy.run_path({str(STEADY)!r}, run_name='__main__')\n",
    )
    folder = place.folder / "nodes" / "few"
    args = ("--max-restarts", "1", "--nproc-per-node", str(ranks), script, place.desk)
    node = Node(folder, ("--log-dir", folder / "logs", *args), place.env, place.folder, program=("sh", str(shell)))
    place.nodes.append(node)
    place.wait_round(1, ranks)
    assert int(read(node.agent, "limits").partition(b"Max open files")[2].split()[0]) > 64
    node.kill("guardian", signal.SIGKILL)
    place.wait_round(2, ranks)
    place.order("done")
    assert node.exit_code() == 0, node.say()
    assert [(place.folder / f"told-{n}").read_text() for n in (1, 2)] == ["64\n", "64\n"]


@pytest.mark.parametrize("kib", [20_000, 60_000])
def test_too_little_address_space_is_refused(place: Place, kib: int) -> None:
    done = run(place, under(f"-v {kib}"), "--no-python", "/bin/true")
    assert re.search(rf"needs \d+ MiB of address space, and ulimit -v is {kib}; raise it", sentence(done))


@pytest.mark.parametrize(("processes", "ranks"), [(1, 1), (2, 1), (4, 1), (10, 8)])
def test_too_few_processes_are_told(place: Place, processes: int, ranks: int) -> None:
    """Red where ``_unless_defect`` asks for no shortage: a traceback of fork's, or of a thread's."""
    if os.geteuid() != 0 or shutil.which("setpriv") is None or shutil.which("prlimit") is None:
        pytest.skip("needs root, setpriv and prlimit: the limit counts all processes of a user")
    become = ("setpriv", "--reuid", NOBODY, "--regid", NOBODY, "--clear-groups")
    powers = [f"--{kind}={READING}" for kind in ("inh-caps", "ambient-caps", "bounding-set")]
    limit = (*become, *powers, "prlimit", f"--nproc={processes}:{processes}")
    done = run(place, limit, "--nproc-per-node", str(ranks), "--no-python", "/bin/sleep", "5")
    assert f"ulimit -u is {processes}" in sentence(done)

    def theirs() -> list[str]:
        return [
            p for p in os.listdir("/proc") if p.isdigit() and b"\nUid:\t" + NOBODY.encode() in read(int(p), "status")
        ]

    until(lambda: not theirs(), lambda: f"left: {theirs()}", 5.0)
    shutil.rmtree(LOCKS / f"remuster-{NOBODY}", ignore_errors=True)
