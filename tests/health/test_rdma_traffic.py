"""What ``ib_write_bw`` says, and what follows from it.

No RDMA hardware was at hand. The texts are those of linux-rdma/perftest: its sources (src/write_bw.c,
perftest_resources.h and .c, perftest_parameters.h, perftest_communication.c) and outputs that its users have shown
(issues 132 and 342 there); the rate is made up. Without a device the tool itself was run (4.5, Debian): it takes these
options, and NO_DEVICE is what it said.
"""

from __future__ import annotations

import pytest

from remuster.health.node_check import PortReading, State
from remuster.health.rdma_traffic import Ended, judged, options, to_test

PORT = PortReading("mlx5_0", 1, "ACTIVE", "LinkUp")
RESULT = """\
---------------------------------------------------------------------------------------
                    RDMA_Write BW Test
 Dual-port       : OFF\t\tDevice         : mlx5_0
 Number of qps   : 1\t\tTransport type : IB
 Connection type : RC\t\tUsing SRQ      : OFF
 PCIe relax order: ON
 ibv_wr* API     : ON
 TX depth        : 128
 CQ Moderation   : 100
 Mtu             : 4096[B]
 Link type       : IB
 Max inline data : 0[B]
 rdma_cm QPs\t : OFF
 Data ex. method : Ethernet
---------------------------------------------------------------------------------------
 local address: LID 0x02 QPN 0x0032 PSN 0x5f2841 RKey 0x002440 VAddr 0x007f2e5f64b000
 remote address: LID 0x02 QPN 0x003a PSN 0xc0fd7e RKey 0x002442 VAddr 0x007f443b2f8000
---------------------------------------------------------------------------------------
 #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]
 65536      1000             196.30             195.95 \t\t   0.373743
---------------------------------------------------------------------------------------
"""
NO_ROW = RESULT.split(" 65536", maxsplit=1)[0]
NO_DEVICE = """\
 Did not detect devices
 If device exists, check if driver is up
 Unable to find the Infiniband/RoCE device
"""
RETRIES = """\
 Completion with error at client
 Failed status 12: wr_id 0 syndrom 0x81
scnt=128, ccnt=0
 Failed to complete run_iter_bw function successfully
"""
RETRIES_NEW = (
    " Completion with error at client\n Failed status-transport retry counter exceeded (12): wr_id 0 syndrom 0x81\n"
)
LEFT_ALONE = """\
ethernet_read_keys: Couldn't read remote address
 Unable to read to socket/rdma_cm
 Failed to exchange data between server and clients
"""
NO_MEMORY = "Couldn't allocate MR\nfailed to create mr\nFailed to create MR\n Couldn't create IB resources\n"
ALONE = "Couldn't connect to 127.0.0.1:20001\nUnable to open file descriptor for socket connection\n"
WELL = Ended(0, RESULT, "")
GONE = Ended(1, "", LEFT_ALONE)
WAITS = Ended(None, "", "")


@pytest.mark.parametrize(
    ("client", "server", "state", "says"),
    [
        (WELL, WELL, State.OK, "62 MiB were written over it to itself, 195.95 Gb/s"),
        (WELL, WAITS, State.OK, "195.95"),  # it takes its time to free what it has
        (Ended(0, RESULT, " Conflicting CPU frequency values detected: 1200 != 3400\n"), WELL, State.OK, "195.95"),
        (Ended(1, NO_ROW, RETRIES), GONE, State.BAD, "Completion with error at client; Failed status 12: wr_id 0"),
        (Ended(1, NO_ROW, RETRIES_NEW), GONE, State.BAD, "transport retry counter exceeded (12)"),
        (Ended(None, "", RETRIES), WAITS, State.BAD, "Failed status 12"),  # it has said so, and cannot even end
        (Ended(1, "", "Problems with warm up\n"), GONE, State.BAD, "Problems with warm up"),
        (Ended(1, "", LEFT_ALONE), Ended(1, "", RETRIES.replace("client", "server")), State.BAD, "error at server"),
        (Ended(1, "", ALONE), Ended(1, "", NO_DEVICE), State.UNKNOWN, "the device cannot be opened (/dev/infiniband)"),
        (Ended(1, "", " Port number 1 state is Down\n Couldn't get context for the device\n"), WAITS, State.UNKNOWN,
         "its port not be used"),
        (Ended(1, NO_ROW, NO_MEMORY), GONE, State.UNKNOWN, "ulimit -l): Couldn't allocate MR"),
        (GONE, Ended(-11, NO_ROW, NO_MEMORY), State.UNKNOWN, "ulimit -l"),  # issue 23 of zrlio/softiwarp
        (Ended(1, "", ALONE), WAITS, State.UNKNOWN, "did not listen within 20 s"),
        (Ended(1, "", ALONE), Ended(1, "", "Couldn't listen to port 20001\n"), State.UNKNOWN, "taken its TCP port"),
        (Ended(1, "", ALONE), Ended(-11, "", ""), State.UNKNOWN, "ib_write_bw ended by signal 11: it said nothing"),
        (Ended(1, "", ALONE), Ended(127, "", "libmlx5.so.1: cannot open shared object file\n"), State.UNKNOWN,
         "status 127: libmlx5.so.1"),
        (Ended(-9, "", ""), GONE, State.UNKNOWN, "ended by signal 9"),
        (WAITS, WAITS, State.UNKNOWN, "did not end within 20 s"),
        (Ended(0, "usage: ib_write_bw\n", ""), Ended(0, "", ""), State.UNKNOWN, "status 0: it said nothing"),
        (Ended(1, "", " Unable to Connect the HCA's through the link\n"), GONE, State.UNKNOWN, "Unable to Connect"),
    ],
)  # fmt: skip
def test_what_a_transfer_says(client: Ended, server: Ended, state: State, says: str) -> None:
    finding = judged(PORT, client, server, 20.0)
    assert (finding.check, finding.what, finding.state) == ("rdma", "mlx5_0 port 1", state), finding.text
    assert says in finding.text
    assert len(finding.text) < 500


def test_only_what_carries_traffic_is_tested() -> None:
    states = ("ACTIVE", "DOWN", "INIT", "ARMED", "", "ACTIVE_DEFER")
    chosen = to_test(PortReading("mlx5_0", number, state, "LinkUp") for number, state in enumerate(states))
    assert [port.port for port in chosen] == [0, 5]


def test_both_sides_are_given_the_same_options() -> None:
    words = "-d mlx5_0 -i 1 -p 20001 -s 65536 -n 1000 -F --report_gbits"
    assert options(PORT, 20001) == words.split()
