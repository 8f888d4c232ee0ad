"""Packed coins: the law exactly, by showing every sequence of bits to one coin each."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from turnout.core.errors import ParameterError
from turnout.randomness import OSRandomness, SimulationStreams
from turnout.randomness.packed_coins import packed_coins
from turnout.testing import assert_binomial, assert_rejects_law, enumerate_law

BITS = 10


def every_number(size: int = 2**BITS // 64):
    """Words in which coin c sees the bits of the number c, highest first."""
    numbers = np.arange(64 * size)
    return [
        np.packbits((numbers >> place & 1).astype(bool), bitorder="little").view("<u8")
        for place in range(BITS - 1, -1, -1)
    ]


@pytest.mark.parametrize("threshold", [0, 1, 2, 3, 275, 511, 512, 513, 1000, 1023, 1024])
def test_a_coin_is_true_for_exactly_the_numbers_below_the_threshold(threshold):
    planes = iter(every_number())
    # With every coin's open places known beforehand, the words that are left can be told.
    alive = np.arange(2**BITS // 64)
    seen = []

    def words(size):
        nonlocal alive
        plane = next(planes)
        if size != len(alive):
            place = len(seen)
            numbers = np.arange(2**BITS)
            undecided = (numbers >> (BITS - place)) == (threshold >> (BITS - place))
            alive = np.flatnonzero(undecided.reshape(-1, 64).any(axis=1))
            assert size == len(alive)
        seen.append(size)
        return plane[alive].copy()

    coins = packed_coins(words, threshold, BITS, 2**BITS // 64)
    found = np.unpackbits(coins.view(np.uint8), bitorder="little")
    assert np.array_equal(found, np.arange(2**BITS) < threshold)


@pytest.mark.parametrize("source", [OSRandomness(), SimulationStreams(2).source("packed")])
@pytest.mark.parametrize("p", [0.0, 2.0**-62, 0.01, Fraction(1, 3), 0.5, 0.9999, 1.0])
def test_packed_coins_have_their_probability(source, p):
    rows, columns = 3000, 70
    packed = source.packed_bernoulli(p, rows, columns)
    assert packed.shape == (rows, 2)
    assert packed.dtype == np.uint64
    assert not np.any(packed[:, 1] >> np.uint64(6))
    bits = np.unpackbits(packed.view(np.uint8), axis=1, count=columns, bitorder="little")
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
