"""Audits: what a game found, beside what is proved."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from turnout.auditing.confidence import Counted, Event
from turnout.core.bounds import Bounds

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Statement:
    """A claim: proved bounds at a δ, by direction.

    Attributes:
        directions: "remove" and "add", or "replace" alone.
        terms: relation, unit and trust, as far as they are known, by name.
    """

    directions: Mapping[str, Bounds]
    delta: float
    terms: Mapping[str, str]

    @property
    def epsilon(self) -> Bounds:
        """Of the worse direction."""
        return Bounds(
            max(b.lower for b in self.directions.values()),
            max(b.upper for b in self.directions.values()),
        )


@dataclass(frozen=True, slots=True, eq=False)
class Rates:
    """A ROC curve by counts: how often an event happened where it speaks for, and elsewhere.

    Attributes:
        likely: true positive rates, shape (points,).
        rare: false positive rates.
    """

    likely: FloatArray
    rare: FloatArray

    @classmethod
    def of(cls, event: Event, likely: FloatArray, rare: FloatArray, points: int = 300) -> Rates:
        """Of all thresholds of an event's statistic, thinned."""
        sign = 1.0 if event.above else -1.0
        ours, others = np.sort(sign * likely), np.sort(sign * rare)
        ranks = np.unique(np.geomspace(1, ours.size, points).astype(np.int64))
        cuts = np.nextafter(ours[-ranks], -np.inf)
        rates = [1.0 - np.searchsorted(x, cuts, side="right") / x.size for x in (ours, others)]
        return cls(*rates)


@dataclass(frozen=True, slots=True, eq=False)
class FoundAt:
    """The outcome for one statement: the event and its counts, by direction."""

    stated: Statement
    found: Mapping[str, Counted]

    @property
    def violated(self) -> tuple[str, ...]:
        """Directions whose lower bound exceeds what was proved."""
        uppers = self.stated.directions
        return tuple(
            name for name, found in self.found.items() if found.epsilon > uppers[name].upper
        )


@dataclass(frozen=True, slots=True, eq=False)
class Findings:
    """Lower bounds on ε that a game found, beside the proved ones.

    Attributes:
        game: what was played, in words.
        stated: what was proved of it.
        found: the event and its counts, by direction.
        rates: the ROC curve of each direction's statistic.
        also: the same at other δ.
        confidence: the chance that no lower bound here exceeds the true ε is at least this.
        trials: runs of each world, those by which events were chosen included.
        seed: names all random streams.
        seconds: running time.
    """

    game: str
    stated: Statement
    found: Mapping[str, Counted]
    rates: Mapping[str, Rates]
    also: tuple[FoundAt, ...]
    confidence: float
    trials: int
    seed: int
    seconds: float

    @property
    def epsilon_lower(self) -> float:
        """The largest lower bound on ε at the δ that was asked for."""
        return max(found.epsilon for found in self.found.values())

    @property
    def gaussian_mu(self) -> float:
        """The largest lower bound on μ, of all events, if the trade-off is that of Gaussian DP."""
        every = (self.found, *(at.found for at in self.also))
        return max(counted.gaussian_mu for found in every for counted in found.values())

    @property
    def violated(self) -> tuple[tuple[FoundAt, str], ...]:
        """Lower bounds that exceed what was proved, at any δ, with their directions."""
        every = (FoundAt(self.stated, self.found), *self.also)
        return tuple((one, name) for one in every for name in one.violated)

    @property
    def consistent(self) -> bool:
        """Whether nothing was found that exceeds what is proved."""
        return not self.violated
