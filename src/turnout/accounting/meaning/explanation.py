"""Meaning of a guarantee for one client: success of the best attacker, and a Gaussian trade-off.

`explanation_of` returns the `Explanation` of a scheme's guarantee: trade-offs, the success and
certainty of the best attacker, and a `GaussianFit`. `gaussian_fit` returns this fit, with bounds on
the smallest μ for which the scheme is at least as private as N(0, 1) against N(μ, 1), down to a
given δ. `api` and `reporting` show the explanation; this module builds on `membership` and
`profile`. docs/explanation.md describes each number and the proof of each bound.

In general no Gaussian with finite μ bounds a profile down to δ = 0, since the privacy loss of
random participation has heavier tails in the remove direction than any Gaussian. So μ is returned
together with the least δ down to which μ is valid.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.special import ndtr

from turnout.accounting.divergence.curves import Direction, PairCurve, Side
from turnout.accounting.divergence.pairs import UNIT_ROUNDOFF, GaussianPair
from turnout.accounting.guarantee import Guarantee
from turnout.accounting.meaning.membership import Certainty, TradeOff, bayes_success, certainty
from turnout.accounting.meaning.profile import Profile, profile_down_to
from turnout.core import checks
from turnout.core.arrays import FloatArray
from turnout.core.bounds import Bounds, bisected, grown
from turnout.core.errors import NumericalError
from turnout.schemes import Relation, Scheme

EVEN = 0.5
"""Prior probability of an attacker to whom both worlds are equally likely."""


@dataclass(frozen=True, eq=False)
class Explanation:
    """Meaning of a scheme's guarantee: bounds on the success of the best attacker.

    Attributes:
        guarantee: (ε, δ) of the scheme.
        priors: the attacker's prior probabilities that the client takes part, `EVEN` first.
        profile: bounds on δ(ε) in both directions.
        fit: Gaussian trade-off below the trade-off of the scheme; None if none is proved.
    """

    guarantee: Guarantee
    priors: tuple[float, ...]
    profile: Profile
    fit: GaussianFit | None

    @cached_property
    def trade_offs(self) -> dict[str, TradeOff]:
        """Trade-off curves of the scheme, one per direction name of the guarantee."""
        forward = TradeOff.of(self.profile)
        if self.guarantee.relation is Relation.REPLACE_ONE:
            return {"replace": forward}
        return {"remove": forward, "add": forward.inverse()}

    @property
    def advantage(self) -> Bounds:
        """Bounds on the largest difference of true and false positive rate over all attacks."""
        return TradeOff.of(self.profile).advantage

    def success(self, prior: float) -> Bounds:
        """Bounds on the accuracy of the best attack at a prior probability.

        Args:
            prior: prior probability that the client takes part, strictly between 0 and 1.

        Raises:
            ParameterError: the prior is out of range.
        """
        return bayes_success(self.profile, prior)

    def true_positive_rate(self, direction: str, rate: float) -> Bounds:
        """Bounds on the best attack's true positive rate at a false positive rate in [0, 1].

        Args:
            direction: name of a direction of the guarantee.
            rate: false positive rate in [0, 1].

        Raises:
            KeyError: the guarantee has no such direction.
            ParameterError: the rate is outside [0, 1].
        """
        curve = self.trade_offs[direction]
        found = curve.true_positive_rate(rate)
        # Under replace-one either world may be the first one.
        return found | curve.inverse().true_positive_rate(rate) if direction == "replace" else found

    def certainty(self, prior: float) -> Certainty:
        """Bounds on the best attacker's posterior of either world, as in `Certainty`.

        With probability at least 1 − δ the posterior is not above the upper bound, where δ is that
        of the guarantee.

        Args:
            prior: prior probability that the client takes part, strictly between 0 and 1.

        Raises:
            ParameterError: the prior is out of range.
            NumericalError: the upper bounds of the profile do not fall below δ.
        """
        return certainty(self.profile, prior, self.guarantee.delta)


def explanation_of(scheme: Scheme, guarantee: Guarantee, prior: float | None = None) -> Explanation:
    """Explanation of a scheme's guarantee for one client.

    Args:
        scheme: the whole scheme.
        guarantee: result of `price` for the scheme.
        prior: a prior probability of the attacker, used in addition to `EVEN`, strictly between 0
            and 1.

    Returns:
        An explanation whose upper bounds are never below what the best attacker reaches.

    Raises:
        ParameterError: the prior is out of range.
        UnsupportedError: windows differ by client, so that clients have different profiles.
        NumericalError: the profile cannot be certified down to the guarantee's δ.

    Source: docs/explanation.md.
    """
    priors = (EVEN,) if prior is None or prior == EVEN else (EVEN, prior)
    checks.open_unit(prior=priors[-1])
    marks = [abs(math.log((1.0 - prior) / prior)) for prior in priors]
    profile = profile_down_to(scheme, guarantee.delta, marks)
    try:
        fit = gaussian_fit(profile, guarantee.delta)
    except NumericalError:  # two neighbour bounds may prove no more at ε = 0 than δ ≤ 1
        fit = None
    return Explanation(guarantee, priors, profile, fit)


_LEAST, _MOST = 1e-12, 1e4  # range of μ
_PRECISION = 1e-9  # relative, of the search for μ
_ROUNDING = 2.0**12 * UNIT_ROUNDOFF  # relative, above that of a tangent some dozen σ out


@dataclass(frozen=True, slots=True)
class GaussianFit:
    """Gaussian trade-off that bounds a scheme's privacy down to a δ, with the smallest such μ.

    Attributes:
        mu: bounds on the smallest μ for which guarantee 1 below holds.
        delta: upper bound on the scheme's δ(ε) at every ε ≥ ``epsilon``.
        epsilon: largest ε up to which the Gaussian's profile is proved to bound the scheme's
            profile.

    Guarantees for a scheme M with profile δ_M and trade-off f, in either direction. δ_μ and G_μ are
    the profile and the trade-off of N(0, 1) against N(μ, 1), with μ = ``mu.upper``.

        1. δ_M(ε) ≤ δ_μ(ε) for every ε in [0, ``epsilon``], not only on a grid.
        2. δ_M(ε) ≤ ``delta`` for every ε ≥ ``epsilon``.
        3. f(α) ≥ G_μ(α) for every α in [``alpha_lower``, ``alpha_upper``].
        4. f(α) ≥ G_μ(α) − ``delta`` for every α.

    Proof of 1. Upper bounds U on δ_M hold at the K_i = e^{ε_i} of a grid that begins at ε = 0 and
    ends at ``epsilon``. δ_M is convex in K, so between K_i and K_{i+1} it lies below the chord c of
    U. δ_μ is convex in K too, so there it lies above both tangents at K_i and K_{i+1}, and so above
    v, the maximum of both tangents. The difference c − v is concave with one kink, where the
    tangents meet; c ≤ v in the whole cell follows from c ≤ v at the two ends and at the kink.
    `gaussian_fit` checks these three points.

    Proof of 2. U bounds δ_M at the last point, and δ_M decreases.

    Proof of 3 and 4. f(α) is the supremum over ε ≥ 0 of 1 − δ_M(ε) − e^ε·α and e^{−ε}(1 − δ_M'(ε) −
    α), where δ_M' is the other direction (`membership.TradeOff`); G_μ is the same supremum with δ_μ
    in place of δ_M and of δ_M'. By 1 and 2, δ_M ≤ δ_μ + ``delta`` for every ε ≥ 0, in both
    directions, and e^{−ε} ≤ 1, so each term of f is at least the same term of G_μ minus ``delta``,
    which proves 4. For G_μ(α) the supremum is attained at the ε with α = Φ(−ε/μ − μ/2) (first term)
    or α = Φ(ε/μ − μ/2) (second term). If that ε is at most ``epsilon``, 1 applies to it with
    nothing subtracted, which proves 3.
    """

    mu: Bounds
    delta: float
    epsilon: float

    @property
    def alpha_lower(self) -> float:
        """Smallest α at which f(α) ≥ G_μ(α) is proved (guarantee 3)."""
        return self._alpha(-1.0) * (1.0 + 1e-9)

    @property
    def alpha_upper(self) -> float:
        """Largest α at which f(α) ≥ G_μ(α) is proved (guarantee 3)."""
        return self._alpha(1.0) * (1.0 - 1e-9)

    def _alpha(self, sign: float) -> float:
        """Value α for which the supremum in the formula of G_μ(α) is attained at ``epsilon``.

        The supremum is attained in the first term (``sign`` = −1) or in the second (``sign`` = 1).
        """
        mu = self.mu.upper
        if mu == 0.0:
            return 0.0 if sign < 0 else 1.0
        return float(ndtr(sign * self.epsilon / mu - mu / 2))


def gaussian_fit(profile: Profile, delta: float) -> GaussianFit:
    """Gaussian trade-off with the smallest μ that a profile proves down to a given δ.

    The trade-off bounds the profile from ε = 0 up to the first ε of the profile with δ(ε) ≤
    ``delta``.

    Args:
        profile: bounds on δ(ε) in both directions.
        delta: δ, strictly between 0 and 1.

    Returns:
        A fit with bounds on μ: ``mu.upper`` is never below the smallest valid μ, ``mu.lower`` never
        above it. The distance between both bounds is about proportional to the square of the
        profile's grid step.

    Raises:
        ParameterError: δ is out of range.
        NumericalError: the upper bounds of the profile do not fall to δ, or no μ up to 10⁴ is
            enough.

    Source: the proof of `GaussianFit`.
    """
    # Points of the profile from ε = 0 to the first one with δ in range.
    checks.open_unit(delta=delta)
    worst = profile.worst
    low = np.flatnonzero(worst.upper <= delta)
    if not low.size:
        raise NumericalError(
            f"the privacy profile does not fall to delta = {delta:.3g} at any of its epsilons"
        )
    last = int(low[0])
    both = [
        (bounds.ratios[: last + 1], bounds.lower[: last + 1], bounds.upper[: last + 1])
        for bounds in (profile.forward, profile.backward)
    ]
    upper = _search(lambda mu: all(_dominates(mu, k, above) for k, _, above in both))[1]
    lower = _search(lambda mu: not any(_exceeded(mu, k, below) for k, below, _ in both))[0]
    return GaussianFit(
        Bounds(min(lower, upper), upper), float(worst.upper[last]), float(worst.epsilons[last])
    )


def _dominates(mu: float, ratios: FloatArray, upper: FloatArray) -> bool:
    """True if in every cell the chord of upper bounds on δ lies below the tangents of δ_μ."""
    gaussian = PairCurve(GaussianPair(1.0 / mu), Direction.REMOVE, Side.LOWER)
    values, slopes = gaussian.delta(ratios), gaussian.slope(ratios)
    if not np.all(upper <= values):
        return False
    # In each cell: the tangents at both ends meet at a kink, where chord and tangents are compared.
    width = np.diff(ratios)
    with np.errstate(divide="ignore", invalid="ignore"):
        kink = (values[1:] - values[:-1] - slopes[1:] * width) / (slopes[:-1] - slopes[1:])
    kink = np.clip(np.nan_to_num(kink), 0.0, width)
    left = values[:-1] + slopes[:-1] * kink
    right = values[1:] - slopes[1:] * (width - kink)
    # Tangents are rounded down, so that the comparison proves domination.
    tangents = np.maximum(left, right) - _ROUNDING * (values[:-1] - slopes[:-1] * kink)
    chords = upper[:-1] * (1.0 - kink / width) + upper[1:] * (kink / width)
    return bool(np.all(chords <= tangents))


def _exceeded(mu: float, ratios: FloatArray, lower: FloatArray) -> bool:
    """True if μ is too small, because δ_μ is below a profile's lower bound at some K."""
    gaussian = PairCurve(GaussianPair(1.0 / mu), Direction.REMOVE, Side.UPPER)
    return bool(np.any(lower > gaussian.delta(ratios)))


def _search(holds: Callable[[float], bool]) -> tuple[float, float]:
    """Interval around the smallest μ at which a condition is true; it is true at the upper end."""
    first = grown(holds, _LEAST, _MOST)
    if first is None:
        raise NumericalError("no Gaussian trade-off was found below the trade-off of this scheme")
    return first if first.holding == _LEAST else bisected(holds, *first, relative=_PRECISION)
