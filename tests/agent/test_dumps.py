"""The dumps of this round's ranks are found, those of others are not, and what cannot be read is said."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

import pytest

from remuster.agent.dumps import Dumps, paths
from remuster.agent.linux import boottime
from remuster.agent.sources import Begun, RankHere
from remuster.health.evidence import Fact
from remuster.health.observed import Lacked, Position
from remuster.rendezvous.records import Round

DUMP = (Path(__file__).parents[1] / "health" / "dumps" / "gloo.pickle").read_bytes()


def rank(number: int, folder: Path, **env: str | None) -> RankHere:
    return RankHere(number, number % 2, 1, folder, dict(env))


def read(environ: dict[str, str], *ranks: RankHere, ago: float = 0.0) -> tuple[Fact, ...]:
    async def ask() -> tuple[Fact, ...]:
        source = Dumps(environ)
        source.begin(Begun(Round(1), boottime() - ago, ranks))
        await source.inspect()
        found = await source.facts()
        await source.close()
        return found

    return asyncio.run(ask())


@pytest.mark.parametrize(
    ("environ", "env", "expected"),
    [
        ({"TORCH_FR_DUMP_TEMP_FILE": "/d/x_", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE": "/e/"}, {}, ("/d/x_6",)),
        ({"TORCH_NCCL_DEBUG_INFO_TEMP_FILE": "/e/"}, {}, ("/e/6",)),
        ({"TORCH_FR_DUMP_TEMP_FILE": "/d/"}, {"TORCH_FR_DUMP_TEMP_FILE": "/own/"}, ("/own/6",)),
        ({"XDG_CACHE_HOME": "/c"}, {}, ("/c/torch/comm_lib_trace_rank_6", "/tmp/nccl_trace_rank_6")),
        ({"HOME": "/h"}, {}, ("/h/.cache/torch/comm_lib_trace_rank_6", "/tmp/nccl_trace_rank_6")),
        (
            {"HOME": "/h", "XDG_CACHE_HOME": "/c"},
            {"XDG_CACHE_HOME": None},
            ("/h/.cache/torch/comm_lib_trace_rank_6", "/tmp/nccl_trace_rank_6"),
        ),
    ],
)
def test_where_torch_writes(environ: dict[str, str], env: dict[str, str | None], expected: tuple[str, ...]) -> None:
    assert paths(rank(6, Path("/"), **env), environ) == expected


def test_each_ranks_own_dump_of_this_round(tmp_path: Path) -> None:
    environ = {"TORCH_FR_DUMP_TEMP_FILE": f"{tmp_path}/rank_"}
    for number in (2, 3, 4):
        (tmp_path / f"rank_{number}").write_bytes(DUMP)
    os.utime(tmp_path / "rank_3", (0, time.time() - 60))
    found = read(environ, rank(2, tmp_path), rank(3, tmp_path), ago=30)
    assert found == (Position(2, "0(default_pg)", 3, 3),)
    assert len(read(environ, rank(2, tmp_path), rank(3, tmp_path), ago=90)) == 2


def test_what_is_no_dump_is_said_and_costs_no_other(tmp_path: Path) -> None:
    environ = {"TORCH_FR_DUMP_TEMP_FILE": f"{tmp_path}/rank_"}
    (tmp_path / "rank_0").write_bytes(b"cos\nsystem\n(S'true'\ntR.")
    (tmp_path / "rank_1").write_bytes(DUMP)
    (tmp_path / "rank_2").symlink_to(tmp_path / "rank_1")
    os.mkfifo(tmp_path / "rank_3")
    (tmp_path / "rank_4").write_bytes(DUMP[:-5])
    with (tmp_path / "rank_5").open("wb") as file:
        file.truncate(1 << 30)
    found = read(environ, *(rank(number, tmp_path) for number in range(6)))
    assert [one for one in found if isinstance(one, Position)] == [Position(1, "0(default_pg)", 3, 3)]
    said = [one.why for one in found if isinstance(one, Lacked)]
    assert [Path(why.partition(":")[0]).name for why in said] == ["rank_0", "rank_2", "rank_4", "rank_5"]
    assert "makes no plain value" in said[0]
    assert said[1].endswith("Too many levels of symbolic links")
    assert "of more than" in said[3]


def test_without_dumps_there_is_nothing_to_say(tmp_path: Path) -> None:
    assert read({"HOME": str(tmp_path)}, rank(987654, tmp_path)) == ()
