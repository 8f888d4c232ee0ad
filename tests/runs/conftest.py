"""Fixtures of the tests of runs: reports are written but not rendered."""

from collections.abc import Iterator

import pytest
from plain_pictures import pictures_without_layout


@pytest.fixture(autouse=True, scope="module")
def plain_pictures(request: pytest.FixtureRequest) -> Iterator[None]:
    """Pictures without a layout, but for bandits, whose pictures are drawn here only."""
    if request.path.name == "test_bandit_runs.py":
        yield
        return
    with pictures_without_layout():
        yield
