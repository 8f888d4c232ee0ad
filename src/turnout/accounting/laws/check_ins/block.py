"""The block of one check-in window: a client takes part in one uniform step of it."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from turnout.accounting.divergence.blocks import curves_apart
from turnout.accounting.divergence.curves import (
    Curve,
    Direction,
    Side,
    diluted,
    epsilon_at,
    with_infinity_mass,
)
from turnout.accounting.divergence.loss_laws import CurvePair
from turnout.accounting.divergence.pairs import Pair
from turnout.accounting.laws.check_ins.curve import allocation_curve
from turnout.core import checks
from turnout.core.errors import NumericalError

_HINTS_APART = 40.0  # ratio of the δ's at which the curves of a composed block are made sharp
_UNDILUTING_STEPS = 6


@dataclass(frozen=True, slots=True)
class AllocationBlock:
    """One window in which the client takes part, with a probability, in one uniform step."""

    pair: Pair
    window: int
    probability: float = 1.0
    infinity_mass: float = 0.0

    def __post_init__(self) -> None:
        checks.count(window=self.window)

    @property
    def loss_deviation(self) -> float:
        """Standard deviation of the average of the window's likelihood ratios, at most 1."""
        variance = max(self.pair.second_moment - 1.0, 0.0) / self.window
        return self.probability * min(1.0, math.sqrt(variance))

    def curve(self, direction: Direction, side: Side, delta: float, refinement: int) -> Curve:
        """The window's curve, diluted by the chance that the client does not come at all."""
        hint = self._undiluted(direction, delta)
        curve = self._allocation(direction, side, hint, refinement)
        return diluted(curve, direction, self.probability)

    def _allocation(self, direction: Direction, side: Side, hint: float, refinement: int) -> Curve:
        if direction is Direction.REMOVE:
            hint = max(hint - self.infinity_mass, 0.01 * hint)
        curve = allocation_curve(
            self.pair, self.window, direction, side, delta_hint=hint, refinement=refinement
        )
        return with_infinity_mass(curve, direction, side, self.infinity_mass)

    def _undiluted(self, direction: Direction, delta: float) -> float:
        """The δ of the surely coming client that decides what a diluted δ is.

        In the add direction w·δ'(u) = δ with w = p/(p + u(1 − p)) (see `DilutedCurve`), which
        is solved for u by damped steps.
        """
        p = self.probability
        hint = min(0.5, delta / p)
        if p == 1.0 or direction is Direction.REMOVE:
            return hint
        for _ in range(_UNDILUTING_STEPS):
            base = self._allocation(direction, Side.UPPER, hint, 0)
            try:
                inner = math.exp(epsilon_at(base, hint, Side.UPPER))
            except (NumericalError, OverflowError):
                break
            hint, before = math.sqrt(hint * min(0.5, delta * (p + inner * (1.0 - p)) / p)), hint
            if abs(math.log(hint / before)) < 0.5:
                break
        return hint

    def curves(self, side: Side, delta: float, refinement: int) -> CurvePair:
        """Curves that are made sharp every few decades of δ, and just below the last one."""
        remove, add = curves_apart(self, side, delta, refinement, _HINTS_APART)
        # Impossible with the client is only what every step says is, and only if it surely comes.
        zero = float(self.pair.q_below(np.array(0.0))) if self.probability == 1.0 else 0.0
        return CurvePair(
            side, remove, add, (self.probability * self.infinity_mass, zero**self.window)
        )
