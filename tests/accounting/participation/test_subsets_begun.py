"""Begun windows of k-subsets: brackets against sums over all outcomes, and simulation."""

import itertools
import math

import numpy as np
import pytest

from turnout.accounting import epsilon_upper
from turnout.accounting.divergence.blocks import PairBlock
from turnout.accounting.divergence.curves import Direction, Side, epsilon_at
from turnout.accounting.divergence.pairs import DiscretePair, GaussianPair, pair_of_table
from turnout.accounting.participation import k_subset_begun
from turnout.accounting.participation.k_subset import SubsetBlock
from turnout.accounting.participation.k_subset_begun import (
    BegunSubsetBlock,
    picks_chances,
    split_curve,
)
from turnout.accounting.participation.k_subset_levels import SubsetProblem
from turnout.accounting.participation.k_subset_statistic import statistic_curve
from turnout.accounting.pricing import price
from turnout.schemes import GaussianNoise, KSubset, Relation, Scheme

PRESENT, ABSENT = (0.5, 0.3, 0.2), (0.2, 0.3, 0.5)
CERTAIN = (0.4, 0.3, 0.2, 0.1), (0.2, 0.3, 0.5, 0.0)  # the last message shows the client
PAIR = DiscretePair(np.array([0.4, 1.0, 2.5]), np.array([0.5, 0.3, 0.2]))
KS = np.array([1.0, 1.1, 1.5, 2.0, 3.0, 4.0, 6.0])
WINDOWS = [(3, 2, 2), (4, 2, 1), (5, 3, 4), (6, 2, 4), (6, 4, 3)]


def outcomes(table, window, picks, steps):
    """Probabilities of the first outputs with and without the client, by a sum over all subsets."""
    present, absent = (np.asarray(part) for part in table)
    size = present.size**steps
    with_client, without = np.zeros(size), np.ones(1)
    for _ in range(steps):
        without = np.multiply.outer(without, absent).ravel()
    for subset in itertools.combinations(range(window), picks):
        product = np.ones(1)
        for step in range(steps):
            product = np.multiply.outer(product, present if step in subset else absent).ravel()
        with_client += product
    return with_client / math.comb(window, picks), without


def exact(table, window, picks, steps, direction, k):
    with_client, without = outcomes(table, window, picks, steps)
    worlds = [with_client, without]
    first, second = worlds if direction is Direction.REMOVE else worlds[::-1]
    return np.array([np.maximum(first - each * second, 0.0).sum() for each in k])


def problem(window, picks, steps, direction, delta):
    chances = picks_chances(window, picks, steps)
    return SubsetProblem(PAIR, steps, len(chances) - 1, direction, delta, tuple(chances))


@pytest.mark.parametrize("direction", Direction)
@pytest.mark.parametrize(("window", "picks", "steps"), WINDOWS)
def test_the_curve_of_a_partial_window_with_few_likelihood_ratios_is_exact(
    window, picks, steps, direction
):
    truth = exact((PRESENT, ABSENT), window, picks, steps, direction, KS)
    block = BegunSubsetBlock(PAIR, window, picks, steps)
    for side in Side:
        found = block.curve(direction, side, 0.05, 0).delta(KS)
        assert found == pytest.approx(truth, abs=1e-12)
        assert np.all(found >= truth - 1e-15 if side is Side.UPPER else found <= truth + 1e-15)


@pytest.mark.parametrize("direction", Direction)
@pytest.mark.parametrize(("window", "picks", "steps"), WINDOWS)
@pytest.mark.parametrize("composed", [True, False])
def test_bounds_from_splits_lie_above_and_from_events_below_the_exact_curve(
    window, picks, steps, direction, composed
):
    truth = exact((PRESENT, ABSENT), window, picks, steps, direction, KS)
    delta = float(truth[3]) if truth[3] > 0 else 0.01
    task = problem(window, picks, steps, direction, delta)
    above = split_curve(task, 0, composed=composed).delta(KS)
    below = statistic_curve(task, 0).delta(KS)
    assert np.all(above >= truth)
    assert np.all(below <= truth)
    if not composed:
        assert np.all(above <= 1.1 * truth + 0.02)


@pytest.mark.parametrize("direction", Direction)
def test_the_infinity_mass_of_a_partial_window_counts_once_for_each_pick(direction):
    pair, infinity_mass = pair_of_table(*CERTAIN)
    for window, picks, steps in WINDOWS[:4]:
        truth = exact(CERTAIN, window, picks, steps, direction, KS)
        block = BegunSubsetBlock(pair, window, picks, steps, infinity_mass)
        for side in Side:
            found = block.curve(direction, side, 0.2, 0).delta(KS)
            inside = found >= truth - 1e-12 if side is Side.UPPER else found <= truth + 1e-12
            assert np.all(inside)
        floor = exact(CERTAIN, window, picks, steps, direction, np.array([1e12]))[0]
        assert block.curves(Side.UPPER, 0.1, 0).floor(direction) == pytest.approx(floor, abs=1e-9)


def test_a_bound_with_too_few_picks_in_the_released_part_is_detected(mutate):
    """The mutant draws one pick fewer: its upper bound is below the exact curve."""
    direction, k = Direction.REMOVE, np.array([2.0])
    truth = exact((PRESENT, ABSENT), 6, 4, 3, direction, k)[0]
    block = BegunSubsetBlock(PAIR, 6, 4, 3)
    assert block.curve(direction, Side.UPPER, 0.1, 0).delta(k)[0] >= truth
    right = picks_chances
    mutate(k_subset_begun, "picks_chances", lambda t, k, s: right(t, k - 1, s))
    assert block.curve(direction, Side.UPPER, 0.1, 0).delta(k)[0] < 0.9 * truth


def test_a_bound_with_the_mean_number_of_picks_is_detected():
    """The mutant always has two of four picks in half of a window: its ε is too small."""
    truth = exact((PRESENT, ABSENT), 8, 4, 4, Direction.REMOVE, np.array([4.0]))[0]
    sure = SubsetBlock(PAIR, 4, 2).curve(Direction.REMOVE, Side.UPPER, 0.05, 0)
    begun = BegunSubsetBlock(PAIR, 8, 4, 4).curve(Direction.REMOVE, Side.UPPER, 0.05, 0)
    assert sure.delta(np.array([4.0]))[0] < 0.95 * truth
    assert begun.delta(np.array([4.0]))[0] >= truth - 1e-15


def simulated(window, picks, steps, direction, k):
    """δ of Gaussian noise at σ = 1 and its standard error."""
    generator, samples = np.random.default_rng(9), 200_000
    z = generator.standard_normal((samples, steps))
    chances = picks_chances(window, picks, steps)
    if direction is Direction.REMOVE:
        drawn = generator.choice(len(chances), samples, p=np.array(chances) / sum(chances))
        z += np.arange(steps) < drawn[:, None]
    x = np.exp(z - 0.5)
    sums = np.zeros((len(chances), samples))
    sums[0] = 1.0
    for column in x.T:
        sums[1:] += column * sums[:-1]
    s = sum(h / math.comb(steps, j) * sums[j] for j, h in enumerate(chances))
    payoffs = np.maximum(1.0 - (k / s if direction is Direction.REMOVE else k * s), 0.0)
    return payoffs.mean(), payoffs.std() / math.sqrt(samples)


@pytest.mark.parametrize("direction", Direction)
@pytest.mark.parametrize(("window", "picks", "steps"), [(8, 3, 4), (40, 4, 16)])
def test_the_bracket_of_a_partial_window_contains_the_simulated_delta(
    window, picks, steps, direction
):
    k = 4.0 if direction is Direction.REMOVE else 2.0
    delta, error = simulated(window, picks, steps, direction, k)
    block = BegunSubsetBlock(GaussianPair(1.0), window, picks, steps)
    upper, lower = (
        float(block.curve(direction, side, delta, 0).delta(np.array(k))) for side in Side
    )
    assert lower <= upper <= 1.12 * lower
    assert lower - 6 * error <= delta <= upper + 6 * error


def test_partial_windows_with_an_exact_analysis_use_that_analysis():
    """One step is a Poisson step, k = 1 a shorter window, k = t every step."""
    for scheme, steps, blocks in (
        (KSubset(3, 2), 1, [PairBlock(GaussianPair(1.0), 2 / 3)]),
        (KSubset(4, 4), 3, [PairBlock(GaussianPair(3**-0.5))]),
    ):
        whole = Scheme(GaussianNoise(1.0), scheme, Relation.ADD_REMOVE)
        found = epsilon_upper(whole, 1e-3, steps)
        truth = max(
            epsilon_at(block.curve(direction, Side.UPPER, 1e-3, 0), 1e-3, Side.UPPER)
            for block in blocks
            for direction in Direction
        )
        assert found == pytest.approx(truth, rel=1e-9)


def test_epsilon_grows_with_the_released_steps_up_to_that_of_the_whole_window():
    scheme = Scheme(GaussianNoise(1.0), KSubset(3, 2), Relation.ADD_REMOVE)
    found = [epsilon_upper(scheme, 1e-3, steps) for steps in (1, 2, 3)]
    assert found == pytest.approx([2.62698, 3.55706, 4.01815], rel=1e-4)
    assert found[-1] == epsilon_upper(scheme, 1e-3) >= price(scheme, 1e-3).epsilon.upper


def test_the_bound_shared_by_partial_windows_is_above_the_bound_of_a_single_partial_window():
    block = BegunSubsetBlock(GaussianPair(1.0), 16, 3, 5)
    k = np.array([1.5, 3.0])
    for direction in Direction:
        own, shared = (each.curve(direction, Side.UPPER, 1e-3, 0) for each in (block, block.shared))
        assert np.all(shared.delta(k) >= own.delta(k) * (1 - 1e-3))
    assert BegunSubsetBlock(GaussianPair(1.0), 16, 3, 13).shared == SubsetBlock(
        GaussianPair(1.0), 16, 3
    )
