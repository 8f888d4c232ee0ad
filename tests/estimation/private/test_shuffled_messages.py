"""Randomizers as parts of shuffled messages: exact parameters, and ε valid for small shuffles."""

from __future__ import annotations

import math
from collections import Counter
from functools import lru_cache
from itertools import combinations, combinations_with_replacement, permutations, product

import numpy as np
import pytest

from turnout.accounting import shuffled_method, shuffled_price
from turnout.accounting.shuffling import clones_2021
from turnout.core.errors import UnsupportedError
from turnout.randomizers import (
    HadamardRandomizer,
    KaryRandomizedResponse,
    LocalHashing,
    OneBitHadamard,
    SubsetSelection,
)
from turnout.randomizers.interface import all_mechanisms
from turnout.randomizers.vectors import (
    BinaryVectorRandomizer,
    L1Randomizer,
    L2Randomizer,
    LInfRandomizer,
    SphericalCode,
)
from turnout.randomizers.vectors.interface import opposite_words_apart
from turnout.schemes import (
    BoundedVariation,
    KaryResponse,
    NonAdaptiveRandomizer,
    PureRandomizer,
    SampledBitResponse,
)
from turnout.schemes import HadamardResponse as AnyHadamardResponse

FREQUENCIES = [
    *(
        make(level, items)
        for make in all_mechanisms().values()
        for items in (2, 3, 4)
        for level in (1.0,)
    ),
    KaryRandomizedResponse(2.5, 3),
    HadamardRandomizer(2.5, 4, blocks=2),
    HadamardRandomizer(1.5, 3, blocks=1),
    LocalHashing(1.5, 3, cells=3),
    SubsetSelection(2.0, 4, size=2),
]
VECTORS = [
    L1Randomizer(1, 1.0),
    L1Randomizer(2, 2.0),
    BinaryVectorRandomizer(2, 1.0),
    BinaryVectorRandomizer(3, 2.0, samples=2),
    LInfRandomizer(1, 2.0, levels=3),
    LInfRandomizer(2, 1.5, samples=2, levels=2),
    LInfRandomizer(2, 2.0, samples=1, levels=2, shared=False, shares=(1.5, 0.5)),
]


def name_of(randomizer):
    return (
        f"{type(randomizer).__name__}-{getattr(randomizer, 'items', '')}-{randomizer.epsilon0:.2g}"
    )


@lru_cache(maxsize=64)
def distributions_of(randomizer):
    """Distribution of one message under each record; indistinguishable messages are merged."""
    if hasattr(randomizer, "items"):
        rows = [
            [float(chance) for chance in randomizer.probabilities(item)]
            for item in range(randomizer.items)
        ]
    else:
        ends = (0.0, 1.0) if isinstance(randomizer, BinaryVectorRandomizer) else (-1.0, 0.3, 1.0)
        records = list(product(ends, repeat=randomizer.dimension))
        if isinstance(randomizer, L1Randomizer):
            units = np.eye(randomizer.dimension)
            records = [*units, *-units]
        rows = [randomizer.probabilities(np.array(record)) for record in records]
    columns = Counter(tuple(np.round(column, 14)) for column in np.array(rows).T)
    sent = {column: count for column, count in columns.items() if any(column)}
    return np.array([[mass * count for mass in column] for column, count in sent.items()]).T


def added(distribution, message):
    """Distribution of the counts of each message, with one message added."""
    total = Counter()
    for counts, chance in distribution.items():
        for value, own in enumerate(message):
            if own:
                total[(*counts[:value], counts[value] + 1, *counts[value + 1 :])] += chance * own
    return total


def true_delta(distributions, clients, epsilon):
    """Largest δ over all records of all clients, by enumeration of events."""
    found, k = 0.0, math.exp(epsilon)
    for held in combinations_with_replacement(range(len(distributions)), clients - 1):
        others = {(0,) * distributions.shape[1]: 1.0}
        for record in held:
            others = added(others, distributions[record])
        views = [added(others, distribution) for distribution in distributions]
        for one, other in permutations(views, 2):
            found = max(found, sum(max(p - k * other[event], 0.0) for event, p in one.items()))
    return found


@pytest.mark.parametrize("randomizer", FREQUENCIES + VECTORS, ids=name_of)
def test_total_variation_and_epsilon0_agree_with_enumeration(randomizer):
    distributions, priced = distributions_of(randomizer), randomizer.priced_as
    apart = max(0.5 * np.abs(a - b).sum() for a, b in combinations(distributions, 2))
    ratio = max(np.max(a / b) for a, b in permutations(distributions, 2))
    assert priced.epsilon0 == pytest.approx(math.log(ratio), abs=1e-9)
    e = math.exp(priced.epsilon0)
    said = {
        BoundedVariation: getattr(priced, "total_variation", 1.0),
        KaryResponse: (e - 1) / (e + getattr(priced, "categories", 2) - 1),
        AnyHadamardResponse: 0.5 * (e - 1) / (e + 1),
        SampledBitResponse: (e - 1) / (e + 1),
    }[type(priced)]
    assert apart <= said + 1e-12
    # Tight, except for the records that a vector can hold and for hashes that collide.
    assert said == pytest.approx(apart, rel=1e-6)


@pytest.mark.parametrize(
    ("randomizer", "clients"),
    [
        *((each, clients) for each in FREQUENCIES for clients in (2, 3)),
        *((each, 2) for each in VECTORS),
        *((each, 4) for each in VECTORS if distributions_of(each).size <= 16),
    ],
    ids=lambda value: value if isinstance(value, int) else name_of(value),
)
def test_epsilon_of_small_shuffles_is_not_below_the_enumerated_epsilon(randomizer, clients):
    for delta in (0.02, 0.2):
        price = shuffled_price([(randomizer.priced_as, 1)], clients, delta)
        assert price <= clones_2021(randomizer.epsilon0, clients, delta) * (1 + 1e-9)
        assert true_delta(distributions_of(randomizer), clients, price) <= delta * (1 + 1e-9)


@pytest.mark.parametrize(
    ("randomizer", "wrong"),
    [
        (KaryRandomizedResponse(1.0, 3), KaryResponse(1.0, 6)),
        (KaryRandomizedResponse(1.0, 2), AnyHadamardResponse(1.0)),
        (HadamardRandomizer(2.5, 4, blocks=2), AnyHadamardResponse(2.5)),
        (OneBitHadamard(1.0, 4), KaryResponse(1.0, 8)),
    ],
    ids=["fewer categories", "one bit", "two blocks", "bits of rows"],
)
def test_computing_epsilon_for_another_randomizer_is_detected(randomizer, wrong):
    distributions, broken = distributions_of(randomizer), []
    for delta in (0.02, 0.05, 0.1, 0.2):
        price = shuffled_price([(wrong, 1)], 3, delta)
        broken.append(true_delta(distributions, 3, price) > delta * (1 + 1e-9))
    assert any(broken)


def test_epsilon_of_separate_shufflers_is_not_below_the_enumerated_epsilon():
    """Two of three bits of a vector: one of a group of two, and one that is always sampled."""
    randomizer, clients, delta = BinaryVectorRandomizer(3, 3.0, samples=2), 3, 0.05
    (p,) = randomizer.flips
    told = np.array([[1 - p, p], [p, 1 - p]])
    pair = {(a, b): 0.5 * np.concatenate([told[a], told[b]]) for a in (0, 1) for b in (0, 1)}
    words = [(pair[a, b], told[c]) for a, b, c in product((0, 1), repeat=3)]

    def seen(senders):
        """Outputs of both shufflers, flattened."""
        found = np.ones(1)
        for word in (0, 1):
            distribution = {(0,) * len(words[0][word]): 1.0}
            for sender in senders:
                distribution = added(distribution, words[sender][word])
            found = np.outer(
                found, [distribution[counts] for counts in sorted(distribution)]
            ).ravel()
        return found

    price = shuffled_price(randomizer.shuffled_as, clients, delta)
    alone = shuffled_price(randomizer.shuffled_as[:1], clients, delta)
    true = {price: 0.0, alone: 0.0}
    for others in combinations_with_replacement(range(8), clients - 1):
        views = [seen((*others, sender)) for sender in range(8)]
        for epsilon, (one, other) in product(true, permutations(views, 2)):
            gains = np.maximum(one - math.exp(epsilon) * other, 0)
            true[epsilon] = max(true[epsilon], float(gains.sum()))
    assert true[price] <= delta * (1 + 1e-9)
    assert true[alone] > delta  # a price that omits a word is noticed


def test_computing_epsilon_with_half_of_the_total_variation_is_detected():
    randomizer = SubsetSelection(2.0, 3, size=1)
    priced = randomizer.priced_as
    assert isinstance(priced, BoundedVariation)
    half = BoundedVariation(priced.epsilon0, 0.5 * priced.total_variation)
    for delta in (0.1, 0.2):
        assert (
            true_delta(distributions_of(randomizer), 3, shuffled_price([(half, 1)], 3, delta))
            > delta
        )


def test_epsilon_is_smaller_if_the_distribution_of_messages_is_known():
    n, delta = 100_000, 1e-6
    anybody = clones_2021(3.0, n, delta)
    fixed = shuffled_price([(NonAdaptiveRandomizer(3.0), 1)], n, delta)
    assert fixed < 0.75 * anybody
    for name, make in all_mechanisms().items():
        own = shuffled_price([(make(3.0, 1000).priced_as, 1)], n, delta)
        assert own < 0.84 * fixed, name
    # About the part of ε₀ that χ² = 2(e − 1)²α gives.
    k, e = 1000, math.exp(3.0)
    kary = shuffled_price([(KaryRandomizedResponse(3.0, k).priced_as, 1)], n, delta)
    assert kary / fixed == pytest.approx(math.sqrt((e + 1) / (e + k - 1)), rel=0.2)


def test_shuffled_as_lists_the_parts_of_a_message_with_their_epsilon0():
    def kinds(randomizer):
        return [
            (type(priced), round(priced.epsilon0, 6), count)
            for priced, count in randomizer.shuffled_as
        ]

    # A number's bits, of which the last two have equal weight; and groups of one and of two.
    assert kinds(LInfRandomizer(1, 3.0, levels=3, shared=False, shares=(1.5, 0.75, 0.75))) == [
        (KaryResponse, 1.5, 1),
        (KaryResponse, 0.75, 2),
    ]
    assert kinds(BinaryVectorRandomizer(3, 2.0, samples=2)) == [
        (SampledBitResponse, 1.0, 1),
        (KaryResponse, 1.0, 1),
    ]
    assert kinds(L1Randomizer(4, 2.0)) == [(SampledBitResponse, 2.0, 1)]
    assert kinds(L1Randomizer(1, 2.0)) == [(KaryResponse, 2.0, 1)]
    rotated = L2Randomizer.kashin(3, 2.0, samples=2, width=6)
    assert kinds(rotated) == kinds(rotated.inner) == [(SampledBitResponse, 1.0, 2)]
    # Both bits of a coordinate in one message have the sum of their ε₀, but less total variation.
    ((together, count),) = LInfRandomizer(4, 3.0, samples=2, levels=2).shuffled_as
    assert (together.epsilon0, count) == (pytest.approx(1.5), 2)
    assert isinstance(together, BoundedVariation)
    assert together.total_variation < math.tanh(0.75)


def test_the_total_variation_of_bit_words_is_exact_for_few_bits_and_set_to_1_for_many():
    assert opposite_words_apart((0.3,), 501) == 1.0
    assert opposite_words_apart(tuple(np.linspace(0.1, 0.4, 10).tolist()), 5) == 1.0
    (p,) = BinaryVectorRandomizer(9, 2.0, samples=9).flips
    ones = [math.comb(9, j) * (1 - p) ** j * p ** (9 - j) for j in range(10)]
    truth = 0.5 * sum(abs(a - b) for a, b in zip(ones, ones[::-1], strict=True))
    assert opposite_words_apart((p,), 9) == pytest.approx(truth, rel=1e-9)
    assert opposite_words_apart((p,), 9) >= truth


@pytest.mark.parametrize(
    "randomizer",
    [
        OneBitHadamard(1.0, 8, public=True),
        LocalHashing(1.0, 8, public=True),
        L1Randomizer(4, 1.0, public_seed=1),
        BinaryVectorRandomizer(4, 1.0, public_seed=1),
        SphericalCode(5, 1.0),
    ],
    ids=lambda randomizer: type(randomizer).__name__,
)
def test_messages_with_public_randomness_are_refused_in_a_shuffle(randomizer):
    assert randomizer.priced_as == PureRandomizer(randomizer.epsilon0)
    parts = [(randomizer.priced_as, 1)]
    for asked in (lambda: shuffled_price(parts, 10, 1e-3), lambda: shuffled_method(parts)):
        with pytest.raises(UnsupportedError, match="public randomness would show which client"):
            asked()
    # A single question for all clients identifies no client.
    assert KaryRandomizedResponse(1.0, 4, public=True).priced_as == KaryResponse(1.0, 4)
