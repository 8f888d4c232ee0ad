"""Private selection: ε of the best of K runs, for a random K, and the noise for a target ε.

`Stopping` is the distribution of K, a table of whole-number weights. `selected_deltas` and
`selection_epsilon` bound δ and ε of the best of K runs from the privacy profile of one run;
`selected` returns the `Guarantee` of a scheme. `calibrate_selection` finds the noise multiplier of
one run with which the whole search meets its target. Tuning draws K from `Stopping` and reports the
guarantee. This module builds on `meaning.profile` and `calibration`.

**Number of runs.** K is drawn from the table of weights. So K has exactly the distribution that the
bound assumes, and K is bounded. Named families of distributions only fill the table. Notation: w_k
is the weight of K = k for k = 1 … N, and their sum is 2⁶²; φ(u) = E[u^K].

**Bound** (derived in docs/design/tuning.md). P and Q are the distributions of one run's output in
two neighbouring worlds, x = dQ/dP. The *gap* g of an output is the probability under P of better
outputs.

    δ(ε) of the best ≤ E_P[ψ(x)],  ψ(x) = sup over g of (φ'(1 − g) − e^ε φ'(T(g)) x)₊,

where T(g) is the least probability under Q of outputs that are not better. ψ is convex and falls,
so a chord polygon above ψ is a sum of terms (x_j − x)₊, whose means are points of the profile.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.special import gammaln

from turnout.accounting.calibration import calibrate_noise
from turnout.accounting.guarantee import Guarantee
from turnout.accounting.meaning.profile import LARGEST_EPSILON, Profile, profile_down_to
from turnout.accounting.pricing import price
from turnout.core import checks
from turnout.core.arrays import FloatArray
from turnout.core.bounds import Bounds, bisected
from turnout.core.errors import NumericalError, ParameterError, UnsupportedError
from turnout.randomness import Source
from turnout.schemes import Relation, Scheme

TOTAL = 2**62
"""Sum of all weights of a table."""
LARGEST_MOST = 10_000
"""Largest number of runs of any table."""
_LARGEST_SHAPE = 100.0
_CAP = 10.0  # default largest number of runs, as a multiple of the mean


@dataclass(frozen=True)
class Stopping:
    """Distribution of the number K of runs on 1 … N, with N the number of weights.

    Attributes:
        weights: w_1 … w_N, whole numbers of at least 0 that sum to 2⁶²; N ≤ 10,000.

    Raises:
        ParameterError: the weights are not 1 to 10,000 whole numbers of at least 0 with the sum
            2⁶².

    >>> Stopping.fixed(3).mean
    3.0
    >>> round(Stopping.negative_binomial(10.0).mean, 6)
    10.0
    """

    weights: tuple[int, ...]

    def __post_init__(self) -> None:
        fits = self.weights and min(self.weights) >= 0 and sum(self.weights) == TOTAL
        if not fits or len(self.weights) > LARGEST_MOST:
            expected = f"at most {LARGEST_MOST} whole numbers of at least 0 that sum to 2**62"
            raise ParameterError("weights", f"{len(self.weights)} weights", expected)

    @classmethod
    def negative_binomial(
        cls, mean: float, shape: float = 0.0, most: int | None = None
    ) -> Stopping:
        """Negative binomial distribution of K with a given mean, conditioned on 1 ≤ K ≤ ``most``.

        Source: Papernot & Steinke 2022 (papernot2022tuning), Definition 1, cut at ``most``.

        Args:
            mean: E[K], from 1 to 5,000.
            shape: η in (−1, 100]; 1 gives the geometric distribution, 0 the logarithmic
                distribution.
            most: largest K, a whole number above the mean; 10 times the mean by default.

        Raises:
            ParameterError: an argument out of its domain.
        """
        if not -1.0 < shape <= _LARGEST_SHAPE:  # NaN too
            raise ParameterError("shape", shape, f"above -1, at most {_LARGEST_SHAPE:g}")
        counts = _counts(mean, most)
        log_ratios = gammaln(counts + shape) - gammaln(counts + 1.0)
        return cls._of_mean(mean, lambda t: log_ratios + counts * t, counts)

    @classmethod
    def poisson(cls, mean: float, most: int | None = None) -> Stopping:
        """Poisson distribution of K with a given mean, conditioned on 1 ≤ K ≤ ``most``.

        Args:
            mean: E[K], from 1 to 5,000.
            most: largest K, a whole number above the mean; 10 times the mean by default.

        Raises:
            ParameterError: an argument out of its domain.
        """
        counts = _counts(mean, most)
        log_factorials = gammaln(counts + 1.0)
        return cls._of_mean(mean, lambda t: counts * t - log_factorials, counts)

    @classmethod
    def fixed(cls, runs: int) -> Stopping:
        """Constant number of runs K, from 1 to 10,000; ε is larger than with a random K.

        Raises:
            ParameterError: the number of runs is out of range.
        """
        checks.count(runs=runs)
        checks.at_most("the longest table", LARGEST_MOST, runs=runs)
        return cls((*[0] * (runs - 1), TOTAL))

    @classmethod
    def _of_mean(
        cls, mean: float, log_weights: Callable[[float], FloatArray], counts: FloatArray
    ) -> Stopping:
        """Distribution of K with a given mean, from the exponential family exp(log_weights(t))."""

        def mean_at(t: float) -> float:
            weights = _normalised(log_weights(t))
            return float(weights @ counts)

        found = bisected(lambda t: mean_at(t) >= mean, -50.0, 50.0, halvings=200)
        return cls(_whole(_normalised(log_weights(found.holding))))

    @property
    def most(self) -> int:
        """Largest number of runs, N."""
        return len(self.weights)

    @property
    def mean(self) -> float:
        """Mean of the number of runs, E[K]."""
        return float(self._chances @ np.arange(1.0, self.most + 1.0))

    @cached_property
    def _chances(self) -> FloatArray:
        """Probabilities P(K = k) for k = 1 … N, shape (N,), with a relative error of 2⁻⁵³."""
        return np.array([weight / TOTAL for weight in self.weights])

    def slope(self, gaps: FloatArray) -> FloatArray:
        """Values of φ'(1 − g) = E[K (1 − g)^{K−1}] at gaps g, with a relative error of 1e-11.

        Args:
            gaps: g in [0, 1], shape (n,).

        Returns:
            φ'(1 − g), shape (n,); all terms of the sum are positive, so rounding errors are
            relative.
        """
        powers = np.arange(self.most, dtype=float)
        with np.errstate(divide="ignore"):
            logs = np.maximum(np.log1p(-np.asarray(gaps, dtype=float)), -1e4)
        terms = (powers + 1.0) * self._chances
        return np.array([float(terms @ np.exp(powers * log)) for log in logs])

    def draw(self, source: Source) -> int:
        """Number of runs, drawn exactly from the table; the number must stay secret."""
        position = int(source.below(TOTAL, 1)[0])
        for k, weight in enumerate(self.weights, 1):
            if position < weight:
                return k
            position -= weight
        raise AssertionError  # not reached: the weights sum to the range of the draw


def _counts(mean: float, most: int | None) -> FloatArray:
    """Numbers of runs 1 … N as an array; raises a ParameterError for an invalid mean or N."""
    checks.positive(mean=mean)
    if not 1.0 <= mean <= LARGEST_MOST / 2:
        raise ParameterError("mean", mean, f"a number from 1 to {LARGEST_MOST // 2}")
    limit = min(int(np.ceil(_CAP * mean)), LARGEST_MOST) if most is None else most
    checks.count(most=limit)
    checks.at_most("the longest table", LARGEST_MOST, most=limit)
    if limit <= mean and limit > 1:
        raise ParameterError("most", limit, f"a whole number above the mean, {mean:g}")
    return np.arange(1.0, limit + 1.0)


def _normalised(log_weights: FloatArray) -> FloatArray:
    """Probabilities proportional to the exponentials of the given logarithms."""
    weights = np.exp(log_weights - log_weights.max())
    return weights / weights.sum()


def _whole(chances: FloatArray) -> tuple[int, ...]:
    """Whole-number weights near given probabilities.

    The largest weight is adjusted so that the sum is 2⁶².
    """
    weights = [int(chance * TOTAL) for chance in chances]
    weights[int(np.argmax(chances))] += TOTAL - sum(weights)
    return tuple(weights)


METHOD = "private selection by the profile of one run"
_GAPS = np.concatenate([[0.0], np.geomspace(1e-7, 1.0, 1200)])
_OUTWARD = 1e-10  # relative, above the error of `Stopping.slope` and a few products
_ROUNDING = 2.0**-50
_PRECISION = 1e-5  # absolute, of ε
_WELL_BELOW = 10.0  # the profile of one run reaches δ divided by this and by the mean of K


@dataclass(frozen=True, slots=True, eq=False)
class _Direction:
    """Upper bounds on the divergences of one run, with P as the first of the two worlds.

    Attributes:
        epsilons: increasing ε = ln K, the first one 0, shape (n,).
        there: upper bounds on H_K(P‖Q), same shape.
        back: upper bounds on H_K(Q‖P), same shape.
    """

    epsilons: FloatArray
    there: FloatArray
    back: FloatArray

    def lowest(self, gaps: FloatArray) -> FloatArray:
        """Lower bound on T(g), the least probability under Q of outputs that are not better.

        The result has the shape of the gaps, (n,).

        Let F_P and F_Q be the probabilities of outputs that are not better. Each a ≥ 0 then gives 1
        − F_Q ≤ e^a (1 − F_P) + H_{e^a}(Q‖P) and F_P ≤ e^a F_Q + H_{e^a}(P‖Q).
        """
        ratios = np.exp(self.epsilons)[:, None]
        one = 1.0 - ratios * gaps - self.back[:, None]
        two = (1.0 - gaps - self.there[:, None]) / ratios
        best = np.maximum(one, two).max(axis=0) - _ROUNDING * 8.0
        return np.clip(best, 0.0, 1.0)

    def nodes(self) -> tuple[FloatArray, FloatArray]:
        """Increasing thresholds x_j, and an upper bound on E_P[(x_j − x)₊] for each threshold.

        Both arrays have the shape (2n − 1,). For thresholds above 1 the bounds follow from
        H_{1/K}(P‖Q) = 1 − 1/K + H_K(Q‖P)/K.
        """
        below, above = np.exp(-self.epsilons[::-1]), np.exp(self.epsilons[1:])
        means = np.concatenate([below * self.there[::-1], above - 1.0 + self.back[1:]])
        return np.concatenate([below, above]), means * (1.0 + _OUTWARD)


class _Selection:
    """Upper bound on δ of the best run in one direction, as a function of ε."""

    def __init__(self, direction: _Direction, stopping: Stopping) -> None:
        self._nodes, self._means = direction.nodes()
        # In each cell of gaps φ'(1 − g) is largest at the left end and T(g) smallest at the right.
        lowest = direction.lowest(_GAPS[1:])
        self._tops = stopping.slope(_GAPS[:-1]) * (1.0 + _OUTWARD)
        self._floors = stopping.slope(1.0 - lowest) * (1.0 - _OUTWARD)

    def delta(self, epsilon: float) -> float:
        """Upper bound on δ of the best run at ε."""
        # ψ at the nodes, by the largest value over cells of gaps: an upper bound.
        nodes = np.concatenate([[0.0], self._nodes])
        cost = math.exp(epsilon) * self._floors[:, None] * nodes
        heights = np.maximum((self._tops[:, None] - cost).max(axis=0), 0.0)
        # Chords through these points: their bends are weights of (x_j − x)₊, rounded up.
        widths = np.diff(nodes)
        falls = (heights[:-1] - heights[1:]) / widths
        error = _ROUNDING * (heights[:-1] + heights[1:]) / widths
        bends = np.maximum(falls - np.append(falls[1:], 0.0), 0.0)
        bends += error + np.append(error[1:], 0.0)
        total = heights[-1] + float(bends @ self._means)
        return min(total * (1.0 + _OUTWARD), 1.0)


def selected_deltas(profile: Profile, stopping: Stopping, epsilons: FloatArray) -> FloatArray:
    """Upper bounds on δ of the best of K runs at each ε, shape of ``epsilons``.

    Guarantees:
        The bounds are never below the true δ if the comparison of runs depends on the data only
        through the outputs of the runs.

    Args:
        profile: privacy profile of one run, whose output includes its score.
        stopping: distribution of K; the value of K must not be released.
        epsilons: values of ε, at least 0, shape (n,).

    Raises:
        ParameterError: ``epsilons`` is not an array of finite numbers.

    Source: docs/design/tuning.md.
    """
    checks.real_array(epsilons=epsilons)
    both = _both(profile, stopping)
    return np.array([max(one.delta(float(each)) for one in both) for each in epsilons])


def selection_epsilon(profile: Profile, stopping: Stopping, delta: float) -> float:
    """Upper bound on ε of the best of K runs at δ.

    Args:
        profile: privacy profile of one run, whose output includes its score.
        stopping: distribution of K; the value of K must not be released.
        delta: δ of the best run, strictly between 0 and 1.

    Returns:
        ε, never below the true value, and at most 10⁻⁵ above the least ε that the profile proves.

    Raises:
        ParameterError: δ is out of range.
        NumericalError: the profile is not certified down to a δ that is small enough.

    Source: docs/design/tuning.md.
    """
    checks.open_unit(delta=delta)
    both = _both(profile, stopping)

    def holds(epsilon: float) -> bool:
        return all(one.delta(epsilon) <= delta for one in both)

    if holds(0.0):
        return 0.0
    most = 4.0 * float(profile.epsilons[-1]) + 50.0
    if not holds(most):
        raise NumericalError(
            f"delta = {delta:.3g} is too small for a certified bound on the best of several runs"
        )
    return bisected(holds, 0.0, most, gap=_PRECISION).holding


def selected(scheme: Scheme, stopping: Stopping, delta: float) -> Guarantee:
    """Guarantee for the release of the best of K runs of a scheme, with the score of this run.

    The lower bound on ε is that of one run, since scores may be independent of the attacked client;
    the best of K runs then has the distribution of one run.

    Args:
        scheme: one run, whose output includes its score.
        stopping: distribution of K; the value of K must not be released.
        delta: δ, strictly between 0 and 1.

    Returns:
        A guarantee whose upper bound on ε is never below the true value.

    Raises:
        ParameterError: δ is out of range.
        UnsupportedError: no sound analysis is known, or windows differ by client.
        NumericalError: no bound can be certified at such a δ.

    Source: docs/design/tuning.md.
    """
    # Guarantee of one run, and its profile down to well below δ.
    one = price(scheme, delta)
    profile = profile_down_to(scheme, min(delta / (_WELL_BELOW * stopping.mean), 1e-2))
    upper = selection_epsilon(profile, stopping, delta)
    # Lower bound: one run. Upper bound: the selection, in every direction.
    lower = min(one.epsilon.lower, upper)
    names = ("replace",) if scheme.relation is Relation.REPLACE_ONE else ("remove", "add")
    bounds = Bounds(lower, upper)
    return Guarantee(
        epsilon=bounds,
        delta=delta,
        directions={name: Bounds(min(one.directions[name].lower, upper), upper) for name in names},
        relation=one.relation,
        unit=one.unit,
        trust=one.trust,
        method=METHOD,
        exact=False,
    )


def _both(profile: Profile, stopping: Stopping) -> tuple[_Selection, _Selection]:
    """Upper bounds on δ of the best of K runs, as functions of ε, for both directions."""
    epsilons = profile.epsilons
    assert epsilons[-1] <= LARGEST_EPSILON
    forward, backward = profile.forward.upper, profile.backward.upper
    return (
        _Selection(_Direction(epsilons, forward, backward), stopping),
        _Selection(_Direction(epsilons, backward, forward), stopping),
    )


_CLOSE = 2e-3  # relative distance to the target at which the search ends
_MOST_PRICES = 14  # values of one run's ε that the search tries


def calibrate_selection(
    scheme_for: Callable[[float], Scheme], stopping: Stopping, epsilon: float, delta: float
) -> tuple[float, Guarantee]:
    """Noise multiplier with which the best of K runs meets a target ε, and the guarantee.

    Args:
        scheme_for: one run as a function of its noise multiplier.
        stopping: distribution of K; the value of K must not be released.
        epsilon: target ε of the best run, positive.
        delta: δ of the best run, strictly between 0 and 1.

    Returns:
        The noise multiplier, and the guarantee that `selected` returns for it. The guarantee's
        upper bound on ε is at most the target.

    Raises:
        ParameterError: ε or δ is out of range.
        UnsupportedError: no noise multiplier meets the target.
        NumericalError: no bound can be certified.

    Source: docs/design/tuning.md.
    """
    # Search the ε of one run between 0 and the target: the ε of the best is nearly linear in it.
    checks.positive(epsilon=epsilon)
    low, high, one = 0.0, epsilon, 0.5 * epsilon
    best: tuple[float, Guarantee] | None = None
    for _ in range(_MOST_PRICES):
        # Noise for this ε, and the ε of the best of K runs with it.
        noise = calibrate_noise(scheme_for, one, delta)
        guarantee = selected(scheme_for(noise), stopping, delta)
        upper = guarantee.epsilon.upper
        if upper <= epsilon:
            low, best = one, (noise, guarantee)
            if upper >= epsilon * (1.0 - _CLOSE):
                break
        else:
            high = one
        # The next ε by proportion, slightly below the target, or by halving.
        aim = one * (1.0 - 0.25 * _CLOSE) * epsilon / upper
        one = aim if low < aim < high else 0.5 * (low + high)
    if best is None:
        raise UnsupportedError(
            f"epsilon = {epsilon:g}: no noise multiplier was found with which the best of the runs "
            "meets this target"
        )
    return best
