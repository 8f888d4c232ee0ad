"""Vector code whose messages contain a seed: distribution, moments and error bounds."""

from __future__ import annotations

import math

import numpy as np
import pytest
from vector_truths import vectors_of_messages

from turnout.core.errors import ParameterError, UnsupportedError
from turnout.randomizers.vectors import SeededCode
from turnout.randomizers.vectors.interface import mixed_words
from turnout.randomizers.vectors.spherical_code import largest_normals, mean_length
from turnout.randomness import SimulationStreams
from turnout.testing import assert_frequencies, assert_mean, assert_rejects

SMALL = [
    SeededCode(6, 1.5, 2.0, 4, 1, seed_bits=3),
    SeededCode(8, 1.5, 2.0, 2, 2, seed_bits=3, public_seed=5),
    SeededCode(5, 0.7, 1.0, 1, 1, seed_bits=4),
]


def unit_vectors(dimension: int, count: int, seed: int = 0) -> np.ndarray:
    drawn = np.random.default_rng(seed).normal(size=(count, dimension))
    return drawn / np.linalg.norm(drawn, axis=1, keepdims=True)


@pytest.mark.parametrize("code", SMALL, ids=str)
@pytest.mark.parametrize("length", [1.0, 0.4])
def test_seeded_code_moments_equal_those_of_all_enumerated_messages(code, length):
    value = code.radius * length * unit_vectors(code.dimension, 1)
    # A shorter vector is randomly replaced by a vector of norm r or its negative.
    up, down = (code.probabilities(sign * value[0] / length) for sign in (1, -1))
    distribution = (1 + length) / 2 * up + (1 - length) / 2 * down
    words = vectors_of_messages(code)
    mean = distribution @ words
    assert np.allclose(mean - value[0], code.bias(value), atol=1e-6)
    error = distribution @ np.sum((words - mean) ** 2, axis=1)
    assert error == pytest.approx(code.squared_error(value)[0], rel=1e-6)
    assert distribution @ np.sum(words**2, axis=1) == pytest.approx(
        code.worst_squared_error, rel=1e-9
    )


@pytest.mark.parametrize("code", SMALL, ids=str)
def test_a_vector_and_its_negative_attain_the_total_variation_of_a_seeded_code(code):
    for value in code.radius * unit_vectors(code.dimension, 20):
        up, down = code.probabilities(value), code.probabilities(-value)
        stated = getattr(code.priced_as, "total_variation", math.tanh(code.epsilon0 / 2))
        assert np.abs(up - down).sum() / 2 == pytest.approx(stated, rel=1e-9)
        others = [code.probabilities(other) for other in unit_vectors(code.dimension, 20, 1)]
        assert max(np.abs(up - other).sum() / 2 for other in others) <= stated * (1 + 1e-12)


def test_messages_of_short_vectors_are_a_mixture_of_those_of_two_opposite_vectors():
    code, length = SMALL[0], 0.4
    value = unit_vectors(6, 1)[0] * code.radius
    messages = code.encode(
        np.tile(length * value, (30_000, 1)), SimulationStreams(3).source("clients")
    )
    seen = np.bincount(messages[:, 0] * 8 + messages[:, 1], minlength=64)
    up, down = code.probabilities(value), code.probabilities(-value)
    assert_frequencies(seen, (1 + length) / 2 * up + (1 - length) / 2 * down)
    assert_rejects(
        lambda distribution: assert_frequencies(seen, distribution),
        {"the length dropped": up, "no length": down},
    )


@pytest.mark.parametrize("dimension", [300, 3000])
def test_the_bias_of_a_seeded_code_is_small_for_dense_vectors(dimension):
    code = SeededCode(dimension, 20.0, directions=16, preferred=2)
    vector, clients = unit_vectors(dimension, 1)[0] * (1 - 1e-6), 40_000
    source, block = SimulationStreams(1).source("clients"), 4000
    total = sum(
        code.total(code.encode(np.tile(vector, (block, 1)), source))
        for _ in range(clients // block)
    )
    found = code.mean(np.asarray(total), clients)
    noise = math.sqrt(code.worst_squared_error / clients)
    along = float(found @ vector)
    assert along == pytest.approx(1.0, abs=0.02 + 5 * noise / math.sqrt(dimension))
    # At d = 300, the bias is 0.06 with 64 classes of signs, and 0.24 with one class.
    assert np.linalg.norm(found - along * vector) <= 1.15 * math.hypot(noise, 0.07)


def test_the_bias_of_a_seeded_code_for_one_hot_vectors_is_within_its_bound():
    code = SeededCode(64, 2.0, 1.0, 8, 2, seed_bits=10)
    bias = float(np.linalg.norm(code.bias(np.eye(1, 64))))
    assert 0.2 < bias <= math.sqrt(code.worst_squared_bias)


def test_seeded_code_moments_over_too_many_seeds_are_refused():
    code = SeededCode(20, 1.0)
    for question in (code.bias, code.squared_error):
        with pytest.raises(UnsupportedError, match="seed_bits = 32: exact moments"):
            question(np.zeros((1, 20)))


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"dimension": 1}, "dimension = 1"),
        ({"epsilon": 0.0}, "epsilon = 0.0"),
        ({"epsilon": math.nan}, "epsilon = nan"),
        ({"radius": 1e-13}, "radius = 1e-13"),
        ({"directions": 12}, "directions = 12: expected a power of two of at most 16"),
        ({"directions": 32}, "directions = 32: expected a power of two of at most 16"),
        ({"preferred": 9, "directions": 8}, "preferred = 9"),
        ({"seed_bits": 49}, "seed_bits = 49"),
    ],
)
def test_invalid_seeded_code_parameters_are_refused_in_one_line(changes, line):
    with pytest.raises(ParameterError, match=line) as caught:
        SeededCode(**({"dimension": 20, "epsilon": 1.0} | changes))
    assert "\n" not in str(caught.value)


def test_the_expected_sum_of_the_largest_normals_matches_a_simulation():
    drawn = np.sort(np.abs(np.random.default_rng(1).normal(size=(50_000, 16))), axis=1)
    for largest in (1, 3, 16):
        assert_mean(drawn[:, -largest:].sum(axis=1), largest_normals(16, largest))
    with pytest.raises(AssertionError):
        assert_mean(drawn[:, -3:].sum(axis=1), largest_normals(15, 3))
    lengths = np.linalg.norm(np.random.default_rng(2).normal(size=(50_000, 7)), axis=1)
    assert_mean(lengths, mean_length(7))


def test_pseudorandom_words_of_different_seeds_are_independent():
    words = mixed_words(np.arange(2000), 4)
    assert len(np.unique(words)) == words.size
    bits = np.unpackbits(words.view(np.uint8), axis=1).astype(float)
    assert abs(bits.mean() - 0.5) < 0.005
    correlations = np.corrcoef(bits[:-1].ravel(), bits[1:].ravel())[0, 1]
    assert abs(correlations) < 0.01  # of neighbouring seeds; 4 standard errors are 0.0056
    same = np.corrcoef(bits[:-1].ravel(), bits[:-1].ravel())[0, 1]
    assert same > 0.99
