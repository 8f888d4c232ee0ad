"""Shuffled binary response as curves and blocks: brackets of the truth, known values, mutants."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from response_truths import binary_delta, binary_law

from turnout.accounting.divergence.composition import run_epsilon
from turnout.accounting.divergence.curves import Direction, Side
from turnout.accounting.shuffling.binary_response import BinaryResponseBlock, BinaryResponseCurve
from turnout.accounting.shuffling.blanket import clones_2021
from turnout.core.errors import NumericalError, ParameterError, UnsupportedError


def epsilons(block, delta, rounds=1):
    upper = run_epsilon([(block, rounds)], Direction.REMOVE, Side.UPPER, delta, 0)
    lowers = [run_epsilon([(block, rounds)], d, Side.LOWER, delta, 0) for d in Direction]
    return max(lowers), upper


@settings(max_examples=25, deadline=None)
@given(
    st.floats(0.05, 6.0), st.integers(1, 40), st.sampled_from([0.2, 1e-2, 1e-4, 1e-7]), st.data()
)
def test_epsilon_of_one_round_of_binary_response_is_bracketed(local_epsilon, clients, delta, data):
    lower, upper = epsilons(BinaryResponseBlock(local_epsilon, clients), delta)
    ones = data.draw(st.integers(0, clients - 1))
    for j, k in ((ones, clients - 1 - ones), (clients - 1 - ones, ones), (clients - 1, 0)):
        assert binary_delta(local_epsilon, j, k, upper) <= delta * (1 + 1e-9)
    assert lower <= upper
    if lower > 0:
        identical_others = binary_delta(local_epsilon, clients - 1, 0, lower * (1 - 1e-9))
        assert identical_others >= delta * (1 - 1e-7)


@pytest.mark.parametrize("direction", list(Direction))
@pytest.mark.parametrize("ones", [0, 3, 11])
@pytest.mark.parametrize("side", list(Side))
def test_delta_of_a_known_split_is_exact_in_both_directions(ones, direction, side):
    curve = BinaryResponseCurve(1.4, 12, ones, direction, side)
    identical_others = ones if direction is Direction.REMOVE else 11 - ones
    points = np.exp(np.array([0.0, 0.1, 0.5, 1.2]))
    truths = np.array(
        [binary_delta(1.4, identical_others, 11 - identical_others, e) for e in np.log(points)]
    )
    sign = 1 if side is Side.UPPER else -1
    assert np.all(sign * (curve.delta(points) - truths) >= -1e-13 * truths)
    assert curve.delta(points) == pytest.approx(truths, rel=1e-9)


def test_a_lower_bound_of_the_wrong_direction_is_detected():
    """A mutant: the curve of the other direction, which is too high for a lower bound."""
    wrong = BinaryResponseCurve(2.0, 50, 49, Direction.REMOVE, Side.LOWER)
    truth = binary_delta(2.0, 0, 49, 0.5)
    assert float(wrong.delta(np.array(math.exp(0.5)))) > 1.2 * truth


def test_a_lower_bound_with_one_client_too_few_is_detected():
    """A mutant: a lower bound that omits one of the other clients."""
    wrong = BinaryResponseCurve(2.0, 49, 48, Direction.REMOVE, Side.LOWER)
    truth = max(binary_delta(2.0, j, 49 - j, 0.5) for j in range(50))
    assert float(wrong.delta(np.array(math.exp(0.5)))) > 1.01 * truth


@pytest.mark.parametrize(
    ("local_epsilon", "clients", "delta", "epsilon"),
    [
        (0.5, 10**4, 1e-6, 0.01618),
        (1.0, 10**5, 1e-6, 0.01014),
        (2.0, 10**6, 1e-8, 0.00971),
        (4.0, 10**6, 1e-8, 0.03199),
    ],
)
def test_epsilon_of_one_round_equals_known_values(local_epsilon, clients, delta, epsilon):
    lower, upper = epsilons(BinaryResponseBlock(local_epsilon, clients), delta)
    assert lower == pytest.approx(epsilon, abs=5e-6)
    assert lower <= upper <= 1.003 * lower
    assert upper < clones_2021(local_epsilon, clients, delta)


def test_epsilon_of_many_rounds_equals_a_known_value():
    lower, upper = epsilons(BinaryResponseBlock(0.5, 10**6), 1e-8, 1000)
    assert lower == pytest.approx(0.0724, rel=1e-3)
    assert lower <= upper <= 1.006 * lower


def test_epsilon_of_two_rounds_of_six_clients_is_bracketed():
    """Composed: above every choice of splits, below the exact ε with identical other records."""
    local_epsilon, clients = 1.0, 6
    q = 1 / (1 + math.exp(-local_epsilon))

    def worlds(ones):
        distribution = binary_law(local_epsilon, ones, clients - 1 - ones)
        first = np.convolve(distribution, [1 - q, q])
        second = np.convolve(distribution, [q, 1 - q])
        return first, second

    def delta(splits, epsilon, *, swap):
        pairs = [worlds(ones) for ones in splits]
        one, other = (np.outer(pairs[0][i], pairs[1][i]) for i in ((1, 0) if swap else (0, 1)))
        return np.maximum(one - math.exp(epsilon) * other, 0.0).sum()

    for target in (0.2, 0.03, 0.002):
        block = BinaryResponseBlock(local_epsilon, clients)
        upper = run_epsilon([(block, 2)], Direction.REMOVE, Side.UPPER, target, 0)
        for splits in ((0, 0), (5, 5), (0, 5), (2, 3), (5, 4)):
            for swap in (False, True):
                assert delta(splits, upper, swap=swap) <= target
        for direction, swap in ((Direction.REMOVE, False), (Direction.ADD, True)):
            lower = run_epsilon([(block, 2)], direction, Side.LOWER, target, 0)
            assert delta((5, 5), lower, swap=swap) >= target
            assert lower <= upper


def test_finer_grids_narrow_the_bracket():
    block, points = BinaryResponseBlock(1.0, 10**4), np.exp(np.array([0.02, 0.03]))
    curves = [block.curve(Direction.ADD, Side.UPPER, 1e-6, refinement) for refinement in (0, 3)]
    coarse, fine = (curve.delta(points[:1]) for curve in curves)
    lower = block.curve(Direction.ADD, Side.LOWER, 1e-6, 0).delta(points[:1])
    assert lower <= fine <= coarse * (1 + 1e-12)


def test_the_general_bound_is_used_where_rounding_errors_are_too_large():
    lower, upper = epsilons(BinaryResponseBlock(1.0, 10**11), 1e-10)
    assert lower < upper < 1.25 * lower
    curve = BinaryResponseCurve(1.0, 10**13, 0, Direction.ADD, Side.UPPER)
    with pytest.raises(NumericalError, match="rounding"):
        curve.delta(np.ones(1))
    with pytest.raises(UnsupportedError, match="300"):
        BinaryResponseCurve(301.0, 10, 0, Direction.ADD, Side.UPPER).delta(np.ones(1))
    assert epsilons(BinaryResponseBlock(200.0, 10), 1e-9)[0] > 199.9
    with pytest.raises(NumericalError):
        epsilons(BinaryResponseBlock(700.0, 10), 1e-9)


def test_epsilon_of_two_rounds_with_large_local_epsilon_is_nearly_twice_the_local_epsilon():
    lower, upper = epsilons(BinaryResponseBlock(30.0, 100), 1e-6, 2)
    assert 59 < lower <= upper < 61


def test_epsilon_of_shuffled_messages_never_exceeds_the_local_epsilon():
    for local_epsilon, clients in ((12.0, 10), (40.0, 1000), (0.3, 1)):
        lower, upper = epsilons(BinaryResponseBlock(local_epsilon, clients), 1e-9)
        assert lower <= upper <= local_epsilon * (1 + 1e-9)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: BinaryResponseBlock(0.0, 10),
        lambda: BinaryResponseBlock(1.0, 0),
        lambda: BinaryResponseCurve(1.0, 10, 10, Direction.ADD, Side.UPPER),
        lambda: BinaryResponseCurve(1.0, 10, -1, Direction.ADD, Side.UPPER),
        lambda: BinaryResponseCurve(math.inf, 10, 1, Direction.ADD, Side.UPPER),
    ],
)
def test_parameters_of_binary_response_out_of_range_are_refused(wrong):
    with pytest.raises(ParameterError):
        wrong()
