"""``remuster quarantine`` beside jobs that meet in a real etcd: who is kept out, what is said, and how it ends."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence

import pytest
from command.cluster import COMMAND, Cluster
from command.processes import until

from remuster.agent.identity import this_machine

pytestmark = pytest.mark.process


def quarantine(cluster: Cluster, words: Sequence[str], code: int = 0) -> str:
    """Run the sub-command against the cluster's etcd; return what it printed."""
    env = {**cluster.env, "REMUSTER_ENDPOINT": f"127.0.0.1:{cluster.etcd.port}"}
    line = [os.fspath(COMMAND), "quarantine", *words]
    done = subprocess.run(line, env=env, cwd=cluster.folder, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_a_barred_host_waits_says_why_and_goes_on_when_it_is_let_in(cluster: Cluster) -> None:
    first = cluster.steady(2, "--nnodes", "1:2", "--max-restarts", "3")
    cluster.wait_round(1, 2)
    host = this_machine().lasting
    assert quarantine(cluster, ["add", host, "--reason", "ECC storms", "--for", "2h"]).startswith(f"{host}  until 20")
    told = until(lambda: [e for e in first.events() if "in quarantine" in e["event"]], "it says so", show=first.say)
    assert "ECC storms; it takes part in no further round" in told[0]["event"]

    cluster.order("exit-1", 1, "3")  # the round ends, and no other forms
    until(lambda: any(f"in quarantine: {host}" in e["event"] for e in first.events()), "it waits", show=first.say)
    assert json.loads(quarantine(cluster, ["list", "--json"]))["barred"] is True

    quarantine(cluster, ["lift", host.partition("~")[0]])
    cluster.wait_round(2, 2)
    cluster.order("done")
    assert first.exit_code() == 0, first.say()
    assert any(e["event"] == "this host is no longer in quarantine" for e in first.events())
    assert "no host is in quarantine" in quarantine(cluster, ["list"])
    cluster.check_left()


@pytest.mark.parametrize("nodes", ["1:2", "1"])
def test_a_job_with_barred_hosts_alone_ends_in_words(cluster: Cluster, nodes: str) -> None:
    host = this_machine().lasting
    quarantine(cluster, ["add", host, "--reason", "fan"])
    try:
        node = cluster.start(2, "--nnodes", nodes, cluster.script("idle.py", ""), conf="join_timeout=1.5")
        assert node.exit_code() == 69, node.say()
        assert f"only 0 of at least 1 nodes were ready after 1.5 s; start more nodes; in quarantine: {host}" in node.err
    finally:
        quarantine(cluster, ["lift", host])


@pytest.mark.parametrize(
    ("words", "code", "sentence"),
    [
        (["add", "nobody", "--reason", "x"], 2, "no agent has been on 'nobody' yet"),
        (["add", "nobody~0123", "--reason", "x", "--for", "ever"], 2, "give a time such as 30m"),
        (["add", "nobody~0123", "--reason", ""], 2, "--reason must be a line of text"),
        (["add", "nobody~0123"], 2, "Missing option '--reason'"),
        (["lift", "nobody~0123"], 1, "nothing is held against it"),
        (["find"], 2, "No such command 'find'"),
        (["list", "--rdzv-endpoint", "127.0.0.1:1", "--rdzv-conf", "connect_timeout=0.5"], 1, "nothing listens"),
        (["list", "--rdzv-conf", "password=x"], 2, "password_file=FILE"),
    ],
)
def test_what_cannot_be_done_is_said(cluster: Cluster, words: list[str], code: int, sentence: str) -> None:
    assert sentence in quarantine(cluster, words, code)
