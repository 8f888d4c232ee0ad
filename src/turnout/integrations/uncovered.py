"""Warnings of what a fit reads off private data, or has others read, that no ε covers."""

from __future__ import annotations

import sys
import warnings

_REPEATED = tuple(
    f"sklearn.{name}"
    for name in (
        "calibration",
        "ensemble",
        "feature_selection",
        "model_selection",
        "multiclass",
        "multioutput",
        "semi_supervised",
    )
)
"""Packages of estimators that fit others several times."""


class UncoveredByEpsilonWarning(UserWarning):
    """Something that a fit read off private data and no ε covers."""


def warn_in_a_search() -> None:
    """Warns where something of scikit-learn's that fits many times calls the fit."""
    frame = sys._getframe(1)
    while frame is not None:
        if frame.f_globals.get("__name__", "").startswith(_REPEATED):
            message = (
                "every fit of a search, cross-validation or ensemble costs epsilon_ anew, and "
                "scores on held-out rows are not private: epsilon_ is that of one fit alone"
            )
            warnings.warn(message, UncoveredByEpsilonWarning, stacklevel=4)
            return
        frame = frame.f_back
