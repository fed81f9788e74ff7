"""What a store of the job's own is told by, when it goes down, and why it did not come up: tables."""

import hashlib
import json

import pytest

from remuster.rendezvous.embedded import (
    ANSWER_S,
    GONE_S,
    OLDEST,
    STOPPED_S,
    JobState,
    Look,
    Scene,
    Seal,
    ending,
    etcd_arguments,
    etcd_version,
    job_state,
    last_words,
    store_password,
    too_old,
    why_not,
)
from remuster.rendezvous.errors import BadRecord
from remuster.rendezvous.keys import Keys
from remuster.rendezvous.records import Job, Outcome, Phase, Round, encode
from remuster.rendezvous.store import prefix_end

SEAL = Seal("r1", True, "node-1", "remuster 0.1.0")


def test_a_seal_comes_back_and_lies_outside_every_run():
    assert Seal.decode(SEAL.encode()) == SEAL
    assert json.loads(SEAL.encode()) == {"v": 1, **SEAL._asdict()}
    for run_id in ("r1", "~store", "~", "~storf"):
        prefix = Keys(run_id).prefix
        assert not prefix <= SEAL.key("/remuster/") < prefix_end(prefix)


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (b"", "not JSON"),
        (b"[" * 4000, "not JSON"),
        (b"\xff", "not JSON"),
        (b"[]", "not an object"),
        (b'"' + b"x" * 5000 + b'"', "5002 bytes"),
        (b"{}", "field is missing"),
        (b'{"v":2,"run_id":"r","given":true,"machine":"m","by":"x"}', "newer remuster"),
        (b'{"v":0,"run_id":"r","given":true,"machine":"m","by":"x"}', "field is missing"),
        (b'{"v":"1","run_id":"r","given":true,"machine":"m","by":"x"}', "field is missing"),
        (b'{"v":1,"run_id":"r","given":1,"machine":"m","by":"x"}', "field is missing"),
        (b'{"v":1,"run_id":7,"given":true,"machine":"m","by":"x"}', "run id"),
        (b'{"v":1,"run_id":"","given":true,"machine":"m","by":"x"}', "run id"),
        (b'{"v":1,"run_id":"a/b","given":true,"machine":"m","by":"x"}', "run id"),
        (b'{"v":1,"run_id":"a\\u0000b","given":true,"machine":"m","by":"x"}', "run id"),
    ],
)
def test_what_is_no_seal_is_refused(raw, words):
    with pytest.raises(BadRecord, match=words):
        Seal.decode(raw)


@pytest.mark.parametrize("phase", Phase)
def test_the_jobs_state_is_read_as_the_records_write_it(phase):
    job = Job(phase, Round(3), 1, 2, "launch", outcome=Outcome(0, "done") if phase.over else None)
    assert job_state(encode(job)) is (JobState.OVER if phase.over else JobState.OPEN)


@pytest.mark.parametrize("raw", [b"", b"[]", b"{}", b'{"phase":["D"]}', b"\xff", b"[" * 5000])
def test_a_malformed_job_is_not_over(raw):
    assert job_state(raw) is JobState.OPEN
    assert job_state(None) is JobState.ABSENT


TTL_S = 15
LONG_S = 2 * TTL_S + STOPPED_S
OPEN, OVER, ABSENT = (Look(0, state) for state in (JobState.OPEN, JobState.OVER, JobState.ABSENT))
HELD = Look(2, JobState.OVER)


@pytest.mark.parametrize(
    ("agents", "told", "look", "quiet_s", "in_order", "met", "down", "words"),
    [
        (1, 0, None, 0, True, False, False, "1 agent"),
        (2, 0, OVER, 1e9, True, False, False, "2 agent"),
        (1, 1, None, 0, True, False, False, "1 agent"),  # it has been told to stop as well, and still needs the store
        (1, 2, None, 0, True, False, True, "told"),
        (0, 1, HELD, 0, True, True, True, "told"),
        (0, 0, None, LONG_S - 1, True, False, False, "does not answer"),
        (0, 0, None, LONG_S, True, False, True, "does not answer"),
        (0, 0, HELD, 0, True, True, False, "2 node"),
        (0, 0, Look(1, JobState.OPEN), 1e9, False, True, False, "1 node"),
        (0, 0, OVER, 0, True, False, True, "is over"),
        (0, 0, OVER, ANSWER_S - 0.1, True, True, False, "is over"),
        (0, 0, OVER, ANSWER_S, True, True, True, "is over"),
        (0, 0, OVER, 0, False, False, True, "is over"),
        (0, 0, ABSENT, 0, False, False, True, "has not begun"),
        (0, 0, OPEN, 0, True, False, True, "0 s to return"),  # the only node left in good order
        (0, 0, OPEN, GONE_S - 0.1, True, True, False, "2 s to return"),
        (0, 0, OPEN, GONE_S, True, True, True, "2 s to return"),
        (0, 0, OPEN, LONG_S - 0.1, False, False, False, "35 s to return"),
        (0, 0, OPEN, LONG_S - 0.1, False, True, False, "35 s to return"),
        (0, 0, OPEN, LONG_S, False, True, True, "35 s to return"),
    ],
)
def test_endings(agents, told, look, quiet_s, in_order, met, down, words):
    decision = ending(Scene(agents, told, look, quiet_s, in_order, met), TTL_S)
    assert decision.down is down
    assert words in decision.reason


def test_the_password_is_of_the_word_and_not_of_the_line():
    assert store_password("secret\n") == store_password(" secret") == hashlib.sha256(b"secret").hexdigest()


def test_arguments_listen_where_they_are_told_and_nowhere_else():
    private, public = (" ".join(etcd_arguments(where, 2380, "cafe")) for where in ((), ("10.0.0.1", "::1")))
    assert "http" not in private
    assert "--listen-client-urls unix://client:1,http://10.0.0.1:2380,http://[::1]:2380 " in public
    assert public.count("http") == 4  # listened at and told


@pytest.mark.parametrize(
    ("words", "version"),
    [
        ("etcd Version: 3.5.1\nGit SHA: e8732fb5f\n", (3, 5, 1)),
        ("etcd Version: 3.6.0-rc.1\n", (3, 6, 0)),
        ("3.4.23", (3, 4, 23)),
        ("", None),
        ("hello\n", None),
        ("curl 7.88.1", None),
        ("etcd Version: three", None),
    ],
)
def test_versions(words, version):
    assert etcd_version(words) == version


def test_ages():
    assert too_old("/bin/etcd", OLDEST) == ""
    assert "is etcd 3.3.25, and 3.4.16 or newer is needed: pip install" in too_old("/bin/etcd", (3, 3, 25))


def fatal(error):
    return json.dumps({"level": "fatal", "ts": "now", "msg": "discovery failed", "error": error, "stacktrace": "x"})


@pytest.mark.parametrize(
    ("version", "log", "words"),
    [
        (None, "hello\n", "/x/etcd is not an etcd (hello): pip install 'remuster[etcd]'"),
        (None, "", "is not an etcd (it said nothing)"),
        ((3, 3, 25), "flag provided but not defined: -unsafe-no-fsync\n", "is etcd 3.3.25"),
        (
            (3, 5, 1),
            fatal("listen tcp [::1]:29500: bind: address already in use"),
            "listens at [::1]:29500, where the store of this run should: give another port (c10d: in --rdzv-endpoint; "
            "static: --rdzv-conf etcd_port=PORT), the same on all nodes. `ss -tanp 'sport = :29500'` names the other",
        ),
        ((3, 5, 1), fatal("listen tcp 10.0.0.1:1: bind: cannot assign requested address"), "is not an address of this"),
        ((3, 5, 1), fatal("listen tcp 10.0.0.1:1: bind: permission denied"), "ports below 1024 are root's"),
        ((3, 5, 1), fatal("write data/x: no space left on device"), "found no room for its data"),
        ((3, 5, 1), "panic: out of luck\n", "etcd (/x/etcd) ended with exit status 1: panic: out of luck"),
    ],
)
def test_why_not(version, log, words):
    assert words in why_not("/x/etcd", version, log, "with exit status 1")


def test_last_words_are_short_and_those_that_matter():
    log = "\n".join(['{"level":"warn","msg":"slow"}', fatal("why"), "goroutine 1 [running]:", "", "main.main()"])
    assert last_words(log) == "discovery failed: why"
    assert last_words("{not json\nbye\n\n") == "bye"
    assert len(last_words("x" * 9999)) == 300
