"""Likelihood ratios of what one client's draws and Gaussian noise release.

They are the accountant's own model, so the best that anybody can do where what runs is what was
priced; where it is not, they are a statistic like any other.

Each function takes exponents a, the log ratio of a step's release given that the client took part
in it, shape (steps of the block, trials), and gives the log of its mean over the draw, shape
(trials,).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from turnout.schemes import Relation
from turnout.schemes.normal_form import (
    Always,
    Bernoulli,
    Cohort,
    DrawTable,
    Kept,
    KOf,
    OneOf,
    OneOfOwn,
    Staggered,
)

FloatArray = NDArray[np.float64]
_LARGEST = 700.0


def exponents(
    relation: Relation, seen: FloatArray, noise_multiplier: float
) -> list[tuple[float, FloatArray]]:
    """The exponents of each update that the worlds know, with its sign.

    The log ratio of the worlds is the sum over the signs of sign times `LOG_RATIOS` of the
    exponents: under replace-one both worlds hold an update, C and −C.

    Args:
        relation: of the worlds.
        seen: what steps release of the client's coordinate, in units of C, of any shape.
        noise_multiplier: of a step.
    """
    signs = (1.0, -1.0) if relation is Relation.REPLACE_ONE else (1.0,)
    return [(sign, (sign * seen - 0.5) / noise_multiplier**2) for sign in signs]


def _always(draw: Always, a: FloatArray) -> FloatArray:
    return a[0]


def _with_chance(rate: float, a: FloatArray) -> FloatArray:
    """ln(1 − r + r·e^a)."""
    if rate == 1.0:
        return a
    if rate == 0.0:
        return np.zeros_like(a)
    # Beyond e^700 the first part is nothing beside the second.
    found = np.log1p(rate * np.expm1(np.minimum(a, _LARGEST)))
    return found + np.maximum(a - _LARGEST, 0.0)


def _bernoulli(draw: Bernoulli, a: FloatArray) -> FloatArray:
    return _with_chance(draw.rate, a[0])


def _cohort(draw: Cohort, a: FloatArray) -> FloatArray:
    return _with_chance(draw.size / draw.population, a[0])


def log_sum(a: FloatArray) -> FloatArray:
    """The log of Σ e^a over the first axis."""
    top = a.max(axis=0)
    return top + np.log(np.exp(a - top).sum(axis=0))


def _one_of(draw: OneOf, a: FloatArray) -> FloatArray:
    return _with_chance(draw.probability, log_sum(a) - np.log(len(a)))


def _k_of(draw: KOf, a: FloatArray) -> FloatArray:
    """The elementary symmetric polynomial of e^a over the number of subsets, step by step.

    Row j is after s steps the mean of e^{Σ a} over the subsets of j of them, so that no row leaves
    the floats' range: mean(j, s) = (s − j)/s · mean(j, s − 1) + j/s · e^{a_s} · mean(j − 1, s − 1).
    """
    picks, n = draw.picks, a.shape[1]
    means = np.full((picks + 1, n), -np.inf)
    means[0] = 0.0
    with np.errstate(divide="ignore"):
        for s, step in enumerate(a, start=1):
            j = np.arange(1, picks + 1)
            stays, joins = np.log(np.maximum(s - j, 0) / s), np.log(np.minimum(j, s) / s)
            kept = stays[:, None] + means[1:]
            means[1:] = np.logaddexp(kept, joins[:, None] + step + means[:-1])
    return means[picks]


def _kept(draw: Kept, a: FloatArray) -> FloatArray:
    each = a.reshape(draw.epochs, draw.slot.steps, -1).sum(axis=0)
    return _one_of(draw.slot, each)


def _staggered(draw: Staggered, a: FloatArray) -> FloatArray:
    """Of a client whose window begins with the first released slot, or is released the most."""
    return _with_chance(len(a) / draw.window, log_sum(a) - np.log(len(a)))


def _one_of_own(draw: OneOfOwn, a: FloatArray) -> FloatArray:
    """Of a client whose own steps are those of ``a``, and no others."""
    if not len(a):
        return np.zeros(a.shape[1])
    return _with_chance(draw.probability, log_sum(a) - np.log(len(a)))


LOG_RATIOS: DrawTable[Callable[[Any, FloatArray], FloatArray]] = DrawTable(
    "the likelihood ratio of a release",
    {
        Always: _always,
        Bernoulli: _bernoulli,
        Cohort: _cohort,
        OneOf: _one_of,
        KOf: _k_of,
        Kept: _kept,
        Staggered: _staggered,
        OneOfOwn: _one_of_own,
    },
)
