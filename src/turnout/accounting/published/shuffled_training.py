"""A training run by shuffled messages, by the thesis' own theorems.

Source: Girgis 2023 (girgis2023thesis), Theorems 4.3.1 and 4.4.1, with the numbers that their proofs
still have where the statements have O(·). Replace-one, one message of one record in each round,
m = s = 1: then a record is all that a client holds. `turnout.accounting.price` is what to quote.

Notation
    ε₀  local_epsilon     n  clients     T  rounds
    k   sampled ≤ n, uniformly, in each round     q  chance that a client takes part
    δ   half of it for the composition, and δ/2T for each round
"""

from __future__ import annotations

import math

from turnout.accounting.published.results import Paper, PrivacyPoint
from turnout.accounting.published.shuffling_rdp import theorem_5_3_1
from turnout.accounting.published.shuffling_subsampled import (
    lemma_4_3_1,
    lemma_4_4_1,
    missed_by_coins,
    theorem_5_4_1,
)
from turnout.accounting.published.strong_composition import lemma_2_1_2
from turnout.core import checks
from turnout.core.errors import UnsupportedError
from turnout.schemes import (
    EveryStep,
    FixedSize,
    NonAdaptiveRandomizer,
    RepeatedMessages,
    Scheme,
    SelfSampling,
    TrustModel,
)

_SHARE_ROUNDING = 1e-9


def theorem_4_3_1(
    local_epsilon: float, clients: int, sampled: int, rounds: int, delta: float
) -> float:
    """ε of CLDP-SGD: T rounds in which k of n clients send, at δ.

    Source: the proof of Theorem 4.3.1 of Girgis 2023 (girgis2023thesis): `lemma_4_3_1` of a round,
        put together by strong composition (`lemma_2_1_2`).

    Returns:
        Never below the true one; infinite where a round's ε is above 700.

    >>> round(theorem_4_3_1(1.5, 60_000, 10_000, 1200, 1e-5), 2)
    4.13
    """
    checks.open_unit(delta=delta)
    checks.count(rounds=rounds)
    each, slack = _divided(delta, rounds)
    epsilon = lemma_4_3_1(local_epsilon, clients, sampled, each)
    return _composed(PrivacyPoint(epsilon, each), rounds, slack)


def theorem_4_4_1(
    local_epsilon: float, clients: int, probability: float, rounds: int, delta: float
) -> float:
    """ε of dss-SGD: T rounds in which each of n clients takes part with probability q, at δ.

    Source: the proof of Theorem 4.4.1 of Girgis 2023 (girgis2023thesis), by `lemma_4_4_1`.

    Raises:
        UnsupportedError: so few clients are expected that no δ is left for a round.
    """
    checks.open_unit(delta=delta)
    checks.count(rounds=rounds)
    each, slack = _divided(delta, rounds)
    left = each - missed_by_coins(local_epsilon, clients, probability)
    if left <= 0:
        raise UnsupportedError("Theorem 4.4.1 proves nothing: too few clients are expected")
    inner = min(left / probability, 0.5) * (1 - _SHARE_ROUNDING)
    point = lemma_4_4_1(local_epsilon, clients, probability, inner)
    return _composed(PrivacyPoint(point.epsilon, each), rounds, slack)


def thesis_epsilons(scheme: Scheme, delta: float) -> dict[str, float]:
    """ε of a run of shuffled messages at δ, by each of the thesis' theorems that says a number.

    Empty under other trust models, for several messages in a step and for laws without a theorem.
    """
    found = _by_law(scheme, delta)
    return {name: epsilon for name, epsilon in found.items() if math.isfinite(epsilon)}


def _by_law(scheme: Scheme, delta: float) -> dict[str, float]:
    law, randomizer, clients = scheme.participation, scheme.randomizer, scheme.population
    known = isinstance(randomizer, NonAdaptiveRandomizer)
    several = isinstance(randomizer, RepeatedMessages)
    if scheme.trust is not TrustModel.SHUFFLED or clients is None or not known or several:
        return {}
    level, rounds = randomizer.epsilon0, law.steps
    if isinstance(law, SelfSampling):
        try:
            return {"Theorem 4.4.1": theorem_4_4_1(level, clients, law.rate, rounds, delta)}
        except UnsupportedError:
            return {}
    if isinstance(law, EveryStep):
        name, renyi, size = "Theorem 5.3.1", theorem_5_3_1(level, clients), clients
    elif isinstance(law, FixedSize):
        name, renyi, size = "Theorem 5.4.1", theorem_5_4_1(level, clients, law.size), law.size
    else:
        return {}
    strong = theorem_4_3_1(level, clients, size, rounds, delta)
    return {"Theorem 4.3.1": strong, name: renyi.composed(rounds).epsilon(delta)}


def _composed(each: PrivacyPoint, rounds: int, slack: float) -> float:
    """ε of all rounds; of (0, δ/2T)-private ones δ alone adds up."""
    return lemma_2_1_2(each, rounds, slack).epsilon if each.epsilon > 0 else 0.0


def _divided(delta: float, rounds: int) -> tuple[float, float]:
    """δ of each round and of the composition, together a little below the whole."""
    return delta / (2 * rounds) * (1 - _SHARE_ROUNDING), delta / 2 * (1 - _SHARE_ROUNDING)


_THESIS, _PURE = Paper("thesis", "girgis2023thesis"), "pure epsilon_0"
RESULTS = (
    _THESIS.states("Theorem 4.3.1", theorem_4_3_1, _PURE, "m = s = 1, strong composition"),
    _THESIS.states("Theorem 4.4.1", theorem_4_4_1, _PURE, "m = s = 1, 12(epsilon_0 + ln 2) < qn"),
)
