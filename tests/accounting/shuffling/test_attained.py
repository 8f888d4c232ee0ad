"""Shuffles of known randomizers: brackets of every small shuffle, and attained lower bounds."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from response_truths import (
    bit_laws,
    hadamard_laws,
    hockey_stick,
    kary_laws,
    shuffled,
    worst,
)

from turnout.accounting.divergence.composition import run_epsilon
from turnout.accounting.divergence.curves import BestCurve, Direction, Side
from turnout.accounting.shuffling.binary_response import BinaryResponseBlock, BinaryResponseCurve
from turnout.accounting.shuffling.blanket import BlanketBlock
from turnout.accounting.shuffling.blanket_pairs import BlanketPair, kary_pair
from turnout.accounting.shuffling.lower_bounds import (
    LowerBoundBlock,
    hadamard_response_block,
    kary_response_block,
)
from turnout.accounting.shuffling.messages import one_round
from turnout.core.errors import ParameterError
from turnout.schemes import SampledBitResponse

SLACK = 1e-9
DELTAS = (0.3, 0.05, 0.004, 1e-4)
LOCAL_EPSILONS = st.floats(0.1, 5.0)


def bracket(block, delta, rounds=1):
    lower, upper = (
        max(run_epsilon([(block, rounds)], d, side, delta, 0) for d in Direction)
        for side in (Side.LOWER, Side.UPPER)
    )
    return lower, upper


def brackets(block, distributions, clients):
    """Whether ε's at several δ enclose the worst of all neighbours."""
    for delta in DELTAS:
        lower, upper = bracket(block, delta)
        points = (upper * (1 + SLACK), max(lower * (1 - SLACK) - SLACK, 0.0))
        above, below = worst(distributions, clients, points)
        assert above <= delta * (1 + SLACK)
        assert lower == 0.0 or below >= delta * (1 - SLACK)


@settings(max_examples=6, deadline=None)
@given(LOCAL_EPSILONS, st.integers(1, 7))
def test_ternary_response_is_bracketed_for_all_records_of_other_clients(local_epsilon, clients):
    brackets(kary_response_block(local_epsilon, 3, clients), kary_laws(local_epsilon, 3), clients)


@settings(max_examples=6, deadline=None)
@given(LOCAL_EPSILONS, st.integers(1, 4))
def test_four_ary_response_is_bracketed_for_all_records_of_other_clients(local_epsilon, clients):
    brackets(kary_response_block(local_epsilon, 4, clients), kary_laws(local_epsilon, 4), clients)


@settings(max_examples=6, deadline=None)
@given(LOCAL_EPSILONS, st.integers(1, 5))
def test_hadamard_response_of_three_values_is_bracketed(local_epsilon, clients):
    brackets(
        hadamard_response_block(local_epsilon, clients), hadamard_laws(local_epsilon, 4), clients
    )


@settings(max_examples=6, deadline=None)
@given(LOCAL_EPSILONS, st.integers(1, 4), st.integers(1, 2))
def test_sampled_bits_of_one_or_two_coordinates_are_bracketed(local_epsilon, clients, coordinates):
    one = one_round(SampledBitResponse(local_epsilon), clients)

    class Both:
        def curve(self, direction, side, *rest):
            block = one.upper if side is Side.UPPER else one.lower
            assert block is not None
            return block.curve(direction, side, *rest)

    brackets(Both(), bit_laws(local_epsilon, coordinates), clients)


@settings(max_examples=10, deadline=None)
@given(LOCAL_EPSILONS, st.integers(1, 6))
def test_the_best_lower_bound_for_any_randomizer_is_attained_by_kary_response(
    local_epsilon, clients
):
    block = LowerBoundBlock(local_epsilon, clients)
    binary, ternary = kary_laws(local_epsilon, 2), kary_laws(local_epsilon, 3)
    pairs = [
        [shuffled([distributions[j], *[distributions[-1]] * (clients - 1)]) for j in (1, 0)]
        for distributions in (binary, ternary)
    ]
    for delta in DELTAS:
        lower, upper = bracket(block, delta)
        for one, other in pairs:
            assert hockey_stick(one, other, upper) <= delta * (1 + SLACK)
            assert hockey_stick(other, one, upper) <= delta * (1 + SLACK)
        found = max(
            max(hockey_stick(one, other, e), hockey_stick(other, one, e))
            for one, other in pairs
            for e in [lower * (1 - SLACK) - SLACK]
        )
        assert lower == 0.0 or found >= delta * (1 - SLACK)


@pytest.mark.parametrize(
    ("local_epsilon", "clients", "delta", "epsilon"),
    [
        (0.5, 10**4, 1e-6, 0.01618),
        (1.0, 10**5, 1e-6, 0.01091),
        (2.0, 10**6, 1e-8, 0.01228),
        (4.0, 10**6, 1e-8, 0.04465),
    ],
)
def test_the_best_lower_bound_for_any_randomizer_equals_its_reference_values(
    local_epsilon, clients, delta, epsilon
):
    """Binary response below e = 2, three-valued response above."""
    lower, upper = bracket(LowerBoundBlock(local_epsilon, clients), delta)
    assert lower == pytest.approx(epsilon, abs=6e-6)
    e = math.exp(local_epsilon)
    first_order = math.sqrt(min(2 * e / (e + 1), (e + 2) / (e + 1)))
    assert upper / lower == pytest.approx(first_order, rel=0.02)


@pytest.mark.parametrize(("values", "local_epsilon"), [(3, 0.5), (10, 2.0), (1000, 4.0)])
def test_bounds_on_shuffles_of_many_clients_are_close(values, local_epsilon):
    lower, upper = bracket(kary_response_block(local_epsilon, values, 10**6), 1e-8)
    assert lower <= upper <= 1.003 * lower
    lower, upper = bracket(hadamard_response_block(local_epsilon, 10**6), 1e-8)
    assert lower <= upper <= 1.003 * lower


@pytest.mark.parametrize("local_epsilon", [0.5, 2.0])
def test_a_composed_lower_bound_belongs_to_one_randomizer(local_epsilon):
    block = LowerBoundBlock(local_epsilon, 10**4)
    lower, upper = bracket(block, 1e-6, 20)
    assert 0.8 * upper < lower < upper
    curves = block.curves(Side.LOWER, 1e-9, 0)
    assert len(curves.remove) == len(curves.add) == 1
    assert isinstance(curves.remove[0], BinaryResponseCurve) == (local_epsilon < math.log(2))
    alone = BinaryResponseBlock(local_epsilon, 10**4)
    assert lower >= bracket(alone, 1e-6, 20)[0] * (1 - 1e-3)


def test_kary_response_with_two_values_is_analysed_as_binary_response():
    assert kary_response_block(1.0, 2, 10) == BinaryResponseBlock(1.0, 10)


def test_a_lower_bound_with_too_large_a_blanket_is_detected():
    """A mutant: a lower bound in which other clients send high and low half as often."""
    honest = kary_pair(2.0, 3)
    share = 0.5 * honest.share
    block = BlanketBlock(honest, 6, BlanketPair(honest.high, honest.low, share, 1 - 2 * share))
    found = [worst(kary_laws(2.0, 3), 6, [bracket(block, delta)[0]])[0] for delta in DELTAS]
    assert any(truth < 0.99 * delta for truth, delta in zip(found, DELTAS, strict=True))


def test_an_upper_bound_for_another_number_of_values_is_detected():
    """A mutant: the pair of four values is used for three values."""
    _, upper = bracket(kary_response_block(2.0, 4, 6), 0.004)
    assert worst(kary_laws(2.0, 3), 6, [upper])[0] > 0.004 * (1 + 1e-3)


def test_the_largest_of_several_curves_has_the_slope_of_the_largest():
    curves = [
        BinaryResponseCurve(local_epsilon, clients, 0, Direction.ADD, Side.LOWER)
        for local_epsilon, clients in ((1.0, 3), (2.0, 40))
    ]
    points = np.exp(np.array([0.0, 0.3, 0.9, 1.5]))
    largest = BestCurve(Side.LOWER, curves)
    for i, k in enumerate(points):
        best = max(curves, key=lambda curve, k=k: float(curve.delta(np.array(k))))
        assert largest.delta(points)[i] == best.delta(points)[i]
        assert largest.slope(points)[i] == best.slope(points)[i]
    assert float(largest.delta(np.array(1.0))) == largest.delta(points)[0]


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: LowerBoundBlock(0.0, 10),
        lambda: LowerBoundBlock(1.0, 0),
        lambda: kary_response_block(1.0, 1, 10),
        lambda: kary_response_block(math.nan, 3, 10),
        lambda: hadamard_response_block(1.0, 0),
    ],
)
def test_parameters_of_known_randomizers_out_of_range_are_refused(wrong):
    with pytest.raises(ParameterError):
        wrong()
