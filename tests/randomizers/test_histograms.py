"""Histograms of one client's messages: distinct bytes for each, in the fewest bits."""

from __future__ import annotations

import math
from itertools import combinations_with_replacement, permutations

import numpy as np
import pytest

from turnout.core.errors import ParameterError
from turnout.randomizers.packing import histogram_bits, pack_histogram, unpack_histogram
from turnout.randomizers.vectors import L1Randomizer, LInfRandomizer, SeededCode


@pytest.mark.parametrize(("values", "count"), [(1, 3), (2, 1), (2, 5), (5, 3), (4, 4), (300, 2)])
def test_message_histograms_are_numbered_without_gaps(values, count):
    histograms = list(combinations_with_replacement(range(values), count))
    packed = [pack_histogram(words, values) for words in histograms]
    numbers = {int.from_bytes(data, "little") for data in packed}
    assert numbers == set(range(math.comb(values + count - 1, count)))
    assert max(numbers).bit_length() <= histogram_bits(values, count)
    for words, data in zip(histograms, packed, strict=True):
        assert unpack_histogram(data, values, count) == list(words)


def test_packed_histograms_do_not_depend_on_the_order_of_messages():
    assert len({pack_histogram(words, 9) for words in permutations((7, 0, 3, 3))}) == 1


def test_bytes_that_encode_no_histogram_are_refused():
    # There are 35 histograms of 3 messages of 5 values; they fit one byte.
    for data in (b"", b"\0\0", bytes([35]), bytes([255])):
        with pytest.raises(ParameterError):
            unpack_histogram(data, 5, 3)
    for words in ((0, 5), (-1, 0)):
        with pytest.raises(ParameterError, match="from 0 to 4"):
            pack_histogram(words, 5)


@pytest.mark.parametrize("randomizer", [
    SeededCode(300, 2.0, 0.5), LInfRandomizer(300, 2.0, 0.5), L1Randomizer(300, 2.0, 0.5),
])  # fmt: skip
def test_unpacking_a_histogram_returns_the_sorted_messages(randomizer):
    generator = np.random.default_rng(1)
    messages = generator.integers(0, randomizer.radices, size=(6, len(randomizer.radices)))
    data = randomizer.pack_histogram(messages)
    bits = randomizer.histogram_bits(6)
    assert len(data) == math.ceil(bits / 8)
    assert bits < 6 * math.log2(math.prod(randomizer.radices)) - math.log2(math.factorial(6)) + 1.1
    back = randomizer.unpack_histogram(data, 6)
    assert sorted(map(tuple, back)) == sorted(map(tuple, messages))
    with pytest.raises(ParameterError, match="from 0 to"):
        randomizer.pack_histogram(np.array([[-1] * len(randomizer.radices)] * 2))
    assert randomizer.histogram_bits(1) == randomizer.message_bits
