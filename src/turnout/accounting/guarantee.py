"""What an answer looks like: ε with everything that makes it a guarantee."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from turnout.core.bounds import Bounds
from turnout.spec import PrivacyUnit, Relation, TrustModel
from turnout.spec.classes import hold_members


@dataclass(frozen=True, slots=True, eq=False)
class ClientGuarantees:
    """ε of each client, for laws under which clients have windows of their own.

    Attributes:
        epsilon_upper: proved upper bound per client, shape (clients,); 0 for who never comes.
        window_sizes: steps she draws among, shape (clients, windows).
    """

    epsilon_upper: np.ndarray
    window_sizes: np.ndarray


@dataclass(frozen=True, slots=True, eq=False)
class Guarantee:
    """(ε, δ) of a scheme, with relation, unit, trust model, and both directions.

    Attributes:
        epsilon: proved bounds on the smallest ε at this δ; ``upper`` is what to quote.
        delta: δ.
        directions: bounds of each direction ("remove", "add"), or "replace" alone under
            replace-one, which is symmetric.
        relation: the neighbouring relation.
        unit: what one record is.
        trust: whom the client must trust.
        method: the analysis, in one line.
        clients: the distribution over clients where windows differ; ``epsilon`` is then the
            worst client's.
    """

    epsilon: Bounds
    delta: float
    directions: Mapping[str, Bounds]
    relation: Relation
    unit: PrivacyUnit
    trust: TrustModel
    method: str
    clients: ClientGuarantees | None = None

    def __post_init__(self) -> None:
        hold_members(self, relation=Relation, unit=PrivacyUnit, trust=TrustModel)
