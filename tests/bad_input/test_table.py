"""Whatever is wrong with the command line, the store, the files or the other nodes: a sentence, a code, and an end.

The rows are in ``rows_*.py``. For each of them holds: it ends in time with its code; the last sentence of remuster's on
stderr says what is wrong, where, and what to do; no traceback; no rank was started (but where the row is fine); nothing
is left: no process, no file, no key on a lease, no lock; no password was written anywhere.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from concurrent.futures import Future, wait

import pytest
from bad_input.rows_files import ROWS as FILES
from bad_input.rows_line import ROWS as LINE
from bad_input.rows_nodes import ROWS as NODES
from bad_input.rows_resume import ROWS as RESUME
from bad_input.rows_store import ROWS as STORE
from bad_input.scene import Outcome, Row
from bad_input.stores import PASSWORD
from etcd_server import EtcdServer

pytestmark = [pytest.mark.process, pytest.mark.timeout(300)]  # a row may have to wait for its turn

# Those that may take longest first, in which order they are also started: so few wait for others.
TABLE = sorted((*LINE, *FILES, *RESUME, *STORE, *NODES), key=lambda row: -row.within_s)
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
LONGEST = 1200  # characters: a sentence, not a dump


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row.id)
def test_a_sentence_a_code_and_nothing_left(row: Row, outcomes: Mapping[str, Future[Outcome]]) -> None:
    if row.unless:
        pytest.skip(row.unless)
    outcome = outcomes[row.id].result()
    node, show = outcome.node, outcome.node.say()
    assert outcome.code == row.code, show
    assert outcome.took_s < row.within_s, show
    if row.code:
        said = [line for line in node.err.splitlines() if line.startswith(row.voice)]
        assert said, f"nothing on stderr begins with {row.voice!r}\n{show}"
        lacking = [part for part in outcome.says if part not in said[-1]]
        assert not lacking, f"the sentence lacks {lacking}: {said[-1]}\n{show}"
        assert len(said[-1]) <= LONGEST, show
        assert node.out == b"", show
        assert not outcome.ran, f"ranks were started: {outcome.ran}\n{show}"
    else:
        assert [part for part in outcome.says if part not in node.err] == [], show
        assert outcome.ran, f"no rank was started\n{show}"
    assert row.trace or "Traceback" not in node.err, show
    assert not CONTROL.search(node.err), f"what moves the cursor of a terminal\n{node.err!r}"
    assert not outcome.left, f"left: {outcome.left}\n{show}"
    written = (path for path in node.folder.rglob("*") if path.is_file())
    assert not [path for path in written if PASSWORD.encode() in path.read_bytes()]


def test_no_lease_is_left_in_the_store(outcomes: Mapping[str, Future[Outcome]], etcd: EtcdServer) -> None:
    """One that holds no key shows in no row; it would expire by itself, but a crash loop would pile them up."""
    wait(outcomes.values())
    assert not etcd.post("lease/leases", {}).get("leases")


def test_the_table_names_each_row_once() -> None:
    names = [row.id for row in TABLE]
    assert sorted(set(names)) == sorted(names)
