"""Packed random bits: their exact distribution, compared with one Bernoulli draw per bit."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from turnout.core.errors import ParameterError
from turnout.randomness import OSRandomness, SimulationStreams, packed_coins
from turnout.testing import assert_binomial, assert_rejects, enumerate_outputs


def byte_of(distribution: packed_coins.ByteDistribution, u: Fraction) -> int:
    """Byte for the uniform draw U = u, computed from its definition."""
    return sum(Fraction(limit, 1 << distribution.unit_bits) <= u for limit in distribution.limits)


@pytest.mark.parametrize(("threshold", "bits"), [(1, 1), (3, 4), (1, 7), (127, 7), (12345, 16)])
def test_byte_thresholds_give_eight_independent_random_bits(threshold, bits):
    distribution, q = (
        packed_coins.byte_distribution(threshold, bits),
        Fraction(threshold, 1 << bits),
    )
    ends = [
        Fraction(0),
        *(Fraction(limit, 1 << distribution.unit_bits) for limit in distribution.limits),
        1,
    ]
    for byte in range(256):
        ones = byte.bit_count()
        assert ends[byte + 1] - ends[byte] == q**ones * (1 - q) ** (8 - ones)


@pytest.mark.parametrize("threshold", [1, 2**40, 2**61, 1_240_182_837_118_823_519, 2**62 - 1])
def test_the_lookup_table_of_packed_bits_gives_the_exact_byte(threshold):
    distribution = packed_coins.byte_distribution(threshold, 62)
    stated = distribution.table.astype(np.int64)
    for first in np.unique([0, 1, 2**16 - 1, *np.flatnonzero(np.diff(stated)), 31_000]):
        start, end = Fraction(int(first), 2**16), Fraction(int(first) + 1, 2**16)
        lowest, highest = (
            byte_of(distribution, start),
            byte_of(distribution, end - Fraction(1, 2**600)),
        )
        assert stated[first] == (lowest if lowest == highest else 256)
    assert np.count_nonzero(stated == 256) <= 255


class Words:
    """Random source that returns given words in order."""

    def __init__(self, *answers: list[int]) -> None:
        self.answers = list(answers)

    def __call__(self, size: int) -> np.ndarray:
        answer = self.answers.pop(0)
        assert len(answer) == size
        return np.array(answer, dtype=np.uint64)


def drawn(distribution: packed_coins.ByteDistribution, threshold: int, u: int) -> int:
    """First packed byte for a uniform draw U that begins with the bits of u, in units of 2⁻⁵¹²."""
    first, more = u >> 496, u >> 450 & (2**46 - 1)
    told = int(distribution.table[0])  # The other bytes of the word have U = 0.
    answers = [[first, 0]]
    others = 7 if told == 256 else 0
    if distribution.table[first] == 256 or others:
        answers.append(([more << 18] if distribution.table[first] == 256 else []) + [0] * others)
    # If 62 bits do not decide, further words are read: seven for 434 bits.
    rest = u & (2**450 - 1)
    tail = [rest >> (450 - 64 * (place + 1)) & (2**64 - 1) for place in range(7)]
    words = Words(*answers, *([word] for word in tail), *([0] for _ in range(7 * others)))
    coins = packed_coins.packed_coins(words, threshold, 62, 1)
    return int(coins.view(np.uint8)[0])


@pytest.mark.parametrize("threshold", [2**40, 2**61, 1_240_182_837_118_823_519, 2**62 - 2**50])
def test_a_byte_of_packed_bits_counts_the_thresholds_up_to_the_uniform_draw(threshold):
    distribution = packed_coins.byte_distribution(threshold, 62)
    for place in (0, 1, 77, 127, 128, 200, 254):
        limit = distribution.limits[place] << 16  # In units of 2⁻⁵¹².
        for u in (limit - 1, limit, limit + 1, limit + 2**440, limit - 2**440, limit + 2**480):
            if 0 <= u < 2**512:
                expected = sum(other << 16 <= u for other in distribution.limits)
                assert drawn(distribution, threshold, u) == expected


@pytest.mark.parametrize("source", [OSRandomness(), SimulationStreams(2).source("packed")])
@pytest.mark.parametrize("p", [0.0, 2.0**-62, 0.01, Fraction(1, 3), 0.5, 0.9999, 1.0])
def test_packed_random_bits_have_their_probability(source, p):
    rows, columns = 3000, 70
    coins = source.packed_bernoulli(p, rows, columns)
    assert coins.shape == (rows, 2)
    assert coins.dtype == np.uint64
    assert not np.any(coins[:, 1] >> np.uint64(6))
    bits = np.unpackbits(coins.view(np.uint8), axis=1, count=columns, bitorder="little")
    assert_binomial(int(bits.sum()), rows * columns, float(p))
    for column in range(columns):
        assert_binomial(int(bits[:, column].sum()), rows, float(p), 1e-11)
    # Neighbouring bits of a row or a column are independent.
    for pairs in (bits[:, :-1] & bits[:, 1:], bits[:-1] & bits[1:]):
        share = float(p) ** 2
        halves = pairs[::2, ::2]
        assert_binomial(int(halves.sum()), halves.size, share)


def test_random_bits_with_a_wrong_probability_are_rejected():
    source = SimulationStreams(3).source("wrong")
    count = int(np.bitwise_count(source.packed_bernoulli(0.27, 2000, 64)).sum())
    assert_rejects(
        lambda p: assert_binomial(count, 128_000, p),
        {"a bit too few": 0.25, "complement": 0.73, "one more in a hundred": 0.29},
    )


def test_packed_bits_of_the_default_source_have_their_exact_distribution():
    distribution = enumerate_outputs(
        lambda source: int(source.packed_bernoulli(Fraction(1, 4), 1, 3)[0, 0])
    )
    assert distribution == {
        number: Fraction(1, 4) ** number.bit_count() * Fraction(3, 4) ** (3 - number.bit_count())
        for number in range(8)
    }


@pytest.mark.parametrize("threshold", [0, 1, 2**47 - 1, 2**47, 3 * 2**47 + 5, 2**62 - 1, 2**62])
def test_a_bernoulli_draw_of_the_system_compares_62_bits_with_its_threshold(monkeypatch, threshold):
    # U = first·2⁴⁷ + rest, for values of both around the threshold.
    for u in sorted({0, 1, threshold - 1, threshold, threshold + 1, 2**62 - 1}):
        if not 0 <= u < 2**62:
            continue
        first, rest = divmod(u, 2**47)
        answers = {2**15: first, 2**47: rest}
        source = OSRandomness()
        below = lambda n, size, told=answers: np.full(size, told[n])  # noqa: E731
        monkeypatch.setattr(source, "below", below)
        coins = source.bernoulli(Fraction(threshold, 2**62), 3)
        assert coins.tolist() == [u < threshold] * 3


def test_packed_random_bits_accept_empty_sizes_and_probabilities_0_and_1():
    source = SimulationStreams(4).source("edges")
    assert source.packed_bernoulli(0.5, 0, 5).shape == (0, 1)
    full = source.packed_bernoulli(1.0, 2, 65)
    assert full.tolist() == [[2**64 - 1, 1], [2**64 - 1, 1]]
    for p, rows, columns in [(1.5, 1, 1), (0.5, -1, 1), (0.5, 1, 0)]:
        with pytest.raises(ParameterError):
            source.packed_bernoulli(p, rows, columns)
