"""Integer tail probabilities of the normal distribution, compared with mpmath."""

import math
import random

import mpmath
import pytest

from turnout.randomness.lattice_noise import root_of_two_over_pi, tail_and_density, tail_bounds

FORTY_DIGITS = mpmath.mpf(10) ** -40


def truth(x: mpmath.mpf) -> tuple[mpmath.mpf, mpmath.mpf]:
    """P(|N(0, 1)| > x) and twice the normal density at x, by mpmath."""
    return mpmath.erfc(x / mpmath.sqrt(2)), mpmath.sqrt(2 / mpmath.pi) * mpmath.exp(-(x**2) / 2)


@pytest.fixture(autouse=True)
def many_bits():
    with mpmath.workprec(1500):
        yield


def rationals(largest: int, number: int) -> list[tuple[int, int]]:
    generator = random.Random(5)
    pairs = []
    for _ in range(number):
        denominator = generator.randrange(1, 2 ** generator.randrange(1, 60))
        pairs.append((generator.randrange(largest * denominator), denominator))
    return [(0, 1), (1, 10**30), *pairs]


def test_gaussian_tail_and_density_agree_with_mpmath_to_forty_digits():
    for numerator, denominator in rationals(9, 60):
        tail, density = truth(mpmath.mpf(numerator) / denominator)
        # 300 bits give forty digits also for the smallest tail, 1e-19.
        found_tail, found_density, w = tail_and_density(numerator, denominator, 300)
        assert abs(mpmath.mpf(found_tail) / 2**w - tail) <= FORTY_DIGITS * tail
        assert abs(mpmath.mpf(found_density) / 2**w - density) <= FORTY_DIGITS * density


@pytest.mark.parametrize("bits", [1, 63, 127, 255, 1024])
def test_the_error_of_the_integer_gaussian_tail_is_within_its_bound(bits):
    for numerator, denominator in rationals(38 if bits == 1024 else 16, 25):
        x = mpmath.mpf(numerator) / denominator
        tail, density = truth(x)
        found_tail, found_density, w = tail_and_density(numerator, denominator, bits)
        assert abs(found_tail - tail * 2**w) < 2 ** (w - bits - 8)
        assert abs(found_density - density * 2**w) < 2 ** (w - bits - 8)
        low, high = tail_bounds(numerator, denominator, bits)
        assert low <= tail * 2**bits <= high
        assert high - low <= 2


def test_far_gaussian_tails_are_bounded_without_computation():
    assert tail_bounds(10**200, 1, 255) == (0, 1)
    for bits in (63, 255):
        cut = math.isqrt(bits * 7 * 10**8 // 5)
        assert truth(mpmath.mpf(cut) / 10**4)[0] * 2**bits < 1


def test_gaussian_tails_computed_in_floating_point_violate_the_integer_bounds():
    missed = 0
    for numerator, denominator in rationals(6, 40):
        low, high = tail_bounds(numerator, denominator, 127)
        found = int(math.erfc(numerator / denominator / math.sqrt(2)) * 2.0**127)
        missed += not low <= found <= high
    assert missed > 30


def test_the_constant_sqrt_2_over_pi_is_rounded_down():
    for bits in (64, 128, 1024):
        exact = mpmath.sqrt(2 / mpmath.pi) * 2**bits
        assert exact - 2 < root_of_two_over_pi(bits) <= exact
