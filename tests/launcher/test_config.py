"""The etcd service that a variable or a file names: which source wins, what a file may hold, and who may write it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from launcher_lines import Command

from remuster.agent.spec import Backend, StoreAccess
from remuster.launcher import config, files
from remuster.launcher.errors import UsageError
from remuster.launcher.given import Setting

TWO = "--nnodes 2 --rdzv-id x"


@pytest.fixture
def home(command: Command) -> dict[str, str]:
    """An environment whose user has a configuration folder."""
    (command.folder / ".config").mkdir()
    return {"HOME": str(command.folder)}


def layer(source: str, **settings: str) -> dict[str, Setting]:
    return {key: Setting(text, f"{key} in {source}") for key, text in settings.items()}


def test_each_key_comes_from_the_strongest_layer_that_has_it() -> None:
    found = config.merged([layer("a", prefix="p"), layer("b", prefix="q", endpoints="h"), layer("c", cacert="ca")])
    assert found == layer("a", prefix="p") | layer("b", endpoints="h") | layer("c", cacert="ca")


def test_a_weaker_layer_that_names_another_service_counts_no_more() -> None:
    weak = layer("b", endpoints="b1,b2", cacert="ca", username="u", password_file="pw", prefix="p", binary="/etcd")
    assert config.merged([layer("a", endpoints="a1"), weak]) == layer("a", endpoints="a1") | layer("b", binary="/etcd")
    same = config.merged([layer("a", endpoints="b2:2379"), weak])  # one member named is the same service
    assert same == {**weak, **layer("a", endpoints="b2:2379")}


def test_a_name_and_its_password_stay_together() -> None:
    for mine, theirs in (
        ("username", "password_file"),
        ("password_file", "username"),
        ("cert", "key"),
        ("key", "cert"),
    ):
        found = config.merged([layer("a", **{mine: "mine"}), layer("b", **{mine: "x", theirs: "theirs"})])
        assert found == layer("a", **{mine: "mine"})


def test_files_in_their_order(tmp_path: Path) -> None:
    named, user, system = tmp_path / "named.toml", tmp_path / "user", tmp_path / "system.toml"
    user.mkdir()
    named.write_text('[etcd]\nprefix = "named"\n')
    (user / "remuster.toml").write_text('[etcd]\nprefix = "user"\ncacert = "ca"\n')
    system.write_text('[etcd]\nprefix = "system"\nendpoints = ["a", "b:7"]\n')
    asked = Setting(str(named), "--config")

    def found(asked: Setting | None, home: str) -> dict[str, str]:
        return {key: setting.text for key, setting in config.merged(config.from_files(asked, home, system)).items()}

    ca = str(user / "ca")  # beside the file that names it
    assert found(asked, str(user)) == {"prefix": "named", "cacert": ca, "endpoints": "a,b:7"}
    assert found(None, str(user)) == {"prefix": "user", "cacert": ca, "endpoints": "a,b:7"}
    assert found(None, "") == found(None, str(tmp_path)) == {"prefix": "system", "endpoints": "a,b:7"}
    system.unlink()
    assert found(None, "") == {}


def test_what_wins(command: Command, home: dict[str, str]) -> None:
    command.file(".config/remuster.toml", '[etcd]\nendpoints = "user"\n')
    command.file("named.toml", '[etcd]\nendpoints = ["named", "second:7"]\n')

    def where(line: str, **environ: str) -> tuple[tuple[str, int], ...]:
        return command.spec(f"{line} {TWO} t.py", **home, **environ).endpoints

    assert where("") == (("user", 2379),)
    assert where("--config named.toml") == (("named", 2379), ("second", 7))
    assert where("", PET_CONFIG="named.toml") == (("named", 2379), ("second", 7))
    assert where("--config named.toml", REMUSTER_ENDPOINT="v1,v2:1") == (("v1", 2379), ("v2", 1))
    assert where("", REMUSTER_ENDPOINT="") == (("user", 2379),)
    service = {"PET_RDZV_BACKEND": "etcd", "PET_RDZV_ENDPOINT": "pet", "REMUSTER_ENDPOINT": "v"}
    assert where("", **service) == (("pet", 2379),)
    assert where("--rdzv-endpoint line", **service) == (("line", 2379),)
    assert where("--rdzv-backend etcd") == (("user", 2379),)
    assert command.spec("--rdzv-backend etcd t.py", **home).endpoints == (("user", 2379),)  # one node, too


def test_lines_that_say_how_nodes_meet_keep_their_meaning(command: Command, home: dict[str, str]) -> None:
    service = {**home, "REMUSTER_ENDPOINT": "v"}
    assert command.spec(f"{TWO} t.py", **service).embedded is None
    assert command.spec("--nnodes 1:2 --rdzv-id x t.py", **service).endpoints == (("v", 2379),)
    for line in (
        "--rdzv-backend c10d --rdzv-endpoint h",
        "--rdzv-backend static",
        "--rdzv-endpoint h:7",
        "--node-rank 0",
        "--master-addr h",
        "--master-port 7",
    ):
        assert command.spec(f"{line} {TWO} t.py", **service).embedded is not None
    for line in ("", "--standalone", "--rdzv-backend c10d", "--master-port 7"):
        assert command.spec(f"{line} t.py", **service).backend is Backend.MEMORY
    assert command.spec(f"{TWO} t.py", **service, PET_NODE_RANK="0").embedded is not None


def test_a_file_may_hold_all_of_a_service(command: Command, home: dict[str, str]) -> None:
    for name, mode in (("ca", 0o644), ("crt", 0o644), ("key", 0o640), ("pw", 0o600)):
        command.file(f".config/{name}", "x", mode)
    command.file(
        ".config/remuster.toml",
        '[etcd]\nendpoints = ["a:1"]\nprefix = "p"\ncacert = "ca"\ncert = "crt"\nkey = "../.config/key"\n'
        'username = "u"\npassword_file = "pw"\nbinary = "absent"\n',
    )
    spec, folder = command.spec(f"{TWO} t.py", **home), command.folder / ".config"
    assert (spec.endpoints, spec.prefix) == ((("a", 1),), "/p/")
    assert spec.store == StoreAccess(folder / "ca", folder / "crt", folder / "../.config/key", "u", folder / "pw")
    assert command.spec(f"--rdzv-conf prefix=q {TWO} t.py", **home).prefix == "/q/"
    # Another service on the line: nothing of this one's goes there.
    other = command.spec(f"--rdzv-backend etcd --rdzv-endpoint b {TWO} t.py", **home)
    assert (other.store, other.prefix) == (StoreAccess(), "/remuster/")
    assert "binary in" in command.refusal(f"--rdzv-backend c10d {TWO} t.py", **home)


def test_a_file_may_name_the_etcd_program(command: Command, home: dict[str, str]) -> None:
    program = command.file(".config/etcd", mode=0o755)
    command.file(".config/remuster.toml", '[etcd]\nbinary = "etcd"\nusername = "u"\nprefix = "p"\n')
    spec = command.spec("--nnodes 2 t.py", **home)
    assert spec.embedded is not None
    assert (spec.embedded.binary, spec.store, spec.prefix) == (str(program), StoreAccess(), "/remuster/")
    other = command.file("other", mode=0o755)
    spec = command.spec("--nnodes 2 --etcd-binary ./other t.py", **home)
    assert spec.embedded is not None
    assert spec.embedded.binary == str(command.folder / other.name)


def test_where_the_users_file_is(command: Command) -> None:
    command.file("xdg/remuster.toml", '[etcd]\nendpoints = "xdg"\n')
    command.file(".config/remuster.toml", '[etcd]\nendpoints = "home"\n')
    home, xdg = str(command.folder), str(command.folder / "xdg")
    assert command.spec(f"{TWO} t.py", HOME=home).endpoints == (("home", 2379),)
    assert command.spec(f"{TWO} t.py", HOME=home, XDG_CONFIG_HOME=xdg).endpoints == (("xdg", 2379),)
    assert command.spec(f"{TWO} t.py", HOME=home, XDG_CONFIG_HOME="xdg").endpoints == (("home", 2379),)
    assert command.spec(f"{TWO} t.py", HOME="").embedded is not None


def test_the_sites_command_for_hosts_in_quarantine(command: Command, home: dict[str, str]) -> None:
    """Of the strongest file that has one, whichever service is named."""
    drain = ["scontrol", "update", "NodeName={host}", "Reason={reason} {}"]
    command.file(".config/remuster.toml", f'[etcd]\nendpoints = "a"\n[site]\ndrain_command = {json.dumps(drain)}\n')
    command.file("c.toml", "[site]\ndrain_command = ['mine', '{run}']")
    for line in ("--rdzv-backend etcd --rdzv-endpoint b", "--rdzv-backend c10d --rdzv-endpoint h:1", ""):
        assert command.spec(f"{line} {TWO} t.py", **home).drain_command == tuple(drain)
        assert command.spec(f"{line} --config c.toml {TWO} t.py", **home).drain_command == ("mine", "{run}")
    assert command.spec(f"{TWO} t.py", HOME="").drain_command == ()
    assert command.spec("t.py", **home).drain_command == ()  # one node bars nobody, and reads no file


BAD: list[tuple[str | bytes, str]] = [
    ("[etcd]\nendpoint = 'h'", "'endpoint' in [etcd] is not known; the keys are endpoints, prefix"),
    ("[etcd]\n'a\nb' = 'h'", "is not TOML: "),
    ('[etcd]\n"a\\nb" = "h"', "'a\\nb' in [etcd] is not known"),
    ("[remuster]\nx = 1", "the table 'remuster' is not known; those there are are [etcd] and [site]"),
    ("endpoints = 'h'", "'endpoints' stands outside of a table; write it below [etcd]"),
    ("password = 'hunter2'", "'password' stands outside of a table"),
    ("etcd = 'hunter2'", "etcd is no table; write [etcd]"),
    ("[[etcd]]\nendpoints = 'h'", "etcd is no table; write [etcd]"),
    ("[etcd]\nendpoints = 2379", 'is no list of texts; write ["HOST:PORT", ...]'),
    ("[etcd]\nendpoints = ['h', 1]", "is no list of texts"),
    ("[etcd]\nendpoints = []", "names no address; write"),
    ("[etcd]\nendpoints = 'h:x'", "holds 'h:x'; write HOST"),
    ("[etcd]\nendpoints = 'http://root:hunter2@h:2379'", "holds a user or password; write HOST:PORT"),
    ("[etcd]\nprefix = ['hunter2']", "is no text; put it in quotes"),
    ("[etcd]\nusername = 7", "is no text; put it in quotes"),
    ("[etcd]\npassword = 'hunter2'", "holds a password; write it into a file of mode 600 and give password_file"),
    ("[etcd]\npassword = hunter2", "is not TOML: Invalid value (at line 2, column 12); mend it"),
    ("[etcd", "is not TOML: "),
    ("site = 'hunter2'", "site is no table; write [site], and its keys below it"),
    ("[site]\ndrain = ['hunter2']", "'drain' in [site] is not known; the one there is is drain_command"),
    ("[site]\ndrain_command = 'scontrol hunter2'", "is no list of texts, one for each word; write ["),
    ("[site]\ndrain_command = []", "is no list of texts"),
    ("[site]\ndrain_command = ['scontrol', 1]", "is no list of texts"),
    ("[site]\ndrain_command = ['', 'x']", "begins with '', which is no program; write its name or path"),
    ("[site]\ndrain_command = ['{host}']", "begins with '{host}', which is no program"),
    ("[site]\ndrain_command = ['x', '{node}']", "has {node}; what is filled in is host, reason, run, class"),
    ('[site]\ndrain_command = ["x", "a\\u0000b"]', "is no command that can be run; give a program of the site's own"),
    (b"[etcd]\nprefix = '\xff'", "is not UTF-8 at byte 17; write it anew"),
    ("x = " + "[" * 5000, "is not TOML: "),
    ("x = " + "9" * 5000, "is not TOML: "),
    ("#" * (config.LARGEST + 1), "a table [etcd] is all that may stand in it"),
    ("[etcd]\nendpoints = 'h'\ncacert = 'absent'", "which is no file that can be read"),
    ("[etcd]\nendpoints = 'h'\nkey = 'c.toml'", "is one of cert and key; give both, or neither"),
    ("[etcd]\nendpoints = 'h'\nusername = 'u'", "is one of username and password_file; give both, or neither"),
    ("[etcd]\nendpoints = 'h'\nusername = 'u'\npassword_file = 'c.toml'", "which others may read; run chmod 600 '"),
]


@pytest.mark.parametrize(("content", "says"), BAD)
def test_a_bad_file_is_named_with_its_key_and_no_value(command: Command, content: str | bytes, says: str) -> None:
    path = command.file("c.toml", content)
    refusal = command.refusal(f"--config c.toml {TWO} t.py")
    assert says in refusal
    assert str(path) in refusal
    assert "hunter2" not in refusal


def test_a_file_that_was_named_is_checked_even_for_one_node(command: Command) -> None:
    command.file("c.toml", "[etcd]\nx = 1")
    assert "'x' in [etcd] is not known" in command.refusal("--config c.toml t.py")
    assert "--config is 'absent', which is no file" in command.refusal("--config absent t.py")
    assert "PET_CONFIG is '.', which is no file" in command.refusal("t.py", PET_CONFIG=".")
    command.file(".config/remuster.toml", "[etcd]\nx = 1")  # not named: one node does not look
    assert command.spec("t.py", HOME=str(command.folder)).backend is Backend.MEMORY


def test_who_may_write_a_file(command: Command) -> None:
    path = command.file("c.toml", "[etcd]\nendpoints = 'h'", 0o666)
    says = f"{path} may be written to by others; run chmod o-w '{path}'"
    assert says in command.refusal(f"--config c.toml {TWO} t.py")
    path.chmod(0o664)  # a user's own group, by the usual umask of such systems
    assert command.spec(f"--config c.toml {TWO} t.py").endpoints == (("h", 2379),)


def test_a_pipe_holds_nobody_up(command: Command, home: dict[str, str]) -> None:
    os.mkfifo(command.folder / ".config" / "remuster.toml")
    assert "remuster.toml is no file; put a table [etcd] into one" in command.refusal(f"{TWO} t.py", **home)


def test_a_file_that_cannot_be_read() -> None:
    root = os.geteuid() == 0  # who may read everything
    with tempfile.TemporaryDirectory() as name:  # in a folder that others reach
        folder = Path(name)
        folder.chmod(0o755)
        (folder / "remuster.toml").touch(0)
        (folder / "sealed").mkdir(0)
        if root:
            os.seteuid(65534)
        try:
            with pytest.raises(
                UsageError, match=r"remuster\.toml cannot be read: permission denied; mend or remove it"
            ):
                config.from_files(None, name, Path("/absent"))
            assert config.from_files(None, f"{name}/sealed", Path("/absent")) == []  # is there one? nobody can say
        finally:
            if root:
                os.seteuid(0)


@pytest.mark.parametrize(
    ("mode", "group_may_read", "says"),
    [
        (0o600, False, ""),
        (0o400, False, ""),
        (0o711, False, ""),
        (0o640, False, "its group may read; run chmod 600 "),
        (0o620, False, "its group may write to; run chmod 600 "),
        (0o604, False, "others may read; run chmod 600 "),
        (0o602, False, "others may write to; run chmod 600 "),
        (0o666, False, "others may read; run chmod 600 "),
        (0o640, True, ""),
        (0o660, True, "its group may write to; run chmod 640 "),
        (0o644, True, "others may read; run chmod 640 "),
    ],
)
def test_secrets_are_nobody_elses(tmp_path: Path, mode: int, group_may_read: bool, says: str) -> None:
    path = tmp_path / "secret"
    path.touch()
    path.chmod(mode)
    if not says:
        assert files.secret("password_file", str(path), group_may_read) == path
        return
    with pytest.raises(UsageError) as refusal:
        files.secret("password_file", str(path), group_may_read)
    assert str(refusal.value) == f"password_file is '{path}', which {says}'{path}'"


def test_a_key_that_others_may_read(command: Command) -> None:
    for name in ("ca", "crt", "key"):
        command.file(name)
    line = f"--rdzv-backend etcd {TWO} --rdzv-conf cacert=ca,cert=crt,key=key t.py"
    assert "key in --rdzv-conf is 'key', which others may read; run chmod 640 '" in command.refusal(line)
    command.file("key", mode=0o640)  # as a group for certificates has it
    assert command.spec(line).store.key == command.folder / "key"


def test_no_secret_is_in_the_job(command: Command) -> None:
    command.file("pw", "hunter2", 0o600)
    command.file("token", "hunter2", 0o600)
    for line in (
        f"--rdzv-backend etcd {TWO} --rdzv-conf username=u,password_file=pw",
        f"--rdzv-backend c10d {TWO} --rdzv-conf token_file=token",
    ):
        assert "hunter2" not in repr(command.spec(f"{line} t.py")) + command.stderr


def test_one_node_loads_nothing_of_this() -> None:
    """In a process of its own: what a start imports is what it waits for."""
    program = (
        "import sys; from remuster.launcher import cli\n"
        "assert cli.run(['--nproc-per-node=2', '-m', 'x'], {'HOME': '/'}, lambda spec: 7) == 7\n"
        "print(*({'tomllib', 'tomli', 'socket', 'remuster.launcher.config', 'remuster.agent.own_addresses'}"
        " & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "\n"
