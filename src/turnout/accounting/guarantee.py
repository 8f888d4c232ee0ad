"""A guarantee: ε with its δ, relation, unit and trust model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from turnout.core.bounds import Bounds
from turnout.schemes import PrivacyUnit, Relation, TrustModel
from turnout.schemes.parameters import hold_members

ABSOLUTE_TOLERANCE = 1e-9
"""Gap between bounds on ε that is always small enough, whatever relative tolerance is asked for."""


@dataclass(frozen=True, eq=False)
class ClientGuarantees:
    """ε of each client, for laws under which clients have windows of their own.

    Attributes:
        find: finds `epsilon_upper`, which takes seconds for hundreds of kinds of clients.
        window_sizes: steps that the client draws among, shape (clients, windows).
    """

    find: Callable[[], np.ndarray]
    window_sizes: np.ndarray

    @cached_property
    def epsilon_upper(self) -> np.ndarray:
        """Proved upper bound per client, shape (clients,); 0 for who never comes."""
        return self.find()


@dataclass(frozen=True, slots=True, eq=False)
class Guarantee:
    """(ε, δ) of a scheme, with relation, unit, trust model, and both directions.

    Attributes:
        epsilon: proved bounds on the smallest ε at this δ; ``upper`` is what to quote.
        directions: bounds of each direction ("remove", "add"), or "replace" alone under
            replace-one, which is symmetric.
        clients: the distribution over clients where windows differ; ``epsilon`` is then the
            worst client's.
        tolerance: the relative width of ``epsilon`` that was asked for.
        exact: whether finer grids alone would narrow ``epsilon``; else the analysis leaves
            something open that no grid closes.
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

    def __post_init__(self) -> None:
        hold_members(self, relation=Relation, unit=PrivacyUnit, trust=TrustModel)

    @property
    def meets_tolerance(self) -> bool:
        """Whether the bounds on ε are as close as was asked for."""
        width = self.epsilon.upper - self.epsilon.lower
        return width <= self.tolerance * self.epsilon.upper + ABSOLUTE_TOLERANCE
