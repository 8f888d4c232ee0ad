"""Guarantees: ε with δ, relation, unit and trust model; and schemes that also release counts.

`pricing.price` returns a `Guarantee`, which holds `ClientGuarantees` if windows differ by client.
`with_released_counts` returns a scheme whose ε covers the sums of a run and noisy counts of the
clients in each step. This module builds on `schemes` alone; other modules of accounting return
`Guarantee` objects.

Notation: σ is the noise multiplier of the sums, s the standard deviation of the noise on a count.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from turnout.core import checks
from turnout.core.arrays import FloatArray, IntArray
from turnout.core.bounds import Bounds
from turnout.core.errors import UnsupportedError
from turnout.schemes import GaussianNoise, PrivacyUnit, Relation, ReleaseRule, Scheme, TrustModel
from turnout.schemes.parameters import hold_members

ABSOLUTE_TOLERANCE = 1e-9
"""Distance between bounds on ε that meets every requested relative tolerance."""


@dataclass(frozen=True, eq=False)
class ClientGuarantees:
    """Upper bounds on ε per client, for a participation whose windows differ by client.

    Attributes:
        find: function that returns `epsilon_upper`, shape (clients,). A call may take seconds if
            hundreds of different window sizes occur.
        window_sizes: number of steps among which each client draws in each window; integers, shape
            (clients, windows).
    """

    find: Callable[[], FloatArray]
    window_sizes: IntArray

    @cached_property
    def epsilon_upper(self) -> FloatArray:
        """Upper bounds on ε per client, shape (clients,); 0 for a client that never takes part."""
        return self.find()


@dataclass(frozen=True, slots=True, eq=False)
class Guarantee:
    """(ε, δ) of a scheme with its relation, unit and trust model, and ε in each direction.

    Attributes:
        epsilon: proved bounds on the smallest ε at ``delta``; ``epsilon.upper`` is the privacy
            guarantee.
        delta: δ, strictly between 0 and 1.
        directions: bounds on ε of each direction ("remove", "add"), or of "replace" alone under
            replace-one, which is symmetric.
        relation: neighbouring relation under which ε holds.
        unit: unit of privacy, all data of a client or one example.
        trust: parties that a client must trust for ε to hold.
        method: short name of the analysis behind ``epsilon.upper``.
        clients: upper bounds per client if clients have different windows, else None. With
            different windows, ``epsilon`` is for the client with the largest ε.
        tolerance: relative width of ``epsilon`` that was requested.
        exact: whether finer grids would narrow ``epsilon`` to any width. If false, the analysis
            leaves a gap between lower and upper bound that no grid closes.
        cut_short: whether the budget of work ended refinement before the tolerance was met. Work is
            counted, so the budget is the same on every machine.
    """

    epsilon: Bounds
    delta: float
    directions: Mapping[str, Bounds]
    relation: Relation
    unit: PrivacyUnit
    trust: TrustModel
    method: str
    clients: ClientGuarantees | None = None
    tolerance: float = 1e-3
    exact: bool = True
    cut_short: bool = False

    def __post_init__(self) -> None:
        hold_members(self, relation=Relation, unit=PrivacyUnit, trust=TrustModel)

    @property
    def meets_tolerance(self) -> bool:
        """Whether the distance between the bounds on ε is within the requested tolerance."""
        width = self.epsilon.upper - self.epsilon.lower
        return width <= self.tolerance * self.epsilon.upper + ABSOLUTE_TOLERANCE


_ROUNDING = 1e-15  # relative, above the error of three operations; less noise gives a larger ε


def with_released_counts(scheme: Scheme, standard_deviation: float) -> Scheme:
    """Scheme whose ε covers a run that also releases a noisy count of clients at every step.

    In a step in which the client takes part, the sum moves by an update of norm at most C, under
    noise of standard deviation σC, and the count moves by 1, under noise of standard deviation s.
    Each divided by the standard deviation of its noise, sum and count form one Gaussian vector, and
    the mean of this vector moves by at most √(1/σ² + 1/s²). So the two releases are as private as
    one sum with noise of multiplier (1/σ² + 1/s²)^(−1/2) at the same steps. Rounding a noisy count
    is postprocessing. The argument needs add-remove. Under other relations the count is the same in
    both worlds, so it does not depend on the client's record, but it reveals when the client takes
    part.

    Args:
        scheme: scheme with aggregated releases and Gaussian noise, under add-remove.
        standard_deviation: s, in clients, positive; at `math.inf` no count is released.

    Returns:
        A scheme for `price` and the rest of accounting. Its noise multiplier is rounded down, so
        the ε of this scheme is never below the ε of sums and counts together.

    Raises:
        ParameterError: the standard deviation is not positive.
        UnsupportedError: the scheme has another relation, release rule or randomizer.

    >>> from turnout.schemes import CheckIn
    >>> scheme = Scheme(GaussianNoise(3.0), CheckIn(100), Relation.ADD_REMOVE)
    >>> round(with_released_counts(scheme, 4.0).randomizer.noise_multiplier, 9)
    2.4
    """
    if standard_deviation != math.inf:
        checks.positive(standard_deviation=standard_deviation)
    if scheme.relation is not Relation.ADD_REMOVE or scheme.release is not ReleaseRule.AGGREGATED:
        raise UnsupportedError(
            "noisy counts have no analysis for this scheme: expected aggregated releases under "
            "add-remove"
        )
    if not isinstance(scheme.randomizer, GaussianNoise):
        raise UnsupportedError(
            "noisy counts have no analysis for this randomizer: expected Gaussian noise on sums"
        )
    sigma = scheme.randomizer.noise_multiplier
    both = sigma / math.hypot(1.0, sigma / standard_deviation)
    return replace(scheme, randomizer=GaussianNoise(both * (1.0 - _ROUNDING)))
