"""Trade-off curves: which errors somebody who tells two worlds apart cannot avoid.

A test says "the client took part" or "it did not". α is the chance of the first where it is wrong
(a false positive, under Q), f(α) the least chance of the second where it is wrong (a miss, under
P). f is convex and decreasing, and f(α) = 1 − α is chance level.

Source: Dong, Roth & Su, "Gaussian differential privacy", 2022, Proposition 2.12; here for two
directions that differ. Every test obeys P(A) − K·Q(A) ≤ H_K(P‖Q) and Q(A') − K·P(A') ≤
H_K(Q‖P), with equality for the likelihood-ratio test at K. With forward = H_K(P‖Q) and
backward = H_K(Q‖P), both at K = e^ε ≥ 1,

    f(α) = sup over ε ≥ 0 of max(1 − forward(ε) − e^ε·α, e^{−ε}(1 − backward(ε) − α), 0).

* f from below (what no attacker can beat): each ε of a grid gives two lines that lie below f,
  whatever happens between grid points, so the maximum over the grid with *upper* δ's is proved.
* f from above (what an attacker reaches): here the supremum must be over all ε, so δ's are
  replaced by a polygon below them everywhere (`DeltaBounds.polygon`). On a straight piece of
  the polygon both terms are monotone in K, so its corners are enough; beyond its last corner
  the polygon is 0 and both terms fall with K.

Exchanging forward and backward gives the trade-off of the reversed question, the inverse of f.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.special import ndtr, ndtri

from turnout.accounting.divergence.pairs import UNIT_ROUNDOFF
from turnout.accounting.meaning.delta_bounds import DeltaBounds
from turnout.accounting.meaning.profile import Profile
from turnout.core import checks
from turnout.core.bounds import Bounds
from turnout.core.errors import ParameterError

FloatArray = np.ndarray
_ROUNDING = 16.0 * UNIT_ROUNDOFF  # sums of three numbers of which the result is at most 1


@dataclass(frozen=True, eq=False)
class TradeOff:
    """Bounds on f, the least miss rate at each false positive rate α.

    Misses happen under P, false positives under Q. An α outside [0, 1] raises ParameterError.
    """

    forward: DeltaBounds
    backward: DeltaBounds

    @classmethod
    def of(cls, profile: Profile) -> TradeOff:
        """The trade-off of "the client took part; could anybody tell?" (the remove direction)."""
        return cls(profile.forward, profile.backward)

    def inverse(self) -> TradeOff:
        """The trade-off of "the client did not take part; could anybody tell?" (add)."""
        return TradeOff(self.backward, self.forward)

    def symmetric(self) -> TradeOff:
        """The largest symmetric convex function below this one and its inverse.

        The best single f for which the scheme is f-DP when either world may be the first.
        """
        worst = self.forward | self.backward
        return TradeOff(worst, worst)

    def lower(self, alpha: FloatArray) -> FloatArray:
        """A lower bound on f at each α, shape of ``alpha``; convex and decreasing."""
        alpha = _rates(alpha)
        best = _highest(
            alpha,
            (self.forward.ratios, self.forward.upper),
            (self.backward.ratios, self.backward.upper),
        )
        return np.clip(best - _ROUNDING, 0.0, 1.0 - alpha)

    def upper(self, alpha: FloatArray) -> FloatArray:
        """An upper bound on f at each α, shape of ``alpha``; convex and decreasing."""
        alpha = _rates(alpha)
        best = _highest(alpha, self.forward.polygon, self.backward.polygon)
        return np.clip(best + _ROUNDING, 0.0, 1.0 - alpha)

    def true_positive_rate(self, alpha: float) -> Bounds:
        """1 − f(α): what the best attacker finds at a false positive rate, from both sides."""
        rate = np.array([alpha])
        found = (1.0 - float(side(rate)[0]) for side in (self.upper, self.lower))
        low, high = found
        return Bounds(max(low * (1.0 - _ROUNDING), 0.0), min(high * (1.0 + _ROUNDING), 1.0))

    @cached_property
    def advantage(self) -> Bounds:
        """The largest 1 − f(α) − α: δ at ε = 0, the total variation distance."""
        ends = (self.forward, self.backward)
        return Bounds(max(float(e.lower[0]) for e in ends), min(float(e.upper[0]) for e in ends))


def gaussian_trade_off(mu: float, alpha: FloatArray) -> FloatArray:
    """G_μ(α) = Φ(Φ⁻¹(1 − α) − μ): telling N(0, 1) from N(μ, 1).

    Source: Dong, Roth & Su 2022, Definition 2.6 (equation 6). Not a bound: rounded to nearest.

    Raises:
        ParameterError: a μ below 0 or an α outside [0, 1].

    >>> float(gaussian_trade_off(0.0, np.array(0.25)))
    0.75
    """
    checks.non_negative(mu=mu)
    return ndtr(-ndtri(_rates(alpha)) - mu)


def _rates(alpha: FloatArray) -> FloatArray:
    """Checked false positive rates."""
    rates = checks.real_array(alpha=alpha)
    if not np.all((rates >= 0.0) & (rates <= 1.0)):
        raise ParameterError("alpha", alpha, "numbers in [0, 1]")
    return rates


def _highest(
    alpha: FloatArray,
    forward: tuple[FloatArray, FloatArray],
    backward: tuple[FloatArray, FloatArray],
) -> FloatArray:
    """The highest of all lines of two profiles, given as K and δ, at each α."""
    ratios, deltas = forward
    falling = 1.0 - deltas - ratios * alpha[..., None]
    ratios, deltas = backward
    flat = (1.0 - deltas - alpha[..., None]) / ratios
    return np.maximum(falling.max(axis=-1), flat.max(axis=-1))
