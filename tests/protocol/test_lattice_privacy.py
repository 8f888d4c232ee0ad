"""The distribution of a lattice release is dominated by the accounted Gaussian pair."""

import math

import numpy as np
import pytest
from scipy.special import ndtr

from turnout.accounting.divergence.pairs import GaussianPair
from turnout.protocol.lattice import Lattice

EPSILONS = np.array([0.0, 0.1, 0.5, 1.0, 2.0, 4.0])


def rounded_distribution(s: float, reach: int) -> np.ndarray:
    """Probabilities of round(z) on −reach … reach, from tails, so that small ones are accurate."""
    k = np.arange(reach + 1)
    masses = ndtr(-(k - 0.5) / s) - ndtr(-(k + 0.5) / s)
    return np.concatenate([masses[:0:-1], masses])


def released_delta(s: float, shift: tuple[int, ...], noise: float | None = None) -> np.ndarray:
    """δ(ε) between shift + round(z) and round(z), with standard deviation ``noise`` (default s)."""
    reach = int(9 * s) + max(shift) + 2
    one = rounded_distribution(noise or s, reach)
    absent = present = np.ones(1)
    for part in shift:
        moved = np.concatenate([np.zeros(part), one])[: one.size]
        absent, present = np.outer(absent, one).ravel(), np.outer(present, moved).ravel()
    return np.array([np.maximum(present - math.exp(e) * absent, 0).sum() for e in EPSILONS])


def gaussian_delta(s: float, shift: tuple[int, ...]) -> np.ndarray:
    """δ(ε) of the Gaussian pair whose shift is the norm of ``shift``."""
    pair = GaussianPair(s / math.hypot(*shift))
    k = np.exp(EPSILONS)
    return pair.p_above(k) - k * pair.q_above(k)


CASES = [(0.3, (1,)), (1.0, (1,)), (2.0, (3,)), (30.7, (20,)), (1024.0, (1024,)), (4.0, (3, 4))]


@pytest.mark.parametrize(("s", "shift"), CASES)
def test_the_lattice_release_is_dominated_by_the_gaussian_pair(s, shift):
    slack = 1e-12
    released, accounted = released_delta(s, shift), gaussian_delta(s, shift)
    assert np.all(released <= accounted + slack)
    assert np.all(released >= 0)


def test_a_fine_lattice_costs_no_extra_epsilon():
    released, accounted = released_delta(1024.0, (1024,)), gaussian_delta(1024.0, (1024,))
    assert np.all(released > accounted * (1 - 1e-5))


def test_lattice_noise_one_percent_too_small_is_not_dominated():
    for s, shift in CASES[2:]:
        released = released_delta(s, shift, noise=0.99 * s)
        assert np.any(released > gaussian_delta(s, shift) + 1e-9)


def test_the_largest_lattice_update_nearly_attains_the_gaussian_pair():
    noise_multiplier = 1.3
    lattice = Lattice.for_noise(noise_multiplier, clip_norm=0.7, dimension=1)
    largest = math.isqrt(lattice.norm_squared_limit)
    lattice.check(np.array([largest], np.int32))
    released = released_delta(lattice.noise_deviation(noise_multiplier), (largest,))
    pair = GaussianPair(noise_multiplier)
    k = np.exp(EPSILONS)
    accounted = pair.p_above(k) - k * pair.q_above(k)
    assert np.all(released <= accounted + 1e-12)
    # The largest integer is slightly below C/step, which is visible at ε = 4.
    assert np.all(released > 0.98 * accounted)
