"""Where to look first for an unknown: the value at which a rule of thumb meets the target.

Rule: the privacy loss of a run is about Gaussian, with the sum of its blocks' squared spreads for
its variance. Nothing here is part of a guarantee; it only says where to look.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from turnout.accounting.calibration.costs import log_gaussian_mu
from turnout.accounting.calibration.unknowns import Unknown
from turnout.accounting.decomposition import decompose
from turnout.spec import Scheme

_CLOSE = 1e-3  # to which ln value is found
_STEP = 0.05  # of ln value, over which the slope is taken
_LARGEST_JUMP = 4.0  # from a value that is about right


def guessed(
    scheme_for: Callable[[float], Scheme], unknown: Unknown, epsilon: float, delta: float
) -> Unknown:
    """The unknown with a start and a power of its own: those of the rule of thumb.

    Args:
        scheme_for: the scheme as a function of the unknown; whole numbers come as int.
        unknown: what is asked for.
        epsilon: target ε.
        delta: δ.
    """
    if not epsilon > 0 or unknown.power == 0:
        return unknown
    target = log_gaussian_mu(epsilon, delta)

    def excess(position: float) -> float:
        value = unknown.value(position)
        return _log_spread(scheme_for(int(value) if unknown.whole else value)) - target

    costly, private = (
        unknown.position(unknown.costly_limit),
        unknown.position(unknown.private_limit),
    )
    if excess(costly) <= 0 or excess(private) >= 0:
        return unknown
    while private - costly > _CLOSE:
        middle = 0.5 * (costly + private)
        costly, private = (middle, private) if excess(middle) > 0 else (costly, middle)
    fall = (excess(costly - _STEP) - excess(private + _STEP)) / (private - costly + 2 * _STEP)
    return replace(
        unknown,
        start=unknown.value(private),
        power=max(fall, 0.5 * unknown.power),
        largest_jump=_LARGEST_JUMP,
    )


def _log_spread(scheme: Scheme) -> float:
    run = decompose(scheme).present.upper
    variance = sum(count * block.spread**2 for block, count in run)
    return 0.5 * math.log(variance) if variance > 0 else -math.inf
