"""Verifier's ε of observed messages, compared with an exact sum and with the accountant."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from ledger_samples import FakeTransaction, charter, exported
from scipy.optimize import brentq
from scipy.stats import multinomial

from turnout.accounting import price
from turnout.core.errors import UnsupportedError
from turnout.protocol.randomized import MessageEncoding
from turnout.randomizers.vectors import LInfRandomizer, SeededCode
from turnout.schemes import (
    AttainedVariation,
    AvailabilityCheckIn,
    BoundedVariation,
    CheckIn,
    EveryStep,
    FixedSize,
    KaryResponse,
    KSubset,
    NonAdaptiveRandomizer,
    Relation,
    ReleaseRule,
    SampledBitResponse,
    Scheme,
    SelfSampling,
    TrustModel,
)
from turnout.verification import cost
from turnout.verification.cost import least, recomputed
from turnout.verification.document import VerificationOutcome
from turnout.verification.verifying import verify

DELTA = 1e-4
WINDOWS = CheckIn(4, 3)
TIGHT = AttainedVariation(1.2, 0.3)


def scheme(randomizer, participation, relation=Relation.REPLACE_ONE):
    return Scheme(randomizer, participation, relation, trust=TrustModel.LOCAL)


def delta_of(randomizer, rate, messages, epsilon):
    """δ of several messages, each sent with probability ``rate``, by a sum over their ratios."""
    e = np.exp(randomizer.epsilon0)
    apart = getattr(randomizer, "total_variation", np.tanh(randomizer.epsilon0 / 2))
    high = rate * apart / (e - 1)
    participation = multinomial(messages, [high, high * e, 1 - high * (1 + e)])
    ups, downs = np.meshgrid(np.arange(messages + 1), np.arange(messages + 1), indexing="ij")
    inside = ups + downs <= messages
    ups, downs = ups[inside], downs[inside]
    masses = participation.pmf(np.stack([ups, downs, messages - ups - downs], axis=1))
    ratios = np.exp(randomizer.epsilon0 * (ups.astype(float) - downs))
    return float(masses @ np.maximum(ratios - np.exp(epsilon), 0))


CASES = [
    (TIGHT, CheckIn(10, 4), 1.0, 4),
    (TIGHT, CheckIn(10, 4, 0.3), 0.3, 4),
    (SampledBitResponse(0.7), EveryStep(20), 1.0, 20),
    (SampledBitResponse(0.05), SelfSampling(0.2, 30), 0.2, 30),
    (KaryResponse(2.0, 2), KSubset(5, 2, 3), 1.0, 6),
]


@pytest.mark.parametrize(("randomizer", "participation", "rate", "messages"), CASES, ids=str)
def test_recomputed_epsilon_of_messages_narrowly_encloses_the_exact_sum(
    randomizer, participation, rate, messages
):
    found, method = recomputed(scheme(randomizer, participation), participation.steps, DELTA)
    truth: Any = brentq(lambda e: delta_of(randomizer, rate, messages, e) - DELTA, 0.0, 60.0)
    assert found.lower <= truth <= found.upper
    assert found.relative_width < 1e-3
    assert method == cost.METHOD


@pytest.mark.parametrize(
    "participation", [CheckIn(4, 3, 0.5), SelfSampling(0.3, 9), KSubset(4, 2, 2)]
)
@pytest.mark.parametrize("kind", [TIGHT, BoundedVariation(1.0, 0.2), NonAdaptiveRandomizer(0.9)])
def test_recomputed_epsilon_of_messages_agrees_with_the_accountant(kind, participation):
    given = scheme(kind, participation)
    found, other = recomputed(given, participation.steps, DELTA)[0], price(given, DELTA).epsilon
    assert found.lower <= other.upper
    assert other.lower <= found.upper * (1 + 1e-9)
    assert found.upper == pytest.approx(other.upper, rel=0.01)
    assert (found.lower == 0) is not isinstance(kind, AttainedVariation)


def test_recomputed_epsilon_of_messages_counts_the_steps_of_an_incomplete_window():
    participation = CheckIn(10, 2)
    costs = [
        recomputed(scheme(TIGHT, participation), steps, DELTA)[0].upper for steps in range(1, 21)
    ]
    assert costs == sorted(costs)
    assert costs[0] < costs[9] < costs[10] < costs[19]
    begun = brentq(lambda e: delta_of(TIGHT, 0.1, 1, e) - DELTA, 0.0, 60.0)
    assert costs[0] == pytest.approx(begun, rel=1e-6)


def test_recomputing_epsilon_of_messages_without_an_analysis_is_refused():
    for given in (
        replace(scheme(TIGHT, CheckIn(3)), relation=Relation.ADD_REMOVE),
        replace(scheme(TIGHT, CheckIn(3)), release=ReleaseRule.ONE_CLIENT),
        scheme(TIGHT, FixedSize(2, 20, 4)),
    ):
        with pytest.raises(UnsupportedError):
            recomputed(given, 1, DELTA)
    assert least(scheme(TIGHT, CheckIn(3), Relation.ZERO_OUT), 3, DELTA) == 0.0


def told(randomizer, participation: Any = WINDOWS, **changes):
    given = scheme(randomizer.priced_as, participation)
    encoding = MessageEncoding(randomizer)
    steps = (0, 4, 8, 12)
    return charter(given, charged_steps=steps, encoding=encoding, **changes)


@pytest.mark.parametrize("kind", [LInfRandomizer(5, 0.8), SeededCode(5, 0.8, directions=4)])
def test_a_ledger_of_messages_that_claims_too_little_epsilon_is_refused(kind):
    honest = told(kind)
    found = verify(exported(FakeTransaction(honest, released=12)))
    assert found.outcome is VerificationOutcome.GOOD, found.faults
    assert found.method == cost.METHOD
    assert "local trust" in found.relation
    less = tuple(0.97 * e for e in honest.charged)
    found = verify(exported(FakeTransaction(told(kind, charged=less), released=12)))
    assert found.outcome is VerificationOutcome.BAD
    assert "claims too little" in str(found.faults[0])


def test_a_cost_without_an_independent_analysis_is_not_recomputed():
    participation = AvailabilityCheckIn(np.ones((20, 12), bool), 6)
    terms = told(LInfRandomizer(5, 0.8), participation, charged=(0.0, 1.0, 2.0, 3.0))
    found = verify(exported(FakeTransaction(terms)))
    assert found.outcome is VerificationOutcome.COST_NOT_RECOMPUTED
    assert "AvailabilityCheckIn" in found.not_recomputed
