"""Cases of Orbax, Ray, plain torch.save files, remuster's own format, and of several beside each other."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from like_torch import saved
from made_files import safetensors_file, torch_file
from steps_on_disk import published
from unseen_checkpoints import Case, after, append, copy, cut, differences, edit, flip, foreign, half, hf_step, zero

ORBAX = "orbax/complete/5"
RAY = "ray/after-worker-kill/case"
DCP = "dcp/complete/step-00000005"


def orbax(d: Path, name: str = "10") -> Path:
    copy(ORBAX, d / "5")
    return copy(ORBAX, d / name)


def orbax_torn(name: str, says: str, what: object) -> Case:
    return Case(f"orbax {name}", lambda d: what(orbax(d)), {"5": "whole", "10": says}, 5)  # type: ignore[operator]


def orbax_older(s: Path) -> None:
    """Only the times, as versions before 0.7 wrote it."""
    (s / "_CHECKPOINT_METADATA").write_text('{"init_timestamp_nsecs": 1, "commit_timestamp_nsecs": 2}')


def orbax_early(s: Path) -> None:
    """Without what versions of 2024 did not write."""
    orbax_older(s)
    shutil.rmtree(s / "default/array_metadatas")
    for path in ("default/_sharding", "commit_success.txt", "default/commit_success.txt"):
        (s / path).unlink()


def orbax_items(s: Path) -> None:
    """A state and a JSON item, as with Composite arguments."""
    (s / "default").rename(s / "state")
    (s / "metadata").mkdir()
    (s / "metadata/metadata").write_text('{"epoch": 1}')
    handlers = {
        "state": "orbax.checkpoint._src.handlers.standard_checkpoint_handler.StandardCheckpointHandler",
        "metadata": "orbax.checkpoint._src.handlers.json_checkpoint_handler.JsonCheckpointHandler",
    }
    edit(s / "_CHECKPOINT_METADATA", item_handlers=handlers)


def first(s: Path, pattern: str) -> Path:
    return max(s.glob(pattern), key=lambda p: p.stat().st_size)


ORBAX_CASES = [
    orbax_torn(
        "no commit time",
        "torn:_CHECKPOINT_METADATA",
        lambda s: edit(s / "_CHECKPOINT_METADATA", commit_timestamp_nsecs=None),
    ),
    orbax_torn(
        "no metadata of the checkpoint",
        "not whole:_CHECKPOINT_METADATA",
        lambda s: (s / "_CHECKPOINT_METADATA").unlink(),
    ),
    orbax_torn(
        "metadata of the checkpoint empty",
        "torn:_CHECKPOINT_METADATA",
        lambda s: (s / "_CHECKPOINT_METADATA").write_bytes(b""),
    ),
    orbax_torn(
        "metadata of the checkpoint cut", "torn:_CHECKPOINT_METADATA", lambda s: half(s / "_CHECKPOINT_METADATA")
    ),
    orbax_torn("item lacking", "torn:default", lambda s: shutil.rmtree(s / "default")),
    orbax_torn(
        "item not renamed", "torn:default", lambda s: (s / "default").rename(s / "default.orbax-checkpoint-tmp")
    ),
    orbax_torn("tree's description lacking", "torn:_METADATA", lambda s: (s / "default/_METADATA").unlink()),
    orbax_torn("manifest lacking", "torn:manifest.ocdbt", lambda s: (s / "default/manifest.ocdbt").unlink()),
    orbax_torn("manifest zeros", "torn:manifest.ocdbt", lambda s: zero(s / "default/manifest.ocdbt")),
    orbax_torn(
        "a process's manifest lacking",
        "not whole or whole",
        lambda s: (s / "default/ocdbt.process_1/manifest.ocdbt").unlink(),
    ),
    orbax_torn(
        "a process's data lacking", "torn:ocdbt.process_1", lambda s: shutil.rmtree(s / "default/ocdbt.process_1/d")
    ),
    orbax_torn(
        "a process's folder lacking", "torn:ocdbt.process_1", lambda s: shutil.rmtree(s / "default/ocdbt.process_1")
    ),
    orbax_torn("data cut", "torn:ocdbt.process_0", lambda s: half(first(s, "default/ocdbt.process_0/d/*"))),
    orbax_torn(
        "data empty", "torn:ocdbt.process_1", lambda s: first(s, "default/ocdbt.process_1/d/*").write_bytes(b"")
    ),
    orbax_torn("data zeros", "torn:ocdbt.process_1/d/", lambda s: zero(first(s, "default/ocdbt.process_1/d/*"))),
    orbax_torn(
        "data's second half zeros",
        "torn:ocdbt.process_0/d/",
        lambda s: zero(first(s, "default/ocdbt.process_0/d/*"), 9000),
    ),
    orbax_torn("index zeros", "torn:default/d/", lambda s: zero(first(s, "default/d/*"))),
    orbax_torn(
        "a process's array metadata lacking",
        "torn:array_metadatas",
        lambda s: (s / "default/array_metadatas/process_1").unlink(),
    ),
    orbax_torn("folder empty", "not whole", lambda s: (shutil.rmtree(s), s.mkdir())),
    orbax_torn(
        "commit_success of the whole lacking", "torn:commit_success.txt", lambda s: (s / "commit_success.txt").unlink()
    ),
    *(
        Case(f"orbax temporary {n}", lambda d, n=n: orbax(d, n), {"5": "whole", n: "not whole"}, 5)
        for n in ("10.orbax-checkpoint-tmp", "10.orbax-checkpoint-tmp-1700000000000000", "10.orbax-checkpoint-tmp-0")
    ),  # type: ignore[misc]
    *(
        Case(f"orbax named {n}", lambda d, n=n: copy(ORBAX, d / n), {n: "whole"}, s)
        for n, s in (("step_5", 5), ("checkpoint_5", 5), ("00000005", 5), ("ckpt-5", 5), ("0", 0), ("my_run_5", 5))
    ),  # type: ignore[misc]
    Case(
        "orbax without commit_success",
        lambda d: [(orbax(d) / p).unlink() for p in ("commit_success.txt", "default/commit_success.txt")],
        {"10": "whole"},
        10,
    ),
    Case("orbax older metadata", lambda d: orbax_older(orbax(d)), {"10": "whole"}, 10),
    Case("orbax items", lambda d: orbax_items(orbax(d)), {"10": "whole"}, 10),
    Case(
        "orbax items, one lacking",
        lambda d: (orbax_items(orbax(d)), shutil.rmtree(d / "10/metadata")),
        {"10": "torn:metadata"},
        5,
    ),
    orbax_torn("JSON item cut", "torn:metadata", lambda s: (orbax_items(s), half(s / "metadata/metadata"))),
    orbax_torn(
        "JSON item empty", "torn:metadata", lambda s: (orbax_items(s), (s / "metadata/metadata").write_bytes(b""))
    ),
    Case("orbax before array_metadatas", lambda d: orbax_early(orbax(d)), {"10": "whole"}, 10),
    Case(
        "orbax foreign and the manager's own",
        lambda d: (
            orbax(d),
            foreign(d),
            (d / "descriptor").mkdir(),
            (d / "metadata").mkdir(),
            (d / "metadata/root.json").write_text("{}"),
            (d / "5.gc-tmp").mkdir(),
        ),
        {"10": "whole", "metadata": "not whole or no entry"},
        10,
    ),
]


def ray(d: Path) -> Path:
    """A Ray experiment of three reported checkpoints."""
    d.mkdir(parents=True, exist_ok=True)
    names = [f"checkpoint_2026-11-29_11-43-{s}" for s in ("28.575354", "30.251036", "32.285156")]
    results = [
        {"version": 0, "checkpoint_dir_name": n, "metrics": {"loss": 1.5, "step": 5 * (i + 1)}}
        for i, n in enumerate(names)
    ]
    snapshot = {
        "ray_version": "2.60.0",
        "checkpoint_results": results,
        "checkpoint_report_indices": [0, 1, 2],
        "latest_checkpoint_result": results[-1],
        "pending_training_results": [],
        "current_report_index": 3,
    }
    for n, r in zip(names, results, strict=True):
        torch_file(d / n / "state.pt", {"model": 1, "step": r["metrics"]["step"]})  # type: ignore[index]
    (d / "checkpoint_manager_snapshot.json").write_text(json.dumps(snapshot))
    (d / ".validate_storage_marker").write_bytes(b"")
    return d


LAST = "checkpoint_2026-11-29_11-43-32.285156"


def ray_v1(d: Path) -> None:
    """A trial of Ray before V2: numbered folders with metadata of the user beside the files."""
    for n in (2, 3):
        torch_file(d / f"checkpoint_{n:06d}/model.pt", {"epoch": n})
        (d / f"checkpoint_{n:06d}/.metadata.json").write_text('{"epoch": 1}')
    for n in ("result.json", "progress.csv", "params.json", "params.pkl", "events.out.tfevents.1.x"):
        (d / n).write_text("{}\n")


RAY_CASES = [
    Case("ray", ray, {LAST: "whole"}, 15),
    Case("ray newest torn", lambda d: half(ray(d) / LAST / "state.pt"), {LAST: "torn:state.pt"}, 10),
    Case("ray newest gone", lambda d: shutil.rmtree(ray(d) / LAST), {}, 10),
    Case("ray newest empty", lambda d: (ray(d) / LAST / "state.pt").unlink(), {LAST: "not whole"}, 10),
    Case(
        "ray uploaded, not committed",
        lambda d: copy(
            "ray/after-worker-kill/case/checkpoint_2026-11-29_11-44-48.169556",
            ray(d) / "checkpoint_2026-11-29_11-59-48.169556",
        ),
        {"checkpoint_2026-11-29_11-59-48.169556": "torn:snapshot"},
        15,
    ),
    Case(
        "ray snapshot cut",
        lambda d: half(ray(d) / "checkpoint_manager_snapshot.json"),
        {LAST: "not whole:checkpoint_manager_snapshot.json"},
        None,
    ),
    Case(
        "ray snapshot empty",
        lambda d: (ray(d) / "checkpoint_manager_snapshot.json").write_bytes(b""),
        {LAST: "not whole:checkpoint_manager_snapshot.json"},
        None,
    ),
    Case(
        "ray without snapshot",
        lambda d: (ray(d) / "checkpoint_manager_snapshot.json").unlink(),
        {LAST: "not whole"},
        None,
    ),
    Case("ray before V2", ray_v1, {"checkpoint_000003": "not whole"}, None),
    Case(
        "ray names a folder outside",
        lambda d: edit(
            ray(d) / "checkpoint_manager_snapshot.json",
            checkpoint_results=[{"checkpoint_dir_name": "../x", "metrics": {}}],
        ),
        {LAST: "not whole"},
        None,
    ),
]


def plain(path: Path, value: object = None) -> Path:
    return torch_file(path, {"model": 1} if value is None else value)


def models(d: Path) -> Path:
    plain(d / "model_100.pt")
    return plain(d / "model_200.pt")


def plain_torn(name: str, says: str, what: object) -> Case:
    return Case(f"plain {name}", lambda d: what(models(d)), {"model_100.pt": "whole", "model_200.pt": says}, 100)  # type: ignore[operator]


def pairs(d: Path) -> Path:
    models(d)
    plain(d / "optimizer_100.pt")
    return plain(d / "optimizer_200.pt")


def legacy_file(p: Path) -> None:
    p.write_bytes(
        bytes.fromhex("80028a0a6cfc9c46f920 6aa850192e".replace(" ", ""))
        + b"\x80\x02M\xe9\x03."
        + b"\x80\x02}q\x00." * 3
    )


def junk_between(p: Path) -> None:
    p.write_bytes(b"junk" + p.read_bytes())


PLAIN_CASES = [
    plain_torn("cut", "torn", half),
    plain_torn("cut by one", "torn", cut),
    plain_torn("empty", "torn:empty", lambda p: p.write_bytes(b"")),
    plain_torn("zeros", "torn", zero),
    plain_torn("tail zeros", "torn", lambda p: zero(p, 64)),
    plain_torn("head zeros", "torn", lambda p: p.write_bytes(bytes(64) + p.read_bytes()[64:])),
    plain_torn(
        "byte changed", "torn", lambda p: p.write_bytes(p.read_bytes().replace(bytes(range(100, 110)), bytes(10)))
    ),
    plain_torn("the rest of an older, longer file after it", "not whole", append),
    plain_torn("text", "not whole", lambda p: p.write_text("<html>504 gateway</html>")),
    plain_torn(
        "git lfs pointer",
        "not whole",
        lambda p: p.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 5\n"),
    ),
    plain_torn("of before 1.6", "unknown", legacy_file),
    plain_torn("a folder", "not whole", lambda p: (p.unlink(), p.mkdir())),
    Case(
        "plain pairs, newest optimizer lacking",
        lambda d: pairs(d).unlink(),
        {"model_200.pt": "not whole:optimizer_200.pt", "model_100.pt": "whole"},
        100,
    ),
    Case(
        "plain pairs, newest optimizer torn",
        lambda d: half(pairs(d)),
        {"model_200.pt": "not whole:optimizer_200.pt", "optimizer_200.pt": "torn"},
        100,
    ),
    Case(
        "plain ranks' files, newest without rank 1's",
        lambda d: [plain(d / n) for n in ("ckpt_100_rank0.pt", "ckpt_100_rank1.pt", "ckpt_200_rank0.pt")],
        {"ckpt_200_rank0.pt": "not whole:ckpt_200_rank1.pt"},
        100,
    ),
    Case(
        "plain pairs in thousands, newest optimizer lacking",
        lambda d: [plain(d / n) for n in ("model_9k.pt", "optimizer_9k.pt", "model_10.5k.pt")],
        {"model_10.5k.pt": "not whole:optimizer_10.5k.pt", "model_9k.pt": "whole"},
        9000,
    ),
    Case(
        "plain counts of several sizes",
        lambda d: [plain(d / n) for n in ("ckpt_1M.pt", "ckpt_999999.pt", "ckpt_500.pt", "ckpt_900k.pt")],
        {"ckpt_1M.pt": "whole"},
        1_000_000,
    ),
    Case("plain pairs", pairs, {"model_200.pt": "whole"}, 200, chosen="model_200.pt"),
    Case(
        "plain pairs, the model lacking",
        lambda d: (pairs(d), (d / "model_200.pt").unlink()),
        {"optimizer_200.pt": "not whole"},
        100,
    ),
    Case(
        "plain pairs, the model torn",
        lambda d: (pairs(d), half(d / "model_200.pt")),
        {"optimizer_200.pt": "not whole", "model_200.pt": "torn"},
        100,
    ),
    Case(
        "plain pairs, older one's model gone",
        lambda d: (pairs(d), (d / "model_100.pt").unlink()),
        {"model_200.pt": "whole", "optimizer_100.pt": "not whole"},
        200,
    ),
    Case(
        "plain pair overwritten in place, optimizer torn",
        lambda d: (plain(d / "model.pt"), half(plain(d / "optimizer.pt"))),
        {"model.pt": "not whole:optimizer.pt"},
        None,
    ),
    Case("plain optimizer alone", lambda d: plain(d / "optimizer_100.pt"), {"optimizer_100.pt": "not whole"}, None),
    Case(
        "plain best one saved now and then",
        lambda d: (models(d), plain(d / "best_model_100.pt")),
        {"model_200.pt": "whole"},
        200,
    ),
    Case(
        "plain optimizer of the newest only",
        lambda d: (models(d), plain(d / "optimizer_200.pt")),
        {"model_200.pt": "whole", "model_100.pt": "not whole"},
        200,
    ),
    Case(
        "plain hole in the ranks",
        lambda d: plain(d / "ckpt_100_rank1.pt"),
        {"ckpt_100_rank1.pt": "not whole:ckpt_100_rank0.pt"},
        None,
    ),
    Case(
        "plain Composer's name",
        lambda d: [plain(d / f"ep{e}-ba{b}-rank0.pt") for e, b in ((0, 50), (1, 100))],
        {"ep1-ba100-rank0.pt": "whole"},
        100,
    ),
    Case(
        "plain ImageNet's names",
        lambda d: (plain(d / "checkpoint.pth.tar", {"epoch": 3}), plain(d / "model_best.pth.tar", {"epoch": 1})),
        {"checkpoint.pth.tar": "whole"},
        None,
        chosen="checkpoint.pth.tar",
    ),
    Case(
        "plain step inside",
        lambda d: plain(d / "checkpoint.pt", {"model": 1, "step": 7}),
        {"checkpoint.pt": "whole"},
        7,
    ),
    Case(
        "plain temporary beside",
        lambda d: (
            models(d),
            plain(d / "model_300.pt.tmp"),
            plain(d / "model_300.tmp.pt"),
            plain(d / ".model_300.pt"),
            plain(d / "tmp_model_300.pt"),
            plain(d / "model_300_tmp.pt"),
        ),
        {"model_200.pt": "whole", "model_300.pt.tmp": "not whole or no entry"},
        200,
    ),
    Case("plain latest beside", lambda d: (models(d), plain(d / "latest.pt")), {"model_200.pt": "whole"}, 200),
    Case(
        "plain written and renamed",
        lambda d: torch_file(d / "ckpt_100.pt", {"step": 100}, "ckpt_100.pt"),
        {"ckpt_100.pt": "whole"},
        100,
    ),
    Case(
        "plain safetensors",
        lambda d: safetensors_file(d / "model_100.safetensors"),
        {"model_100.safetensors": "not whole or no entry"},
        None,
    ),
    Case(
        "plain through a buffer",
        lambda d: (d.mkdir(exist_ok=True), (d / "model_100.pt").write_bytes(saved({"model": 1}))),
        {"model_100.pt": "whole"},
        100,
    ),
    Case(
        "plain folder of files",
        lambda d: (plain(d / "step-100/model.pt"), plain(d / "step-100/optimizer.pt")),
        {"step-100": "unknown"},
        None,
    ),
    Case("plain beside logs", lambda d: (models(d), foreign(d)), {"model_200.pt": "whole"}, 200),
    Case(
        "plain epoch inside", lambda d: plain(d / "epoch_3.pth", {"model": 1, "epoch": 3}), {"epoch_3.pth": "whole"}, 3
    ),
    *(
        Case(f"plain named {n}", lambda d, n=n: plain(d / n), {n: "whole"}, s)
        for n, s in (  # type: ignore[misc]
            ("ckpt_0000100.pt", 100),
            ("step_100.pt", 100),
            ("epoch_3.pth", 3),
            ("model-100.pth", 100),
            ("checkpoint-100.pt", 100),
            ("100.pt", 100),
            ("iter100.pth", 100),
            ("iter_100.pth", 100),
            ("model_v2_100.pt", 100),
            ("resnet50_100.pt", 100),
            ("gpt2-step100.pt", 100),
            ("llama-7b-step-100.pt", 100),
            ("epoch_3_step_100.pt", 100),
            ("step_100_epoch_3.pt", 100),
            ("resnet50_epoch3.pth", 3),
            ("resnet50-epoch3-step100.pth", 100),
            ("model_100_best.pt", 100),
            ("ckpt-step=100.pt", 100),
            ("vit_b16_step100.bin", 100),
            ("model_step_100.bin", 100),
            ("epoch100.pt", 100),
            ("ckpt_step100_loss0.25.pt", 100),
            ("ckpt_iter_100_loss_0.25.pt", 100),
            ("checkpoint_epoch_3.pth.tar", 3),
            ("nanogpt_100.pt", 100),
        )
    ),
]


def own(d: Path) -> Path:
    published(d, 5)
    return published(d, 10)


def own_torn(name: str, says: str, what: object) -> Case:
    return Case(
        f"manifest {name}", lambda d: what(own(d)), {"step-000000000005": "whole", "step-000000000010": says}, 5
    )  # type: ignore[operator]


def hand_written(d: Path) -> None:
    step = d / "step-00000005"
    plain(step / "state.pt")
    size = (step / "state.pt").stat().st_size
    (step / "manifest.json").write_text(
        json.dumps({"format": 1, "step": 5, "world": 2, "files": {"state.pt": {"size": size, "sha256": "00"}}})
    )
    (step / "COMMITTED").write_bytes(b"")


OWN_CASES = [
    own_torn("COMMITTED lacking", "torn:COMMITTED", lambda s: (s / "COMMITTED").unlink()),
    own_torn("COMMITTED empty", "torn:COMMITTED", lambda s: (s / "COMMITTED").write_bytes(b"")),
    own_torn(
        "COMMITTED of another",
        "torn:COMMITTED",
        lambda s: shutil.copy(s.parent / "step-000000000005/COMMITTED", s / "COMMITTED"),
    ),
    own_torn("manifest lacking", "torn:manifest.json", lambda s: (s / "manifest.json").unlink()),
    own_torn("manifest cut", "torn:manifest.json", lambda s: half(s / "manifest.json")),
    own_torn("file lacking", "torn:part-3", lambda s: (s / "part-3").unlink()),
    own_torn("file changed", "torn:part-3", lambda s: flip(s / "part-3")),
    own_torn("file longer", "torn:part-3", lambda s: append(s / "part-3")),
    own_torn("folder empty", "not whole", lambda s: [p.unlink() for p in s.iterdir()]),
    own_torn(
        "another step's files", "torn", lambda s: (shutil.rmtree(s), shutil.copytree(s.parent / "step-000000000005", s))
    ),
    Case(
        "manifest not renamed",
        lambda d: own(d).rename(d / "step-000000000010.tmp-attempt-03"),
        {"step-000000000005": "whole"},
        5,
    ),
    Case(
        "manifest pointer ahead",
        lambda d: (own(d), (d / "latest.json").write_text('{"step": 99}')),
        {"step-000000000010": "whole"},
        10,
    ),
    Case("manifest of a script's own", hand_written, {"step-00000005": "not whole"}, None),
    Case(
        "manifest with another file inside",
        lambda d: (own(d) / "notes.txt").write_text("x"),
        {"step-000000000010": "whole"},
        10,
    ),
]


def mixed(d: Path) -> None:
    copy(DCP, d / "step-5")
    hf_step(d / "checkpoint-10", 10)
    copy("deepspeed/complete/global_step5", d / "global_step5")


def one_folder_two_formats(d: Path) -> Path:
    """A Trainer's folder into which a DCP was saved too, whose shard is lacking."""
    step = hf_step(d / "checkpoint-10", 10)
    copy(DCP, step)
    return step


MIXED_CASES = [
    Case(
        "two formats beside each other",
        mixed,
        {"step-5": "whole", "checkpoint-10": "whole", "global_step5": "whole"},
        10,
    ),
    Case("two formats in one folder", one_folder_two_formats, {"checkpoint-10": "whole"}, 10),
    Case(
        "two formats in one folder, one torn",
        lambda d: (one_folder_two_formats(d) / "__1_0.distcp").unlink(),
        {"checkpoint-10": "not whole"},
        None,
    ),
    Case("nothing", lambda d: d.mkdir(exist_ok=True), {}, None),
    Case("only foreign files", foreign, {}, None),
    Case("the step's own folder given", lambda d: copy(DCP, d), {}, None),
    Case(
        "newest of a format lies deeper",
        lambda d: (copy(DCP, d / "step-5"), copy(DCP, d / "old/step-10")),
        {"step-5": "whole"},
        5,
    ),
    Case(
        "a linked step",
        lambda d: (
            copy(DCP, d / "step-5"),
            copy(DCP, d.parent / "elsewhere/step-10"),
            (d / "step-10").symlink_to(d.parent / "elsewhere/step-10"),
        ),
        {"step-5": "whole", "step-10": "not whole or no entry"},
        5,
    ),
    Case(
        "a link called latest",
        lambda d: (copy(DCP, d / "step-5"), (d / "latest").symlink_to("step-5")),
        {"step-5": "whole", "latest": "no entry"},
        5,
    ),
    Case(
        "lost+found and thumbs",
        lambda d: (
            copy(DCP, d / "step-5"),
            (d / "lost+found").mkdir(),
            (d / ".DS_Store").write_bytes(b"x"),
            (d / "nohup.out").write_text("x"),
            (d / "slurm-123.out").write_text("x"),
            (d / "core.1234").write_text("x"),
            (d / ".nfs000001").write_text("x"),
        ),
        {
            "step-5": "whole",
            "lost+found": "not whole or no entry",
            "slurm-123.out": "no entry",
            "core.1234": "no entry",
        },
        5,
    ),
    Case(
        "a marker that calls it unfinished",
        lambda d: (copy(DCP, d / "step-5"), copy(DCP, d / "step-10"), (d / "step-10-unfinished").write_bytes(b"")),
        {"step-5": "whole", "step-10": "torn"},
        5,
    ),
    Case(
        "a marker that calls a file unfinished",
        lambda d: (
            copy("lightning/complete/epoch=0-step=5.ckpt", d / "last.ckpt"),
            copy(DCP, d / "step-4"),
            (d / "last-unfinished").write_bytes(b""),
        ),
        {"step-4": "whole", "last.ckpt": "torn"},
        4,
    ),
    Case(
        "older copies beside",
        lambda d: (copy(DCP, d / "step-5"), copy(DCP, d / "step-5.old"), copy(DCP, d / "step-5.bak")),
        {"step-5": "whole"},
        5,
    ),
]
AGAIN = [  # a second round, labelled when the errors of the first had been mended
    Case(
        "manifest latest ahead",
        lambda d: (own(d), (d / "latest.json").write_text(json.dumps({"name": "step-000000000015"}))),
        {"step-000000000010": "whole"},
        10,
    ),
    Case(
        "manifest superseded",
        lambda d: (own(d), shutil.copytree(d / "step-000000000010", d / "step-000000000015.superseded-3-1")),
        {},
        10,
    ),
    Case(
        "manifest uppercase digest",
        lambda d: after(own(d), lambda s: (s / "COMMITTED").write_text((s / "COMMITTED").read_text().upper())),
        {"step-000000000010": "torn"},
        5,
    ),
    Case(
        "manifest part a link",
        lambda d: after(own(d), lambda s: ((s / "part-3").rename(d / "p"), (s / "part-3").symlink_to(d / "p"))),
        {"step-000000000010": "torn:part-3"},
        5,
    ),
    Case(
        "ray dup names",
        lambda d: edit(
            ray(d) / "checkpoint_manager_snapshot.json",
            latest_checkpoint_result={"checkpoint_dir_name": "checkpoint_2026-11-29_11-43-28.575354", "metrics": {}},
        ),
        {LAST: "whole"},
        15,
    ),
    Case(
        "ray empty list",
        lambda d: edit(ray(d) / "checkpoint_manager_snapshot.json", checkpoint_results=[]),
        {LAST: "torn"},
        None,
    ),
    Case(
        "orbax only commit",
        lambda d: ((d / "10").mkdir(parents=True), (d / "10/commit_success.txt").write_text("x")),
        {"10": "torn"},
        None,
    ),
    Case(
        "orbax two items one torn tree",
        lambda d: (orbax_items(orbax(d)), (d / "10/state/manifest.ocdbt").unlink()),
        {"10": "torn:manifest.ocdbt"},
        5,
    ),
    Case("plain step vs name", lambda d: plain(d / "model_100.pt", {"step": 150}), {"model_100.pt": "whole"}, 150),
    Case("plain 1-digit mix", lambda d: [plain(d / f"ckpt{n}.pt") for n in (9, 10)], {}, 10),
    Case("plain tensor step", lambda d: plain(d / "m_3.pt", {"global_step": 12}), {}, 12),
    Case(
        "plain hf export beside",
        lambda d: (
            models(d),
            torch_file(d / "pytorch_model-00001-of-00002.bin", {"x": 1}),
            torch_file(d / "pytorch_model-00002-of-00002.bin", {"x": 1}),
        ),
        {"model_200.pt": "whole"},
        200,
    ),
    Case(
        "plain consolidated",
        lambda d: (
            models(d),
            torch_file(d / "consolidated.00.pth", {"x": 1}),
            torch_file(d / "consolidated.01.pth", {"x": 1}),
        ),
        {"model_200.pt": "whole"},
        200,
    ),
    Case(
        "plain GAN",
        lambda d: [plain(d / f"{r}_{n}.pth") for r in "GD" for n in (1000, 2000)],
        {"G_2000.pth": "whole"},
        2000,
    ),
    Case(
        "plain GAN torn",
        lambda d: ([plain(d / f"{r}_{n}.pth") for r in "GD" for n in (1000, 2000)], half(d / "D_2000.pth")),
        {"G_2000.pth": "torn:D_2000.pth"},
        1000,
    ),
    Case(
        "plain ema",
        lambda d: (
            [plain(d / f"{r}_{n}.pt") for r in ("model", "ema", "opt") for n in (1000, 2000)],
            (d / "opt_2000.pt").unlink(),
        ),
        {"model_2000.pt": "torn:opt_2000"},
        1000,
    ),
    Case(
        "plain improved diffusion",
        lambda d: [plain(d / f"{r}{n:06d}.pt") for r in ("model", "ema_0.9999_", "opt") for n in (10000, 20000)],
        {},
        20000,
        chosen="model020000.pt",
    ),
    Case(
        "plain improved diffusion torn",
        lambda d: (
            [plain(d / f"{r}{n:06d}.pt") for r in ("model", "ema_0.9999_", "opt") for n in (10000, 20000)],
            (d / "opt020000.pt").unlink(),
        ),
        {"model020000.pt": "torn:opt020000.pt"},
        10000,
    ),
    Case(
        "plain yolo",
        lambda d: (plain(d / "best.pt", {"epoch": 3}), plain(d / "last.pt", {"epoch": 5})),
        {},
        None,
        chosen="last.pt",
    ),
    Case(
        "plain yolo torn",
        lambda d: (plain(d / "best.pt", {"epoch": 3}), half(plain(d / "last.pt", {"epoch": 5}))),
        {"last.pt": "torn"},
        None,
        chosen="best.pt",
    ),
]
CASES = [*AGAIN, *ORBAX_CASES, *RAY_CASES, *PLAIN_CASES, *OWN_CASES, *MIXED_CASES]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name.replace(" ", "_"))
def test_what_both_commands_say(case: Case, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert not differences(case, tmp_path / "checkpoints", capsys)
