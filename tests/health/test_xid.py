"""The catalogue of XIDs, and what decides whom: scenario B31."""

from __future__ import annotations

import pytest

from remuster.health.classes import all_classes
from remuster.health.errors import HealthError
from remuster.health.xid import Recovery, Role, catalogue, lookup, override, recovery_of, role_of

APPLICATION = (13, 31, 68, 69)
CONSEQUENCES = (43, 45, 137)
RESET = (46, 48, 62, 64, 79, 95, 109, 110, 119, 120, 140, 143, 158, 167, 171, 172)


def test_every_row_names_a_class_of_the_list_and_known_words() -> None:
    for xid in catalogue().values():
        assert xid.cls in all_classes()
        assert xid.node in ("none", "count", "repeat", "reset", "reboot", "repair", "said")
        assert xid.mnemonic == xid.mnemonic.strip() != ""
        assert (xid.role is Role.IGNORE) <= (xid.node == "none")


def test_b31_application_xids_are_told_from_hardware() -> None:
    for code in APPLICATION:
        assert lookup(code).application, code
        assert not lookup(code).needs_reset, code
        assert not lookup(code).hardware, code
    for code in CONSEQUENCES:
        assert lookup(code).role is Role.CONSEQUENCE
        assert not lookup(code).hardware
    for code in RESET:
        assert lookup(code).hardware, code
        assert lookup(code).needs_reset, code
    for code in (63, 92, 121):
        assert lookup(code).role is Role.WATCH
    assert lookup(94).hardware
    assert not lookup(94).needs_reset  # contained: a restart of the program is enough
    assert lookup(9999).role is Role.WATCH


def test_b31_a_site_may_say_otherwise() -> None:
    table = override({31: "gpu_lost", 79: "watch", 48: "ignore", 7777: "gpu_ecc"})
    assert table[31].hardware
    assert table[31].needs_reset
    assert (table[79].role, table[48].role) == (Role.WATCH, Role.IGNORE)
    assert table[7777].cls == "gpu_ecc"
    assert table[13] == lookup(13)
    with pytest.raises(HealthError, match=r"XID 31: 'bogus' is no class of failure, nor 'watch' nor 'ignore'"):
        override({31: "bogus"})


@pytest.mark.parametrize(
    ("text", "recovery"),
    [
        ("GPU recovery action changed from 0x0 (None) to 0x4 (Drain and Reset)", Recovery.DRAIN_AND_RESET),
        ("GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)", Recovery.RESET),
        ("GPU recovery action changed from 0x1 (GPU Reset Required) to 0x2 (Node Reboot Required)", Recovery.REBOOT),
        ("GPU recovery action changed from 0x0 (None) to 0x2 (OS Reboot)", Recovery.REBOOT),
        ("GPU recovery action changed from 0x0 (None) to 0x3 (Drain P2P)", Recovery.DRAIN_P2P),
        ("GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)", Recovery.NONE),
        ("GPU has fallen off the bus", Recovery.NONE),
    ],
)
def test_the_drivers_own_words(text: str, recovery: Recovery) -> None:
    assert recovery_of(text) is recovery
    assert role_of(lookup(154), text) is (Role.ROOT if recovery else Role.IGNORE)


def test_nvlink5_says_itself_whether_it_is_fatal() -> None:
    for code in range(144, 151):
        assert role_of(lookup(code), "NETIR Nonfatal XC0 i0 Link 07 (0x1 0x2)") is Role.WATCH
        assert role_of(lookup(code), "NETIR Fatal XC1 i0 Link 07 (0x1 0x2)") is Role.ROOT
        assert role_of(lookup(code), "") is Role.ROOT
    assert role_of(lookup(79), "Nonfatal") is Role.ROOT
