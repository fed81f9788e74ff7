"""Every world within reach of a few faults: the invariants hold in all of them, and each planted reading is found.

The explorer is the protocol's model checker with the product in its place. The node machine, the job machine, every
write, the key tree and the guardian's fence are the product's own (``agent/node*.py``, ``rendezvous/leader*.py``,
``writes.py``, ``snapshot.py``, ``records.py``, ``tree.py``, ``agent/fence.py``). What joins them (loop, crew, the
guardian's socket, lease, watches) is modelled in ``play.py``, ``calls.py`` and ``guardian.py``; what may happen is in
``moves.py`` and ``faults.py``, what must hold in ``truth.py``, the search in ``check.py``, and which searches are made
in ``settings.py``.

Covered: all orders of watch events, of the leader's decisions against everything else, of starts, kills and proofs, of
deadlines, expiries, rejoins, restarts; one or two faults of a kind: rank, agent, guardian, power, stopped agent, hung
loop, partition, outage of the store, leave, a write of unknown outcome applied late or never. ``ALL_LATE`` settings put
every call, answer and word of the guardian into every order as well.

Not covered: time is an assumption (a lease ends after its deadline, which comes after the kill); one rank status a
node; more than three nodes or two faults (``tests/sim`` plays those at random); joins, campaigns and revocations whose
outcome is unknown; the judge (a stub: one charge for a failed round that had started), ``--admit``, quarantine, places,
``--on-store-loss=hold``, time-outs of forming and of a leader that waits for a member. The words that the helper of a
dead agent's keeper writes decide nothing, and its revocation is the expiry of a swept agent's lease.
"""

from __future__ import annotations

from functools import cache

import pytest
from explore.check import Found, search
from explore.moves import TAKE
from explore.plants import PLANTS, Plant
from explore.setting import Setting
from explore.settings import FROZEN_MACHINE, LONG, SHORT

LONG_NAMES = {setting.name for setting in LONG}
# Each plant's setting is searched without the plant as well.
WHOLE = {s.name: s for s in (*SHORT, *(plant.setting for plant in PLANTS)) if s.name not in LONG_NAMES}


# Those that take longest are searched in the drills: make test has ten minutes.
DRILLS = (
    "1:2 from nothing: cut",
    "1:2: rank twice, ready held up",
    "1:2: cut, stop held up",
    "1:2: ranks finish, cut",
    "1:2 and a spare: power twice",
    "2 and a spare: outage",
)
WITH_DRILLS = [pytest.param(name, marks=pytest.mark.drill) if name in DRILLS else name for name in WHOLE]


@cache
def looked_at(name: str) -> Found:
    return search(WHOLE[name])


@pytest.mark.parametrize("name", WITH_DRILLS)
def test_all_holds(name: str) -> None:
    found = looked_at(name)
    assert not found.fault, found.told
    assert found.complete, found.told


@pytest.mark.timeout(400)  # alone it makes all searches itself
def test_every_kind_of_step_is_taken() -> None:
    missing = (
        set(TAKE) - {"freeze", "thaw"} - frozenset().union(*(looked_at(n).kinds for n in WHOLE if n not in DRILLS))
    )
    assert not missing


@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.name)
def test_plant_is_found(plant: Plant) -> None:
    found = search(plant.setting, plant.rules)
    print(found.told)
    assert found.fault in plant.breaks, found.told


def test_a_frozen_machine_is_beyond_every_protocol() -> None:
    """Hole 18: ranks that thaw together with their guardian run for an instant beside a later round."""
    found = search(FROZEN_MACHINE)
    assert found.fault == "1 one world", found.told
    assert "the machine thaws" in found.trace[-1]


@pytest.mark.soak
@pytest.mark.timeout(900)
@pytest.mark.parametrize("setting", LONG, ids=lambda setting: setting.name)
def test_soak(setting: Setting) -> None:
    found = search(setting)
    print(found.told)
    assert not found.fault, found.told
