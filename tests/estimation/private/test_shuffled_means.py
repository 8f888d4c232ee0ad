"""ε of shuffled means is never below the exact ε of the shufflers' output."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy import stats

from turnout.core.errors import UnsupportedError
from turnout.estimation.private.shuffled_means import (
    ShuffledMean,
    l2_of_level,
    shuffled_epsilon,
    shuffled_l2,
    shuffled_linf,
)
from turnout.randomizers.vectors import (
    BinaryVectorRandomizer,
    L1Randomizer,
    L2Randomizer,
    LInfRandomizer,
    SphericalCode,
)
from turnout.randomizers.vectors.l2 import clipping_bound, clipping_error

N = 200


def counts(p: float, clients: int) -> tuple[np.ndarray, np.ndarray]:
    """Distributions of the number of ones if all clients hold 0, and if one client holds 1."""
    others = stats.binom.pmf(np.arange(clients), clients - 1, p)
    zero, one = np.zeros(clients + 1), np.zeros(clients + 1)
    for distribution, chance in ((zero, p), (one, 1 - p)):
        distribution[:-1] += (1 - chance) * others
        distribution[1:] += chance * others
    return zero, one


def true_delta(epsilon: float, distributions: list[tuple[np.ndarray, np.ndarray]]) -> float:
    """Exact δ of independent outputs for these neighbours."""
    first, second = np.ones(1), np.ones(1)
    for zero, one in distributions:
        first, second = np.outer(first, zero).ravel(), np.outer(second, one).ravel()
    return max(
        float(np.maximum(a - math.exp(epsilon) * b, 0).sum())
        for a, b in ((first, second), (second, first))
    )


@pytest.mark.parametrize("samples", [1, 2])
@pytest.mark.parametrize("epsilon", [1.0, 4.0])
def test_epsilon_of_shuffled_means_is_slightly_above_the_exact_epsilon(samples, epsilon):
    delta = 1e-4
    randomizer = BinaryVectorRandomizer(samples, epsilon, samples)
    (p,) = randomizer.bits.flips
    distributions = [counts(p, N)] * samples
    price = shuffled_epsilon(randomizer, N, delta)
    assert true_delta(price, distributions) <= delta
    # Groups of one coordinate are binary response, whose worst other records these are.
    assert true_delta(0.97 * price, distributions) > delta
    if (samples, epsilon) == (2, 1.0):
        # A price that omits one of two messages is noticed.
        alone = shuffled_epsilon(BinaryVectorRandomizer(1, epsilon / 2), N, delta)
        assert true_delta(alone, distributions) > delta


def test_messages_with_unequal_epsilon0_are_composed_with_the_epsilon0_of_each():
    delta = 1e-4
    randomizer = LInfRandomizer(1, 3.0, levels=3, shared=False, shares=(1.5, 1.0, 0.5))
    levels = [priced.epsilon0 for priced, _ in randomizer.shuffled_as]
    assert [round(level, 9) for level in levels] == [1.5, 1.0, 0.5]
    distributions = [counts(p, 40) for p in randomizer.bits.flips]
    price = shuffled_epsilon(randomizer, 40, delta)
    assert true_delta(price, distributions) <= delta
    least = shuffled_epsilon(BinaryVectorRandomizer(1, 0.5), 40, delta)
    assert true_delta(least, distributions) > delta


def test_the_epsilon0_of_the_thesis_for_shuffled_l1_means_is_too_large():
    """Theorem 3.4.2 with d = 1: ε₀ = ε√(n/ln(1/δ)) has a larger δ than promised."""
    n, delta = 1000, 1e-6
    worst = 0.0
    for epsilon in np.linspace(0.02, math.sqrt(math.log(1 / delta) / n), 6):
        epsilon0 = float(epsilon) * math.sqrt(n / math.log(1 / delta))
        distributions = [counts(1 / (1 + math.exp(epsilon0)), n)]
        worst = max(worst, true_delta(float(epsilon), distributions))
    assert worst > 2.5 * delta
    ours = L1Randomizer(1, 0.6)
    price = shuffled_epsilon(ours, n, delta)
    assert true_delta(price, [counts(ours.flip, n)]) <= delta


def test_a_calibrated_shuffled_mean_spends_epsilon_and_states_its_assumptions():
    scalar = shuffled_linf(1, 1000, 1.0, 1e-5, samples=1, levels=4)
    assert 0.99 < scalar.epsilon <= 1.0
    assert scalar.messages == 4
    assert scalar.randomizer.message_bits == 4
    for word in (
        "4 messages",
        "assumes: all 1,000 clients follow the protocol",
        "trust: shuffled",
        "replace-one",
        "δ = 1e-05",
        "without the shuffler",
    ):
        assert word in str(scalar)
    # The local model at the same ε has a much larger error, the central model a smaller one.
    local = LInfRandomizer.best(1, 1.0).worst_squared_error / 1000
    central = 2 * (2 / 1000) ** 2
    assert central < scalar.mse_bound < local / 10
    vector = shuffled_l2(6, 1000, 1.0, 1e-5, samples=2)
    assert 0.99 < vector.epsilon <= 1.0
    assert vector.messages == 2


def test_mean_randomizers_with_public_randomness_have_no_shuffled_epsilon():
    with pytest.raises(UnsupportedError, match="public randomness"):
        shuffled_epsilon(SphericalCode(5, 1.0), 100, 1e-6)


@pytest.mark.parametrize("dimension", [40, 300])
def test_the_error_bound_includes_the_bias_of_a_clipped_rotation(dimension):
    # All clients hold the same vector, so more clients do not lower the bias; over many public
    # signs.
    clients = 10**7
    for vector in (np.eye(1, dimension), np.full((1, dimension), dimension**-0.5)):
        errors = [clipped_error(rotated(dimension, seed), vector, clients) for seed in range(60)]
        found = ShuffledMean(rotated(dimension), clients, 1e-6, 1.0)
        noise = found.randomizer.worst_squared_error / clients
        assert noise < np.mean(errors) < found.mse_bound  # Noise alone would be too small.
    # For all signs, a vector that the rotation maps to one coordinate is covered by the bound too.
    randomizer = rotated(dimension)
    turned = randomizer.rotation.backward(np.eye(1, dimension))
    alone = (1 - randomizer.clip / math.sqrt(dimension)) ** 2
    assert np.sum(randomizer.bias(turned) ** 2) == pytest.approx(alone)


@pytest.mark.parametrize(("dimension", "reached"), [(4, False), (64, True)])
def test_the_error_bound_includes_the_bias_of_few_kashin_coefficients(dimension, reached):
    missed = []
    for seed in range(25):
        randomizer = l2_of_level(dimension, 1, seed=seed)(2.0)
        missed += [np.sum(randomizer.bias(vector[None]) ** 2) for vector in np.eye(dimension)[:4]]
    assert (max(missed) < 1e-13) == reached
    bound = l2_of_level(dimension, 1)(2.0).worst_squared_bias
    assert (bound == 0.0) if reached else (np.mean(missed) < bound < 0.25)


def rotated(dimension: int, seed: int = 0) -> L2Randomizer:
    return l2_of_level(dimension, 1, redundancy=1.0, seed=seed)(2.0)


def clipped_error(randomizer: L2Randomizer, vector: np.ndarray, clients: int) -> float:
    """E‖estimate − mean‖² if all clients hold one vector, exact given the signs."""
    variance = randomizer.squared_error(vector)[0] / clients
    return float(variance + np.sum(randomizer.bias(vector) ** 2))


@pytest.mark.parametrize("clip", [0.5, 1.0, 2.05, 3.0])
def test_the_bound_on_the_clipping_error_holds_for_sums_of_signs(clip):
    # Exactly, for equal and for geometric weights.
    for weights in (np.ones(12), 0.7 ** np.arange(12), np.array([3.0, 1, 1, 1, 1])):
        signs = np.array(list(itertools.product([-1, 1], repeat=weights.size)))
        sums = abs(signs @ weights) / np.linalg.norm(weights)
        clipped = np.mean(np.maximum(sums - clip, 0) ** 2)
        assert clipped <= clipping_bound(clip)
    assert clipping_error(clip) < clipping_bound(clip) <= 1
