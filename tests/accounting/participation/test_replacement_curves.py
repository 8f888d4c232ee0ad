"""Privacy curves through points with bounds on δ, and composed windows under replace-one."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from replacement_truths import extreme_triples
from threadpoolctl import threadpool_limits

from turnout.accounting.divergence.blocks import loss_distribution, reach_of
from turnout.accounting.divergence.composition import ComposedCurve
from turnout.accounting.divergence.curves import (
    Direction,
    PairCurve,
    Side,
    epsilon_at,
    lower_polygon,
    nodes_down_to,
    nodes_near,
    upper_polygon,
)
from turnout.accounting.divergence.pairs import GaussianPair
from turnout.accounting.participation import replace_one
from turnout.accounting.participation.replace_one import (
    Closeness,
    LocalReplacementBlock,
    ReplacementBlock,
)
from turnout.core.errors import NumericalError

TRUTH = PairCurve(GaussianPair(2.0), Direction.REMOVE, Side.UPPER)
BELOW = PairCurve(GaussianPair(2.0), Direction.REMOVE, Side.LOWER)
FINE = np.exp(np.linspace(0.0, 3.0, 3001))


def noisy(nodes, noise, seed):
    """Lower and upper bounds on a known curve, each with a relative error up to ``noise``."""
    generator = np.random.default_rng(seed)
    return (
        BELOW.delta(nodes) * (1 - noise * generator.random(nodes.size)),
        TRUTH.delta(nodes) * (1 + noise * generator.random(nodes.size)),
    )


@given(
    st.lists(st.floats(0.001, 2.5), min_size=1, max_size=12, unique=True),
    st.sampled_from([0.0, 1e-6, 1e-3, 0.2]),
    st.integers(0, 100),
)
@example([1.0, 1.0000000000000002], 0.0, 0)  # neighbouring floats
@example([1.9], 0.0, 0)  # a point of `FINE` is the float after the last node
def test_lower_polygons_lie_below_and_upper_polygons_above_the_exact_curve(epsilons, noise, seed):
    nodes = np.exp(np.array([0.0, *sorted(epsilons)]))
    lowers, uppers = noisy(nodes, noise, seed)
    truth = TRUTH.delta(FINE)
    lower, upper = lower_polygon(nodes, lowers, uppers), upper_polygon(nodes, uppers)
    assert (lower.delta(FINE) <= truth * (1 + 1e-12)).all()
    within = nodes[-1] >= FINE
    assert (upper.delta(FINE)[within] >= truth[within] * (1 - 1e-12)).all()
    # Both reference values beyond the last node are at least the true δ; each is rounded up alone.
    beyond = np.minimum(truth[~within], TRUTH.delta(nodes[-1:]))
    assert (upper.delta(FINE)[~within] >= beyond).all()
    for curve in (lower, upper):
        assert (np.diff(np.diff(curve.values) / np.diff(curve.nodes)) >= -1e-9).all()
        # Tangents of the curve lie below it.
        k = FINE[::100]
        lines = curve.delta(k)[:, None] + curve.slope(k)[:, None] * (FINE[None, :] - k[:, None])
        assert (lines <= curve.delta(FINE)[None, :] + 1e-12).all()


def test_polygons_converge_to_the_exact_curve_with_more_nodes():
    errors = []
    for count in (20, 40, 80):
        nodes = np.exp(np.linspace(0.0, 2.5, count))
        values = TRUTH.delta(nodes)
        gap = upper_polygon(nodes, values).delta(FINE) - lower_polygon(nodes, values, values).delta(
            FINE
        )
        errors.append(gap[nodes[-1] >= FINE].max())
    assert errors[0] > 3 * errors[1] > 9 * errors[2]


def test_the_upper_polygon_has_the_value_1_where_no_bound_is_known():
    nodes = np.exp(np.array([0.0, 0.5, 1.0]))
    patchy = upper_polygon(nodes, np.array([np.inf, *TRUTH.delta(nodes[1:])]))
    assert float(patchy.delta(np.array(1.0))) == 1.0
    assert (patchy.delta(FINE) >= TRUTH.delta(FINE) * (1 - 1e-12))[nodes[-1] >= FINE].all()


def priced(k: float, side: Side) -> float:
    return float(TRUTH.delta(np.array(k)))


@pytest.mark.parametrize("delta", [0.15, 1e-3, 1e-9])
@pytest.mark.parametrize("side", Side)
def test_nodes_lie_on_both_sides_of_the_epsilon_of_the_requested_delta(delta, side):
    root = epsilon_at(TRUTH, delta, Side.UPPER)
    nodes = np.log(nodes_near(priced, side, delta, 0.5))
    assert nodes[0] == 0
    assert nodes.size <= 7
    near = nodes[np.argmin(np.abs(nodes - root))]
    assert abs(near - root) < 2e-3 * root
    assert np.any(nodes[1:] <= root)
    assert np.any(nodes >= root)
    whole = nodes_down_to(priced, delta, 0.5, 10.0)
    assert priced(float(whole[-1]), side) <= delta < priced(float(whole[-2]), side)


def test_a_delta_below_all_bounds_of_a_curve_is_refused():
    with pytest.raises(NumericalError, match="cannot be certified"):
        nodes_near(lambda k, side: 0.5, Side.UPPER, 1e-6, 0.3)
    with pytest.raises(NumericalError, match="cannot be certified"):
        nodes_down_to(lambda k, side: 0.5, 1e-6, 0.3, 10.0)
    assert nodes_near(lambda k, side: 1e-9, Side.UPPER, 1e-6, 0.3).size == 2


def composed(block, count, delta, refinement=0):
    """Lower and upper bound on ε of ``count`` windows."""
    tail = 3e-4 * delta / count
    uppers = block.curves(Side.UPPER, tail, refinement)
    gap = max(block.loss_deviation / 40, reach_of(uppers, tail) / 2**15)
    bounds = []
    for side in (Side.LOWER, Side.UPPER):
        pld = loss_distribution(block.curves(side, tail, refinement), Direction.REMOVE, gap, tail)
        bounds.append(epsilon_at(ComposedCurve.of(side, [(pld, count)], delta), delta, side))
    return bounds


def test_windows_of_one_step_compose_to_one_gaussian_release():
    """Four steps with shifts of ±1/4 are one Gaussian step with noise multiplier 1."""
    truth = epsilon_at(PairCurve(GaussianPair(1.0), Direction.REMOVE, Side.UPPER), 1e-6, Side.UPPER)
    lower, upper = composed(ReplacementBlock(GaussianPair(4.0), 1), 4, 1e-6)
    assert lower <= truth <= upper <= lower * (1 + 1e-3)


def test_epsilon_of_two_windows_lies_between_once_and_twice_that_of_one_window(mutate):
    """Two windows of two steps: ε is above that of one window and below twice that at δ/3."""
    mutate(replace_one, "_DENSITY", 6.0)
    block, delta = ReplacementBlock(GaussianPair(3.0), 2), 1e-4
    lower, upper = composed(block, 2, delta)
    alone = epsilon_at(block.curve(Direction.REMOVE, Side.LOWER, delta, 0), delta, Side.LOWER)
    half = block.curve(Direction.REMOVE, Side.UPPER, delta / 3, 0)
    assert alone < lower <= upper <= 1.05 * lower
    assert upper < 2 * epsilon_at(half, delta / 3, Side.UPPER)
    replace_one._pair_curve.cache_clear()


def test_bounds_of_composed_local_windows_enclose_the_enumerated_delta():
    """Two windows of two randomized responses with a = 2, enumerated in fractions."""
    a = Fraction(2)
    block = LocalReplacementBlock(math.log(2), 2)
    for triple in extreme_triples(a):
        if any(len({q, p, r}) == 3 for q, p, r in triple):
            continue
        window = [
            (q1 * q2, (p1 / q1 + p2 / q2) / 2, (r1 / q1 + r2 / q2) / 2)
            for (q1, p1, r1), (q2, p2, r2) in itertools.product(triple, repeat=2)
        ]
        for k in (Fraction(1), Fraction(6, 5), Fraction(2)):
            truth = sum(
                m * n * max(x * y - k * u * v, Fraction(0))
                for (m, x, u), (n, y, v) in itertools.product(window, repeat=2)
            )
            pld = loss_distribution(block.curves(Side.UPPER, 1e-8, 0), Direction.REMOVE, 1e-3, 1e-8)
            upper = ComposedCurve.of(Side.UPPER, [(pld, 2)], max(float(truth), 1e-6))
            assert float(truth) <= float(upper.delta(np.array(float(k))))


def test_composed_local_windows_have_a_narrow_bracket(mutate):
    mutate(replace_one, "_DENSITY", 8.0)
    lower, upper = composed(LocalReplacementBlock(1.0, 1000), 10, 1e-6)
    assert lower <= upper <= 1.02 * lower
    assert 0.44 < lower < upper < 0.455


def test_composed_windows_compared_between_any_two_records_have_ordered_bounds(mutate):
    """The lower bound is that of a record against absence, in the given direction."""
    mutate(replace_one, "_DENSITY", 8.0)
    block = ReplacementBlock(GaussianPair(10.0), 2, 1.0, Closeness.ANY_TWO)
    lower, upper = composed(block, 3, 1e-5)
    assert 0 < lower <= upper <= 1.5 * lower


def test_the_digits_of_a_curve_do_not_depend_on_the_number_of_threads():
    found = []
    for threads in (1, 2):
        with threadpool_limits(threads):
            block = ReplacementBlock(GaussianPair(0.58), 100, closeness=Closeness.ANY_TWO)
            curve = block.curve(Direction.REMOVE, Side.UPPER, 1e-5, 0)
            found.append(curve.delta(np.exp([2.0, 4.0])).tolist())
    assert found[0] == found[1]
