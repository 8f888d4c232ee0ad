"""Membership inference: trade-off curves, and bounds on the guesses of the best attacker.

`TradeOff` holds bounds on the trade-off curve of a profile; `gaussian_trade_off` returns the curve
of two Gaussians. `bayes_success` bounds the success of the best attacker, `certainty` the
attacker's posterior and `largest_shift` the attacker's log-likelihood ratio; `scheme_certainty` is
`certainty` for a scheme. `explanation` and `reporting` use this module; it builds on `profile`.

**Trade-off.** A test decides "the client took part" or "the client did not". α is the false
positive rate: the probability under Q of "took part". f(α) is the least miss rate: the probability
under P of "did not". f is convex and decreasing, and f(α) = 1 − α is chance level.

Source: Dong, Roth & Su, "Gaussian differential privacy", 2022, Proposition 2.12; here extended to
two directions with different δ. Every test obeys P(A) − K·Q(A) ≤ H_K(P‖Q) and Q(A') − K·P(A') ≤
H_K(Q‖P), with equality for the likelihood-ratio test at K. With forward = H_K(P‖Q) and backward =
H_K(Q‖P), both at K = e^ε ≥ 1,

    f(α) = sup over ε ≥ 0 of max(1 − forward(ε) − e^ε·α, e^{−ε}(1 − backward(ε) − α), 0).

* Lower bound on f (no attacker has a smaller miss rate): each ε of a grid gives two lines that lie
  below f everywhere, also between grid points, so the maximum over the grid with *upper* bounds on
  δ is a lower bound.
* Upper bound on f (some attacker reaches it): the supremum must be over all ε, so δ is replaced by
  a polygon below δ everywhere (`DeltaBounds.polygon`). On a straight piece of the polygon both
  terms are monotone in K, so the corners of the polygon are enough; beyond the last corner the
  polygon is 0 and both terms fall as K grows.

Exchanging forward and backward gives the trade-off of Q against P, the inverse of f.

**Attackers.** π is the attacker's prior probability of P ("the client took part"); after observing
the releases x (the attacker's *view*), with likelihood ratio X(x) = dP/dQ, the odds are π/(1 −
π)·X. All bounds are about the best possible attacker, who knows everything except whether the
client took part; real attackers have less success. Priors and δ lie strictly between 0 and 1; other
values raise a ParameterError.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.special import ndtr, ndtri

from turnout.accounting.decomposition import is_per_client
from turnout.accounting.divergence.pairs import UNIT_ROUNDOFF
from turnout.accounting.meaning.profile import DeltaBounds, Profile, profile_down_to
from turnout.accounting.pricing import epsilon_upper
from turnout.core import checks
from turnout.core.arrays import FloatArray
from turnout.core.bounds import Bounds
from turnout.core.errors import NumericalError, ParameterError
from turnout.schemes import Relation, ReleaseRule, Scheme
from turnout.schemes.normal_form import KOf, normal_form

_ROUNDING = 16.0 * UNIT_ROUNDOFF  # error bound of a sum of three numbers of at most 1


@dataclass(frozen=True, eq=False)
class TradeOff:
    """Bounds on f, the least miss rate (under P) at each false positive rate α (under Q).

    The methods raise a ParameterError if an α is outside [0, 1].

    Attributes:
        forward: bounds on H_K(P‖Q).
        backward: bounds on H_K(Q‖P).

    Source: Dong, Roth & Su 2022 (dong2022gaussian), Proposition 2.12; see the module header.
    """

    forward: DeltaBounds
    backward: DeltaBounds

    @classmethod
    def of(cls, profile: Profile) -> TradeOff:
        """Trade-off for detecting that the client took part (the remove direction)."""
        return cls(profile.forward, profile.backward)

    def inverse(self) -> TradeOff:
        """Trade-off for detecting that the client did not take part (the add direction)."""
        return TradeOff(self.backward, self.forward)

    def symmetric(self) -> TradeOff:
        """Largest symmetric convex trade-off below both this trade-off and its inverse.

        The result is the largest f for which the scheme is f-DP if either world may be P.
        """
        worst = self.forward | self.backward
        return TradeOff(worst, worst)

    def lower(self, alpha: FloatArray) -> FloatArray:
        """Lower bound on f at each α, shape of ``alpha``; convex and decreasing."""
        alpha = _rates(alpha)
        best = _highest(
            alpha,
            (self.forward.ratios, self.forward.upper),
            (self.backward.ratios, self.backward.upper),
        )
        return np.clip(best - _ROUNDING, 0.0, 1.0 - alpha)

    def upper(self, alpha: FloatArray) -> FloatArray:
        """Upper bound on f at each α, shape of ``alpha``; convex and decreasing."""
        alpha = _rates(alpha)
        best = _highest(alpha, self.forward.polygon, self.backward.polygon)
        return np.clip(best + _ROUNDING, 0.0, 1.0 - alpha)

    def true_positive_rate(self, alpha: float) -> Bounds:
        """Bounds on 1 − f(α): true positive rate of the best attacker at false positive rate α."""
        rate = np.array([alpha])
        found = (1.0 - float(side(rate)[0]) for side in (self.upper, self.lower))
        low, high = found
        return Bounds(max(low * (1.0 - _ROUNDING), 0.0), min(high * (1.0 + _ROUNDING), 1.0))

    @cached_property
    def advantage(self) -> Bounds:
        """Bounds on the largest 1 − f(α) − α of all α: the total variation distance."""
        ends = (self.forward, self.backward)
        return Bounds(max(float(e.lower[0]) for e in ends), min(float(e.upper[0]) for e in ends))


def gaussian_trade_off(mu: float, alpha: FloatArray) -> FloatArray:
    """Trade-off G_μ(α) = Φ(Φ⁻¹(1 − α) − μ) of N(0, 1) against N(μ, 1), shape of ``alpha``.

    The values are rounded to nearest, so they are neither upper nor lower bounds.

    Args:
        mu: μ ≥ 0.
        alpha: false positive rates in [0, 1].

    Raises:
        ParameterError: μ is below 0, or an α is outside [0, 1].

    Source: Dong, Roth & Su 2022 (dong2022gaussian), Definition 2.6 (equation 6).

    >>> float(gaussian_trade_off(0.0, np.array(0.25)))
    0.75
    """
    checks.non_negative(mu=mu)
    return ndtr(-ndtri(_rates(alpha)) - mu)


def _rates(alpha: FloatArray) -> FloatArray:
    """False positive rates as an array, checked to lie in [0, 1]."""
    rates = checks.real_array(alpha=alpha)
    if not np.all((rates >= 0.0) & (rates <= 1.0)):
        raise ParameterError("alpha", alpha, "numbers in [0, 1]")
    return rates


def _highest(
    alpha: FloatArray,
    forward: tuple[FloatArray, FloatArray],
    backward: tuple[FloatArray, FloatArray],
) -> FloatArray:
    """Maximum, at each α, of the lines below f that the points (K, δ) of both directions give."""
    ratios, deltas = forward
    falling = 1.0 - deltas - ratios * alpha[..., None]
    ratios, deltas = backward
    flat = (1.0 - deltas - alpha[..., None]) / ratios
    return np.maximum(falling.max(axis=-1), flat.max(axis=-1))


_FRACTION = 5.0  # δ over the smaller δ whose single ε replaces a whole profile
_LEAST_EPSILON = 1e-9  # a profile needs an ε above 0


def bayes_success(profile: Profile, prior: float) -> Bounds:
    """Bounds on the probability that the best attacker guesses participation correctly.

    This probability is 1 − Bayes risk.

    A guess of "took part" on the event A is right with probability π·P(A) + (1 − π)·(1 − Q(A)) =
    1 − π + π·(P(A) − K·Q(A)) with K = (1 − π)/π. For π ≤ ½ the best A gives exactly

        success = 1 − π + π·H_K(P‖Q),

    and for π ≥ ½, by the same argument with the two worlds exchanged, π + (1 − π)·H_{1/K}(Q‖P).
    Without a view the probability is max(π, 1 − π).

    Args:
        profile: bounds on δ(ε); the result is sharpest if the profile has the point ε = |ln((1 −
            π)/π)|.
        prior: π, strictly between 0 and 1.

    Returns:
        Bounds: no attacker exceeds ``upper``; the best attacker reaches ``lower``.

    Raises:
        ParameterError: the prior is out of range.
    """
    checks.open_unit(prior=prior)
    likely = max(prior, 1.0 - prior)
    epsilon = math.log(likely / (1.0 - likely))
    delta = (profile.forward if prior <= 0.5 else profile.backward).at(epsilon)
    # ε is rounded: δ(K) has a slope in [−1, 0], so the error of K bounds that of δ.
    slack = _ROUNDING * (1.0 + epsilon) * math.exp(epsilon)
    lower = likely + (1.0 - likely) * (delta.lower - slack)
    upper = likely + (1.0 - likely) * (delta.upper + slack)
    return Bounds(max(lower * (1 - _ROUNDING), likely), min(upper * (1 + _ROUNDING), 1.0))


@dataclass(frozen=True, slots=True)
class Certainty:
    """Bounds on the value that the posterior of either world exceeds with probability at most δ.

    Attributes:
        presence: bounds on the posterior of P ("the client took part"). With probability at least
            1 − δ no attacker, after any part of the releases, has a posterior above ``upper``. Some
            attacker, which observes only whether the likelihood ratio exceeds some threshold, has a
            posterior of at least ``lower`` with probability δ. The probabilities are those of world
            P; in world Q these probabilities are smaller.
        absence: the same bounds on the posterior of Q, with the worlds exchanged.
    """

    presence: Bounds
    absence: Bounds

    @property
    def sides(self) -> tuple[float, float]:
        """Upper bounds on both posteriors, presence first."""
        return self.presence.upper, self.absence.upper


def certainty(profile: Profile, prior: float, delta: float) -> Certainty:
    """Bounds on the value that the best attacker's posterior exceeds with probability at most δ.

    Args:
        profile: bounds on δ(ε) in both directions.
        prior: π, strictly between 0 and 1.
        delta: δ, strictly between 0 and 1.

    Returns:
        Bounds as described at `Certainty`.

    Raises:
        ParameterError: the prior or δ is out of range.
        NumericalError: the upper bounds of the profile do not fall below δ.

    Source: `largest_shift`.
    """
    checks.open_unit(prior=prior, delta=delta)
    curve = TradeOff.of(profile)
    return Certainty(
        posterior(prior, largest_shift(curve, delta)),
        posterior(1.0 - prior, largest_shift(curve.inverse(), delta)),
    )


def scheme_certainty(
    scheme: Scheme, delta: float, prior: float = 0.5, *, steps: int | None = None
) -> Certainty:
    """Bounds of `certainty` for a scheme or its first steps, from a profile or one bound on ε.

    The profile is used for whole runs if all clients draw alike, unless each point of the profile
    takes as long to compute as one ε (k-subsets and replace-one). In all other cases a single point
    is used: δ(ε') = δ/5, where ε' is the upper bound on ε at δ/5. This point is valid for the worst
    client and for either world. In these cases ``upper`` is slightly larger than the ``upper`` of
    the whole profile, and ``lower`` is the prior.

    Args:
        scheme: the whole scheme.
        delta: δ, strictly between 0 and 1.
        prior: π, strictly between 0 and 1.
        steps: number of steps, from 0 to the scheme's; the whole run if None.

    Raises:
        ParameterError: δ, the prior or the number of steps is out of range.
        UnsupportedError: no sound analysis is known for this combination.
        NumericalError: no bound can be certified below δ.

    Source: `largest_shift`.
    """
    checks.open_unit(prior=prior, delta=delta)
    if steps is None and not (is_per_client(scheme) or _is_costly(scheme)):
        return certainty(profile_down_to(scheme, delta), prior, delta)
    smaller = delta / _FRACTION
    reach = np.array([0.0, max(epsilon_upper(scheme, smaller, steps), _LEAST_EPSILON)])
    bounds = DeltaBounds.of(reach, np.zeros(2), np.array([1.0, smaller]))
    return certainty(Profile(bounds, bounds, scheme.relation), prior, delta)


def _is_costly(scheme: Scheme) -> bool:
    """True if each point of a scheme's profile takes as long to compute as one bound on ε."""
    subsets = any(type(span.draw) is KOf for span in normal_form(scheme.participation).spans)
    zeroed = scheme.relation is Relation.ZERO_OUT and scheme.release is ReleaseRule.ONE_CLIENT
    return subsets or zeroed or scheme.relation is Relation.REPLACE_ONE


def largest_shift(curve: TradeOff, delta: float) -> Bounds:
    """Bounds on the log-likelihood ratio ln X that an attacker's view exceeds with probability δ.

    (ε, δ)-DP itself does not bound this ratio: P(X > e^ε) may be larger than δ(ε). But an event A
    whose views all have X > e^ε obeys Q(A) < e^{−ε}·P(A), so that P(A) − e^{ε'}·Q(A) ≤ δ(ε')
    gives

        P(X > e^ε) ≤ δ(ε') / (1 − e^{ε' − ε})    for every ε' < ε.

    The right side equals δ at ε = ε' − ln(1 − δ(ε')/δ); the bound is the least such ε over all ε'.
    The bound equals ln(δ/α) with f(α) = 1 − δ on the trade-off curve: the logarithm of the ratio of
    true to false positive rate of the best test whose true positive rate is δ. So an attacker that
    observes only the outcome of this test reaches the bound. In the worst pair, an attacker that
    observes all releases exceeds the bound with a smaller probability. But if the client's updates
    stop when the ratio is high, the probability may be larger; therefore the tail of X in the worst
    pair gives no bound.

    Args:
        curve: trade-off of P against Q; for bounds on ln(dQ/dP) the inverse trade-off.
        delta: δ, strictly between 0 and 1.

    Returns:
        Bounds on the log-likelihood ratio. ``upper`` is the least ε that the profile proves, never
        below the true value; some attacker reaches ``lower``.

    Raises:
        ParameterError: δ is out of range.
        NumericalError: the upper bounds of the profile do not fall below δ.

    Source: docs/explanation.md.
    """
    # Upper bound: the least ε over the points of the profile below δ.
    checks.open_unit(delta=delta)
    bounds = curve.forward
    low = np.flatnonzero(bounds.upper < delta * (1.0 - 1e-9))
    if not low.size:
        raise NumericalError(
            f"the privacy profile does not fall below delta = {delta:.3g} at any of its epsilons"
        )
    shifts = bounds.epsilons[low] - np.log1p(-bounds.upper[low] / delta * (1.0 + _ROUNDING))
    upper = float(shifts.min()) * (1.0 + _ROUNDING)
    # Lower bound: an α at which the upper bound on f is at most 1 − δ, since all its lines are; the
    # corners of the polygon are enough (see the module header).
    (ratios, deltas), (back, back_deltas) = bounds.polygon, curve.backward.polygon
    falling = float(np.max((delta - deltas) / ratios))
    flat = float(np.max(1.0 - back_deltas - back * (1.0 - delta)))
    reached = max(falling * (1.0 + _ROUNDING), flat + _ROUNDING)
    lower = max(math.log(delta / reached) - _ROUNDING, 0.0) if reached > 0 else upper
    return Bounds(min(lower, upper), upper)


def posterior(prior: float, shift: Bounds) -> Bounds:
    """Bounds on the posterior π·e^ε / (1 − π + π·e^ε) of a prior π.

    Args:
        prior: π, strictly between 0 and 1.
        shift: bounds on the log-likelihood ratio ε ≥ 0. With the bounds of `largest_shift` at δ,
            the posterior exceeds the result with probability at most δ.

    Raises:
        ParameterError: the prior is out of range, or the shift is below 0.

    >>> round(posterior(0.1, Bounds(1.0, 1.0)).upper, 6)
    0.231969
    """
    checks.open_unit(prior=prior)
    if not isinstance(shift, Bounds) or shift.lower < 0.0:
        raise ParameterError("shift", shift, "bounds of at least 0")
    odds_against = (1.0 - prior) / prior
    lower = (1.0 - _ROUNDING) / (1.0 + odds_against * math.exp(-shift.lower))
    upper = (1.0 + _ROUNDING) / (1.0 + odds_against * math.exp(-shift.upper))
    return Bounds(lower, min(upper, 1.0))
