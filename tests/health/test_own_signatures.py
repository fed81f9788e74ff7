"""``--signatures``: what a file may hold, what is refused in words, what it changes about lines, XIDs and verdicts."""

from __future__ import annotations

import contextlib
import json
import re
import time

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from remuster.health import excerpt
from remuster.health.evidence import Fact, NodeEvidence, RankExit, RoundEvidence
from remuster.health.observed import Gpu, KernelLine, Sighting
from remuster.health.own_signatures import LARGEST, MOST, NONE, BadSignatures, OwnSign, OwnSignatures, parse, xids_of
from remuster.health.scan import Scanner
from remuster.health.signatures import match
from remuster.health.verdict import Verdict, judge
from remuster.health.xid import Role, catalogue

TB = "Traceback (most recent call last):"
READER = {"pattern": "SITE-42: * gave up", "class": "fs_transient", "note": "the site's data reader"}
GAVE_UP = "12:00:01 SITE-42: reader of shard 7 gave up"


def file(*signs: object, **more: object) -> bytes:
    return json.dumps({"schema_version": 1, "signatures": [*signs], **more}).encode()


def own(*signs: tuple[str, str], xids: tuple[tuple[int, str], ...] = ()) -> OwnSignatures:
    entries = [{"pattern": pattern, "class": cls, "note": f"about {pattern}"} for pattern, cls in signs]
    raw = {"schema_version": 1, "signatures": entries, "xids": {str(code): means for code, means in xids}}
    return parse(json.dumps(raw).encode())


def with_(**more: object) -> bytes:
    return file({**READER, **more})


# --- the file ---------------------------------------------------------------------------------------------------------
def test_what_is_taken() -> None:
    found = parse(file(READER, {"pattern": " x-ray lost *", "class": "ignore"}, xids={"94": "watch", "31": "gpu_lost"}))
    assert found == OwnSignatures(
        (
            OwnSign("SITE-42:*gave up", "fs_transient", "the site's data reader"),
            OwnSign("x-ray lost", "ignore", "x-ray lost"),
        ),
        ((31, "gpu_lost"), (94, "watch")),
    )
    assert parse(b'{"schema_version": 1, "xids": {"7777": "gpu_ecc"}}').xids == ((7777, "gpu_ecc"),)


def test_the_digest_is_of_what_it_means() -> None:
    there = parse(file(READER, xids={"94": "watch", "31": "gpu_lost"}))
    spelled = json.dumps(json.loads(file(READER, xids={"31": "gpu_lost", "94": "watch"})), indent=4, sort_keys=True)
    assert parse(spelled.encode()).digest == there.digest
    others = [with_(note="x"), with_(pattern="SITE-43: * gave up"), with_(**{"class": "fs_hang"}), file(READER)]
    assert len({there.digest, *(parse(raw).digest for raw in others)}) == 5


@pytest.mark.parametrize(
    ("raw", "sentence"),
    [
        (b"", "it is not JSON: Expecting value, line 1 column 1"),
        (b'{"schema_version": 1,\n "signatures": [}', "line 2 column 17"),
        (b"\xff{}", "it is not UTF-8 at byte 0"),
        (b"[" * 100_000, "it nests too deeply"),
        (b'{"schema_version": ' + b"9" * 5000 + b"}", "it is not JSON of this kind"),
        (b" " * (LARGEST + 1), f"more than {LARGEST}"),
        (b"[]", "the file is no object"),
        (b"{}", 'it does not say "schema_version": 1'),
        (b'{"schema_version": 2}', 'it does not say "schema_version": 1'),
        (b'{"schema_version": true, "xids": {"31": "watch"}}', 'it does not say "schema_version": 1'),
        (b'{"schema_version": 1, "signature": []}', "the file has 'signature', which is not known; the keys are"),
        (b'{"schema_version": 1, "signatures": [], "signatures": []}', "'signatures' is there twice"),
        (b'{"schema_version": 1, "signatures": {}}', '"signatures" is no list'),
        (file("SITE"), "signature 1 is no object"),
        (file(READER, {"class": "fs_hang"}), 'signature 2 has no "pattern"'),
        (file({"pattern": "SITE-42"}), 'signature 1 has no "class"'),
        (with_(severity=3), "signature 1 has 'severity', which is not known"),
        (with_(pattern=""), "the pattern of signature 1 is no text"),
        (with_(pattern=7), "the pattern of signature 1 is no text"),
        (with_(pattern="x" * 201), "has 201 characters, more than 200"),
        (with_(pattern="SITE\nTIME"), "holds a line's end, a tab or another control character"),
        (with_(pattern="SITE\ud800"), "another control character"),
        (with_(pattern="SITE  TIME"), "several blanks in a row; write * in their place"),
        (with_(pattern="*"), "fits too many lines"),
        (with_(pattern="err*4711"), "fits too many lines"),
        (with_(pattern="a*b*c*d*e*f*g*hhhh*i"), "has 9 pieces, more than 8"),
        (with_(note=""), "the note of signature 1 is no text"),
        (with_(note="x" * 121), "the note of signature 1 has 121 characters"),
        (
            with_(**{"class": "fs_transent"}),
            "'fs_transent', is none of failures, nor 'ignore'; did you mean fs_transient",
        ),
        (with_(**{"class": "success"}), "'success', is none of failures"),
        (with_(**{"class": ["fs_hang"]}), "is none of failures"),
        (file(READER, with_re := {**READER, "pattern": "SITE-42:*gave up"}), "1 and 2 have the same pattern"),
        (file(*({**with_re, "pattern": f"SITE-{n}"} for n in range(MOST + 1))), f"65 signatures, more than {MOST}"),
        (file(READER, xids=[31]), '"xids" is no object'),
        (file(READER, xids={"XID 31": "watch"}), "'XID 31' in \"xids\" is no number of an XID"),
        (file(READER, xids={"031": "watch"}), "'031' in \"xids\" is no number"),
        (
            file(READER, xids={"31": "gpu_lots"}),
            "'gpu_lots', which is no class of failures, nor 'watch' nor 'ignore'; did",
        ),
        (file(READER, xids={"31": 1}), "XID 31 is given 1, which is no class"),
        (file(READER, xids={"154": "ignore"}), "XID 154 is the driver's own word"),
        (b'{"schema_version": 1, "xids": {"31": "watch", "31": "ignore"}}', "'31' is there twice"),
    ],
)
def test_what_is_refused(raw: bytes, sentence: str) -> None:
    with pytest.raises(BadSignatures, match=re.escape(sentence)):
        parse(raw)


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(max_size=8), lambda v: st.lists(v, max_size=3)))
@example([None])
def test_any_value_anywhere_is_taken_or_refused_in_words(value: object) -> None:
    for raw in (
        json.dumps(value).encode(),
        file(value),
        file(READER, xids=value),
        with_(pattern=value),
        with_(note=value),
    ):
        with contextlib.suppress(BadSignatures):
            parse(raw)


# --- lines ------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("pattern", "line", "fits"),
    [
        ("SITE-42:*gave up", GAVE_UP, True),
        ("SITE-42:*gave up", "SITE-42:gave up", True),
        ("SITE-42:*gave up", "gave up SITE-42: reader", False),
        ("SITE-42", "site-42", False),
        ("[a-z]+ (", "an open [a-z]+ ( is text", True),
        ("aaaa*aaaa", "aaaaaa", False),
        ("aaaa*aaaa", "aaaa aaaa", True),
    ],
)
def test_what_fits(pattern: str, line: str, fits: bool) -> None:
    assert OwnSign(pattern, "fs_hang", "").fits(line) is fits


@given(
    st.lists(st.text(alphabet="abS ", min_size=1, max_size=5), min_size=1, max_size=4),
    st.text(alphabet="abS ", max_size=30),
)
def test_it_is_what_a_regular_expression_would_say(pieces: list[str], line: str) -> None:
    wanted = re.search(".*".join(map(re.escape, pieces)), line) is not None
    assert OwnSign("*".join(pieces), "fs_hang", "").fits(line) is wanted


def test_time_grows_with_the_line_and_no_faster() -> None:
    """Red with a regular expression of the same eight pieces: hours."""
    sign = OwnSign("*".join(["aaaa"] * 7 + ["b"]), "fs_hang", "")
    began = time.process_time()
    assert not sign.fits("a" * 1_000_000)
    assert time.process_time() - began < 2


def seen(lines: list[str], *signs: tuple[str, str]) -> list[tuple[str, str]]:
    return [(hit.cls, hit.own.pattern if hit.own else "") for hit in match(lines, own(*signs))]


def test_a_line_of_the_sites_is_read_by_no_other() -> None:
    assert [cls for cls, _ in seen([OOM])] == ["cuda_oom"]
    assert seen([OOM], ("CUDA out of memory", "gpu_app_fault")) == [("gpu_app_fault", "CUDA out of memory")]
    assert seen([OOM], ("CUDA out of memory", "ignore")) == []
    assert seen([OOM], ("out of memory*GiB", "ignore"), ("CUDA out", "fs_hang")) == []  # the first counts
    assert seen([OOM], ("CUDA out", "fs_hang"), ("out of memory*GiB", "ignore")) == [("fs_hang", "CUDA out")]


def test_the_exception_that_a_line_ends_stays_known() -> None:
    (hit,) = match([TB, '  File "t.py", line 3, in step', "IOError: SITE-42 read"], own(("SITE-42", "fs_hang")))
    assert hit.raised is not None
    assert (hit.raised.type, hit.cls) == ("IOError", "fs_hang")


# --- verdicts ---------------------------------------------------------------------------------------------------------
def ended(rank: int, status: int, *tail: str, at_s: float = 0.0, stopping: bool = False) -> RankExit:
    return RankExit(rank, rank, 100 + rank, status, at_s or 10.0 + rank, stopping, tail=tail)


def verdict(signs: OwnSignatures, *facts: Fact) -> Verdict:
    ranks = [fact for fact in facts if isinstance(fact, RankExit)]
    return judge(RoundEvidence(3, (NodeEvidence("a", facts, 5),), (("a", len(ranks)),)), signs)


BOOM = (TB, '  File "t.py", line 3, in step', "ValueError: a bug")
OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 7.81 GiB."
ECC = "RuntimeError: CUDA error: uncorrectable ECC error encountered"
STEPS = ("step 8 loss 1", "step 9 loss 1")
XID = "NVRM: Xid (PCI:0000:3b:00)"
SITE = own(("SITE-42:*gave up", "fs_transient"), ("SITE-9", "rank_hang"), ("all is well", "ignore"))


def test_evidence_names_it() -> None:
    found = verdict(SITE, ended(0, 1, GAVE_UP))
    name = "site signature: about SITE-42:*gave up"
    assert (found.cls, found.family, found.rank, found.line) == ("fs_transient", "storage", 0, GAVE_UP)
    assert found.evidence[0] == (name, "rank 0 on a", GAVE_UP)
    assert found.sentence.endswith(f"{GAVE_UP} ({name})")
    assert (found.confidence, found.fingerprint.partition(":")[0]) == ("certain", "fs_transient")


@pytest.mark.parametrize(
    ("name", "facts", "cls", "rank"),
    [
        ("beats its rank's other words", (ended(0, 1, GAVE_UP, *BOOM),), "fs_transient", 0),
        ("and hardware among them", (ended(0, 1, ECC, GAVE_UP),), "fs_transient", 0),
        ("wins over an earlier rank's of its standing", (ended(0, 1, OOM), ended(1, 1, GAVE_UP)), "fs_transient", 1),
        ("not over a rank that ended undisturbed", (ended(0, 1, *BOOM), ended(1, -15, GAVE_UP, stopping=True)),
         "user_exception", 0),
        ("not over a device", (ended(0, 1, GAVE_UP), KernelLine(9.5, f"{XID}: 79, pid=7, name=x, x")), "gpu_lost", 0),
        ("not when training went on", (ended(0, 1, GAVE_UP, *STEPS, *BOOM),), "user_exception", 0),
        ("of a rank killed", (ended(0, -9, GAVE_UP),), "fs_transient", 0),
        ("who hangs has not waited", (ended(0, 1, "SITE-9: stuck"), ended(1, -15, stopping=True)), "rank_hang", 0),
        ("what is ignored is nothing", (ended(0, 3, "ValueError: all is well"),), "exit_unknown", 0),
        ("exit 0 is success", (ended(0, 0, GAVE_UP),), "success", -1),
        ("seen while it lived", (ended(0, 1, "bye"), Sighting(0, 5.0, "x", GAVE_UP)), "fs_transient", 0),
    ],
)  # fmt: skip
def test_what_decides(name: str, facts: tuple[Fact, ...], cls: str, rank: int) -> None:
    found = verdict(SITE, *facts)
    assert (found.cls, found.rank) == (cls, rank), (name, found)


# --- XIDs -------------------------------------------------------------------------------------------------------------
def test_xids_as_the_site_has_them() -> None:
    line = KernelLine(9.5, f"{XID}: 31, pid=100, name=python, Ch 00000008")
    assert verdict(NONE, ended(0, 1), line).cls == "gpu_app_fault"
    said = own(xids=((31, "gpu_lost"), (79, "ignore")))
    found = verdict(said, ended(0, 1), line)
    assert (found.cls, found.node_fault) == ("gpu_lost", True)
    assert "gpu_lost by --signatures" in found.sentence
    gone = Gpu("GPU-1", "0000:3b:00.0", 0, (0,), ((79, 9.0),))
    assert verdict(NONE, ended(0, 1), gone).cls == "gpu_lost"
    left = verdict(said, ended(0, 1), gone)
    assert left.cls == "exit_unknown"
    assert any("ignore by --signatures" in note for note in left.unused)


def test_the_catalogue_itself_stays_as_it_was() -> None:
    table = xids_of(own(xids=((31, "gpu_lost"),)))
    assert table is not None
    assert (table[31].cls, table[31].role) == ("gpu_lost", Role.ROOT)
    assert catalogue()[31].cls == "gpu_app_fault"
    assert xids_of(SITE) is None


# --- streams ----------------------------------------------------------------------------------------------------------
def scanned(signs: OwnSignatures, text: str) -> list[tuple[str, bool]]:
    scanner = Scanner(signs)
    found = [*scanner.feed(text.encode()), *scanner.end()]
    return [(one.sign, one.alarm) for one in found]


TIMEOUT = (
    "[rank1]:[E626 06:24:44.903881913 ProcessGroupNCCL.cpp:616] [Rank 1] Watchdog caught collective operation timeout: "
)
TIMEOUT += "WorkNCCL(SeqNum=808, OpType=ALLREDUCE) ran for 600020 milliseconds before timing out.\n"


def test_a_stream_shows_the_sites_lines_once_and_they_raise_no_alarm() -> None:
    text = f"step 1\n\x1b[31m{GAVE_UP}\x1b[0m\n{GAVE_UP}\nSITE-9 stuck\nall is well"
    assert scanned(SITE, text) == [("site signature: SITE-42:*gave up", False), ("site signature: SITE-9", False)]
    assert scanned(NONE, text) == []


def test_what_is_ignored_raises_no_alarm() -> None:
    assert [alarm for _, alarm in scanned(SITE, TIMEOUT)] == [True]
    assert scanned(own(("Watchdog caught", "ignore")), TIMEOUT) == []
    (again,) = [alarm for sign, alarm in scanned(own(("Watchdog caught", "fs_hang")), TIMEOUT) if "site" not in sign]
    assert again  # what it is called changes nothing about the rank: it cannot go on


def test_a_pattern_of_the_commonest_letters_is_found_too() -> None:
    assert scanned(own(("site is at rest", "fs_hang")), "the site is at rest\n") == [
        ("site signature: site is at rest", False)
    ]


def test_a_long_log_keeps_the_sites_lines() -> None:
    lines = [f"step {n} loss 1.{n}" for n in range(20_000)]
    line = "12:00:01 SITE-42: shard 7 gave up"  # no word of the built-in tables in it
    lines[7000] = line
    for signs, kept in ((SITE, True), (NONE, False)):
        taken = excerpt.Excerpt(excerpt.Signs(signs))
        for at in range(0, len(lines), 500):
            taken.feed("\n".join(lines[at : at + 500]).encode(), range(at + 1, at + 501))
        assert ((7001, line) in taken.lines()) is kept
