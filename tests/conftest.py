"""Fixtures for all tests: reproducible Hypothesis runs and the folder of real data."""

import atexit
import gc
import os
import shutil
import signal
import tempfile
from collections import Counter
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest
from hypothesis import settings
from mutants import Mutate, mutation

settings.register_profile("turnout", derandomize=True, deadline=None)
settings.load_profile("turnout")

# A suite started in the background of a shell ignores Ctrl-C, and children would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)


_STATE = Path(tempfile.mkdtemp(prefix="turnout-state-"))
_OWNER = os.getpid()
_RUNS = count()


@atexit.register
def _forget_state() -> None:
    if os.getpid() == _OWNER:
        shutil.rmtree(_STATE, ignore_errors=True)


def pytest_runtest_setup() -> None:
    """Use a new folder for head files in each test, since tasks of tests have the same name."""
    os.environ["XDG_STATE_HOME"] = str(_STATE / str(next(_RUNS)))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Exclude imported and collected objects from garbage collection, which saves time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


@pytest.fixture
def mutate() -> Iterator[Mutate]:
    """Replace parts of `src` until the test ends, and check that each replacement was used."""
    with mutation() as mutate:
        yield mutate


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """Folder in TURNOUT_DATA; the test is skipped if the variable is not set."""
    folder = os.environ.get("TURNOUT_DATA")
    if not folder:
        pytest.skip("needs real data: set TURNOUT_DATA to its folder")
    return Path(folder)


def _reason(report: pytest.TestReport | pytest.CollectReport) -> str:
    """Reason why a test or a whole test file was skipped."""
    said = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    of_a_file = isinstance(report, pytest.CollectReport)
    return f"{Path(report.nodeid).name}: " * of_a_file + said.removeprefix("Skipped: ")


def _not_run(reasons: Counter[str]) -> str:
    """One line with the number of skipped tests and the reasons."""
    if not reasons:
        return "Nothing was skipped."
    parts = [f"{n} test{'s' * (n > 1)} ({reason})" for reason, n in sorted(reasons.items())]
    return f"Not run: {', '.join(parts)}."


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> Iterator[None]:
    """Print the skipped tests; on CI, fail unless only data were missing."""
    reporter = session.config.pluginmanager.getplugin("terminalreporter")
    if reporter is None:  # in a worker process; the main process reports
        return (yield)
    reasons = Counter(_reason(report) for report in reporter.stats.get("skipped", ()))
    missing = [reason for reason in reasons if "TURNOUT_DATA" not in reason]
    if missing and os.environ.get("CI") and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
    yield
    reporter.write_line(_not_run(reasons))
    return None
