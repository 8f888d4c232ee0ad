"""Properties of ε at random parameters: order of bounds, monotonicity, spending, calibration."""

import contextlib
import itertools
import math
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from turnout.accounting import calibrate_noise, epsilon_upper, price, pricing, spent
from turnout.accounting.divergence.blocks import NeighbourBound
from turnout.accounting.divergence.curves import Direction
from turnout.core.bounds import Bounds
from turnout.core.errors import NumericalError
from turnout.schemes import (
    AvailabilityCheckIn,
    CheckIn,
    EveryStep,
    GaussianNoise,
    KSubset,
    PoissonSampling,
    Relation,
    Scheme,
    SlidingWindow,
)

few = settings(max_examples=7)
sigmas = st.floats(0.6, 8.0)
windows = st.sampled_from([2, 3, 5, 17, 100, 1000, 10**5])
deltas = st.floats(-9.0, -1.0).map(lambda exponent: 10.0**exponent)


def scheme(sigma, law, relation=Relation.ADD_REMOVE) -> Scheme:
    return Scheme(GaussianNoise(sigma), law, relation)


def bounds(sigma, law, delta, tolerance=1e-3) -> Bounds:
    return price(scheme(sigma, law), delta, tolerance).epsilon


@few
@given(sigmas, windows, st.floats(0.01, 1.0), deltas)
def test_bounds_on_epsilon_are_in_order_and_close(sigma, window, probability, delta):
    guarantee = price(scheme(sigma, CheckIn(window, 1, probability)), delta)
    for ends in guarantee.directions.values():
        assert 0 <= ends.lower <= ends.upper
        assert ends.upper - ends.lower <= 0.02 * ends.upper + 1e-9


@settings(max_examples=5)
@given(sigmas, windows, deltas, st.floats(1.01, 3.0))
def test_less_noise_a_smaller_window_or_a_smaller_delta_raises_epsilon(
    sigma, window, delta, factor
):
    least = bounds(sigma, CheckIn(window), delta)
    assert least.lower <= bounds(sigma / factor, CheckIn(window), delta).upper
    assert least.lower <= bounds(sigma, CheckIn(max(1, int(window / factor))), delta).upper
    assert least.lower <= bounds(sigma, CheckIn(window), delta / factor).upper


@few
@given(sigmas, windows, deltas, st.floats(0.01, 1.0))
def test_rarer_participation_lowers_epsilon(sigma, window, delta, probability):
    rare = bounds(sigma, CheckIn(window, 1, probability), delta)
    assert rare.lower <= bounds(sigma, CheckIn(window), delta).upper


@settings(max_examples=2)
@given(st.floats(0.8, 4.0), st.sampled_from([5, 40, 1000]), st.floats(1e-7, 1e-2))
def test_more_windows_and_more_picks_raise_epsilon(sigma, window, delta):
    costs = [bounds(sigma, CheckIn(window, r), delta) for r in (1, 2, 5)]
    assert costs[0].lower <= costs[1].upper
    assert costs[1].lower <= costs[2].upper
    # Half as wide a bracket of two of five steps takes a thousand times as long.
    picks = [bounds(sigma, KSubset(window, k), delta, 1e-2) for k in (1, 2, 4)]
    assert picks[0].lower <= picks[1].upper
    assert picks[1].lower <= picks[2].upper


@few
@given(sigmas, windows, deltas, st.floats(0.001, 0.999))
@example(sigma=0.6, window=2, delta=1e-9, probability=0.999)
def test_optional_participation_in_the_remove_direction_is_exact(sigma, window, delta, probability):
    """δ' = p₀·δ at e^{ε'} − 1 = p₀(e^ε − 1)."""
    whole = price(
        scheme(sigma, CheckIn(window)), delta / probability if delta < probability else 0.5
    )
    rare = price(
        scheme(sigma, CheckIn(window, 1, probability)),
        delta if delta < probability else 0.5 * probability,
    )
    full, part = whole.directions["remove"], rare.directions["remove"]
    assert math.log1p(probability * math.expm1(full.lower)) <= part.upper * (1 + 1e-9) + 1e-12
    assert part.lower <= math.log1p(probability * math.expm1(full.upper)) * (1 + 1e-9) + 1e-12


def test_epsilon_without_participation_is_zero():
    for law in (CheckIn(10, 3, 0.0), PoissonSampling(0.0, 10)):
        assert bounds(1.0, law, 1e-9) == Bounds(0.0, 0.0)


@pytest.mark.parametrize("sigma", [0.15, 1.0, 20.0])
@pytest.mark.parametrize("delta", [1e-15, 1e-6, 0.5])
def test_a_window_of_one_step_gives_no_amplification(sigma, delta):
    one, plain = bounds(sigma, CheckIn(1), delta), bounds(sigma, EveryStep(1), delta)
    assert one.upper == pytest.approx(plain.upper, rel=1e-8)
    assert one.lower == pytest.approx(plain.lower, rel=1e-8)
    assert plain.lower <= plain.upper <= plain.lower * (1 + 1e-8) + 1e-11


@pytest.mark.parametrize("probability", [1e-300, 1e-60, 1e-9, 1 - 1e-12])
@pytest.mark.parametrize("window", [1, 7])
def test_participation_probabilities_near_0_and_1_have_bounds(probability, window):
    ends = bounds(1.0, CheckIn(window, 1, probability), 1e-6)
    if probability <= 1e-6:
        assert ends == Bounds(0.0, 0.0)
    else:
        sure = bounds(1.0, CheckIn(window), 1e-6)
        assert ends.lower <= sure.upper
        assert sure.lower <= ends.upper * (1 + 1e-9)


@pytest.mark.parametrize("delta", [5e-324, 1e-100, 1 - 1e-9])
@pytest.mark.parametrize(
    "law", [CheckIn(10), CheckIn(10, 3), PoissonSampling(0.1, 5), EveryStep(3)]
)
def test_every_delta_has_bounds_in_order_or_is_refused(law, delta):
    with contextlib.suppress(NumericalError):
        ends = bounds(1.0, law, delta)
        assert 0 <= ends.lower <= ends.upper < math.inf


@pytest.mark.parametrize(
    "law",
    [
        CheckIn(8, 4),
        CheckIn(8, 3, 0.3),
        KSubset(6, 2),
        SlidingWindow(5, 9),
        PoissonSampling(0.1, 12),
    ],
)
def test_spent_epsilon_never_falls_and_ends_at_epsilon_of_the_whole_run(law):
    steps = sorted(
        {*range(0, law.steps, 3), law.window if hasattr(law, "window") else 1, law.steps}
    )
    epsilons = spent(scheme(1.5, law), 1e-5, steps)
    assert epsilons[0] == 0
    assert all(a <= b for a, b in itertools.pairwise(epsilons))
    assert epsilons[-1] == epsilon_upper(scheme(1.5, law), 1e-5)
    assert epsilons[-1] >= bounds(1.5, law, 1e-5).upper
    backwards = spent(scheme(1.5, law), 1e-5, steps[::-1])
    assert backwards == epsilons[::-1]


def test_a_smaller_bound_of_more_steps_is_also_used_for_fewer_steps(monkeypatch):
    jagged = {1: 0.5, 2: 0.9, 3: 0.8, 4: 1.0}
    monkeypatch.setattr(pricing, "epsilon_upper", lambda scheme, delta, step, **_: jagged[step])
    assert spent(scheme(1.0, CheckIn(4)), 1e-5, [0, 2, 1, 3, 4]) == [0.0, 0.8, 0.5, 0.8, 1.0]


@settings(max_examples=3)
@given(
    st.sampled_from(
        [CheckIn(50), CheckIn(20, 4), KSubset(12, 3), EveryStep(10), CheckIn(30, 1, 0.2)]
    ),
    st.sampled_from([0.3, 1.0, 4.0]),
    st.sampled_from([1e-8, 1e-5]),
    st.sampled_from(list(Relation)),
)
def test_calibrated_noise_meets_the_target_and_is_near_the_least_noise(
    law, epsilon, delta, relation
):
    def scheme_for(sigma: float) -> Scheme:
        return scheme(sigma, law, relation)

    sigma = calibrate_noise(scheme_for, epsilon, delta)
    assert sigma == float(f"{sigma:.6g}")  # what is printed is what was priced
    assert price(scheme_for(sigma), delta).epsilon.upper <= epsilon
    assert epsilon_upper(scheme_for(sigma * (1 - 3e-4)), delta) > epsilon


def test_the_client_with_the_largest_epsilon_is_found_if_bounds_overlap(mutate):
    first, second, third = (NeighbourBound([], [], name) for name in ("first", "second", "third"))
    brackets = {"first": Bounds(0.97, 0.98), "second": Bounds(0.99, 1.0), "third": Bounds(0.5, 0.6)}
    mutate(pricing, "_bracket", lambda bound, *_: brackets[bound.method])
    clients = [
        pricing._Client(cast(Any, bound), {Direction.REMOVE: upper})
        for bound, upper in ((third, 0.7), (first, 1.02), (second, 1.01))
    ]
    assert pricing._worst(clients, Direction.REMOVE, 1e-5, 1e-3) == Bounds(0.99, 1.0)


def test_each_client_of_a_trace_has_the_epsilon_of_its_own_windows():
    available = np.array(
        [[1, 1, 1, 1, 1, 1], [1, 0, 0, 1, 1, 0], [0, 0, 0, 1, 1, 1], [0] * 6], bool
    )
    guarantee = price(scheme(1.0, AvailabilityCheckIn(available, 3)), 1e-5)
    clients = guarantee.clients
    assert clients is not None
    np.testing.assert_array_equal(clients.window_sizes, [[3, 3], [1, 2], [0, 3], [0, 0]])
    for epsilon, sizes in zip(clients.epsilon_upper, clients.window_sizes, strict=True):
        if len(set(sizes)) == 1 and sizes[0]:
            assert epsilon >= bounds(1.0, CheckIn(int(sizes[0]), 2), 1e-5).lower
    assert clients.epsilon_upper[2] >= bounds(1.0, CheckIn(3), 1e-5).lower
    assert clients.epsilon_upper[3] == 0
    assert np.max(clients.epsilon_upper) == clients.epsilon_upper[1] == guarantee.epsilon.upper
