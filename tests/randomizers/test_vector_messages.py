"""Messages of vector randomizers: bytes, public randomness, rotations, and refusals."""

from __future__ import annotations

import math

import numpy as np
import pytest
from sqkr import SampledSigns

from turnout.core.errors import ParameterError
from turnout.randomizers.vectors import (
    BinaryVectorRandomizer,
    CosineRotation,
    HadamardRotation,
    KashinFrame,
    L1Randomizer,
    L2Randomizer,
    LInfRandomizer,
    PrivUnit,
    PrivUnitG,
    PublicRandomness,
    SeededCode,
    SphericalCode,
    best_randomizer,
    contained_radius,
)
from turnout.randomizers.vectors.interface import flip_probability, flip_ratio, normals
from turnout.randomizers.vectors.rotations import level_of
from turnout.randomizers.vectors.sampled_bits import bit_weights, printed_shares, water_filled
from turnout.randomness import OSRandomness, SimulationStreams
from turnout.randomness.source import LARGEST_RANGE
from turnout.testing import assert_mean, assert_rejects

ALL = [
    BinaryVectorRandomizer(20, 1.0, 3),
    BinaryVectorRandomizer(20, 1.0, 3, "as-printed", public_seed=2),
    LInfRandomizer(20, 2.0, 1.5, 3, 2),
    LInfRandomizer(20, 2.0, 1.5, 3, 2, shared=False),
    L1Randomizer(20, 2.0),
    L1Randomizer(20, 2.0, public_seed=1),
    L2Randomizer.best(20, 2.0),
    L2Randomizer.rotated(20, 2.0),
    L2Randomizer.as_printed(20, 2.0, clients=50),
    SampledSigns(20, 2.0, samples=3),
    SphericalCode(20, 2.0, code_bits=3),
    SeededCode(20, 2.0),
    PrivUnit(20, 2.0),
    PrivUnitG(20, 2.0),
]


def vectors(randomizer, clients: int) -> np.ndarray:
    """Vectors on the boundary of the norm ball."""
    drawn = np.random.default_rng(5).normal(size=(clients, randomizer.dimension))
    if isinstance(randomizer, BinaryVectorRandomizer):
        return (drawn > 0).astype(int)
    sizes = np.linalg.norm(drawn, ord=randomizer.norm, axis=1, keepdims=True)
    return randomizer.radius * drawn / sizes


@pytest.mark.parametrize("randomizer", ALL, ids=lambda r: type(r).__name__)
def test_packed_vector_messages_have_the_stated_length_and_unpack(randomizer):
    messages = randomizer.encode(vectors(randomizer, 11), OSRandomness())
    data = randomizer.pack(messages)
    assert len(data) == math.ceil(11 * randomizer.message_bits / 8)
    assert np.array_equal(randomizer.unpack(data, 11), messages)
    with pytest.raises(ParameterError, match="bytes"):
        randomizer.unpack(data + b"\0", 11)


@pytest.mark.parametrize("randomizer", ALL, ids=lambda r: type(r).__name__)
def test_vectors_outside_the_norm_ball_are_refused(randomizer):
    right = vectors(randomizer, 2).astype(float)
    for wrong in (
        right[0],
        right[:, :-1],
        3 * right,
        np.where(right == right.max(), np.nan, right),
    ):
        with pytest.raises(ParameterError, match="values"):
            randomizer.encode(wrong, OSRandomness())


@pytest.mark.parametrize("randomizer", ALL[:-2], ids=lambda r: type(r).__name__)
def test_invalid_vector_messages_are_refused(randomizer):
    for wrong in (-1, max(randomizer.radices)):
        with pytest.raises(ParameterError, match="messages"):
            randomizer.total(np.full((1, len(randomizer.radices)), wrong))


@pytest.mark.parametrize("randomizer", ALL, ids=lambda r: type(r).__name__)
def test_totals_of_blocks_of_vector_messages_add_up(randomizer):
    messages = randomizer.encode(vectors(randomizer, 9), SimulationStreams(1).source("c"), 40)
    parts = randomizer.total(messages[:4], 40) + randomizer.total(messages[4:], 44)
    assert np.allclose(parts, randomizer.total(messages, 40), atol=1e-5)


def test_public_random_words_do_not_depend_on_how_they_are_read():
    public = PublicRandomness(3, "words")
    whole = public.words(100, 10, 6)
    assert np.array_equal(whole[4:7], public.words(104, 3, 6))
    assert not np.array_equal(whole, PublicRandomness(3, "others").words(100, 10, 6))
    assert len(np.unique(public.words(0, 50, 8))) == 400
    parts = public.chosen_words(np.array([3, 0]), np.array([1, 2]), 8, 3)
    assert np.array_equal(parts[0], public.words(3, 1, 24)[0, 8:16])
    assert np.array_equal(parts[1], public.words(0, 1, 24)[0, 16:24])


def test_public_random_normals_are_normally_distributed():
    drawn = normals(PublicRandomness(1, "normal").words(0, 1, 20_000))[0].astype(float)
    assert_mean(drawn, 0.0)
    assert_mean(drawn**2, 1.0)
    assert_mean(drawn**4, 3.0)
    assert_mean(drawn[::2] * drawn[1::2], 0.0)
    assert_rejects(lambda wrong: assert_mean(wrong**2, 1.0), {"5 % too wide": 1.05 * drawn})


@pytest.mark.parametrize(
    "rotation", [HadamardRotation(5, 1), CosineRotation(5, 1), CosineRotation(7, 2, 11)], ids=str
)
def test_rotations_keep_lengths_and_are_inverted(rotation):
    given = np.random.default_rng(0).normal(size=(4, rotation.dimension))
    turned = rotation.forward(given)
    assert np.allclose(np.sum(turned**2, axis=1), np.sum(given**2, axis=1))
    assert np.allclose(rotation.backward(turned), given)
    assert rotation.row_sizes.sum() == pytest.approx(rotation.dimension)


@pytest.mark.parametrize("redundancy", [1.5, 2, 4])
def test_kashin_coordinates_are_bounded_and_represent_the_vector(redundancy):
    d = 200
    frame = KashinFrame(d, 3, int(redundancy * d))
    given = vectors(SphericalCode(d, 1.0), 30)
    given[:5] = np.eye(5, d)
    bound = level_of(redundancy) / math.sqrt(frame.width)
    spread = frame.bounded(given, bound)
    assert np.abs(spread).max() <= bound
    assert np.abs(frame.backward(spread) - given).max() < 1e-6
    # The rotation alone exceeds the bound by far.
    assert np.abs(frame.forward(given)).max() > 1.3 * bound


@pytest.mark.parametrize("epsilon", [1e-6, 0.1, 1.0, 7.3, 20.0, 30.0])
def test_a_flip_probability_is_on_the_grid_and_never_exceeds_epsilon(epsilon):
    p = flip_probability(epsilon)
    assert (p * LARGEST_RANGE).is_integer()
    ratio = flip_ratio(p)
    assert math.log(ratio) <= epsilon * (1 + 1e-15)
    assert math.log(ratio) == pytest.approx(epsilon, rel=1e-5 if epsilon > 20 else 1e-9)


@pytest.mark.parametrize("epsilon", [0.01, 1.0, 8.0, 25.0])
@pytest.mark.parametrize("levels", [1, 2, 4])
def test_water_filling_splits_epsilon_with_the_least_error(epsilon, levels):
    def noise(shares: np.ndarray) -> np.ndarray:
        return np.sum(bit_weights(levels) ** 2 / np.tanh(shares / 2) ** 2, axis=-1)

    best = np.array(water_filled(epsilon, levels))
    assert best.sum() == pytest.approx(epsilon, rel=1e-12)
    others = epsilon * np.random.default_rng(2).dirichlet(np.ones(levels), 2000)
    assert noise(best) <= noise(others).min() * (1 + 1e-12)
    printed = np.array(printed_shares(epsilon, levels))
    assert noise(best) <= noise(printed) * (1 + 1e-12)
    if epsilon == 0.01:
        assert best == pytest.approx(printed, rel=1e-3)


def test_the_norm_ball_lies_within_the_contained_radius():
    drawn = np.random.default_rng(4).normal(size=(500, 30)) ** 5
    for p in (1, 1.3, 2, 5, math.inf):
        unit = drawn / np.linalg.norm(drawn, ord=p, axis=1, keepdims=True)
        for q in (1, 2, math.inf):
            assert np.linalg.norm(unit, ord=q, axis=1).max() <= contained_radius(p, q, 30, 1) + 1e-9
    # Remark 3.4.1 of the thesis states the reverse inclusion, which is false: this vector is in an
    # ℓ1.5 ball, but not in the ℓ1 ball of the same radius.
    flat = np.full(30, 30 ** (-1 / 1.5))
    assert np.linalg.norm(flat, ord=1.5) == pytest.approx(1)
    assert np.abs(flat).sum() > 3


@pytest.mark.parametrize("norm", [1, 1.2, 2, 3, math.inf])
@pytest.mark.parametrize("seed", [None, 3])
def test_a_best_vector_randomizer_is_returned_for_every_norm(norm, seed):
    randomizer = best_randomizer(norm, 40, 2.0, 1.5, message_bits=30, public_seed=seed)
    assert randomizer.message_bits <= 30
    drawn = np.random.default_rng(4).normal(size=(5, 40)) ** 3
    given = 1.5 * drawn / np.linalg.norm(drawn, ord=norm, axis=1, keepdims=True)
    randomizer.encode(given, OSRandomness())
    with pytest.raises(ParameterError, match="message_bits"):
        LInfRandomizer.best(40, 2.0, message_bits=3)
