"""Means of vectors: unbiased, with the error of the formula, close to the best possible error."""

from __future__ import annotations

import math
import tracemalloc

import numpy as np
import pytest
from mpmath import mp, mpf
from scipy import stats
from sqkr import SampledSigns

from turnout.core.errors import ParameterError
from turnout.estimation.means import MeanTally, collect_mean, estimate_mean, project_ball
from turnout.randomizers.vectors import (
    BinaryVectorRandomizer,
    L1Randomizer,
    L2Randomizer,
    LInfRandomizer,
    PrivUnit,
    PrivUnitG,
    SphericalCode,
)
from turnout.randomizers.vectors.l2 import best_clip, clipping_error
from turnout.randomness import SimulationStreams
from turnout.testing import assert_binomial, assert_mean, assert_rejects

D, N = 300, 1000
TARGETS = {1.0: (10, 12.6, 1.9), 4.0: (20, 2.4, 0.13), 8.0: (36, 1.2, 0.04)}


def unit_vectors(clients: int, dimension: int = D, seed: int = 0) -> np.ndarray:
    drawn = np.random.default_rng(seed).normal(size=(clients, dimension))
    return drawn / np.linalg.norm(drawn, axis=1, keepdims=True)


def source(name: str):
    return SimulationStreams(29).source(name)


def errors(randomizer, held: np.ndarray, runs: int) -> np.ndarray:
    """Squared errors of independent estimates of one mean."""
    n, found = len(held), []
    for run in range(runs):
        tally = collect_mean(randomizer, held, source(f"run {run}"), first=run * n)
        found.append(np.sum((estimate_mean(tally).value - held.mean(axis=0)) ** 2))
    return np.array(found)


@pytest.mark.parametrize("epsilon", TARGETS)
def test_default_mean_randomizers_have_the_expected_error_within_the_given_bits(epsilon):
    bits, most, _ = TARGETS[epsilon]
    alike = np.tile(unit_vectors(1), (N, 1))
    for randomizer in (
        L2Randomizer.best(D, epsilon, message_bits=bits),
        L2Randomizer.rotated(D, epsilon, message_bits=bits),
    ):
        assert randomizer.message_bits <= bits
        for held in (unit_vectors(40), alike[:2]):
            # Exact expectation over all draws of the clients.
            assert randomizer.squared_error(held).mean() / N <= most
            assert np.sum(randomizer.bias(held) ** 2) < 1e-3 * most
        assert randomizer.worst_squared_error / N <= most


@pytest.mark.parametrize("epsilon", TARGETS)
@pytest.mark.parametrize("kind", [PrivUnit, PrivUnitG])
def test_privunit_has_the_expected_error(kind, epsilon):
    randomizer = kind(D, epsilon)
    exact = randomizer.mean_squared_error(unit_vectors(N))
    most = TARGETS[epsilon][2]
    assert exact <= (most if kind is PrivUnit else 1.02 * most)
    assert randomizer.epsilon0 <= epsilon
    assert randomizer.epsilon0 == pytest.approx(epsilon, rel=1e-9)


def test_spherical_codes_are_near_privunit_in_few_bits():
    for epsilon, bits, over in [(1.0, 1, 1.17), (4.0, 6, 1.06), (8.0, 10, 1.04)]:
        code = SphericalCode(D, epsilon, code_bits=bits)
        reference = PrivUnit(D, epsilon)
        assert code.message_bits == bits
        assert code.worst_squared_error < over * reference.worst_squared_error


@pytest.mark.parametrize(
    "randomizer",
    [
        L2Randomizer.best(12, 2.0),
        L2Randomizer.rotated(12, 2.0, clip=6.0),
        L2Randomizer.rotated(12, 8.0, clip=6.0, message_bits=20),
        L2Randomizer.as_printed(12, 2.0, clients=100),
        SphericalCode(12, 2.0, code_bits=1),
        SphericalCode(12, 2.0, code_bits=4, preferred=2),
        PrivUnit(12, 2.0),
        PrivUnitG(12, 2.0),
        SampledSigns(12, 2.0, samples=2),
    ],
    ids=str,
)
def test_mean_estimates_are_unbiased_with_the_stated_error(randomizer):
    """Expectations over the clients' draws, and over public directions where there are any."""
    one = unit_vectors(1, 12, seed=3)
    clients = 4000
    held = np.tile(one, (clients, 1))
    messages = randomizer.encode(held, source("messages"))
    alone = np.array(
        [randomizer.mean(randomizer.total(messages[i : i + 1], i), 1) for i in range(clients)]
    )
    across = np.linalg.svd(one)[2][1]
    assert_mean(alone @ one[0], 1.0)
    assert_mean(alone @ across, 0.0)
    value = randomizer.mean(randomizer.total(messages), clients)
    stated = float(randomizer.squared_error(one)[0])
    squares = np.sum((alone - one) ** 2, axis=1)
    if isinstance(randomizer, SampledSigns):  # states a bound
        assert squares.mean() < 1.05 * stated
        assert squares.mean() > 0.8 * stated
    else:
        assert_mean(squares, stated)
        assert_rejects(
            lambda wrong: assert_mean(*wrong),
            {
                "a quarter less error": (squares, 0.75 * stated),
                "off along x": (alone @ one[0] + 0.2 * (alone @ one[0]).std(), 1.0),
                "off across x": (alone @ across + 0.2 * (alone @ across).std(), 0.0),
            },
        )
    assert np.sum((value - one[0]) ** 2) < 3 * stated / clients


@pytest.mark.parametrize("length", [0.0, 0.4])
@pytest.mark.parametrize("kind", ["code", "unit", "unit-g"])
def test_means_of_vectors_shorter_than_the_radius_are_unbiased(kind, length):
    randomizer = {
        "code": SphericalCode(8, 3.0, 2.0, 3),
        "unit": PrivUnit(8, 3.0, 2.0),
        "unit-g": PrivUnitG(8, 3.0, 2.0),
    }[kind]
    one = length * unit_vectors(1, 8)
    messages = randomizer.encode(np.tile(one, (3000, 1)), source("short"))
    alone = np.array(
        [randomizer.mean(randomizer.total(messages[i : i + 1], i), 1) for i in range(3000)]
    )
    for column in range(8):
        assert_mean(alone[:, column], float(one[0, column]))
    assert_mean(np.sum((alone - one) ** 2, axis=1), float(randomizer.squared_error(one)[0]))


@pytest.mark.parametrize("epsilon", [0.5, 2.0, 8.0])
def test_privunit_epsilon0_is_the_largest_density_ratio(epsilon):
    randomizer = PrivUnit(7, epsilon)
    with mp.workdps(40):
        gamma = mpf(randomizer.gamma)
        q = mp.betainc(3, mpf(1) / 2, 0, 1 - gamma**2, regularized=True) / 2
        p = mpf(randomizer.preference.numerator) / randomizer.preference.denominator
        exact = mp.log(p * (1 - q) / ((1 - p) * q))
    assert exact <= randomizer.epsilon0 <= epsilon
    assert float(exact) > epsilon * (1 - 1e-9)
    one = unit_vectors(1, 7)
    sent = randomizer.encode(np.tile(one, (20_000, 1)), source("cap"))
    inside = int(np.count_nonzero(sent @ one[0] >= randomizer.gamma))
    assert_binomial(inside, 20_000, float(p))
    assert_rejects(
        lambda chance: assert_binomial(inside, 20_000, chance),
        {"q": float(q), "a fifth less outside": float(1 - 0.8 * (1 - p))},
    )


@pytest.mark.parametrize("kind", [PrivUnit, PrivUnitG])
def test_privunit_messages_are_uniform_inside_and_outside_the_cap(kind):
    """Inside the cap and outside it, ⟨x, V⟩ has the distribution of a uniform V."""
    randomizer = kind(6, 1.5, 1.0, 0.3)
    one = unit_vectors(1, 6)
    sent = randomizer.encode(np.tile(one, (20_000, 1)), source("parts")) @ one[0]
    distribution = (
        stats.norm(scale=6**-0.5).cdf
        if kind is PrivUnitG
        else (lambda t: stats.beta(2.5, 2.5).cdf((t + 1) / 2))
    )
    cut = distribution(0.3)
    for part, low, high in [(sent[sent >= 0.3], cut, 1.0), (sent[sent < 0.3], 0.0, cut)]:
        assert stats.kstest((distribution(part) - low) / (high - low), "uniform").pvalue > 1e-9
        assert stats.kstest(distribution(part), "uniform").pvalue < 1e-9


def test_the_l2_estimate_of_the_thesis_has_more_error_than_the_constant_zero():
    printed = L2Randomizer.as_printed(D, 1.0, clients=N)
    exact = printed.squared_error(unit_vectors(20)).mean() / N
    assert exact > 2000  # the estimate 0 has an error of at most 1
    assert printed.epsilon0 < 0.97
    assert exact > 200 * L2Randomizer.best(D, 1.0, message_bits=10).worst_squared_error / N


def test_the_best_clipping_threshold_grows_with_the_number_of_clients():
    assert best_clip(D, 1.0, 100) < best_clip(D, 1.0, 10**6) < best_clip(D, 1.0, 10**10)
    drawn = np.random.default_rng(0).normal(size=200_000)
    beyond = np.maximum(np.abs(drawn) - 2.0, 0) ** 2
    assert_mean(beyond, clipping_error(2.0))


def test_mean_tallies_of_blocks_add_up_in_any_order():
    randomizer = SphericalCode(5, 2.0, code_bits=2)
    messages = randomizer.encode(unit_vectors(12, 5), source("blocks"))
    parts = [MeanTally.of(randomizer, messages[i : i + 3], i) for i in range(0, 12, 3)]
    whole = MeanTally.of(randomizer, messages)
    one, other = (
        parts[0] + (parts[1] + (parts[2] + parts[3])),
        (parts[3] + parts[1]) + (parts[0] + parts[2]),
    )
    for tally in (one, other):
        assert tally.clients == 12
        assert np.allclose(tally.total, whole.total, atol=1e-6)
    with pytest.raises(ParameterError, match="randomizer"):
        _ = whole + MeanTally(SphericalCode(5, 2.0), np.zeros(5), 1, np.zeros((2, 5)))


@pytest.mark.parametrize(
    "randomizer",
    [
        BinaryVectorRandomizer(40, 3.0),
        LInfRandomizer(40, 3.0, levels=2),
        L1Randomizer(40, 3.0),
        SphericalCode(40, 3.0, code_bits=3),
    ],
    ids=lambda r: type(r).__name__,
)
def test_the_text_of_an_estimate_states_its_privacy(randomizer):
    held = np.zeros((500, 40))
    held[:, 0] = 1
    estimate = estimate_mean(collect_mean(randomizer, held, source("words"), block_clients=64))
    words = str(estimate)
    for word in ("unit: one client", "trust: local", "replace-one", "ε = 3", "public randomness"):
        assert word in words
    assert estimate.bits == 500 * randomizer.message_bits
    assert abs(estimate.value[0] - 1) < 6 * estimate.noise_error
    assert estimate.mse_bound == pytest.approx(randomizer.worst_squared_error / 500)
    assert np.linalg.norm(estimate.projected - held[0]) <= np.linalg.norm(estimate.value - held[0])


def test_the_projection_to_the_ball_is_the_nearest_point():
    draws = np.random.default_rng(1)
    for norm in (1, 2, math.inf):
        far = draws.normal(size=6) * 3
        near = project_ball(far, norm, 1.5)
        assert np.linalg.norm(near, ord=norm) <= 1.5 + 1e-12
        others = draws.normal(size=(2000, 6))
        others *= 1.5 / np.linalg.norm(others, ord=norm, axis=1, keepdims=True)
        assert np.sum((near - far) ** 2) <= np.sum((others - far) ** 2, axis=1).min()
        assert np.array_equal(project_ball(near * 0.5, norm, 1.5), near * 0.5)
    with pytest.raises(ParameterError, match="norm"):
        project_ball(np.ones(2), 3, 1.0)


def test_collect_mean_uses_little_memory_for_many_clients():
    randomizer = SphericalCode(D, 2.0, code_bits=3)
    held = np.broadcast_to(unit_vectors(1), (10_000, D))
    tracemalloc.start()
    collect_mean(randomizer, held, source("memory"))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 200 * 2**20
