"""ε of schemes of shuffled messages: every participation and randomizer, by enumeration."""

from __future__ import annotations

import math
from itertools import combinations, combinations_with_replacement
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from shuffle_truths import hockey_stick, response, shuffled, twice

from turnout.accounting import epsilon_upper, price
from turnout.accounting.decomposition import decompose
from turnout.accounting.privacy_curve import PrivacyCurve
from turnout.accounting.shuffling import messages
from turnout.accounting.shuffling.blanket import BlanketBlock
from turnout.accounting.shuffling.messages import one_round
from turnout.core.errors import NumericalError, ParameterError, UnsupportedError
from turnout.schemes import (
    ApproximateRandomizer,
    CheckIn,
    EveryStep,
    FixedSize,
    GaussianNoise,
    HadamardResponse,
    KaryResponse,
    LaplaceNoise,
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

REPLACE = Relation.REPLACE_ONE
DELTA = 1e-2


def scheme(randomizer, participation, population=None, **changes) -> Scheme:
    parts: dict[str, Any] = {
        "relation": REPLACE,
        "trust": TrustModel.SHUFFLED,
        "population": population,
        "order": SpeakingOrder.HIDDEN,
    }
    return Scheme(randomizer, participation, **(parts | changes))


def mixed(distributions, chances):
    """Distribution of a draw from one of several distributions."""
    total = {}
    for distribution, chance in zip(distributions, chances, strict=True):
        for event, own in distribution.items():
            total[event] = total.get(event, 0.0) + chance * own
    return total


def view(participation, records, rows):
    """Distribution of the messages of one round with these records."""
    clients = range(len(records))
    if isinstance(participation, EveryStep):
        return shuffled([rows[record] for record in records])
    if isinstance(participation, FixedSize):
        samples = list(combinations(clients, participation.size))
        views = [shuffled([rows[records[i]] for i in sample]) for sample in samples]
        return mixed(views, [1 / len(samples)] * len(samples))
    views, chances = [], []
    for size in range(len(records) + 1):
        for sample in combinations(clients, size):
            nobody = {(0,) * len(rows[0]): 1.0}
            views.append(shuffled([rows[records[i]] for i in sample]) if sample else nobody)
            chances.append(
                participation.rate**size * (1 - participation.rate) ** (len(records) - size)
            )
    return mixed(views, chances)


def worst_delta(participation, rows, clients, epsilon):
    """The largest δ over all records of the others and both directions, over all rounds."""
    found = 0.0
    for others in combinations_with_replacement(range(len(rows)), clients - 1):
        one, other = (view(participation, (own, *others), rows) for own in (0, 1))
        if participation.steps == 2:
            one, other = twice(one), twice(other)
        k = math.exp(epsilon)
        found = max(found, hockey_stick(one, other, k), hockey_stick(other, one, k))
    return found


LAWS = [
    EveryStep(1),
    EveryStep(2),
    FixedSize(2, 4, 1),
    FixedSize(3, 4, 2),
    SelfSampling(0.4, 1),
    SelfSampling(0.7, 2),
]


@pytest.mark.parametrize("participation", LAWS)
@pytest.mark.parametrize("values", [2, 3])
@pytest.mark.parametrize("kind", [PureRandomizer, NonAdaptiveRandomizer, KaryResponse])
def test_the_bounds_enclose_epsilon_of_enumerated_randomized_response(participation, values, kind):
    epsilon0, rows = 1.2, response(1.2, values)
    randomizer = KaryResponse(epsilon0, values) if kind is KaryResponse else kind(epsilon0)
    found = price(scheme(randomizer, participation, 4), DELTA).epsilon
    assert worst_delta(participation, rows, 4, found.upper) <= DELTA * (1 + 1e-9)
    if kind is KaryResponse and found.lower > 0:
        assert worst_delta(participation, rows, 4, found.lower) >= DELTA * (1 - 1e-9)


@settings(max_examples=25, deadline=None)
@given(
    epsilon0=st.floats(0.05, 4.0),
    clients=st.integers(1, 5),
    digits=st.floats(0.3, 4.0),
    values=st.integers(2, 3),
)
def test_no_bound_is_below_epsilon_of_an_enumerated_shuffle(epsilon0, clients, digits, values):
    delta, participation = 10.0**-digits, EveryStep(1)
    rows = response(epsilon0, values)
    for randomizer in (
        PureRandomizer(epsilon0),
        NonAdaptiveRandomizer(epsilon0),
        KaryResponse(epsilon0, values),
    ):
        upper = price(scheme(randomizer, participation, clients), delta, 1e-2).epsilon.upper
        assert worst_delta(participation, rows, clients, upper) <= delta * (1 + 1e-9)


def test_a_bound_that_counts_one_client_too_many_is_detected(monkeypatch):
    """A mutant: ε of a shuffle of n + 1 clients is used for a shuffle of n clients."""
    monkeypatch.setattr(
        messages, "BlanketBlock", lambda pair, clients: BlanketBlock(pair, clients + 1)
    )
    rows = response(1.2, 2)
    asked = scheme(NonAdaptiveRandomizer(1.2), EveryStep(1), 3)
    assert worst_delta(EveryStep(1), rows, 3, epsilon_upper(asked, DELTA)) > DELTA * (1 + 1e-3)
    with pytest.raises(NumericalError, match="not ordered"):
        price(asked, DELTA)


RANDOMIZERS = [
    PureRandomizer(1.0),
    NonAdaptiveRandomizer(1.0),
    KaryResponse(1.0),
    KaryResponse(1.0, 10),
    HadamardResponse(1.0),
    SampledBitResponse(1.0),
    ApproximateRandomizer(1.0, 1e-13),
    GaussianNoise(4.0),
]


@pytest.mark.parametrize("randomizer", RANDOMIZERS)
@pytest.mark.parametrize(
    "participation", [EveryStep(1), EveryStep(20), FixedSize(500, 2000, 20), SelfSampling(0.25, 1)]
)
def test_every_randomizer_has_ordered_bounds_and_all_guarantee_fields(randomizer, participation):
    asked = scheme(randomizer, participation, 2000)
    found = price(asked, 1e-6, 1e-2)
    assert 0.0 <= found.epsilon.lower <= found.epsilon.upper < math.inf
    assert (found.relation, found.trust) == (REPLACE, TrustModel.SHUFFLED)
    assert set(found.directions) == {"replace"}
    assert epsilon_upper(asked, 1e-6) >= found.epsilon.upper * (1 - 1e-12)


def test_stronger_assumptions_never_increase_epsilon():
    """Any randomizers, one fixed randomizer, and a known one, for one row of docs/shuffling.md."""
    uppers = [
        price(scheme(randomizer, EveryStep(1), 10**5), 1e-6).epsilon.upper
        for randomizer in (PureRandomizer(1.0), NonAdaptiveRandomizer(1.0), KaryResponse(1.0))
    ]
    assert uppers == sorted(uppers, reverse=True)
    assert [float(f"{upper:.3g}") for upper in uppers] == [0.0124, 0.0124, 0.0102]


def test_a_sample_of_all_clients_equals_the_full_shuffle():
    whole = price(scheme(PureRandomizer(1.0), EveryStep(1), 100), 1e-4).epsilon.upper
    sample = price(scheme(PureRandomizer(1.0), FixedSize(100, 100, 1)), 1e-4).epsilon.upper
    assert sample == pytest.approx(whole, rel=1e-3)
    coins = price(scheme(PureRandomizer(1.0), SelfSampling(1.0, 1), 100), 1e-4).epsilon.upper
    assert coins == pytest.approx(whole, rel=2e-3)


def test_epsilon_of_shuffled_messages_is_never_zero():
    asked = scheme(PureRandomizer(1.0), SelfSampling(0.0, 5), 100)
    assert price(asked, 1e-6).epsilon.upper == 0.0


def test_the_first_steps_of_a_run_have_the_epsilon_of_a_shorter_run():
    asked = scheme(PureRandomizer(1.0), EveryStep(50), 1000)
    assert epsilon_upper(asked, 1e-6, 20) == epsilon_upper(
        scheme(PureRandomizer(1.0), EveryStep(20), 1000), 1e-6
    )
    assert not decompose(asked, 0).record_against_null.upper


PURE = PureRandomizer(1.0)
REFUSED = [
    (scheme(PURE, EveryStep(1), 5, relation=Relation.ADD_REMOVE), "replace-one"),
    (scheme(PURE, EveryStep(1), 5, relation=Relation.ZERO_OUT), "replace-one"),
    (scheme(PURE, EveryStep(1), 5, release=ReleaseRule.ONE_CLIENT), "one-client"),
    (scheme(PURE, CheckIn(5), 5), "CheckIn"),
    (scheme(LaplaceNoise(1.0), EveryStep(1), 5), "LaplaceNoise"),
]


@pytest.mark.parametrize(("refused", "match"), REFUSED)
def test_schemes_without_an_analysis_are_refused_by_name(refused, match):
    with pytest.raises(UnsupportedError, match=match):
        price(refused, 1e-5)


def test_a_population_that_is_missing_or_contradicts_the_participation_is_refused():
    with pytest.raises(ParameterError, match="population"):
        price(scheme(PURE, EveryStep(1)), 1e-5)
    with pytest.raises(ParameterError, match="population"):
        price(scheme(PURE, FixedSize(2, 5, 1), 6), 1e-5)
    with pytest.raises(ParameterError, match="population"):
        scheme(PURE, EveryStep(1), 0)


def test_sampled_responses_without_an_attained_worst_case_have_lower_bound_zero():
    assert one_round(HadamardResponse(1.0), 10).identical_others is None
    found = price(scheme(HadamardResponse(1.0), FixedSize(10, 20, 1)), 1e-3).epsilon
    assert found.lower == 0.0 < found.upper


@pytest.mark.parametrize("rounds", [2, 3])
def test_the_bound_for_a_single_client_counts_its_epsilon_in_every_round(rounds):
    """One client alone has no amplification, so a missing round or window would be detected."""
    once = price(scheme(PURE, EveryStep(1), 1), 1e-6).epsilon.upper
    whole = price(scheme(PURE, EveryStep(rounds), 1), 1e-6).epsilon
    assert once == pytest.approx(1.0, rel=1e-5)
    assert whole.upper >= whole.lower > (rounds - 0.1) * once
    again = PrivacyCurve.of(scheme(PURE, EveryStep(1), 1)) * rounds
    assert again.epsilon(1e-6).upper == pytest.approx(whole.upper, rel=1e-6)
    windows = scheme(
        PURE, CheckIn(4, rounds), 1, release=ReleaseRule.AVERAGED, trust=TrustModel.CENTRAL
    )
    assert price(windows, 1e-6).epsilon.upper >= whole.lower
    assert epsilon_upper(windows, 1e-6) <= rounds * (1 + 1e-12)
