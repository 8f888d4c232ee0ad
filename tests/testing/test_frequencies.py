"""Statistical assertions keep their false-alarm rate and detect wrong distributions."""

import numpy as np
import pytest

from turnout.core.errors import ParameterError
from turnout.testing import (
    assert_binomial,
    assert_frequencies,
    assert_mean,
    assert_rejects,
)


def failures(assertion, observations):
    count = 0
    for observed in observations:
        try:
            assertion(observed)
        except AssertionError:
            count += 1
    return count


@pytest.mark.parametrize("cells", [1, 2, 5, 16])
def test_false_alarms_of_the_frequency_test_are_no_more_frequent_than_stated(cells):
    distribution = np.full(cells, 1 / cells)
    draws = np.random.default_rng(1).multinomial(200, distribution, size=1000)
    alarms = failures(
        lambda counts: assert_frequencies(counts, distribution, false_alarm=0.05), draws
    )
    assert alarms <= 95  # 50 are allowed on average; more than 95 has probability below 1e-9.


def test_the_frequency_test_detects_one_wrong_cell_and_a_drift_over_all_cells():
    cells, draws = 64, 64_000
    distribution = np.full(cells, 1 / cells)
    one_cell = np.full(cells, draws // cells)
    one_cell[7] += 300
    drift = (np.linspace(0.9, 1.1, cells) * draws / cells).astype(int)
    assert_frequencies(np.full(cells, draws // cells), distribution)
    assert_rejects(
        lambda counts: assert_frequencies(counts, distribution),
        {"one cell": one_cell, "drift": drift},
    )
    with pytest.raises(
        AssertionError, match=r"cells 0 to 0: 99 of 100 draws where 100 are expected"
    ):
        assert_frequencies([99, 1], [1.0, 0.0])


def test_the_frequency_test_detects_a_small_drift_over_many_cells():
    cells, draws = 64, 64_000
    distribution = np.full(cells, 1 / cells)
    drift = (np.linspace(0.9, 1.1, cells) * draws / cells).astype(int)
    assert np.abs(drift - draws / cells).max() < 4 * np.sqrt(draws / cells)
    with pytest.raises(AssertionError):
        assert_frequencies(drift, distribution)


@pytest.mark.parametrize("distribution", [[0.5, 0.6], [1.5, -0.5], [np.nan, 1.0]])
def test_the_frequency_test_refuses_invalid_probabilities(distribution):
    with pytest.raises(ParameterError, match="probabilities"):
        assert_frequencies([1, 1], distribution)


def test_the_frequency_test_refuses_counts_of_another_shape():
    with pytest.raises(ParameterError, match="counts"):
        assert_frequencies([1, 1, 1], [0.5, 0.5])


def test_the_binomial_test_detects_a_rate_one_and_a_half_times_too_large():
    assert_binomial(1000, 10_000, 0.1)
    with pytest.raises(AssertionError):
        assert_binomial(1500, 10_000, 0.1)


def test_the_mean_test_accepts_the_right_value_and_rejects_a_wrong_value():
    values = np.random.default_rng(2).exponential(size=4000)
    assert_mean(values, 1.0)
    assert_mean(np.full(10, 0.1), 0.1)
    assert_rejects(
        lambda sample: assert_mean(sample, 1.0),
        {"a fifth more": 1.2 * values, "not a number": values * np.nan},
    )


def test_an_error_names_the_negative_control_that_was_accepted():
    with pytest.raises(AssertionError, match="wrong distributions were accepted: harmless"):
        assert_rejects(
            lambda counts: assert_frequencies(counts, [0.5, 0.5]),
            {"biased": [1000, 0], "harmless": [500, 500]},
        )


def test_a_test_without_negative_controls_is_refused():
    with pytest.raises(ParameterError, match="at least one wrong distribution"):
        assert_rejects(lambda counts: None, {})


def test_an_error_inside_a_negative_control_does_not_count_as_a_rejection():
    with pytest.raises(ParameterError, match="counts"):
        assert_rejects(lambda counts: assert_frequencies(counts, [1.0]), {"wrong": [1, 2]})
