"""Updates on an integer lattice never exceed the clip norm, in exact arithmetic."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from turnout.core.aggregates import IntegerSum
from turnout.core.errors import LocalProtocolError, ParameterError, RemoteProtocolError
from turnout.protocol.lattice import Lattice, norm_squared_of

POSITIVE = st.floats(1e-6, 1e6)


def exact_norm_squared(update: np.ndarray) -> int:
    return sum(int(q) ** 2 for q in update)


def clipped(update: np.ndarray, clip_norm: float) -> np.ndarray:
    """Update clipped in its own floating-point type, as a device clips it."""
    norm = np.sqrt(np.square(update).sum())
    return update if norm <= clip_norm else (update * (clip_norm / norm)).astype(update.dtype)


@given(POSITIVE, st.floats(1.001, 2.0**30), st.data())
def test_rounding_to_the_lattice_never_increases_the_norm(clip_norm, radius, data):
    dimension = data.draw(st.integers(1, 12))
    dtype = data.draw(st.sampled_from([np.float32, np.float64]))
    parts = st.floats(-1, 1, width=32) | st.integers(-3, 3).map(float)
    raw = data.draw(arrays(dtype, dimension, elements=parts)) * dtype(2 * clip_norm)
    update = clipped(raw.astype(dtype), clip_norm)
    lattice = Lattice(clip_norm / radius, clip_norm, dimension)
    q = lattice.quantise(update)
    assert q.dtype == np.int32
    length = Fraction(lattice.clip_norm) / Fraction(lattice.step)
    assert exact_norm_squared(q) <= length**2
    assert exact_norm_squared(q) <= lattice.norm_squared_limit <= length**2
    lattice.check(q)
    # Towards zero by less than one step; by two if clipping overshot and everything is scaled.
    exact = update.astype(np.float64) / lattice.step
    assert np.all(np.abs(q) <= np.abs(exact))
    assert np.all(q * exact >= 0)
    overshot = update.astype(np.float64) @ update > clip_norm**2 * (1 - 1e-12)
    assert np.all(np.abs(q - exact) <= 1 + overshot + 2e-5 * np.abs(exact))
    assert np.array_equal(lattice.decode(lattice.encode(q)), q)


@pytest.mark.parametrize("mutant", [np.rint, lambda u: np.sign(u) * np.ceil(np.abs(u))])
def test_other_rounding_rules_exceed_the_clip_norm(mutant):
    lattice = Lattice(1 / 1024, 1.0, 5)
    update = np.array([0.1, -0.7, 0.5, 0.5, 0.1])
    update *= 1 / np.linalg.norm(update) * (1 - 1e-9)
    worst = max(
        norm_squared_of(mutant(clipped(update + shift, 1.0) / lattice.step))
        for shift in np.arange(50) / 99
    )
    assert worst > lattice.norm_squared_limit
    for shift in np.arange(50) / 99:
        lattice.check(lattice.quantise(clipped(update + shift, 1.0)))


def test_rounding_to_the_lattice_removes_floating_point_excess_of_the_norm():
    lattice = Lattice(1.0, 3.0, 1)
    assert lattice.quantise(np.array([3.0000001])).tolist() == [3]
    # 0.5/0.1 rounds to 5 where the exact quotient of these two floats is below it.
    assert Fraction(0.5) / Fraction(0.1) < 5
    assert 0.5 / 0.1 == 5
    lattice = Lattice(0.1, 0.5, 1)
    assert lattice.norm_squared_limit == 24
    assert lattice.quantise(np.array([0.5])).tolist() == [4]
    assert Lattice(0.1, 0.5, 3).quantise(np.array([0.3, -0.4, 0.0])).tolist() == [2, -4, 0]


def test_unclipped_updates_are_refused_before_rounding_to_the_lattice():
    lattice = Lattice(1 / 64, 1.0, 2)
    with pytest.raises(LocalProtocolError, match="shape"):
        lattice.quantise(np.zeros(3))
    for bad in ([1.0, 0.2], [np.nan, 0.0], [np.inf, 0.0], [1e308, 1e308], [-1e300, 0.0]):
        with pytest.raises(LocalProtocolError, match="not clipped"):
            lattice.quantise(np.array(bad))


def test_invalid_lattice_updates_are_refused_instead_of_repaired():
    lattice = Lattice(0.25, 1.0, 2)
    lattice.check(np.array([4, 0], np.int32))
    for update, words in (
        (np.array([4, 1], np.int32), "not clipped"),
        (np.array([0, -5], np.int32), "not clipped"),
        (np.array([1], np.int32), "shape"),
        (np.array([[1, 1]], np.int32), "shape"),
        (np.array([1, 1], np.int64), "int64"),
        (np.array([1.0, 1.0]), "float64"),
        (np.array([1, 1], ">i4"), "int32|>i4"),
    ):
        with pytest.raises(RemoteProtocolError, match=words):
            lattice.check(update)
        with pytest.raises(LocalProtocolError):
            lattice.encode(update)


@pytest.mark.parametrize("value", [2**31 - 1, -(2**31), 2**16, 65_535, -92_682])
def test_the_norm_check_of_lattice_updates_does_not_overflow(value):
    # In int32 each of these wraps, and in int64 eight or more squares of 2⁶² do.
    update = np.full(70_000, value, np.int32)
    assert norm_squared_of(update) == 70_000 * value**2
    lattice = Lattice(1.0, 2.0**31 - 1, 70_000)
    if 70_000 * value**2 > lattice.norm_squared_limit:
        with pytest.raises(RemoteProtocolError, match="not clipped"):
            lattice.check(update)
    else:
        lattice.check(update)


@given(st.lists(st.integers(-(2**31), 2**31 - 1), min_size=1, max_size=40))
def test_the_norm_of_a_lattice_update_is_exact(values):
    update = np.array(values, np.int32)
    assert norm_squared_of(update) == exact_norm_squared(update)


def test_lattice_updates_at_the_norm_limit_pass_and_beyond_it_are_refused():
    for step, clip_norm in ((0.1, 0.3), (1 / 1024, 1.0), (3e-9, 1.0), (0.7, 5.1)):
        lattice = Lattice(step, clip_norm, 4)
        limit = lattice.norm_squared_limit
        assert limit <= (Fraction(clip_norm) / Fraction(step)) ** 2 < limit + 1
        for square in range(limit, limit - 3, -1):
            lattice.check(np.array(four_squares(square), np.int32))
        over = np.array(four_squares(limit + 1), np.int32)
        with pytest.raises(RemoteProtocolError):
            lattice.check(over)


def four_squares(number: int) -> list[int]:
    """Four integers whose squares sum to ``number``, found by search from the largest downwards."""
    top = math.isqrt(number)
    for a in range(top, -1, -1):
        rest = number - a * a
        for b in range(math.isqrt(rest), max(math.isqrt(rest) - 60, -1), -1):
            left = rest - b * b
            for c in range(math.isqrt(left), max(math.isqrt(left) - 60, -1), -1):
                d = math.isqrt(left - c * c)
                if a * a + b * b + c * c + d * d == number:
                    return [a, b, c, d]
    raise AssertionError(number)


def test_encoded_lattice_updates_are_little_endian_and_exact():
    lattice = Lattice(1.0, 1000.0, 2)
    assert lattice.encode(np.array([1, -2], np.int32)) == b"\x01\0\0\0\xfe\xff\xff\xff"
    assert lattice.encoded_size == 8
    decoded = lattice.decode(b"\x01\x02\0\0\xfe\xff\xff\xff")
    assert decoded.tolist() == [513, -2]
    decoded[0] = 7  # The decoded array is an independent copy.
    for data in (b"", bytes(7), bytes(9), bytes(4)):
        with pytest.raises(RemoteProtocolError, match="bytes"):
            lattice.decode(data)
    with pytest.raises(RemoteProtocolError, match="not clipped"):
        lattice.decode(b"\xff\xff\xff\x7f" + bytes(4))


def test_sums_of_lattice_updates_do_not_depend_on_the_order():
    lattice = Lattice.for_noise(1.0, 1.0, 50)
    generator = np.random.default_rng(4)
    updates = [lattice.quantise(clipped(generator.normal(size=50), 1.0)) for _ in range(200)]
    sums = []
    for order in (range(200), range(199, -1, -1), generator.permutation(200)):
        total = lattice.zero()
        for place in order:
            total = total + IntegerSum(updates[place], 1)
        sums.append(total.total)
    assert np.array_equal(sums[0], sums[1])
    assert np.array_equal(sums[0], sums[2])
    assert sums[0].dtype == np.int64
    expected = np.sum([u.astype(object) for u in updates], axis=0)
    assert sums[0].tolist() == expected.tolist()
    assert np.array_equal(lattice.to_model(sums[0]), sums[0] * lattice.step)


@given(st.floats(2.0**-18, 1024.0), POSITIVE, st.integers(1, 10**8))
def test_the_lattice_step_is_the_largest_that_satisfies_its_two_conditions(
    noise_multiplier, clip_norm, dimension
):
    lattice = Lattice.for_noise(noise_multiplier, clip_norm, dimension)
    assert np.frexp(lattice.step)[0] == 0.5
    assert lattice.noise_deviation(noise_multiplier) >= 1024
    moved = lattice.step * np.sqrt(dimension)
    assert moved <= clip_norm / 1024 * (1 + 1e-15)
    # Twice the step would violate one of the two conditions.
    coarser = 2 * lattice.step * 1024 / clip_norm * (1 + 1e-15)
    assert coarser > min(noise_multiplier, 1 / np.sqrt(dimension))


@given(st.floats(1e-3, 100), POSITIVE, st.floats(1, 2.0**30))
def test_lattice_noise_is_at_least_the_noise_in_the_privacy_analysis(
    noise_multiplier, clip_norm, radius
):
    lattice = Lattice(clip_norm / (radius + 1), clip_norm, 3)
    sensitivity = Fraction(clip_norm) / Fraction(lattice.step)
    deviation = Fraction(lattice.noise_deviation(noise_multiplier))
    exact = Fraction(noise_multiplier) * sensitivity
    assert exact <= deviation <= exact * (1 + Fraction(1, 2**51))


@pytest.mark.parametrize("dimension", [1, 10, 13_000])
def test_truncation_moves_no_update_by_more_than_a_thousandth_of_the_clip_norm(dimension):
    lattice = Lattice.for_noise(1.0, 1.0, dimension)
    generator = np.random.default_rng(8)
    for update in (generator.normal(size=dimension), np.ones(dimension), np.eye(1, dimension)[0]):
        within = clipped(update, 1.0)
        sent = lattice.to_model(lattice.quantise(within).astype(np.int64))
        assert np.linalg.norm(sent - within) <= 1 / 1024
        assert np.linalg.norm(sent) <= 1


def test_lattice_parameters_outside_their_domain_are_refused():
    for step, clip_norm, dimension in (
        (0.0, 1.0, 1),
        (1.0, float("nan"), 1),
        (float("inf"), 1.0, 1),
        (1.0, 1.0, 0),
        (1.0, 1.0, 2**31),
        (1.1, 1.0, 1),
        (1.0, 2.0**31, 1),
    ):
        with pytest.raises(ParameterError):
            Lattice(step, clip_norm, dimension)
    for bad in (0.0, -1.0, float("nan")):
        with pytest.raises(ParameterError, match="noise_multiplier"):
            Lattice(1.0, 1.0, 1).noise_deviation(bad)
        with pytest.raises(ParameterError, match="noise_multiplier"):
            Lattice.for_noise(bad, 1.0, 1)
    Lattice(1.0, 2.0**31 * (1 - 2**-53), 1)
