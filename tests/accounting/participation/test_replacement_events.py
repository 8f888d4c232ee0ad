"""Replace-one: lower bounds from events, upper bounds from capped steps, composed windows."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from replacement_truths import gaussian_delta

from turnout.accounting import price
from turnout.accounting.divergence.composition import run_curve
from turnout.accounting.divergence.curves import Direction, Side
from turnout.accounting.divergence.pairs import (
    DiscretePair,
    GaussianPair,
    LaplacePair,
    PurePair,
    discrete_gaussian_pair,
)
from turnout.accounting.participation import (
    replace_one_capped,
    replace_one_events,
    replace_one_levels,
)
from turnout.accounting.participation.replace_one import ReplacementBlock
from turnout.accounting.participation.replace_one_capped import capped_excess
from turnout.accounting.participation.replace_one_events import (
    Lines,
    Part,
    event_lines,
    event_masses,
    under_lines,
)
from turnout.accounting.participation.replace_one_expectations import Sum, excess
from turnout.accounting.participation.replace_one_grids import MassGrid, half_line_masses
from turnout.accounting.participation.replace_one_levels import levels_excess
from turnout.accounting.participation.replace_one_steps import AntitheticStep, SumFrame
from turnout.schemes import CheckIn, GaussianNoise, LaplaceNoise, Scheme

STANDARD_ERRORS = 6.1  # about one false alarm in 1e9 assertions


def lines_at(pair, window, k, probability=1.0):
    """Largest line of the events whose score is Y at this K, there."""
    near = np.array([k])
    lines = event_lines(AntitheticStep(pair, k), Part(window, probability, 0.0), near, None, 0)
    return float(lines.at(near).max())


def capped(pair, window, k, probability=1.0):
    threshold = window * (k - 1.0) * (1.0 - probability) / probability
    return probability * capped_excess(AntitheticStep(pair, k), window, threshold, None, 0).value


def composed_delta(window, windows, probability, k):
    """δ of a few windows of the table's worlds, by enumeration of all outputs."""
    absent, present, elsewhere = WORLDS

    def window_law(record):
        total = 0.0
        for slot in range(window):
            factors = [record if step == slot else absent for step in range(window)]
            total = total + probability / window * product(factors)
        return total + (1.0 - probability) * product([absent] * window)

    laws = [product([window_law(record)] * windows) for record in (present, elsewhere)]
    return float(np.maximum(laws[0] - k * laws[1], 0.0).sum())


def product(factors):
    result = np.ones(1)
    for factor in factors:
        result = np.multiply.outer(result, factor).ravel()
    return result


MASSES = np.array([0.1, 0.2, 0.4, 0.2, 0.1])  # symmetric, so atoms of X and of X' pair up
VALUES = np.array([0.25, 0.55, 0.9, 1.35, 2.35])
TABLE = DiscretePair(VALUES, MASSES)
WORLDS = (MASSES, MASSES * VALUES, MASSES * VALUES[::-1])


@pytest.mark.parametrize("probability", [1.0, 0.3])
@pytest.mark.parametrize(("window", "windows"), [(2, 1), (3, 2), (2, 3)])
def test_windows_of_a_symmetric_table_agree_with_enumeration(window, windows, probability):
    block = ReplacementBlock(TABLE, window, probability)
    for epsilon in (0.2, 0.4):
        k = math.exp(epsilon)
        truth = composed_delta(window, windows, probability, k)
        lower, upper = (
            float(
                run_curve([(block, windows)], Direction.REMOVE, side, truth, 0).delta(np.array(k))
            )
            for side in (Side.LOWER, Side.UPPER)
        )
        assert lower <= truth * (1 + 1e-9)
        assert truth * (1 - 1e-9) <= upper
        assert upper - lower < 0.02 * truth


PAIRS = [
    (GaussianPair(1.0), 64, 1.0, 0.3),
    (GaussianPair(1.0), 64, 1.0, 2.0),
    (GaussianPair(0.6), 20, 0.2, 1.0),
    (GaussianPair(3.0), 1000, 1.0, 0.05),
    (LaplacePair(2.0), 100, 1.0, 0.3),
    (discrete_gaussian_pair(2.0, 1), 10, 1.0, 0.9),
    (PurePair(1.0), 12, 0.5, 0.3),
]


@pytest.mark.parametrize(("pair", "window", "probability", "epsilon"), PAIRS)
def test_bounds_from_events_and_capped_steps_are_in_order_with_the_bounds_from_grids(
    pair, window, probability, epsilon
):
    """The bounds from grids use neither events nor a cap: all four bounds must be in order."""
    k = math.exp(epsilon)
    total = Sum(
        AntitheticStep(pair, k), window, window * (k - 1.0) * (1.0 - probability) / probability
    )
    below, above = lines_at(pair, window, k, probability), capped(pair, window, k, probability)
    lower, upper = (probability * excess(total, side) for side in (Side.LOWER, Side.UPPER))
    assert max(below, lower) <= min(above, upper)
    assert above <= 1.005 * below


@pytest.mark.parametrize(("window", "epsilon"), [(10, 0.7), (50, 0.4)])
def test_a_simulated_attack_that_uses_the_event_of_the_lower_bound_attains_the_bound(
    window, epsilon
):
    """An adversary who sees the noisy steps and guesses "z" where ΣY > τ reaches the line."""
    k, samples, generator = math.exp(epsilon), 100_000, np.random.default_rng(7)
    noise = generator.standard_normal((2, samples, window))
    noise[0, :, 0] += 1.0
    noise[1, :, 0] -= 1.0
    scores = (np.exp(noise - 0.5) - k * np.exp(-noise - 0.5)).sum(axis=2)
    says = scores > 0.0
    reached = says[0].mean() - k * says[1].mean()
    margin = STANDARD_ERRORS * (1.0 + k) * 0.5 / math.sqrt(samples)
    pair = GaussianPair(1.0)
    assert reached + margin >= lines_at(pair, window, k) >= reached - 2 * margin
    # Negative control: a window of half the length has more than the attack reaches.
    assert lines_at(pair, window // 2, k) > reached + margin


def test_the_lower_bound_from_one_event_holds_at_every_ratio():
    """One event's line lies below δ far from its own K₀ too, with and without participation."""
    near = np.exp(np.linspace(0.0, 1.5, 31))
    for probability in (1.0, 0.3):
        step = AntitheticStep(TABLE, math.exp(0.5))
        lines = event_lines(step, Part(3, probability, 0.0), near, None, 0)
        for k, highest in zip(near, lines.at(near).max(axis=1), strict=True):
            assert highest <= composed_delta(3, 1, probability, float(k)) + 1e-12


@given(st.integers(0, 10**6))
def test_tail_bounds_enclose_the_probability_that_a_sum_exceeds_a_threshold(seed):
    generator = np.random.default_rng(seed)
    size, count = int(generator.integers(2, 12)), int(generator.integers(1, 6))
    one, other = (generator.dirichlet(np.ones(size)) for _ in range(2))
    truth = other
    for _ in range(count):
        truth = np.convolve(truth, one)
    gap = float(generator.uniform(0.1, 2.0))
    points = gap * np.arange(truth.size)
    centre, tilt = float(truth @ points), float(generator.uniform(0.05, 0.5)) / gap
    reach = float(generator.uniform(0.5, 1.5)) * points[-1] + 3 * gap
    frame = SumFrame(tilt, centre, tilt, 0.0, gap * size, reach, reach, tilt, tilt)
    parts = [(MassGrid(0.0, gap, one), count), (MassGrid(0.0, gap, other), 1)]
    lower, upper = (half_line_masses(parts, side, frame) for side in (Side.LOWER, Side.UPPER))
    tails = np.cumsum(truth[::-1])[::-1]
    # The bins begin somewhere on the lattice: each bound belongs to one of the tails.
    fits = [
        shift
        for shift in range(-lower.size, tails.size + 1)
        if all(
            low <= true * (1 + 1e-12) and true * (1 - 1e-12) <= high
            for low, high, true in zip(lower, upper, padded(tails, shift, lower.size), strict=True)
        )
    ]
    assert fits


def padded(tails, shift, size):
    index = shift + np.arange(size)
    inside = (index >= 0) & (index < tails.size)
    return np.where(inside, tails[np.clip(index, 0, tails.size - 1)], np.where(index < 0, 1.0, 0.0))


@given(
    st.lists(
        st.tuples(st.floats(0.0, 1.0), st.just(0.0) | st.floats(1e-6, 1.0)), min_size=1, max_size=30
    ),
    st.floats(0.0, 0.01),
)
def test_a_curve_built_from_lines_lies_below_the_maximum_of_the_lines(pairs, floor):
    heights, slopes = (np.array(column) for column in zip(*pairs, strict=True))
    near, fine = np.exp(np.linspace(0.0, 2.0, 60)), np.exp(np.linspace(0.0, 3.0, 401))
    curve = under_lines([Lines(heights, slopes)], near, floor)
    largest = np.maximum((heights - np.multiply.outer(fine, slopes)).max(axis=1), floor)
    values = curve.delta(fine)
    assert (values <= np.minimum(largest, 1.0) + 1e-13).all()
    at = curve.delta(near)
    best = np.maximum((heights - np.multiply.outer(near, slopes)).max(axis=1), floor)
    assert (at >= np.minimum(best, 1.0) - 1e-9).all()


@pytest.mark.parametrize("pair", [LaplacePair(1.5), TABLE, PurePair(0.7), GaussianPair(0.7)])
def test_event_probabilities_are_those_of_nested_events(pair):
    c = np.linspace(-6.0, 4.0, 101)
    step = AntitheticStep(pair, 1.7)
    present, elsewhere, share = event_masses(step, c)
    # Neither record can do better with an event of this Q-mass than the trade-off allows.
    lines = present - 1.7 * elsewhere - c * share
    assert (lines <= step.upper(c) + 1e-14).all()
    for tails in (present, elsewhere, share):
        assert (np.diff(tails) <= 1e-7).all()


@pytest.mark.parametrize(
    ("noise", "window", "windows", "low", "high"),
    [
        (GaussianNoise(1.0), 64, 16, 5.3202, 5.3240),
        (LaplaceNoise(2.0), 100, 10, 1.1724, 1.1733),
    ],
)
def test_composed_windows_meet_the_default_tolerance(noise, window, windows, low, high):
    """The brackets of an independent computation overlap with those of turnout."""
    found = price(Scheme(noise, CheckIn(window, windows), "replace-one"), 1e-6)
    assert found.meets_tolerance
    assert found.epsilon.lower <= high
    assert low <= found.epsilon.upper


LITTLE_NOISE = [(0.4, 2, 1.0, 12.0), (0.4, 2, 0.02, 4.0), (0.5, 3, 1.0, 6.0), (0.3, 2, 0.4, 9.0)]


@pytest.mark.parametrize(("sigma", "window", "probability", "epsilon"), LITTLE_NOISE)
def test_bounds_with_unequal_levels_enclose_the_quadrature_value(
    sigma, window, probability, epsilon
):
    k = math.exp(epsilon)
    truth = gaussian_delta(k, window, sigma, probability, 6000 if window == 2 else 360)
    block = ReplacementBlock(GaussianPair(sigma), window, probability)
    lower, upper = (block.delta(k, side) for side in (Side.LOWER, Side.UPPER))
    assert lower <= truth * (1 + 1e-5)
    assert truth * (1 - 1e-5) <= upper
    levels = on_levels(sigma, window, k, probability, 1)
    assert levels[0] <= truth * (1 + 1e-5)
    assert truth * (1 - 1e-5) <= levels[1] <= 1.02 * levels[0]


def on_levels(sigma, window, k, probability=1.0, refinement=0):
    """Bounds on δ on unequal levels, from below and from above."""
    step = AntitheticStep(GaussianPair(sigma), k)
    threshold = window * (k - 1.0) * (1.0 - probability) / probability
    return tuple(
        probability * levels_excess(step, window, threshold, side, refinement)
        for side in (Side.LOWER, Side.UPPER)
    )


def test_bounds_with_unequal_levels_enclose_a_delta_that_grids_cannot_bound():
    """δ of ten steps at σ = 0.1, ε = 137 by simulation with importance weights."""
    generator, samples, mu = np.random.default_rng(3), 500_000, 10.0
    # Importance sampling: the client's score moved up, the other nine moved as well.
    own = generator.standard_normal(samples) + 2.8
    others = generator.standard_normal((samples, 9)) + 1.0
    weights = np.exp(3.92 - 2.8 * own + 4.5 - others.sum(axis=1))
    here = np.logaddexp.reduce(np.column_stack([mu * own + 50.0, mu * others - 50.0]), axis=1)
    there = np.logaddexp.reduce(np.column_stack([-mu * own - 150.0, -mu * others - 50.0]), axis=1)
    values = weights * np.maximum(1.0 - np.exp(np.minimum(137.0 + there - here, 0.0)), 0.0)
    margin = STANDARD_ERRORS * values.std() / math.sqrt(samples)
    lower, upper = on_levels(0.1, 10, math.exp(137.0))
    assert lower - margin <= values.mean() <= upper + margin
    assert margin < 0.5 * lower
    # Negative control: a window of four steps costs more.
    assert not on_levels(0.1, 4, math.exp(137.0))[0] <= values.mean() + margin


def move_sums_to_the_level_below(mutate):
    of_two = replace_one_levels._Spread.of_two

    def lowered(self, first, second):
        lower = replace_one_levels._Spread(self.levels, self.below, 0.0 * self.part, self.beyond)
        return of_two(lower, first, second)

    mutate(replace_one_levels._Spread, "of_two", lowered)


def keep_the_tops_of_cells(mutate):
    def of_two(self, first, second):
        sums = np.add.outer(first.values, second.values).ravel()
        cells = np.minimum(np.searchsorted(self.levels, sums), self.levels.size - 1)
        masses = np.multiply.outer(first.masses, second.masses).ravel()
        sums_at = np.bincount(cells, masses, self.levels.size).astype(float)
        return type(first)(self.levels, sums_at)

    mutate(replace_one_levels._Means, "of_two", of_two)


@pytest.mark.parametrize("mutant", [move_sums_to_the_level_below, keep_the_tops_of_cells])
def test_bounds_of_mutants_with_unequal_levels_miss_the_quadrature_value(mutate, mutant):
    k = math.exp(6.0)
    truth = gaussian_delta(k, 3, 0.5)
    assert on_levels(0.5, 3, k)[0] <= truth <= on_levels(0.5, 3, k)[1]
    mutant(mutate)
    lower, upper = on_levels(0.5, 3, k)
    assert not lower <= truth <= upper


def forget_the_cap(mutate):
    mutate(replace_one_capped, "_price", lambda step, cap: step.infinite)
    mutate(replace_one_capped, "_CAPPED", 30.0)


def bound_half_lines_of_one_step_less(mutate):
    whole = replace_one_events.half_line_masses
    mutate(
        replace_one_events,
        "half_line_masses",
        lambda parts, side, frame: whole([(q, max(n - 3, 1)) for q, n in parts], side, frame),
    )


def forget_the_other_record(mutate):
    whole = replace_one_events.event_masses

    def masses(step, c):
        present, elsewhere, share = whole(step, c)
        return present, 0.95 * elsewhere, share

    mutate(replace_one_events, "event_masses", masses)


@pytest.mark.parametrize(
    "mutant", [forget_the_cap, bound_half_lines_of_one_step_less, forget_the_other_record]
)
def test_mutants_make_an_upper_bound_fall_below_a_lower_bound(mutate, mutant):
    k = math.exp(0.8)
    lower, upper = lines_at(GaussianPair(1.0), 10, k), capped(GaussianPair(1.0), 10, k)
    assert lower <= upper
    mutant(mutate)
    assert capped(GaussianPair(1.0), 10, k) < lower or lines_at(GaussianPair(1.0), 10, k) > upper
