"""Windows of one step, and Poisson steps: replace-one in closed form."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from turnout.accounting.divergence.curves import Side
from turnout.accounting.divergence.pairs import Pair, call, put
from turnout.accounting.laws.replace_one.antithetic import (
    antithetic_event,
    antithetic_rounding,
    antithetic_strikes,
)

FloatArray = np.ndarray


@dataclass(frozen=True, slots=True)
class OneStepCurve:
    """(1 − p)Q + pP against (1 − p)Q + pP', with the worst coupling of P and P'.

    δ(K) = pℓ + p(1 − ℓ)·E[(Y − c₀)₊], c₀ = (K − 1)(1 − p)/(p(1 − ℓ)), Y as in
    `steps.AntitheticStep`.

    Attributes:
        pair: the dominating pair of P against Q and of P' against Q.
        probability: p > 0.
        leak: ℓ, the mass that P has where Q has none.
        side: upper or lower; the curve is exact but for rounding.
    """

    pair: Pair
    probability: float
    leak: float
    side: Side

    def delta(self, k: FloatArray) -> FloatArray:
        """δ at each K ≥ 1, shape of ``k``."""
        k = np.asarray(k, dtype=float)
        offset = self._offset(k)
        strike, other = antithetic_strikes(self.pair, k, offset)
        if self.side is Side.LOWER:
            return self._with_leak(self._line(k, strike, other)[0])
        value = call(self.pair, strike) + k * put(self.pair, other)
        return self._with_leak(value + antithetic_rounding(self.pair, k, strike, other))

    def slope(self, k: FloatArray) -> FloatArray:
        """dδ/dK at each K ≥ 1: that of the event's line, which lies below the curve."""
        k = np.asarray(k, dtype=float)
        strikes = antithetic_strikes(self.pair, k, self._offset(k))
        value, slope = self._line(k, *strikes)
        return np.where(value > 0, slope, 0.0)

    def _line(
        self, k: FloatArray, strike: FloatArray, other: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """P(E) − K·P'(E) − c₀·Q(E) less its rounding, and the slope of δ along that line."""
        present, elsewhere, share = antithetic_event(self.pair, strike, other)
        value = present - k * elsewhere - self._offset(k) * share
        value -= antithetic_rounding(self.pair, k, strike, other)
        kept = self.probability * (1.0 - self.leak)
        return value, -kept * elsewhere - (1.0 - self.probability) * share

    def _with_leak(self, value: FloatArray) -> FloatArray:
        kept = np.maximum((1.0 - self.leak) * value, 0.0)
        return np.minimum(self.probability * (self.leak + kept), 1.0)

    def _offset(self, k: FloatArray) -> FloatArray:
        """c₀."""
        return (k - 1.0) * (1.0 - self.probability) / (self.probability * (1.0 - self.leak))
