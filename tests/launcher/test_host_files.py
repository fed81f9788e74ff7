"""Lists of hosts: every notation that mpirun, deepspeed and batch systems have for them, and what is none."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuster.launcher.errors import UsageError
from remuster.launcher.host_files import Host, counted, in_file, in_list

A, B = Host("a"), Host("b")


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("", ()),
        ("\n\n# nobody\n", ()),
        ("a\nb\n", (A, B)),
        ("b\r\na", (B, A)),
        # PBS, LSF and OAR: a line for each core, in any order.
        ("a\na\nb\nb\na\n", (A, B)),
        # Open MPI and DeepSpeed.
        ("a slots=8\nb slots=4\n", (Host("a", 8), Host("b", 4))),
        ("a  slots=8  max_slots=16  # the old one\n  b\tSLOTS=4 max-slots=4", (Host("a", 8), Host("b", 4))),
        ("a max_slots=4", (A,)),
        ("# a\na slots=2 # b\n#b slots=2", (Host("a", 2),)),
        ("a slots=2\na slots=2\na", (Host("a", 4),)),
        ("a\na slots=2", (Host("a", 2),)),
        # MPICH and Intel MPI; LSF's own.
        ("a:8\nb:4", (Host("a", 8), Host("b", 4))),
        ("a 8", (Host("a", 8),)),
        # Addresses.
        ("10.0.0.1:8\nfe80::1\n[fe80::2]:4\n[fe80::3]", (
            Host("10.0.0.1", 8), Host("fe80::1"), Host("fe80::2", 4), Host("fe80::3"))),
        ("gpu-07.cluster.example slots=1", (Host("gpu-07.cluster.example", 1),)),
    ],
)  # fmt: skip
def test_a_file(text: str, hosts: tuple[Host, ...]) -> None:
    assert in_file("F", text) == hosts


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a\nb slots=x", "line 2 of F is 'b slots=x'; write HOST, HOST:N"),
        ("a slots=0", "line 1 of F is 'a slots=0'"),
        ("a:0", "line 1 of F is 'a:0'"),
        ("a:", "line 1 of F is 'a:'"),
        ("a:29500", "line 1 of F is 'a:29500'; write HOST, HOST:N or HOST slots=N, N ranks on it (and no port)"),
        ("a:x", "line 1 of F is 'a:x'"),
        ("a:8 slots=8", "line 1 of F is 'a:8 slots=8'"),
        ("a 8 8", "line 1 of F is 'a 8 8'"),
        ("a slots = 8", "line 1 of F is 'a slots = 8'"),
        ("a gpus=8", "line 1 of F is 'a gpus=8'"),
        ("a slots=1234567", "line 1 of F is"),
        ("user@a", "line 1 of F is 'user@a'; give the name"),
        ("a,b", "line 1 of F is 'a,b'; give the name"),
        ("[fe80::1", "line 1 of F is '[fe80::1'; give the name"),
        ("a/0", "line 1 of F is 'a/0'; give the name"),
        ("\x00", "line 1 of F is"),
    ],
)
def test_no_file(text: str, says: str) -> None:
    with pytest.raises(UsageError) as refused:
        in_file("F", text)
    assert str(refused.value).startswith(says)
    assert "; " in str(refused.value)


def test_a_list() -> None:
    assert in_list("--hosts", "a,b:8,, a ,[::1]:2") == (A, Host("b", 8), Host("::1", 2))
    assert in_list("--hosts", " ,") == ()
    with pytest.raises(UsageError, match="--hosts is 'b:x'; write"):
        in_list("--hosts", "a,b:x")


def test_counted_hosts() -> None:
    assert counted("LSB_MCPU_HOSTS", "a 8 b 42 a 1") == (A, B)
    for text in ("a", "a 8 b", "a b", "a -1"):
        with pytest.raises(UsageError, match="LSB_MCPU_HOSTS is '"):
            counted("LSB_MCPU_HOSTS", text)


@given(st.text())
def test_any_text_is_hosts_or_a_refusal(text: str) -> None:
    for parse in (in_file, in_list, counted):
        try:
            found = parse("F", text)
        except UsageError as error:
            assert "; " in str(error)  # noqa: PT017 - both ends are right
        else:
            names = [host.name for host in found]
            assert len({*names}) == len(names)
            assert all(host.slots is None or host.slots > 0 for host in found)
