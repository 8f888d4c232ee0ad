"""k of t steps under replace-one: bounds against simulation, enumeration, adaptive choices."""

from __future__ import annotations

import itertools
import math
from functools import cache

import numpy as np
import pytest

import turnout as tn
from turnout.accounting.divergence.curves import Direction, Side
from turnout.accounting.divergence.dominating_pairs import dominating
from turnout.accounting.divergence.pairs import pair_of_table
from turnout.accounting.participation import k_subset_records
from turnout.accounting.participation.k_subset_records import SubsetRecordsBlock

DRAWS = 400_000


def ratio(log_ratios, picks: int):
    """Likelihood ratio of a k-subset window from the log-ratios of its steps, shape (draws,)."""
    sums = [np.ones(len(log_ratios))] + [np.zeros(len(log_ratios)) for _ in range(picks)]
    for each in np.exp(log_ratios).T:
        for i in range(picks, 0, -1):
            sums[i] = sums[i] + sums[i - 1] * each
    return sums[picks] / math.comb(log_ratios.shape[1], picks)


def simulated_delta(noise, window: int, picks: int, epsilon: float) -> tuple[float, float]:
    """δ of two opposite records by simulation, and its standard error."""
    rng = np.random.default_rng(3)
    if isinstance(noise, tn.GaussianNoise):
        outputs = rng.normal(0.0, noise.noise_multiplier, (DRAWS, window))
        scale = 2.0 * noise.noise_multiplier**2

        def log_density(x):
            return -(x**2) / scale
    else:
        outputs = rng.laplace(0.0, noise.scale, (DRAWS, window))

        def log_density(x):
            return -np.abs(x) / noise.scale

    # The client's steps: the first k, since steps are alike.
    outputs[:, :picks] += 1.0
    with_record, with_other = (
        ratio(log_density(outputs - shift) - log_density(outputs), picks) for shift in (1.0, -1.0)
    )
    values = np.maximum(1.0 - math.exp(epsilon) * with_other / with_record, 0.0)
    return float(values.mean()), float(values.std() / math.sqrt(DRAWS))


def bounds(noise, window: int, picks: int, epsilon: float, near: float) -> tuple[float, float]:
    """Lower and upper bound on δ of a window, by curves that are sharp near one δ."""
    pair = dominating(noise, 1.0).pair
    block, k = SubsetRecordsBlock(pair, window, picks), np.array([math.exp(epsilon)])
    lower, upper = (
        float(block.curve(Direction.REMOVE, side, near, 0).delta(k)[0])
        for side in (Side.LOWER, Side.UPPER)
    )
    return lower, upper


CELLS = [
    (tn.GaussianNoise(2.0), 5, 2, 1.5),
    (tn.GaussianNoise(1.0), 20, 3, 2.0),
    (tn.GaussianNoise(2.0), 5, 4, 2.0),
    (tn.LaplaceNoise(2.0), 7, 2, 0.7),
]


@pytest.mark.parametrize(("noise", "window", "picks", "epsilon"), CELLS)
def test_bounds_contain_the_simulated_delta_of_two_opposite_records(noise, window, picks, epsilon):
    delta, error = simulated_delta(noise, window, picks, epsilon)
    lower, upper = bounds(noise, window, picks, epsilon, delta)
    assert 0.9 * delta <= lower <= delta + 6 * error
    assert delta - 6 * error <= upper <= 1.3 * delta


def test_the_bound_for_a_smaller_clip_norm_is_exceeded():
    """Negative control: δ at C is above the bound for 0.9·C."""
    _, window, picks, epsilon = CELLS[0]
    delta, error = simulated_delta(CELLS[0][0], window, picks, epsilon)
    wrong = bounds(tn.GaussianNoise(2.0 / 0.9), window, picks, epsilon, delta)
    assert wrong[1] < delta - 6 * error


def test_a_bound_that_omits_a_window_is_exceeded(mutate):
    windows = k_subset_records.record_windows

    def forget(pair, window, picks):
        (block, count), *rest = windows(pair, window, picks)
        return [(block, count - 1), *rest] if count > 1 else rest

    mutate(k_subset_records, "record_windows", forget)
    noise, window, picks, epsilon = CELLS[1]
    delta, error = simulated_delta(noise, window, picks, epsilon)
    assert bounds(noise, window, picks, epsilon, delta)[1] < delta - 6 * error


def test_no_adaptive_choice_of_messages_exceeds_the_upper_curve():
    """Two of five binary messages: all choices of both records' messages, step by step."""
    high, window, picks = 0.75, 5, 2
    pair, lost = pair_of_table([high, 1 - high], [0.5, 0.5])
    assert lost == 0.0
    block = SubsetRecordsBlock(pair, window, picks)
    # Likelihood ratios (X, X') of the two outputs, for messages at their limits or neutral.
    one, two = (2 * high, 2 - 2 * high), (2 - 2 * high, 2 * high)
    choices = [(one, two), (one, one), (one, (1.0, 1.0)), ((1.0, 1.0), two)]

    def best(k: float) -> float:
        @cache
        def value(left: int, sums: tuple[float, ...]) -> float:
            if not left:
                return max(sums[1] - k * sums[3], 0.0) / math.comb(window, picks)
            found = 0.0
            for x, other in choices:
                total = 0.0
                for output in range(2):
                    a, b = x[output], other[output]
                    first, second = sums[0] + a, sums[1] + sums[0] * a
                    third, fourth = sums[2] + b, sums[3] + sums[2] * b
                    state = tuple(round(v, 12) for v in (first, second, third, fourth))
                    total += 0.5 * value(left - 1, state)
                found = max(found, total)
            return found

        return value(window, (0.0, 0.0, 0.0, 0.0))

    for k in (1.05, 1.3, 2.0):
        upper = block.curve(Direction.REMOVE, Side.UPPER, 0.05, 0).delta(np.array([k]))[0]
        lower = block.curve(Direction.REMOVE, Side.LOWER, 0.05, 0).delta(np.array([k]))[0]
        truth = best(k)
        assert lower <= truth * (1 + 1e-9)
        assert truth <= upper * (1 + 1e-9) <= 1.3 * truth


def test_the_lower_curve_is_at_most_the_enumerated_delta_of_opposite_records():
    """The lower curve is at most δ of all outputs of two of five binary messages."""
    high, window, picks, k = 0.7, 5, 2, 1.4
    pair, _ = pair_of_table([high, 1 - high], [0.5, 0.5])
    truth = 0.0
    for outputs in itertools.product((2 * high, 2 - 2 * high), repeat=window):
        pairs = list(itertools.combinations(range(window), picks))
        s = sum(math.prod(outputs[i] for i in p) for p in pairs) / len(pairs)
        other = sum(math.prod(2 - outputs[i] for i in p) for p in pairs) / len(pairs)
        truth += max(s - k * other, 0.0) / 2**window
    curve = SubsetRecordsBlock(pair, window, picks).curve(Direction.REMOVE, Side.LOWER, 0.05, 0)
    found = float(curve.delta(np.array([k]))[0])
    assert 0.9 * truth <= found <= truth * (1 + 1e-9)


@pytest.mark.parametrize(
    ("window", "picks", "sigma", "low", "high"),
    [(100, 10, 2.0, 4.890, 4.911), (5, 2, 1.0, 9.60, 9.911)],
)
def test_documented_brackets_under_replace_one_are_reproduced(window, picks, sigma, low, high):
    scheme = tn.Scheme(tn.GaussianNoise(sigma), tn.KSubset(window, picks), relation="replace-one")
    found = tn.price(scheme, delta=1e-6).epsilon
    assert low <= found.lower <= found.upper <= high


def test_composed_windows_of_subsets_have_a_narrow_bracket():
    scheme = tn.Scheme(tn.GaussianNoise(1.5), tn.KSubset(30, 3, 2), relation="replace-one")
    absence = tn.Scheme(tn.GaussianNoise(1.5), tn.KSubset(30, 3, 2), relation="add-remove")
    found, half = tn.price(scheme, delta=1e-5).epsilon, tn.price(absence, delta=1e-5).epsilon
    assert half.upper < found.lower
    assert found.upper <= 1.02 * found.lower


@pytest.mark.parametrize(
    ("window", "picks", "sigma", "delta", "most"),
    [(4, 3, 1.0, 1e-3, 13.498), (5, 2, 4.0, 1e-2, 0.8005)],
)
def test_replacement_uses_the_bound_by_removal_and_addition_where_it_is_smaller(
    window, picks, sigma, delta, most
):
    scheme = tn.Scheme(tn.GaussianNoise(sigma), tn.KSubset(window, picks), relation="replace-one")
    found = tn.price(scheme, delta=delta).epsilon
    assert found.upper <= most
    assert tn.PrivacyCurve.of(scheme).delta(found.upper).upper <= delta * 1.05
