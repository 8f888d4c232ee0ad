"""Mean numbers of dummy updates agree with Propositions 3.4 and 4.4 of the check-in paper."""

import numpy as np
import pytest
from numpy_task import MeanTask
from scipy import stats
from simulation_cases import simulation

from turnout.participation.drawing import expected_empty_steps
from turnout.schemes import CheckIn, KSubset, ReleaseRule, SlidingWindow

FALSE_ALARM = 1e-9
REPETITIONS = 60


def dummy_steps(law, population, seed=0):
    """Mask of the steps of a run of Algorithm 1 that were dummy updates."""
    task = MeanTask(population, dimension=1)
    one = ReleaseRule.ONE_CLIENT
    run = simulation(law, one, task=task, seed=seed, minibatch=1, evaluate_every=10**6)
    return run.run().history.dummy


def dummies_a_window(window, population, **fields):
    """Number of dummy updates in each of many independent windows."""
    law = CheckIn(window, windows=3 * REPETITIONS, **fields)
    return dummy_steps(law, population).reshape(-1, window).sum(axis=1)


def has_mean(counts, mean):
    """Whether the mean of the counts agrees with a value, with false-alarm rate 1e-9."""
    error = counts.std(ddof=1) / np.sqrt(counts.size)
    return abs(counts.mean() - mean) <= stats.t.isf(FALSE_ALARM / 2, counts.size - 1) * error


@pytest.mark.parametrize(
    ("window", "population", "probability"), [(20, 30, 1.0), (25, 20, 0.5), (10, 60, 0.25)]
)
def test_dummy_updates_of_simulated_fixed_windows_have_the_stated_mean(
    window, population, probability
):
    counts = dummies_a_window(window, population, probability=probability)
    exact = window * (1 - probability / window) ** population
    assert has_mean(counts, exact)
    law = CheckIn(window, windows=5, probability=probability)
    assert expected_empty_steps(law, population) == pytest.approx(5 * exact, rel=1e-12)
    assert exact <= window * np.exp(-population * probability / window)
    # Named wrong laws: p0 doubled or halved, half as many clients again.
    wrong = [
        window * (1 - min(1.0, 2 * probability) / window) ** population,
        window * (1 - probability / (2 * window)) ** population,
        window * (1 - probability / window) ** (1.5 * population),
    ]
    assert not any(has_mean(counts, other) for other in wrong if other != exact)


@pytest.mark.parametrize(("window", "clients_per_slot"), [(10, 1), (8, 2)])
def test_dummy_updates_of_simulated_sliding_windows_have_the_stated_mean(window, clients_per_slot):
    law = SlidingWindow(window, slots=3 * window, clients_per_slot=clients_per_slot)
    runs = range(REPETITIONS)
    counts = np.array([dummy_steps(law, law.population, seed).sum() for seed in runs])
    exact = law.steps * (1 - 1 / window) ** (window * clients_per_slot)
    assert has_mean(counts, exact)
    assert exact <= law.steps * np.exp(-clients_per_slot)
    # Named wrong laws: no warm-up (the first steps see fewer clients), half the window.
    awake = np.minimum(np.arange(law.steps) + 1, window)
    without_warm_up = np.sum((1 - 1 / window) ** (awake * clients_per_slot))
    half = law.steps * (1 - 1 / window) ** (window * clients_per_slot / 2)
    assert not has_mean(counts, without_warm_up)
    assert not has_mean(counts, half)


def test_a_second_check_in_of_a_client_in_a_window_is_detected():
    """Negative control: two check-ins in a window have another mean than one."""
    law = KSubset(20, picks=2, windows=REPETITIONS)
    counts = dummy_steps(law, 30).reshape(-1, 20).sum(axis=1)
    assert not has_mean(counts, 20 * (1 - 1 / 20) ** 30)
