"""δ(K) of a blanket pair whose messages come from a sample by own coins, from above.

Notation: see `sampling.cells`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from turnout.accounting.shuffling.blanket.curve import best_events
from turnout.accounting.shuffling.blanket.pair import BlanketPair
from turnout.accounting.shuffling.sampling.cells import Grain, SampledCells
from turnout.core import checks

FloatArray = np.ndarray
_SLACK = 1e-9  # relative error that a binomial probability may have
_AT_ONCE = 1 << 17  # prices, so that arrays stay small


@dataclass(frozen=True)
class SampledCurve:
    """The mean of γ·δ_N(1 + (K − 1)/γ) over N ~ Bin(n, q), γ = N/n, from above.

    Attributes:
        pair: the pair that δ_N is of.
        population: n ≥ 1.
        rate: q in (0, 1].
        grain: how finely numbers of messages are told apart.
    """

    pair: BlanketPair
    population: int
    rate: float
    grain: Grain

    def __post_init__(self) -> None:
        checks.count(population=self.population, groups=self.grain.groups)
        checks.probability(rate=self.rate)
        checks.positive(fine=self.grain.fine, lost=self.grain.lost)

    @property
    def floor(self) -> float:
        """0: no view is likelier by more than in the local worlds."""
        return 0.0

    def delta(self, k: FloatArray) -> FloatArray:
        """δ at each K ≥ 1, shape of ``k``."""
        flat = np.atleast_1d(np.asarray(k, dtype=float)).ravel()
        step = max(1, _AT_ONCE // max(self._cells.weight.size, 1))
        parts = [self._priced(flat[i : i + step]) for i in range(0, flat.size, step)]
        return np.concatenate(parts).reshape(np.shape(k))

    def slope(self, k: FloatArray) -> FloatArray:
        """Always 0: slopes serve lower curves, and this is none."""
        return np.zeros(np.shape(k))

    def _priced(self, k: FloatArray) -> FloatArray:
        cells = self._cells
        ratios = 1.0 + (k[None, :] - 1.0) / cells.rate[:, None]
        events = best_events(self.pair, cells.coins, cells.excess, ratios)
        total = cells.weight @ events.most + cells.lost
        return np.minimum(total * (1.0 + _SLACK), 1.0)

    @cached_property
    def _cells(self) -> SampledCells:
        return SampledCells.of(self.pair, self.population, self.rate, self.grain)
