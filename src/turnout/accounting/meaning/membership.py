"""Membership inference: trade-off curves, and bounds on the guesses of the best attacker.

`TradeOff` is the trade-off curve of a profile, from below and from above, `gaussian_trade_off` that
of two Gaussians. `bayes_success`, `certainty` and `largest_shift` bound the success of the best
attacker and how sure it becomes; `scheme_certainty` is `certainty` for a scheme. `explanation` and
`reporting` use them; they build on `profile`.

**Trade-off.** A test decides "the client took part" or "it did not". α is the chance of the first
where it is wrong (a false positive, under Q), f(α) the least chance of the second where it is wrong
(a miss, under P). f is convex and decreasing, and f(α) = 1 − α is chance level.

Source: Dong, Roth & Su, "Gaussian differential privacy", 2022, Proposition 2.12; here for two
directions that differ. Every test obeys P(A) − K·Q(A) ≤ H_K(P‖Q) and Q(A') − K·P(A') ≤ H_K(Q‖P),
with equality for the likelihood-ratio test at K. With forward = H_K(P‖Q) and backward = H_K(Q‖P),
both at K = e^ε ≥ 1,

    f(α) = sup over ε ≥ 0 of max(1 − forward(ε) − e^ε·α, e^{−ε}(1 − backward(ε) − α), 0).

* f from below (what no attacker can beat): each ε of a grid gives two lines that lie below f
  everywhere, also between grid points, so the maximum over the grid with *upper* δ's is proved.
* f from above (what an attacker reaches): here the supremum must be over all ε, so δ's are
  replaced by a polygon below them everywhere (`DeltaBounds.polygon`). On a straight piece of
  the polygon both terms are monotone in K, so its corners are enough; beyond its last corner
  the polygon is 0 and both terms fall with K.

Exchanging forward and backward gives the trade-off of the reversed question, the inverse of f.

**Attackers.** π is the attacker's prior probability of P ("the client took part"); after the view x
with likelihood ratio X(x) = dP/dQ the odds are π/(1 − π)·X. All statements are about the best
possible attacker, who knows everything but whether the client took part; real ones do worse. Priors
and δ lie strictly between 0 and 1; others raise ParameterError.
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
from turnout.schemes import Relation, Scheme
from turnout.schemes.normal_form import KOf, normal_form

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
        """Trade-off for detecting that the client took part (the remove direction)."""
        return cls(profile.forward, profile.backward)

    def inverse(self) -> TradeOff:
        """Trade-off for detecting that the client did not take part (the add direction)."""
        return TradeOff(self.backward, self.forward)

    def symmetric(self) -> TradeOff:
        """Trade-off of the largest symmetric convex function below this one and its inverse.

        The best single f for which the scheme is f-DP when either world may be the first.
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
        """Bounds on 1 − f(α), the best attacker's true positive rate at a false positive rate."""
        rate = np.array([alpha])
        found = (1.0 - float(side(rate)[0]) for side in (self.upper, self.lower))
        low, high = found
        return Bounds(max(low * (1.0 - _ROUNDING), 0.0), min(high * (1.0 + _ROUNDING), 1.0))

    @cached_property
    def advantage(self) -> Bounds:
        """Bounds on the largest 1 − f(α) − α: δ at ε = 0, the total variation distance."""
        ends = (self.forward, self.backward)
        return Bounds(max(float(e.lower[0]) for e in ends), min(float(e.upper[0]) for e in ends))


def gaussian_trade_off(mu: float, alpha: FloatArray) -> FloatArray:
    """Trade-off G_μ(α) = Φ(Φ⁻¹(1 − α) − μ) of N(0, 1) against N(μ, 1), shape of ``alpha``.

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
    """Highest of all lines of two profiles, given as K and δ, at each α."""
    ratios, deltas = forward
    falling = 1.0 - deltas - ratios * alpha[..., None]
    ratios, deltas = backward
    flat = (1.0 - deltas - alpha[..., None]) / ratios
    return np.maximum(falling.max(axis=-1), flat.max(axis=-1))


_FRACTION = 5.0  # δ over the δ at which a single price is nearly as good as the whole profile
_LEAST_EPSILON = 1e-9  # a profile needs an ε above 0


def bayes_success(profile: Profile, prior: float) -> Bounds:
    """Bounds on the probability that the best guess is right (1 − Bayes risk).

    A guess of "yes" on A is right with probability π·P(A) + (1 − π)·(1 − Q(A)) =
    1 − π + π·(P(A) − K·Q(A)) with K = (1 − π)/π. The best A gives, for π ≤ ½, exactly

        success = 1 − π + π·H_K(P‖Q),

    and for π ≥ ½, by the same with the two worlds exchanged, π + (1 − π)·H_{1/K}(Q‖P). Without
    a view it is max(π, 1 − π). The bounds are sharpest if the profile has the point
    ε = |ln((1 − π)/π)|.
    """
    checks.open_unit(prior=prior)
    likely = max(prior, 1.0 - prior)
    epsilon = math.log(likely / (1.0 - likely))
    delta = (profile.forward if prior <= 0.5 else profile.backward).at(epsilon)
    # δ at an ε that is rounded: δ(K) falls at most as fast as K rises.
    slack = _ROUNDING * (1.0 + epsilon) * math.exp(epsilon)
    lower = likely + (1.0 - likely) * (delta.lower - slack)
    upper = likely + (1.0 - likely) * (delta.upper + slack)
    return Bounds(max(lower * (1 - _ROUNDING), likely), min(upper * (1 + _ROUNDING), 1.0))


@dataclass(frozen=True, slots=True)
class Certainty:
    """Bounds on the posterior of either world that is exceeded with probability at most δ.

    Attributes:
        presence: of P ("the client took part"). No attacker, at any observed part of the releases,
            has a posterior above ``upper`` with probability more than δ; one who observes only
            whether the likelihood ratio passed some threshold has one of at least ``lower``
            with probability δ. The probability is that in world P; in world Q it is smaller.
        absence: of Q, likewise, with the worlds exchanged.
    """

    presence: Bounds
    absence: Bounds

    @property
    def sides(self) -> tuple[float, float]:
        """Both upper bounds, presence first."""
        return self.presence.upper, self.absence.upper


def certainty(profile: Profile, prior: float, delta: float) -> Certainty:
    """Bounds on the best attacker's posterior of either world, but for a probability of δ.

    Raises:
        NumericalError: the profile does not fall below δ.
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
    """`certainty` of a scheme's first ``steps`` steps, by its profile or by one price.

    There is no profile of the first ``steps`` steps alone, nor where clients have windows of their
    own, and for k-subsets and replace-one each point of a profile is a costly price. Then
    δ(ε') = δ/5 at the price ε' of δ/5 is used, which holds for the worst client and for either
    world; ``upper`` is slightly larger than by the profile, and ``lower`` is the prior.

    Raises:
        UnsupportedError: no sound analysis is known for this combination.
        NumericalError: nothing can be certified below δ.
    """
    checks.open_unit(prior=prior, delta=delta)
    if steps is None and not (is_per_client(scheme) or _is_costly(scheme)):
        return certainty(profile_down_to(scheme, delta), prior, delta)
    smaller = delta / _FRACTION
    reach = np.array([0.0, max(epsilon_upper(scheme, smaller, steps), _LEAST_EPSILON)])
    bounds = DeltaBounds.of(reach, np.zeros(2), np.array([1.0, smaller]))
    return certainty(Profile(bounds, bounds, scheme.relation), prior, delta)


def _is_costly(scheme: Scheme) -> bool:
    """Whether each point of the profile is as slow as a price."""
    subsets = any(type(span.draw) is KOf for span in normal_form(scheme.participation).spans)
    return subsets or scheme.relation is Relation.REPLACE_ONE


def largest_shift(curve: TradeOff, delta: float) -> Bounds:
    """Bounds on the log-likelihood ratio that an attacker's view exceeds with probability δ.

    (ε, δ)-DP itself does not bound it: P(X > e^ε) may be larger than δ(ε). But an event A of which
    every view has X > e^ε obeys Q(A) < e^{−ε}·P(A), so that P(A) − e^{ε'}·Q(A) ≤ δ(ε') gives

        P(X > e^ε) ≤ δ(ε') / (1 − e^{ε' − ε})    for every ε' < ε.

    It is δ at ε = ε' − ln(1 − δ(ε')/δ), and the least such ε is the answer. It is ln(δ/α) with
    f(α) = 1 − δ on the trade-off curve: the ratio of true to false positives of the best test
    with δ true positives. So an attacker who observes that test's outcome alone reaches it.
    One who observes everything exceeds it less often, but not if the client's updates stop once the
    ratio is high: the tail of X in the worst pair is no bound.

    The curve is of P against Q, or its inverse for the ratio the other way round. The upper bound
    is the least ε that the profile proves, never below the true one, the lower one is reached.

    Raises:
        NumericalError: the profile does not fall below δ.
    """
    checks.open_unit(delta=delta)
    bounds = curve.forward
    low = np.flatnonzero(bounds.upper < delta * (1.0 - 1e-9))
    if not low.size:
        raise NumericalError(f"the profile does not fall below delta = {delta:.3g}")
    shifts = bounds.epsilons[low] - np.log1p(-bounds.upper[low] / delta * (1.0 + _ROUNDING))
    upper = float(shifts.min()) * (1.0 + _ROUNDING)
    # f is below 1 − δ at α where all its lines are; their corners are enough (see the header).
    (ratios, deltas), (back, back_deltas) = bounds.polygon, curve.backward.polygon
    falling = float(np.max((delta - deltas) / ratios))
    flat = float(np.max(1.0 - back_deltas - back * (1.0 - delta)))
    reached = max(falling * (1.0 + _ROUNDING), flat + _ROUNDING)
    lower = max(math.log(delta / reached) - _ROUNDING, 0.0) if reached > 0 else upper
    return Bounds(min(lower, upper), upper)


def posterior(prior: float, shift: Bounds) -> Bounds:
    """Bounds on the posterior π·e^ε / (1 − π + π·e^ε) of a prior π.

    With the ``shift`` ε ≥ 0 from `largest_shift` it holds but for a chance of δ.

    >>> round(posterior(0.1, Bounds(1.0, 1.0)).upper, 6)
    0.231969
    """
    checks.open_unit(prior=prior)
    if not isinstance(shift, Bounds) or shift.lower < 0.0:
        raise ParameterError("shift", shift, "Bounds of at least 0")
    odds_against = (1.0 - prior) / prior
    lower = (1.0 - _ROUNDING) / (1.0 + odds_against * math.exp(-shift.lower))
    upper = (1.0 + _ROUNDING) / (1.0 + odds_against * math.exp(-shift.upper))
    return Bounds(lower, min(upper, 1.0))
