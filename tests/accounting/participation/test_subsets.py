"""k of t steps: brackets against simulation, quadrature and exact sums over two-point ratios."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import pytest

from turnout.accounting.divergence import composition
from turnout.accounting.divergence.blocks import PairBlock
from turnout.accounting.divergence.composition import run_curve, run_epsilon
from turnout.accounting.divergence.curves import Direction, PairCurve, Side, epsilon_at
from turnout.accounting.divergence.pairs import (
    GaussianPair,
    PurePair,
    hockey_stick,
    reverse_hockey_stick,
)
from turnout.accounting.participation import (
    k_subset_conditional,
    k_subset_statistic,
)
from turnout.accounting.participation.check_ins import AllocationBlock, allocation_curve
from turnout.accounting.participation.k_subset import SubsetBlock, block_run
from turnout.accounting.participation.k_subset_conditional import conditional_bound
from turnout.accounting.participation.k_subset_levels import LevelDistribution, SubsetProblem
from turnout.accounting.participation.k_subset_statistic import statistic_curve
from turnout.accounting.pricing import price
from turnout.core.errors import NumericalError, ParameterError, UnsupportedError
from turnout.schemes import CheckIn, GaussianNoise, KSubset, Relation, Scheme

NORMALS = 2_000_000  # normal variables drawn in each simulation
STANDARD_ERRORS = 6.1  # about one false alarm in 1e9 assertions


def subset_means(x: np.ndarray, picks: int) -> np.ndarray:
    """k-th elementary symmetric sum of each row over C(t, k), built step by step."""
    sums = np.zeros((picks + 1, x.shape[0]))
    sums[0] = 1.0
    for column in x.T:
        sums[1:] += column * sums[:-1]
    return sums[picks] / math.comb(x.shape[1], picks)


def simulated(sigma, window, picks, direction, epsilon):
    """δ and its standard error, simulated in the world in which payoffs are at most 1."""
    generator = np.random.default_rng(window + picks)
    samples = NORMALS // window
    z = generator.standard_normal((samples, window))
    if direction is Direction.REMOVE:
        z[:, :picks] += 1 / sigma
    s = subset_means(np.exp(z / sigma - 0.5 / sigma**2), picks)
    ratio = math.exp(epsilon) / s if direction is Direction.REMOVE else math.exp(epsilon) * s
    payoffs_ = np.maximum(1.0 - ratio, 0.0)
    return payoffs_.mean(), payoffs_.std() / math.sqrt(samples)


def bracket(block, direction, delta, epsilon):
    k = np.array(math.exp(epsilon))
    return [float(block.curve(direction, side, delta, 0).delta(k)) for side in Side]


CELLS = [(1.0, 4, 2, 3.0), (0.8, 16, 4, 4.0), (1.0, 64, 2, 0.8), (2.0, 12, 6, 1.5)]


@pytest.mark.parametrize("direction", Direction)
@pytest.mark.parametrize(("sigma", "window", "picks", "epsilon"), CELLS)
def test_the_k_subset_bracket_contains_the_simulated_delta(
    sigma, window, picks, epsilon, direction
):
    delta, error = simulated(sigma, window, picks, direction, epsilon)
    upper, lower = bracket(
        SubsetBlock(GaussianPair(sigma), window, picks), direction, delta, epsilon
    )
    assert lower <= upper <= 1.06 * lower
    assert lower - STANDARD_ERRORS * error <= delta <= upper + STANDARD_ERRORS * error


def test_delta_of_two_separate_windows_exceeds_that_of_the_k_subset():
    """Negative control: at t = 4, k = 2, σ = 1, ε = 3 two windows of two have δ = 0.00556."""
    delta, error = simulated(1.0, 4, 2, Direction.REMOVE, 3.0)
    blocks = [(AllocationBlock(GaussianPair(1.0), 2), 2)]
    curve = run_curve(blocks, Direction.REMOVE, Side.LOWER, delta, 0)
    assert float(curve.delta(np.array(math.exp(3.0)))) > delta + 20 * error
    upper, lower = bracket(SubsetBlock(GaussianPair(1.0), 4, 2), Direction.REMOVE, delta, 3.0)
    assert 0.00392 < lower < 0.003984 + 6e-6
    assert 0.003984 - 6e-6 < upper < 0.0041


@pytest.mark.parametrize(
    ("sigma", "window", "picks", "delta"),
    [(1.0, 64, 2, 1e-6), (1.0, 64, 8, 1e-5), (0.5, 16, 4, 1e-3), (2.0, 20, 10, 1e-8)],
)
@pytest.mark.parametrize("direction", Direction)
def test_epsilon_of_a_k_subset_is_below_that_of_k_separate_windows(
    sigma, window, picks, delta, direction
):
    """ε is below the lower bound of k separate windows, so below every upper bound from them."""
    pair = GaussianPair(sigma)
    run = [(AllocationBlock(pair, window // picks), picks)]
    curve = SubsetBlock(pair, window, picks).curve(direction, Side.UPPER, delta, 0)
    blocks = run_epsilon(run, direction, Side.LOWER, delta, 0)
    assert epsilon_at(curve, delta, Side.UPPER) < 0.9995 * blocks


@pytest.mark.parametrize(("sigma", "window", "picks"), [(1.0, 64, 2), (0.7, 100, 10), (3.0, 30, 9)])
def test_the_lower_bound_exceeds_epsilon_of_an_attack_on_the_sum_of_outputs(sigma, window, picks):
    delta = 1e-5
    pair = GaussianPair(sigma)
    curve = SubsetBlock(pair, window, picks).curve(Direction.REMOVE, Side.LOWER, delta, 0)
    summed = PairCurve(
        GaussianPair(sigma * math.sqrt(window) / picks), Direction.REMOVE, Side.UPPER
    )
    assert epsilon_at(curve, delta, Side.LOWER) > epsilon_at(summed, delta, Side.UPPER)


@pytest.mark.parametrize("direction", Direction)
def test_the_k_subset_bracket_of_long_windows_is_narrow(direction):
    block, delta = SubsetBlock(GaussianPair(1.0), 50_000, 3), 1e-7
    upper, lower = (
        epsilon_at(block.curve(direction, side, delta, 0), delta, side) for side in Side
    )
    assert lower < upper < 1.002 * lower


def test_separate_windows_of_a_k_subset_together_have_all_its_steps():
    """Three of 11 steps: windows of 4, 4 and 3 steps, not three windows of ⌊11/3⌋ = 3."""
    pair = GaussianPair(1.0)
    run = block_run(SubsetProblem(pair, 11, 3, Direction.REMOVE, 1e-5))
    assert run == [(AllocationBlock(pair, 3), 1), (AllocationBlock(pair, 4), 2)]


def test_one_pick_equals_a_check_in_and_all_picks_equal_every_step():
    pair, k = GaussianPair(1.5), np.exp(np.linspace(0.0, 3.0, 7))
    for direction in Direction:
        for side in Side:
            one = SubsetBlock(pair, 20, 1).curve(direction, side, 1e-5, 0)
            check_in = allocation_curve(pair, 20, direction, side, delta_hint=1e-5)
            assert np.array_equal(one.delta(k), check_in.delta(k))
            every = SubsetBlock(pair, 9, 9).curve(direction, side, 1e-5, 0)
            plain = PairCurve(GaussianPair(0.5), direction, side)
            assert np.array_equal(every.delta(k), plain.delta(k))


@dataclass(frozen=True)
class TwoPoints:
    """Binary randomized response, ε₀ = ln(odds): X is `odds` or 1/`odds` (odds = 3, 2, …)."""

    odds: int

    @property
    def masses(self) -> tuple[Fraction, Fraction]:
        return Fraction(self.odds, self.odds + 1), Fraction(1, self.odds + 1)

    @property
    def ratios(self) -> tuple[Fraction, Fraction]:
        return Fraction(1, self.odds), Fraction(self.odds)

    @property
    def second_moment(self) -> float:
        return float(sum(q * x * x for q, x in zip(self.masses, self.ratios, strict=True)))

    def _mass(self, k, weights, below):
        points = np.array([float(x) for x in self.ratios])
        inside = points <= np.asarray(k)[..., None]
        return np.where(inside if below else ~inside, np.array(weights, dtype=float), 0.0).sum(-1)

    def q_below(self, k):
        return self._mass(k, self.masses, below=True)

    def q_above(self, k):
        return self._mass(k, self.masses, below=False)

    def p_below(self, k):
        return self._mass(k, self.masses[::-1], below=True)

    def p_above(self, k):
        return self._mass(k, self.masses[::-1], below=False)

    def upper_quantile(self, mass):
        return float(self.odds)


@dataclass(frozen=True)
class Atoms(TwoPoints):
    """The same pair, with the property `atoms`."""

    @property
    def atoms(self):
        return tuple(np.array(part, dtype=float) for part in (self.ratios, self.masses))


def exact_delta(pair: TwoPoints, window: int, picks: int, direction, k: Fraction) -> Fraction:
    """Exact δ: a sum over the number of large ratios, in fractions."""
    low, high = pair.ratios
    total = Fraction(0)
    for large in range(window + 1):
        chance = math.comb(window, large) * pair.masses[1] ** large
        chance *= pair.masses[0] ** (window - large)
        s = sum(
            math.comb(large, j) * math.comb(window - large, picks - j)
            * high**j * low ** (picks - j)
            for j in range(picks + 1)
        ) / Fraction(math.comb(window, picks))  # fmt: skip
        total += chance * max(Fraction(0), s - k if direction is Direction.REMOVE else 1 - k * s)
    return total


ODDS = [(3, 6, 2, Fraction(2)), (2, 9, 4, Fraction(7, 4)), (7, 5, 3, Fraction(20))]


@pytest.mark.parametrize("direction", Direction)
@pytest.mark.parametrize(("odds", "window", "picks", "k"), ODDS)
def test_the_curve_of_a_pair_with_two_likelihood_ratios_is_exact(odds, window, picks, k, direction):
    truth = float(exact_delta(Atoms(odds), window, picks, direction, k))
    block = SubsetBlock(Atoms(odds), window, picks)
    upper, lower = bracket(block, direction, 1e-3, math.log(k))
    assert lower <= truth <= upper
    assert upper - lower < 1e-12


@pytest.mark.parametrize("direction", Direction)
def test_the_infinity_mass_counts_once_for_each_pick(direction):
    """(ε₀, δ₀) with e^ε₀ = 2, δ₀ = 1/50, 2 of 3: X is 0, 1/2, 2, or infinite under P only."""
    values, infinity_mass, k = (
        (Fraction(0), Fraction(1, 2), Fraction(2)),
        Fraction(1, 50),
        Fraction(3, 2),
    )
    masses = (
        infinity_mass,
        (1 - infinity_mass) * Fraction(2, 3),
        (1 - infinity_mass) * Fraction(1, 3),
    )
    truth = 1 - (1 - infinity_mass) ** 2 if direction is Direction.REMOVE else Fraction(0)
    for index in itertools.product(range(3), repeat=3):
        a, b, c = (values[i] for i in index)
        s = (a * b + a * c + b * c) / 3
        worth = s - k if direction is Direction.REMOVE else 1 - k * s
        truth += math.prod(masses[i] for i in index) * max(Fraction(0), worth)
    block = SubsetBlock(
        PurePair(math.log(2), float(infinity_mass)), 3, 2, infinity_mass=float(infinity_mass)
    )
    upper, lower = bracket(block, direction, 0.1, math.log(k))
    assert lower <= float(truth) <= upper
    assert upper - lower < 1e-12


@pytest.mark.parametrize("direction", Direction)
@pytest.mark.parametrize(("odds", "window", "picks", "k"), ODDS)
def test_the_bounds_for_general_pairs_contain_delta_of_two_likelihood_ratios(
    odds, window, picks, k, direction
):
    """The same ratios without the property `atoms`: the bounds for general pairs apply."""
    truth = float(exact_delta(TwoPoints(odds), window, picks, direction, k))
    task = SubsetProblem(TwoPoints(odds), window, picks, direction, truth)
    upper = conditional_bound(task, 0).delta(float(k))
    lower = float(statistic_curve(task, 0).delta(np.array(float(k))))
    assert lower <= truth * (1 + 1e-12)
    assert truth * (1 - 1e-12) <= upper
    assert upper < 1.05 * lower


def quadrature(sigma: float, direction: Direction, k: float) -> float:
    """δ for t = 3, k = 2: given x₁ and x₂, the payoff is a hockey stick (add: reverse) of x₃.

    S = (x₁x₂ + (x₁ + x₂)·x₃)/3.
    """
    nodes = np.linspace(-9.0, 9.0 + 2 / sigma, 900)
    weights = np.exp(-0.5 * nodes**2) / math.sqrt(2 * math.pi) * (nodes[1] - nodes[0])
    x = np.exp(nodes / sigma - 0.5 / sigma**2)
    both, slope = np.multiply.outer(x, x), (x[:, None] + x[None, :]) / 3
    pair = GaussianPair(sigma)
    if direction is Direction.REMOVE:
        threshold = (k - both / 3) / slope
        values = np.where(
            threshold > 0, hockey_stick(pair, np.maximum(threshold, 1e-300)), 1.0 - threshold
        )
        return float(weights @ (slope * values) @ weights)
    threshold = (1 / k - both / 3) / slope
    values = np.where(threshold > 0, reverse_hockey_stick(pair, np.maximum(threshold, 1e-300)), 0.0)
    return k * float(weights @ (slope * values) @ weights)


@pytest.mark.parametrize("direction", Direction)
@pytest.mark.parametrize(("sigma", "epsilon"), [(1.0, 3.0), (0.6, 6.0), (2.0, 1.0)])
def test_delta_of_two_of_three_steps_agrees_with_quadrature(sigma, epsilon, direction):
    truth = quadrature(sigma, direction, math.exp(epsilon))
    upper, lower = bracket(SubsetBlock(GaussianPair(sigma), 3, 2), direction, truth, epsilon)
    assert lower < truth < upper < 1.02 * lower


def test_participation_with_probability_one_half_halves_delta_at_a_larger_ratio():
    pair, k = GaussianPair(1.0), np.array([1.5, 3.0])
    sure = SubsetBlock(pair, 8, 2).curve(Direction.REMOVE, Side.UPPER, 0.02, 0)
    rare = SubsetBlock(pair, 8, 2, 0.5).curve(Direction.REMOVE, Side.UPPER, 0.01, 0)
    assert rare.delta(k) == pytest.approx(0.5 * sure.delta(1 + (k - 1) / 0.5), rel=1e-9)


def test_epsilon_of_composed_k_subsets_is_below_that_of_separate_windows():
    pair, delta = GaussianPair(1.0), 1e-4
    run, blocks = [(SubsetBlock(pair, 16, 2), 3)], [(AllocationBlock(pair, 8), 6)]
    upper, lower = (run_epsilon(run, Direction.REMOVE, side, delta, 0) for side in Side)
    assert lower < upper < 1.01 * lower
    assert upper < 0.99 * run_epsilon(blocks, Direction.REMOVE, Side.LOWER, delta, 0)


def test_a_k_subset_of_all_steps_with_a_discrete_pair_equals_its_composition():
    block = SubsetBlock(TwoPoints(3), 4, 4)
    upper, lower = bracket(block, Direction.REMOVE, 0.1, math.log(5))
    truth = float(exact_delta(TwoPoints(3), 4, 4, Direction.REMOVE, Fraction(5)))
    assert lower <= truth <= upper
    run = [(PairBlock(TwoPoints(3)), 4)]
    composed = run_curve(run, Direction.REMOVE, Side.UPPER, 0.1, 0)
    assert upper == pytest.approx(float(composed.delta(np.array(5.0))), rel=1e-12)


@pytest.mark.parametrize(
    "arguments", [(0, 1), (4, 5), (4, 0), (4, 2, 0.0), (4, 2, 1.5), (4, 2.0), (True, 1)]
)
def test_parameters_of_a_k_subset_out_of_range_are_refused(arguments):
    with pytest.raises(ParameterError):
        SubsetBlock(GaussianPair(1.0), *arguments)


def test_a_k_subset_bound_whose_second_moment_overflows_is_refused():
    """σ is so small that E[S²] exceeds the range of floats; the bound raises an error."""
    task = SubsetProblem(GaussianPair(0.1), 50, 5, Direction.REMOVE, 1e-6)
    with pytest.raises(NumericalError):
        conditional_bound(task, 0)


@pytest.fixture
def forget():
    """Clear the kept bounds, before a test of mutants and after it."""
    conditional_bound.cache_clear()
    yield conditional_bound.cache_clear
    conditional_bound.cache_clear()


TEST_TASK = SubsetProblem(GaussianPair(1.0), 4, 2, Direction.REMOVE, 0.003984)
TRUTH = 0.003984 - 6.1 * 6e-6


def test_a_bound_without_overlaps_of_subsets_is_detected(mutate, forget):
    """The mutant computes E[S²] as if two subsets never shared a step."""
    assert conditional_bound(TEST_TASK, 0).delta(math.exp(3.0)) > TRUTH
    forget()
    mutate(k_subset_conditional, "overlap_chances", lambda _, picks: [1.0] + [0.0] * picks)
    assert conditional_bound(TEST_TASK, 0).delta(math.exp(3.0)) < TRUTH


def test_a_bound_with_a_maximum_of_the_wrong_symmetric_function_is_detected(mutate, forget):
    """The mutant takes S as largest where all values are equal, true for their sum (Maclaurin)."""

    def equal(statistic, scale, groups, picks):
        return (np.expm1(statistic / groups) / scale) ** picks

    mutate(k_subset_conditional, "largest_ratios", equal)
    assert conditional_bound(TEST_TASK, 0).delta(math.exp(3.0)) < TRUTH


def test_a_bound_with_likelihood_ratios_rounded_down_is_detected(mutate, forget):
    """The mutant moves ratios to the level below instead of spreading them."""

    def rounded(ratio_bounds, points):
        below = GaussianPair(1.0).q_below(points)
        return LevelDistribution(points, np.diff(below, append=1.0), 1.0, 0.0)

    mutate(k_subset_conditional, "levels_for_hockey_sticks", rounded)
    mutate(k_subset_conditional, "_MOST_CELLS", 400)
    assert conditional_bound(TEST_TASK, 0).delta(math.exp(3.0)) < TRUTH


def test_a_bound_with_participation_in_every_step_is_detected(mutate):
    """In the mutant the client takes part in all steps of the adversary's statistic."""
    assert statistic_curve(TEST_TASK, 0).value(math.exp(3.0)) < TRUTH + 2 * 6.1 * 6e-6
    real = k_subset_statistic.BinSum

    def wrong(distributions, counts):
        return real(distributions, counts if len(counts) == 1 else (sum(counts), 0))

    mutate(k_subset_statistic, "BinSum", wrong)
    assert statistic_curve(TEST_TASK, 0).value(math.exp(3.0)) > TRUTH + 2 * 6.1 * 6e-6


@pytest.mark.parametrize("direction", Direction)
def test_the_attack_statistic_reaches_the_gaussian_limit_for_large_noise(direction):
    """In the Gaussian limit the mean of the steps moves by k/√t/σ."""
    drift = 2 / math.sqrt(8) / 3e4
    curve = statistic_curve(SubsetProblem(GaussianPair(3e4), 8, 2, direction, 1e-6), 0)
    limit = math.erf(drift / math.sqrt(8))
    assert 0.9 * limit < curve.value(1.0) <= limit * (1 + 1e-3)


def test_epsilon_of_very_many_windows_uses_a_closed_form_without_finer_grids(mutate):
    tried, of = [], composition.LossGrid.of
    mutate(composition.LossGrid, "of", lambda *given: tried.append(1) or of(*given))
    check_ins = Scheme(GaussianNoise(1.0), CheckIn(window=4, windows=10**8), Relation.ADD_REMOVE)
    found = price(check_ins, 1e-6)
    assert "unamplified" in found.method
    assert len(tried) == 2  # one of each direction
    assert found.epsilon.upper == pytest.approx(0.5e8, rel=1e-2)
    subsets = KSubset(window=4, windows=10**8, picks=2)
    with pytest.raises(UnsupportedError, match="expected at most 10,000,000"):
        price(Scheme(GaussianNoise(1.0), subsets, Relation.ADD_REMOVE), 1e-6)
