"""The value of an unknown at which a rule of thumb meets the target: where the search begins.

Rule: the privacy loss of a run is about Gaussian, with the sum of its blocks' squared loss
deviations for its variance. Nothing here is part of a guarantee; it only says where to look.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from turnout.accounting.calibration.costs import log_gaussian_mu
from turnout.accounting.calibration.unknowns import DELTA, Unknown
from turnout.accounting.decomposition import decompose
from turnout.core.bounds import bisected
from turnout.schemes import Scheme

_CLOSE = 1e-3  # to which ln value is found
_STEP = 0.05  # of ln value, over which the slope is taken
_BELOW_THE_END = 0.1  # of ln deviation, where a target lies beyond what deviations reach
_LEAST_DELTA, _MOST_DELTA = 1e-30, 0.5  # where δ is looked for first
_LARGEST_JUMP = 4.0  # from a value that is about right


def guessed(
    scheme_for: Callable[[float], Scheme], unknown: Unknown, epsilon: float, delta: float
) -> Unknown:
    """The unknown with a start and a power of its own: those of the rule of thumb."""
    if not epsilon > 0 or unknown.power == 0:
        return unknown

    def level(position: float) -> float:
        value = unknown.value(position)
        return _log_loss_deviation(scheme_for(int(value) if unknown.whole else value))

    costly, private = map(unknown.position, (unknown.costly_limit, unknown.private_limit))
    # Spreads end at 1 for each block; beyond that the rule knows no more than where they end.
    target = min(log_gaussian_mu(epsilon, delta), level(costly) - _BELOW_THE_END)
    if not level(private) < target:
        return unknown
    costly, private = bisected(lambda x: not level(x) > target, costly, private, gap=_CLOSE)
    fall = (level(costly - _STEP) - level(private + _STEP)) / (private - costly + 2 * _STEP)
    return replace(
        unknown,
        start=unknown.value(private),
        power=max(fall, 0.5 * unknown.power),
        largest_jump=_LARGEST_JUMP,
    )


def guessed_delta(scheme: Scheme, epsilon: float) -> Unknown:
    """δ, to be looked for first where the rule of thumb meets a target ε."""
    level = _log_loss_deviation(scheme)

    def met(log_delta: float) -> bool:
        return not level - log_gaussian_mu(epsilon, math.exp(log_delta)) > 0

    found = bisected(met, math.log(_LEAST_DELTA), math.log(_MOST_DELTA), gap=_CLOSE)
    return replace(DELTA, start=math.exp(found.holding))


def _log_loss_deviation(scheme: Scheme) -> float:
    run = decompose(scheme).record_against_null.upper
    variance = sum(count * block.loss_deviation**2 for block, count in run)
    return 0.5 * math.log(variance) if variance > 0 else -math.inf
