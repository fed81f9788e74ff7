"""How soon a rank runs, and how soon its first line is on the console: remuster beside torchrun and a bare Python.

``python bench/first_line.py [RUNS]``: alternating runs, so that other work on the machine meets all of them alike. A
table of medians, and the same as one line of JSON. Run by ``make bench``; tests/command/test_first_line.py reads the
JSON. The script prints the clock, so both moments come from one run.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import time
import venv
from pathlib import Path

RUNS = 7
WHAT = ("ran", "shown", "ended")
SCRIPT = "import os, time\nos.write(1, b'%f\\n' % time.monotonic())\n"
OURS = "from remuster.launcher.entry import main; main()"
THEIRS = "import sys; from torch.distributed.run import main; sys.exit(main())"
ARGS = {  # what the console scripts do
    "python": ("-u",),
    "remuster": ("-c", OURS, "--nproc-per-node", "2"),
    "torchrun": ("-c", THEIRS, "--standalone", "--nproc-per-node", "2"),
}
Sample = tuple[float, float, float]  # ms from the start: the first rank ran, its line was shown, the command had ended


def measure(command: list[str], script: Path, env: dict[str, str]) -> Sample:
    """Run one command and time it."""
    began = time.monotonic()
    with subprocess.Popen(
        [*command, str(script)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=env,
        cwd=script.parent,
    ) as process:
        assert process.stdout is not None
        first = process.stdout.readline()
        shown = time.monotonic()
        rest = process.stdout.readlines()
        code = process.wait(60)
    ended = time.monotonic()
    assert code == 0, f"{command} ended with {code}"
    ran = min(float(line) for line in [first, *rest])
    return 1000 * (ran - began), 1000 * (shown - began), 1000 * (ended - began)


def environment(folder: Path) -> str:
    """Make an environment as an installation leaves it, and return its interpreter.

    An editable installation runs a finder of its own in every interpreter: 10 ms that no user of a wheel pays, agent
    and ranks alike.
    """
    venv.EnvBuilder(symlinks=True).create(folder)
    (site,) = folder.glob("lib/python*/site-packages")
    paths = [sysconfig.get_path("purelib"), sysconfig.get_path("platlib"), str(Path(__file__).parents[1])]
    (site / "paths.pth").write_text("\n".join(dict.fromkeys(paths)) + "\n")
    return str(folder / "bin" / "python")


def alternate(runs: int) -> dict[str, list[Sample]]:
    """Run all commands in turn, ``runs`` times; one round before that warms the caches and is not counted."""
    samples: dict[str, list[Sample]] = {name: [] for name in ARGS}
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "trivial.py"
        script.write_text(SCRIPT)
        python = environment(Path(folder) / "env")
        env = {**os.environ, "TMPDIR": folder, "XDG_RUNTIME_DIR": folder, "OMP_NUM_THREADS": "1"}
        env.pop("PYTHONDONTWRITEBYTECODE", None)  # an installation has its bytecode; a checkout writes it now
        for i in range(runs + 1):
            for name, args in ARGS.items():
                sample = measure([python, *args], script, env)
                if i:
                    samples[name].append(sample)
    return samples


def summary(samples: dict[str, list[Sample]]) -> dict[str, float]:
    """Return medians in ms, and the medians of torchrun's time over ours, pair by pair."""
    found: dict[str, float] = {}
    for name, all_of_it in samples.items():
        for what, times in zip(WHAT, zip(*all_of_it, strict=True), strict=True):
            found[f"{name}_{what}_ms"] = round(statistics.median(times), 1)
    pairs = list(zip(samples["remuster"], samples["torchrun"], strict=True))
    for i, what in enumerate(WHAT):
        found[f"ratio_{what}"] = round(statistics.median(theirs[i] / ours[i] for ours, theirs in pairs), 2)
    return found


def main(arguments: list[str]) -> None:
    runs = int(arguments[0]) if arguments else RUNS
    found = summary(alternate(runs))
    print(f"{f'medians of {runs} alternating runs':34}{'rank runs':>11}{'first line':>12}{'ended':>9}   ms")
    for name in ARGS:
        print(f"{name:34}" + "{:11.0f}{:12.0f}{:9.0f}".format(*(found[f"{name}_{w}_ms"] for w in WHAT)))
    print(f"{'torchrun / remuster':34}" + "{:11.1f}{:12.1f}{:9.1f}".format(*(found[f"ratio_{w}"] for w in WHAT)))
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1:])
