"""What every test may use: repeatable Hypothesis runs and the folder of real data."""

import os
import signal
from pathlib import Path

import pytest
from hypothesis import settings

settings.register_profile("turnout", derandomize=True, deadline=None)
settings.load_profile("turnout")

# A suite started in the background of a shell ignores Ctrl-C, and children would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The folder that TURNOUT_DATA names; without it the test is skipped."""
    folder = os.environ.get("TURNOUT_DATA")
    if not folder:
        pytest.skip("needs real data: set TURNOUT_DATA to its folder")
    return Path(folder)
