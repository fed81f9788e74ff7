"""Each real checkpoint, whole or torn, is claimed by one format, and by no other."""

from __future__ import annotations

from pathlib import Path

import pytest
from checkpoint_samples import SAMPLES, format_name

from remuster.checkpoint.formats.folder import Folder
from remuster.checkpoint.formats.known import BUILT_IN

OF = {
    "transformers": "transformers",
    "accelerate": "accelerate",
    "lightning": "lightning",
    "orbax": "orbax",
    "ray": "ray",
}
RANKS_OWN = "shard-00001-model-00001-of-00001.safetensors"  # of DCP's HuggingFaceStorageWriter
ENTRIES = [
    (entry, OF[kind.name])
    for kind in sorted(SAMPLES.iterdir())
    if kind.name in OF
    for state in sorted(kind.iterdir())
    for entry in sorted((state / "case" if kind.name == "ray" else state).iterdir())
    if not entry.name.endswith((".json", "marker"))
]


@pytest.mark.parametrize(("entry", "name"), ENTRIES, ids=[str(entry.relative_to(SAMPLES)) for entry, _ in ENTRIES])
def test_one_format_claims_it(entry: Path, name: str) -> None:
    folder = Folder(entry.parent, entry.name)
    assert [format_.name for format_ in BUILT_IN if format_.claims(folder.name, folder.files)] == [name]
    assert format_name(entry) == name


def test_every_sample_is_looked_at() -> None:
    assert {name for _, name in ENTRIES} == set(OF.values())


@pytest.mark.parametrize(
    ("name", "files", "claimed"),
    [
        ("checkpoint-5", ("config.json",), ""),
        ("checkpoint-5", ("model.safetensors", "config.json"), "transformers"),
        ("model", ("model.safetensors", "config.json"), ""),
        ("checkpoint-5", ("random_states_0.pkl", "model.safetensors"), "accelerate"),
        ("checkpoint_5", ("model.safetensors",), "accelerate"),
        ("best", ("optimizer.bin", "model.safetensors"), "accelerate"),
        ("checkpoint-5", ("optimizer.bin", "rng_state_0.pth", "pytorch_model_fsdp.bin"), "transformers"),
        ("checkpoint_000005", ("data.json",), ""),
        ("step-5", (RANKS_OWN,), "dcp"),
        ("checkpoint-5", (RANKS_OWN,), "dcp"),
        ("checkpoint_5", (RANKS_OWN,), "dcp"),
        ("checkpoint-5", (f"sharded/{RANKS_OWN}", "model-00001-of-00001.safetensors"), "dcp"),
        ("checkpoint_5", (f"sharded/{RANKS_OWN}", "model.safetensors.index.json"), "dcp"),
        ("checkpoint-5", (RANKS_OWN, "trainer_state.json"), "transformers"),
        ("step-5", (f"further/down/{RANKS_OWN}",), ""),
        ("5", ("default/checkpoint",), ""),
        ("5", ("default/manifest.ocdbt",), "orbax"),
        ("last.ckpt", ("last.ckpt",), "lightning"),
        ("last.ckpt", ("checkpoint/mp_rank_00_model_states.pt", "latest"), "lightning"),
        ("step=5", ("meta.pt", ".metadata", "__0_0.distcp"), "lightning"),
        ("last.pt", ("last.pt",), "torch"),
        ("step-5", ("a.pt", "b/c.pt"), ""),
        ("step-5", (), ""),
        ("notes", ("notes",), ""),
    ],
)
def test_names_alone(name: str, files: tuple[str, ...], claimed: str) -> None:
    assert next((format_.name for format_ in BUILT_IN if format_.claims(name, files)), "") == claimed
