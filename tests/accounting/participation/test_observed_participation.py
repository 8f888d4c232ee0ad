"""Messages that are visible with their senders, against exact sums over all outcomes."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from turnout.accounting import price
from turnout.accounting.divergence.blocks import PairBlock
from turnout.accounting.divergence.curves import Direction, Side
from turnout.accounting.divergence.pairs import PurePair
from turnout.accounting.participation.neighbours import ObservedBlock
from turnout.core.errors import UnsupportedError
from turnout.schemes import (
    CheckIn,
    EveryStep,
    FixedAssignment,
    FixedSize,
    GaussianNoise,
    KaryResponse,
    KSubset,
    PoissonSampling,
    PureRandomizer,
    Randomizer,
    Relation,
    ReleaseRule,
    SampledBitResponse,
    Scheme,
    SelfSampling,
    TrustModel,
)
from turnout.schemes.registry import Participation


def local(
    participation: Participation,
    randomizer: Randomizer | None = None,
    relation: Relation = Relation.REPLACE_ONE,
    release: ReleaseRule = ReleaseRule.AGGREGATED,
) -> Scheme:
    chosen = randomizer or PureRandomizer(0.7)
    return Scheme(chosen, participation, relation, release, trust=TrustModel.LOCAL)


def outcomes(rate: float, epsilon0: float) -> np.ndarray:
    """One round of binary response in two worlds: no message, the likely bit, the other."""
    likely = rate * math.exp(epsilon0) / (1 + math.exp(epsilon0))
    return np.array([[1 - rate, 1 - rate], [likely, rate - likely], [rate - likely, likely]])


def exact_delta(rounds: list[np.ndarray], epsilon: float) -> float:
    """δ of independent rounds, summed over all their outcomes."""
    total = 0.0
    for one in itertools.product(*rounds):
        first, second = np.prod(one, axis=0)
        total += max(first - math.exp(epsilon) * second, 0.0)
    return total


ROUNDS = {
    "every step": (EveryStep(5), [outcomes(1.0, 0.7)] * 5),
    "coins": (SelfSampling(0.3, 6), [outcomes(0.3, 0.7)] * 6),
    "cohorts": (FixedSize(2, 5, 6), [outcomes(0.4, 0.7)] * 6),
    "windows": (CheckIn(window=4, windows=5, probability=0.6), [outcomes(0.6, 0.7)] * 5),
    "subsets": (KSubset(window=4, picks=2, windows=3), [outcomes(1.0, 0.7)] * 6),
}


@pytest.mark.parametrize("name", ROUNDS)
def test_the_bracket_contains_epsilon_computed_by_summation_over_all_outcomes(name):
    participation, rounds = ROUNDS[name]
    epsilon = price(local(participation), 1e-3).epsilon
    assert exact_delta(rounds, epsilon.upper) <= 1e-3 * (1 + 1e-9)
    assert exact_delta(rounds, epsilon.lower * (1 - 1e-6)) >= 1e-3 * (1 - 1e-9)
    # Negative control: a tenth less is not enough.
    assert exact_delta(rounds, 0.9 * epsilon.lower) > 1e-3


def test_sampling_does_not_amplify_privacy_if_senders_are_visible():
    """Poisson sampling by a trusted coordinator has a smaller ε than visible self-sampling."""
    hidden = Scheme(PureRandomizer(0.7), PoissonSampling(0.3, 6), Relation.ZERO_OUT)
    observed = local(SelfSampling(0.3, 6), relation=Relation.ZERO_OUT)
    assert price(hidden, 1e-4).epsilon.upper < 0.8 * price(observed, 1e-4).epsilon.lower


def test_delta_of_an_observed_step_is_the_rate_times_delta_of_a_message():
    k = np.array([1.0, 1.2, 1.5, 1.9])
    one = PairBlock(PurePair(0.7))
    observed = ObservedBlock(one, 0.25)
    whole = ObservedBlock(one, 1.0).curve(Direction.ADD, Side.UPPER, 1e-3, 0)
    part = observed.curve(Direction.ADD, Side.UPPER, 1e-3, 0)
    assert part.delta(k) == pytest.approx(0.25 * whole.delta(k))
    assert part.slope(k) == pytest.approx(0.25 * whole.slope(k))


def test_a_randomizer_without_attained_worst_case_has_lower_bound_zero():
    worst, five, bit = (
        price(local(EveryStep(3), randomizer), 1e-3).epsilon
        for randomizer in (PureRandomizer(0.7), KaryResponse(0.7, 5), SampledBitResponse(0.7))
    )
    assert five.upper == pytest.approx(worst.upper, rel=3e-3)
    assert five.lower == 0.0
    assert bit.lower == pytest.approx(worst.lower, rel=3e-3)


def test_gaussian_messages_compose_to_one_message_with_less_noise():
    found = price(local(EveryStep(16), GaussianNoise(8.0)), 1e-5).epsilon
    once = price(Scheme(GaussianNoise(1.0), EveryStep(1), Relation.ADD_REMOVE), 1e-5).epsilon
    assert found.lower <= once.upper * (1 + 1e-9)
    assert once.lower <= found.upper * (1 + 1e-9)


@pytest.mark.parametrize(
    ("scheme", "line"),
    [
        (local(EveryStep(2), relation=Relation.ADD_REMOVE), "no analysis under add-remove"),
        (local(EveryStep(2), release=ReleaseRule.AVERAGED), "under local trust"),
        (local(FixedAssignment(2, 2)), "is not known for the draw Kept"),
    ],
    ids=str,
)
def test_local_schemes_without_an_analysis_are_refused(scheme, line):
    with pytest.raises(UnsupportedError, match=line):
        price(scheme, 1e-3)
