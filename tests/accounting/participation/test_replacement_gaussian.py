"""Replace-one with Gaussian noise: the worst pair of records, and its exact δ."""

from __future__ import annotations

import math

import numpy as np
import pytest
from replacement_truths import gaussian_delta, gaussian_hockey_stick, gaussian_ratios, threshold
from scipy.integrate import quad

from turnout.accounting.divergence.curves import Direction, Side, epsilon_at
from turnout.accounting.divergence.pairs import GaussianPair
from turnout.accounting.participation.check_ins import AllocationBlock, allocation_curve
from turnout.accounting.participation.replace_one import Closeness, ReplacementBlock
from turnout.accounting.participation.replace_one_expectations import Sum, excess
from turnout.accounting.participation.replace_one_steps import AntitheticStep, AnyTwoStep
from turnout.core.errors import ParameterError, UnsupportedError

HERE = Direction.REMOVE  # replace-one is symmetric
LINE = np.linspace(-9.0, 9.0, 260)
LINE_DENSITY = np.exp(-(LINE**2) / 2) * (LINE[1] - LINE[0]) / math.sqrt(2 * math.pi)
PLANE = np.stack(np.meshgrid(LINE, LINE), axis=-1).reshape(-1, 2)
DENSITY = np.outer(LINE_DENSITY, LINE_DENSITY).ravel()
STANDARD_ERRORS = 6.1  # about one false alarm in 1e9 assertions


def bracket(sigma, window, k, probability=1.0, refinement=0):
    block = ReplacementBlock(GaussianPair(sigma), window, probability)
    return tuple(block.delta(k, side, refinement) for side in (Side.LOWER, Side.UPPER))


@pytest.mark.parametrize("sigma", [0.3, 1.0, 4.0])
@pytest.mark.parametrize("probability", [1.0, 0.2])
def test_delta_of_one_step_agrees_with_quadrature(sigma, probability):
    """p = 1: the Gaussian mechanism at twice the sensitivity; else quadrature of a mixture."""
    curves = [
        ReplacementBlock(GaussianPair(sigma), 1, probability).curve(HERE, side, 1e-6, 0)
        for side in (Side.LOWER, Side.UPPER)
    ]
    for epsilon in (0.0, 0.3, 1.0):
        k = math.exp(epsilon)
        truth = gaussian_delta(k, 1, sigma, probability)
        lower, upper = (float(curve.delta(np.array(k))) for curve in curves)
        assert lower <= truth * (1 + 1e-12) + 1e-300
        assert truth * (1 - 1e-12) <= upper <= truth * (1 + 1e-9) + 1e-15
        assert upper - lower < 2e-9 * upper + 1e-15


def test_the_slope_of_one_step_is_the_derivative_of_delta():
    curve = ReplacementBlock(GaussianPair(1.0), 1, 0.3).curve(HERE, Side.LOWER, 1e-6, 0)
    k = np.linspace(1.05, 1.6, 12)
    step = 1e-5
    slopes = (curve.delta(k + step) - curve.delta(k - step)) / (2 * step)
    assert curve.slope(k) == pytest.approx(slopes, rel=1e-6)


@pytest.mark.parametrize("sigma", [0.5, 1.0, 2.5])
@pytest.mark.parametrize("epsilon", [0.0, 0.4, 1.5])
@pytest.mark.parametrize("probability", [1.0, 0.4])
def test_delta_of_two_steps_agrees_with_quadrature(sigma, epsilon, probability):
    k = math.exp(epsilon)
    truth = gaussian_delta(k, 2, sigma, probability)
    lower, upper = bracket(sigma, 2, k, probability)
    assert lower <= truth * (1 + 1e-7) + 1e-14
    assert truth * (1 - 1e-7) - 1e-14 <= upper
    assert upper - lower <= 2e-3 * truth + 1e-12


def test_delta_of_three_steps_agrees_with_quadrature():
    truth = gaussian_delta(math.exp(0.8), 3, 1.0)
    lower, upper = bracket(1.0, 3, math.exp(0.8))
    assert lower <= truth * (1 + 1e-6)
    assert truth * (1 - 1e-6) <= upper <= lower * (1 + 1e-3)


def payoffs(sigma, window, k, generator, wrong=None, samples=60_000):
    """Samples of (1 − K S'/S)₊ with the client's record z, or under a wrong coupling."""
    mu = 1 / sigma
    z = generator.standard_normal((samples, window))
    z[:, 0] += mu
    x, other = gaussian_ratios(z, mu)
    if wrong == "independent":
        other = gaussian_ratios(generator.standard_normal((samples, window)), mu)[0]
    if wrong == "same side":
        other = np.exp(0.5 * (mu * z) - mu * mu / 8)
    if wrong == "one step more":
        x, other = x[:, :-1], other[:, :-1]
    return np.maximum(1.0 - k * other.mean(axis=1) / x.mean(axis=1), 0.0)


def agrees(sigma, window, k, wrong=None, seed=1):
    values = payoffs(sigma, window, k, np.random.default_rng(seed), wrong)
    margin = STANDARD_ERRORS * values.std() / math.sqrt(values.size)
    lower, upper = bracket(sigma, window, k)
    assert lower <= upper
    return lower - margin <= values.mean() <= upper + margin


@pytest.mark.parametrize(
    ("sigma", "window", "epsilon"), [(1.0, 50, 0.7), (0.6, 12, 2.5), (2.0, 8, 0.6)]
)
def test_the_bracket_contains_the_simulated_delta(sigma, window, epsilon):
    assert agrees(sigma, window, math.exp(epsilon))


@pytest.mark.parametrize("wrong", ["independent", "same side", "one step more"])
def test_the_simulation_detects_wrong_couplings_of_the_two_ratios(wrong):
    """Negative controls: other couplings of the two ratios, and another window."""
    assert not agrees(1.0, 10, math.exp(0.7), wrong)


def softplus(y: np.ndarray, soft: float) -> np.ndarray:
    """A smooth convex function, soft·ln(1 + e^{y/soft})."""
    return soft * np.logaddexp(0.0, y / soft)


def softened(hockey_stick, c: float, soft: float) -> float:
    """E[softplus(Y − c)] from a hockey stick, weighted by the second derivative of softplus."""
    offsets = np.linspace(-40 * soft, 40 * soft, 4001)
    curvature = 0.25 / soft / np.cosh(0.5 * offsets / soft) ** 2
    return float(curvature @ hockey_stick(c + offsets)) * (offsets[1] - offsets[0])


@pytest.mark.parametrize("closeness", Closeness)
def test_updates_with_random_shifts_stay_below_the_bound(closeness):
    """Smooth convex functions of X − K·X', for random shifts u and u' in the plane."""
    generator = np.random.default_rng(3)
    kind = AntitheticStep if closeness is Closeness.TO_ABSENCE else AnyTwoStep
    mu, soft = 0.8, 0.25
    largest = 0.0
    for _ in range(25):
        shifts = generator.standard_normal((2, 2))
        shifts *= mu * generator.random((2, 1)) ** 0.2 / np.linalg.norm(shifts, axis=1)[:, None]
        apart = np.linalg.norm(shifts[0] - shifts[1])
        if closeness is Closeness.ANY_TWO and apart > mu:
            shifts *= mu / apart
        k = float(np.exp(2 * generator.random()))
        x, other = (np.exp(PLANE @ u - u @ u / 2) for u in shifts)
        for c in (-1.5, 0.0, 1.0):
            value = float(DENSITY @ softplus(x - k * other - c, soft))
            bound = softened(kind(GaussianPair(1 / mu), k).upper, c, soft)
            largest = max(largest, value / bound)
            assert value <= bound * (1 + 1e-7)
    assert largest > 0.8


def test_updates_with_opposite_shifts_attain_the_bound():
    u = np.array([0.48, 0.64])
    x, other = (np.exp(PLANE @ v - v @ v / 2) for v in (u, -u))
    value = float(DENSITY @ softplus(x - 2.0 * other - 0.3, 0.25))
    bound = softened(AntitheticStep(GaussianPair(1 / 0.8), 2.0).upper, 0.3, 0.25)
    assert value == pytest.approx(bound, rel=1e-7)


def test_adaptive_choices_of_the_second_step_stay_below_the_bound():
    """The shifts of the second step may depend on the output of the first one."""
    mu, k, soft = 1.0, math.exp(0.6), 0.25
    x, other = gaussian_ratios(LINE, mu)
    first = x - k * other

    def worst(c: np.ndarray) -> np.ndarray:
        """Expectation with full shifts in opposite directions in both steps."""
        return np.array(
            [weights @ softplus(np.add.outer(first, first) - s, soft) @ weights for s in c]
        )

    weights = LINE_DENSITY
    generator = np.random.default_rng(4)
    for c in (0.0, 1.0):
        bound = float(worst(np.array([c]))[0])
        for _ in range(8):
            lean, counter = generator.uniform(-mu, mu, (2, LINE.size, 1))
            second = np.exp(lean * LINE - lean**2 / 2) - k * np.exp(counter * LINE - counter**2 / 2)
            value = float(weights @ (softplus(first[:, None] + second - c, soft) @ weights))
            assert value < bound


CELLS = [(1.0, 1000, 1e-6, 0.2674), (0.6, 100, 1e-5, 3.607)]


@pytest.mark.parametrize(("sigma", "window", "delta", "epsilon"), CELLS)
def test_epsilon_is_below_that_of_removing_one_record_and_adding_the_other(
    sigma, window, delta, epsilon
):
    block = ReplacementBlock(GaussianPair(sigma), window)
    lower, upper = (
        epsilon_at(block.curve(HERE, side, delta, 0), delta, side)
        for side in (Side.LOWER, Side.UPPER)
    )
    assert lower <= upper <= lower * (1 + 3e-3)
    assert upper == pytest.approx(epsilon, rel=2e-3)
    assert upper < 0.97 * two_bounds(GaussianPair(sigma), window, delta)


def two_bounds(pair, window, delta):
    """Two hops over absence: the best of some splits of δ_remove(ε₁) + e^{ε₁}·δ_add(ε₂)."""

    def root(direction, part):
        curve = allocation_curve(pair, window, direction, Side.UPPER, delta_hint=part)
        return epsilon_at(curve, part, Side.UPPER)

    best = math.inf
    for share in (0.6, 0.9):
        first = root(Direction.REMOVE, share * delta)
        best = min(best, first + root(Direction.ADD, (1 - share) * delta * math.exp(-first)))
    return best


def test_epsilon_of_close_records_lies_between_that_of_removal_and_of_opposite_records():
    """With full sensitivity between any two records, ε is at least that of removal."""
    pair, window, delta = GaussianPair(1.0), 1000, 1e-6
    uppers = {
        closeness: epsilon_at(
            ReplacementBlock(pair, window, 1.0, closeness).curve(HERE, Side.UPPER, delta, 0),
            delta,
            Side.UPPER,
        )
        for closeness in Closeness
    }
    alone = epsilon_at(
        AllocationBlock(pair, window).curve(HERE, Side.LOWER, delta, 0), delta, Side.LOWER
    )
    assert alone <= uppers[Closeness.ANY_TWO] <= uppers[Closeness.TO_ABSENCE]
    with pytest.raises(UnsupportedError, match="use the lower curve"):
        ReplacementBlock(pair, window, 1.0, Closeness.ANY_TWO).delta(1.5, Side.LOWER)


@pytest.mark.parametrize(
    ("sigma", "window", "epsilon"),
    [(0.4, 30, 6.0), (1.0, 10**6, 0.01), (30.0, 5, 0.15), (0.3, 2, 20.0)],
)
def test_refinement_narrows_the_bracket_on_delta(sigma, window, epsilon):
    """Every upper bound is above every lower bound, and finer grids have narrower brackets."""
    coarse, fine = (bracket(sigma, window, math.exp(epsilon), 1.0, r) for r in (0, 2))
    assert max(coarse[0], fine[0]) <= min(coarse[1], fine[1])
    assert fine[1] - fine[0] < 0.6 * (coarse[1] - coarse[0]) + 1e-4 * coarse[1]
    assert coarse[1] < 1.1 * coarse[0]


def test_small_deltas_keep_their_relative_accuracy():
    lower, upper = bracket(2.0, 1000, math.exp(0.28))
    assert 0 < lower < upper < 1e-15
    assert upper < 1.02 * lower


def test_a_threshold_above_all_ratios_has_a_tiny_expected_excess():
    total = Sum(AntitheticStep(GaussianPair(1.0), 3.0), 4, threshold(3.0, 4, 1e-9))
    assert 0 <= excess(total, Side.LOWER) <= excess(total, Side.UPPER) < 1e-30


def test_invalid_parameters_of_a_replacement_block_are_refused():
    for bad in ({"window": 0}, {"probability": 0.0}, {"probability": 1.01}, {"infinity_mass": 1.0}):
        with pytest.raises(ParameterError):
            ReplacementBlock(**{"pair": GaussianPair(1.0), "window": 5, **bad})


def test_the_reference_closed_form_agrees_with_quadrature():
    """The closed form in `replacement_truths` against plain quadrature."""
    k, mu = 1.7, 0.9

    def integrand(z: float) -> float:
        x, other = gaussian_ratios(np.array(z), mu)
        return max(float(x - k * other) - 0.3, 0.0) * math.exp(-z * z / 2) / math.sqrt(2 * math.pi)

    plain = quad(integrand, -8, 12, points=[0.7], limit=300)[0]
    assert float(gaussian_hockey_stick(np.array(0.3), k, mu)) == pytest.approx(plain, rel=1e-7)
