"""Vector randomizers by enumeration: exact ε₀, unbiased estimates, exact errors."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from sqkr import SampledSigns
from vector_truths import all_messages, largest_loss, sampled_distribution, vectors_of_messages

from turnout.randomizers.vectors import (
    BinaryVectorRandomizer,
    KashinFrame,
    L1Randomizer,
    LInfRandomizer,
    SeededCode,
    SphericalCode,
)
from turnout.randomness import SimulationStreams
from turnout.testing import assert_frequencies, assert_rejects

PUBLIC = 7
"""Seed for which client 0 samples no padding coordinate, which would have no loss."""
BINARY = [
    BinaryVectorRandomizer(3, 1.3, samples, variant, seed)
    for samples, variant, seed in itertools.product(
        (1, 2, 3), ("default", "as-printed"), (None, PUBLIC)
    )
]
LINF = [
    LInfRandomizer(3, 1.7, 2.0, samples, levels, variant, seed, shared)
    for samples, levels, variant, seed, shared in [
        (1, 1, "default", None, True),
        (2, 2, "default", None, True),
        (1, 3, "default", 5, True),
        (1, 2, "default", None, False),
        (2, 2, "default", 5, False),
        (1, 2, "as-printed", None, True),
        (2, 1, "as-printed", None, True),
        (3, 2, "as-printed", PUBLIC, True),
    ]
]
L1 = [L1Randomizer(d, 0.9, 3.0, seed) for d, seed in [(1, None), (3, None), (4, None), (4, 6)]]
CODES = [
    SphericalCode(3, 1.2, 2.0, bits, preferred)
    for bits, preferred in [(1, None), (2, None), (2, 2), (3, 3), (3, 1)]
] + [SeededCode(5, 1.2, 2.0, *shape, seed_bits=2) for shape in [(1, 1), (2, 1), (4, 2), (4, 4)]]
GRID = (-1.0, -0.5, -0.3, 0.0, 0.25, 0.9, 1.0)
RNG = np.random.default_rng(11)


def inputs(randomizer) -> np.ndarray:
    """Corners and inner points of the norm ball."""
    d, r = randomizer.dimension, randomizer.radius
    if isinstance(randomizer, BinaryVectorRandomizer):
        return np.array(list(itertools.product((0, 1), repeat=d)))
    if isinstance(randomizer, LInfRandomizer):
        corners = np.array(list(itertools.product((-1, 1), repeat=d)))
        return r * np.concatenate([corners, RNG.choice(GRID, (20, d))])
    if isinstance(randomizer, L1Randomizer):
        inside = RNG.dirichlet(np.ones(d), 10) * RNG.choice([-1, 1], (10, d))
        return r * np.concatenate([np.eye(d), -np.eye(d), inside, 0.3 * inside])
    around = RNG.normal(size=(200, d))
    return r * around / np.linalg.norm(around, axis=1, keepdims=True)


def corners(randomizer) -> np.ndarray:
    """Inputs whose bits are determined before randomization, so that few draws remain."""
    given = inputs(randomizer)
    if isinstance(randomizer, LInfRandomizer):
        return given[[0, 3, 7]]
    return (
        given[: 2 * randomizer.dimension : 2] if isinstance(randomizer, L1Randomizer) else given[:4]
    )


@pytest.mark.parametrize("randomizer", [*BINARY, *LINF, *L1, *CODES], ids=str)
def test_epsilon0_of_a_vector_randomizer_is_the_largest_enumerated_loss(randomizer):
    distributions = [randomizer.probabilities(value) for value in inputs(randomizer)]
    assert np.allclose(np.sum(distributions, axis=1), 1, atol=1e-12)
    assert largest_loss(distributions) == pytest.approx(randomizer.epsilon0, abs=1e-12)
    assert randomizer.epsilon0 <= randomizer.epsilon


@pytest.mark.parametrize("randomizer", [*BINARY, *LINF, *L1, *CODES], ids=str)
def test_epsilon0_of_default_vector_randomizers_equals_the_requested_epsilon(randomizer):
    if getattr(randomizer, "variant", "default") == "default":
        assert randomizer.epsilon0 == pytest.approx(randomizer.epsilon, rel=1e-14)
    else:
        assert randomizer.epsilon0 < 0.999 * randomizer.epsilon


@pytest.mark.parametrize("randomizer", [*BINARY, *LINF[:6], *L1, *CODES], ids=str)
def test_encoded_vectors_follow_the_enumerated_probabilities(randomizer):
    for value in corners(randomizer):
        sampled = sampled_distribution(randomizer, value)
        assert sum(sampled) == 1
        assert np.allclose(sampled.astype(float), randomizer.probabilities(value), atol=1e-14)


@pytest.mark.parametrize("samples", [1, 2, 3])
def test_the_enumerated_likelihood_ratio_of_vectors_is_exact(samples):
    randomizer = BinaryVectorRandomizer(3, 1.3, samples)
    distributions = np.array(
        [sampled_distribution(randomizer, value) for value in inputs(randomizer)]
    )
    ratio = max((distributions.max(axis=0) / distributions.min(axis=0)).tolist())
    (p,) = randomizer.bits.flips
    assert ratio == ((1 - type(ratio)(p)) / type(ratio)(p)) ** samples
    assert float(ratio) <= math.exp(1.3)


def moments(randomizer, value) -> tuple[np.ndarray, float]:
    """Mean E y and error E‖y − E y‖² of a decoded message y, as sums over all messages."""
    distribution, vectors = randomizer.probabilities(value), vectors_of_messages(randomizer)
    mean = distribution @ vectors
    return mean, float(distribution @ np.sum((vectors - mean) ** 2, axis=1))


@pytest.mark.parametrize(
    "randomizer", [r for r in [*BINARY, *LINF, *L1] if not (r.public_seed is not None)], ids=str
)
def test_vector_estimates_are_unbiased_with_the_error_of_the_formula(randomizer):
    worst = 0.0
    for value in inputs(randomizer):
        mean, error = moments(randomizer, value)
        assert np.allclose(mean, value, atol=1e-9)
        stated = float(randomizer.squared_error(value[None])[0])
        assert error == pytest.approx(stated, rel=1e-9)
        worst = max(worst, error)
    assert worst <= randomizer.worst_squared_error * (1 + 1e-12)


def test_the_worst_squared_error_of_vector_randomizers_is_attained():
    for randomizer in (LINF[0], LINF[3], LINF[5], *BINARY[:2]):
        fine = np.array(list(itertools.product(np.linspace(-1, 1, 9), repeat=3)))
        given = inputs(randomizer) if randomizer in BINARY else randomizer.radius * fine
        errors = randomizer.squared_error(given)
        assert errors.max() == pytest.approx(randomizer.worst_squared_error, rel=1e-9)


def test_published_vector_bits_have_more_error_than_centred_bits():
    printed, ours = BINARY[2], BINARY[0]
    assert (printed.variant, printed.samples) == ("as-printed", 1)
    assert printed.worst_squared_error > 1.5 * ours.worst_squared_error
    # Each formula holds only for its own code, with or without centring.
    for value in inputs(ours)[1:]:
        assert moments(ours, value)[1] != pytest.approx(moments(printed, value)[1], rel=0.1)


@pytest.mark.parametrize("randomizer", [LINF[1], LINF[3]], ids=str)
def test_vector_coordinates_between_levels_are_rounded_at_random(randomizer):
    value = np.array([0.6, -1.4, 1.9])
    messages = randomizer.encode(
        np.tile(value, (40_000, 1)), SimulationStreams(3).source("clients")
    )
    seen = np.bincount(
        np.ravel_multi_index(messages.T, randomizer.radices),
        minlength=len(all_messages(randomizer)),
    )
    assert_frequencies(seen, randomizer.probabilities(value))
    other = LInfRandomizer(
        3, 2.7, 2.0, randomizer.samples, randomizer.levels, shared=randomizer.shared
    )
    assert_rejects(
        lambda distribution: assert_frequencies(seen, distribution),
        {
            "another ε": other.probabilities(value),
            "another vector": randomizer.probabilities(-value),
        },
    )


@pytest.mark.parametrize("samples", [1, 2, 3])
def test_messages_of_sampled_signs_attain_epsilon0(samples, monkeypatch):
    randomizer = SampledSigns(2, 1.1, samples=samples)

    def distribution(signs: np.ndarray) -> np.ndarray:
        spread = np.broadcast_to(signs * randomizer.bound, (1, randomizer.frame.width))
        monkeypatch.setattr(KashinFrame, "bounded", lambda *_: spread)
        return sampled_distribution(randomizer, [1.0, 0.0])

    distributions = [distribution(np.ones(1)), distribution(-np.ones(1))]
    assert largest_loss(distributions) == pytest.approx(randomizer.epsilon0, abs=1e-12)
    assert randomizer.epsilon0 <= 1.1
