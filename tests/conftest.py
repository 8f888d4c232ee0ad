"""What every test may use: repeatable Hypothesis runs and the folder of real data."""

import os
from pathlib import Path

import pytest
from hypothesis import settings

settings.register_profile("turnout", derandomize=True, deadline=None)
settings.load_profile("turnout")


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The folder that TURNOUT_DATA names; without it the test is skipped."""
    folder = os.environ.get("TURNOUT_DATA")
    if not folder:
        pytest.skip("needs real data: set TURNOUT_DATA to its folder")
    return Path(folder)
