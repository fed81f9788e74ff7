"""For all tests: in CI a skipped test is a failed one, since CI installs whatever a test may need."""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
from pathlib import Path

import pytest
from fake_nvml.driver import FakeDriver, build
from hypothesis import settings

for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
    # Under nohup, or in the background of a shell, these are ignored, and so would they be in every command under test.
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, signal.default_int_handler if number is signal.SIGINT else signal.SIG_DFL)

# Where this is set, each of the thousands of processes under test would compile all that it imports anew.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# An example takes as long as the machine lets it; each test has its timeout.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")

CI = os.environ.get("REMUSTER_CI") == "1"


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Do not print the stacks of a test that may take longer than others: it is not hanging, and the look is not safe.

    faulthandler's thread reads the frames of one that runs: a search of minutes died of it.
    """
    marked = item.get_closest_marker("timeout")
    if marked is not None and marked.args and marked.args[0] > float(item.config.getini("timeout")):
        faulthandler.cancel_dump_traceback_later()


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]):  # type: ignore[no-untyped-def]
    """Turn a skip into a failure in CI, with its reason."""
    outcome = yield
    report = outcome.get_result()
    if CI and report.skipped and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"skipped in CI: {report.longrepr}"


@pytest.fixture(scope="session")
def nvml_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a libnvidia-ml.so.1 that needs no GPU."""
    return build(tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def driver(nvml_library: Path, tmp_path: Path) -> FakeDriver:
    """A driver of eight GPUs, below the real pynvml of whoever has its ``env``."""
    return FakeDriver(nvml_library, tmp_path)
