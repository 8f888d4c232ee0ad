"""A method of a comparison, and its ε at a setting."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from turnout.accounting.divergence.curves import Side
from turnout.accounting.published.results import Status
from turnout.core.bounds import Bounds
from turnout.schemes import Relation, TrustModel

SettingType = TypeVar("SettingType")


@dataclass(frozen=True, slots=True)
class Quote:
    """ε by one method, and a lower bound where the method gives both."""

    epsilon: float
    epsilon_lower: float | None = None

    @classmethod
    def of(cls, bounds: Bounds) -> Quote:
        """Both sides of a bracket."""
        return cls(bounds.upper, bounds.lower)


@dataclass(frozen=True, slots=True)
class Method(Generic[SettingType]):
    """One curve of a comparison.

    Attributes:
        about: what is compared, in one line.
        quote: ε at a setting. Raises UnsupportedError where it says nothing, NumericalError where
            nothing can be certified.
        relation: the relation it is about; None: the setting's.
        directions: what its number covers; "remove" alone is no guarantee.
        trust: whom the client must trust.
        status: how far it may be trusted.
        side: UPPER: ε is never below the truth; LOWER: never above it, so no guarantee.
    """

    name: str
    about: str
    quote: Callable[[SettingType], Quote]
    relation: Relation | None = None
    directions: tuple[str, ...] = ("remove", "add")
    trust: TrustModel = TrustModel.CENTRAL
    status: Status = Status.PROVED
    side: Side = Side.UPPER
