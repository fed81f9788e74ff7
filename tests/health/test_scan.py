"""The scanner of live output: which lines are seen, which raise the alarm, however the bytes are cut and adorned."""

from __future__ import annotations

import re
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from remuster.health.live import LIVE
from remuster.health.scan import LONGEST, Scanner, Seen
from remuster.health.signatures import Role, table

WORK = "WorkNCCL(SeqNum=808, OpType=ALLREDUCE, NumelIn=9801523, NumelOut=9801523, Timeout(ms)=600000)"
CAUGHT = f"Watchdog caught collective operation timeout: {WORK} ran for 600020 milliseconds before timing out."
PG = "[PG ID 0 PG GUID 0(default_pg) Rank 1]"
LAYOUTS = {  # torch's source at each of these; the shapes are those of real logs
    "1.13": "[E ProcessGroupNCCL.cpp:737] [Rank 1] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum=469508, OpType=ALLREDUCE, Timeout(ms)=1800000) ran for 1802212 milliseconds before timing out.",
    "2.1": f"[E ProcessGroupNCCL.cpp:475] [Rank 1] {CAUGHT}",
    "2.3": f"[rank1]:[E ProcessGroupNCCL.cpp:563] [Rank 1] {CAUGHT}",
    "2.4": f"[rank1]:[E626 06:24:44.903881913 ProcessGroupNCCL.cpp:616] [Rank 1] {CAUGHT}",
    "2.6": f"[rank1]:[E1120 06:24:44.903881913 ProcessGroupNCCL.cpp:629] {PG} {CAUGHT}",
    "2.8": f"[rank1]:[E1120 06:24:44.903881913 ProcessGroupNCCL.cpp:1785] {PG} failure detected by watchdog at work "
    "sequence id: 808 PG status: last enqueued work: 811, last completed work: 807",
}
STUCK = (
    "[rank0]:[F ProcessGroupNCCL.cpp:1169] [PG 0 Rank 0] [PG 0 Rank 0] ProcessGroupNCCL's watchdog got stuck for 600 "
    "seconds without making progress in monitoring enqueued collectives. workMetaList_.size() = 1"
)
ALARMS = {
    **LAYOUTS,
    "stuck": STUCK,
    "heartbeat": "[rank0]:[E ProcessGroupNCCL.cpp:1316] [PG 0 Rank 0] Heartbeat monitor timed out! Process will be "
    "terminated after dumping debug info. workMetaList_.size()=1",
    "gloo": "RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting "
    "8000ms for recv operation to complete",
    "gloo, with a rank": "[rank3]: RuntimeError: [../third_party/gloo/gloo/transport/tcp/unbound_buffer.cc:81] Timed "
    "out waiting 8000ms for send operation to complete",
    "barrier": "[rank0]:[E626 06:24:44.903 ProcessGroupGloo.cpp:143] Rank 1 failed to pass monitoredBarrier in 90 ms",
    "async error": f"[rank1]:[E626 06:24:44.903881913 ProcessGroupNCCL.cpp:1595] {PG} NCCL error in: NCCLUtils.hpp:26, "
    "remote process exited or there was a network error, NCCL version 2.21.5",
    "ib fatal": "node-a3:9911:10222 [2] transport/net_ib.cc:88 NCCL WARN NET/IB : mlx5_2:1 async fatal event: port "
    "error",
    "ib completion": "node-a3:9911:10240 [2] NCCL WARN NET/IB : Got completion from peer 10.0.3.19<41772> with "
    "status=12 opcode=0 len=0 vendor err 129 (Recv)",
    "ecc": "[rank2]: RuntimeError: CUDA error: uncorrectable ECC error encountered",
    "ecc, by nccl": "node-a3:9911:10222 [2] enqueue.cc:1400 NCCL WARN Cuda failure 214 'uncorrectable ECC error "
    "encountered'",
    "nvlink": "torch.AcceleratorError: CUDA error: uncorrectable NVLink error detected during the execution",
    "lost": "Unable to determine the device handle for GPU 0000:44:00.0: GPU is lost.  Reboot the system",
}
EVIDENCE = {  # words of the same kind in other mouths
    "an old log": f"2026-03-11 12:00:00 INFO crash report of job 17: {LAYOUTS['2.4']}",
    "quoted": f"the last run said '{CAUGHT}'",
    "handled": "WARNING:train:caught RuntimeError: [gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting 8000ms "
    "for recv operation to complete; will try another port",
    "port error": "node-a3:9911:10222 [2] transport/net_ib.cc:88 NCCL WARN NET/IB : mlx5_2:1 Got async event : port "
    "error",
    "out of memory": "RuntimeError: CUDA out of memory. Tried to allocate 2.44 GiB (GPU 3; 79.21 GiB total capacity)",
    "disk": "OSError: [Errno 28] No space left on device: '/shared/ckpt/step-100/model.pt'",
    "shm": "RuntimeError: DataLoader worker (pid 13296) is killed by signal: Bus error.",
    "retried": "node-a3:9911:10222 [2] misc/socket.cc:50 NCCL WARN socketProgressOpt: Call to recv from "
    "10.0.3.17<33759> failed : Connection reset by peer",
}
NOTHING = (
    "node-a3:9911:10222 [2] NCCL INFO NET/IB : Using [0]mlx5_2:1/IB [RO]; OOB eth0:10.0.3.19<0>",
    "[rank0]:[I626 06:24:44.903 ProcessGroupNCCL.cpp:900] [PG 0 Rank 0] Heartbeat monitor started, timeout 600 seconds",
    '[rank1]:[W1229 22:06:38.480071392 ProcessGroupNCCL.cpp:1662] [PG ID 0 Rank 1] Failed to check the "should dump" '
    "flag on TCPStore, (maybe TCPStore server has shut down too early), with error: Broken pipe",
    "step 1000/1000 loss 1.21 (retrying after CUDA out of memory: micro-batch 8 -> 4)",
    "collective operation timeout is set to Timeout(ms)=600000",
)
STEP = "2026-03-11 12:00:07 [rank2] step 1207 loss 2.030 lr 3.0e-4 tokens/s 81234.5\n"


def scan(data: bytes, cut: int = 1 << 16) -> list[Seen]:
    scanner = Scanner()
    found: list[Seen] = []
    for start in range(0, len(data), cut):
        found += scanner.feed(data[start : start + cut])
    return [*found, *scanner.end()]


@pytest.mark.parametrize("line", ALARMS.values(), ids=ALARMS)
@pytest.mark.parametrize("cut", [1, 7, 100, 1 << 16])
def test_alarms(line: str, cut: int) -> None:
    """Red when a layout's header is not among the shapes, or a word does not survive being cut."""
    before = STEP * 3
    found = scan(f"{before}{line}\n{STEP}".encode(), cut)
    assert any(seen.alarm for seen in found), found
    assert {(seen.line, seen.at) for seen in found} == {(line.rstrip(), len(before))}


@pytest.mark.parametrize("line", EVIDENCE.values(), ids=EVIDENCE)
def test_words_alone_are_evidence(line: str) -> None:
    """Red when an alarm asks for no shape."""
    found = scan(f"{STEP}{line}\n".encode())
    assert found
    assert not any(seen.alarm for seen in found)


@pytest.mark.parametrize("line", NOTHING)
def test_what_means_nothing(line: str) -> None:
    assert not scan(f"{STEP}{line}\n".encode())


ADORNED = {
    "a bar that was drawn over": "\rEpoch 3:  12%|#2   | 61/500 [00:10<01:11]\r{}\n",
    "a bar, glued": "Epoch 3:  12%|#2   | 61/500 [00:10<01:11,  6.1it/s]{}\n",
    "a bar without a rate, glued": "Epoch 3:  12%{}\n",
    "carriage returns": "{}\r\n",
    "a launcher's prefix": "[default1]:{}\n",
    "srun's label": "3: {}\n",
    "colours": "\x1b[31m{}\x1b[0m\n",
    "bytes that are no text": "\udcff\udcfe\n{}\n",
    "no end": "{}",
}


@pytest.mark.parametrize("shape", ADORNED.values(), ids=ADORNED)
@pytest.mark.parametrize("line", [LAYOUTS["2.4"], LAYOUTS["1.13"], ALARMS["ecc"]])
def test_adorned(shape: str, line: str) -> None:
    found = scan((STEP + shape.replace("{}", line)).encode(errors="surrogateescape"))
    assert any(seen.alarm for seen in found), found


def test_colours_within_a_word_hide_nothing() -> None:
    line = LAYOUTS["2.4"].replace("caught", "\x1b[1;31mcau\x1b[0mght\x1b[K")
    (seen,) = scan(f"{line}\n".encode())
    assert seen.alarm
    assert seen.line == LAYOUTS["2.4"]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.sampled_from([*ALARMS.values(), *EVIDENCE.values(), *NOTHING, STEP, "", "é\r", "\x1b[1m"]), max_size=9),
    st.lists(st.integers(1, 400), max_size=20),
)
def test_it_does_not_matter_where_the_blocks_end(lines: list[str], cuts: list[int]) -> None:
    data = "\n".join(lines).encode()
    scanner, found, at = Scanner(), list[Seen](), 0
    for cut in cuts:
        found += scanner.feed(data[at : at + cut])
        at += cut
    found += [*scanner.feed(data[at:]), *scanner.end()]
    whole = scan(data)
    assert {(s.sign, s.alarm) for s in found} == {(s.sign, s.alarm) for s in whole}


@given(st.lists(st.binary(max_size=300), max_size=20))
def test_any_bytes(blocks: list[bytes]) -> None:
    scanner = Scanner()
    for block in blocks:
        scanner.feed(block)
    scanner.lose(10)
    scanner.end()


def test_a_sign_is_told_once_and_once_more_when_it_alarms_and_again_after_a_withdrawal() -> None:
    scanner, quoted, real = Scanner(), f"{EVIDENCE['quoted']}\n".encode(), f"{LAYOUTS['2.4']}\n".encode()
    assert [seen.alarm for seen in scanner.feed(quoted * 3)] == [False]
    assert [seen.alarm for seen in scanner.feed(real * 3 + quoted)] == [True]
    assert not scanner.feed(real)
    scanner.again()
    assert [seen.alarm for seen in scanner.feed(real)] == [True]


def test_a_line_without_end_is_read_in_parts_and_none_of_its_middle_is_an_alarm() -> None:
    """Red when the rest of a line passes for its beginning: what a program prints raises the alarm."""
    scanner = Scanner()
    found = list(scanner.feed(b"x" * (LONGEST + 5)))
    found += scanner.feed(b" " + LAYOUTS["2.4"].encode() + b" ")
    found += scanner.feed(b"y" * 3 * LONGEST)
    assert [(seen.sign, seen.alarm) for seen in found] == [("nccl-timeout", False)]


def test_a_sign_across_the_end_of_such_a_part_is_seen() -> None:
    """Red when nothing of a part is kept."""
    scanner, (one, two) = Scanner(), LAYOUTS["2.4"].split("collective", 1)
    assert not scanner.feed(b"x" * LONGEST + one.encode())
    assert not scanner.feed(two.encode())
    assert not scanner.end()
    assert not scanner.feed(b"x" * LONGEST + one.encode())
    assert not scanner.feed(b"collective" + two.encode())
    assert [seen.sign for seen in scanner.end()] == ["nccl-timeout"]


def test_after_a_hole_the_first_rest_of_a_line_is_no_alarm() -> None:
    scanner = Scanner()
    assert not scanner.feed(b"text that the hole cuts")
    scanner.lose(4096)
    (seen,) = scanner.feed(LAYOUTS["2.4"].encode() + b"\n")
    assert not seen.alarm
    assert seen.at == len(b"text that the hole cuts") + 4096


def test_memory_is_bounded() -> None:
    scanner = Scanner()
    scanner.feed(b"warm up\n")
    block = b"x" * (1 << 16)
    tracemalloc.start()
    for _ in range(64):
        scanner.feed(block)
        scanner.feed(b"\rbar 3% |#")
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held < 100_000


def test_every_live_sign_is_a_signature_that_can_be_read_in_one_line() -> None:
    every = {signature.name: signature for signature in table()}
    names = [live.sign for live in LIVE]
    assert len(names) == len(set(names))
    for live in LIVE:
        signature = every[live.sign]
        assert signature.role is not Role.NOISE
        assert not signature.raised
        assert not signature.beside
        re.compile(live.shape)
        assert scan(f"{signature.example}\n".encode()), live.sign


def test_shapes_take_linear_time() -> None:
    import time

    for text in (b"[" * 6000, b"1" * 6000, b"[a]:" * 1500, b"a." * 3000, b"| " * 3000, b"a:1:1 [1] " * 600):
        line = text + b"uncorrectable ECC error; caught collective operation timeout: WorkNCCL( NET/IB : fatal\n"
        start = time.process_time()
        scan(line)
        assert time.process_time() - start < 0.5, text[:10]
