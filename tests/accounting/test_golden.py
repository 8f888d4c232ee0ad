"""Converged values computed by independent prototypes and other software's certified brackets."""

import math

import pytest

from turnout.accounting import price
from turnout.schemes import CheckIn, GaussianNoise, Relation, Scheme

# noise multiplier, window, δ, ε remove, ε add
SINGLE_WINDOWS = [
    (1.0, 1000, 1e-6, 0.17173, 0.14943),
    (2.0, 10000, 1e-8, 0.02292, 0.02287),
    (0.6, 100, 1e-5, 3.43139, 0.95679),
    (1.0, 64, 1e-6, 1.13055, 0.60933),
    (0.8, 60, 1e-5, 1.77427, 0.76145),
    (0.3, 100, 1e-5, 14.5256, 3.7242),
]
# noise multiplier, window, windows, δ, ε
COMPOSED = [
    (1.0, 10_000, 10, 1e-8, 0.1973),
    (1.0, 64, 16, 1e-6, 3.1940),
    (0.8, 60, 100, 1e-5, 13.2506),
]


def scheme(noise_multiplier: float, law: CheckIn) -> Scheme:
    return Scheme(GaussianNoise(noise_multiplier), law, Relation.ADD_REMOVE)


@pytest.mark.parametrize(("sigma", "window", "delta", "remove", "add"), SINGLE_WINDOWS)
def test_epsilon_of_one_window_agrees_with_reference_values_to_four_digits(
    sigma, window, delta, remove, add
):
    guarantee = price(scheme(sigma, CheckIn(window)), delta, tolerance=5e-5)
    for direction, expected in (("remove", remove), ("add", add)):
        bounds = guarantee.directions[direction]
        assert bounds.relative_width <= 5e-5
        half_a_unit = 0.5 * 10.0 ** (math.floor(math.log10(expected)) - 3)
        assert bounds.upper == pytest.approx(expected, abs=half_a_unit)
        assert bounds.lower <= expected + half_a_unit


@pytest.mark.parametrize(("sigma", "window", "windows", "delta", "expected"), COMPOSED)
def test_epsilon_of_composed_windows_agrees_with_reference_values_to_three_digits(
    sigma, window, windows, delta, expected
):
    guarantee = price(scheme(sigma, CheckIn(window, windows)), delta)
    assert guarantee.epsilon.upper == pytest.approx(expected, rel=1e-3)
    assert guarantee.epsilon.lower == pytest.approx(expected, rel=1e-3)
