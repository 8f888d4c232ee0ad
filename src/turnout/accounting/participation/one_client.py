"""One-client releases (Algorithm 1 of the check-in paper): the likelihood ratio of one step.

In each step one uniform client of those that check in sends its noisy update; a step without
check-ins releases noise alone. `one_client_pair` returns the pair that bounds the likelihood ratio
of a step from above, whatever the other clients do, `opposed_pair` the one that an attack attains.
`decomposition` makes blocks of both. docs/design/one-client.md has the proofs.

Notation: m other clients check in to a step, Q is the output of the step without the client and
P with it, X = dP/dQ under Q, C the clip norm, L_s the likelihood ratio of the noise for a move of
the update by s. The client is drawn with probability a = 1/(m + 1), so X = 1 − a + a·dM_u/dQ with
M_u the output of the client's update u.

* m = 0: the client surely sends, and X is at most L_C in convex order.
* m ≥ 1: a ≤ ½, and Q is a mixture of outputs of updates at most 2C from u, so X is at most
  ½ + ½·L_2C in convex order. The bound is attained by one other client whose update is −u.

At each threshold the larger one of the two reverse hockey sticks counts. The result is convex with
the right limits, so it is the reverse hockey stick of a likelihood ratio Z, and X ≤_cx Z given the
past, the other clients and their steps.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from turnout.accounting.divergence.pairs import (
    Pair,
    hockey_stick,
    hockey_stick_rounding,
    reverse_hockey_stick,
    reverse_hockey_stick_rounding,
)
from turnout.core.arrays import BoolArray, FloatArray


@dataclass(frozen=True, slots=True)
class HalvedPair:
    """Pair of a step that shows a client's message or another one, each with probability ½.

    The likelihood ratio is ½ + X/2, with X the ratio of the base pair.

    Attributes:
        base: pair of the client's message against the other message, without an infinity mass.
    """

    base: Pair

    @property
    def second_moment(self) -> float:
        """Second moment E_Q[(½ + X/2)²] of the likelihood ratio."""
        return 0.75 + 0.25 * self.base.second_moment

    def q_below(self, k: FloatArray) -> FloatArray:
        """Probability Q(½ + X/2 ≤ k) of the likelihood ratio."""
        inner = 2.0 * k - 1.0
        return np.where(inner < 0, 0.0, self.base.q_below(np.maximum(inner, 0.0)))

    def q_above(self, k: FloatArray) -> FloatArray:
        """Probability Q(½ + X/2 > k) of the likelihood ratio."""
        inner = 2.0 * k - 1.0
        return np.where(inner < 0, 1.0, self.base.q_above(np.maximum(inner, 0.0)))

    def p_below(self, k: FloatArray) -> FloatArray:
        """Probability P(½ + X/2 ≤ k), P being the mixture of both messages."""
        inner = 2.0 * k - 1.0
        at = np.maximum(inner, 0.0)
        mixed = 0.5 * (self.base.q_below(at) + self.base.p_below(at))
        return np.where(inner < 0, 0.0, mixed)

    def p_above(self, k: FloatArray) -> FloatArray:
        """Probability P(½ + X/2 > k), P being the mixture of both messages."""
        inner = 2.0 * k - 1.0
        at = np.maximum(inner, 0.0)
        mixed = 0.5 * (self.base.q_above(at) + self.base.p_above(at))
        return np.where(inner < 0, 1.0, mixed)


@dataclass(frozen=True, slots=True)
class LargestPair:
    """Pair whose reverse hockey stick is the larger one of two pairs at each threshold.

    Its likelihood ratio is the least one that is above both in convex order. At each threshold the
    four tails are those of the pair whose price, with its rounding error added, is larger; where
    the prices cross, the ratio has an atom.

    Attributes:
        first, second: pairs without an infinity mass.
    """

    first: Pair
    second: Pair

    @property
    def second_moment(self) -> float:
        """Larger second moment of the two ratios, for the choice of grids."""
        return max(self.first.second_moment, self.second.second_moment)

    def _is_second(self, k: FloatArray) -> BoolArray:
        """Whether the second pair has the larger price at each threshold, shape of ``k``."""
        k = np.asarray(k, dtype=float)
        low = k < 1.0
        result = np.zeros(k.shape, dtype=bool)
        # The reverse hockey stick is accurate below the mean 1, the hockey stick above it; their
        # difference 1 − k is the same for both pairs.
        for part, stick, rounding in (
            (low, reverse_hockey_stick, reverse_hockey_stick_rounding),
            (~low, hockey_stick, hockey_stick_rounding),
        ):
            if part.any():
                at = k[part]
                prices = [
                    stick(pair, at) + rounding(pair, at) for pair in (self.first, self.second)
                ]
                result[part] = prices[1] > prices[0]
        return result

    def q_below(self, k: FloatArray) -> FloatArray:
        """Probability Q(X ≤ k) of the likelihood ratio X."""
        return np.where(self._is_second(k), self.second.q_below(k), self.first.q_below(k))

    def q_above(self, k: FloatArray) -> FloatArray:
        """Probability Q(X > k) of the likelihood ratio X."""
        return np.where(self._is_second(k), self.second.q_above(k), self.first.q_above(k))

    def p_below(self, k: FloatArray) -> FloatArray:
        """Probability P(X ≤ k) of the likelihood ratio X."""
        return np.where(self._is_second(k), self.second.p_below(k), self.first.p_below(k))

    def p_above(self, k: FloatArray) -> FloatArray:
        """Probability P(X > k) of the likelihood ratio X."""
        return np.where(self._is_second(k), self.second.p_above(k), self.first.p_above(k))


def opposed_pair(apart: Pair) -> HalvedPair:
    """Pair of a step that a client shares with one other client, whose update is opposite.

    Args:
        apart: pair of two updates at distance 2C, without an infinity mass.
    """
    return HalvedPair(apart)


def one_client_pair(alone: Pair, apart: Pair) -> LargestPair:
    """Pair above the likelihood ratio of a step, in convex order, for any other clients.

    Source: docs/design/one-client.md, Theorem 1. Windows of such steps have an upper bound on δ in
    both directions, even if the other clients and their steps depend on earlier releases.

    Args:
        alone: pair of the client's update against a step without check-ins, at distance C.
        apart: pair of two updates at distance 2C.
    """
    return LargestPair(alone, HalvedPair(apart))
