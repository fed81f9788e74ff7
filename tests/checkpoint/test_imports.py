"""What loading this room costs the agent: never torch."""

from __future__ import annotations

import subprocess
import sys


def test_the_readers_side_never_loads_torch(child_environ: dict[str, str]) -> None:
    code = "import sys, remuster.checkpoint.resume; print({m.split('.')[0] for m in sys.modules} & {'torch', 'numpy'})"
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True, env=child_environ)
    assert done.stdout == "set()\n"


def test_the_state_helpers_load_torch_when_they_are_used(child_environ: dict[str, str]) -> None:
    code = (
        "import sys; from remuster.checkpoint import Cursor, TrainState, async_save, finish, restore, save; "
        "TrainState(model=None, optimizer=None); print({m.split('.')[0] for m in sys.modules} & {'torch', 'numpy'})"
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True, env=child_environ)
    assert done.stdout == "set()\n"
