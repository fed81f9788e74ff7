"""Every signature: its example, its near miss, its class; and the matcher on hostile text."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from remuster.health.classes import all_classes
from remuster.health.needles import grouped, needles
from remuster.health.signatures import Role, Signature, match, table
from remuster.health.tracebacks import find

TABLE = table()


def seen(signature: Signature, text: str) -> bool:
    if signature.raised:
        found = find([text])
        match_ = re.match(signature.pattern, found[0].text) if found else None
    else:
        match_ = re.search(signature.pattern, text)
    return match_ is not None and (signature.check is None or signature.check(match_))


@pytest.mark.parametrize("signature", TABLE, ids=[s.name for s in TABLE])
def test_example_and_near_miss(signature: Signature) -> None:
    assert seen(signature, signature.example)
    assert not seen(signature, signature.near_miss)
    assert signature.source
    assert not signature.cls or signature.cls in all_classes()
    signs = [hit.sign for hit in match([signature.example])]
    if signature.role is Role.NOISE:
        assert signs == []
    elif not signature.beside:
        assert signature.name in signs


@pytest.mark.parametrize(
    "line",
    [
        "[Rank 1] collective operation timeout: 600000 ms",
        "NET/IB : mlx5_3:1 async event on QP (0x7f): communication established",
        "NCCL WARN NET/OFI Request completed with error. RC: 265. Error: Operation canceled",
        "Barrier passed. Id: [Init]Wait_for_all_tasks_to_register::0",
        "grpc: added port to server: [::]:8476, bind: ok",
        "systemd[1]: systemd-oomd.service: Deactivated successfully.",
        "The node had condition: [Ready], at 02:14",
        "mount.nfs: mount(2): trying text-based options 'vers=4.2,addr=10.0.0.9'",
        "mkdir /tmp/cache: done, enough space left on device",
        "loaded cuDNN version 8902, compatible with PyTorch",
        "jaxlib version 0.4.20 is newer than jax version 0.4.14 and compatible with it",
        "rank 0: all gradients are finite, contains no outliers",
        "NaNs detected in 3 samples, skipping them",
        "checkpoint step-900 is complete and finalized",
        "Error: no file named config.yaml, using the defaults",
        "Preempted requests: 12 (recomputed)",
        "ib_mlx5_log.c: transport retry count is 7",
        "amdgpu 0000:c3:00.0: amdgpu: socket: 0, die: 0 0 uncorrectable hardware errors detected in umc block",
        "This can happen if the node was preempted, had a hardware failure, or its raylet crashed unexpectedly.",
        "[WARNING] CUDA_HOME does not exist, unable to compile CUDA op(s)",
        "gradient norm was 0.41 and is finite",
        "using the special device /dev/nvidia3, which does exist",
        "socketPollConnect: connect to 10.0.3.17<33759> in progress",
        "[INFO] URL https://r.example/v2/a/manifests/1 returned error code: 503, retrying",
        "Pulling image r.example/a:1, 502 MB",
        "spot instances: ITN handler started",
        "DeepEP timeout: 100 s",
    ],
)
def test_more_near_misses(line: str) -> None:
    assert not match([line])


def test_names_are_unique_and_partners_exist() -> None:
    names = [signature.name for signature in TABLE]
    assert len(names) == len(set(names))
    assert {signature.beside for signature in TABLE} - {""} <= set(names)


def test_a_sign_beside_another_counts_only_there() -> None:
    at_start, refused = "    torch.cuda.set_device(local_rank)", "RuntimeError: CUDA error: out of memory"
    assert not match([at_start])
    assert max(match([at_start, refused]), key=lambda hit: hit.weight).cls == "cuda_oom_foreign"
    name = (
        "[W socket.cpp:764] [c10d] The IPv6 network addresses of (node-x9, 29500) cannot be retrieved (gai error: -2)"
    )
    assert not match([name]), "a warning of every machine without IPv6"


@pytest.mark.parametrize("signature", [s for s in TABLE if not s.raised], ids=[s.name for s in TABLE if not s.raised])
def test_the_cheap_test_never_hides_a_match(signature: Signature) -> None:
    words = needles(signature.pattern)
    assert words
    assert any(word in signature.example for word in words)


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        ("abc|xyz", ("abc", "xyz")),
        ("ab?cde", ("cde",)),
        (r"abc (?:left|right)\d+ end", ("abc ",)),
        (r"(?:left|right)\d", ("left", "right")),
        (r"abc|\d+", ()),
        (r"(?:abc)?x", ()),
        (r"[a-c]{2}", ()),
        (r"(?:abc){0,3}de", ()),
        (r"a\.b\(c", ("a.b(c",)),
        (r"ab(?!cdef)", ()),
    ],
)
def test_needles(pattern: str, words: tuple[str, ...]) -> None:
    assert needles(pattern) == words


@given(st.sets(st.text("abcd ", min_size=1, max_size=9), max_size=30))
def test_groups_hold_every_word_once_behind_letters_that_stand_in_it(words: set[str]) -> None:
    groups = grouped(words)
    assert sorted(word for _, members in groups for word in members) == sorted(words)
    assert all(letters in word for letters, members in groups for word in members)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.text(max_size=200), max_size=12))
def test_match_takes_any_text(lines: list[str]) -> None:
    assert match(lines) == match(lines)


def hostile() -> list[str]:
    texts = ["a" * 4096, "\x1b[" * 2048, "\x1b[" + "0" * 4096, "\x1b]" * 2048, "Error: " * 600, "x." * 2048, "/" * 4096]
    for signature in TABLE:
        half = signature.example[: len(signature.example) // 2] or "x"
        texts += [half * (4096 // len(half)), signature.example[:12] * 300, "KeyError: " + signature.example[:30] * 130]
    return texts


def test_hostile_lines_are_matched_in_linear_time() -> None:
    slow: list[tuple[float, str]] = []
    match(["warm up"])
    for text in hostile():
        start = time.process_time()
        match([text])
        slow.append((time.process_time() - start, text[:40]))
    assert max(slow)[0] < 0.5, max(slow)


@pytest.mark.parametrize(
    "text", ["a" * (1 << 20), "\x1b[0m" * (1 << 18), "\x1b[" * (1 << 19), ("b" * 200 + "\n") * 5000]
)
def test_a_megabyte_is_nothing(text: str) -> None:
    match(["warm up"])
    start = time.process_time()
    match(text.split("\n"))
    assert time.process_time() - start < 2.0
