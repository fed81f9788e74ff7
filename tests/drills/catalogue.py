"""The faults of docs/faults.md, as data: what strikes, and what must come of it. Not a test module.

Played by ``course.play``; ``test_faults`` is a drill for each. ``theirs`` says why torchrun is not struck so.
"""

from __future__ import annotations

import signal
from typing import Any

from drills import strikes
from drills.course import (
    AT_ONCE_S,
    COLLECTIVE_S,
    ELECTION_S,
    GUARDIAN_ANSWER_S,
    RENEWAL_S,
    REVOKED_S,
    SILENT_S,
    After,
    Fault,
    Strike,
    Victim,
)
from drills.disk import TOOLS as DISK_TOOLS
from drills.job import LEASE_S

NO_GUARDIAN = "has no such process"
PEER_STORE = "its store is on one of the hosts: see the other cuts"
NO_ETCD = "has no etcd; see the loss of its leader's host"


def lost(name: str, title: str, strike: Strike, **more: Any) -> Fault:
    """A host falls silent, or as good as that."""
    given: dict[str, Any] = {"cls": "node_lost", "at": "victim", "charged": "node", "within_s": SILENT_S, **more}
    return Fault(name, title, strike, After.REST, **given)


def killed(name: str, title: str, strike: Strike, **more: Any) -> Fault:
    """Ranks die on a host whose agent lives and says so."""
    given: dict[str, Any] = {"cls": "killed_unknown", "at": "victim", "charged": "unknown", **more}
    return Fault(name, title, strike, After.ALL, **given)


def borne(name: str, title: str, strike: Strike, hold_s: float, **more: Any) -> Fault:
    """The round goes on."""
    return Fault(name, title, strike, After.ON, hold_s=hold_s, **more)


def outage(name: str, title: str, strike: Strike, **more: Any) -> Fault:
    """Every host fences itself, and all wait for the store."""
    given: dict[str, Any] = {
        "cls": "rdzv_lost",
        "charged": "rendezvous",
        "within_s": LEASE_S,
        "theirs": NO_ETCD,
        **more,
    }
    return Fault(name, title, strike, After.HEALED, hold_s=LEASE_S * 1.5, **given)


THREE = ("e1", "e2", "e3")
LEADER: dict[str, Any] = {"victim": Victim.LEADER}
REVOKED: dict[str, Any] = {"within_s": REVOKED_S, "exits": 137, "cls": "killed_unknown", "charged": "unknown"}
SWEPT = {**REVOKED, "within_s": AT_ONCE_S}  # the keeper kills the ranks first
CUTS: tuple[tuple[str, str, Strike, float, str | None], ...] = (
    ("cut", "cut off both ways", strikes.cut, SILENT_S, None),
    ("cut_in", "cut off, incoming only", strikes.cut_in, SILENT_S + RENEWAL_S, None),  # its next renewal still arrives
    ("cut_out", "cut off, outgoing only", strikes.cut_out, SILENT_S, None),
    ("cut_from_store", "cut off from etcd only", strikes.cut_from_store, SILENT_S, PEER_STORE),
)
CUT_FROM_PEERS = ("cut_from_peers", "cut off from the other hosts only", strikes.cut_from_peers, 0.0, None)

PROCESSES = (
    killed("rank_killed", "a rank killed", strikes.kill_rank),
    killed("rank_killed_leader", "a rank killed, on the leader's host", strikes.kill_rank, **LEADER),
    lost("agent_killed", "an agent killed", strikes.kill_agent, **REVOKED),
    lost("agent_killed_leader", "the leader's agent killed", strikes.kill_agent, **REVOKED, **LEADER),
    killed("guardian_killed", "a guardian killed", strikes.kill_guardian, theirs=NO_GUARDIAN),
    killed(
        "guardian_killed_leader", "the leader's guardian killed", strikes.kill_guardian, theirs=NO_GUARDIAN, **LEADER
    ),
    lost("both_killed", "agent and guardian killed", strikes.kill_agent_and_guardian, **SWEPT, theirs=NO_GUARDIAN),
    lost(
        "both_killed_leader",
        "agent and guardian killed, the leader's",
        strikes.kill_agent_and_guardian,
        **SWEPT,
        **LEADER,
        theirs=NO_GUARDIAN,
    ),
    Fault(
        "keeper_killed",
        "a keeper killed: the agent leaves in order",
        strikes.kill_keeper,
        After.REST,
        cls="leave",
        at="victim",
        exits=-signal.SIGKILL,
        theirs=NO_GUARDIAN,
    ),
    lost("all_killed", "all processes of a host killed (RST)", strikes.kill_all, exits=-signal.SIGKILL),
    lost(
        "all_killed_leader",
        "all processes of the leader's host killed (RST)",
        strikes.kill_all,
        exits=-signal.SIGKILL,
        **LEADER,
    ),
    lost("agent_stopped", "an agent stopped beyond its lease, then continued", strikes.stop_agent, rejoins=True),
    killed(
        "guardian_stopped",
        "a guardian stopped",
        strikes.stop_guardian,
        theirs=NO_GUARDIAN,
        within_s=AT_ONCE_S + GUARDIAN_ANSWER_S,
    ),
    lost("both_stopped", "agent and guardian stopped", strikes.stop_agent_and_guardian, exits=137, theirs=NO_GUARDIAN),
    lost(
        "loop_blocked",
        "an agent's event loop blocked beyond its lease",
        strikes.hold_the_loop,
        rejoins=True,
        theirs="see the agent stopped",
    ),
    lost("frozen", "a whole host frozen beyond its lease, then thawed", strikes.freeze, rejoins=True, frozen=True),
)
HOSTS = (
    lost("power_loss", "power loss of a host (silence)", strikes.power_off),
    lost("power_loss_leader", "power loss of the leader's host", strikes.power_off, **LEADER),
    lost(
        "power_loss_member",
        "power loss of a host that also has etcd's leader, of three",
        strikes.power_off_with_leading_member,
        within_s=SILENT_S + ELECTION_S,
        victim=Victim.FIRST,
        stores=("h1", "e1", "e2"),
        theirs=NO_ETCD,
    ),
    *(
        lost(name, f"a host {title}, healed after its lease", strike, rejoins=True, within_s=within_s, theirs=theirs)
        for name, title, strike, within_s, theirs in CUTS
    ),
    Fault(
        "cut_from_peers",
        "a host cut off from the other hosts only, and healed; the script's collectives time out",
        strikes.cut_from_peers,
        After.ALL,
        cls="collective_timeout",
        charged="hang",
        within_s=COLLECTIVE_S + LEASE_S,
        heals_early=True,
        arguments=(str(COLLECTIVE_S),),
    ),
    lost(
        "cut_leader", "the leader's host cut off both ways, healed after its lease", strikes.cut, rejoins=True, **LEADER
    ),
    *(
        borne(f"{name}_short", f"a host {title}, healed within its lease", strike, LEASE_S / 6, theirs=theirs)
        for name, title, strike, _, theirs in (*CUTS, CUT_FROM_PEERS)
    ),
)
STORE = (
    borne(
        "leading_member_killed",
        "etcd's leader killed, of three",
        strikes.kill_leading_member,
        1.0,
        stores=THREE,
        proof=True,
        theirs=NO_ETCD,
    ),
    borne(
        "leading_member_stopped",
        "etcd's leader suspended, of three",
        strikes.stop_leading_member,
        1.0,
        stores=THREE,
        proof=True,
        theirs=NO_ETCD,
    ),
    borne(
        "majority_stopped_short",
        "etcd without a majority for less than a lease",
        strikes.stop_majority,
        LEASE_S / 6,
        stores=THREE,
        theirs=NO_ETCD,
    ),
    outage("majority_stopped", "etcd without a majority for more than a lease", strikes.stop_majority, stores=THREE),
    borne(
        "store_stopped_short",
        "etcd, of one member, suspended for less than a lease",
        strikes.stop_store,
        LEASE_S / 6,
        theirs=NO_ETCD,
    ),
    outage("store_stopped", "etcd, of one member, suspended for more than a lease", strikes.stop_store),
    borne("store_restarted", "etcd restarted", strikes.restart_store, 1.0, proof=True, theirs=NO_ETCD),
    borne(
        "store_compacted", "etcd compacted, all watches broken", strikes.compact_store, 1.0, proof=True, theirs=NO_ETCD
    ),
    borne(
        "store_full",
        "etcd out of space",
        strikes.fill_store,
        LEASE_S,
        options=("--quota-backend-bytes", str(4 << 20)),
        theirs=NO_ETCD,
    ),
    Fault(
        "store_full_rank_killed",
        "etcd out of space, and a rank killed",
        strikes.fill_store_and_kill_rank,
        After.WAITS,
        cls="killed_unknown",
        at="victim",
        charged="unknown",
        within_s=LEASE_S,
        hold_s=LEASE_S,
        says="is out of space (its quota is used up) and takes no more writes",
        options=("--quota-backend-bytes", str(4 << 20)),
        theirs=NO_ETCD,
    ),
    borne(
        "tokens_expired",
        "etcd's tokens expire",
        lambda scene: None,
        LEASE_S,
        before=strikes.ask_for_users,
        proof=True,
        options=("--auth-token-ttl", "2"),
        theirs=NO_ETCD,
    ),
)
WRONG = (
    borne(
        "logs_hung",
        "the log directory hangs for 10 s",
        strikes.hang_the_logs,
        10.0,
        before=strikes.put_logs_on_a_disk,
        needs=DISK_TOOLS,
        victim=Victim.SECOND,
        theirs="not run",
    ),
    borne(
        "logs_hung_minute",
        "the log directory hangs for 60 s",
        strikes.hang_the_logs,
        60.0,
        before=strikes.put_logs_on_a_disk,
        needs=DISK_TOOLS,
        victim=Victim.SECOND,
        soak=True,
        theirs="not run",
    ),
    borne("slow", "200 ms of latency each way, on all hosts", strikes.slow_down, LEASE_S, proof=True, within_s=LEASE_S),
    borne(
        "lossy",
        "20 % of all packets lost each way, on all hosts",
        strikes.lose_packets,
        LEASE_S,
        before=strikes.patient,
        proof=True,
        within_s=LEASE_S * 2,
    ),
    borne(
        "clocks",
        "wall clocks ± 10 minutes apart, then stepped by hours and a day",
        strikes.step_clocks,
        LEASE_S,
        before=strikes.set_clocks_apart,
        needs=("cc",),
        proof=True,
    ),
)

FAULTS = (*PROCESSES, *HOSTS, *STORE, *WRONG)
