"""Several messages of a client in a step, against sums over all outcomes at small sizes."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from turnout.accounting import price
from turnout.accounting.divergence.curves import Direction, Side
from turnout.accounting.shuffling.messages import one_round
from turnout.core.errors import ParameterError
from turnout.schemes import (
    AttainedVariation,
    BoundedVariation,
    CheckIn,
    EveryStep,
    FixedSize,
    KaryResponse,
    NonAdaptiveRandomizer,
    RepeatedMessages,
    SampledBitResponse,
    Scheme,
    SelfSampling,
)

LEVEL, MESSAGES = 1.2, 2
BIT = KaryResponse(LEVEL, 2)


def scheme(randomizer, participation, clients, trust="shuffled"):
    return Scheme(randomizer, participation, "replace-one", trust=trust, population=clients)


def counts_law(bits):
    """The law of the number of true answers of clients with these bits."""
    distribution = np.array([1.0])
    for bit in bits:
        truth = math.exp(LEVEL) / (1 + math.exp(LEVEL))
        yes = truth if bit else 1 - truth
        distribution = np.convolve(distribution, [1 - yes, yes])
    return distribution


def round_law(bits, samples, messages=MESSAGES):
    """All outcomes of one step: who is sampled is hidden, how many are is seen."""
    outcomes: dict[tuple[int, ...], float] = {}
    for chance, chosen in samples:
        one = counts_law([bits[i] for i in chosen])
        for counts in itertools.product(range(one.size), repeat=messages):
            key = (len(chosen), *counts)
            mass = chance * math.prod(one[c] for c in counts)
            outcomes[key] = outcomes.get(key, 0.0) + mass
    return outcomes


def delta_of(bits, samples, epsilon, messages=MESSAGES):
    """δ between the first client's two bits, the larger direction."""
    one = round_law((0, *bits), samples, messages)
    other = round_law((1, *bits), samples, messages)
    above = [
        sum(max(p[key] - math.exp(epsilon) * q[key], 0.0) for key in p)
        for p, q in ((one, other), (other, one))
    ]
    return max(above)


def cohorts(clients, size):
    chosen = list(itertools.combinations(range(clients), size))
    return [(1 / len(chosen), each) for each in chosen]


def coins(clients, rate):
    return [
        (rate ** len(each) * (1 - rate) ** (clients - len(each)), each)
        for size in range(clients + 1)
        for each in itertools.combinations(range(clients), size)
    ]


STEPS = {
    "every step": (EveryStep(1), 4, cohorts(4, 4)),
    "cohorts": (FixedSize(2, 4, 1), 4, cohorts(4, 2)),
    "coins": (SelfSampling(0.4, 1), 4, coins(4, 0.4)),
}


@pytest.mark.parametrize("name", STEPS)
@pytest.mark.parametrize("delta", [0.02, 1e-3])
def test_the_bound_for_several_messages_is_above_every_enumerated_epsilon(name, delta):
    participation, clients, samples = STEPS[name]
    found = price(scheme(RepeatedMessages.of(BIT, MESSAGES), participation, clients), delta).epsilon
    exact = [delta_of(bits, samples, found.upper) for bits in itertools.product((0, 1), repeat=3)]
    assert max(exact) <= delta * (1 + 1e-6)
    least = [
        delta_of(bits, samples, found.lower * (1 - 1e-6))
        for bits in itertools.product((0, 1), repeat=3)
    ]
    assert found.lower > 0
    assert max(least) >= delta * (1 - 1e-6)


@pytest.mark.parametrize("name", ["cohorts", "coins"])
def test_one_shared_sample_has_a_larger_epsilon_than_separate_samples(name):
    """Negative control: a bound with a new sample for each message would be too small."""
    _, clients, samples = STEPS[name]
    afresh = FixedSize(2, 4, 2) if name == "cohorts" else SelfSampling(0.4, 2)
    found = price(scheme(BIT, afresh, clients), 1e-3).epsilon.upper
    exact = [delta_of(bits, samples, found) for bits in itertools.product((0, 1), repeat=3)]
    assert max(exact) > 1e-3 * (1 + 1e-3)


@pytest.mark.parametrize(
    "each",
    [BIT, SampledBitResponse(LEVEL), AttainedVariation(LEVEL, 0.3), BoundedVariation(LEVEL, 0.3)],
    ids=lambda each: type(each).__name__,
)
def test_several_messages_equal_as_many_rounds_at_full_participation(each):
    several = price(scheme(RepeatedMessages.of(each, 3), EveryStep(4), 500), 1e-5)
    rounds = price(scheme(each, EveryStep(12), 500), 1e-5)
    assert several.epsilon == rounds.epsilon


def test_epsilon_of_three_messages_lies_between_those_of_one_message_and_of_triple_epsilon0():
    participation, several = (
        FixedSize(300, 1500, 10),
        RepeatedMessages.of(NonAdaptiveRandomizer(0.5), 3),
    )
    one, three, answer = (
        price(scheme(randomizer, participation, 1500), 1e-5).epsilon
        for randomizer in (several.each, several, NonAdaptiveRandomizer(1.5))
    )
    assert one.upper < 0.7 * three.upper
    assert three.upper < 0.8 * answer.upper
    assert 0 < three.lower <= three.upper


def test_self_sampling_has_slightly_more_epsilon_than_a_subset_of_the_mean_size():
    several = RepeatedMessages.of(SampledBitResponse(LEVEL), 2)
    coins_ = price(scheme(several, SelfSampling(0.2, 5), 5000), 1e-5).epsilon
    cohort = price(scheme(several, FixedSize(1000, 5000, 5), 5000), 1e-5).epsilon
    assert cohort.lower < coins_.upper < 1.05 * cohort.upper


def test_two_messages_of_an_observed_step_agree_with_enumeration():
    """Two messages in a step in which the client participates with probability 0.6."""
    participation = CheckIn(window=4, windows=2, probability=0.6)
    found = price(
        scheme(RepeatedMessages.of(BIT, 2), participation, None, trust="local"), 1e-2
    ).epsilon
    true = math.exp(LEVEL) / (1 + math.exp(LEVEL))
    step: dict[tuple[int, ...], tuple[float, float]] = {(): (0.4, 0.4)}
    for answers in itertools.product((0, 1), repeat=2):
        ones = sum(answers)
        p = true**ones * (1 - true) ** (2 - ones)
        q = (1 - true) ** ones * true ** (2 - ones)
        step[answers] = (0.6 * p, 0.6 * q)

    def exact(epsilon):
        return sum(
            max(a[0] * b[0] - math.exp(epsilon) * a[1] * b[1], 0.0)
            for a, b in itertools.product(step.values(), repeat=2)
        )

    assert exact(found.upper) <= 1e-2 * (1 + 1e-6)
    assert exact(found.lower * (1 - 1e-6)) >= 1e-2 * (1 - 1e-6)
    assert exact(0.95 * found.lower) > 1e-2


def test_a_repeated_message_with_count_one_equals_a_single_message():
    once = one_round(RepeatedMessages.of(BIT, 1), 50)
    assert once.upper.curve(Direction.REMOVE, Side.UPPER, 1e-3, 0) == one_round(
        BIT, 50
    ).upper.curve(Direction.REMOVE, Side.UPPER, 1e-3, 0)


def test_invalid_message_counts_are_refused():
    with pytest.raises(ParameterError, match="epsilon0"):
        RepeatedMessages(1.0, BIT, 2)
    with pytest.raises(ParameterError, match="each"):
        RepeatedMessages.of(RepeatedMessages.of(BIT, 2), 2)
