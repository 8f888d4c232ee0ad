"""Theorems of the thesis on whole runs: never below the exact ε, and only within their range."""

from __future__ import annotations

import math

import pytest

import turnout as tn
from turnout.accounting.published.results import PrivacyPoint
from turnout.accounting.published.shuffled_training import (
    lemma_2_1_2,
    lemma_4_3_1,
    lemma_4_4_1,
    theorem_4_3_1,
    theorem_4_4_1,
    thesis_epsilons,
)
from turnout.core.errors import ParameterError, UnsupportedError
from turnout.schemes import (
    NonAdaptiveRandomizer,
    RepeatedMessages,
    SampledBitResponse,
    SelfSampling,
)

DELTA, CLIENTS = 1e-5, 60_000
LAWS = {
    "every step": (tn.EveryStep(240), {"Theorem 4.3.1", "Theorem 5.3.1"}),
    "cohorts": (tn.FixedSize(10_000, CLIENTS, 480), {"Theorem 4.3.1", "Theorem 5.4.1"}),
    "own coins": (SelfSampling(1 / 6, 480), {"Theorem 4.4.1"}),
}


def scheme(participation, randomizer=None, trust="shuffled"):
    randomizer = randomizer or SampledBitResponse(2.0)
    return tn.Scheme(randomizer, participation, "replace-one", trust=trust, population=CLIENTS)


@pytest.mark.parametrize("name", LAWS)
def test_theorems_on_a_run_are_above_the_exact_epsilon(name):
    participation, names = LAWS[name]
    found = thesis_epsilons(scheme(participation), DELTA)
    assert set(found) == names
    assert min(found.values()) > tn.price(scheme(participation), delta=DELTA).epsilon.upper


def test_theorems_on_runs_equal_the_composition_of_their_rounds():
    each = DELTA / 960
    point = PrivacyPoint(lemma_4_3_1(2.0, CLIENTS, 10_000, each), each)
    expected = lemma_2_1_2(point, 480, DELTA / 2)
    assert expected.delta == pytest.approx(DELTA)
    assert theorem_4_3_1(2.0, CLIENTS, 10_000, 480, DELTA) == pytest.approx(expected.epsilon, 1e-6)
    # By coins of 1/6, 2e²e^{−10000/12} is nothing, and a round's δ is q times the inner one.
    point = PrivacyPoint(lemma_4_4_1(2.0, CLIENTS, 1 / 6, 6 * each).epsilon, each)
    expected = lemma_2_1_2(point, 480, DELTA / 2)
    assert theorem_4_4_1(2.0, CLIENTS, 1 / 6, 480, DELTA) == pytest.approx(expected.epsilon, 1e-6)


@pytest.mark.parametrize(
    "participation", [tn.EveryStep(1), tn.FixedSize(1, 1, 3), SelfSampling(0.5, 2)]
)
def test_theorems_accept_rounds_whose_epsilon_is_zero(participation):
    alone = tn.Scheme(
        SampledBitResponse(1e-3), participation, "replace-one", trust="shuffled", population=1
    )
    for epsilon in thesis_epsilons(alone, 0.9).values():
        assert epsilon >= 0.0


def test_a_scheme_without_a_theorem_has_no_published_bound():
    participation = LAWS["every step"][0]
    several = RepeatedMessages.of(NonAdaptiveRandomizer(1.0), 3)
    assert thesis_epsilons(scheme(participation, several), DELTA) == {}
    assert thesis_epsilons(scheme(participation, trust="local"), DELTA) == {}
    few = tn.Scheme(
        SampledBitResponse(2.0), SelfSampling(0.1, 10), "replace-one", trust="shuffled",
        population=100,
    )  # fmt: skip
    assert thesis_epsilons(few, DELTA) == {}
    with pytest.raises(UnsupportedError, match=r"4\.4\.1 of the thesis proves nothing: 10 c"):
        theorem_4_4_1(2.0, 100, 0.1, 10, DELTA)
    for delta in (0.0, 1.0, math.nan):
        with pytest.raises(ParameterError, match="delta"):
            theorem_4_3_1(2.0, CLIENTS, 10_000, 480, delta)
