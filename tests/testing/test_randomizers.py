"""Conformance suite of randomizers: those of the package pass, and mutants fail."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import pytest

from turnout.core.errors import UnsupportedError
from turnout.randomizers import (
    HadamardRandomizer,
    KaryRandomizedResponse,
    LaplaceRandomizer,
    LocalHashing,
    OneBitHadamard,
    SubsetSelection,
)
from turnout.randomizers.interface import all_mechanisms, mechanism, randomizer_within
from turnout.randomizers.vectors import BinaryVectorRandomizer, L1Randomizer, LInfRandomizer
from turnout.schemes import BoundedVariation, KaryResponse, NonAdaptiveRandomizer
from turnout.testing import assert_randomizer

ITEMS = [
    *(make(1.0, 4) for make in all_mechanisms().values()),
    KaryRandomizedResponse(3.0, 2),
    HadamardRandomizer(2.5, 4, blocks=2),
    OneBitHadamard(1.0, 3, public=True),
    LocalHashing(1.0, 3, public=True),
    SubsetSelection(2.0, 4, size=2),
]
BITS = [(0.0, 0.0), (0.0, 1.0), (1.0, 1.0)]
CORNERS = [(-1.0, -1.0), (-1.0, 1.0), (1.0, 1.0)]


@pytest.mark.parametrize("randomizer", ITEMS, ids=str)
def test_every_frequency_randomizer_passes_the_conformance_suite(randomizer):
    assert_randomizer(randomizer)


@pytest.mark.parametrize(
    ("randomizer", "values"),
    [
        (BinaryVectorRandomizer(2, 1.0), BITS),
        (BinaryVectorRandomizer(2, 2.0, samples=2), BITS),
        (LInfRandomizer(2, 2.0, levels=2), CORNERS),
        (LInfRandomizer(2, 2.0, levels=2, shared=False, shares=(1.5, 0.5)), CORNERS),
        (L1Randomizer(2, 1.0), [(1.0, 0.0), (0.0, -1.0), (0.0, 0.0)]),
    ],
    ids=lambda value: type(value).__name__,
)
def test_vector_randomizers_pass_the_conformance_suite(randomizer, values):
    assert_randomizer(randomizer, values)


class Response(KaryRandomizedResponse):
    """Randomized response with a replaceable claim, as the base of mutants."""


class WrongLevel(Response):
    @property
    def private_priced_as(self):
        return KaryResponse(0.9 * self.epsilon0, self.items)


class HiddenLevel(WrongLevel):
    @property
    def epsilon0(self):
        return 0.9 * super().epsilon0

    @property
    def private_priced_as(self):
        return NonAdaptiveRandomizer(self.epsilon0)


class WrongCategories(Response):
    @property
    def private_priced_as(self):
        return KaryResponse(self.epsilon0, 2 * self.items)


class WrongVariation(Response):
    @property
    def private_priced_as(self):
        return BoundedVariation(self.epsilon0, 0.5 * float(1 - self.blanket))


class BiasedDecoder(Response):
    @property
    def gain(self):
        return 1 - self.blanket / 2


class WrongError(Response):
    def mse_bound(self, clients):
        return 0.9 * super().mse_bound(clients)


class TooFewBits(Response):
    @property
    def message_bits(self):
        return super().message_bits - 1


class OtherBytes(Response):
    def unpack(self, data, n, questions=None):
        return super().unpack(data, n)[::-1]


class LongerBytes(Response):
    def pack(self, messages):
        return super().pack(messages) + b"\0"


class OtherSampler(Response):
    def encode(self, values, source, questions=None):
        return super().encode((values + 1) % self.items, source)


@dataclass(frozen=True)
class WrongSubset(SubsetSelection):
    """Mutant: half of the true total variation between two sets."""

    @property
    def priced_as(self):
        return randomizer_within(self.epsilon0, (self.own - self.other) * Fraction(1, 2))


@pytest.mark.parametrize(
    ("wrong", "match"),
    [
        (WrongLevel(1.0, 3), "in priced_as"),
        (HiddenLevel(1.0, 3), "has ε₀"),
        (WrongCategories(1.0, 3), "two shuffled messages"),
        (WrongVariation(1.0, 3), "one message at"),
        (WrongSubset(1.0, 4, size=2), "one message at"),
        (BiasedDecoder(1.0, 3), "the estimate of"),
        (WrongError(1.0, 3), "squared error"),
        (TooFewBits(1.0, 3), "do not fit"),
        (OtherBytes(1.0, 3), "does not return the packed"),
        (LongerBytes(1.0, 3), "bits: expected"),
        (OtherSampler(1.0, 3), "is sent with"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_mutated_randomizer_is_detected(wrong, match):
    with pytest.raises(AssertionError, match=match):
        assert_randomizer(wrong)


def test_randomizers_too_large_to_enumerate_are_refused():
    with pytest.raises(UnsupportedError):
        assert_randomizer(LaplaceRandomizer(1.0, 1.0), [0.0, 1.0])


def test_registering_a_randomizer_name_twice_is_refused():
    with pytest.raises(ValueError, match="no other mechanism"):
        mechanism("k-ary")(KaryRandomizedResponse)
