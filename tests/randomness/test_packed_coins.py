"""Packed coins: the law exactly, by showing every sequence of bits to one coin each."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from turnout.core.errors import ParameterError
from turnout.randomness import OSRandomness, SimulationStreams
from turnout.randomness import packed_coins as packed
from turnout.testing import assert_binomial, assert_rejects_law, enumerate_law

BITS = 14
NUMBERS = np.arange(2**BITS) * 9_973 % 2**BITS
"""U of each coin: every number once, those that start alike far apart."""


@pytest.mark.parametrize("chunk", [16, 2**14])
@pytest.mark.parametrize("threshold", [0, 1, 2, 3, 275, 8191, 8192, 8193, 10_001, 16_383, 16_384])
def test_a_coin_is_true_for_exactly_the_numbers_below_the_threshold(monkeypatch, threshold, chunk):
    monkeypatch.setattr(packed, "_CHUNK", chunk)
    queue: list[np.ndarray] = []
    read = [0]

    def level(count: int) -> None:
        """The words of the next ``count`` bits, chunk by chunk, for the coins still open."""
        open_coins = NUMBERS >> (BITS - read[0]) == threshold >> (BITS - read[0])
        words = np.flatnonzero(open_coins.reshape(-1, 64).any(axis=1))
        for start in range(0, len(words), chunk):
            for place in range(read[0], read[0] + count):
                bits = (NUMBERS >> (BITS - 1 - place) & 1).astype(bool)
                plane = np.packbits(bits, bitorder="little").view("<u8")
                queue.append(~plane[words[start : start + chunk]])  # A 1 where U has a 0.
        read[0] += count

    def words(size):
        if not queue:
            level(min(8 if read[0] == 0 else 3, left - read[0]))
        drawn = queue.pop(0)
        assert len(drawn) == size
        return drawn

    left = BITS - ((threshold & -threshold).bit_length() - 1)
    coins = packed.packed_coins(words, threshold, BITS, 2**BITS // 64)
    found = np.unpackbits(coins.view(np.uint8), bitorder="little")
    assert np.array_equal(found, threshold > NUMBERS)


@pytest.mark.parametrize("source", [OSRandomness(), SimulationStreams(2).source("packed")])
@pytest.mark.parametrize("p", [0.0, 2.0**-62, 0.01, Fraction(1, 3), 0.5, 0.9999, 1.0])
def test_packed_coins_have_their_probability(source, p):
    rows, columns = 3000, 70
    coins = source.packed_bernoulli(p, rows, columns)
    assert coins.shape == (rows, 2)
    assert coins.dtype == np.uint64
    assert not np.any(coins[:, 1] >> np.uint64(6))
    bits = np.unpackbits(coins.view(np.uint8), axis=1, count=columns, bitorder="little")
    assert_binomial(int(bits.sum()), rows * columns, float(p))
    for column in range(columns):
        assert_binomial(int(bits[:, column].sum()), rows, float(p), 1e-11)
    # Neighbours, rows and columns alike, are independent.
    for pairs in (bits[:, :-1] & bits[:, 1:], bits[:-1] & bits[1:]):
        share = float(p) ** 2
        halves = pairs[::2, ::2]
        assert_binomial(int(halves.sum()), halves.size, share)


def test_wrong_coins_are_rejected():
    source = SimulationStreams(3).source("wrong")
    count = int(np.bitwise_count(source.packed_bernoulli(0.27, 2000, 64)).sum())
    assert_rejects_law(
        lambda p: assert_binomial(count, 128_000, p),
        {"a bit too few": 0.25, "complement": 0.73, "one more in a hundred": 0.29},
    )


def test_a_source_without_words_packs_its_coins():
    law = enumerate_law(lambda source: int(source.packed_bernoulli(Fraction(1, 4), 1, 3)[0, 0]))
    assert law == {
        number: Fraction(1, 4) ** number.bit_count() * Fraction(3, 4) ** (3 - number.bit_count())
        for number in range(8)
    }


def test_packed_coins_at_the_edges():
    source = SimulationStreams(4).source("edges")
    assert source.packed_bernoulli(0.5, 0, 5).shape == (0, 1)
    full = source.packed_bernoulli(1.0, 2, 65)
    assert full.tolist() == [[2**64 - 1, 1], [2**64 - 1, 1]]
    for p, rows, columns in [(1.5, 1, 1), (0.5, -1, 1), (0.5, 1, 0)]:
        with pytest.raises(ParameterError):
            source.packed_bernoulli(p, rows, columns)
