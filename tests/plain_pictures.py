"""Pictures for tests of runs whose reports are written but not looked at."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from turnout.reporting import drawing


@contextmanager
def pictures_without_layout() -> Iterator[None]:
    """Every picture is drawn and written, but its panels keep their places.

    To find better ones takes half of a picture's time, and a run has nine. That pictures are laid
    out by the rules, each kind of a run's among them, is what tests/reporting/test_pictures.py
    holds; that commands write them so, tests/e2e.
    """
    laid_out = drawing.Figure

    def figure(figsize: tuple[float, float], **_: object) -> object:
        return laid_out(figsize=figsize)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(drawing, "Figure", figure)
        yield
