"""One step under replace-one: the law of Y = X − K·X' that is worst in convex order.

Notation (docs/design/replacement.md): Q = "client absent", P and P' = "it is in this step with
record z (z')", X = dP/dQ and X' = dP'/dQ under Q, K = e^ε. For one window of t steps

    δ(K) = (p₀/t)·E_Q[(ΣY_i − c₀)₊],    c₀ = t (K − 1)(1 − p₀)/p₀,

so for a *fixed* K one step matters only through the law of the number Y, and a law that is
larger in convex order gives an upper bound, whatever the steps depend on. All laws are given by
their hockey stick π(c) = E[(Y − c)₊] = sup over events E of P(E) − K·P'(E) − c·Q(E).

* Each of P and P' against Q has the trade-off of a dominating pair: X and X' are largest
  together when they move against each other (`AntitheticStep`).
* Any two of P, P', Q have it: P and P' are no further apart than either is from Q
  (`AnyTwoStep`). The price is the best over Q for each c.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from turnout.accounting.divergence.pairs import (
    UNIT_ROUNDOFF,
    GaussianPair,
    LaplacePair,
    Pair,
    hockey_stick,
    hockey_stick_rounding,
    reverse_hockey_stick,
    reverse_hockey_stick_rounding,
)
from turnout.accounting.laws.replace_one.antithetic import (
    antithetic_event,
    antithetic_rounding,
    antithetic_share,
    antithetic_thresholds,
)
from turnout.core.bounds import bisected

FloatArray = np.ndarray
_SOLVED_THRESHOLDS = 1 << 15  # thresholds found by bisection; others are interpolated between them
_LARGEST_LOG = 690.0


@dataclass(frozen=True)
class AntitheticStep:
    """X large exactly where X' is small: the worst coupling of two ratios with one law.

    Source: for the sum of X and −K·X' the comonotone coupling is largest in convex order
    (Dhaene et al. 2002), and grows with either law. Attained by noise that is symmetric and
    log-concave (Gaussian, Laplace): z and z' pull to opposite sides with all their strength.

    Attributes:
        pair: the dominating pair of P against Q and of P' against Q.
        k: K = e^ε ≥ 1.
    """

    pair: Pair
    k: float

    @property
    def mean(self) -> float:
        """E[Y]."""
        return 1.0 - self.k

    @property
    def _ratios(self) -> tuple[float, float]:
        """Least and largest finite ratio; (0, inf) where there is none."""
        return _support(self.pair)

    @property
    def bottom(self) -> float:
        """Least X − K · largest X'."""
        low, high = self._ratios
        return low - self.k * high

    @property
    def top(self) -> float:
        """Largest X − K · least X'."""
        low, high = self._ratios
        return high - self.k * low

    @property
    def infinite(self) -> float:
        """A pair is scaled to E X = 1; the infinity mass is added by the block."""
        return 0.0

    def upper(self, c: FloatArray) -> FloatArray:
        """At least E[(Y − c)₊], shape of ``c``: any pair of thresholds gives an upper bound."""
        threshold, other = self._thresholds(c)
        value = hockey_stick(self.pair, threshold) + self.k * reverse_hockey_stick(self.pair, other)
        return value + antithetic_rounding(self.pair, self.k, threshold, other)

    def share(self, c: FloatArray) -> FloatArray:
        """Q(Y > c), nearly."""
        return antithetic_share(self.pair, *self._thresholds(c))

    def tangent(self, c: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Values at ``c`` and slopes of lines below c ↦ E[(Y − c)₊], where that is attained.

        P(E) − K·P'(E) − c·Q(E) for the event E on which X is largest and X' least.
        """
        threshold, other = self._thresholds(c)
        present, elsewhere, share = antithetic_event(self.pair, threshold, other)
        error = antithetic_rounding(self.pair, self.k, threshold, other)
        values = present - self.k * elsewhere - c * share - error
        # Where an interpolated threshold misses an atom, one of two lines that always hold.
        missed, least = ~np.isfinite(values), self.mean - c
        values = np.where(missed, np.maximum(least, 0.0), values)
        return values, np.where(missed, np.where(least > 0, -1.0, 0.0), -share)

    def _thresholds(self, c: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Thresholds of X and X', beyond a certain number interpolated."""
        if c.size <= _SOLVED_THRESHOLDS or isinstance(self.pair, GaussianPair | LaplacePair):
            return antithetic_thresholds(self.pair, self.k, c)
        nodes = c[np.linspace(0, c.size - 1, _SOLVED_THRESHOLDS).astype(np.int64)]
        gain = antithetic_thresholds(self.pair, self.k, nodes)[0] - np.maximum(nodes, 0.0)
        gain = np.interp(c, nodes, gain)
        return np.maximum(c, 0.0) + gain, (np.maximum(-c, 0.0) + gain) / self.k


@dataclass(frozen=True)
class AnyTwoStep:
    """Any two of P, P' and Q have the trade-off of one symmetric pair.

    Upper: for c ≥ 0 the worst reference is P' itself, for c < 0 it is P, so
    π(c) = H_{K+c} for c ≥ 0 and (1 − c)·H_{K/(1−c)} for c < 0, H the pair's hockey stick. One
    randomizer cannot be both, so this is an upper bound and no law that is attained.

    Attributes:
        pair: the dominating pair; where its two directions differ, the larger one counts.
        k: K = e^ε ≥ 1.
        infinity_mass: mass that P has where Q has none.
    """

    pair: Pair
    k: float
    infinity_mass: float = 0.0

    @property
    def mean(self) -> float:
        """E[Y]."""
        return 1.0 - self.k

    @property
    def _ratios(self) -> tuple[float, float]:
        low, high = _support(self.pair)
        low, high = low * (1.0 - self.infinity_mass), high * (1.0 - self.infinity_mass)
        return min(low, 1.0 / high), max(high, 1.0 / low if low > 0 else np.inf)

    @property
    def bottom(self) -> float:
        """1 − K · largest ratio."""
        return 1.0 - self.k * self._ratios[1]

    @property
    def top(self) -> float:
        """Largest ratio − K."""
        return self._ratios[1] - self.k

    @property
    def infinite(self) -> float:
        """P(X = ∞), or Q(X = 0)."""
        return max(self.infinity_mass, float(self.pair.q_below(np.array(0.0))))

    def upper(self, c: FloatArray) -> FloatArray:
        """The best over the reference at each c, rounded up."""
        scale = np.maximum(1.0 - c, 1.0)
        return scale * self._hockey_stick(self.k / scale + np.maximum(c, 0.0))

    def share(self, c: FloatArray) -> FloatArray:
        """Q(X > K + c), or Q(X' < (1 − c)/K) below 0."""
        above = self.pair.q_above(self.k + np.maximum(c, 0.0))
        return np.where(c >= 0, above, self.pair.q_below((1.0 - np.minimum(c, 0.0)) / self.k))

    def tangent(self, c: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Lines below `upper`, for grids to be laid by; they bound no attained price."""
        return self.upper(c), -self.share(c)

    def _hockey_stick(self, k: FloatArray) -> FloatArray:
        kept = 1.0 - self.infinity_mass
        above, below = k / kept, 1.0 / (k * kept)
        remove = self.infinity_mass + kept * (
            hockey_stick(self.pair, above) + hockey_stick_rounding(self.pair, above)
        )
        add = (
            reverse_hockey_stick(self.pair, below) + reverse_hockey_stick_rounding(self.pair, below)
        ) / below
        return (1.0 + 16 * UNIT_ROUNDOFF) * np.maximum(remove, add)


Step = AntitheticStep | AnyTwoStep
"""The law of Y by bounds on its hockey stick."""


@lru_cache(maxsize=64)
def _support(pair: Pair) -> tuple[float, float]:
    """Least and largest finite ratio to thirteen digits, outwards; (0, inf) where unbounded."""
    if isinstance(pair, GaussianPair):
        return 0.0, np.inf

    def edge(inside: bool) -> float:
        def beyond(log_ratio: float) -> bool:
            ratio = np.array(np.exp(log_ratio))
            return float(pair.q_above(ratio)) == 0 if inside else float(pair.q_below(ratio)) > 0

        ends = bisected(beyond, -_LARGEST_LOG, _LARGEST_LOG, halvings=64)
        return ends.holding if inside else ends.failing

    least, largest = edge(False), edge(True)
    low = 0.0 if least <= -_LARGEST_LOG + 1 else float(np.exp(least)) * (1.0 - 1e-13)
    high = np.inf if largest >= _LARGEST_LOG - 1 else float(np.exp(largest)) * (1.0 + 1e-13)
    return low, high
