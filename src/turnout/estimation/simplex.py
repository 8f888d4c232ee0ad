"""Frequencies that are none yet made into frequencies: three ways, and what each costs."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from turnout.core.errors import ParameterError


def project_simplex(raw: ArrayLike) -> NDArray[np.float64]:
    """The nearest point (in ℓ2) with non-negative entries that sum to 1.

    One number is taken off every entry and what falls below 0 is set to 0. The simplex is convex
    and holds the truth, so the projection is never further from the truth than ``raw`` is. With
    many rare items it is far closer: the number that is taken off is about the noise of the
    largest of the many entries that only noise makes large.

    Source: Held, Wolfe, Crowder, Validation of subgradient optimization, Math. Programming 1974;
        by sorting, O(k log k). The same as Norm-Sub of Wang et al., NDSS 2020.

    Args:
        raw: finite numbers, shape (k,).

    >>> project_simplex([0.7, 0.6, -0.2]).round(6).tolist()
    [0.55, 0.45, 0.0]
    """
    array = _vector(raw)
    # A number added to all entries changes nothing; so large entries keep their last digits.
    array = array - array.max()
    descending = np.sort(array)[::-1]
    excess = (np.cumsum(descending) - 1) / np.arange(1, array.size + 1)
    shift = excess[np.flatnonzero(descending > excess)[-1]]
    out = np.maximum(array - shift, 0.0)
    return out / out.sum()


def clip_and_normalise(raw: ArrayLike) -> NDArray[np.float64]:
    """Negative entries set to 0, the others divided by their sum (all equal where none is left).

    Every item's positive noise stays in and shrinks all shares, the frequent items' most of all.
    Offered because it is common; where nearly everything is noise it can beat the projection.
    """
    array = np.maximum(_vector(raw), 0.0)
    total = array.sum()
    return array / total if total > 0 else np.full(array.size, 1 / array.size)


def normalise(raw: ArrayLike) -> NDArray[np.float64]:
    """The nearest point (in ℓ2) whose entries sum to 1; some may be negative.

    A sum over items stays unbiased, which neither of the other two ways keeps.
    """
    array = _vector(raw)
    return array + (1 - array.sum()) / array.size


def _vector(raw: ArrayLike) -> NDArray[np.float64]:
    array = np.asarray(raw, dtype=np.float64)
    if array.ndim != 1 or not array.size or not np.all(np.isfinite(array)):
        raise ParameterError("raw", array.shape, "finite numbers of shape (k,)")
    return array


POST_PROCESSING: dict[str, Callable[[ArrayLike], NDArray[np.float64]]] = {
    "raw": lambda raw: _vector(raw).copy(),
    "normalise": normalise,
    "clip": clip_and_normalise,
    "simplex": project_simplex,
}
"""Postprocessing of a raw estimate, by name. None of it touches the messages, so none costs
privacy."""
