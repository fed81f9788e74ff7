"""docs/failures.md, made of what judges failures: classes, signs, exit statuses, policy. Used by `test_failures`."""

# ruff: noqa: E501  a page is written as it is read

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

from remuster.health import exits, kernel, policy, words, xid
from remuster.health.classes import FailureClass, all_classes
from remuster.health.evidence import NodeEvidence, RankExit, RoundEvidence
from remuster.health.signatures import Role, Signature, table
from remuster.health.suspicion import suspicion
from remuster.health.verdict import ONE_NODE, Verdict

MOST_SIGNS = 6
EXAMPLE = 110  # characters

HEAD = """# Failures

For whoever is called at night. Written by a test from the tables that judge, not edited:
`REMUSTER_FAILURES=docs/failures.md .venv/bin/pytest tests/docs/test_failures.py`

The report, `attempts/attempt-NNN.json` and `remuster explain` name a *class*; find it below. Each class belongs to a *family*, for
which `--retry-budget FAMILY=N[/WINDOW]` keeps a budget over the job's life; `--max-restarts` bounds a launch. Where it says
"tries again", it does so only within both, and the same failure twice without a newer checkpoint ends a job of the families
{own}.

How a verdict is reached: what a program or a library names as its cause beats a wait that ran out; of ranks that waited, the one
that was furthest behind or silent is the root; "connection closed by peer" is a victim's cry; hardware events near the failure
beat text; ranks that ended because we stopped them say nothing; all exit statuses 0 is a success, whatever was printed. Times of
two nodes are never compared: their order is that in which the store got their words.

| family | classes |
|---|---|
{families}
"""


def render() -> str:
    """Return the page."""
    by_family: dict[str, list[FailureClass]] = defaultdict(list)
    for cls in all_classes().values():
        if cls.family != "none":
            by_family[cls.family].append(cls)
    rows = "\n".join(
        f"| [{family}](#{family}) | {', '.join(f'`{cls.name}`' for cls in classes)} |"
        for family, classes in sorted(by_family.items())
    )
    own = ", ".join(sorted(policy.OWN_FAMILIES))
    parts = [HEAD.format(own=own, families=rows)]
    for family, classes in sorted(by_family.items()):
        parts.append(f"## {family}\n\n" + "\n".join(_class(cls) for cls in classes))
    parts.append(_xids())
    return "\n".join(parts)


XIDS = """## XIDs

What the driver's error numbers mean here. *Consequence*: it follows from a kill or another XID and never decides. *Watch*: counted, and decides nothing. XID 154 and the recovery action that NVML tells are
the driver's own word on what must happen to the GPU, and beat this table.

| XID | | NVIDIA's action | class | role | the node |
|---|---|---|---|---|---|
"""


def _xids() -> str:
    node = {
        "none": "", "count": "", "repeat": "when it repeats there", "reset": "until the GPU is reset",
        "reboot": "until it is rebooted", "repair": "until it is repaired", "said": "as the driver says",
    }  # fmt: skip
    return XIDS + "".join(
        f"| {x.code} | {x.mnemonic} | {x.action} | `{x.cls}` | {x.role.value} | {node[x.node]} |\n"
        for x in sorted(xid.catalogue().values(), key=lambda x: x.code)
    )


def _class(cls: FailureClass) -> str:
    advice = words.advice(cls.name) or "Nothing."
    lines = [
        f"### `{cls.name}`",
        "",
        f"{_capital(words.cause(cls.name))}.",
        "",
        f"- **remuster** {_does(cls)}.",
        f"- **You**: {advice}",
        "- **Recognised by**",
        *(f"  - {sign}" for sign in _recognised(cls)),
        "",
    ]
    return "\n".join(lines)


def _recognised(cls: FailureClass) -> list[str]:
    found = [_sign(sign) for sign in table() if sign.cls == cls.name and sign.role in (Role.ROOT, Role.VICTIM)]
    more = len(found) - MOST_SIGNS
    said = [*found[:MOST_SIGNS], *([f"and {more} more signs"] if more > 0 else [])]
    said += [f"`{_short(p.example)}` (kernel log: {p.source})" for p in kernel.TABLE if p.cls == cls.name]
    codes = [str(x.code) for x in xid.catalogue().values() if x.cls == cls.name and x.role is xid.Role.ROOT]
    said += [f"XID {', '.join(codes)} (kernel log, NVML)"] if codes else []
    statuses = [status for status in range(-64, 256) if exits.class_of(status) == cls.name]
    if cls.name != "exit_unknown" and statuses:
        said.append(f"with no better evidence, {_statuses(statuses)}")
    said += [ALSO[cls.name]] if cls.name in ALSO else []
    assert said, cls.name
    return said


# What no table holds: how facts of several kinds come together.
ALSO = {
    "exit_unknown": "an exit status that nothing explains",
    "gpu_ecc": "uncorrected errors of a GPU that rose during the attempt (NVML)",
    "gpu_ecc_contained": "XID 94 near an ECC error (kernel log, NVML): the driver has contained it",
    "gpu_lost": "a GPU that NVML calls lost",
    "host_oom": "a cgroup's OOM counter that rose, and a rank that died of SIGKILL",
    "ib_link_error": "an RDMA port that is down, with ranks that cried about the network",
    "killed_unknown": "SIGKILL or SIGTERM that nobody owns up to: no OOM counter rose, no kernel line names the pid",
    "node_lost": "a lease that ran out without a word, or a node that fenced itself",
    "rank_hang": "the rank that all others waited for: the lowest sequence number, one that is elsewhere by its stack or its "
    "flight recorder, silence that is longer than the run's own steps allow, or exit status 0 while the others went on",
    "rdzv_lost": "all nodes lost their leases at once",
}


def _sign(sign: Signature) -> str:
    role = "" if sign.role is Role.ROOT else ", of a victim: it counts where nobody named a cause"
    return f"`{_short(sign.example)}` ({sign.source.split(':')[0]}{role})"


def _short(example: str) -> str:
    text = example.replace("`", "'").strip()
    return text if len(text) <= EXAMPLE else f"{text[: EXAMPLE - 1]}…"


def _statuses(found: list[int]) -> str:
    signals = [exits.signal_name(status) for status in found if exits.signal_name(status)]
    plain = [str(status) for status in found if status >= 0 and not exits.signal_of(status)]
    said = [f"signal {', '.join(signals)}"] if signals else []
    said += [f"exit status {', '.join(plain)}"] if plain else []
    return " or ".join(said)


_SAID = RoundEvidence(1, (NodeEvidence("node", (RankExit(0, 0, 1, 1, 1.0),)),), (("node", 1),))


def _does(cls: FailureClass) -> str:
    """Say what the policy answers to a first failure of the class, when restarts are allowed."""
    verdict = Verdict(cls.name, cls.family, "node", 0, node_fault=cls.always_node_fault, status=1, fingerprint="x")
    return _answered(cls, verdict) + _on_one_node_only(cls, verdict)


def _on_one_node_only(cls: FailureClass, verdict: Verdict) -> str:
    if cls.name not in ONE_NODE or cls.always_node_fault:
        return ""
    blamed = replace(verdict, node_fault=True, compared=True)
    paid = policy.respond(blamed, policy.Memory(), policy.Limits(None), policy.Facts()).charge
    return f". Where one node of several shows it alone, it tries again, if it can without that node, charged to {paid}"


def _answered(cls: FailureClass, verdict: Verdict) -> str:
    answer = policy.respond(verdict, policy.Memory(), policy.Limits(None), policy.Facts())
    once = suspicion(verdict, _SAID)
    if not answer.retry:
        raised = policy.respond(
            Verdict(cls.name, cls.family, "node", 0, status=1, exception="E", fingerprint="x"),
            *(policy.Memory(), policy.Limits(None), policy.Facts()),
        )
        less = "does not try again"
        if raised.retry:
            less = "tries once more where a Python exception was raised, for scripts rely on it; else it does not try again"
        return f"{less}; the command returns {_code(answer.exit_code, cls)}"
    said = "tries again, free of charge" if not answer.charge else f"tries again, charged to {answer.charge}"
    host = {
        None: "",
        True: "; the host goes into quarantine",
        False: "; the host goes into quarantine when it happens there twice within a day",
    }[once]
    return f"{said}{host}; in the end the command returns {_code(answer.exit_code, cls)}"


def _code(code: int, cls: FailureClass) -> str:
    return "the root rank's own status" if cls.family in policy.OWN_FAMILIES else str(code)


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
