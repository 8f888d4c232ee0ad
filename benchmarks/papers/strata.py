"""Sampling of t normal scores that reach a rare event often, each with a bounded weight.

A stratum draws rows of scores and returns Y/B for each, where E[Y] is the stratum's part of δ and
0 ≤ Y ≤ B always holds. B is known, so a confidence interval needs no assumption on the weights.

Notation
    z   score, X = e^{μz − μ²/2}          K  threshold     S  average of t ratios
    θ   tilt of one score                 e  edge: scores above it are jumps
    p_c mass of a cell of scores          m_c  the end of the cell that the weight needs
    N = Σ p_c·e^{θ·m_c}

A tilted row draws cell c with probability p_c·e^{θ·m_c}/N and the score within the cell as under Q.
Its weight is N^t·e^{−θ·Σm}, which needs no density, no normalising integral and no rejection.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from scipy.optimize import fminbound
from scipy.special import ndtr, ndtri

FloatArray = np.ndarray
_LOWEST_SCORE = -9.0  # lowest score of the cells of finite width
_FIRST_STEP, _LEAST_CELLS, _MOST_CELLS = 0.02, 1 << 9, 1 << 18
_OVERSHOOT = 0.1  # part of the exponent that the cells' width may cost in total
_TRIED_EDGES = 16


class Stratum(Protocol):
    """Part of the event, sampled so that weight times integrand is bounded."""

    @property
    def log_bound(self) -> float:
        """Ln B, the logarithm of the bound on weight times integrand."""
        ...

    def values(self, generator: np.random.Generator, rows: int) -> FloatArray:
        """Y/B of independent rows, shape (rows,)."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class TiltedStratum:
    """Stratum of scores within the edges, tilted towards the threshold.

    Attributes:
        mu: μ.
        window: t.
        threshold: K.
        edges: scores that bound the cells, shape (cells + 1,). Scores outside the edges are not
            part of the stratum.
        theta: θ, positive towards large averages (remove), negative towards small ones (add).
    """

    mu: float
    window: int
    threshold: float
    edges: FloatArray
    theta: float

    @property
    def ends(self) -> FloatArray:
        """End m_c of each cell: at least the ratio in the cell if θ > 0, at most if θ < 0."""
        return ratios(self.mu, self.edges[1:] if self.theta > 0 else self.edges[:-1])

    @property
    def log_norm(self) -> float:
        """Ln N, the logarithm of the normalisation of a score."""
        return self._chances()[1]

    @property
    def log_bound(self) -> float:
        """Ln B, from Σm on the known side of t·K (of t/K for the add direction)."""
        pull = abs(self.theta) * self.window
        if self.theta > 0:
            # (s − K)·e^{−θt(s − K)} is largest at 1/(θt) or at the largest average.
            reach = min(1 / pull, float(self.ends[-1]) - self.threshold)
            scale, exponent = reach, self.log_norm - self.theta * self.threshold
        else:
            reach = min(1 / pull, 1 / self.threshold)
            scale, exponent = self.threshold * reach, self.log_norm - self.theta / self.threshold
        if scale <= 0:
            return -math.inf
        return self.window * exponent + math.log(scale) - pull * reach

    def values(self, generator: np.random.Generator, rows: int) -> FloatArray:
        """Y/B of independent rows."""
        chances, log_norm = self._chances()
        cumulative = np.cumsum(chances)
        shape = (rows, self.window)
        cells = np.searchsorted(cumulative / cumulative[-1], generator.random(shape), "right")
        cells = np.minimum(cells, chances.size - 1)
        scores = _between(self.edges[cells], self.edges[cells + 1], generator.random(shape))
        average = ratios(self.mu, scores).mean(axis=1)
        if self.theta > 0:
            payoffs = np.maximum(average - self.threshold, 0.0)
        else:
            payoffs = np.maximum(1.0 - self.threshold * average, 0.0)
        log_weights = self.window * log_norm - self.theta * self.ends[cells].sum(axis=1)
        alive = payoffs > 0
        result = np.zeros(rows)
        result[alive] = payoffs[alive] * np.exp(log_weights[alive] - self.log_bound)
        return np.clip(result, 0.0, 1.0)

    def _chances(self) -> tuple[FloatArray, float]:
        logs = np.log(np.maximum(_masses(self.edges), 1e-320)) + self.theta * self.ends
        largest = float(logs.max())
        chances = np.exp(logs - largest)
        total = float(chances.sum())
        return chances / total, largest + math.log(total)


@dataclass(frozen=True, slots=True)
class JumpStratum:
    """Stratum with a score above the edge, for the remove direction: E_P[(1 − K/S)₊; a jump].

    Under P the first score has mean μ. The first score that jumps is drawn from its distribution
    above the edge, earlier scores from theirs below the edge, and later scores from theirs without
    a condition.

    Attributes:
        mu: μ.
        window: t.
        threshold: K.
        edge: e.
    """

    mu: float
    window: int
    threshold: float
    edge: float

    @property
    def log_bound(self) -> float:
        """Ln of the probability of a jump; the integrand is at most 1."""
        first, other = self._jumps()
        stays = math.log1p(-first) + (self.window - 1) * math.log1p(-other)
        return math.log(-math.expm1(stays)) if stays < 0 else -math.inf

    def values(self, generator: np.random.Generator, rows: int) -> FloatArray:
        """Y/B of independent rows: the integrand given a jump."""
        first, other = self._jumps()
        uniform = generator.random(rows) * math.exp(self.log_bound)
        later = np.maximum(uniform - first, 0.0) / (1 - first)
        index = np.where(uniform < first, 0, np.ceil(np.log1p(-later) / math.log1p(-other)))
        index = np.clip(index, 0, self.window - 1).astype(np.int64)
        before = np.arange(self.window) < index[:, None]
        limits = np.where(before, 1.0 - other, 1.0)
        limits[:, 0] = np.where(before[:, 0], 1.0 - first, 1.0)
        scores = ndtri(np.maximum(limits * generator.random(limits.shape), 1e-300))
        scores[:, 0] += self.mu
        mass = np.where(index == 0, first, other)
        jump = -ndtri(mass * np.maximum(generator.random(rows), 1e-300))
        rows_index = np.arange(rows)
        scores[rows_index, index] = np.where(index == 0, jump + self.mu, jump)
        with np.errstate(over="ignore"):
            average = ratios(self.mu, scores).mean(axis=1)
        return np.maximum(1.0 - self.threshold / average, 0.0)

    def _jumps(self) -> tuple[float, float]:
        """Probabilities that the first score (under P) and another score (under Q) jump."""
        return float(ndtr(self.mu - self.edge)), float(ndtr(-self.edge))


def remove_strata(mu: float, window: int, threshold: float) -> list[Stratum]:
    """Strata whose parts sum to E_Q[(S − K)₊], with nearly the smallest bounds."""
    # Without a jump every average is below the threshold, and the integrand is 0.
    lowest = (math.log(threshold) + mu**2 / 2) / mu
    best: tuple[float, list[Stratum]] = (math.inf, [])
    for edge in [lowest, *np.linspace(lowest, lowest + 12.0 + 2 * mu, _TRIED_EDGES)[1:]]:
        jump = JumpStratum(mu, window, threshold, float(edge))
        strata: list[Stratum] = [jump]
        total = math.exp(jump.log_bound)
        if edge > lowest:
            tilted = _best_tilted(mu, window, threshold, _edges(float(edge), _FIRST_STEP, False))
            strata.append(tilted)
            total += math.exp(min(tilted.log_bound, 700.0))
        if total < best[0]:
            best = (total, strata)
    return [_finer(stratum) for stratum in best[1]]


def add_strata(mu: float, window: int, threshold: float) -> list[Stratum]:
    """Stratum whose expectation is E_Q[(1 − K·S)₊]."""
    edges = _edges(6.0 + mu, _FIRST_STEP, True)
    return [_finer(_best_tilted(mu, window, threshold, edges, sign=-1.0))]


def ratios(mu: float, scores: FloatArray) -> FloatArray:
    """Ratio X at each score."""
    with np.errstate(over="ignore"):
        return np.exp(mu * scores - mu**2 / 2)


def _best_tilted(
    mu: float, window: int, threshold: float, edges: FloatArray, sign: float = 1.0
) -> TiltedStratum:
    """Tilted stratum with the smallest bound, which needs the fewest rows; any tilt is valid."""

    def tilted(log_theta: float) -> TiltedStratum:
        return TiltedStratum(mu, window, threshold, edges, sign * math.exp(log_theta))

    def bound(log_theta: float) -> float:
        return max(tilted(log_theta).log_bound, -1e6)

    low = -math.log(max(float(ratios(mu, edges[-2])), 1.0)) - 12.0
    return tilted(_minimizer(bound, low, 14.0))


def _finer(stratum: Stratum) -> Stratum:
    """Stratum with the same tilt and cells so narrow that their ends cost little."""
    if not isinstance(stratum, TiltedStratum) or math.isinf(stratum.log_bound):
        return stratum
    target = max(stratum.threshold, 1 / stratum.threshold)
    step = _OVERSHOOT / (abs(stratum.theta) * stratum.window * stratum.mu * target)
    upward = stratum.theta > 0
    top = float(stratum.edges[-1 if upward else -2])
    return replace(stratum, edges=_edges(top, min(step, _FIRST_STEP), not upward))


def _minimizer(function: Callable[[float], float], low: float, high: float) -> float:
    grid = np.linspace(low, high, 14)
    start = int(np.argmin([function(float(x)) for x in grid]))
    low, high = grid[max(start - 1, 0)], grid[min(start + 1, grid.size - 1)]
    return float(np.asarray(fminbound(function, float(low), float(high), xtol=1e-3)))


def _edges(top: float, step: float, unbounded: bool) -> FloatArray:
    low = min(_LOWEST_SCORE, top - 1.0)
    count = min(max(math.ceil((top - low) / step), _LEAST_CELLS), _MOST_CELLS)
    inner = np.linspace(low, top, count + 1)
    return np.concatenate([[-np.inf], inner, [np.inf] if unbounded else []])


def _masses(edges: FloatArray) -> FloatArray:
    """Probability of each cell of scores, computed from the tail without cancellation."""
    low, high = edges[:-1], edges[1:]
    return np.where(low >= 0, ndtr(-low) - ndtr(-high), ndtr(high) - ndtr(low))


def _between(low: FloatArray, high: FloatArray, uniform: FloatArray) -> FloatArray:
    """Normal scores conditioned on lying between two scores."""
    sign = np.where(low >= 0, -1.0, 1.0)
    first, last = ndtr(sign * low), ndtr(sign * high)
    return np.clip(sign * ndtri(first + (last - first) * uniform), low, high)
