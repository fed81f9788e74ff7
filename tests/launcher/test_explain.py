"""``remuster explain``: every labelled log through the command, in the shapes that launchers and shippers give them."""

from __future__ import annotations

import csv
import gzip
import json
import os
import random
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from remuster.launcher.explain import main
from remuster.launcher.explain_files import blocks, opened

LOGS = Path(__file__).parents[1] / "health" / "logs"
with (LOGS / "labels.csv").open() as labels:
    CASES = list(csv.DictReader(labels))
SEVERAL = [case for case in CASES if case["root_rank"]]

Capture = pytest.CaptureFixture[str]


def explain(capsys: Capture, *args: str | Path) -> dict[str, Any]:
    assert main([*map(str, args), "--json"], {}) == 0, capsys.readouterr().err
    body: dict[str, Any] = json.loads(capsys.readouterr().out)
    return body


def refused(capsys: Capture, *args: str | Path) -> str:
    assert main([*map(str, args)], {}) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("remuster explain: ")
    return said.err


def check(case: dict[str, str], told: dict[str, Any]) -> None:
    assert told["class"] == case["root_cause_class"], told["sentence"]
    assert told["retryable"] == (case["retryable"] == "yes")
    assert told["node_fault"] == (case["node_fault"] == "yes")
    if case["root_rank"]:
        assert told["root_rank"] == int(case["root_rank"])


def texts(case: dict[str, str]) -> list[list[str]]:
    return [(LOGS / case["file"] / f"rank{i}.log").read_text().splitlines() for i in range(4)]


def beside(case: dict[str, str], folder: Path) -> None:
    """Put what lies beside the ranks' logs there too."""
    for name in ("dmesg.log", "pids.txt"):
        if (LOGS / case["file"] / name).exists():
            (folder / name).write_bytes((LOGS / case["file"] / name).read_bytes())


@pytest.mark.parametrize("given", [True, False], ids=["exit", "no exit"])
@pytest.mark.parametrize("case", CASES, ids=[case["file"] for case in CASES])
def test_a_labelled_log(case: dict[str, str], given: bool, capsys: Capture) -> None:
    path = LOGS / case["file"]
    told = explain(capsys, path, *(["--exit", case["exit"]] if given else []))
    check(case, told)
    if case["root_rank"]:
        assert told["root_file"] == str(path / f"rank{case['root_rank']}.log")
    if told["line"] and told["line_file"]:
        line = Path(told["line_file"]).read_bytes().decode("utf-8", "replace").split("\n")[told["line_number"] - 1]
        assert told["line"][:60].strip() in line


def test_words_fit_the_width_and_begin_with_the_sentence(capsys: Capture) -> None:
    for case in CASES[::4] + SEVERAL:
        assert main([str(LOGS / case["file"]), "--policy"], {}) == 0
        lines = capsys.readouterr().out.splitlines()
        assert max(map(len, lines)) <= 110
        assert all(line.isprintable() for line in lines)
        assert explain(capsys, LOGS / case["file"])["sentence"].startswith(lines[0])


NAMES: dict[str, Callable[[int], str]] = {
    "underscore": lambda i: f"rank_{i}.err",
    "number": lambda i: f"{i}.log",
    "folder": lambda i: f"{i}/stderr.log",
    "slurm %j-%t": lambda i: f"slurm-8812-{i}.out",
    "task": lambda i: f"job.8812.task{i}.err",
    "node and local rank": lambda i: f"node{i // 2}-local{i % 2}.log",
    "node and rank": lambda i: f"node{i // 2}/rank{i}.log",
    "node and its own ranks": lambda i: f"node{i // 2}/rank{i % 2}.log",
    "torchrun": lambda i: f"none_ab12cd34/attempt_0/{i}/stderr.log",
    "torchrun on two nodes": lambda i: f"j_aaaaaaa{i // 2}/attempt_1/{i % 2}/stderr.log",
    "pods": lambda i: f"job-x-{'master-0' if i == 0 else f'worker-{i - 1}'}.log",
    "hosts": lambda i: f"gpu-{7 + i // 2}-{i % 2}.log",
    "date": lambda i: f"train_2026-03-11_rank{i}_17.log",
}


def each_with_three(names: Iterable[str]) -> list[Any]:
    """Each name with three of the logs, with exit statuses and without in turn."""
    rows = [(SEVERAL[(i + j) % 6], name, (i + j) % 2 == 0) for i, name in enumerate(names) for j in (0, 2, 5)]
    return [pytest.param(*row, id=f"{row[1]}-{row[0]['file']}") for row in rows]


@pytest.mark.parametrize(("case", "name", "given"), each_with_three(NAMES))
def test_files_of_ranks(case: dict[str, str], name: str, given: bool, tmp_path: Path, capsys: Capture) -> None:
    for i, lines in enumerate(texts(case)):
        path = tmp_path / NAMES[name](i)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join(lines) + "\n")
    beside(case, tmp_path)
    told = explain(capsys, tmp_path, *(["--exit", case["exit"]] if given else []))
    check(case, told)
    assert told["root_file"] == str(tmp_path / NAMES[name](int(case["root_rank"])))


PREFIXES: dict[str, Callable[[int], str]] = {
    "torchrun --tee": lambda i: f"[default{i}]:",
    "srun -l": lambda i: f"{i}: ",
    "srun -l, torchrun --tee": lambda i: f"{i // 2}: [default{i % 2}]:",
    "mpirun": lambda i: f"[1,{i}]<stderr>:",
    "remuster": lambda i: f"[node{i // 2} rank{i}][default{i % 2}]:",
    "compose": lambda i: f"worker-{i}  | ",
    "kubectl": lambda i: f"[pod/job-worker-{i}/pytorch] ",
    "pdsh": lambda i: f"gpu{i}: ",
    "ray": lambda i: f"(RayTrainWorker pid={800 + i}) ",
    "rank": lambda i: f"[rank{i}]: ",
    "containerd": lambda i: f"2026-03-11T04:02:00.123456789Z stderr F [rank{i}]: ",
    "colour": lambda i: f"\x1b[3{i}m[default{i}]:\x1b[0m",
}


def interleaved(case: dict[str, str], prefix: Callable[[int], str]) -> list[str]:
    """The ranks' lines on one console, each rank's in their order."""
    rnd, waiting, out = random.Random(1), texts(case), list[str]()
    while any(waiting):
        i = rnd.choice([i for i, lines in enumerate(waiting) if lines])
        for _ in range(min(rnd.choice([1, 1, 3]), len(waiting[i]))):
            out.append(prefix(i) + waiting[i].pop(0))
    return out


@pytest.mark.parametrize(("case", "name", "given"), each_with_three(PREFIXES))
def test_one_console(case: dict[str, str], name: str, given: bool, tmp_path: Path, capsys: Capture) -> None:
    ending = "\n" if given else "\r\n"
    (tmp_path / "console.log").write_text("".join(line + ending for line in interleaved(case, PREFIXES[name])))
    beside(case, tmp_path)
    check(case, explain(capsys, tmp_path, *(["--exit", case["exit"]] if given else [])))


@pytest.mark.parametrize("case", SEVERAL, ids=[case["file"] for case in SEVERAL])
def test_a_console_in_json_of_a_container_runtime(case: dict[str, str], tmp_path: Path, capsys: Capture) -> None:
    lines = interleaved(case, PREFIXES["torchrun --tee"])
    stamp = {"stream": "stderr", "time": "2026-03-11T04:02:00.1Z"}
    (tmp_path / "c.log").write_text("".join(json.dumps({"log": f"{line}\n", **stamp}) + "\n" for line in lines))
    beside(case, tmp_path)
    check(case, explain(capsys, tmp_path, "--exit", case["exit"]))


MUTATIONS: dict[str, Callable[[bytes], bytes]] = {
    "crlf": lambda raw: raw.replace(b"\n", b"\r\n"),
    "colour": lambda raw: b"".join(b"\x1b[31m" + line + b"\x1b[0m\n" for line in raw.splitlines()),
    "bar": lambda raw: b" 10%|#  | 1/9 [00:01<00:09, 1.2it/s]\r" + raw,
    "clock": lambda raw: b"".join(b"2026-03-11 04:02:00,123 " + line + b"\n" for line in raw.splitlines()),
    "shipper": lambda raw: b"".join(b"2026-03-11T04:02:00.1Z stderr F " + line + b"\n" for line in raw.splitlines()),
    "one rank": lambda raw: b"".join(b"[default7]:" + line + b"\n" for line in raw.splitlines()),
    "long before": lambda raw: b"".join(b"step %d loss 3\n" % n for n in range(20_000)) + raw,
    "cut in front": lambda raw: b"ed off in the middle of a line\n" + raw,
    "bytes": lambda raw: b"\xff\xfe\0\xc3\n" + raw,
    "no last newline": lambda raw: raw.rstrip(b"\n"),
}


@pytest.mark.parametrize("name", MUTATIONS)
def test_mutations_change_no_answer(name: str, tmp_path: Path, capsys: Capture) -> None:
    wrong: list[str] = []
    for case in CASES[::3]:
        if not case["root_rank"]:
            path = tmp_path / case["file"]
            path.write_bytes(MUTATIONS[name]((LOGS / case["file"]).read_bytes()))
            told = explain(capsys, path, "--exit", case["exit"])
            if told["class"] != case["root_cause_class"]:
                wrong.append(f"{case['file']}: {told['class']}")
    assert not wrong


def test_the_keys_that_are_promised(capsys: Capture) -> None:
    told = explain(capsys, LOGS / "m03-ecc-rank3", "--exit=-6,-6,-6,1", "--policy")
    promised = "class family retryable node_fault root_rank root_node root_file line confidence sentence evidence"
    assert {*promised.split()} <= told.keys()
    assert told["line"].endswith("uncorrectable ECC error encountered")
    assert told["evidence"][0]["file"].endswith("rank3.log")
    assert told["exit_status"] == 1
    policy = told["policy"]
    assert (policy["retry"], policy["charged_to"], policy["node_action"]) == (True, "hardware", "quarantine")


def test_several_files_are_one_round(capsys: Capture) -> None:
    files = [LOGS / "m01-cuda-oom-rank2" / f"rank{i}.log" for i in range(4)]
    assert explain(capsys, *files)["root_rank"] == 2


def test_stdout_and_stderr_of_a_rank_are_one(tmp_path: Path, capsys: Capture) -> None:
    for i in range(2):
        (tmp_path / f"rank{i}.out").write_text("step 1 loss 3\n")
    (tmp_path / "rank0.err").write_text("")
    (tmp_path / "rank1.err").write_text("ValueError: x\n")
    told = explain(capsys, tmp_path, "--exit", "-15,1")
    assert (told["ranks"], told["root_rank"], told["root_file"]) == (2, 1, str(tmp_path / "rank1.err"))


def test_only_the_log_of_a_later_rank_is_there(tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "rank5.log").write_text("ValueError: x\n")
    assert explain(capsys, tmp_path / "rank5.log", "--exit", "1")["root_rank"] == 5


def test_an_error_file_without_a_line(tmp_path: Path, capsys: Capture) -> None:
    folder = tmp_path / "x_12345678" / "attempt_0"
    for i in range(2):
        (folder / str(i)).mkdir(parents=True)
        (folder / str(i) / "stderr.log").write_text("")
    trace = 'Traceback (most recent call last):\n  File "t.py", line 3, in f\nKeyError: 12'
    body = {"message": {"message": "KeyError: 12", "extraInfo": {"py_callstack": trace, "timestamp": "1700000000"}}}
    (folder / "1" / "error.json").write_text(json.dumps(body))
    told = explain(capsys, tmp_path)
    assert (told["root_rank"], told["exception"]) == (1, "KeyError")


def test_the_last_attempt_is_explained_and_another_on_request(tmp_path: Path, capsys: Capture) -> None:
    for attempt, line in (
        (0, "ValueError: x"),
        (1, "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB"),
    ):
        for rank in range(2):
            folder = tmp_path / "none_12345678" / f"attempt_{attempt}" / str(rank)
            folder.mkdir(parents=True)
            (folder / "stderr.log").write_text(f"{line}\n" if rank else "")
    told = explain(capsys, tmp_path)
    assert told["class"] == "cuda_oom"
    assert any("attempt 1 is explained, the last" in note for note in told["lacking"])
    assert explain(capsys, tmp_path / "none_12345678" / "attempt_0")["class"] == "user_exception"


def test_a_console_of_a_launcher_alone_names_the_root(tmp_path: Path, capsys: Capture) -> None:
    report = """\
step 1
E1130 torch/distributed/elastic/multiprocessing/api.py:1002] failed (exitcode: -9) local_rank: 2 (pid: 5870) of p
Root Cause (first observed failure):
[0]:
  time      : 2026-11-30_04:03:22
  rank      : 2 (local_rank: 2)
  exitcode  : -9 (pid: 5870)  (SIGKILL)
"""
    (tmp_path / "slurm-1.out").write_text(report)
    told = explain(capsys, tmp_path / "slurm-1.out", "--exit", "1")
    assert (told["class"], told["root_rank"], told["exit_status"]) == ("killed_unknown", 2, -9)
    kernel = tmp_path / "k"
    kernel.write_text("[ 12.3] Memory cgroup out of memory: Killed process 5870 (python) total-vm:1kB\n")
    told = explain(capsys, tmp_path / "slurm-1.out", "--kmsg", kernel)
    assert (told["class"], told["root_rank"], told["confidence"]) == ("host_oom", 2, "certain")
    assert told["evidence"][0]["file"] == str(kernel)


def test_srun_tells_statuses(tmp_path: Path, capsys: Capture) -> None:
    lines = ["0: step 1", "1: step 1", "2: step 1", "srun: error: n3: task 2: Segmentation fault (core dumped)",
             "srun: error: n1: tasks 0-1: Terminated"]  # fmt: skip
    (tmp_path / "slurm-7.out").write_text("\n".join(lines) + "\n")
    told = explain(capsys, tmp_path)
    assert (told["class"], told["root_rank"], told["exit_status"]) == ("segfault", 2, -11)


@pytest.mark.parametrize(
    ("text", "cls"),
    [
        ("CUDA out of memory, retrying with 4\nstep 2 loss 2\nstep 3 loss 1\nTraining finished.\n", "success"),
        ("ValueError: bad sample, skipped\nFinished training\n", "success"),
        ("step 1 loss 3\nstep 2 loss 2\n", "exit_unknown"),
        ("", "exit_unknown"),
        ("step 3\nKilled\n", "killed_unknown"),
        ("step 3\nValueError: x\n", "user_exception"),
    ],
)
def test_without_a_status_the_text_must_say_how_it_ended(text: str, cls: str, tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "a.log").write_text(text)
    told = explain(capsys, tmp_path / "a.log")
    assert told["class"] == cls
    sentence = {
        "success": "nothing in the text says that it failed",
        "exit_unknown": "nothing in the text says how it ended: no failure is named, and no end of the work",
    }
    if cls in sentence:
        assert (told["confidence"], told["sentence"], told["root_rank"]) == ("guess", sentence[cls], None)
    assert told["exit_status"] is None


def test_silent_ranks_without_a_status_are_no_success(tmp_path: Path, capsys: Capture) -> None:
    """Of one rank that says it came to its end, all may have; of none nobody knows."""
    for rank in range(2):
        folder = tmp_path / "run_x" / "attempt_0" / str(rank)
        folder.mkdir(parents=True)
        (folder / "stderr.log").write_text("step 1\n")
    told = explain(capsys, tmp_path / "run_x")
    assert (told["class"], told["confidence"], told["retryable"]) == ("exit_unknown", "guess", True)
    (folder / "stderr.log").write_text("step 1\nTraining finished.\n")
    assert explain(capsys, tmp_path / "run_x")["class"] == "success"


def test_a_rank_that_took_the_stop_signal_and_ended_with_0_was_stopped(tmp_path: Path, capsys: Capture) -> None:
    """Its end is not the early one that the others waited for."""
    (tmp_path / "rank0.log").write_text("step 9\nreceived SIGTERM, leaving\n")
    (tmp_path / "rank1.log").write_text(
        "step 9\nRuntimeError: [gloo/x.cc:1] Timed out waiting 9ms for recv operation\n"
    )
    told = explain(capsys, tmp_path, "--exit", "0,1")
    assert "left early" not in told["sentence"]
    (tmp_path / "rank0.log").write_text("step 9\n")
    assert "left early" in explain(capsys, tmp_path, "--exit", "0,1")["sentence"]


def test_of_files_who_exited_0_did_so_before_those_who_waited(tmp_path: Path, capsys: Capture) -> None:
    """Red when the order of names is taken for that of the ends: then nobody is named."""
    waited = "step 9\nRuntimeError: [gloo/x.cc:1] Timed out waiting 9ms for recv operation\n"
    for rank, text in enumerate((waited, "step 9\n", waited)):
        (tmp_path / f"rank{rank}.log").write_text(text)
    told = explain(capsys, tmp_path, "--exit", "1,0,1")
    assert (told["class"], told["root_rank"]) == ("rank_hang", 1)


def test_a_silent_rank_has_the_number_that_its_place_among_the_others_tells(tmp_path: Path, capsys: Capture) -> None:
    """Not where the others of its node begin at several numbers."""
    lost = "[rank{}]: RuntimeError: [gloo/x.cc:1] Connection closed by peer [10.0.0.1]:1\n"
    for local in range(3):
        folder = tmp_path / "attempt_0" / str(local)
        folder.mkdir(parents=True)
        (folder / "stderr.log").write_text("step 9\n" if local == 1 else lost.format(4 + local))
    told = explain(capsys, tmp_path, "--exit", "1,-9,1")
    assert (told["class"], told["root_rank"]) == ("killed_unknown", 5)
    (folder / "stderr.log").write_text(lost.format(9))
    told = explain(capsys, tmp_path, "--exit", "-9,1,1")  # by a number that is counted, not read
    assert (told["class"], told["root_rank"]) == ("killed_unknown", None)


def test_one_that_never_came_is_named_without_a_hang(tmp_path: Path, capsys: Capture) -> None:
    """The group had not formed: there was nothing yet to hang in."""
    for rank in range(3):
        text = "torch.distributed.DistStoreError: Timed out after 9 seconds waiting for clients. 2/3 clients joined."
        (tmp_path / f"rank{rank}.log").write_text("installing\n" if rank == 1 else f"{text}\n")
    told = explain(capsys, tmp_path, "--exit", "1,-15,1")
    assert (told["class"], told["root_rank"]) == ("collective_init_timeout", 1)
    assert "did not come" in told["sentence"]


def test_a_rank_that_fell_silent_while_others_cried_is_the_one(tmp_path: Path, capsys: Capture) -> None:
    for i in range(3):
        cry = "RuntimeError: [pair.cc:537] Connection closed by peer [10.0.3.11]:39001\n"
        (tmp_path / f"rank{i}.log").write_text("step 9 loss 1\n" + (cry if i != 1 else ""))
    told = explain(capsys, tmp_path)
    assert (told["class"], told["root_rank"], told["confidence"]) == ("killed_unknown", 1, "guess")


def test_a_rank_without_a_text_is_named_where_the_others_name_it(tmp_path: Path, capsys: Capture) -> None:
    """Not one that is only counted."""
    line = "[rank{}]: RuntimeError: Rank 1 failed to pass monitoredBarrier in 1800000 ms\n"
    (tmp_path / "console").write_text(line.format(0) + line.format(2))
    told = explain(capsys, tmp_path / "console", "--exit", "1")
    assert (told["class"], told["root_rank"], told["root_file"]) == ("rank_hang", 1, None)
    (tmp_path / "console").write_text("Traceback (most recent call last):\nTypeError: x\n")
    assert explain(capsys, tmp_path / "console", "--exit", "1")["root_rank"] is None


def test_the_one_cause_among_a_thousand_victims(tmp_path: Path, capsys: Capture) -> None:
    for i in range(1000):
        cry = "RuntimeError: [/gloo/transport/tcp/pair.cc:537] Connection closed by peer [10.0.3.11]:39001"
        (tmp_path / f"rank{i}.log").write_text("ValueError: x\n" if i == 700 else f"{cry}\n")
    told = explain(capsys, tmp_path)
    assert (told["class"], told["root_rank"], told["ranks"]) == ("user_exception", 700, 1000)


def test_an_old_line_of_the_kernel_is_not_the_cause(tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "rank0.log").write_text("2026-03-11 07:00:00 step 1\n2026-03-11 07:00:01 step 2\n")
    line = "[{}] NVRM: Xid (PCI:0000:44:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.\n"
    (tmp_path / "dmesg").write_text(line.format("Sun Mar  1 01:00:00 2026"))
    assert explain(capsys, tmp_path, "--exit", "1")["class"] == "exit_unknown"
    (tmp_path / "dmesg").write_text(line.format("Wed Mar 11 06:59:59 2026"))
    told = explain(capsys, tmp_path, "--exit", "1")
    assert (told["class"], told["node_fault"]) == ("gpu_lost", True)


def test_facts_about_gpus(tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "rank0.log").write_text("RuntimeError: CUDA error: unspecified launch failure\n")
    gpu = {"uuid": "GPU-1", "bus": "0000:3b:00.0", "number": 0, "ranks": [0], "xids": [[79, 0.0]], "lost": True}
    (tmp_path / "gpu.jsonl").write_text(json.dumps(gpu) + "\n")
    told = explain(capsys, tmp_path / "rank0.log", "--nvml", tmp_path / "gpu.jsonl", "--exit", "1")
    assert (told["class"], told["gpu"]) == ("gpu_lost", "GPU-1")
    (tmp_path / "gpu.jsonl").write_text('{"uuid": 7}\n')
    assert "line 1 is no JSON object" in refused(capsys, tmp_path / "rank0.log", "--nvml", tmp_path / "gpu.jsonl")


def test_a_packed_file(tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "rank0.log.gz").write_bytes(gzip.compress(b"ValueError: x\n"))
    told = explain(capsys, tmp_path)
    assert (told["class"], told["root_file"]) == ("user_exception", str(tmp_path / "rank0.log.gz"))
    (tmp_path / "rank0.log.gz").write_bytes(gzip.compress(b"ValueError: x\n")[:20])
    assert "damaged gzip file" in refused(capsys, tmp_path)


def test_what_cannot_be_read_is_said(tmp_path: Path, capsys: Capture) -> None:
    assert "No such file" in refused(capsys, tmp_path / "nope")
    assert "nothing to explain was found" in refused(capsys, tmp_path)
    os.mkfifo(tmp_path / "rank0.log")
    assert "it is not a regular file" in refused(capsys, tmp_path / "rank0.log")
    (tmp_path / "circle").symlink_to(tmp_path)
    (tmp_path / "broken").symlink_to(tmp_path / "nowhere")
    assert "rank0.log: it is not a regular file" in refused(capsys, tmp_path)
    (tmp_path / "rank1.log").write_text("ValueError: x\n")
    told = explain(capsys, tmp_path)
    assert (told["class"], told["root_rank"]) == ("user_exception", 1)
    assert any("rank0.log: it is not a regular file" in note for note in told["lacking"])


def test_wrong_usage(tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "a.log").write_text("x\n")
    assert "Missing argument" in refused(capsys)
    assert "--exit is 'x'" in refused(capsys, "--exit", "x", tmp_path / "a.log")
    assert "--exit is '999'" in refused(capsys, "--exit", "999", tmp_path / "a.log")
    assert "has 2 statuses, but one rank was found" in refused(capsys, "--exit", "1,2", tmp_path / "a.log")
    assert "4 ranks were found (0, 1, 2, 3)" in refused(capsys, "--exit", "-6,-6", LOGS / "m01-cuda-oom-rank2")
    assert "--kmsg" in refused(capsys, "--kmsg", tmp_path / "nope", tmp_path / "a.log")


def test_text_of_strangers_moves_no_cursor(tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "a.log").write_bytes(b"ValueError: \x1b[2Jx\x07\xe2\x80\xae\n")
    assert main([str(tmp_path / "a.log")], {}) == 0
    assert all(line.isprintable() for line in capsys.readouterr().out.splitlines())


def site(folder: Path, **more: object) -> Path:
    sign = {"pattern": "SITE-42: * gave up", "class": "fs_transient", "note": "the site's data reader"}
    path = folder / "site.json"
    path.write_text(json.dumps({"schema_version": 1, "signatures": [sign], **more}))
    return path


def test_a_sites_signatures_decide_far_up_in_a_long_log_too(tmp_path: Path, capsys: Capture) -> None:
    (logs := tmp_path / "logs").mkdir()
    lines = [f"step {n} loss 1.{n}" for n in range(9000)] + ["SITE-42: reader of shard 7 gave up"]
    rank = "\n".join([*lines, *(f"waited {n} s for shard 7" for n in range(9000)), ""])
    (logs / "rank0.log").write_text("step 8999 loss 1.0\n")
    (logs / "rank1.log").write_text(rank)
    assert explain(capsys, logs)["class"] == "exit_unknown"
    for more in ((), ("--exit=-15,1",)):
        told = explain(capsys, "--signatures", site(tmp_path), *more, logs)
        assert (told["class"], told["root_rank"], told["line_number"]) == ("fs_transient", 1, 9001)
        assert told["evidence"][0]["source"] == "site signature: the site's data reader"
        assert told["sentence"].endswith("gave up (site signature: the site's data reader)")


def test_a_sites_xids_in_a_kernel_log(tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "dmesg.log").write_text("NVRM: Xid (PCI:0000:3b:00): 31, pid=7, name=python, Ch 8. MMU Fault\n")
    (tmp_path / "rank0.log").write_text("step 1\n")
    assert explain(capsys, "--exit=1", tmp_path)["class"] == "gpu_app_fault"
    file = site(tmp_path, xids={"31": "gpu_lost"})
    told = explain(capsys, "--exit=1", "--signatures", file, tmp_path)
    assert (told["class"], told["node_fault"]) == ("gpu_lost", True)


def test_a_record_judged_again_with_a_sites_signatures(tmp_path: Path, capsys: Capture) -> None:
    run = tmp_path / "run7_ab12cd34"
    facts: list[dict[str, object]] = []
    for rank in (0, 1):
        (logs := run / "attempt_1" / str(rank)).mkdir(parents=True)
        (logs / "stderr.log").write_text(f"SITE-42: reader {rank} gave up\n")
        facts.append({"is": "exit", "rank": rank, "local_rank": rank, "pid": 7, "status": 1, "at_s": 1.5 + rank})
        facts[-1]["logs"] = str(logs)
    (run / "attempts").mkdir()
    body = {"round": 1, "members": [{"node": "a", "slots": 2}], "verdict": {"class": "exit_unknown"}}
    record = {**body, "evidence": [{"node": "a", "facts": facts}]}
    (run / "attempts" / "attempt-001.json").write_text(json.dumps(record))
    assert explain(capsys, run)["class"] == "exit_unknown"
    told = explain(capsys, "--signatures", site(tmp_path), run)
    assert (told["class"], told["root_rank"]) == ("fs_transient", 0)
    assert [item["source"] for item in told["evidence"]] == [
        "site signature: the site's data reader",
        "also: fs_transient",
    ]


def test_a_file_that_holds_no_signatures_is_refused(tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "a.log").write_text("x\n")
    assert "there is no such file" in refused(capsys, "--signatures", tmp_path / "none.json", tmp_path / "a.log")
    said = refused(capsys, "--signatures", site(tmp_path, more=1), tmp_path / "a.log")
    assert "the file has 'more', which is not known" in said


def test_a_refusal_moves_no_cursor_either(tmp_path: Path, capsys: Capture) -> None:
    """Red when names of strangers' files go to stderr as they are."""
    os.mkfifo(tmp_path / "\x1b]0;title\x07\x1b[31m.log")
    assert refused(capsys, tmp_path).rstrip("\n").isprintable()
    assert refused(capsys, tmp_path / "\x1b[31mnone").rstrip("\n").isprintable()
    assert refused(capsys, "--\x1b[31m").rstrip("\n").isprintable()


def test_a_record_with_half_a_character_is_read(tmp_path: Path, capsys: Capture) -> None:
    """Red when its facts are encoded strictly: JSON has room for what no text holds."""
    end = {"is": "exit", "rank": 0, "local_rank": 0, "pid": 7, "status": 1, "at_s": 1.0, "tail": ["\ud800 boom"]}
    body = {"round": 1, "members": [{"node": "\ud800", "slots": 1}], "evidence": [{"node": "\ud800", "facts": [end]}]}
    (tmp_path / "attempts").mkdir()
    (tmp_path / "attempts" / "attempt-000.json").write_text(json.dumps(body))
    assert explain(capsys, tmp_path)["root_rank"] == 0
    assert main([str(tmp_path)], {}) == 0
    assert all(line.isprintable() for line in capsys.readouterr().out.splitlines())


@pytest.mark.parametrize("packed", [False, True])
def test_a_file_is_read_to_the_end_that_it_had(packed: bool, tmp_path: Path) -> None:
    """Red when it is read to an end that its writer pushes on."""
    path = tmp_path / "a.log"
    whole = gzip.compress(b"first\n") if packed else b"first\n"
    path.write_bytes(whole)
    with opened(path) as file:
        with path.open("ab") as writer:
            writer.write(gzip.compress(b"later\n") if packed else b"later\n")
        assert list(blocks(file)) == [(b"first\n", 1)]
