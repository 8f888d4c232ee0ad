"""Theorem 4.5.1 of the thesis as printed, against the exact ε of the noises that it counts."""

import math

import pytest

from turnout.accounting import gaussian_epsilon

DELTA, STEPS = 1e-5, 10


def converted(divergence: float) -> float:
    """ε of a Rényi divergence α·``divergence``, at the best order."""
    return divergence + 2 * math.sqrt(divergence * math.log(1 / DELTA))


@pytest.mark.parametrize(
    ("printed", "same_conversion", "exact"),
    [(3.35, 6.44, 5.38), (13.16, 27.76, 24.91), (27.30, 61.98, 57.28)],
)
def test_the_printed_epsilon_of_theorem_4_5_1_is_below_the_exact_epsilon(
    printed, same_conversion, exact
):
    # At K = n the rounds' 6C²/(Kσ²) add up to what the printed ε of Table 4.2 was converted from.
    log = math.log(1 / DELTA)
    divergence = (math.sqrt(log + printed) - math.sqrt(log)) ** 2
    assert converted(divergence) == pytest.approx(printed)
    # A sum of clipped steps moves by 2τC, its noise is σ√(τK): over all rounds one Gaussian.
    shift = math.sqrt((2 * STEPS) ** 2 / STEPS * divergence / 6)
    assert converted(shift**2 / 2) == pytest.approx(same_conversion, abs=0.01)
    found = gaussian_epsilon(1 / shift, DELTA)
    assert found == pytest.approx(exact, abs=0.01)
    assert found > printed
