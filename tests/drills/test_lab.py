"""The lab itself: hosts are machines of their own, faults are what they are called, nothing outlives its maker."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from drills.lab import Host, Lab
from drills.sight import until

pytestmark = pytest.mark.drill

_CONNECT = (
    "import socket, sys; s = socket.socket(); s.settimeout(0.4)\n"
    "try: s.connect((sys.argv[1], 9))\n"
    "except ConnectionRefusedError: print('refused')\n"
    "except OSError: print('silence')"
)
_TIME = "import socket, sys, time; s = socket.socket(); at = time.monotonic()\n" + (
    "try: s.connect((sys.argv[1], 9))\nexcept ConnectionRefusedError: print(time.monotonic() - at)"
)
_MAKER = (
    "import sys, time; from pathlib import Path; from drills.lab import Lab\n"
    "lab = Lab(Path(sys.argv[1])); (host,) = lab.host('h1')\n"
    "_, process = host.spawn(['sleep', '1000'], {'PATH': '/usr/bin:/bin'}, Path(sys.argv[1], 'out'))\n"
    "print(host.init, process.pid, lab.cgroup or '', flush=True); time.sleep(1000)"
)


def asked(host: Host, other: Host) -> str:
    """What a connection from one host to another meets: nobody listens, so an answer is a refusal."""
    return host.sh(f'{sys.executable} -S -E -c "{_CONNECT}" {other.address}').strip()


def test_a_host_is_a_machine(lab: Lab) -> None:
    h1, h2 = lab.host("h1", "h2")
    ids = "cat /proc/sys/kernel/random/boot_id; [ ! -e /etc/machine-id ] || cat /etc/machine-id"
    first = h1.sh(ids).split()
    assert h1.sh("hostname").strip() == "h1"
    assert h1.sh("getent hosts h2").split() == [h2.address, "h2"]
    assert not set(first) & set(h2.sh(ids).split())
    h1.sh("touch /dev/shm/mine /run/mine")
    assert "mine" not in h2.sh("ls /dev/shm /run")
    h1.crash()
    h1.boot()
    second = h1.sh(ids).split()
    assert second[0] != first[0]
    assert second[1:] == first[1:]
    assert "mine" not in h1.sh("ls /dev/shm /run")


def test_faults_of_the_network(lab: Lab) -> None:
    h1, h2, h3 = lab.host("h1", "h2", "h3")
    faults = {
        "both ways": lambda: h2.cut(),
        "incoming": lambda: h2.cut(outgoing=False),
        "outgoing": lambda: h2.cut(incoming=False),
        "pair": lambda: h2.cut_from(h1),
        "carrier": lambda: h2.unplug(),
        "loss of everything": lambda: h2.lose(1.0),
    }
    for name, fault in faults.items():
        assert asked(h1, h2) == "refused", f"before {name}"
        fault()
        assert asked(h1, h2) == "silence", name
        assert asked(h3, h2) == ("refused" if name == "pair" else "silence"), name
        h2.heal()
    h2.crash()
    assert asked(h1, h2) == "silence"
    h2.boot()
    assert asked(h1, h2) == "refused"


def test_a_delay_is_as_long_as_asked(lab: Lab) -> None:
    h1, h2 = lab.host("h1", "h2")
    for delay_s in (0.2, 0.0):
        if delay_s:
            h2.delay(delay_s)
        took_s = float(h1.sh(f'{sys.executable} -S -E -c "{_TIME}" {h2.address}'))
        assert took_s >= delay_s
        assert took_s < 0.2 or delay_s
        h2.heal()


def test_nothing_outlives_its_maker(lab: Lab, tmp_path: Path) -> None:
    """Killed as hard as can be, it leaves an empty cgroup at most, which the next lab removes."""
    (tmp_path / "other").mkdir()
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(
        [sys.executable, "-c", _MAKER, str(tmp_path / "other")], env=env, stdout=subprocess.PIPE, text=True
    ) as maker:
        assert maker.stdout is not None
        init, process, *cgroup = maker.stdout.readline().split()
        maker.send_signal(signal.SIGKILL)
    until(lambda: not any(Path("/proc", pid).exists() for pid in (init, process)), "its host is gone")
    (tmp_path / "next").mkdir()
    Lab(tmp_path / "next").close()
    assert not any(Path(path).exists() for path in cgroup)
