"""Independent blocks, of which a run is made, each with a curve in both directions."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from turnout.accounting.divergence.curves import Curve, Direction, PairCurve, Side, diluted, leaky
from turnout.accounting.divergence.loss_laws import CurvePair
from turnout.accounting.divergence.pairs import Pair


class Block(Protocol):
    """One chunk of a run that is independent of the others given the past.

    Curves that cannot be certified at so small a δ raise a NumericalError, those of a side from
    which nothing is known an UnsupportedError.
    """

    @property
    def spread(self) -> float:
        """About the standard deviation of the block's privacy loss (only steers grids)."""
        ...

    def curve(self, direction: Direction, side: Side, delta: float, refinement: int) -> Curve:
        """A curve made sharp near one δ."""
        ...

    def curves(self, side: Side, delta: float, refinement: int) -> CurvePair:
        """Curves that are sharp from 1 down to a δ at which they may be cut off."""
        ...


@dataclass(frozen=True, slots=True)
class PairBlock:
    """One step in which she takes part with a probability, independently of other steps."""

    pair: Pair
    probability: float = 1.0
    leak: float = 0.0

    @property
    def spread(self) -> float:
        """Standard deviation of the diluted likelihood ratio, at most 1."""
        return self.probability * min(1.0, math.sqrt(max(self.pair.second_moment - 1.0, 0.0)))

    def curve(self, direction: Direction, side: Side, delta: float, refinement: int) -> Curve:
        """The exact curve, whatever the side."""
        curve = leaky(PairCurve(self.pair, direction, side), direction, side, self.leak)
        return diluted(curve, direction, self.probability)

    def curves(self, side: Side, delta: float, refinement: int) -> CurvePair:
        """The exact curves."""
        remove, add = (self.curve(direction, side, delta, refinement) for direction in Direction)
        # Without her nothing is impossible with her, unless she surely comes.
        zero = float(self.pair.q_below(np.array(0.0))) if self.probability == 1.0 else 0.0
        return CurvePair(side, [remove], [add], (self.probability * self.leak, zero))


@dataclass(frozen=True, slots=True)
class FixedSizeBlock:
    """One step that serves a uniform subset of fixed size, under replace-one or zero-out.

    Source: Balle, Barthe, Gaboardi 2018, Theorem 11: both directions are at most
    q·H_{K'}(P‖Q), K' = 1 + (K − 1)/q, of the *substitution* pair (sensitivity 2C: whoever is
    not drawn makes room for somebody else).

    Attributes:
        pair: the substitution pair.
        rate: q = size / population.
    """

    pair: Pair
    rate: float
    leak: float = 0.0

    @property
    def spread(self) -> float:
        """As of Poisson sampling at the same rate."""
        return PairBlock(self.pair, self.rate).spread

    def curve(self, direction: Direction, side: Side, delta: float, refinement: int) -> Curve:
        """The same curve in both directions."""
        base = PairCurve(self.pair, Direction.REMOVE, side)
        base = leaky(base, Direction.REMOVE, side, self.leak)
        return diluted(base, Direction.REMOVE, self.rate)

    def curves(self, side: Side, delta: float, refinement: int) -> CurvePair:
        """The same curve in both directions."""
        curve = self.curve(Direction.REMOVE, side, delta, refinement)
        return CurvePair(side, [curve], [curve], (self.rate * self.leak, self.rate * self.leak))
