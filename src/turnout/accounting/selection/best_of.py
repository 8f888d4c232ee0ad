"""ε of the best of K runs, for any law of K, from the privacy profile of one run.

docs/design/tuning.md derives it. Notation: P and Q are one run's laws in two neighbouring worlds,
x = dQ/dP; g = P(better outputs) is the *gap* of an output; φ is the generating function of K.

    δ(ε) of the best ≤ E_P[ψ(x)],  ψ(x) = sup over g of (φ'(1 − g) − e^ε φ'(T(g)) x)₊,

where T(g) is the least chance that Q gives to outputs that are not better. ψ is convex and falls,
so a chord polygon above it is a sum of (x_j − x)₊, whose means are points of the profile.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from turnout.accounting.guarantee import Guarantee
from turnout.accounting.meaning.profile import LARGEST_EPSILON, Profile, profile_down_to
from turnout.accounting.pricing import price
from turnout.accounting.selection.stopping import Stopping
from turnout.core import checks
from turnout.core.bounds import Bounds, bisected
from turnout.core.errors import NumericalError
from turnout.schemes import Relation, Scheme

FloatArray = NDArray[np.float64]
METHOD = "private selection by the profile of one run"
_GAPS = np.concatenate([[0.0], np.geomspace(1e-7, 1.0, 1200)])
_OUTWARD = 1e-10  # relative; more than `Stopping.slope` and a few products err by
_ROUNDING = 2.0**-50
_PRECISION = 1e-5  # of ε, absolute
_WELL_BELOW = 10.0  # a profile reaches δ divided by this and by the mean of K


@dataclass(frozen=True, slots=True, eq=False)
class _Direction:
    """One direction of one run: H_K(P‖Q) at K = e^ε (``there``), and H_K(Q‖P) (``back``)."""

    epsilons: FloatArray
    there: FloatArray
    back: FloatArray

    def lowest(self, gaps: FloatArray) -> FloatArray:
        """T(g), rounded down: Q's least chance of outputs that are not better, by P's gap g.

        1 − F_Q ≤ e^a (1 − F_P) + H_{e^a}(Q‖P) and F_P ≤ e^a F_Q + H_{e^a}(P‖Q), for each a.
        """
        ratios = np.exp(self.epsilons)[:, None]
        one = 1.0 - ratios * gaps - self.back[:, None]
        two = (1.0 - gaps - self.there[:, None]) / ratios
        best = np.maximum(one, two).max(axis=0) - _ROUNDING * 8.0
        return np.clip(best, 0.0, 1.0)

    def nodes(self) -> tuple[FloatArray, FloatArray]:
        """Rising x_j, and upper bounds on E_P(x_j − x)₊.

        Above 1 they follow from H_{1/K}(P‖Q) = 1 − 1/K + H_K(Q‖P)/K.
        """
        below, above = np.exp(-self.epsilons[::-1]), np.exp(self.epsilons[1:])
        means = np.concatenate([below * self.there[::-1], above - 1.0 + self.back[1:]])
        return np.concatenate([below, above]), means * (1.0 + _OUTWARD)


class _Selection:
    """The bound of one direction, as a function of ε."""

    def __init__(self, direction: _Direction, stopping: Stopping) -> None:
        self._nodes, self._means = direction.nodes()
        # In a cell of gaps the better end bounds φ'(1 − g) from above, the worse one T from below.
        lowest = direction.lowest(_GAPS[1:])
        self._tops = stopping.slope(_GAPS[:-1]) * (1.0 + _OUTWARD)
        self._floors = stopping.slope(1.0 - lowest) * (1.0 - _OUTWARD)

    def delta(self, epsilon: float) -> float:
        """An upper bound on δ at ε."""
        nodes = np.concatenate([[0.0], self._nodes])
        price = math.exp(epsilon) * self._floors[:, None] * nodes
        heights = np.maximum((self._tops[:, None] - price).max(axis=0), 0.0)
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
        never below the true δ, whatever the order is by which runs are compared, if it does not
        depend on the data but through what a run puts out.

    Args:
        profile: of one run, score included.
        stopping: the law of K, which is not released.
        epsilons: at least 0.
    """
    checks.real_array(epsilons=epsilons)
    both = _both(profile, stopping)
    return np.array([max(one.delta(float(each)) for one in both) for each in epsilons])


def selection_epsilon(profile: Profile, stopping: Stopping, delta: float) -> float:
    """Upper bound on ε of the best of K runs at δ.

    Raises:
        NumericalError: the profile does not reach down to such a δ.
    """
    checks.open_unit(delta=delta)
    both = _both(profile, stopping)

    def holds(epsilon: float) -> bool:
        return all(one.delta(epsilon) <= delta for one in both)

    if holds(0.0):
        return 0.0
    most = 4.0 * float(profile.epsilons[-1]) + 50.0
    if not holds(most):
        raise NumericalError(f"delta = {delta:.3g} lies below what a search's profile certifies")
    return bisected(holds, 0.0, most, gap=_PRECISION).holding


def selected(scheme: Scheme, stopping: Stopping, delta: float) -> Guarantee:
    """The guarantee of releasing the best of K runs of a scheme, with its score.

    The lower bound is one run's: scores may say nothing about the client who is attacked, and the
    best of K is then a run like any other.

    Raises:
        UnsupportedError: no sound analysis is known, or clients have windows of their own.
        NumericalError: nothing can be certified at such a δ.
    """
    one = price(scheme, delta)
    profile = profile_down_to(scheme, min(delta / (_WELL_BELOW * stopping.mean), 1e-2))
    upper = selection_epsilon(profile, stopping, delta)
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
    """The bounds of both directions."""
    epsilons = profile.epsilons
    assert epsilons[-1] <= LARGEST_EPSILON
    forward, backward = profile.forward.upper, profile.backward.upper
    return (
        _Selection(_Direction(epsilons, forward, backward), stopping),
        _Selection(_Direction(epsilons, backward, forward), stopping),
    )
