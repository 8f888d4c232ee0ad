"""The law of a client's shuffled messages, by what is known of the randomizer that all use.

Here everybody uses one randomizer, fixed beforehand, whose law we know. So nothing rests on who
speaks when (Theorem 2 of docs/design/shuffling.md), and where two records' laws are less apart than
ε₀ allows, or are known altogether, less is shown than by the worst pair of all ε₀-randomizers.

Notation
    ε₀   of one message, e = e^{ε₀}
    τ    total variation of a message's laws under any two records, at most (e − 1)/(e + 1)
    a    chance that a client of an `IndexedRandomizer` ignores her item
    s    coordinates that a client reports; p_k the chance that a bit of level k is turned over
"""

from __future__ import annotations

import math
from collections import Counter
from fractions import Fraction
from functools import lru_cache, singledispatch

import numpy as np

from turnout.accounting import Message
from turnout.core.errors import UnsupportedError
from turnout.randomizers import (
    HadamardResponse,
    KaryRandomizedResponse,
    LocalHashing,
    OneBitHadamard,
)
from turnout.randomizers.bitmaps import BitmapRandomizer
from turnout.randomizers.indexed import IndexedRandomizer
from turnout.randomizers.vectors import L1Randomizer, L2Randomizer
from turnout.randomizers.vectors.bit_randomizer import BitRandomizer
from turnout.randomizers.vectors.flips import epsilon_of_flips
from turnout.randomizers.vectors.sampled_bits import SampledBits
from turnout.spec import BitResponse, FixedRandomizer, KaryResponse
from turnout.spec import HadamardResponse as AnyHadamardResponse

_MOST_OUTCOMES, _MOST_BITS = 1 << 16, 500  # of words whose total variation is summed
_ROUNDING = 1e-12  # of such a sum


@singledispatch
def whole_message(randomizer: object) -> Message:
    """What is known of a client's whole message as one.

    Raises:
        UnsupportedError: nothing, or public randomness would tell who sent it.
    """
    raise UnsupportedError(f"no shuffled messages are known of {type(randomizer).__name__}")


@whole_message.register
def _(randomizer: BitmapRandomizer) -> Message:
    # Two items move two bits only; what they move is own − other.
    return Message(FixedRandomizer(randomizer.epsilon0), _above(randomizer.own - randomizer.other))


@whole_message.register
def _(randomizer: IndexedRandomizer) -> Message:
    return _indexed(randomizer, Fraction(1))


@whole_message.register
def _(randomizer: LocalHashing) -> Message:
    # Under one of g hash functions two items are told the same way.
    return _indexed(randomizer, 1 - Fraction(1, randomizer.reply_count))


@whole_message.register
def _(randomizer: KaryRandomizedResponse) -> Message:
    return Message(KaryResponse(randomizer.epsilon0, randomizer.items))


@whole_message.register
def _(randomizer: OneBitHadamard) -> Message:
    _require_private(randomizer, public=randomizer.public)
    # Of 2K messages K are likely, and columns of two items agree in K/2 rows.
    return Message(AnyHadamardResponse(randomizer.epsilon0))


@whole_message.register
def _(randomizer: HadamardResponse) -> Message:
    if randomizer.blocks == 1:
        return Message(AnyHadamardResponse(randomizer.epsilon0))
    return _indexed(randomizer, Fraction(1))  # items of two blocks share no likely message


@whole_message.register
def _(randomizer: L1Randomizer) -> Message:
    _require_private(randomizer, public=randomizer.public_seed is not None)
    return _bit(randomizer.epsilon0, randomizer.rows)


@whole_message.register
def _(randomizer: L2Randomizer) -> Message:
    return whole_message(randomizer.inner)


@whole_message.register
def _(randomizer: BitRandomizer) -> Message:
    bits = randomizer.bits
    _require_private(randomizer, public=bits.public_seed is not None)
    if bits.samples * bits.levels == 1:
        return _bit(bits.epsilon0, bits.dimension)
    return _word(bits.flips, bits.samples)


def client_messages(randomizer: object) -> list[tuple[Message, int]]:
    """A client's messages where each of her words has a shuffler of its own.

    Raises:
        UnsupportedError: nothing is known, or public coordinates would tell who sent what.
    """
    if isinstance(randomizer, L2Randomizer):
        randomizer = randomizer.inner
    if not isinstance(randomizer, BitRandomizer):
        return [(whole_message(randomizer), 1)]
    bits = randomizer.bits
    _require_private(randomizer, public=bits.public_seed is not None)
    found: Counter[Message] = Counter()
    for size, times in Counter(bits.groups.tolist()).items():
        for word in _words(bits, int(size)):
            found[word] += times
    return list(found.items())


def _words(bits: SampledBits, size: int) -> list[Message]:
    """The words that tell one of ``size`` coordinates."""
    if bits.shared and bits.levels > 1:
        return [_word(bits.flips, 1)]
    return [_bit(epsilon_of_flips([p]), size) for p in bits.flips]


def _bit(epsilon0: float, coordinates: int) -> Message:
    """A uniform coordinate and its bit, whatever the bit's mean was before it is turned over."""
    return Message(KaryResponse(epsilon0, 2) if coordinates == 1 else BitResponse(epsilon0))


def _word(flips: tuple[float, ...], samples: int) -> Message:
    """Several bits in one message, of coordinates that it names."""
    return Message(
        FixedRandomizer(epsilon_of_flips(flips, samples)), opposite_words_apart(flips, samples)
    )


@lru_cache(maxsize=1024)
def opposite_words_apart(flips: tuple[float, ...], samples: int) -> float:
    """Total variation of bits that are turned over, of two words that differ in every bit.

    No two words are further apart, nor mixtures of words.

    Args:
        flips: p_k of each level.
        samples: s, bits of each level.

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
    return min(float(np.maximum(first - second, 0.0).sum()) + _ROUNDING, 1.0)


def _indexed(randomizer: IndexedRandomizer, apart: Fraction) -> Message:
    """Laws that agree but for the 1 − a who answer for their item, and ``apart`` of those."""
    _require_private(randomizer, public=randomizer.public and randomizer.index_count > 1)
    variation = _above((1 - randomizer.blanket) * apart)
    return Message(FixedRandomizer(randomizer.epsilon0), variation)


def _require_private(randomizer: object, *, public: bool) -> None:
    if public:
        raise UnsupportedError(
            f"shuffled messages of {type(randomizer).__name__} with public randomness: what each "
            "client is asked would tell who sent what"
        )


def _above(exact: Fraction) -> float:
    return min(math.nextafter(float(exact), 2.0), 1.0)
