"""How ``remuster explain`` tells a verdict: words for people, verdict first, and one JSON object for programs. Pure.

What nobody knew is not said: no exit status that was concluded, no node of files that name none, no rank of a single
file that names none.
"""

from __future__ import annotations

import textwrap
from dataclasses import dataclass

from ..health import exits, policy, words
from ..health.causes import GUESS
from ..health.classes import find
from ..health.ends import NOBODY, NOWHERE, End, Said, fact
from ..health.offline import Case, place
from ..health.reading import Standing, read
from ..health.suspicion import suspicion
from ..health.verdict import Verdict

WIDTH = 110
OTHERS = 6  # ranks beside the root that are shown
LABEL = 11


@dataclass(frozen=True, slots=True)
class Explanation:
    """A verdict on texts, and what it was made from."""

    verdict: Verdict
    case: Case
    notes: tuple[str, ...]

    @property
    def root(self) -> End | None:
        """The end that the verdict names."""
        v = self.verdict
        return next((end for end in self.case.ends if (end.rank, end.node) == (v.rank, v.node)), None)

    @property
    def known(self) -> bool:
        """Whether the exit status of the root was given or told; of every rank where there is no root."""
        root = self.root
        return root.told if root else all(end.told for end in self.case.ends if end.rank != NOBODY)

    @property
    def where(self) -> Said | None:
        """The deciding line, where it stands."""
        root, line = self.root, self.verdict.line
        return (place(root.part.lines, line) if root else None) or place(self.case.kernel, line)


def plain(found: Explanation, with_policy: bool) -> dict[str, object]:
    """Return the explanation as a JSON value."""
    verdict, root, where = found.verdict, found.root, found.where
    cls = find(verdict.cls)
    body: dict[str, object] = {
        "class": verdict.cls,
        "family": verdict.family,
        "retryable": cls.retryable.startswith("yes") and cls.name == verdict.cls,
        "node_fault": verdict.node_fault,
        "root_rank": _root_rank(found),
        "root_node": verdict.node if verdict.node not in ("", NOWHERE) else None,
        "root_file": _root_file(found),
        "line": verdict.line or None,
        "line_file": where.file if where else None,
        "line_number": where.number or None if where else None,
        "confidence": _confidence(found),
        "sentence": _sentence(found),
        "evidence": _evidence(found),
        "exception": verdict.exception or None,
        "exit_status": root.status if root and found.known else None,
        "fingerprint": verdict.fingerprint,
        "victims": [{"rank": rank, "node": _node(node)} for node, rank, _ in verdict.victims if rank != NOBODY],
        "gpu": verdict.gpu or None,
        "unused": [_without(text) for text in verdict.unused],
        "lacking": _lacking(found),
        "advice": words.advice(verdict.cls) or None,
        "ranks": len([end for end in found.case.ends if end.rank != NOBODY]),
    }
    if with_policy:
        body["policy"] = _policy(found)
    return body


def _root_rank(found: Explanation) -> int | None:
    """The rank that the verdict names: by its own texts, or because others name one that left none."""
    root, rank = found.root, found.verdict.rank
    if root is None:
        return rank if rank >= 0 else None
    return root.rank if root.named and root.rank != NOBODY else None


def words_of(found: Explanation, with_policy: bool) -> str:
    """Return the explanation for people: the verdict, what to do, the evidence, what is lacking."""
    verdict = found.verdict
    lines = _wrapped("", _sentence(found))
    cls = find(verdict.cls)
    about = f"{verdict.cls} (family {verdict.family})"
    about += "; the fault is the node" if verdict.node_fault else ""
    about += f"; {cls.action}" if cls.name == verdict.cls != "success" else ""
    lines += _wrapped("Class", about)
    lines += _wrapped("Confidence", _confidence(found))
    if advice := words.advice(verdict.cls):
        lines += _wrapped("Next", advice)
    if with_policy:
        told = _policy(found)
        lines += _wrapped("Policy", f"{told['decision']}: {told['reason']}; node: {told['node_action']}; "
                          f"exit code of the command: {told['exit_code']}")  # fmt: skip
    evidence = _evidence(found)
    lines += ["", "Evidence:"] if evidence else []
    for item in evidence:
        number = item["line_number"]
        at = f"{item['file']}:{number}" if number else f"{item['file'] or ''}"
        rank = f"rank {item['rank']}" if item["rank"] is not None else ""
        lines.append(_fit("  " + "  ".join(part for part in (at, rank, str(item["source"])) if part)))
        lines.append(_fit(f"      {item['text']}"))
    lacking = _lacking(found)
    lines += ["", "Lacking:"] if lacking else []
    for note in lacking:
        lines += textwrap.wrap(
            visible(note), WIDTH, initial_indent="  ", subsequent_indent="    ", break_on_hyphens=False
        )
    return "\n".join(lines)


def _sentence(found: Explanation) -> str:
    """The verdict's sentence, without what was only put in for the sake of judging."""
    text, root = found.verdict.sentence, found.root
    if root is not None:
        who = f"rank {root.rank} on {root.node}"
        said = f"{who} ended with {exits.words(root.status or 0)}"
        if root.rank == NOBODY:
            text = text.replace(said, "a line that no rank is known to have written").replace(who, "the launcher")
        elif not found.known:
            text = text.replace(said, f"{who} failed")
        if not root.named and root.rank != NOBODY:
            name = "the program" if len(found.case.ends) == 1 else root.part.file
            text = text.replace(who, name)
    if found.verdict.cls == "success" and not found.known:
        text = "nothing in the text says that it failed"
    if found.verdict.cls == "exit_unknown" and root is None and not found.known:
        text = "nothing in the text says how it ended: no failure is named, and no end of the work"
    return visible(_without(text))


def _without(text: str) -> str:
    """Take out the name of no node."""
    return text.replace(f" on {NOWHERE}:", ":").replace(f" on {NOWHERE} ", " ").removeprefix(f"{NOWHERE}: ")


def _node(node: str) -> str | None:
    return node if node not in ("", NOWHERE) else None


def _root_file(found: Explanation) -> str | None:
    """The file of the rank that the verdict names, else the one that the deciding line stands in."""
    root, where = found.root, found.where
    if root is None:
        return where.file if where else None
    if where and where in root.part.lines:
        return where.file
    return root.part.error.path if root.part.error and found.verdict.line else root.part.file


def _confidence(found: Explanation) -> str:
    """The verdict's, lowered where it stands on a status that nobody gave."""
    bare = not found.verdict.line and not any(proof.source != "exit status" for proof in found.verdict.evidence)
    return GUESS if bare and not found.known else found.verdict.confidence


def _lacking(found: Explanation) -> list[str]:
    return [_without(text) for text in (*found.case.notes, *found.notes, *found.verdict.lacked)]


def _evidence(found: Explanation) -> list[dict[str, object]]:
    """Return what the verdict stands on, each with the line where it can be read, then a line of each other rank."""
    root, case = found.root, found.case
    items: list[dict[str, object]] = []
    by_name = {f"rank {end.rank} on {end.node}": end for end in case.ends}
    for proof in found.verdict.evidence:
        end = by_name.get(proof.where)
        line = (place(end.part.lines, proof.text) if end else None) or place(case.kernel, proof.text)
        items.append(_item(end, line, proof.source, _without(proof.text)))
    if root is not None and not any(item["file"] for item in items) and root.part.lines:
        items.append(_item(root, root.part.lines[-1], "its last line", root.part.lines[-1].text))
    shown = {(item["file"], item["line_number"]) for item in items}
    others = [end for end in case.ends if end is not root and end.status]
    for end in others[:OTHERS]:
        reading = read(end.node, fact(end, 0.0), case.own)
        line = place(end.part.lines, reading.line)
        if reading.standing < Standing.INNOCENT and line is not None and (line.file, line.number) not in shown:
            role = "victim" if reading.standing > Standing.EXPLICIT else "also"
            items.append(_item(end, line, f"{role}: {reading.cls}", line.text))
    if len(others) > OTHERS:
        items.append(_item(None, None, "not shown", f"{len(others) - OTHERS} more ranks"))
    return items


def _item(end: End | None, line: Said | None, source: str, text: str) -> dict[str, object]:
    rank = end.rank if end is not None and end.named and end.rank != NOBODY else None
    return {
        "source": source,
        "file": line.file if line else None,
        "line_number": (line.number or None) if line else None,
        "rank": rank,
        "node": _node(end.node) if end else None,
        "text": text.strip(),
    }


def _policy(found: Explanation) -> dict[str, object]:
    """What a job with remuster's default budget, and nothing spent of it, would do."""
    verdict = found.verdict
    answer = policy.respond(verdict, policy.Memory(), policy.Limits(None), policy.Facts())
    suspect = suspicion(verdict, found.case.evidence)
    node = "none" if suspect is None else "quarantine" if suspect else "quarantine when it happens again there"
    return {
        "retry": answer.retry,
        "decision": "retry" if answer.retry else "stop",
        "reason": answer.reason,
        "charged_to": answer.charge or None,
        "node_action": node,
        "exit_code": answer.exit_code,
        "default_action": find(verdict.cls).action,
    }


def _wrapped(label: str, text: str) -> list[str]:
    head = f"{label:<{LABEL}}: " if label else ""
    return textwrap.wrap(
        visible(text), WIDTH, initial_indent=head, subsequent_indent=" " * len(head), break_on_hyphens=False
    ) or [head]


def _fit(line: str) -> str:
    line = visible(line)
    return line if len(line) <= WIDTH else line[: WIDTH - 1] + "…"


def visible(text: str) -> str:
    """Return text of strangers that cannot move a cursor."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" if c not in "\t\n" else " " for c in text)
