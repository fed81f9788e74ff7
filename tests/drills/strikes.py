"""What drills break: the strikes of the catalogue, each a function of the scene. Not a test module.

A strike that can be undone leaves how in ``scene.heal``. Those that need no more than hosts, commands and processes are
used on torchrun as well (``torchrun_beside``).
"""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

from drills.course import Scene
from drills.disk import HungDisk, mount_disk
from drills.held import HeldThread
from drills.lab import Host


# --- processes --------------------------------------------------------------------------------------------------------
def kill_rank(scene: Scene) -> None:
    scene.command.ranks[0].signal(signal.SIGKILL)


def kill_agent(scene: Scene) -> None:
    scene.command.agent.signal(signal.SIGKILL)


def kill_guardian(scene: Scene) -> None:
    scene.command.guardian.signal(signal.SIGKILL)


def kill_agent_and_guardian(scene: Scene) -> None:
    for process in (scene.command.guardian, scene.command.agent):
        process.signal(signal.SIGKILL)


def kill_keeper(scene: Scene) -> None:
    scene.command.keeper.signal(signal.SIGKILL)


def kill_all(scene: Scene) -> None:
    scene.victim.kill()


def power_off(scene: Scene) -> None:
    scene.victim.crash()


def freeze(scene: Scene) -> None:
    scene.victim.freeze()
    scene.heal = scene.victim.thaw


def stop_agent(scene: Scene) -> None:
    agent = scene.command.agent
    agent.signal(signal.SIGSTOP)
    scene.heal = lambda: agent.signal(signal.SIGCONT)


def stop_guardian(scene: Scene) -> None:
    scene.command.guardian.signal(signal.SIGSTOP)


def stop_agent_and_guardian(scene: Scene) -> None:
    for process in (scene.command.agent, scene.command.guardian):
        process.signal(signal.SIGSTOP)


def hold_the_loop(scene: Scene) -> None:
    """The agent's first thread stands in the kernel; those of gRPC and of files run on."""
    held = HeldThread(scene.command.agent.pid)
    scene.heal = held.release


# --- the network ------------------------------------------------------------------------------------------------------
def cut(scene: Scene) -> None:
    scene.victim.cut()
    scene.heal = scene.victim.heal


def cut_in(scene: Scene) -> None:
    scene.victim.cut(outgoing=False)
    scene.heal = scene.victim.heal


def cut_out(scene: Scene) -> None:
    scene.victim.cut(incoming=False)
    scene.heal = scene.victim.heal


def cut_from_store(scene: Scene) -> None:
    for host in scene.etcd.hosts:
        scene.victim.cut_from(host)
    scene.heal = scene.victim.heal


def cut_from_peers(scene: Scene) -> None:
    for host in scene.rest:
        scene.victim.cut_from(host)
    scene.heal = scene.victim.heal


# --- the store --------------------------------------------------------------------------------------------------------
def _signal_members(scene: Scene, hosts: list[Host], number: int) -> None:
    for host in hosts:
        scene.etcd.members[host.name].signal(number)


def kill_leading_member(scene: Scene) -> None:
    _signal_members(scene, [scene.etcd.leader()], signal.SIGKILL)


def stop_leading_member(scene: Scene) -> None:
    _signal_members(scene, [scene.etcd.leader()], signal.SIGSTOP)


def stop_majority(scene: Scene) -> None:
    """Not the leader: up to 3.5.12 one that wakes up alone revokes leases of healthy nodes (etcd issue 15247)."""
    leader = scene.etcd.leader()
    followers = [host for host in scene.etcd.hosts if host is not leader]
    _signal_members(scene, followers, signal.SIGSTOP)
    scene.heal = lambda: _signal_members(scene, followers, signal.SIGCONT)


def stop_store(scene: Scene) -> None:
    _signal_members(scene, scene.etcd.hosts, signal.SIGSTOP)
    scene.heal = lambda: _signal_members(scene, scene.etcd.hosts, signal.SIGCONT)


def restart_store(scene: Scene) -> None:
    (host,) = scene.etcd.hosts
    scene.etcd.end(host)
    scene.etcd.start_again(host)


def compact_store(scene: Scene) -> None:
    """All watches must resume at a revision that is gone."""
    scene.etcd.compact()
    restart_store(scene)


def fill_store(scene: Scene) -> None:
    scene.etcd.fill()
    scene.heal = scene.etcd.free


def fill_store_and_kill_rank(scene: Scene) -> None:
    fill_store(scene)
    kill_rank(scene)


def power_off_with_leading_member(scene: Scene) -> None:
    scene.etcd.lead_from(scene.victim)
    scene.victim.crash()


def ask_for_users(scene: Scene) -> None:
    password = scene.lab.directory / "password"
    password.write_text("a secret of the drill\n")
    password.chmod(0o600)
    scene.etcd.ask_for_users("worker", "a secret of the drill")
    scene.job.conf += f",username=worker,password_file={password}"


# --- what is slow, or wrong -------------------------------------------------------------------------------------------
def put_logs_on_a_disk(scene: Scene) -> None:
    mount_disk(scene.victim, scene.lab.directory / f"{scene.victim.name}-logs")


def hang_the_logs(scene: Scene) -> None:
    disk = HungDisk(scene.victim, scene.lab.directory / f"{scene.victim.name}-logs")
    scene.undo.callback(disk.thaw)
    scene.heal = disk.thaw


def slow_down(scene: Scene) -> None:
    """Each way, on each host."""
    for host in scene.hosts:
        host.delay(0.2)
    scene.heal = lambda: _heal_all(scene)


def lose_packets(scene: Scene) -> None:
    for host in scene.hosts:
        host.lose(0.2)
    scene.heal = lambda: _heal_all(scene)


def _heal_all(scene: Scene) -> None:
    for host in scene.hosts:
        host.heal()


def patient(scene: Scene) -> None:
    """The lease that there is by default."""
    scene.job.conf = "lease_ttl=15,kill_bound=2,last_call_timeout=20"


CLOCKS_S = {"h1": 600, "h2": -600, "h3": 0}


def set_clocks_apart(scene: Scene) -> None:
    """The wall clocks of agents and ranks, not that of etcd's host."""
    library = scene.lab.directory / "clock.so"
    source = Path(__file__).with_name("clock.c")
    subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
    for name, offset_s in CLOCKS_S.items():
        clock = scene.lab.directory / f"{name}.clock"
        clock.write_text(str(offset_s))
        scene.job.env[name] = {"LD_PRELOAD": str(library), "DRILL_CLOCK": str(clock)}


def step_clocks(scene: Scene) -> None:
    """One a day ahead, one two hours back, one half an hour ahead."""
    for name, offset_s in {"h1": 86400, "h2": -7200, "h3": 1800}.items():
        (scene.lab.directory / f"{name}.clock").write_text(str(offset_s))
