"""Replace-one for randomizers that are ε₀-private by themselves.

The reference (another client's message, or a dummy) comes from the same randomizer, so any two
of P, P' and Q have ratios of at most a = e^{ε₀}. Then (1, X, X') lies in a cone with six
extreme rays, the vectors of 1's and a's that are not constant; a step's worst law given what
follows is an extreme point of the laws on the rays with E X = E X' = 1, of which there are five
(`extreme_laws`). For n steps, whatever each does in the light of the ones before,

    π_0(c) = (−c)₊,    π_n(c) = max over the five laws of E[π_{n−1}(c − Y)],    Y = X − K·X'

is the largest possible E[(Y_1 + … + Y_n − c)₊], exactly. It is convex, so on a grid its chords
are an upper bound. Long windows are cut into blocks of b steps: π_b is the hockey stick of a law
that lies above any b adaptive steps in convex order, and sums of blocks are one FFT. What that
loses falls as 1/b.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy.special import betainc, gammaln

from turnout.accounting.divergence.convex_order import convex_slopes
from turnout.accounting.divergence.curves import Side
from turnout.accounting.divergence.pairs import UNIT_ROUNDOFF
from turnout.accounting.divergence.work import charge
from turnout.accounting.laws.replace_one.frames import CoarseLaw, hockey_stick_frame
from turnout.accounting.laws.replace_one.grids import GridLaw
from turnout.accounting.laws.replace_one.tilting import expectation
from turnout.core.errors import NumericalError

FloatArray = np.ndarray
_UNITS_A_COUNT = 100  # of work, of two binomial tails
_STEPS_A_DEVIATION = 24  # grid points a standard deviation of one Y
_REACH = 11.0  # standard deviations of a block beyond which its price is not followed
_MOST_REACH = 40.0
_MOST_POINTS = 1 << 20
_COARSE_POINTS = 400
_ROUNDING_A_STEP = 64.0  # units of rounding in a price a step, Y's own included
_BINOMIAL_ERROR = 1e-11  # relative, of the regularised incomplete beta function
_RARE = 1e-30


@dataclass(frozen=True, slots=True, eq=False)
class ExtremeLaw:
    """A law of (X, X') on at most three of the six rays."""

    ratios: FloatArray
    others: FloatArray
    weights: FloatArray

    def values(self, k: float) -> FloatArray:
        """Y = X − K·X'."""
        return self.ratios - k * self.others


@lru_cache(maxsize=64)
def extreme_laws(epsilon0: float) -> tuple[ExtremeLaw, ...]:
    """The five extreme laws of (X, X'): three randomized responses, their like, and X = X'.

    In order: 3-ary randomized response with z, z' and the reference on three values; binary
    response with the reference on the side of z, and on that of z'; the 3-ary law with each
    value rarer under its own input; z and z' on one side.
    """
    a = math.exp(epsilon0)
    rows = (
        ([a, 1, 1 / a], [1, a, 1 / a], [1, 1, a]),
        ([1, 1], [a, 1 / a], [1, a]),
        ([a, 1 / a], [1, 1], [1, a]),
        ([1, 1 / a, a], [1 / a, 1, a], [a, a, 1]),
        ([a, 1 / a], [a, 1 / a], [1, a]),
    )
    return tuple(
        ExtremeLaw(np.array(x, float), np.array(y, float), np.array(w, float) / sum(w))
        for x, y, w in rows
    )


@dataclass(frozen=True, slots=True)
class LocalSum:
    """Y_1 + … + Y_t of ε₀-private steps, at K = e^ε, against a threshold c₀ ≥ 0."""

    epsilon0: float
    k: float
    count: int
    threshold: float


def upper_excess(total: LocalSum, longest: int, refinement: int = 0) -> float:
    """At least the largest E[(Y_1 + … + Y_t − c₀)₊]/t over adaptive ε₀-private steps.

    A block has at most ``longest`` steps; no more than that are priced exactly but for the grid,
    whose step each level of refinement halves.
    """
    if total.k >= math.exp(total.epsilon0):
        return 0.0
    blocks = -(-total.count // longest)
    length, longer = divmod(total.count, blocks)
    lattice = _Lattice.of(total, blocks, refinement)
    prices = _prices(total, lattice, (length, length + 1) if longer else (length,))
    if blocks == 1:
        return float(np.interp(total.threshold, lattice.points, prices[0])) / total.count
    parts = [
        (lattice.law(price), count)
        for price, count in zip(prices, (blocks - longer, longer), strict=False)
    ]
    frame = hockey_stick_frame(lattice.coarse(prices[0]), blocks, total.threshold)
    value = expectation(
        parts, Side.UPPER, frame, lambda z: np.maximum(z - total.threshold, 0.0), slope=1.0
    )
    caps = sum(count * float(price[-1]) for (_, count), price in zip(parts, prices, strict=True))
    return (value + caps) / total.count


@dataclass(frozen=True, slots=True)
class _Lattice:
    """The points on which a block's hockey stick is followed; 0 is one of them."""

    first: int
    size: int
    step: float

    @classmethod
    def of(cls, total: LocalSum, blocks: int, refinement: int) -> _Lattice:
        """Wide enough for one of so many blocks."""
        a, k, count = math.exp(total.epsilon0), total.k, total.count
        length = -(-count // blocks)
        variance = ((a - k) ** 2 + (k * a - 1) ** 2) / (1 + a) - (k - 1) ** 2
        deviation = math.sqrt(max(variance, 1e-12))
        score = (total.threshold + count * (k - 1)) / (math.sqrt(count) * deviation)
        reach = deviation * math.sqrt(length)
        above = (_REACH + min(score, _MOST_REACH) / math.sqrt(blocks)) * reach + (a - k)
        low = max(length * (1 - k * a), length * (1 - k) - _REACH * reach - k * a)
        high = min(length * (a - k), length * (1 - k) + above)
        step = deviation / _STEPS_A_DEVIATION / 2**refinement
        first, last = math.floor(low / step) - 1, math.ceil(max(high, 0.0) / step) + 1
        if last - first > _MOST_POINTS:
            raise NumericalError("a block's ratios reach too far for a grid")
        return cls(first, last - first + 1, step)

    @property
    def points(self) -> FloatArray:
        """All points."""
        return self.step * (self.first + np.arange(self.size))

    def law(self, prices: FloatArray) -> GridLaw:
        """The law with these prices, capped at the last point."""
        slopes = np.clip(convex_slopes(np.diff(prices)) / self.step, -1.0, 0.0)
        masses = np.diff(slopes, prepend=-1.0, append=0.0)
        return GridLaw(self.step * self.first, self.step, masses)

    def coarse(self, prices: FloatArray) -> CoarseLaw:
        """The same law on few points."""
        index = np.unique(np.linspace(0, self.size - 1, _COARSE_POINTS).astype(np.int64))
        points = self.points[index]
        slopes = np.diff(prices[index] - prices[-1]) / np.diff(points)
        masses = np.maximum(np.diff(slopes, prepend=-1.0, append=0.0), 0.0)
        return CoarseLaw(points, masses / masses.sum())


def _prices(total: LocalSum, lattice: _Lattice, lengths: tuple[int, ...]) -> list[FloatArray]:
    """Upper bounds on π_n at the lattice's points, for each n asked."""
    laws, k = extreme_laws(total.epsilon0), total.k
    values = np.concatenate([law.values(k) for law in laws])
    shifts, outcome = np.unique(values, return_inverse=True)
    weights = np.zeros((len(laws), shifts.size))
    rows = np.repeat(np.arange(len(laws)), [law.weights.size for law in laws])
    np.add.at(weights, (rows, outcome), np.concatenate([law.weights for law in laws]))
    bins = shifts / lattice.step
    whole = np.floor(bins).astype(np.int64)
    part = (bins - whole)[:, None]
    pad, size = int(np.abs(whole).max()) + 2, lattice.size
    index = (pad - whole)[:, None] + np.arange(size)[None, :]
    ramp = lattice.step * np.arange(pad, 0, -1)
    prices, results = np.maximum(-lattice.points, 0.0), []
    charge(max(lengths) * size * shifts.size)
    for n in range(1, max(lengths) + 1):
        # Left of the grid a price rises by at most 1 a unit, right of it not at all.
        padded = np.concatenate([prices[0] + ramp, prices, np.full(pad, prices[-1])])
        moved = (1.0 - part) * padded[index] + part * padded[index - 1]
        prices = np.max(weights @ moved, axis=0)
        if n in lengths:
            results.append(prices * (1.0 + _ROUNDING_A_STEP * UNIT_ROUNDOFF * n))
    return results


def response_excess(total: LocalSum, law: int, side: Side) -> float:
    """E[(Y_1 + … + Y_t − c₀)₊]/t of one extreme law in every step, from one side.

    What one randomizer really costs, so a lower bound on what the worst one does; ``law`` is an
    index of `extreme_laws`, of which the first three are randomized responses.
    """
    sign = 1.0 if side is Side.UPPER else -1.0
    one, k, count, threshold = (
        extreme_laws(total.epsilon0)[law],
        total.k,
        total.count,
        total.threshold,
    )
    order = np.argsort(-one.values(k))
    values, weights = one.values(k)[order], one.weights[order]
    if values.size == 2:
        often, chance, rounding = np.array([0]), np.array([1.0]), 0.0
    else:  # how often the middle value comes; the rest is binomial
        often, chance = _binomial(count, float(weights[1]))
        rounding = 1e-15 * (1.0 + count)  # of ln Γ, absolute, and so of a probability
    charge(_UNITS_A_COUNT * often.size)
    share = float(weights[0] / (weights[0] + weights[-1]))
    offset = often * (values[1] if values.size == 3 else 0.0) - threshold
    value, error = _two_valued(count - often, values[0], values[-1], share, offset)
    price = float(chance @ np.maximum(value + sign * error, 0.0)) * (1.0 + sign * rounding)
    lost = _RARE * count * float(values[0] - values[-1]) if side is Side.UPPER else 0.0
    return (max(price, 0.0) + lost) / count


def _binomial(count: int, share: float) -> tuple[FloatArray, FloatArray]:
    """Numbers of successes, all but a probability of `_RARE`, and their probabilities."""
    variance = count * share * (1.0 - share)
    reach = 23.5 + math.sqrt(23.5**2 + 140.0 * variance)  # Bernstein: 2e^{−70} lie beyond
    low = max(math.ceil(count * share - reach), 0)
    often = np.arange(low, min(math.floor(count * share + reach), count) + 1)
    logs = gammaln(count + 1) - gammaln(often + 1) - gammaln(count - often + 1)
    logs += often * math.log(share) + (count - often) * math.log1p(-share)
    return often, np.exp(logs)


def _two_valued(
    counts: FloatArray, high: float, low: float, share: float, offset: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """E[(B·high + (n − B)·low + offset)₊], B binomial, and a bound on its rounding."""
    jump, base = high - low, counts * low + offset
    least = np.clip(np.floor(-base / jump) + 1, 0, counts + 1)
    gain = jump * counts * share * _binomial_tail(counts - 1, least - 1, share)
    loss = base * _binomial_tail(counts, least, share)
    return gain + loss, _BINOMIAL_ERROR * (np.abs(gain) + np.abs(loss))


def _binomial_tail(counts: FloatArray, least: FloatArray, share: float) -> FloatArray:
    """P(B ≥ least)."""
    inside = (least > 0) & (least <= counts)
    a, b = np.where(inside, least, 1.0), np.where(inside, counts - least + 1, 1.0)
    return np.where(inside, betainc(a, b, share), np.where(least <= 0, 1.0, 0.0))
