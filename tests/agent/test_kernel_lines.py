"""Lines of a kernel log: what carries them, which of them no rank survives, and what a round keeps."""

from __future__ import annotations

import pytest

from remuster.agent.kernel_lines import FIRST, LAST, Kept, Line, hard, of_record, of_text
from remuster.health.kernel import signs
from remuster.health.xid import override

XID = "NVRM: Xid (PCI:0000:3b:00): 79, pid=7, name=python, GPU has fallen off the bus."


@pytest.mark.parametrize(
    ("raw", "line"),
    [
        (b"11,671,1173103843,-;NVRM: Xid (PCI:0000:3b:00): 79\n", Line("NVRM: Xid (PCI:0000:3b:00): 79", 1173.103843)),
        (b"6,1,5,-;usb 1: new\n SUBSYSTEM=usb\n DEVICE=+usb:1\n", Line("usb 1: new", 5e-6)),
        (b"4,9,10,c,caller=T1;a; b", Line("a; b", 1e-5)),
        (b"", Line("")),
        (b"no record", Line("")),
        (b"4,9,ten,-;text", Line("")),
    ],
)
def test_records(raw: bytes, line: Line) -> None:
    assert of_record(raw) == line


@pytest.mark.parametrize(
    ("before", "stamp"),
    [
        ("", None),
        ("[ 1173.103843] ", 1173.103843),
        ("Nov 30 03:48:33 node7 kernel: ", None),
        ("2026-11-30T03:48:33.123456+00:00 node7 kernel: [52175.395889] ", 52175.395889),
        ("<4>", None),
    ],
)
def test_lines_of_files(before: str, stamp: float | None) -> None:
    line = of_text((before + XID + "\r").encode())
    assert line.stamp_s == stamp
    (sign,) = signs((line.text,))
    assert sign.text == XID


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (XID, "the kernel reported XID 79 (fallen off the bus) of GPU 0000:3b:00"),
        ("NVRM: Xid (PCI:0000:3b:00): 48, pid=7, name=python, DBE", "XID 48"),
        ("NVRM: Xid (PCI:0000:3b:00): 31, pid=7, name=python, MMU Fault", ""),
        ("NVRM: Xid (PCI:0000:3b:00): 45, pid=7, name=python, Ch 8", ""),
        ("NVRM: Xid (PCI:0000:3b:00): 64, pid=7, name=python, row remapper failure", ""),
        ("NVRM: Xid (PCI:0000:3b:00): 94, pid=7, name=python, Contained: SM", ""),
        ("NVRM: Xid (PCI:0000:3b:00): 149, NETIR_LINK_EVT Fatal XC1 i0 Link 02 (0x1)", "XID 149"),
        ("NVRM: Xid (PCI:0000:3b:00): 149, NETIR_LINK_EVT Nonfatal XC0 i0 Link 02 (0x1)", ""),
        ("NVRM: GPU 0000:44:00.0: GPU has fallen off the bus.", "GPU 0000:44:00 has fallen off the bus"),
        ("mce: Uncorrected hardware memory error in user-access at 3f", "an error in host memory"),
        ("Memory failure: 0x4f: Sending SIGBUS to python:305 due to hardware memory corruption", ""),
        ("oom-kill:constraint=CONSTRAINT_NONE,task=python,pid=7,uid=0", ""),
    ],
)
def test_hard_ones(text: str, why: str) -> None:
    (sign,) = signs((text,))
    said = hard(sign)
    assert why in said
    assert bool(said) == bool(why)


def test_what_is_hard_where_a_site_says_so() -> None:
    meanings = override({31: "gpu_lost", 79: "watch"})
    (soft,) = signs(("NVRM: Xid (PCI:0000:3b:00): 31, pid=7, name=python, MMU Fault",))
    (lost,) = signs((XID,))
    assert "XID 31" in hard(soft, meanings)
    assert hard(lost, meanings) == ""


def test_a_storm_leaves_its_beginning_and_its_end() -> None:
    kept = Kept()
    for n in range(1000):
        kept.take(float(n), str(n))
    found = [int(text) for _, text in kept.hand_up()]
    assert found == [*range(FIRST), *range(1000 - LAST, 1000)]
    assert kept.hand_up() == ()


def test_what_is_too_old_is_forgotten() -> None:
    kept = Kept()
    for n in range(100):
        kept.take(float(n), str(n))
    kept.forget(98.0)
    assert kept.hand_up() == ((98.0, "98"), (99.0, "99"))
