"""The last bound on an update before it is quantised: whoever computed it, the device clips it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from turnout.core.errors import ParameterError

if TYPE_CHECKING:
    from turnout.service.charter import Charter

MARGIN, LARGEST_NORM = 2.0**-20, 1e30
"""As in `turnout.learning.gradients`, which needs PyTorch."""


def bounded(update: NDArray[Any], charter: Charter) -> NDArray[np.floating]:
    """The update as a charter's encoding takes it, shape ``(d,)``: clipped, but for messages.

    Raises:
        ParameterError: it is no vector of the charter's dimension.
    """
    encoding = charter.encoding
    if not charter.randomized:
        return clipped(update, encoding.dimension, encoding.clip_norm)
    return _vector(update, encoding.dimension)  # the randomizer has a norm of its own


def clipped(update: NDArray[Any], dimension: int, clip_norm: float) -> NDArray[np.float64]:
    """The update within the clip norm, float64 ``(d,)``; zeros where it is not finite.

    Guarantee: its ℓ2 norm is at most ``clip_norm``, whatever ``update`` holds.

    Raises:
        ParameterError: it is no vector of ``dimension`` real numbers.
    """
    moved = _vector(update, dimension).astype(np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        norm = float(np.sqrt(np.square(moved).sum()))
    if not norm <= LARGEST_NORM:
        return np.zeros(dimension)
    return moved if norm == 0 else moved * min(1.0, clip_norm * (1 - MARGIN) / norm)


def _vector(update: NDArray[Any], dimension: int) -> NDArray[Any]:
    """The update, if it is a vector of so many real numbers."""
    given = np.asarray(update)
    if given.shape != (dimension,) or given.dtype.kind not in "fiu":
        raise ParameterError("update", (given.dtype, given.shape), f"{dimension} real numbers")
    return given
