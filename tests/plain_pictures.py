"""Faster pictures for tests of runs that write reports without checking the layout."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from turnout.reporting import drawing


@contextmanager
def pictures_without_layout() -> Iterator[None]:
    """Draw and write every picture with fixed places of its panels.

    Optimising the layout takes half of the time of a picture, and a run has nine pictures.
    tests/reporting/test_pictures.py checks the layout rules for every kind of picture of a run, and
    tests/e2e checks the pictures that commands write.
    """
    laid_out = drawing.Figure

    def figure(figsize: tuple[float, float], **_: object) -> object:
        return laid_out(figsize=figsize)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(drawing, "Figure", figure)
        yield
