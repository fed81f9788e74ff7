"""docs/differences.md, made of the two lists that the tests here compare with. Pure; used by `test_differences`."""

from __future__ import annotations

from dropin.behaviour import CHAPTERS, Behaviour
from dropin.differences import DIFFERENCES, OURS

_HEAD = f"""# Different from torchrun

Written by a test, not edited:
`REMUSTER_DIFFERENCES=docs/differences.md .venv/bin/pytest tests/dropin/test_differences.py`
Compared with torchrun 2.13. Where this page is silent a command line should mean the same to both. The tests below
`tests/dropin` run both programs side by side, and what differs in a rank and is not here fails them.

## What a rank sees

Arguments, working directory, open files, limits, signals and environment are the same, but for these variables, and
for those that begin with `{OURS}`, which only our ranks have. Under Slurm ranks ignore SIGUSR1 and SIGUSR2 until they
handle them: Slurm sends them to all processes of a step, and they are a notice there ([signals.md](signals.md)).

| variable | why it differs |
| --- | --- |
"""


def render() -> str:
    """Return the page."""
    rows = "".join(f"| `{difference.name}` | {difference.reason} |\n" for difference in DIFFERENCES)
    return _HEAD + rows + "".join(_chapter(title, *listed) for title, listed in CHAPTERS.items())


def _chapter(title: str, *listed: Behaviour) -> str:
    head = f"\n## {title}\n\n| | torchrun | remuster | because | shown by |\n| --- | --- | --- | --- | --- |\n"
    rows = (f"| {one.what} | {one.torchrun} | {one.ours} | {one.reason} | {_shown(one.shown)} |\n" for one in listed)
    return head + "".join(rows)


def _shown(where: str) -> str:
    path, _, name = where.partition("::")
    return f"[faults.md](faults.md): {name}" if path == "docs/faults.md" else f"`{path}`"
