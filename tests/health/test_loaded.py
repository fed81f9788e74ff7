"""What was torn, the checkpoint or something else: by the file that the error names, else by the calls before it."""

from __future__ import annotations

import pytest

from remuster.health.evidence import ErrorFile, RankExit
from remuster.health.loaded import elsewhere

SITE = "/opt/env/lib/python3.11/site-packages"
STEP = "/runs/7/step-150"
TORCH = ((f"{SITE}/torch/serialization.py", "load", "return _legacy_load("),)
PICKLE = "EOFError: Ran out of input"
TRUNCATED = "_pickle.UnpicklingError: pickle data was truncated"
ZIP = "RuntimeError: PytorchStreamReader failed reading zip archive: failed finding central directory"
HEADER = "safetensors_rust.SafetensorError: Error while deserializing header: HeaderTooLarge"
Call = tuple[str, str, str]


def trace(line: str, *calls: Call) -> tuple[str, ...]:
    shown = [text for path, name, code in calls for text in (f'  File "{path}", line 7, in {name}', f"    {code}")]
    return ("Traceback (most recent call last):", *shown, line)


def told(line: str, *calls: Call, path: str = STEP) -> str:
    return elsewhere(RankExit(0, 0, 1, 1, 9.0, tail=trace(line, *calls)), line, path)


@pytest.mark.parametrize(
    "line",
    [
        f"_pickle.UnpicklingError: Failed to interpret file '{STEP}/rng.npy' as a pickle",
        f"RuntimeError: {STEP}/model.pt: unexpected EOF, expected 8 more bytes. The file might be corrupted.",
        f"OSError: Unable to load weights from pytorch checkpoint file for '{STEP}/model.bin' at '/opt/x.bin'.",
        f'OSError: Unable to load weights from pytorch checkpoint file for "{STEP}/model.bin"',
        "RuntimeError: unexpected EOF, expected 8 more bytes: '/mnt/lustre/runs/7/step-150/model.pt'",  # by a link
        "RuntimeError: unexpected EOF, expected 8 more bytes: 'out/step-150/model.pt'",
        f"OSError: Unable to load weights from pytorch checkpoint file for '{STEP}'.",
    ],
)
def test_a_file_of_the_checkpoint_is_named(line: str) -> None:
    assert told(line, ("/code/data.py", "__getitem__", "return load(path)")) == ""


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("_pickle.UnpicklingError: Failed to interpret file '/data/tokens.npy' as a pickle", "/data/tokens.npy"),
        (
            "OSError: Unable to load weights from pytorch checkpoint file for '/models/base/model.bin'",
            "/models/base/model.bin",
        ),
        ("RuntimeError: unexpected EOF, expected 8 more bytes in /data/cache/a.pt.", "/data/cache/a.pt"),
        (
            "FileNotFoundError: [Errno 2] No such file or directory: '/models/base/model-00001-of-00002.safetensors'",
            "/models/base/model-00001-of-00002.safetensors",
        ),
        ('zipfile.BadZipFile: File is not a zip file: "/data/with a space/x.npz"', "/data/with a space/x.npz"),
        ("EOFError: Ran out of input: /runs/70/step-15/x.pkl", "/runs/70/step-15/x.pkl"),
    ],
)
def test_a_file_that_lies_elsewhere_is_named(line: str, named: str) -> None:
    calls = ("/code/train.py", "load_checkpoint", "torch.load(path)")
    assert told(line, calls) == f"the error names '{named}'"


@pytest.mark.parametrize(
    "line",
    [
        f"{ZIP} at /pytorch/caffe2/serialize/inline_container.cc:132",
        f"{ZIP} (see https://pytorch.org/docs/x and ~/notes)",
        "RuntimeError: unexpected EOF, expected 8 more bytes: 'out/other/model.pt'",
        "RuntimeError: unexpected EOF, expected 8 more bytes: '/runs/7/optimizer_150.pt'",  # beside it: a part of it?
        f"{ZIP}; read 3/4 of it",
    ],
)
def test_what_is_named_does_not_tell(line: str) -> None:
    assert told(line, ("/code/train.py", "main", "start()")) == ""
    assert told(line, ("/code/data.py", "__getitem__", "return load(path)")) != ""


@pytest.mark.parametrize(
    ("line", "calls"),
    [
        pytest.param(ZIP, (("/code/train.py", "load_checkpoint", "torch.load(path)"), *TORCH), id="a function"),
        pytest.param(PICKLE, (("/code/train.py", "main", "state = torch.load(args.resume)"), *TORCH), id="its line"),
        pytest.param(
            PICKLE,
            (("/code/t.py", "load_data", "x"), ("/code/checkpointing.py", "read", "pickle.load(f)")),
            id="its file",
        ),
        pytest.param(
            ZIP,
            (
                ("/code/data.py", "main", "dcp.load(state)"),
                (f"{SITE}/torch/distributed/checkpoint/filesystem.py", "read_data", "torch.load("),
                *TORCH,
            ),
            id="DCP",
        ),
        pytest.param(
            PICKLE,
            (
                ("/code/data_module.py", "main", "trainer.train(path)"),
                (f"{SITE}/transformers/trainer.py", "_load_rng_state", "torch.load(file)"),
                *TORCH,
            ),
            id="Trainer's random state",
        ),
        pytest.param(
            TRUNCATED,
            (
                ("/code/train.py", "load_ckpt", "loader.load_state_dict(state)"),
                ("/code/dataset.py", "load_state_dict", "self.rng = pickle.loads(state)"),
            ),
            id="a data set's own state",
        ),
        pytest.param(
            "zipfile.BadZipFile: File is not a zip file",
            (
                ("/code/train.py", "restore", "arrays = np.load(path)"),
                (f"{SITE}/numpy/lib/_npyio_impl.py", "load", "ret = NpzFile(fid)"),
            ),
            id="a checkpoint of numpy's",
        ),
        pytest.param(
            ZIP,
            (
                ("/code/dataset/train.py", "train", "state = load(path)"),
                ("/code/tokenizer/io.py", "load", "return torch.load(path)"),
                *TORCH,
            ),
            id="a folder's name says nothing",
        ),
        pytest.param(ZIP, (("/code/train.py", "step", "x = torch.load(p)"), *TORCH), id="nothing tells"),
        pytest.param(PICKLE, (("/usr/lib/python3.11/dataset/pickle.py", "load_cache", "x"),), id="Python's own"),
        pytest.param(PICKLE, (), id="no calls"),
    ],
)
def test_the_checkpoint_was_read_or_nothing_tells(line: str, calls: tuple[Call, ...]) -> None:
    assert told(line, *calls) == ""


@pytest.mark.parametrize(
    ("line", "calls", "where"),
    [
        pytest.param(
            PICKLE,
            (
                ("/code/resume.py", "resume", "for batch in loader:"),
                (f"{SITE}/torch/utils/data/_utils/fetch.py", "fetch", "data = [self.dataset[i] for i in index]"),
                ("/code/sets.py", "__getitem__", "return pickle.load(f)"),
            ),
            "sets.py:__getitem__",
            id="a sample",
        ),
        pytest.param(
            PICKLE,
            (
                ("/code/resume.py", "resume", "for batch in loader:"),
                (f"{SITE}/torch/utils/data/dataloader.py", "_next_data", "data = self._fetch(index)"),
                ("/code/sets.py", "read", "return pickle.load(f)"),
            ),
            "dataloader.py:_next_data",
            id="within torch's loader",
        ),
        pytest.param(
            ZIP,
            (("/code/t.py", "main", "x"), (f"{SITE}/torch/utils/data/_utils/fetch.py", "fetch", "x"), *TORCH),
            "fetch.py:fetch",
            id="within a library's loader",
        ),
        pytest.param(PICKLE, (("/code/data.py", "read", "x"),), "data.py:read", id="a file of the program's"),
        pytest.param(
            PICKLE,
            (("/code/resume.py", "main", "resume()"), ("/code/train.py", "load_vocab", "return pickle.load(f)")),
            "train.py:load_vocab",
            id="a vocabulary",
        ),
        pytest.param(
            ZIP,
            (("/code/train.py", "main", "x = torch.load(cfg.data_cache)"), *TORCH),
            "train.py:main",
            id="torch.load of a data cache",
        ),
        pytest.param(
            HEADER,
            (("/code/train.py", "setup", "load()"), (f"{SITE}/datasets/arrow_reader.py", "_read", "x")),
            "arrow_reader.py:_read",
            id="datasets",
        ),
        pytest.param(
            PICKLE,
            (
                ("/code/train.py", "load_checkpoint", "task.prepare()"),
                (f"{SITE}/torch/_inductor/codecache.py", "_lookup_graph", "graph = pickle.loads(content)"),
            ),
            "codecache.py:_lookup_graph",
            id="a compiler's cache",
        ),
        pytest.param(
            TRUNCATED,
            (("/code/train.py", "main", "start()"), (f"{SITE}/numpy/lib/_npyio_impl.py", "load", "pickle.load(fid)")),
            "_npyio_impl.py:load",
            id="numpy",
        ),
        pytest.param(
            TRUNCATED,
            (("/code/train.py", "main", "start()"), (f"{SITE}/transformers/tokenization_utils.py", "read", "x")),
            "tokenization_utils.py:read",
            id="a tokenizer",
        ),
        pytest.param(
            PICKLE,
            (("/code/t.py", "build_train_loader", "x = load(p)"), (f"{SITE}/torch/utils/checkpoint.py", "run", "x")),
            "t.py:build_train_loader",
            id="activation checkpointing is none",
        ),
    ],
)
def test_something_else_was_read(line: str, calls: tuple[Call, ...], where: str) -> None:
    assert told(line, *calls) == f"the error was raised in {where}"


def test_the_calls_are_those_of_the_error_that_decides() -> None:
    """Of a worker's own, which torch prints below the one that it raises of it; and not of one before, or after."""
    data = ("/code/sets.py", "__getitem__", "return pickle.load(f)")
    ckpt = ("/code/train.py", "load_checkpoint", "torch.load(path)")
    before = trace("KeyError: 'a'", ckpt)
    caught = trace("EOFError: Caught EOFError in DataLoader worker process 0.", ckpt)
    worker = ("Original Traceback (most recent call last):", *trace(PICKLE, data)[1:])
    end = RankExit(0, 0, 1, 1, 9.0, tail=(*before, *caught, *worker, *trace("RuntimeError: over", ckpt)))
    assert elsewhere(end, PICKLE, STEP) == "the error was raised in sets.py:__getitem__"
    assert elsewhere(end, "KeyError: 'a'", STEP) == ""
    neutral = ("/code/t.py", "main", "start()")
    again = RankExit(0, 0, 1, 1, 9.0, tail=(*trace(PICKLE, data), *trace(PICKLE, neutral)))
    assert elsewhere(again, PICKLE, STEP) == ""
    cut = RankExit(0, 0, 1, 1, 9.0, tail=(*trace("", data)[:-1], *trace(PICKLE, neutral)))
    assert elsewhere(cut, PICKLE, STEP) == ""
    headless = RankExit(0, 0, 1, 1, 9.0, tail=(*trace("KeyError: 'a'", data), *trace(PICKLE, neutral)[1:]))
    assert elsewhere(headless, PICKLE, STEP) == ""


def test_an_error_file_and_a_ranks_prefix_are_read_too() -> None:
    data = ("/code/sets.py", "__getitem__", "return pickle.load(f)")
    prefixed = tuple(f"[rank3]: {line}" for line in trace(PICKLE, data))
    end = RankExit(0, 0, 1, 1, 9.0, tail=prefixed)
    assert elsewhere(end, prefixed[-1], STEP) == "the error was raised in sets.py:__getitem__"
    end = RankExit(0, 0, 1, 1, 9.0, error=ErrorFile("x", "\n".join(trace(PICKLE, data))))
    assert elsewhere(end, PICKLE, STEP) == "the error was raised in sets.py:__getitem__"
