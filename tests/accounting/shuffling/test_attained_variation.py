"""Randomizers whose ε₀ and total variation two records attain, against enumeration."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import turnout as tn
from turnout.randomizers.vectors import SeededCode
from turnout.schemes import AttainedVariation, BoundedVariation
from turnout.schemes.scheme import shuffled

EPSILON0, VARIATION = 1.2, 0.3
LAW = AttainedVariation(EPSILON0, VARIATION)


def distributions(
    variation: float = VARIATION, epsilon0: float = EPSILON0
) -> tuple[np.ndarray, np.ndarray]:
    """Three messages under the two records."""
    share = variation / math.expm1(epsilon0)
    preferred = share * math.exp(epsilon0)
    rest = 1 - share - preferred
    return np.array([preferred, share, rest]), np.array([share, preferred, rest])


def epsilon_of(p: np.ndarray, q: np.ndarray, delta: float) -> float:
    """The least ε with E(p − e^ε·q)₊ ≤ δ, by bisection."""
    low, high = 0.0, 20.0
    for _ in range(80):
        middle = (low + high) / 2
        excess = np.maximum(p - math.exp(middle) * q, 0).sum() - delta
        low, high = (low, middle) if excess <= 0 else (middle, high)
    return high


def shuffled_laws(
    clients: int, variation: float = VARIATION, epsilon0: float = EPSILON0
) -> tuple[np.ndarray, np.ndarray]:
    """Counts of the three messages; all others hold one record, the victim the other in p."""
    own, others = distributions(variation, epsilon0)
    p: dict[tuple[int, ...], float] = {}
    q: dict[tuple[int, ...], float] = {}
    for messages in itertools.product(range(3), repeat=clients):
        key = tuple(sorted(messages))
        tail = math.prod(others[m] for m in messages[1:])
        p[key] = p.get(key, 0.0) + own[messages[0]] * tail
        q[key] = q.get(key, 0.0) + others[messages[0]] * tail
    return np.array(list(p.values())), np.array([q[key] for key in p])


@pytest.mark.parametrize("clients", [2, 3, 5])
@pytest.mark.parametrize("delta", [1e-3, 0.05])
def test_the_lower_bound_equals_epsilon_with_identical_records_of_other_clients(clients, delta):
    p, q = shuffled_laws(clients)
    exact = max(epsilon_of(p, q, delta), epsilon_of(q, p, delta))
    epsilon = tn.price(shuffled(LAW, clients), delta=delta).epsilon
    assert epsilon.lower <= exact <= epsilon.upper
    assert epsilon.lower == pytest.approx(exact, rel=1e-4)
    p, q = shuffled_laws(clients, 0.9 * VARIATION)  # negative control: a law less far apart
    assert epsilon.lower > max(epsilon_of(p, q, delta), epsilon_of(q, p, delta))


@pytest.mark.parametrize("clients", [2, 4])
@pytest.mark.parametrize("delta", [1e-3, 0.05])
def test_merging_messages_still_gives_a_lower_bound(clients, delta):
    epsilon0, variation = 3.0, 0.5
    p, q = shuffled_laws(clients, variation, epsilon0)
    exact = max(epsilon_of(p, q, delta), epsilon_of(q, p, delta))
    distribution = AttainedVariation(epsilon0, variation)
    epsilon = tn.price(shuffled(distribution, clients), delta=delta).epsilon
    assert 0.7 * exact < epsilon.lower <= exact <= epsilon.upper
    p, q = shuffled_laws(clients, 0.1 * variation, epsilon0)  # negative control
    assert epsilon.lower > max(epsilon_of(p, q, delta), epsilon_of(q, p, delta))


def test_under_local_trust_both_bounds_are_exact():
    delta, (p, q) = 0.02, distributions()
    two = (np.outer(p, p).ravel(), np.outer(q, q).ravel())
    exact = epsilon_of(*two, delta)
    scheme = replace(shuffled(LAW, 10, 2), trust="local")
    epsilon = tn.price(scheme, delta=delta).epsilon
    assert epsilon.lower <= exact * (1 + 1e-12)
    assert exact <= epsilon.upper * (1 + 1e-12)
    assert epsilon.upper == pytest.approx(epsilon.lower, rel=2e-3)
    pure = replace(scheme, randomizer=tn.NonAdaptiveRandomizer(EPSILON0))
    assert tn.price(pure, delta=delta).epsilon.lower > 1.02 * exact


def test_attained_and_bounded_total_variation_have_the_same_upper_bound():
    settings: tuple[dict[str, Any], ...] = ({}, {"sampled": 40}, {"rate": 0.5})
    for changes in settings:
        attained, bounded = (
            tn.price(shuffled(distribution, 100, 3, **changes), delta=1e-4).epsilon
            for distribution in (AttainedVariation(2.5, 0.4), BoundedVariation(2.5, 0.4))
        )
        assert attained.upper == bounded.upper
        assert bounded.lower == 0.0
        assert 0.2 * attained.upper < attained.lower < attained.upper


def test_a_vector_and_its_negative_attain_the_local_epsilon_of_a_seeded_code():
    code = SeededCode(6, 1.5, 2.0, 4, 1, seed_bits=2)
    assert isinstance(code.priced_as, AttainedVariation)
    value = np.array([1.0, 0.5, -0.3, 0.2, -0.9, 0.4])
    p, q = (code.probabilities(sign * 2 * value / np.linalg.norm(value)) for sign in (1, -1))
    for delta in (1e-3, 0.1):
        scheme = replace(shuffled(code.priced_as, 5), trust="local")
        epsilon = tn.price(scheme, delta=delta).epsilon
        assert epsilon.lower <= epsilon_of(p, q, delta) * (1 + 1e-9) <= epsilon.upper * (1 + 2e-9)
        assert epsilon.lower == pytest.approx(epsilon_of(p, q, delta), rel=1e-6)
