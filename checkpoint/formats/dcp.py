"""torch.distributed.checkpoint (FSDP2 and others): shards ``__R_K.distcp``, and ``.metadata``, written last.

Ranks write their shards in place; then the coordinator writes ``.metadata.tmp``, fsyncs and renames it
(torch/distributed/checkpoint/filesystem.py, 2.13), so ``.metadata`` is a commit marker. Every piece that it names is
what torch.save wrote, with its CRC-32s, at an offset in a shard, or safetensors (``dcp_safetensors``). With
``use_collectives=False`` each rank R writes a ``__R.metadata`` of its own instead, for its own shards, and how many
ranks there were is recorded nowhere.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import replace
from functools import partial

from .dcp_cuts import not_whole, other_cut
from .dcp_metadata import METADATA, Cut, Piece, Unread, read_cuts, read_pieces
from .dcp_safetensors import begin, judge_huggingface, of_huggingface, packed, wrong_in
from .finding import Finding, Question, Torn, Unknown, Whole
from .folder import Folder
from .inert_pickle import NotReadable
from .stored_zip import NotWhole, StoredZip
from .together import Job, first_wrong

OWN = re.compile(r"__(\d+)\.metadata")  # of one rank
SHARD = re.compile(r"__(\d+)_\d+\.distcp")
BATCH_BYTES = 64 << 20  # of pieces that one thread reads before it takes others
BATCH_PIECES = 512


class Dcp:
    """A directory of torch.distributed.checkpoint."""

    name = "dcp"
    unseen = (
        "two shards in each other's place whose pieces have the same offsets and lengths; a step that was saved again "
        "into the same directory and is now half the older, half the newer one; pieces that were transformed on their "
        "way (compressed, encrypted): their sizes only; numbers changed in place in shards of safetensors"
    )

    def claims(self, name: str, files: Collection[str]) -> bool:
        """See Format."""
        return of_huggingface(files) or bool(beside(files))

    def judge(self, folder: Folder, question: Question) -> Finding:
        """See Format."""
        if of_huggingface(folder.files) and not beside(folder.files):
            return judge_huggingface(folder, question)
        return shards(folder, "", question)


def beside(files: Collection[str]) -> set[str]:
    """Return the prefix of shards at the top of another format's folder: a script put them there, and loads them."""
    return {""} if any(_own(file) for file in files) else set()


def _own(file: str) -> bool:
    """Say whether a file is of FileSystemWriter's, and not further down."""
    named = file in (METADATA, METADATA + ".tmp") or file.endswith(".distcp") or OWN.fullmatch(file)
    return bool(named) and "/" not in file


def shards(folder: Folder, prefix: str = "", question: Question | None = None) -> Finding:
    """Judge the shards below ``prefix`` ("", or a path that ends in "/") by the metadata there."""
    question = question or Question()
    path = prefix + METADATA
    inside = [file[len(prefix) :] for file in folder.files if file.startswith(prefix)]
    ranks = sorted(int(found[1]) for file in inside if (found := OWN.fullmatch(file)))
    if path + ".tmp" in folder.files and path in folder.files:
        return Torn(f"{path + '.tmp'!a} lies beside {METADATA}: another save into this directory was interrupted")
    if path in folder.files:
        return _judged(folder, prefix, [path], _world(inside), question)
    if ranks:
        return _of_each_rank(folder, prefix, ranks, question)
    only = " (only .metadata.tmp: the save did not come to its end)" if path + ".tmp" in folder.files else ""
    return Torn(f"{path!a} is missing{only}", (path,))


def _of_each_rank(folder: Folder, prefix: str, ranks: list[int], question: Question) -> Finding:
    if question.world is None:
        return Unknown("each rank wrote its own metadata, so that it is not recorded how many ranks there were")
    if extra := [rank for rank in ranks if rank >= question.world]:
        return Torn(f"it was written by {extra[-1] + 1} ranks, each for itself; {question.world} cannot load it")
    names = [f"{prefix}__{rank}{METADATA}" for rank in range(question.world)]
    if half := [name for name in names if name in folder.files and name + ".tmp" in folder.files]:
        return Torn(f"{half[0] + '.tmp'!a} lies beside it: another save into this directory was interrupted")
    lacking = tuple(name for name in names if name not in folder.files)
    if lacking and not question.part:
        return Torn(f"{lacking[0]!a} is missing: that rank's save did not come to its end", lacking)
    here = tuple(ranks) if lacking else ()
    names = [name for name in names if name in folder.files]
    found = _judged(folder, prefix, names, None if here else question.world, question)
    if not isinstance(found, Whole):
        return found
    cuts: list[list[Cut]] = []
    for name in names:
        try:
            cuts.append(read_cuts(folder, name, question.give_up))
        except Unread as error:
            return Unknown(f"{name!a}: {error}")
        except ValueError as error:
            return Torn(f"{name!a} is damaged: {error}")
    if not here:
        wrong = not_whole([cut for of_rank in cuts for cut in of_rank])
        return Torn(wrong) if wrong else found
    for rank, of_rank in zip(ranks, cuts, strict=True):
        if wrong := other_cut(of_rank, rank, question.world):
            return Unknown(f"{wrong}: another number of ranks wrote it, or they were no single row")
    return replace(found, ranks=here)


def _judged(folder: Folder, prefix: str, names: list[str], world: int | None, question: Question) -> Finding:
    pieces: list[Piece] = []
    for name in names:
        try:
            of_name = read_pieces(folder, name, question.give_up)
        except NotReadable as error:
            return Torn(f"{name!a} cannot be read: {error}")
        except Unread as error:
            return Unknown(f"{name!a}: {error}")
        except ValueError as error:
            return Torn(f"{name!a} is damaged: {error}")
        if other := _of_another_rank(name[len(prefix) :], of_name):
            return Torn(f"{name!a} names {other!a}: another rank wrote it")
        pieces += of_name
    need: dict[str, int] = {}
    for piece in pieces:
        path = prefix + piece.file
        need[path] = max(need.get(path, 0), piece.end)
    short = [f for f, end in sorted(need.items()) if folder.files.get(f, end) < end]
    if short:
        has, wants = folder.files[short[0]], need[short[0]]
        return Torn(f"{short[0]!a} has {has} bytes; {METADATA} needs {wants}")
    if lacking := tuple(sorted(need.keys() - folder.files.keys())):
        return Torn(f"{len(lacking)} of {len(need)} shard files are missing, {lacking[0]!a} first", lacking)
    how = f"{METADATA}, and the sizes of the {len(need)} shard files that it names"
    headed = packed(pieces)
    if wrong := first_wrong([partial(wrong_in, folder, prefix + f, held) for f, held in headed.items()], question):
        return Torn(wrong)
    starts = {file: held[0].offset for file, held in headed.items()}
    inside = sum(map(len, headed.values()))
    how += f", and what the headers in {len(headed)} of them say of {inside} tensors" if headed else ""
    plain = [piece for piece in pieces if not piece.transformed and piece.offset != starts.get(piece.file)]
    if question.deep and plain:
        bare: list[int] = []
        jobs: list[Job] = [partial(_read, folder, prefix, batch, bare) for batch in _batches(plain)]
        if wrong := first_wrong(jobs, question):
            return Torn(wrong)
        how += f", and CRC-32 of {len(plain) - sum(bare)} pieces in them"
        how += f" (sizes only of {sum(bare)}: without checksums)" if sum(bare) else ""
    if question.deep and (changed := len(pieces) - len(plain) - inside):
        how += f" (sizes only of {changed}: transformed, not as torch.save wrote them)"
    return Whole(how, world=world)


def _of_another_rank(name: str, pieces: Iterable[Piece]) -> str:
    """Return a shard that a rank's own metadata names and that is another rank's; "" if there is none."""
    own = OWN.fullmatch(name)
    shards = {piece.file for piece in pieces} if own is not None else set[str]()
    return min((file for file in shards if own and (of := SHARD.fullmatch(file)) and of[1] != own[1]), default="")


def _world(files: Iterable[str]) -> int | None:
    """Return how many ranks left a shard, if the numbers have no hole; a rank without tensors leaves an empty one."""
    ranks = {int(found[1]) for file in files if (found := SHARD.fullmatch(file))}
    return len(ranks) if ranks == set(range(len(ranks))) else None


def _batches(pieces: list[Piece]) -> Iterable[list[Piece]]:
    """Share the pieces out, each batch from one file and in the order in which they lie there."""
    batch: list[Piece] = []
    size = 0
    for piece in sorted(pieces, key=lambda piece: (piece.file, piece.offset)):
        if batch and (batch[0].file != piece.file or size > BATCH_BYTES or len(batch) >= BATCH_PIECES):
            yield batch
            batch, size = [], 0
        batch.append(piece)
        size += piece.length
    if batch:
        yield batch


def _read(folder: Folder, prefix: str, batch: list[Piece], bare: list[int], question: Question) -> str:
    """Compare the checksums of pieces; return what is wrong with one. ``bare`` gets the number of those without."""
    path = prefix + batch[0].file
    without = 0
    with folder.opened(path) as (fd, _):
        for piece in batch:
            try:
                archive = StoredZip(fd, piece.offset, piece.length)
                archive.check(question.give_up)
            except NotWhole as error:
                if begin(fd, piece.offset):  # a tensor that is alone in its shard
                    if wrong := wrong_in(folder, path, [piece], question):
                        return wrong
                    without += 1
                    continue
                return f"{path!a} does not hold {piece.name!a} whole at {piece.offset}: {error}"
            without += not archive.has_checksums
    bare.append(without)
    return ""
