"""Bits that are turned over with a probability on which privacy rests, realised exactly.

Notation
    p   probability that a bit is turned over, a multiple of 2⁻⁶² that a float holds
    ε   of one bit, ln((1 − p)/p)

`Source.bernoulli` realises such a p exactly. Whatever else moves a bit before it is turned over
(rounding by chance, float errors in between) does no harm: for every input the bit that is sent
is 1 with a probability in [p, 1 − p].
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from fractions import Fraction
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from turnout.randomizers.levels import (
    check_level,
    exponential_below,
    law_within,
    level_above,
    on_grid_above,
)
from turnout.randomness.source import Source
from turnout.schemes import KaryResponse, NonAdaptiveRandomizer, SampledBitResponse

_COIN = 2**32  # resolution of coins that serve accuracy only
_MOST_OUTCOMES, _MOST_BITS = 1 << 16, 500  # of words whose total variation is summed
_SUM_ROUNDING = 1e-12  # of such a sum


def flip_probability(epsilon: float) -> float:
    """The least p at hand with ln((1 − p)/p) at most ``epsilon``.

    Args:
        epsilon: above 0, at most 30, in nats.

    Returns:
        p in (0, ½], above 1/(1 + e^ε) by less than 2⁻⁵² of itself or 2⁻⁶².
    """
    check_level(epsilon)
    exact = on_grid_above(1 / (1 + exponential_below(epsilon)))
    p = float(exact)
    # The floats around here lie on the grid or are it, so the next one up does too.
    return math.nextafter(p, 1.0) if p < exact else p


def flip_ratio(p: float) -> Fraction:
    """(1 − p)/p, exactly."""
    return (1 - Fraction(p)) / Fraction(p)


def ratio_of_flips(flips: Iterable[float], times: int = 1) -> Fraction:
    """e^ε₀ of bits with these probabilities, ``times`` over, exactly."""
    return math.prod((flip_ratio(p) for p in flips), start=Fraction(1)) ** times


def epsilon_of_flips(flips: Iterable[float], times: int = 1) -> float:
    """ε₀ of bits with these probabilities, ``times`` over, rounded up by less than an ulp."""
    return level_above(ratio_of_flips(flips, times))


def sampled_bit(epsilon0: float, coordinates: int) -> NonAdaptiveRandomizer:
    """The law of a uniform coordinate and its bit, which is true with e^{ε₀} to 1."""
    return KaryResponse(epsilon0, 2) if coordinates == 1 else SampledBitResponse(epsilon0)


def bits_together(flips: tuple[float, ...], samples: int) -> NonAdaptiveRandomizer:
    """The law of ``samples`` bits of each level in one message, of coordinates that it names."""
    apart = opposite_words_apart(flips, samples)
    return law_within(epsilon_of_flips(flips, samples), apart)


@lru_cache(maxsize=1024)
def opposite_words_apart(flips: tuple[float, ...], samples: int) -> float:
    """Total variation of bits that are turned over, of two words that differ in every bit.

    No two words are further apart, nor mixtures of words.

    Returns:
        Never below the true one; 1 where there are too many bits to say.

    >>> round(opposite_words_apart((0.25,), 2), 9)  # 0.75 − 0.25: one bit of two decides nothing
    0.5
    """
    counts = Counter(flips)
    outcomes = math.prod(samples * count + 1 for count in counts.values())
    if outcomes > _MOST_OUTCOMES or samples * len(flips) > _MOST_BITS:
        return 1.0
    first, second = np.ones(1), np.ones(1)
    for p, count in counts.items():
        number = samples * count
        ways = np.array([float(math.comb(number, turned)) for turned in range(number + 1)])
        turned = np.arange(number + 1)
        law = ways * p**turned * (1.0 - p) ** (number - turned)
        first, second = np.outer(first, law).ravel(), np.outer(second, law[::-1]).ravel()
    return min(float(np.maximum(first - second, 0.0).sum()) + _SUM_ROUNDING, 1.0)


def flipped(bits: NDArray[np.int64], p: float, source: Source) -> NDArray[np.int64]:
    """The bits, each turned over with probability ``p`` on its own; the shape of ``bits``."""
    return bits ^ source.bernoulli(p, bits.size).reshape(bits.shape)


def rounded_by_chance(chances: NDArray[np.float64], source: Source) -> NDArray[np.int64]:
    """1 with about the given chance (to 2⁻³²), else 0. For accuracy; no privacy rests on it."""
    thresholds = np.rint(np.clip(chances, 0.0, 1.0) * _COIN).astype(np.int64)
    result = (thresholds == _COIN).astype(np.int64)
    open_ = (thresholds > 0) & (thresholds < _COIN)
    drawn = source.below(_COIN, int(np.count_nonzero(open_)))
    result[open_] = drawn < thresholds[open_]
    return result
