"""Plain files of ``torch.save``, as scripts write them by hand: whole zip archives, and nothing that says more.

A single file is a checkpoint if it is whole. Of a folder of them nothing says how many there must be, so that is not
known; a script that writes several should publish them with a manifest.
"""

from __future__ import annotations

from collections.abc import Collection

from ..names import TORCH_SAVED
from . import torch_zip
from .finding import Finding, Question, Unknown, Whole
from .folder import Folder
from .ray import NAME as RAY

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
        return bool(files) and all(file.endswith(TORCH_SAVED) and "/" not in file for file in files)

    def judge(self, folder: Folder, question: Question) -> Finding:
        """See Format."""
        how = torch_zip.judge_files(folder, sorted(folder.files), question)
        if not isinstance(how, str):
            return how
        if folder.is_file:
            return Whole(how, step=_step_in(folder, folder.name, question))
        return Unknown(
            f"{how}, but nothing says which there must be: "
            "publish them with remuster.checkpoint, or let --checkpoint-format name what wrote them"
        )


def _step_in(folder: Folder, path: str, question: Question) -> int | None:
    """Return the step that a whole file says, if that can be read."""
    try:
        return torch_zip.step_of(torch_zip.contents(folder, path, question.give_up))
    except ValueError:  # whole all the same, by its checksums
        return None
