"""DeepSpeed, ZeRO 0 to 3: ``global_stepN/`` with model states and, for ZeRO, one file of optimizer states a rank.

Every file is plain torch.save, written in place, without a marker over all ranks; rank 0 rewrites ``latest`` as soon as
its own files are done (deepspeed/runtime/engine.py, 0.19), so ``latest`` may name what other ranks never finished and
is no evidence here. How many files there must be stands in the model states: ``dp_world_size``, ``mp_world_size`` and
``num_experts``.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass, field, replace

from . import deepspeed_states as states
from . import deepspeed_universal as universal
from .finding import Finding, Question, Torn, Unknown, Whole
from .folder import Folder
from .torch_zip import contents, judge_files, saved_as_another

MODEL = re.compile(r"(?:zero_pp_rank_(\d+)_)?mp_rank_(\d+)_model_states\.pt")
OPTIM = re.compile(r"(bf16_|fp16_|)zero_pp_rank_(\d+)_mp_rank_(\d+)_optim_states\.pt")
EXPERT = re.compile(r"layer_(\d+)_expert_(\d+)_mp_rank_(\d+)_model_states\.pt")
LAYER = re.compile(r"layer_(\d+)(-.*)?-model_states\.pt")  # of a pipeline
OTHER = re.compile(r"(expp_rank_\d+_mp_rank_\d+_optim|expert_\d+_mp_rank_\d+_model)_states\.pt")
TAG = re.compile(r"global_step(\d+)")


@dataclass(slots=True)
class Found:
    """The names of the files, by what they say of themselves."""

    model: dict[tuple[int | None, int], str] = field(default_factory=dict[tuple[int | None, int], str])  # (dp, mp)
    optim: dict[tuple[int, int], str] = field(default_factory=dict[tuple[int, int], str])  # (dp, mp)
    expert: dict[tuple[int, int, int], str] = field(
        default_factory=dict[tuple[int, int, int], str]
    )  # layer, expert, mp
    layer: dict[tuple[str, int], str] = field(default_factory=dict[tuple[str, int], str])  # tensor rank, layer
    other: list[str] = field(default_factory=list[str])
    prefixes: set[str] = field(default_factory=set[str])  # of optimizer states

    @property
    def all(self) -> list[str]:
        """Return every file."""
        kinds = (self.model, self.optim, self.expert, self.layer)
        return sorted([*(path for kind in kinds for path in kind.values()), *self.other])


class DeepSpeed:
    """A tag's directory of DeepSpeed, as its engine saves it or as ds_to_universal converts it."""

    name = "deepspeed"
    unseen = (
        "in each other's place: two ranks' files of ZeRO-3, or of ZeRO-1/2 where one parameter fills both parts, "
        "two model-parallel ranks' model states, two layers of a pipeline, or a parameter's moments after "
        "ds_to_universal; layers of a pipeline that are gone, unless more parameters than those left are optimized; "
        "the file of the last expp_rank; tensors offloaded to NVMe; the files of two saves of the same step"
    )

    def claims(self, name: str, files: Collection[str]) -> bool:
        """See Format."""
        return place(files) is not None or universal.claims(files)

    def judge(self, folder: Folder, question: Question) -> Finding:
        """See Format."""
        if universal.claims(folder.files):
            return universal.judge(folder, question)
        return judge_states(folder, place(folder.files) or "", question)


def place(files: Collection[str]) -> str | None:
    """Return where the states lie: "", or "checkpoint/" in a directory of Lightning's; None: there are none."""
    for prefix in ("", "checkpoint/"):
        if any(_kind(path.removeprefix(prefix)) for path in files if path.startswith(prefix)):
            return prefix
    return None


def _kind(name: str) -> bool:
    return any(pattern.fullmatch(name) for pattern in (MODEL, OPTIM, EXPERT, LAYER, OTHER))


def sort(files: Collection[str], prefix: str) -> Found:
    """Sort the files below ``prefix`` by their names."""
    found = Found()
    for path in files:
        name = path.removeprefix(prefix) if path.startswith(prefix) else "/"
        if is_ := MODEL.fullmatch(name):
            found.model[None if is_[1] is None else int(is_[1]), int(is_[2])] = path
        elif is_ := OPTIM.fullmatch(name):
            found.optim[int(is_[2]), int(is_[3])] = path
            found.prefixes.add(is_[1])
        elif is_ := EXPERT.fullmatch(name):
            found.expert[int(is_[1]), int(is_[2]), int(is_[3])] = path
        elif is_ := LAYER.fullmatch(name):
            found.layer[is_[2] or "", int(is_[1])] = path
        elif OTHER.fullmatch(name):
            found.other.append(path)
    return found


def judge_states(folder: Folder, prefix: str, question: Question) -> Finding:
    """Judge the states below ``prefix`` ("", or a path that ends in "/")."""
    found = sort(folder.files, prefix)
    looked = judge_files(folder, found.all, replace(question, deep=False))
    if not isinstance(looked, str):
        return looked
    if len(found.prefixes) > 1:
        return Torn("it holds optimizer states of two saves: some of bf16_ and some without")
    try:
        return _judged(folder, prefix, found, question)
    except ValueError as error:
        return Torn(str(error))


def _judged(folder: Folder, prefix: str, found: Found, question: Question) -> Finding:
    if not found.model:
        return _without_model_states(folder, prefix, found, question)
    heads = {
        key: states.head(path, contents(folder, path, question.give_up))
        for key, path in sorted(found.model.items(), key=lambda item: item[1])
        if question.deep or path == min(found.model.values())
    }
    head = next(iter(heads.values()))
    if wrong := states.differ(heads.values()):
        return Torn(wrong)
    tag = TAG.fullmatch(folder.name)
    if tag and head.step is not None and head.step != int(tag[1]):
        return Torn(f"it is named {folder.name!a}, but its model states are of step {head.step}")
    if head.dp is None:
        return Unknown("its model states do not say how many ranks wrote it (dp_world_size)")
    need = _needed(prefix, found, head)
    if extra := [path for kind in (found.model, found.optim) for path in kind.values() if path not in need]:
        return Torn(
            f"{min(extra)!a} is of no rank: {head.dp} data-parallel by {head.mp} model-parallel ranks wrote this"
        )
    lacking = tuple(sorted(need - folder.files.keys()))
    here = _ranks_here(found, head, lacking) if question.part and lacking else ()
    if lacking and not here:
        return Torn(f"{len(lacking)} of {len(need)} files are missing, {lacking[0]!a} first", lacking)
    if question.deep and (wrong := _contradiction(folder, found, heads, question, bool(here))):
        return Torn(wrong)
    how = judge_files(folder, found.all, question)
    if not isinstance(how, str):
        return how
    world = head.dp * head.mp
    if here and question.deep and (wrong := saved_as_another(folder, found.all)):
        return Torn(wrong)
    if here:  # use_node_local_storage
        return Whole(f"{how}, what {len(here)} of {world} ranks write", step=head.step, world=world, ranks=here)
    ranks = f"{head.dp} data-parallel by {head.mp} model-parallel ranks"
    return Whole(f"{how}, all that {ranks} write", step=head.step, world=world)


def _ranks_here(found: Found, head: states.Head, lacking: Collection[str]) -> tuple[int, ...]:
    """Return whose files are here, where all that is missing are other ranks' own; () where that cannot be told.

    A rank's number is its data-parallel one only where nothing else shares the ranks out.
    """
    if head.mp != 1 or head.experts or head.is_pipeline or found.layer or found.expert or found.other:
        return ()
    gone: set[int] = set()
    for path in lacking:
        name = path.rpartition("/")[2]
        optim, model = OPTIM.fullmatch(name), MODEL.fullmatch(name)
        number = optim[2] if optim else model[1] if model else None
        if number is None:  # model states of all ranks: every node has its own, if it has any
            return ()
        gone.add(int(number))
    return tuple(rank for rank in range(head.dp or 0) if rank not in gone)


def _needed(prefix: str, found: Found, head: states.Head) -> set[str]:
    """Return the paths of all files that a save by so many ranks leaves."""
    zero3 = any(dp is not None for dp, _ in found.model)
    ranks = [(dp, mp) for dp in range(head.dp or 1) for mp in range(head.mp)]
    names = {f"zero_pp_rank_{dp}_mp_rank_{mp:02d}" if zero3 else f"mp_rank_{mp:02d}" for dp, mp in ranks}
    need = {f"{prefix}{name}_model_states.pt" for name in names}
    if found.optim or head.is_zero:
        start = next(iter(found.prefixes), "bf16_" if head.is_bf16 else "")
        need |= {f"{prefix}{start}zero_pp_rank_{dp}_mp_rank_{mp:02d}_optim_states.pt" for dp, mp in ranks}
    for layer, experts in enumerate(head.experts):
        for mp in {mp for *_, mp in found.expert} or {0}:
            need |= {f"{prefix}layer_{layer}_expert_{n}_mp_rank_{mp:02d}_model_states.pt" for n in range(experts)}
    numbers = {number for _, number in found.layer}  # a layer without state leaves no file, and so a hole
    for rank in {rank for rank, _ in found.layer}:
        need |= {f"{prefix}layer_{number:02d}{rank}-model_states.pt" for number in numbers}
    if head.is_pipeline and not found.layer:
        need.add(f"{prefix}layer_00-model_states.pt")
    return need


def _without_model_states(folder: Folder, prefix: str, found: Found, question: Question) -> Torn:
    """Name what is missing beside optimizer states: with storage local to nodes, another node has it."""
    lacking = {f"{prefix}mp_rank_{mp:02d}_model_states.pt" for _, mp in found.optim or {(0, 0): ""}}
    if found.optim:
        count = states.optim(folder, min(found.optim.values()), question).partitions
        start = next(iter(found.prefixes))
        mps = {mp for _, mp in found.optim}
        lacking |= {
            f"{prefix}{start}zero_pp_rank_{dp}_mp_rank_{mp:02d}_optim_states.pt"
            for dp in range(max(count, default=0))
            for mp in mps
        } - folder.files.keys()
    return Torn(f"its model states are missing, {min(lacking)!a} first", tuple(sorted(lacking)))


def _contradiction(
    folder: Folder, found: Found, heads: dict[tuple[int | None, int], states.Head], question: Question, part: bool
) -> str:
    """Say what the files say against each other, or against their names."""
    named = [(path, expert) for (_, expert, _), path in found.expert.items()]
    for path, expert in sorted([*named, *((path, None) for path in found.layer.values())]):
        if wrong := states.is_other(folder, path, expert, question):
            return wrong
    by_rank: dict[int, list[tuple[str, states.Optim]]] = {}
    for (_, mp), path in sorted(found.optim.items()):
        by_rank.setdefault(mp, []).append((path, states.optim(folder, path, question)))
    for mp, optims in by_rank.items():
        head = next((heads[at] for at in sorted(heads, key=lambda at: at[0] or 0) if at[1] == mp), None)
        if head and (wrong := states.optims_contradict(head, optims, part)):
            return wrong
    layers = sorted(found.layer.values())
    return states.layers_lack(folder, layers, list(heads.values()), question) if layers else ""
