"""Schemes of shuffled messages in ledgers: JSON, composed ε, and refused mixtures."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from turnout.accounting import epsilon_upper
from turnout.accounting.budgets.plan import BudgetTerms, Ledger
from turnout.core.errors import ParameterError, UnsupportedError
from turnout.schemes import (
    ApproximateRandomizer,
    CheckIn,
    EveryStep,
    FixedSize,
    GaussianNoise,
    HadamardResponse,
    KaryResponse,
    NonAdaptiveRandomizer,
    PureRandomizer,
    Relation,
    ReleaseRule,
    SampledBitResponse,
    Scheme,
    SelfSampling,
    SpeakingOrder,
    TrustModel,
)
from turnout.schemes.codec import scheme_from_dict, scheme_to_dict
from turnout.verification.cost import recomputed

DELTA = 1e-6
SHUFFLE = Scheme(
    PureRandomizer(1.0),
    EveryStep(6),
    Relation.REPLACE_ONE,
    trust=TrustModel.SHUFFLED,
    population=2000,
    order=SpeakingOrder.HIDDEN,
)
PLAIN = Scheme(GaussianNoise(1.0), CheckIn(5), Relation.ADD_REMOVE)


@pytest.mark.parametrize(
    "randomizer",
    [
        PureRandomizer(1.0),
        NonAdaptiveRandomizer(1.0),
        KaryResponse(1.0, 7),
        HadamardResponse(1.0),
        SampledBitResponse(1.0),
        ApproximateRandomizer(1.0, 1e-9),
        GaussianNoise(2.0),
    ],
)
@pytest.mark.parametrize(
    "distribution", [EveryStep(6), FixedSize(50, 2000, 6), SelfSampling(0.1, 6)]
)
def test_the_population_and_trust_model_of_a_scheme_round_trip(randomizer, distribution):
    written = replace(SHUFFLE, randomizer=randomizer, participation=distribution)
    read = scheme_from_dict(json.loads(json.dumps(scheme_to_dict(written))))
    assert read == written
    assert type(read.randomizer) is type(randomizer)
    assert (read.population, read.trust) == (2000, TrustModel.SHUFFLED)
    assert read.order is SpeakingOrder.HIDDEN


def test_a_scheme_without_population_or_order_is_written_without_them():
    """Charters of earlier versions, which lack both fields, are then still written unchanged."""
    assert not {"population", "order"} & scheme_to_dict(PLAIN).keys()
    assert scheme_from_dict(scheme_to_dict(PLAIN)) == PLAIN
    averaged = replace(PLAIN, release=ReleaseRule.AVERAGED, population=9)
    assert scheme_to_dict(averaged)["population"] == 9


@pytest.mark.parametrize("population", [0, -1, 2.5, "many", True])
def test_a_scheme_with_an_invalid_population_is_refused(population):
    with pytest.raises(ParameterError, match="population"):
        scheme_from_dict({**scheme_to_dict(SHUFFLE), "population": population})


def test_a_ledger_of_shuffled_rounds_has_the_epsilon_of_the_whole_run():
    rounds = [replace(SHUFFLE, participation=EveryStep(n)) for n in (2, 4)]
    ledger = Ledger(BudgetTerms.of(SHUFFLE)).add(rounds[0]).add(rounds[1])
    read = Ledger.from_dict(json.loads(json.dumps(ledger.to_dict())))
    assert read == ledger
    whole = epsilon_upper(SHUFFLE, DELTA)
    assert ledger.epsilon(DELTA) == pytest.approx(whole, rel=1e-3)
    assert epsilon_upper(rounds[1], DELTA) < whole


@pytest.mark.parametrize("other", [PLAIN, replace(SHUFFLE, trust=TrustModel.CENTRAL)])
def test_a_ledger_of_shuffled_rounds_refuses_other_schemes(other):
    with pytest.raises(ParameterError, match="as in the ledger"):
        Ledger(BudgetTerms.of(SHUFFLE)).add(SHUFFLE).add(other)


def test_ledger_phases_with_different_populations_are_analysed_separately():
    ledgers = [
        Ledger(BudgetTerms.of(SHUFFLE)).add(replace(SHUFFLE, population=n)) for n in (200, 2000)
    ]
    few, many = (ledger.epsilon(DELTA) for ledger in ledgers)
    assert few > 2 * many


def test_a_ledger_refuses_rounds_without_a_declared_message_order():
    """Ledgers of earlier versions lack the order: they are read, but ε is refused."""
    plain = {name: part for name, part in scheme_to_dict(SHUFFLE).items() if name != "order"}
    old = scheme_from_dict(plain)
    with pytest.raises(UnsupportedError, match="order of speaking is not declared"):
        Ledger(BudgetTerms.of(old)).add(old).epsilon(DELTA)


@pytest.mark.parametrize("randomizer", [PureRandomizer(1.0), GaussianNoise(3.0)])
def test_the_verifier_refuses_schemes_it_cannot_analyse(randomizer):
    with pytest.raises(UnsupportedError):
        recomputed(replace(SHUFFLE, randomizer=randomizer), 6, DELTA)
