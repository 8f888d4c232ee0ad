"""Windows of one step, and Poisson steps: replace-one in closed form."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from turnout.accounting.curves import Side
from turnout.accounting.pairs import Pair, call, put
from turnout.accounting.replacement.antithetic import (
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
        error = antithetic_rounding(self.pair, k, strike, other)
        if self.side is Side.UPPER:
            value = call(self.pair, strike) + k * put(self.pair, other)
            return self._with_leak(value + error)
        present, elsewhere, share = antithetic_event(self.pair, strike, other)
        value = present - k * elsewhere - offset * share
        return self._with_leak(value - error)

    def slope(self, k: FloatArray) -> FloatArray:
        """dδ/dK at each K ≥ 1: that of the event's line, which lies below the curve."""
        k = np.asarray(k, dtype=float)
        strikes = antithetic_strikes(self.pair, k, self._offset(k))
        _, elsewhere, share = antithetic_event(self.pair, *strikes)
        present = self.probability * (1.0 - self.leak)
        return -present * elsewhere - (1.0 - self.probability) * share

    def _with_leak(self, value: FloatArray) -> FloatArray:
        kept = np.maximum((1.0 - self.leak) * value, 0.0)
        return np.minimum(self.probability * (self.leak + kept), 1.0)

    def _offset(self, k: FloatArray) -> FloatArray:
        """c₀."""
        return (k - 1.0) * (1.0 - self.probability) / (self.probability * (1.0 - self.leak))
