"""Files as torch.save and safetensors write them, made without either, for tests of checkpoint formats."""

from __future__ import annotations

import json
import pickle
import zipfile
from pathlib import Path


def torch_file(path: Path, value: object, root: str | None = None, pickled: bytes | None = None) -> Path:
    """Write what torch.save leaves for a value without tensors, and with some bytes that stand for one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    root = path.stem if root is None else root
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"{root}/data.pkl", pickle.dumps(value, 2) if pickled is None else pickled)
        archive.writestr(f"{root}/data/0", bytes(range(256)))
        archive.writestr(f"{root}/version", b"3\n")
    return path


def safetensors_file(path: Path, names: tuple[str, ...] = ("weight",), size: int = 4) -> Path:
    """Write a file of safetensors in which each tensor has ``size`` numbers of four bytes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    header = {
        name: {"dtype": "F32", "shape": [size], "data_offsets": [4 * size * n, 4 * size * (n + 1)]}
        for n, name in enumerate(names)
    }
    path.write_bytes(safetensors_bytes({"__metadata__": {"format": "pt"}, **header}, b"\1" * (4 * size * len(names))))
    return path


def safetensors_bytes(header: object, data: bytes) -> bytes:
    """Return a header, as JSON, and what follows it."""
    raw = json.dumps(header).encode()
    return len(raw).to_bytes(8, "little") + raw + data
