"""Plain files of ``torch.save``, as scripts write them by hand: whole zip archives, and nothing that says more.

A single file is a checkpoint if it is whole. Of a folder of them nothing says how many there must be, so that is not
known; a script that writes several should publish them with a manifest.
"""

from __future__ import annotations

from collections.abc import Collection

from . import torch_zip
from .finding import Finding, Question, Torn, Unknown, Whole
from .folder import Folder
from .ray import NAME as RAY

ENDINGS = (".pt", ".pth", ".bin")
ENGINE = ("_model_states.pt", "_optim_states.pt")  # DeepSpeed's
EXPORTS = ("training_args.bin", "pytorch_model.bin", "adapter_model.bin")  # a trained model's, beside checkpoints


class TorchFiles:
    """A file of torch.save, or a folder that holds nothing else."""

    name = "torch"
    unseen = "another whole file in its place"

    def claims(self, name: str, files: Collection[str]) -> bool:
        """See Format."""
        if name in EXPORTS or RAY.fullmatch(name) or any(file.endswith(ENGINE) for file in files):
            return False
        return bool(files) and all(file.endswith(ENDINGS) and "/" not in file for file in files)

    def judge(self, folder: Folder, question: Question) -> Finding:
        """See Format."""
        wrong = next((words for path in folder.files if (words := _wrong_with(folder, path, question))), None)
        if wrong is not None:
            return wrong
        if folder.is_file:
            return file_of_torch(folder, folder.name)
        return Unknown(
            f"all {len(folder.files)} files in it are whole, but nothing says which there must be: "
            "publish them with remuster.checkpoint, or let --checkpoint-format name what wrote them"
        )


def _wrong_with(folder: Folder, path: str, question: Question) -> Finding | None:
    if torch_zip.is_legacy(folder, path):
        return Unknown(f"{path!a} {torch_zip.LEGACY_WORDS}: save with a torch since 1.6, in its default format")
    words = torch_zip.wrong_with(folder, path, question)
    return Torn(words) if words else None


def file_of_torch(folder: Folder, path: str) -> Whole:
    """Return what a file says of itself that was found whole."""
    try:
        step = torch_zip.step_of(torch_zip.contents(folder, path))
    except ValueError:  # whole all the same, by its checksums; only its step is not to be had
        step = None
    return Whole("a whole file of torch.save: the CRC-32 of each part", step=step)
