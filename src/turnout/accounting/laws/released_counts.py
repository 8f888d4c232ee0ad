"""The price of noisy counts of who came, released beside the sums.

Notation: σ is the noise multiplier of the sums, s the standard deviation of the noise on a count.
"""

from __future__ import annotations

import math
from dataclasses import replace

from turnout.core import checks
from turnout.core.errors import UnsupportedError
from turnout.schemes import GaussianNoise, Relation, ReleaseRule, Scheme

_ROUNDING = 1e-15  # three operations err by less; less noise costs more


def with_released_counts(scheme: Scheme, standard_deviation: float) -> Scheme:
    """The scheme that prices a run which also releases the count of every step, with noise.

    Where the client takes part, the sum moves by an update of norm at most C, under noise of σC,
    and the count by 1, under noise of s. Scaled by their noise both are one Gaussian whose
    mean moves by at most √(1/σ² + 1/s²): noise of multiplier (1/σ² + 1/s²)^(−1/2), at the same
    steps. Rounding a noisy count is postprocessing. Only under add-remove: elsewhere the count
    does not depend on the client's record, but tells in both worlds when it came.

    Args:
        scheme: aggregated releases with Gaussian noise, under add-remove.
        standard_deviation: s, in clients, positive; `math.inf` releases nothing.

    Returns:
        A scheme for `price` and the rest of accounting; its ε covers sums and counts together.

    Raises:
        ParameterError: a standard deviation out of range.
        UnsupportedError: another relation, release rule or randomizer.

    >>> from turnout.schemes import CheckIn
    >>> scheme = Scheme(GaussianNoise(3.0), CheckIn(100), Relation.ADD_REMOVE)
    >>> round(with_released_counts(scheme, 4.0).randomizer.noise_multiplier, 9)
    2.4
    """
    if standard_deviation != math.inf:
        checks.positive(standard_deviation=standard_deviation)
    if scheme.relation is not Relation.ADD_REMOVE or scheme.release is not ReleaseRule.AGGREGATED:
        raise UnsupportedError(
            "noisy counts are priced beside aggregated releases under add-remove"
        )
    if not isinstance(scheme.randomizer, GaussianNoise):
        raise UnsupportedError("noisy counts are priced beside Gaussian noise")
    sigma = scheme.randomizer.noise_multiplier
    both = sigma / math.hypot(1.0, sigma / standard_deviation)
    return replace(scheme, randomizer=GaussianNoise(both * (1.0 - _ROUNDING)))
