"""Availability traces: unknown entries count neither as available nor as unavailable."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnout import data as datasets
from turnout.core.errors import ParameterError
from turnout.participation.drawing import draw_run
from turnout.participation.schedule import joined_schedules
from turnout.participation.traces import availability_participation, day_profile, trace_statistics
from turnout.randomness import SimulationStreams

U = np.nan
TRACE = np.array(
    [
        [1, 0, U, 1, 0, U],
        [0, 0, 0, U, 0, 0],
        [U, U, U, U, U, U],
        [1, U, 1, 1, U, 1],
    ]
)


def test_statistics_of_a_trace_ignore_unknown_entries():
    statistics = trace_statistics(TRACE, steps_per_day=3)
    assert statistics.clients == 4
    assert statistics.known_fraction == 13 / 24
    assert statistics.available_fraction == 6 / 13
    assert statistics.never_available == 2
    assert statistics.day_profile.tolist() == [4 / 5, 0, 2 / 4]


def test_a_trace_may_start_at_any_time_of_day():
    statistics = trace_statistics(TRACE, steps_per_day=3, first_slot=2)
    assert statistics.day_profile.tolist() == [0, 2 / 4, 4 / 5]


def test_a_time_of_day_without_known_entries_has_availability_nan():
    assert np.isnan(trace_statistics(TRACE, steps_per_day=7).day_profile[6])
    nothing = trace_statistics(TRACE[2:3], steps_per_day=3)
    assert np.isnan(nothing.available_fraction)
    assert np.all(np.isnan(nothing.day_profile))
    assert nothing.never_available == 1


def test_availability_participation_treats_unknown_entries_as_unavailable():
    law = availability_participation(TRACE, window=3, probability=0.5)
    assert law.available.tolist() == (TRACE == 1).tolist()
    assert (law.window, law.probability) == (3, 0.5)
    assert law.window_sizes().tolist() == [[1, 1], [0, 0], [0, 0], [2, 2]]


@given(
    seed=st.integers(0, 10**6),
    clients=st.integers(1, 12),
    steps=st.integers(1, 12),
    window=st.integers(1, 12),
)
def test_no_client_participates_where_it_is_unavailable(seed, clients, steps, window):
    generator = np.random.default_rng(seed)
    trace = generator.choice([1.0, 0.0, U], size=(clients, steps))
    law = availability_participation(trace, min(window, steps))
    run = joined_schedules(list(draw_run(law, clients, SimulationStreams(seed))))
    assert np.all(trace[run.clients, run.slots()] == 1)
    free_windows = sum(
        np.any(trace[:, start : start + law.window] == 1, axis=1).sum()
        for start in range(0, steps, law.window)
    )
    assert run.participations == free_windows


def test_simulated_participation_by_time_of_day_agrees_with_the_trace():
    assert day_profile([1, 2, 3, 5, U], steps_per_day=2).tolist() == [2, 3.5]
    assert day_profile([1, 2, 3], steps_per_day=2, first_slot=1).tolist() == [2, 2]
    assert np.isnan(day_profile([1], steps_per_day=2)[1])


@pytest.mark.parametrize(
    ("trace", "message"),
    [
        ([[1, 0.5]], r"trace\[0, 1\] = 0.5: expected 1, 0 or NaN"),
        ([[1, 0], [np.inf, 1]], r"trace\[1, 0\] = inf"),
        ([1, 0], r"trace = \(2,\)"),
        (np.empty((0, 3)), r"trace = \(0, 3\)"),
    ],
)
def test_invalid_traces_are_refused(trace, message):
    with pytest.raises(ParameterError, match=message):
        availability_participation(trace, 1)
    with pytest.raises(ParameterError, match=message):
        trace_statistics(trace, 2)


@pytest.mark.parametrize(
    ("window", "probability", "message"),
    [(0, 1.0, "window = 0"), (3, 1.0, "steps"), (1, 1.5, "probability = 1.5")],
)
def test_errors_about_a_trace_name_the_invalid_parameter(window, probability, message):
    with pytest.raises(ParameterError, match=message):
        availability_participation([[1.0, 0.0]], window, probability)


@pytest.mark.parametrize(("per_day", "first"), [(0, 0), (4, 4), (4, -1)])
def test_invalid_times_of_day_are_refused(per_day, first):
    with pytest.raises(ParameterError):
        day_profile([1, 2], per_day, first)
    with pytest.raises(ParameterError, match="per_step"):
        day_profile([[1, 2]], 2)


@pytest.mark.usefixtures("data_dir")
def test_statistics_of_the_built_in_trace_have_their_documented_values():
    phones = datasets.flash_phones()
    statistics = trace_statistics(phones, steps_per_day=48)
    assert (statistics.clients, phones.shape) == (723, (723, 241))
    assert statistics.never_available == 211
    assert statistics.known_fraction == pytest.approx(0.81, abs=0.005)
    assert statistics.available_fraction == pytest.approx(0.08, abs=0.005)
    available = np.count_nonzero(phones == 1, axis=0)
    assert (available.min(), available.max()) == (14, 97)
    assert statistics.day_profile.max() > 2 * statistics.day_profile.min()
