"""One-client releases: bounds against enumeration, quadrature and exactly computed attacks.

Noise is Gaussian of deviation σ, updates are numbers in [−1, 1] or points of the unit disc.
"""

from __future__ import annotations

import itertools
import math

import mpmath
import numpy as np
import pytest
from scipy.special import ndtr

from turnout.accounting import epsilon_upper, price
from turnout.accounting.divergence.curves import Direction, Side
from turnout.accounting.divergence.pairs import (
    GaussianPair,
    LaplacePair,
    hockey_stick,
    reverse_hockey_stick,
)
from turnout.accounting.participation.check_ins import AllocationBlock
from turnout.accounting.participation.one_client import (
    HalvedPair,
    OneClientBlock,
    one_client_pair,
    opposed_pair,
)
from turnout.schemes import (
    AvailabilityCheckIn,
    CheckIn,
    EveryStep,
    GaussianNoise,
    LaplaceNoise,
    Relation,
    Scheme,
)

ADD, ZERO, REPLACE = Relation.ADD_REMOVE, Relation.ZERO_OUT, Relation.REPLACE_ONE
OTHERS = (None, -1.0, 0.0, 1.0)  # the other client's update in a step; None if there is none


def scheme(sigma: float, participation, relation: Relation, release="one-client") -> Scheme:
    return Scheme(GaussianNoise(sigma), participation, relation, release)


def binned(update: float, edges: np.ndarray, sigma: float) -> np.ndarray:
    """Masses of an update plus noise in the cells between the edges and beyond them."""
    return np.diff(ndtr((edges - update) / sigma), prepend=0.0, append=1.0)


def released(own: float | None, other: float | None, edges: np.ndarray, sigma: float):
    """Masses of a binned step: the client's update is ``own``, or it is absent if None."""
    if own is None or other is None:
        return binned(next((u for u in (own, other) if u is not None), 0.0), edges, sigma)
    return 0.5 * (binned(own, edges, sigma) + binned(other, edges, sigma))


def choices(sigma: float, relation: Relation, direction: Direction, bins: int) -> list[tuple]:
    """Steps that an adversary may choose: masses without the client, X and X' per outcome."""
    edges = np.linspace(-1.0 - 5.0 * sigma, 1.0 + 5.0 * sigma, bins - 1)
    found = []
    for other in OTHERS:
        without = released(None, other, edges, sigma)
        record = released(1.0, other, edges, sigma) / without
        second = {ADD: None, ZERO: 0.0, REPLACE: -1.0}[relation]
        instead = released(second, other, edges, sigma) / without
        pair = (record, instead) if direction is Direction.REMOVE else (instead, record)
        found.append((without, *pair))
    return found


def best_delta(k: float, steps: int, chosen: list[tuple]) -> float:
    """Largest δ of a window over all choices of steps, each made after the earlier outcomes."""

    def best(total: np.ndarray, left: int) -> np.ndarray:
        if left == 0:
            return np.maximum(total, 0.0)
        after = [
            best(total[..., None] + (x - k * other), left - 1) @ without
            for without, x, other in chosen
        ]
        return np.max(after, axis=0)

    return float(best(np.zeros(()), steps)) / steps


def upper(sigma: float, steps: int, relation: Relation, direction: Direction, k: float) -> float:
    """Upper bound on δ of a window at one K."""
    alone, apart = GaussianPair(sigma), GaussianPair(sigma / 2)
    if relation is not ADD:
        block = OneClientBlock(alone, apart, steps, to_null=relation is ZERO)
        return block.delta(k, direction, Side.UPPER)
    window = AllocationBlock(one_client_pair(alone, apart), steps)
    return min(
        float(window.curve(direction, Side.UPPER, hint, 0).delta(np.array([k]))[0])
        for hint in (0.1, 1e-3)
    )


@pytest.mark.parametrize(("steps", "bins"), [(1, 400), (2, 60), (3, 14)])
@pytest.mark.parametrize(("relation", "direction"), list(itertools.product(Relation, Direction)))
def test_no_adaptive_choice_of_other_clients_exceeds_the_upper_bound(
    relation, direction, steps, bins
):
    for sigma in (1.0,) if steps == 3 else (1.0, 2.5):
        chosen = choices(sigma, relation, direction, bins)
        for k in (1.5,) if steps == 3 else (1.5, 4.0):
            bound = upper(sigma, steps, relation, direction, k)
            assert best_delta(k, steps, chosen) <= bound * (1 + 1e-9)


def test_a_bound_with_half_the_distance_of_the_displaced_client_is_exceeded():
    alone = GaussianPair(1.0)
    wrong = AllocationBlock(one_client_pair(alone, alone), 2)
    played = best_delta(4.0, 2, choices(1.0, ADD, Direction.REMOVE, 60))
    curve = wrong.curve(Direction.REMOVE, Side.UPPER, played, 0)
    assert played > 1.5 * float(curve.delta(np.array([4.0]))[0])


def plane(points: int = 181, reach: float = 7.0) -> tuple[np.ndarray, np.ndarray]:
    """Points of the plane around the origin, and the area of each."""
    axis = np.linspace(-reach, reach, points)
    return np.stack(np.meshgrid(axis, axis), axis=-1), np.array((axis[1] - axis[0]) ** 2)


@pytest.mark.parametrize("to_null", [True, False])
def test_two_dimensional_updates_stay_below_the_bound_of_two_records(to_null):
    at, area = plane()
    generator = np.random.default_rng(5)

    def density(update: np.ndarray) -> np.ndarray:
        return area * np.exp(-0.5 * np.sum((at - update) ** 2, axis=-1)) / (2 * np.pi)

    for _ in range(12):
        updates = generator.normal(size=(3, 2))
        updates /= np.maximum(np.linalg.norm(updates, axis=1, keepdims=True), 1.0)
        record, second, other = map(density, updates)
        second = density(np.zeros(2)) if to_null else second
        for k, chance, direction in itertools.product((1.5, 6.0), (1.0, 0.4), Direction):
            first, last = (record, second) if direction is Direction.REMOVE else (second, record)
            worlds = [(1 - chance / 2) * other + chance / 2 * one for one in (first, last)]
            played = float(np.maximum(worlds[0] - k * worlds[1], 0.0).sum())
            block = OneClientBlock(GaussianPair(1.0), GaussianPair(0.5), 1, chance, to_null)
            assert played <= block.delta(k, direction, Side.UPPER) + 1e-5


def opposed_delta(sigma: float, k: float, relation: Relation, direction: Direction) -> float:
    """δ of a window of two steps, each with one opposite client, by a sum over the noise."""
    z = np.linspace(-9.0, 15.0 if sigma < 2 else 11.0, 3001)
    weights = np.exp(-0.5 * z * z) / math.sqrt(2 * math.pi) * (z[1] - z[0])

    def ratio(distance: float) -> np.ndarray:
        return 0.5 + 0.5 * np.exp(distance * z / sigma - distance**2 / (2 * sigma**2))

    first, last = ratio(2.0), ratio(1.0 if relation is ZERO else 0.0)
    first, last = (first, last) if direction is Direction.REMOVE else (last, first)
    one = first - k * last
    return float(weights @ (np.maximum(one[:, None] + one[None, :], 0.0) @ weights)) / 2


@pytest.mark.parametrize(("relation", "direction"), list(itertools.product((ADD, ZERO), Direction)))
def test_one_client_per_step_with_opposite_updates_attains_the_lower_bound(relation, direction):
    for sigma, k in ((1.0, 1.3), (2.0, 1.2)):
        exact = opposed_delta(sigma, k, relation, direction)
        if relation is ZERO:
            block = OneClientBlock(GaussianPair(sigma), GaussianPair(sigma / 2), 2, to_null=True)
            found = block.delta(k, direction, Side.LOWER)
        else:
            window = AllocationBlock(opposed_pair(GaussianPair(sigma / 2)), 2)
            curve = window.curve(direction, Side.LOWER, exact, 0)
            found = float(curve.delta(np.array([k]))[0])
        assert found <= exact * (1 + 1e-5)
        assert found >= 0.97 * exact


def test_delta_of_one_step_is_the_larger_of_two_closed_forms():
    def gaussian_delta(mu: float, k: float) -> mpmath.mpf:
        score = mpmath.log(k) / mu
        return mpmath.ncdf(mu / 2 - score) - k * mpmath.ncdf(-mu / 2 - score)

    pair = one_client_pair(GaussianPair(1.0), GaussianPair(0.5))
    for k in (1.01, 1.5, 3.0, 20.0, 1e4):
        exact = max(gaussian_delta(1, k), gaussian_delta(2, 2 * k - 1) / 2)
        assert float(hockey_stick(pair, np.array([k]))[0]) == pytest.approx(float(exact), rel=1e-9)


@pytest.mark.parametrize("pair", [GaussianPair, LaplacePair])
def test_the_worst_likelihood_ratio_of_a_step_is_a_distribution_with_mean_one(pair):
    worst = one_client_pair(pair(1.0), pair(0.5))
    k = np.geomspace(1e-3, 1e4, 4001)
    assert worst.q_below(k) + worst.q_above(k) == pytest.approx(1.0, abs=1e-12)
    assert worst.p_below(k) + worst.p_above(k) == pytest.approx(1.0, abs=1e-12)
    for tail in (worst.q_below(k), worst.p_below(k)):
        assert np.all(np.diff(tail) >= -1e-13)
    for other in (pair(1.0), HalvedPair(pair(0.5))):
        assert np.all(reverse_hockey_stick(worst, k) >= reverse_hockey_stick(other, k) - 1e-13)


@pytest.mark.parametrize(
    ("participation", "low", "high"),
    [
        (CheckIn(1000), 3.1495, 3.1502),
        (CheckIn(100), 5.4127, 5.4130),
        (CheckIn(100, 10), 9.010, 9.026),
    ],
    ids=str,
)
def test_epsilon_under_add_remove_lies_in_the_reference_bracket(participation, low, high):
    found = price(scheme(1.0, participation, ADD), 1e-6).epsilon
    assert low <= found.lower
    assert found.upper <= high


def test_two_records_in_a_window_of_a_hundred_steps_have_the_reference_epsilon():
    def delta(epsilon: float, side: Side, *, to_null: bool) -> float:
        block = OneClientBlock(GaussianPair(1.0), GaussianPair(0.5), 100, to_null=to_null)
        return block.delta(math.exp(epsilon), Direction.REMOVE, side)

    assert delta(4.321, Side.UPPER, to_null=True) <= 1e-6 <= delta(4.319, Side.LOWER, to_null=True)
    assert delta(5.495, Side.UPPER, to_null=False) <= 1e-6


@pytest.mark.parametrize("noise", [GaussianNoise(2.0), LaplaceNoise(3.0)], ids=str)
def test_zero_out_epsilon_lies_between_that_of_sums_and_of_replace_one(noise):
    def bound(relation: Relation, release: str) -> float:
        return epsilon_upper(Scheme(noise, CheckIn(20), relation, release), 1e-5)

    zeroed, replaced = (bound(relation, "one-client") for relation in (ZERO, REPLACE))
    assert zeroed <= replaced
    assert zeroed >= bound(ZERO, "aggregated") * (1 - 1e-3)
    assert replaced >= bound(REPLACE, "aggregated") * (1 - 1e-3)


def test_a_client_selected_in_every_step_has_the_epsilon_of_a_sum():
    for relation in (ZERO, REPLACE):
        one = price(scheme(3.0, EveryStep(4), relation), 1e-5)
        summed = price(scheme(3.0, EveryStep(4), relation, "aggregated"), 1e-5)
        assert one.epsilon == summed.epsilon
        assert one.exact


def test_clients_of_a_full_availability_trace_have_the_epsilon_of_check_ins():
    trace = AvailabilityCheckIn(np.ones((2, 20), bool), 10)
    found = price(scheme(1.0, trace, ADD), 1e-5).epsilon
    same = price(scheme(1.0, CheckIn(10, 2), ADD), 1e-5).epsilon
    assert found.upper == pytest.approx(same.upper, rel=1e-3)
    assert found.lower == pytest.approx(same.lower, rel=1e-3)
