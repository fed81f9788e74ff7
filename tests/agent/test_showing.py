"""Which stream of which rank is shown, and with which prefix: torchrun's table."""

from __future__ import annotations

from dataclasses import replace

import pytest

from remuster.agent.showing import prefix, views
from remuster.agent.spec import Backend, JobSpec, Output, Streams
from remuster.agent.worker_env import RankPlace
from remuster.rendezvous.records import Incarnation, Job, Member, NodeId, Phase, Roster, Round

ALONE = JobSpec(min_nodes=1, max_nodes=1, nproc=3, run_id="r", script="t.py")
SEVERAL = replace(ALONE, max_nodes=2, backend=Backend.ETCD, endpoints=(("h", 1),))
MEMBERS = (Member(NodeId("one"), Incarnation(1), "m1", 3, "a"), Member(NodeId("two"), Incarnation(2), "m2", 3, "b"))


def place(local: int, group: int = 0) -> RankPlace:
    return RankPlace(Job(Phase.RUNNING, Round(1), 1, 2, ""), Roster(Round(1), MEMBERS), group, local)


def table(output: Output) -> str:
    """Return for each rank what becomes of stdout and stderr: hidden, shown, or labelled."""
    spec = replace(ALONE, output=output)
    words = []
    for local in range(3):
        for view in views(spec, place(local), f"/d/{local}"):
            assert view.path == f"/d/{local}/{('stdout.log', 'stderr.log')[view.stream - 1]}"
            words.append("h" if not view.shown else "l" if view.label else "s")
    return "".join(words)


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        (Output(), "ss ss ss"),
        (Output(Streams(1)), "hs hs hs"),
        (Output(Streams(2)), "sh sh sh"),
        (Output(Streams(3)), "hh hh hh"),
        (Output(Streams(0, ((0, 3), (2, 1)))), "hh ss hs"),
        (Output(tee=Streams(1)), "ls ls ls"),
        (Output(tee=Streams(0, ((1, 2),))), "ss sl ss"),
        (Output(Streams(3), Streams(3)), "ll ll ll"),  # torchrun's: tee'd wins
        (Output(Streams(3), Streams(0, ((0, 1),))), "lh hh hh"),
        (Output(only=(1,)), "hh ss hh"),
        (Output(tee=Streams(3), only=(0, 9)), "ll hh hh"),
        (Output(only=(9,)), "hh hh hh"),
    ],
)
def test_what_is_shown(output: Output, expected: str) -> None:
    """Red when redirects hide a tee'd stream, or when the filter is forgotten (``views``)."""
    assert table(output) == expected.replace(" ", "")


def test_a_rank_that_is_not_shown_is_still_teed() -> None:
    spec = replace(ALONE, output=Output(tee=Streams(1), only=(0,)))
    assert [(view.tee, view.shown) for view in views(spec, place(1), "d")] == [(True, False), (False, False)]


def test_alone_the_prefix_is_torchruns() -> None:
    assert prefix(ALONE, place(2)) == b"[default2]:"
    assert prefix(replace(ALONE, role="trainer"), place(0)) == b"[trainer0]:"


def test_b15_of_several_nodes_the_prefix_has_node_and_rank_and_then_torchruns() -> None:
    """Red when ``prefix`` does not look at how many nodes there may be."""
    assert prefix(SEVERAL, place(1, group=1)) == b"[two rank4][default1]:"
    assert prefix(SEVERAL, place(0)) == b"[one rank0][default0]:"


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("[rank${rank}]: ", b"[rank4]: "),
        ("$role_name/$local_rank>", b"default/1>"),
        ("${node}:${rank} ", b"two:4 "),
        ("$$ $unknown ${", b"$ $unknown ${"),
        ("\udcff", b"\xff"),
    ],
)
def test_a_template_is_filled_as_by_torchrun(template: str, expected: bytes) -> None:
    spec = replace(SEVERAL, output=Output(prefix=template))
    assert prefix(spec, place(1, group=1)) == expected
