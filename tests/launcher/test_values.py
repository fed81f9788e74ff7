"""What the text of a flag means."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from remuster.launcher import devices, values
from remuster.launcher.errors import UsageError


@pytest.mark.parametrize(("text", "means"), [("1", (1, 1)), ("2:20", (2, 20)), ("3:3", (3, 3)), (" 2 : 4 ", (2, 4))])
def test_nnodes(text: str, means: tuple[int, int]) -> None:
    assert values.nnodes("--nnodes", text) == means


@pytest.mark.parametrize("text", ["", "a", "0", "3:1", "1:2:3", "2:", ":2", "-1", "1.5", "1e3", "0:2", "١", "9" * 5000])
def test_bad_nnodes(text: str) -> None:
    with pytest.raises(UsageError, match=r"^PET_NNODES is .*MIN:MAX"):
        values.nnodes("PET_NNODES", text)


@pytest.mark.parametrize(
    ("text", "means"),
    [("1048576", 1 << 20), ("1M", 1 << 20), ("1025k", 1025 << 10), (" 10GB ", 10 << 30), ("3TiB", 3 << 40)],
)
def test_sizes(text: str, means: int) -> None:
    assert values.size("--log-limit", text, 1 << 20) == means


@pytest.mark.parametrize(
    "text", ["", "M", "0", "1048575", "-1M", "1.5G", "1X", "1 M", "1MBB", "9" * 40, "9" * 15 + "T"]
)
def test_bad_sizes(text: str) -> None:
    with pytest.raises(UsageError, match=r"^PET_LOG_LIMIT is .*; give a size such as 500M or 10G, 1M or more$"):
        values.size("PET_LOG_LIMIT", text, 1 << 20)


@pytest.mark.parametrize(("text", "means"), [("off", 0.0), ("OFF", 0.0), ("0", 0.0), ("1", 1.0), ("600.5", 600.5)])
def test_hang_timeouts(text: str, means: float) -> None:
    assert values.hang_timeout("--hang-timeout", text) == means


@pytest.mark.parametrize("text", ["", "never", "-1", "0.5", "nan", "inf", "1e9"])
def test_bad_hang_timeouts(text: str) -> None:
    with pytest.raises(UsageError, match=r"^PET_HANG_TIMEOUT is .*; give "):
        values.hang_timeout("PET_HANG_TIMEOUT", text)


@pytest.mark.parametrize(
    ("text", "means"),
    [
        ("etcd1", (("etcd1", 2379),)),
        ("10.0.0.1:1234", (("10.0.0.1", 1234),)),
        ("[::1]:2380", (("::1", 2380),)),
        ("[fe80::1%eth0]", (("fe80::1%eth0", 2379),)),
        ("a, b:1 ,[::2]:3,", (("a", 2379), ("b", 1), ("::2", 3))),
        ("a,a:2379,b", (("a", 2379), ("b", 2379))),
        ("", ()),
    ],
)
def test_endpoints(text: str, means: tuple[tuple[str, int], ...]) -> None:
    assert values.endpoints("--rdzv-endpoint", text) == means


@pytest.mark.parametrize(
    "text", ["http://a:2379", "a:", "a:x", "a:0", "a:65536", "a:-1", "::1", "fe80::1:2379", "[::1", "[::1]2379",
             "[a b]:1", "a b", "a/b", ":2379", "a:1:2", "[]:1"],
)  # fmt: skip
def test_bad_endpoints(text: str) -> None:
    with pytest.raises(UsageError, match=r"^--rdzv-endpoint holds .*; "):
        values.endpoints("--rdzv-endpoint", f"good,{text}")


@pytest.mark.parametrize(
    ("text", "known", "ignored"),
    [
        ("", {}, ()),
        (
            "'join_timeout=5,last_call_timeout=1,timeout=5'",
            {"join_timeout": "5", "last_call_timeout": "1"},
            ("timeout",),
        ),
        ('"lease_ttl=4", kill_bound = 1 ,', {"lease_ttl": "4", "kill_bound": "1"}, ()),
        ("cacert='/a=b',launch_id=x=y", {"cacert": "/a=b", "launch_id": "x=y"}, ()),
        ("ca_cert=a,ssl_cert=b,ssl_cert_key=c", {"cacert": "a", "cert": "b", "key": "c"}, ()),
        ("read_timeout=1,close_timeout=0,read_timeout=2", {}, ("read_timeout", "close_timeout")),
        ("is_host=0,store_type=tcp,token_file=t", {"is_host": "0", "store_type": "tcp", "token_file": "t"}, ()),
        ("launch_id=", {"launch_id": ""}, ()),
    ],
)
def test_conf(text: str, known: dict[str, str], ignored: tuple[str, ...]) -> None:
    assert values.conf("--rdzv-conf", text) == values.Conf(known, ignored)


@pytest.mark.parametrize("text", ["timeout", "a=1,b", "=5"])
def test_bad_conf(text: str) -> None:
    with pytest.raises(UsageError, match="write KEY=VALUE"):
        values.conf("--rdzv-conf", text)


@pytest.mark.parametrize("key", ["password", "Password", "'token", "token "])
def test_what_is_secret_is_neither_taken_nor_shown(key: str) -> None:
    for text in (f"{key}=hunter2,x", f"lease_ttl=4,{key}=hunter2"):
        with pytest.raises(UsageError, match=r"^PET_RDZV_CONF holds a .*; write it into a file") as refusal:
            values.conf("PET_RDZV_CONF", text)
        assert "hunter2" not in str(refusal.value)


@pytest.mark.parametrize("text", ["u:hunter2@h:2379", "http://u:hunter2@h:2379", "a,hunter2@h"])
def test_a_password_in_an_endpoint_is_not_shown(text: str) -> None:
    with pytest.raises(UsageError, match="holds a user or password; write HOST:PORT") as refusal:
        values.endpoints("--rdzv-endpoint", text)
    assert "hunter2" not in str(refusal.value)


def test_endpoints_with_a_default_of_their_own() -> None:
    assert values.endpoints("e", "h", 29400, 0) == (("h", 29400),)
    assert values.endpoints("e", "[::1]:0", 29400, 0) == (("::1", 0),)
    with pytest.raises(UsageError, match="'h', which has no port; write HOST:PORT"):
        values.endpoints("e", "h", None)
    with pytest.raises(UsageError, match="from 0 to 65535"):
        values.endpoints("e", "h:65536", None, 0)


@pytest.mark.parametrize(
    ("text", "means"),
    [("a.b-c", "a.b-c"), ("10.0.0.1", "10.0.0.1"), ("::1", "::1"), ("[::1]", "::1"), (" h ", "h"),
     ("fe80::1%eth0", "fe80::1%eth0")],
)  # fmt: skip
def test_host(text: str, means: str) -> None:
    assert values.host("--master-addr", text) == means


@pytest.mark.parametrize("text", ["", " ", "a b", "h:1", "http://h", "[]", "[h]x", "a,b", "abc:"])
def test_bad_host(text: str) -> None:
    with pytest.raises(UsageError, match=r"^--master-addr is .*; give the name"):
        values.host("--master-addr", text)


def test_switch() -> None:
    for text in ("1", "true", "T", "Yes", "y"):
        assert values.switch("is_host", text)
    for text in ("0", "False", "f", "no", "N"):
        assert not values.switch("is_host", text)
    for text in ("", "2", "on", "ja"):
        with pytest.raises(UsageError, match=r"^is_host is .*; give true or false"):
            values.switch("is_host", text)


@pytest.mark.parametrize("text", ["", ".", "..", "a/b", "a\nb", "a\udcff", "x" * 129])
def test_bad_run_id(text: str) -> None:
    with pytest.raises(UsageError, match=r"^--rdzv-id is .*; "):
        values.run_id("--rdzv-id", text)


def test_a_role_that_the_store_would_not_hold() -> None:
    assert values.role("--role", "x" * 256) == "x" * 256
    with pytest.raises(UsageError, match=r"^--role has 257 characters; give at most 256"):
        values.role("--role", "x" * 257)


@pytest.mark.parametrize(("text", "means"), [("a", "/a/"), ("/remuster/", "/remuster/"), ("/x/y", "/x/y/")])
def test_prefix(text: str, means: str) -> None:
    assert values.prefix("prefix", text) == means


@pytest.mark.parametrize(
    ("parse", "text"),
    [
        (lambda t: values.whole("--max-restarts", t, 0), "x"),
        (lambda t: values.whole("--max-restarts", t, 0), "-1"),
        (lambda t: values.port("p", t), "0"),
        (lambda t: values.port("p", t), "-1"),
        (lambda t: values.port("p", t), "x"),
        (lambda t: values.seconds("kill_bound", t), "nan"),
        (lambda t: values.seconds("kill_bound", t), "inf"),
        (lambda t: values.seconds("kill_bound", t), "-1"),
        (lambda t: values.seconds("kill_bound", t), "soon"),
        (lambda t: values.prefix("prefix", t), "/"),
    ],
)
def test_bad_numbers(parse: Callable[[str], object], text: str) -> None:
    with pytest.raises(UsageError, match="; give"):
        parse(text)


@pytest.mark.parametrize(
    ("visible", "count"),
    [("0,1,2", 3), ("", 0), ("-1", 0), ("0,-1,2", 1), ("GPU-1,GPU-2", 2), ("NoDevFiles", 0), ("3, 4", 2), ("1,1", 0)],
)
def test_visible_gpus_are_counted_as_cuda_counts_them(visible: str, count: int) -> None:
    assert devices.gpus(visible) == count


def test_the_driver_shows_a_folder_for_each_gpu(tmp_path: Path) -> None:
    for bus in ("0000:07:00.0", "0000:0a:00.0"):
        (tmp_path / bus).mkdir()
    assert devices.by_driver(tmp_path) == 2
    assert devices.by_driver(tmp_path / "absent") == 0


def test_without_a_list_somebody_is_asked() -> None:
    assert devices.gpus(None) == devices.by_driver()


def test_nproc() -> None:
    cores = devices.nproc("--nproc-per-node", "cpu", None)
    assert cores >= 1
    assert devices.nproc("--nproc-per-node", "4", None) == 4
    assert devices.nproc("--nproc-per-node", "gpu", "0,1") == 2
    assert devices.nproc("--nproc-per-node", "auto", "0,1,2") == 3
    assert devices.nproc("--nproc-per-node", "auto", "") == cores


@pytest.mark.parametrize(
    ("text", "visible", "says"),
    [
        ("unknown", None, "Unsupported nproc_per_node value: --nproc-per-node is 'unknown'; give"),
        ("xpu", None, "Unsupported nproc_per_node value"),
        ("", None, "Unsupported nproc_per_node value"),
        ("1.5", None, "Unsupported nproc_per_node value"),
        ("0", None, "--nproc-per-node is 0; give 1 or more"),
        ("-1", None, "--nproc-per-node is -1; give 1 or more"),
        ("gpu", "", "this node has no GPU (CUDA_VISIBLE_DEVICES is ''); look at nvidia-smi"),
    ],
)
def test_bad_nproc(text: str, visible: str | None, says: str) -> None:
    with pytest.raises(UsageError) as refusal:
        devices.nproc("--nproc-per-node", text, visible)
    assert says in str(refusal.value)


@pytest.mark.parametrize("key", ["tokenfile", "lease_tll", "cacrt", "is_hosts", "lastcall_timeout"])
def test_a_key_that_is_nearly_one_of_ours_is_refused(key: str) -> None:
    with pytest.raises(UsageError, match=f"'{key}'; did you mean"):
        values.conf("--rdzv-conf", f"{key}=1")


@pytest.mark.parametrize("key", ["timeout", "read_timeout", "heartbeat_timeout", "keep_alive_interval", "bogus"])
def test_a_key_of_torchruns_or_of_nobodys_is_passed_over(key: str) -> None:
    assert values.conf("--rdzv-conf", f"{key}=1").ignored == (key,)
