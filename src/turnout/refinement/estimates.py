"""Frequencies at one privacy level, with error bars."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from turnout.core import checks
from turnout.core.errors import ParameterError
from turnout.estimation import project_simplex
from turnout.refinement.multilevel import MultiLevel


@dataclass(frozen=True, eq=False)
class LevelEstimate:
    """One analyst's estimate of the distribution of values.

    Attributes:
        epsilon: the level's stated ε: pure, of one client's message, local model.
        clients: how many sent.
        raw: unbiased frequencies, shape (size,); some may be negative.
        frequencies: `raw` projected on the simplex, which never moves away from the truth.
        standard_errors: of `raw` about the population of which the values are independent draws:
            noise and sampling together.
    """

    epsilon: float
    clients: int
    raw: NDArray[np.float64]
    frequencies: NDArray[np.float64]
    standard_errors: NDArray[np.float64]

    @property
    def guarantee(self) -> str:
        """The level in one sentence: unit, relation, trust."""
        if math.isinf(self.epsilon):
            return "no privacy: this key gives every client's value back"
        return (
            f"epsilon = {self.epsilon:g}, pure, of one client's message, replace-one, local model"
        )

    def interval(self, confidence: float = 0.95) -> NDArray[np.float64]:
        """Normal intervals, each value on its own, cut to [0, 1]; shape (2, size)."""
        checks.open_unit(confidence=confidence)
        width = float(ndtri((1 + confidence) / 2)) * self.standard_errors
        return np.clip([self.raw - width, self.raw + width], 0, 1)


def estimate(levels: MultiLevel, totals: NDArray[np.int64], level: int) -> LevelEstimate:
    """Frequencies from a histogram of messages at a level.

    Args:
        levels: the mechanism.
        totals: of `MultiLevel.totals`, of messages *at that level*, summed over clients.
        level: index into ``levels.epsilons``.
    """
    clients = int(totals.sum())
    if not clients:
        raise ParameterError("clients", clients, "at least one client")
    law = levels.levels[level]
    raw = levels.design.frequencies(totals, law)
    projected = project_simplex(raw)
    variance = levels.design.variance(projected, clients, law)
    errors = np.sqrt(np.maximum(variance, 0))
    return LevelEstimate(levels.epsilons[level], clients, raw, projected, errors)
