"""Expected check-ins and empty steps against enumeration, simulation and the propositions."""

import math
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnout.core.errors import ParameterError, UnsupportedError
from turnout.participation.drawing import (
    draw,
    draw_run,
    expected_check_ins,
    expected_empty_steps,
    expected_turns,
    is_far_below,
)
from turnout.participation.schedule import blocks, joined_schedules
from turnout.randomness import SimulationStreams
from turnout.schemes import (
    AvailabilityCheckIn,
    CheckIn,
    EveryStep,
    FixedAssignment,
    FixedSize,
    KSubset,
    PoissonSampling,
    SelfSampling,
    SlidingWindow,
)
from turnout.testing import assert_mean, assert_rejects, enumerate_outputs

TRACE = np.array([[1, 0, 1, 0, 1], [0, 1, 0, 0, 0], [1, 1, 1, 0, 1]], dtype=np.bool_)
LAWS = [
    (EveryStep(2), 3),
    (PoissonSampling(0.25, 2), 3),
    (SelfSampling(1.0, 2), 3),
    (FixedSize(2, 4, 2), 4),
    (CheckIn(3, 2, 0.5), 3),
    (CheckIn(1, 2), 1),
    (KSubset(4, 3, 2), 2),
    (KSubset(3, 3), 2),
    (SlidingWindow(3, 5), 5),
    (SlidingWindow(2, 3, 2), 6),
    (AvailabilityCheckIn(TRACE, 3), 3),
    (AvailabilityCheckIn(TRACE, 2, 0.5), 3),
]


def enumerated_moments(law, population):
    """Exact mean count of every step, and exact mean number of empty steps."""
    means, empty = [], Fraction(0)
    for block in blocks(law):
        counts = enumerate_outputs(
            lambda source, block=block: draw(law, population, block, source).counts()
        )
        for i in range(block.steps):
            means.append(sum(p * np.array(outcome)[i] for outcome, p in counts.items()))
        empty += sum(p * int(np.sum(np.array(outcome) == 0)) for outcome, p in counts.items())
    return [float(mean) for mean in means], float(empty)


@pytest.mark.parametrize(("law", "population"), LAWS, ids=str)
def test_expected_check_ins_and_empty_steps_equal_their_enumeration(law, population):
    means, empty = enumerated_moments(law, population)
    check_ins = expected_check_ins(law, population)
    assert check_ins.shape == (law.steps,)
    assert check_ins.tolist() == pytest.approx(means, rel=1e-12)
    assert expected_empty_steps(law, population) == pytest.approx(empty, rel=1e-12)


def simulated_empty_steps(law, population, runs=3000):
    return np.array(
        [
            np.count_nonzero(
                joined_schedules(list(draw_run(law, population, SimulationStreams(seed)))).counts()
                == 0
            )
            for seed in range(runs)
        ]
    )


def test_dummy_updates_of_a_fixed_window_are_those_of_proposition_3_4():
    n, m, c = 200, 50, 1.25
    law = CheckIn(window=m, windows=2, probability=c * m / n)
    exact = expected_empty_steps(law, n)
    assert exact == pytest.approx(2 * m * (1 - c / n) ** n, rel=1e-12)
    bound = 2 * m * math.exp(-c)
    assert exact < bound < 1.005 * exact
    empty = simulated_empty_steps(law, n)
    assert_mean(empty, exact)
    assert_rejects(
        lambda expected: assert_mean(empty, expected),
        {
            "1.5 times the rate": expected_empty_steps(CheckIn(m, 2, 1.5 * c * m / n), n),
            "nobody abstains": expected_empty_steps(CheckIn(m, 2), n),
            "windows one step longer": 2 * (m + 1) * (1 - c * m / n / (m + 1)) ** n,
            "one window forgotten": exact / 2,
        },
    )


def test_dummy_updates_of_sliding_windows_are_those_of_proposition_4_4():
    m, slots = 5, 204
    law = SlidingWindow(m, slots)
    exact = expected_empty_steps(law, slots)
    assert exact == pytest.approx((slots - m + 1) * (1 - 1 / m) ** m, rel=1e-12)
    bound = (slots - m + 1) / math.e
    assert exact < bound
    empty = simulated_empty_steps(law, slots)
    assert_mean(empty, exact)
    early = [(1 - 1 / m) ** (slot + 1) for slot in range(m - 1)]
    assert_rejects(
        lambda expected: assert_mean(empty, expected),
        {
            "the bound itself": bound,
            "the warm-up counted too": exact + sum(early),
            "steps to n - m + 1 only": (slots - 2 * m + 2) * (1 - 1 / m) ** m,
            "windows one slot longer": law.steps * (1 - 1 / (m + 1)) ** (m + 1),
        },
    )


@given(
    window=st.integers(1, 500),
    windows=st.integers(1, 5),
    probability=st.floats(0, 1),
    population=st.integers(1, 10**7),
)
def test_proposition_3_4_bounds_every_fixed_window(window, windows, probability, population):
    law = CheckIn(window, windows, probability)
    exact = expected_empty_steps(law, population)
    bound = window * windows * math.exp(-population * probability / window)
    assert 0 <= exact <= bound * (1 + 1e-9)
    assert expected_check_ins(law, population).sum() == pytest.approx(
        population * probability * windows
    )


@given(window=st.integers(1, 200), more=st.integers(0, 300), per_slot=st.integers(1, 50))
def test_proposition_4_4_bounds_every_sliding_window(window, more, per_slot):
    law = SlidingWindow(window, window + more, per_slot)
    exact = expected_empty_steps(law, law.population)
    assert 0 <= exact <= law.steps * math.exp(-per_slot) * (1 + 1e-9)
    if window > 1:  # (1 − 1/m)^m rises to 1/e: the bound is never far off for one client a slot.
        one = SlidingWindow(window, window + more)
        assert expected_empty_steps(one, one.population) >= 0.25 * one.steps


@given(population=st.integers(1, 1000), window=st.integers(2, 50))
def test_more_clients_leave_fewer_empty_steps(population, window):
    law = CheckIn(window)
    fewer, more = (expected_empty_steps(law, n) for n in (population, population + 1))
    assert more < fewer


def test_the_expected_check_ins_of_a_trace_agree_with_simulation():
    generator = np.random.default_rng(9)
    law = AvailabilityCheckIn(generator.random((300, 24)) < generator.random(24), 8, 0.7)
    runs = [
        joined_schedules(list(draw_run(law, 300, SimulationStreams(seed)))) for seed in range(400)
    ]
    counts = np.array([run.counts() for run in runs])
    for step, expected in enumerate(expected_check_ins(law, 300)):
        assert_mean(counts[:, step], expected, 1e-9 / law.steps)
    assert_mean((counts == 0).sum(axis=1), expected_empty_steps(law, 300))
    whole_window = np.repeat(law.available.sum(axis=0).reshape(3, 8).mean(axis=1), 8) * 0.7 / 8
    assert_rejects(
        lambda expected: [assert_mean(counts[:, s], e) for s, e in enumerate(expected)],
        {"windows as long for everybody": whole_window},
    )


def test_a_population_that_contradicts_the_participation_is_refused():
    with pytest.raises(ParameterError, match="population = 0"):
        expected_check_ins(CheckIn(4), 0)
    with pytest.raises(ParameterError, match="expected 5, the number of clients of"):
        expected_empty_steps(FixedSize(2, 5, 1), 4)
    with pytest.raises(UnsupportedError, match="known for object"):
        expected_check_ins(object(), 4)  # type: ignore[arg-type]


OWN_DRAWS = [
    *((law, n) for law, n in LAWS if not isinstance(law, FixedSize)),
    (FixedAssignment(3, 2, 0.5), 3),
]


def exact_turns(law, population, clients, steps):
    """Mean and variance of the turns that some clients draw in the first steps."""
    mean = variance = Fraction(0)
    for client, block in product(clients, blocks(law)):
        counts = enumerate_outputs(
            lambda source, c=client, b=block: tuple(
                draw(law, population, b, source, client=c).slots()
            )
        )
        moments = [
            sum(p * sum(slot < steps for slot in slots) ** power for slots, p in counts.items())
            for power in (1, 2)
        ]
        mean += moments[0]
        variance += moments[1] - moments[0] ** 2
    return float(mean), float(variance)


@pytest.mark.parametrize(("law", "population"), OWN_DRAWS, ids=str)
def test_the_number_of_check_ins_has_its_stated_mean_and_variance_bound(law, population):
    clients = range(0, population, 2)
    for steps in range(law.steps + 1):
        mean, bound = expected_turns(law, population, clients, steps)
        exact, variance = exact_turns(law, population, clients, steps)
        assert mean == pytest.approx(exact)
        assert variance <= bound * (1 + 1e-12) + 1e-12
        assert bound <= mean * law.steps
    windows = not isinstance(law, SlidingWindow | FixedAssignment)
    assert not windows or bound == pytest.approx(variance)  # exact for whole windows


@pytest.mark.parametrize(
    ("count", "expected", "variance", "far"),
    [(94, 100, 0, True), (95, 100, 0, False), (39, 100, 100, True), (40, 100, 100, False)],
)
def test_a_warning_about_low_participation_needs_a_large_and_significant_deviation(
    count, expected, variance, far
):
    assert is_far_below(count, expected, variance) is far
    assert not is_far_below(0, 0.0, 0.0)
