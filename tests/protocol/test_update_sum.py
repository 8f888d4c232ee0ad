import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from protocol_driver import std_itself, unexpected_noise

from turnout.core.aggregates import IntegerSum, UpdateSum
from turnout.core.errors import ParameterError

# Multiples of 2⁻¹⁰ below 2¹⁰: sums of a few are exact in float64, as for lattice updates.
lattice = hnp.arrays(np.int64, 3, elements=st.integers(-(2**20), 2**20)).map(lambda v: v / 2**10)


@st.composite
def sums(draw):
    count = draw(st.integers(0, 50))
    return UpdateSum(draw(lattice), count, draw(st.integers(0, count)))


def parts(value):
    return value.total.tolist(), value.count, value.noised


whole = hnp.arrays(np.int64, 3, elements=st.integers(-(2**60), 2**60))
bits = hnp.arrays(np.bool_, 3)


def triples(kind, vectors):
    one = st.builds(kind, vectors, st.integers(0, 50))
    return st.tuples(st.just(kind.zero(3)), one, one, one)


@given(
    st.tuples(st.just(UpdateSum.zero(3)), sums(), sums(), sums())
    | triples(IntegerSum, whole)
    | triples(IntegerSum, bits)
)
def test_adding_update_sums_is_associative_and_commutative_with_a_zero(values):
    zero, a, b, c = values
    assert parts(a + zero) == parts(zero + a) == parts(a)
    assert parts(a + b) == parts(b + a)
    assert parts((a + b) + c) == parts(a + (b + c))


def test_update_sums_are_float64_for_every_input_type():
    tiny = UpdateSum(np.full(1, 2.0**-30, np.float32), 1)
    one = UpdateSum(np.ones(1, np.float32), 1)
    assert (one + tiny).total[0] == 1 + 2.0**-30
    assert (one + tiny).total.dtype == np.float64


def test_sums_of_integer_updates_are_exact():
    large = IntegerSum([2**53], 1) + IntegerSum(np.ones(1, np.int32), 1)
    assert large.total.tolist() == [2**53 + 1]
    assert (large.total.dtype, large.count) == (np.int64, 2)
    with pytest.raises(ParameterError, match="int64"):
        IntegerSum([0.5], 1)
    with pytest.raises(ParameterError, match="IntegerSum"):
        large + UpdateSum([1.0], 1)
    with pytest.raises(ParameterError, match="int64"):
        large.with_noise(1.0, std_itself)


def test_local_noise_is_added_only_for_clients_without_noise():
    noisy = UpdateSum([1.0, 2.0], 5, noised=1).with_noise(3.0, std_itself)
    assert noisy.total.tolist() == [7.0, 8.0]
    assert (noisy.count, noisy.noised) == (5, 5)


@pytest.mark.parametrize("value", [UpdateSum([1.0], 2, 2), UpdateSum.zero(1)])
def test_no_noise_is_drawn_if_every_client_already_has_noise(value):
    assert parts(value.with_noise(3.0, unexpected_noise)) == parts(value)


def test_the_total_of_an_update_sum_is_read_only():
    with pytest.raises(ValueError, match="read-only"):
        UpdateSum([1.0], 1).total[0] = 2.0


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        (([[1.0]], 1), "total"),
        (([1.0], -1), "count"),
        (([1.0], 1.5), "count"),
        (([1.0], 1, 2), "noised"),
        (([1.0], 1, -1), "noised"),
    ],
)
def test_update_sums_with_invalid_counts_are_refused(arguments, name):
    with pytest.raises(ParameterError, match=name):
        UpdateSum(*arguments)


def test_adding_update_sums_of_different_lengths_is_refused():
    with pytest.raises(ParameterError, match="dimension = 2: expected 3"):
        UpdateSum.zero(3) + UpdateSum.zero(2)
