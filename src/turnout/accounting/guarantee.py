"""Guarantees: ε with its δ, relation, unit and trust model; and schemes with released counts.

`price` returns a `Guarantee`, which holds `ClientGuarantees` where clients have windows of their
own. `with_released_counts` returns the scheme that prices noisy counts of the clients of each step
beside the sums. The module builds on `schemes` alone; the rest of accounting returns its classes.

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
"""Gap between bounds on ε that meets every requested relative tolerance."""


@dataclass(frozen=True, eq=False)
class ClientGuarantees:
    """ε of each client, for participation in which clients have windows of their own.

    Attributes:
        find: computes `epsilon_upper`, which takes seconds for hundreds of kinds of clients.
        window_sizes: steps among which the client draws, shape (clients, windows).
    """

    find: Callable[[], FloatArray]
    window_sizes: IntArray

    @cached_property
    def epsilon_upper(self) -> FloatArray:
        """Upper bound on ε per client, shape (clients,); 0 for a client that never takes part."""
        return self.find()


@dataclass(frozen=True, slots=True, eq=False)
class Guarantee:
    """(ε, δ) of a scheme, with relation, unit, trust model, and both directions.

    Attributes:
        epsilon: proved bounds on the smallest ε at this δ; quote ``upper``.
        directions: bounds of each direction ("remove", "add"), or "replace" alone under
            replace-one, which is symmetric.
        clients: the distribution over clients where windows differ; ``epsilon`` is then the
            worst client's.
        tolerance: the relative width of ``epsilon`` that was requested.
        exact: whether finer grids alone would narrow ``epsilon``; else the analysis leaves a gap
            that no grid closes.
        cut_short: whether the budget of work, which is counted and the same on every machine, ended
            refinement before the tolerance was met.
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
        """Whether the bounds on ε are within the requested tolerance."""
        width = self.epsilon.upper - self.epsilon.lower
        return width <= self.tolerance * self.epsilon.upper + ABSOLUTE_TOLERANCE


_ROUNDING = 1e-15  # three operations err by less; less noise costs more


def with_released_counts(scheme: Scheme, standard_deviation: float) -> Scheme:
    """Scheme that prices a run which also releases the count of every step, with noise.

    Where the client takes part, the sum moves by an update of norm at most C, under noise of σC,
    and the count by 1, under noise of s. Scaled by their noise both are one Gaussian whose
    mean moves by at most √(1/σ² + 1/s²): noise of multiplier (1/σ² + 1/s²)^(−1/2), at the same
    steps. Rounding a noisy count is postprocessing. Only under add-remove: elsewhere the count
    does not depend on the client's record, but shows in both worlds when it took part.

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
