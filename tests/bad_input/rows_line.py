"""Rows about the command line and the PET_ variables: all of them are refused before anything starts."""

from __future__ import annotations

from collections.abc import Mapping

from bad_input.scene import Row, Scene
from bad_input.stores import PASSWORD

USAGE = 2
ETCD = "--rdzv-backend etcd --rdzv-id {run}"
C10D = "--nnodes 2 --rdzv-backend c10d --rdzv-id {run}"


def _secret(scene: Scene) -> Mapping[str, object]:
    return {"secret": scene.path("secret", "x\n", 0o600), "open": scene.path("open", "x\n", 0o644)}


def _usage(name: str, line: str, *says: str, **env: str) -> Row:
    """A row that a look at the words alone refuses; the sentence ends with what to do."""
    return Row(name, line, USAGE, says, env=env)


def _conf(name: str, conf: str, *says: str) -> Row:
    line = f"{ETCD} --rdzv-endpoint 127.0.0.1:1 --rdzv-conf {conf} t.py"
    return Row(f"conf-{name}", line, USAGE, ("--rdzv-conf", *says), _secret)


def _config(name: str, content: str | bytes | None, *says: str) -> Row:
    line = f"{ETCD} --config {{config}} t.py"
    return Row(f"config-{name}", line, USAGE, says, lambda scene: {"config": scene.path("remuster.toml", content)})


ROWS = (
    # --- flags as such ------------------------------------------------------------------------------------------------
    _usage("no-words", "", "no script", "write remuster [options] script.py"),
    _usage("no-script", "--nnodes 1", "no script", "--help"),
    _usage("unknown-flag", "--lr 3 t.py", "'--lr'", "after the script"),
    _usage("misspelt-flag", "--nproc-per-nod3 2 t.py", "'--nproc-per-nod3'", "did you mean --nproc-per-node"),
    _usage("unknown-letter", "-x t.py", "'-x'", "--help"),
    _usage("ambiguous", "--rdzv 1 t.py", "--rdzv is short for several", "--rdzv-backend", "--rdzv-id"),
    _usage("no-value", "--nnodes", "--nnodes needs a value", "write --nnodes"),
    _usage("no-value-before-a-flag", "--nnodes --standalone t.py", "--nnodes needs a value"),
    _usage("value-for-a-switch", "--standalone=1 t.py", "--standalone takes no value", "write just --standalone"),
    _usage("empty-script", "''", "no script ''", "check the path"),
    _usage("script-with-options-of-ours-behind", "nothing.py --nnodes 2", "no script 'nothing.py'"),
    # --- typed values -------------------------------------------------------------------------------------------------
    _usage("nnodes-word", "--nnodes two t.py", "--nnodes is 'two'", "MIN:MAX"),
    _usage("nnodes-three", "--nnodes 1:2:3 t.py", "--nnodes is '1:2:3'", "MIN:MAX"),
    _usage("nnodes-zero", "--nnodes 0 t.py", "--nnodes is '0'", "N >= 1"),
    _usage("nnodes-backwards", "--nnodes 3:1 t.py", "--nnodes is '3:1'", "MIN <= MAX"),
    _usage("nnodes-empty", "--nnodes= t.py", "--nnodes is ''", "write a number of nodes"),
    _usage("nnodes-not-text", "--nnodes \udcff\udcfe t.py", "--nnodes is '\\udcff\\udcfe'", "MIN:MAX"),
    _usage("nnodes-huge", f"--nnodes 1:{10**30} t.py", "--nnodes is", "MIN:MAX"),
    _usage("on-store-loss-word", "--on-store-loss quorum t.py", "--on-store-loss is 'quorum'", "give fence or hold"),
    _usage("hold-of-one-to-two", f"{ETCD} --rdzv-endpoint 127.0.0.1:1 --nnodes 1:2 --on-store-loss=hold t.py",
           "--on-store-loss=hold with 1:2 nodes", "could begin a round without it", "give one number of nodes"),
    _usage("nproc-word", "--nproc-per-node many t.py", "--nproc-per-node is 'many'", "give a number, auto, gpu or cpu"),
    _usage("nproc-zero", "--nproc-per-node 0 t.py", "--nproc-per-node is 0", "give 1 or more"),
    _usage("nproc-negative", "--nproc-per-node -1 t.py", "--nproc-per-node is -1", "give 1 or more"),
    _usage("nproc-fraction", "--nproc-per-node 1.5 t.py", "--nproc-per-node is '1.5'", "give a number"),
    _usage("gpu-and-none", "--nproc-per-node gpu t.py", "no GPU", "CUDA_VISIBLE_DEVICES is ''", "nvidia-smi",
           CUDA_VISIBLE_DEVICES=""),
    _usage("gpu-hidden", "--nproc-per-node gpu t.py", "no GPU", "CUDA_VISIBLE_DEVICES is '-1'",
           CUDA_VISIBLE_DEVICES="-1"),
    _usage("gpu-twice", "--nproc-per-node gpu t.py", "no GPU", "CUDA_VISIBLE_DEVICES is '0,0'",
           CUDA_VISIBLE_DEVICES="0,0"),
    _usage("numa-word", "--numa-binding near t.py", "--numa-binding is 'near'", "socket, exclusive, core-complex"),
    _usage("exit-code-word", "--exit-code mine t.py", "--exit-code is 'mine'", "give cause or torchrun"),
    _usage("python-missing", "--python /no/such/python t.py", "--python is '/no/such/python'", "no such program"),
    _usage("python-and-no-python", "--python sh --no-python sh", "--python and --no-python", "leave one of them out"),
    _usage("fewer-devices-than-ranks", "--virtual-local-rank --nproc-per-node 2 t.py", "--virtual-local-rank",
           "CUDA_VISIBLE_DEVICES is '0'", "smaller --nproc-per-node", CUDA_VISIBLE_DEVICES="0"),
    _usage("run-path-of-nothing", "--run-path nothing.py", "no script 'nothing.py'", "check the path"),
    _usage("switch-by-a-word", "t.py", "PET_RUN_PATH is 'yes'", "set it to 1 or 0", PET_RUN_PATH="yes"),
    _usage("restarts-word", "--max-restarts some t.py", "--max-restarts is 'some'", "give one, 0 or more"),
    _usage("restarts-negative", "--max-restarts -1 t.py", "--max-restarts is -1", "give 0 or more"),
    _usage("budget-family", "--retry-budget gremlins=3 t.py", "--retry-budget is 'gremlins=3'", "hardware", "FAMILY=N"),
    _usage("budget-no-number", "--retry-budget hardware t.py", "--retry-budget is 'hardware'", "FAMILY=N"),
    _usage("budget-negative", "--retry-budget hardware=-1 t.py", "--retry-budget is 'hardware=-1'", "FAMILY=N"),
    _usage("exit-code-map", "--exit-code-map 16=halt t.py", "--exit-code-map is '16=halt'", "'halt'", "CODE=CLASS"),
    _usage("run-id-slash", "--rdzv-id a/b t.py", "--rdzv-id is 'a/b'", "without '/'"),
    _usage("run-id-empty", "--rdzv-id= t.py", "--rdzv-id is ''", "printable"),
    _usage("run-id-with-an-escape", "--rdzv-id '\x1b[2J' t.py", "--rdzv-id is '\\x1b[2J'", "printable"),
    _usage("run-id-long", f"--rdzv-id {'x' * 129} t.py", "--rdzv-id is", "1 to 128"),
    _usage("port-out-of-range", f"{ETCD} --rdzv-endpoint localhost:70000 t.py", "'localhost:70000'", "1 to 65535"),
    _usage("port-word", f"{ETCD} --rdzv-endpoint localhost:http t.py", "'localhost:http'", "HOST:PORT"),
    _usage("endpoint-url", f"{ETCD} --rdzv-endpoint http://h:1 t.py", "'http://h:1'", "without the scheme"),
    _usage("endpoint-empty", f"{ETCD} --rdzv-endpoint= t.py", "--rdzv-endpoint is ''", "HOST:PORT"),
    _usage("backend-unknown", "--rdzv-backend zookeeper --rdzv-id {run} t.py", "'zookeeper'", "etcd"),
    _usage("hook-quotes", "--resume-hook \"sh -c 'x\" t.py", "--resume-hook", "check its quotes"),
    _usage("hook-empty", "--resume-hook= t.py", "--resume-hook", "module:function or a command"),
    _usage("local-addr-name", "{meet} --local-addr no-such-host.invalid t.py", "no-such-host.invalid", "--local-addr",
           "no interface of this machine", "give an address")._replace(code=69),
    _usage("local-addr-no-interface", "{meet} --local-addr ib77 t.py", "--local-addr ib77", "no interface of this",
           "give an address")._replace(code=69),
    _usage("local-addr-elsewhere", "{meet} --local-addr 203.0.113.9 t.py", "203.0.113.9", "not an address of this",
           "--local-addr")._replace(code=69),
    # --- what contradicts itself --------------------------------------------------------------------------------------
    _usage("standalone-and-nodes", "--standalone --nnodes 2 t.py", "--standalone", "--nnodes asks for 2", "leave one"),
    _usage("module-and-no-python", "--module --no-python t", "--module and --no-python", "leave one of them out"),
    _usage("nodes-without-a-run-id", "--nnodes 2 --rdzv-backend etcd --rdzv-endpoint 127.0.0.1:1 t.py", "--rdzv-id"),
    _usage("c10d-port-0", f"{C10D} --rdzv-endpoint localhost:0 t.py", "localhost:0", "port"),
    _usage("c10d-two-endpoints", f"{C10D} --rdzv-endpoint 127.0.0.1:1,127.0.0.2:1 t.py", "--rdzv-endpoint", "one"),
    _usage("node-rank-too-high", "--nnodes 2 --node-rank 2 --master-addr 127.0.0.1 --rdzv-id {run} t.py",
           "--node-rank is 2", "--nnodes asks for 2"),
    _usage("node-rank-negative", "--nnodes 2 --node-rank -1 --master-addr 127.0.0.1 --rdzv-id {run} t.py",
           "--node-rank", "0"),
    _usage("node-rank-word", "--nnodes 2 --node-rank one --master-addr 127.0.0.1 --rdzv-id {run} t.py",
           "--node-rank is 'one'"),
    _usage("master-port-out-of-range",
           "--nnodes 2 --node-rank 0 --master-addr 127.0.0.1 --master-port 70000 --rdzv-id {run} t.py",
           "--master-port", "70000", "65535"),
    _usage("master-port-no-room-for-etcd",
           "--nnodes 2 --node-rank 0 --master-addr 127.0.0.1 --master-port 65535 --rdzv-id {run} t.py",
           "65535", "etcd_port"),
    _usage("master-port-is-etcds", "--nnodes 2 --node-rank 0 --master-addr 127.0.0.1 --rdzv-conf etcd_port=29500 t.py",
           "etcd_port", "29500"),
    _usage("etcd-binary-missing", f"{C10D} --rdzv-endpoint 127.0.0.1:1 --etcd-binary /no/such/etcd t.py",
           "--etcd-binary", "/no/such/etcd"),
    # --- variables ----------------------------------------------------------------------------------------------------
    _usage("pet-switch", "t.py", "PET_STANDALONE is 'yes'", "1 or 0", PET_STANDALONE="yes"),
    _usage("pet-nnodes", "t.py", "PET_NNODES is 'two'", "MIN:MAX", PET_NNODES="two"),
    _usage("pet-nproc", "t.py", "PET_NPROC_PER_NODE is 'x'", "give a number", PET_NPROC_PER_NODE="x"),
    _usage("pet-restarts", "t.py", "PET_MAX_RESTARTS is '1.5'", "whole number", PET_MAX_RESTARTS="1.5"),
    _usage("pet-budget", "t.py", "PET_RETRY_BUDGET is 'x=1'", "FAMILY=N", PET_RETRY_BUDGET="x=1"),
    _usage("pet-node-rank", "t.py", "PET_NODE_RANK", "'x'", PET_NODE_RANK="x", PET_NNODES="2"),
    _usage("pet-conf", "t.py", "PET_RDZV_CONF holds 'x'", "KEY=VALUE", PET_RDZV_CONF="x"),
    _usage("slurm-job-id", "t.py", "SLURM_JOB_ID is 'a/b'", "without '/'", SLURM_JOB_ID="a/b"),
    _usage("python-exec", "t.py", "PYTHON_EXEC is '/no/python'", "correct it", PYTHON_EXEC="/no/python"),
    # --- --rdzv-conf --------------------------------------------------------------------------------------------------
    _conf("no-equals", "lease_ttl", "'lease_ttl'", "KEY=VALUE"),
    _conf("no-key", "=5", "'=5'", "KEY=VALUE"),
    _conf("ttl-word", "lease_ttl=long", "lease_ttl", "'long'", "whole number"),
    _conf("ttl-small", "lease_ttl=1,kill_bound=0", "lease_ttl", "give 2 or more"),
    Row("conf-ttl-below-the-kill-bound", f"{ETCD} --rdzv-endpoint 127.0.0.1:1 --rdzv-conf lease_ttl=5 t.py", USAGE,
        ("a lease of 5 s with a kill bound of 3 s", "lease_ttl=6")),
    _conf("ttl-huge", "lease_ttl=99999999999", "lease_ttl", "99999999999"),
    _conf("kill-bound-word", "kill_bound=soon", "kill_bound", "'soon'", "seconds"),
    _conf("join-nan", "join_timeout=nan", "join_timeout", "'nan'", "seconds"),
    _conf("last-call-negative", "last_call_timeout=-1", "last_call_timeout", "'-1'", "0 or more"),
    _conf("connect-word", "connect_timeout=x", "connect_timeout", "'x'", "seconds"),
    _conf("password", f"username=u,password={PASSWORD}", "password", "password_file"),
    _conf("token", f"token={PASSWORD}", "token", "token_file"),
    _conf("user-without-a-file", "username=u", "username", "password_file", "give both"),
    _conf("file-without-a-user", "password_file={secret}", "username", "password_file", "give both"),
    _conf("cert-without-a-key", "cacert={secret},cert={secret}", "cert and key", "give both"),
    _conf("key-without-a-cert", "cacert={secret},key={secret}", "cert and key", "give both"),
    _conf("cacert-missing", "cacert=/no/ca.pem", "cacert", "'/no/ca.pem'", "check the path"),
    _conf("cert-missing", "cacert={secret},cert=/no/c.pem,key={secret}", "cert", "'/no/c.pem'", "check the path"),
    _conf("key-missing", "cacert={secret},cert={secret},key=/no/k.pem", "key", "'/no/k.pem'", "check the path"),
    _conf("password-file-missing", "username=u,password_file=/no/p", "password_file", "'/no/p'", "check the path"),
    _conf("password-file-for-all-to-read", "username=u,password_file={open}", "password_file", "{open}", "chmod"),
    _conf("cacert-name-too-long", f"cacert=/{'x' * 300}", "cacert", "check the path"),
    _conf("password-file-is-a-directory", "username=u,password_file=/tmp", "password_file", "'/tmp'"),
    _conf("https-without-a-cacert", "protocol=https", "https", "cacert=FILE"),
    _conf("prefix-empty", "prefix=/", "prefix", "/remuster/"),
    _conf("etcd-port", "etcd_port=x", "etcd_port", "'x'"),
    _conf("is-host", "is_host=maybe", "is_host", "'maybe'", "true or false"),
    _conf("token-file-missing", "token_file=/no/token", "token_file", "'/no/token'", "check the path"),
    Row("conf-store-type", f"{C10D} --rdzv-endpoint 127.0.0.1:1 --rdzv-conf store_type=file t.py", USAGE,
        ("store_type", "'file'", "--rdzv-endpoint HOST:PORT")),
    # --- files of configuration ---------------------------------------------------------------------------------------
    _config("missing", None, "'{config}'", "check the path"),
    _config("not-toml", "[etcd\nendpoints = 3", "{config}", "TOML"),
    _config("not-text", b"\xff\xfe", "{config}", "UTF-8"),
    _config("of-an-unknown-table", "[store]\n", "{config}", "'store'", "[etcd]"),
    _config("of-an-unknown-key", '[etcd]\nendpoint = "h"\n', "{config}", "'endpoint'", "endpoints"),
    _config("of-an-address-that-is-none", '[etcd]\nendpoints = "http://h"\n', "{config}", "without the scheme"),
    _config("with-a-password", f'[etcd]\npassword = "{PASSWORD}"\n', "{config}", "password_file"),
    _config("of-a-missing-file", '[etcd]\ncacert = "no.pem"\n', "{config}", "no.pem", "check the path"),
    _usage("remuster-endpoint", "--nnodes 2 --rdzv-backend etcd --rdzv-id {run} t.py", "REMUSTER_ENDPOINT", "'h:x'",
           REMUSTER_ENDPOINT="h:x"),
)  # fmt: skip
