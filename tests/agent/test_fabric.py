"""RDMA ports from a tree of real files, as the kernel lays it out."""

from __future__ import annotations

import os
from pathlib import Path

from remuster.agent import fabric
from remuster.agent.fabric import Fabric
from remuster.agent.linux import boottime
from remuster.agent.sources import Begun
from remuster.health.observed import FabricPort
from remuster.rendezvous.records import Round

BEGUN = Begun(Round(1), boottime(), ())


def port(sysfs: Path, device: str = "mlx5_0", number: int = 1, state: str = "4: ACTIVE", **counters: int) -> Path:
    folder = sysfs / device / "ports" / str(number)
    for name in ("counters", "hw_counters"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    (folder / "state").write_text(f"{state}\n")
    (folder / "phys_state").write_text("5: LinkUp\n" if "ACTIVE" in state else "3: Disabled\n")
    for name, n in counters.items():
        (folder / ("hw_counters" if name in fabric.HW_COUNTERS else "counters") / name).write_text(f"{n}\n")
    return folder


async def test_what_rose_and_what_went_down(tmp_path: Path) -> None:
    port(tmp_path, symbol_error=5, link_downed=1, port_xmit_data=10, local_ack_timeout_err=7)
    port(tmp_path, number=2, symbol_error=3)
    port(tmp_path, "mlx5_1")
    port(tmp_path, "mlx5_2", state="1: DOWN", symbol_error=1)
    source = Fabric(tmp_path)
    source.begin(BEGUN)
    assert await source.facts() == ()
    port(tmp_path, symbol_error=9, link_downed=1, port_xmit_data=90, local_ack_timeout_err=8)
    port(tmp_path, "mlx5_1", state="1: DOWN")
    port(tmp_path, "mlx5_2", state="1: DOWN", symbol_error=2)
    assert await source.facts() == (
        FabricPort("mlx5_0", 1, "ACTIVE", (("symbol_error", 4), ("local_ack_timeout_err", 1))),
        FabricPort("mlx5_1", 1, "DOWN (Disabled)"),
    )
    source.begin(BEGUN)
    assert await source.facts() == (), "each round counts from its own start"
    await source.close()


async def test_counters_that_are_reset_unreadable_or_missing_say_nothing(tmp_path: Path) -> None:
    folder = port(tmp_path, symbol_error=5, link_downed=5)
    source = Fabric(tmp_path)
    source.begin(BEGUN)
    assert await source.facts() == ()
    port(tmp_path, symbol_error=0)
    (folder / "counters" / "link_downed").write_text("N/A (no PMA)\n")
    assert await source.facts() == ()
    await source.close()


async def test_a_node_without_such_devices_lacks_nothing(tmp_path: Path) -> None:
    source = Fabric(tmp_path / "missing")
    source.begin(BEGUN)
    assert await source.facts() == ()
    await source.close()


async def test_a_device_that_hangs_is_lacking_and_holds_up_nobody(tmp_path: Path) -> None:
    port(tmp_path)
    source = Fabric(tmp_path)
    source.begin(BEGUN)
    assert await source.facts() == ()
    state = tmp_path / "mlx5_0" / "ports" / "1" / "state"
    state.unlink()
    os.mkfifo(state)  # whoever opens it waits for a writer
    begun = boottime()
    (fact,) = await source.facts()
    assert fact[0] == "RDMA ports"
    assert "a device may have died" in str(fact)
    assert boottime() - begun < fabric.READ_S + 1
    os.close(os.open(state, os.O_RDWR | os.O_NONBLOCK))
    await source.close()
