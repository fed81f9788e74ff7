"""A round as one of remuster's own records tells it, for ``remuster explain``.

Its evidence, with the ranks' whole outputs, where they lie beside it, in place of the last lines that the record keeps.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import cast

from ..health import wire
from ..health.classes import find
from ..health.ends import End, Part, Said
from ..health.errors import BadEvidence
from ..health.evidence import Fact, NodeEvidence, RankExit, RoundEvidence
from ..health.offline import Case
from ..health.verdict import Verdict


def decoded(facts: list[object]) -> tuple[Fact, ...]:
    """Return facts as records spell them; BadEvidence when they are none."""
    body = json.dumps({"v": wire.SCHEMA, "facts": facts}, separators=(",", ":"), ensure_ascii=False)
    return wire.decode(body.encode("utf-8", "replace"))  # \ud800 alone is valid in JSON, and no text


def case_of(
    body: Mapping[str, object], name: str, parts: Sequence[Part], statuses: Sequence[int]
) -> tuple[Case, Verdict | None]:
    """Return the round that one of our records tells of, the ranks' whole outputs in place of the lines kept in it.

    A verdict comes with it where evidence alone cannot give it: rounds that were ended by plan.
    """
    nodes: list[NodeEvidence] = []
    notes: list[str] = []
    for item in _objects(body.get("evidence")):
        facts = item.get("facts")
        order = item.get("order")
        try:
            known = decoded(cast("list[object]", facts) if isinstance(facts, list) else [])
        except BadEvidence as error:
            notes.append(f"{name}: {error}")
            continue
        nodes.append(NodeEvidence(str(item.get("node")), known, order if isinstance(order, int) else 0))
    here = {(part.local, _folder(part.file)): part for part in parts if part.local >= 0}
    ends: list[End] = []
    for i, node in enumerate(nodes):
        replaced: list[Fact] = []
        for told_fact in node.facts:
            fact = told_fact
            if isinstance(fact, RankExit):
                part = here.get((fact.local_rank, _folder(f"{fact.logs}/x")))
                lines = [Said(name, 0, text) for text in fact.tail]
                part = part or Part(name, node.node, fact.rank, fact.local_rank, lines, fact.error)
                ends.append(
                    End(part, node.node, fact.rank, fact.local_rank, True, fact.status, True, fact.pid, fact.stopping)
                )
                if part.lines:
                    fact = fact._replace(tail=tuple(line.text for line in part.lines))
            replaced.append(fact)
        nodes[i] = node._replace(facts=tuple(replaced))
    members = [(str(m.get("node")), _number(m.get("slots"))) for m in _objects(body.get("members"))]
    lost = tuple(node for node, _ in members if node not in {node.node for node in nodes})
    told = _objects([body.get("verdict")])
    cls = str(told[0].get("class")) if told else ""
    recorded = None
    if told and (cls not in ("", "exit_unknown") and (find(cls).name != cls or cls == "success")):
        sentence = str(told[0].get("sentence"))
        recorded = Verdict(cls, str(told[0].get("family")), str(told[0].get("node") or ""), sentence=sentence)
    evidence = RoundEvidence(_number(body.get("round")), tuple(nodes), tuple(members), lost if cls != "success" else ())
    if statuses:
        notes.append("--exit is not used: the record has the exit statuses")
    return Case(evidence, tuple(ends), notes=tuple(notes)), recorded


def _folder(path: str) -> str:
    """The last parts of a rank's directory: run, attempt and local rank; the run may have been moved with its name."""
    return "/".join(os.path.abspath(path).split("/")[-4:-1])


def _objects(value: object) -> list[dict[str, object]]:
    items = cast("list[object]", value) if isinstance(value, list) else []
    return [cast("dict[str, object]", item) for item in items if isinstance(item, dict)]


def _number(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else 0
