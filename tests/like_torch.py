"""Makes files that look like those of torch, without torch."""

from __future__ import annotations

import io
import pickle
import zipfile
from pathlib import Path


class Holder:
    """Stands for torch's classes: in the pickle it is only a name and a state."""

    def __init__(self, **fields: object) -> None:
        self.__dict__.update(fields)


def saved(value: object, data: bytes = bytes(64)) -> bytes:
    """Return what torch.save would write of a value and one storage."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr("archive/data.pkl", pickle.dumps(value, 2))
        archive.writestr("archive/data/0", data)
        archive.writestr("archive/version", "3\n")
    return out.getvalue()


def dcp(directory: Path, name: str, shard: bytes | None = None) -> Path:
    """Make a checkpoint of torch.distributed.checkpoint with one shard that holds one item."""
    step, shard = directory / name, saved(1) if shard is None else shard
    step.mkdir(parents=True)
    (step / "__0_0.distcp").write_bytes(shard)
    info = Holder(relative_path="__0_0.distcp", offset=0, length=len(shard))
    index = Holder(fqn="weight", offset=None, index=None)
    metadata = Holder(state_dict_metadata={"weight": Holder()}, storage_data={index: info})
    (step / ".metadata").write_bytes(pickle.dumps(metadata))
    return step
