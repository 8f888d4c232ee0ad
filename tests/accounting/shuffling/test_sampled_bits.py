"""Sampled bits: the bound against all vectors of few clients, and against binary response."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from scipy.stats import binom
from shuffle_truths import pair_delta
from shuffle_worlds import hockey_stick, splits, worst

import turnout
from turnout.accounting.divergence.curves import Direction, Side
from turnout.accounting.shuffling.blanket import BlanketBlock, BlanketCurve
from turnout.accounting.shuffling.blanket_pairs import BlanketPair, third_value_pair, worst_pair
from turnout.accounting.shuffling.sampled_bits import (
    SampledBitsBlock,
    SampledBitsRound,
    Slots,
    flip_of,
)
from turnout.accounting.shuffling.sampled_rounds import SubsampledBlock
from turnout.accounting.shuffling.schemes import SelfSampledBits, SubsampledBits
from turnout.core.bounds import Bounds
from turnout.core.errors import ParameterError, UnsupportedError
from turnout.schemes import KaryResponse, NonAdaptiveRandomizer, SampledBitResponse

Words = Sequence[Sequence[float]]
SHARES = (0.0, 0.03, 0.15, 0.4, 0.7, 0.93)


def thresholds(epsilon0: float, rate: float = 1.0) -> list[float]:
    """K's between 1 and the last at which one message shows anything."""
    last = math.log1p(rate * math.expm1(epsilon0))
    return [math.exp(share * last) for share in SHARES]


def slot_law(words: Words, slots: int, epsilon0: float) -> np.ndarray:
    """The law of the bits of all slots, filled by different clients in uniform order."""
    p = flip_of(epsilon0)
    bits = np.array(list(itertools.product([0, 1], repeat=slots)))
    orders = list(itertools.permutations(range(len(words)), slots))
    total = np.zeros(len(bits))
    for order in orders:
        distribution = np.ones(len(bits))
        for slot, client in enumerate(order):
            one = p + (1 - 2 * p) * words[client][slot]
            distribution = distribution * np.where(bits[:, slot] == 1, one, 1 - one)
        total += distribution
    return total / len(orders)


def counted(words: Words, epsilon0: float) -> np.ndarray:
    """The law of the multiset of coordinates with bits, one message a client."""
    p, d = flip_of(epsilon0), len(words[0])
    found: dict[tuple[int, ...], float] = {(0,) * (2 * d): 1.0}
    for word in words:
        ones = [p + (1 - 2 * p) * mean for mean in word]
        chances = [chance / d for one in ones for chance in (1 - one, one)]
        grown: dict[tuple[int, ...], float] = {}
        for counts, mass in found.items():
            for value, chance in enumerate(chances):
                key = (*counts[:value], counts[value] + 1, *counts[value + 1 :])
                grown[key] = grown.get(key, 0.0) + mass * chance
        found = grown
    return np.array([found[key] for key in sorted(found)])


def exact_slots(slots: Slots, k: float) -> float:
    """(γ/N)·max E(S_j)₊, term by term."""
    p, n, f, rate = flip_of(slots.local_epsilon), slots.count, slots.flip, slots.rate
    a, b, c = (1 - p) - k * p, k * (1 - p) - p, (k - 1) * (1 - rate) / rate
    found = []
    for j in range(n + 1):
        of_one, of_zero = np.arange(j + 1)[:, None], np.arange(n - j + 1)[None, :]
        total = (j - of_one) * a / (1 - f) - of_one * b / f - n * c
        total = total + of_zero * a / f - (n - j - of_zero) * b / (1 - f)
        chance = binom.pmf(of_one, j, f) * binom.pmf(of_zero, n - j, f)
        found.append(float(np.sum(chance * np.maximum(total, 0.0))))
    return rate * max(found) / n


@pytest.mark.parametrize(
    "slots",
    [
        Slots(1.0, 1, 0.3, flip_of(1.0)),
        Slots(0.5, 8, 0.4, flip_of(0.5)),
        Slots(2.0, 9, 1.0, 0.6 * flip_of(2.0)),
        Slots(3.0, 40, 0.2, flip_of(3.0)),
        Slots(1.0, 60, 1.0, 0.8 * flip_of(1.0)),
    ],
)
def test_the_bound_of_one_coordinate_is_slightly_above_the_sum_over_all_bits(slots: Slots) -> None:
    for k in thresholds(slots.local_epsilon, slots.rate)[:-1]:
        exact = exact_slots(slots, k)
        assert exact * (1 - 1e-12) <= slots.delta(k) <= exact * 1.04


def test_the_bound_of_one_coordinate_is_close_to_the_maximum_over_splits() -> None:
    slots = Slots(2.0, 500, 0.3, flip_of(2.0))
    for k in (1.0, 1.02, 1.06):
        exact = exact_slots(slots, k)
        assert exact * (1 - 1e-12) <= slots.delta(k) <= exact * 1.05


@pytest.mark.parametrize(("population", "messages"), [(2, 1), (3, 2), (4, 2), (4, 3), (5, 3)])
def test_the_bound_for_a_subset_holds_for_all_bits_of_other_clients(
    population: int, messages: int
) -> None:
    draw = random.Random(7)
    opposite = [[1.0] * messages, [0.0] * messages]
    every = list(itertools.product([0.0, 1.0], repeat=messages))
    some = [[draw.choice(every) for _ in range(population - 1)] for _ in range(12)]
    alike = [[word] * (population - 1) for word in every]
    for epsilon0 in (0.4, 2.5):
        bound = SubsampledBits(epsilon0, messages, population)
        attained = dict.fromkeys(thresholds(epsilon0, messages / population), 0.0)
        for others in [*alike, *some]:
            for second in (opposite[1], draw.choice(every)):
                first_world = slot_law([opposite[0], *others], messages, epsilon0)
                second_world = slot_law([second, *others], messages, epsilon0)
                for k in attained:
                    delta = hockey_stick(first_world, second_world, k)
                    assert delta <= bound.delta(k) * (1 + 1e-9) + 1e-15
                    attained[k] = max(attained[k], delta)
        for k, delta in list(attained.items())[:-1]:  # all others alike attain it
            assert bound.delta(k) <= delta * 1.02


@pytest.mark.parametrize(("clients", "coordinates"), [(2, 3), (3, 2), (4, 2), (3, 3)])
def test_no_sampled_bits_of_few_clients_have_a_larger_delta_than_binary_response(
    clients: int, coordinates: int
) -> None:
    words = list(itertools.product([0.0, 1.0], repeat=coordinates))
    for epsilon0 in (0.7, 2.0):
        found = dict.fromkeys(thresholds(epsilon0), 0.0)
        for others in itertools.combinations_with_replacement(words, clients - 1):
            # Coordinates may be renamed and turned over: the victim's first word is all ones.
            one = counted([words[-1], *others], epsilon0)
            for second in {tuple(sorted(word)) for word in words}:
                other = counted([second, *others], epsilon0)
                for k in found:
                    found[k] = max(found[k], hockey_stick(one, other, k))
        for k, delta in found.items():
            binary = worst(splits(epsilon0, clients, range(clients)), math.log(k))
            assert delta == pytest.approx(binary, rel=1e-9)
            assert delta <= SampledBitsRound(epsilon0, clients).delta(k) * (1 + 1e-9)


def test_vectors_within_the_cube_have_no_larger_delta_than_its_corners() -> None:
    draw = np.random.default_rng(3)
    for k in thresholds(1.5):
        bound = worst(splits(1.5, 3, range(3)), math.log(k))
        for _ in range(10):
            first, second, *others = draw.random((4, 2)).tolist()
            one, other = (counted([x, *others], 1.5) for x in (first, second))
            assert hockey_stick(one, other, k) <= bound * (1 + 1e-12)


@pytest.mark.parametrize("part", [0.2, 0.6, 0.95])
def test_the_bound_with_neutral_messages_holds_for_all_bits_of_other_clients(part: float) -> None:
    clients, epsilon0 = 4, 1.2
    p = flip_of(epsilon0)
    g = part * p
    flip, made_up = (p - g) / (1 - 2 * g), binom.pmf(np.arange(clients), clients - 1, 2 * g)
    draw = random.Random(11)
    every = list(itertools.product([0.0, 1.0], repeat=clients))
    words = [[draw.choice(every) for _ in range(clients - 1)] for _ in range(25)]
    worlds = [
        [slot_law([[bit] * clients, *others], clients, epsilon0) for bit in (1.0, 0.0)]
        for others in words
    ]
    for k in thresholds(epsilon0):
        two_left, three_left = (exact_slots(Slots(epsilon0, n, 1.0, flip), k) for n in (2, 3))
        alone = Slots(epsilon0, 1, 1.0, 0.0).delta(k)
        none = min(alone, pair_delta(BlanketPair(1 - p, p, flip), clients, k))
        hidden = float(made_up @ [three_left + none, three_left, two_left, alone])
        bound = SampledBitsRound(epsilon0, clients).with_made_up(k, g, [1, 2])
        assert hidden * (1 - 1e-9) <= bound <= hidden * 1.01
        for one, other in worlds:
            assert hockey_stick(one, other, k) <= bound * (1 + 1e-12)


def test_a_bound_without_neutral_messages_is_too_small() -> None:
    truth = worst(splits(3.2, 24, [11, 12]), 0.001)
    assert Slots(3.2, 24, 1.0, flip_of(3.2)).delta(math.exp(0.001)) < 0.9 * truth
    assert SampledBitsRound(3.2, 24).delta(math.exp(0.001)) >= truth


def test_shuffled_ternary_response_has_a_larger_delta_than_sampled_bits() -> None:
    others_on_the_third = BlanketCurve(third_value_pair(3.0), 10_000, Side.LOWER)
    for epsilon in (0.02, 0.1, 0.15):
        k = math.exp(epsilon)
        assert float(others_on_the_third.delta(np.array(k))) > 1.2 * SampledBitsRound(
            3.0, 10_000
        ).delta(k)


@pytest.mark.parametrize(("epsilon0", "clients"), [(0.5, 100), (1.0, 10_000), (4.0, 30_000)])
def test_delta_of_all_clients_lies_between_binary_response_and_the_worst_pair(
    epsilon0: float, clients: int
) -> None:
    pair = BlanketCurve(worst_pair(epsilon0), clients, Side.UPPER)
    last = math.log(thresholds(epsilon0)[-1])
    for epsilon in (0.0, *np.geomspace(1e-3, last, 6)):
        k = math.exp(epsilon)
        bound = SampledBitsRound(epsilon0, clients).delta(k)
        assert bound <= float(pair.delta(np.array(k))) * (1 + 2e-3) + 1e-60
        ends = worst(splits(epsilon0, clients, [0, clients // 2, clients - 1]), epsilon)
        assert bound >= ends * (1 - 1e-9) - 1e-15


def test_the_bound_of_self_sampling_averages_over_the_number_of_messages() -> None:
    population, rate, epsilon0 = 30, 0.3, 1.0
    come = binom.pmf(np.arange(population), population, rate)
    for k in thresholds(epsilon0, rate)[:4]:
        exact = sum(
            float(come[n]) * SubsampledBits(epsilon0, n, population).delta(k)
            for n in range(1, population)
        )
        bound = SelfSampledBits(epsilon0, population, rate).delta(k)
        assert exact * (1 - 1e-9) <= bound <= exact * 1.2
        everybody = SelfSampledBits(epsilon0, population, 1.0).delta(k)
        assert everybody == pytest.approx(SampledBitsRound(epsilon0, population).delta(k), rel=1e-6)


def epsilons(randomizer: NonAdaptiveRandomizer, delta: float, **scheme: Any) -> Bounds:
    return turnout.price(turnout.shuffled(randomizer, **scheme), delta=delta).epsilon


@pytest.mark.parametrize(("epsilon0", "rounds", "most"), [(2.0, 480, 0.2896), (1.5, 1200, 0.3231)])
def test_sampled_bits_in_the_runs_of_the_thesis_have_the_epsilon_of_binary_response(
    epsilon0: float, rounds: int, most: float
) -> None:
    bits, binary = (
        epsilons(randomizer, 1e-5, clients=60_000, sampled=10_000, rounds=rounds)
        for randomizer in (SampledBitResponse(epsilon0), KaryResponse(epsilon0, 2))
    )
    assert bits == binary
    assert bits.lower < bits.upper < most
    assert bits.upper < 1.004 * bits.lower


@pytest.mark.parametrize(
    ("scheme", "ratio"),
    [
        ({"clients": 10_000, "rounds": 480}, 1.015),
        ({"clients": 100_000}, 1.002),
        ({"clients": 300}, 1.06),
        ({"clients": 60_000, "rate": 1 / 6}, 1.01),
        ({"clients": 3000, "rate": 0.5}, 1.03),
        ({"clients": 600, "sampled": 300}, 1.01),
    ],
)
def test_the_bracket_for_many_sampled_bits_is_narrow(
    scheme: dict[str, float], ratio: float
) -> None:
    found = epsilons(SampledBitResponse(2.0), 1e-5, **scheme)
    assert found.lower <= found.upper < ratio * found.lower


def test_sampled_bits_of_a_subset_have_a_smaller_delta_than_general_messages() -> None:
    base = BlanketBlock(worst_pair(2.0), 1000)
    general = SubsampledBlock(base, 0.1).curve(Direction.REMOVE, Side.UPPER, 1e-6, 0)
    for epsilon in (0.0, 0.005, 0.02, 0.05):
        k = math.exp(epsilon)
        assert SubsampledBits(2.0, 1000, 10_000).delta(k) <= float(general.delta(np.array(k)))


@pytest.mark.parametrize("epsilon0", [1e-6, 0.01, 20.0, 200.0, 700.0])
def test_extreme_parameters_give_finite_bounds(epsilon0: float) -> None:
    for bound in (
        SampledBitsRound(epsilon0, 1),
        SampledBitsRound(epsilon0, 1000),
        SubsampledBits(epsilon0, 10**6, 10**9),
        SelfSampledBits(epsilon0, 1000, 1e-4),
        SelfSampledBits(epsilon0, 10**7, 0.3),
    ):
        local = math.tanh(epsilon0 / 2)
        values = [bound.delta(1.0 + share * epsilon0) for share in (0.0, 1e-3, 0.1, 0.5)]
        assert all(0.0 <= value <= local * (1 + 1e-9) for value in values)
        assert values == sorted(values, reverse=True)
        assert bound.delta(math.exp(min(epsilon0 * (1 + 1e-9), 700.0))) == 0.0


def test_invalid_arguments_of_sampled_bits_are_refused() -> None:
    with pytest.raises(ParameterError, match="below population = 10"):
        SubsampledBits(1.0, 10, 10)
    with pytest.raises(ParameterError, match="rate"):
        SelfSampledBits(1.0, 10, 1.5)
    block = SampledBitsBlock(SampledBitsRound(1.0, 100))
    for call in (
        lambda: block.curves(Side.LOWER, 1e-6, 0),
        lambda: block.curve(Direction.ADD, Side.LOWER, 1e-6, 0),
    ):
        with pytest.raises(UnsupportedError, match="no lower bound"):
            call()
