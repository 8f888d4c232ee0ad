"""Largest ε₀ for a target ε: within the target, and near it if ε increases with ε₀."""

from __future__ import annotations

import math

import pytest

from turnout.accounting import shuffled_price
from turnout.core.errors import ParameterError
from turnout.estimation.private.shuffled_means import largest_affordable, level_of_any
from turnout.schemes import NonAdaptiveRandomizer

PRICES = {
    "straight": lambda level: 0.01 * level,
    "exponential": lambda level: 0.001 * math.expm1(0.7 * level),
    "no help": lambda level: level,
    "little help": lambda level: level - 0.001,
    "kinked": lambda level: 0.001 * level if level < 20 else level,
}


@pytest.mark.parametrize("name", PRICES)
@pytest.mark.parametrize("epsilon", [0.01, 1.0, 5.0])
def test_the_largest_epsilon0_has_an_epsilon_within_and_close_to_the_target(name, epsilon):
    asked = []

    def price(level):
        asked.append(level)
        return min(PRICES[name](level), level)

    found = largest_affordable(lambda level: level, price, epsilon)
    assert found.made == found.level
    assert found.epsilon == price(found.made) <= epsilon
    assert price(found.made * 1.002) > epsilon
    assert len(asked) < (40 if name == "kinked" else 20)


def test_the_largest_epsilon0_is_within_the_target_if_epsilon_is_not_monotone():
    """Randomizers may change their form with ε₀, so the shuffled ε may fall at some ε₀."""

    def price(level):
        return min(0.02 * level * (1 - 0.5 * (math.floor(3 * level) % 2)), level)

    for epsilon in (0.013, 0.1, 0.4):
        found = largest_affordable(lambda level: level, price, epsilon)
        assert price(found.made) <= epsilon
        assert found.level > 10 * epsilon


def test_values_of_epsilon0_without_a_randomizer_are_skipped():
    def make(level):
        if level > 7:
            raise ParameterError("epsilon", level, "at most 7")
        return level

    found = largest_affordable(make, lambda level: 0.01 * level, 1.0)
    assert 7 * (1 - 1e-3) < found.made <= 7
    # A start that costs too much, or has no randomizer, does no harm; errors at ε itself are
    # raised.
    for start in (6.9, 30.0):
        again = largest_affordable(make, lambda level: 0.15 * level, 1.0, start)
        assert again.made == pytest.approx(1 / 0.15, rel=2e-3)
    with pytest.raises(ParameterError, match="at most 7"):
        largest_affordable(make, lambda level: level, 8.0)


def test_the_epsilon0_for_any_randomizer_is_within_epsilon_and_largest():
    for clients, epsilon, delta in ((100, 0.5, 1e-4), (20_000, 1.0, 1e-6), (10**6, 0.01, 1e-8)):
        level = level_of_any(clients, epsilon, delta)

        def price(level, clients=clients, delta=delta):
            return shuffled_price([(NonAdaptiveRandomizer(level), 1)], clients, delta)

        assert price(level) <= epsilon < price(1.002 * level)
    assert level_of_any(3, 1.0, 1e-9) == 1.0
    assert level_of_any(10**6, 40.0, 1e-6) == 30.0
