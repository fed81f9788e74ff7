"""The project's own format (``remuster.checkpoint.publish``): COMMITTED, a manifest, sizes and sha256 of every file."""

from __future__ import annotations

from collections.abc import Collection

from ..layout import COMMITTED, MANIFEST, step_of
from ..patience import Patience
from ..verify import Refused, files_of_size, read_manifest, verify_files
from .finding import Finding, Question, Torn, Whole
from .folder import Folder


class Published:
    """A step that was published."""

    name = "manifest"

    def claims(self, name: str, files: Collection[str]) -> bool:
        """See Format."""
        return (MANIFEST in files and (COMMITTED in files or step_of(name.partition(".")[0]) is not None)) or (
            COMMITTED in files and step_of(name) is not None
        )

    def judge(self, folder: Folder, question: Question) -> Finding:
        """See Format."""
        path, patience = folder.directory / folder.name, Patience(())
        manifest = read_manifest(path, patience)
        if isinstance(manifest, Refused):
            return Torn(manifest.reason)
        if question.deep:
            result = verify_files(path, manifest, patience, question.give_up)
        else:
            result = files_of_size(path, manifest, patience)
        if isinstance(result, Refused):
            return Torn(result.reason)
        return Whole(result.how, manifest.step, manifest.world_size)
