"""Membership inference: how well the best attacker guesses whether she took part.

Notation: π is the attacker's prior probability of P ("she took part"); after seeing the view x
with likelihood ratio X(x) = dP/dQ his odds are π/(1 − π)·X. All statements are about the best
possible attacker, who knows everything but whether she took part; real ones do worse.
"""

from __future__ import annotations

import math

import numpy as np

from turnout.accounting.delta_bounds import DeltaBounds
from turnout.accounting.pairs import UNIT_ROUNDOFF
from turnout.accounting.profile import Profile
from turnout.core import checks
from turnout.core.bounds import Bounds
from turnout.core.errors import NumericalError

_ROUNDING = 16.0 * UNIT_ROUNDOFF


def bayes_success(profile: Profile, prior: float) -> Bounds:
    """The chance that the best guess from prior and view is right (1 − Bayes risk).

    A guess that says "yes" on A is right with probability π·P(A) + (1 − π)·(1 − Q(A)) =
    1 − π + π·(P(A) − K·Q(A)) with K = (1 − π)/π. The best A gives, for π ≤ ½, exactly

        success = 1 − π + π·H_K(P‖Q),

    and for π ≥ ½, by the same with the two worlds exchanged, π + (1 − π)·H_{1/K}(Q‖P). Without
    a view it is max(π, 1 − π).

    Args:
        profile: of the scheme; sharpest if it has the point ε = |ln((1 − π)/π)|.
        prior: π, strictly between 0 and 1.

    Returns:
        Bounds on the success of the best attacker.

    Raises:
        ParameterError: a prior out of range.
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


def largest_shift(bounds: DeltaBounds, delta: float) -> float:
    """An ε that the log-likelihood ratio exceeds with probability at most δ.

    (ε, δ)-DP itself does not promise this: P(X > e^ε) may be larger than δ(ε). But for any
    ε' < ε every view with X > e^ε adds at least 1 − e^{ε' − ε} of its probability to δ(ε'), so

        P(X > e^ε) ≤ δ(ε') / (1 − e^{ε' − ε}),

    which is δ at ε = ε' − ln(1 − δ(ε')/δ). Under Q the event is rarer still, by a factor e^ε.

    Args:
        bounds: on H_K(P‖Q), or on H_K(Q‖P) for the ratio the other way round.
        delta: strictly between 0 and 1.

    Returns:
        The least ε that the profile proves; never below the true one.

    Raises:
        NumericalError: the profile does not fall below δ.
    """
    checks.open_unit(delta=delta)
    low = np.flatnonzero(bounds.upper < delta * (1.0 - 1e-9))
    if not low.size:
        raise NumericalError(f"the profile does not fall below delta = {delta:.3g}")
    shifts = bounds.epsilons[low] - np.log1p(-bounds.upper[low] / delta * (1.0 + _ROUNDING))
    return float(shifts.min()) * (1.0 + _ROUNDING)


def posterior(prior: float, shift: float) -> float:
    """The largest probability that a prior π can become: π·e^ε / (1 − π + π·e^ε), rounded up.

    Args:
        prior: strictly between 0 and 1.
        shift: ε, at least 0; from `largest_shift`, the posterior holds but for a chance of δ.

    >>> round(posterior(0.1, 1.0), 6)
    0.231969
    """
    checks.open_unit(prior=prior)
    if shift != math.inf:  # which says nothing, but is a bound
        checks.non_negative(shift=shift)
    against = (1.0 - prior) / prior * math.exp(-shift)
    return min((1.0 + _ROUNDING) / (1.0 + against), 1.0)
