"""Bisection: the condition was evaluated at both returned ends, with the stated results."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnout.core.bounds import bisected, bisected_each, grown


@given(st.floats(-100.0, 100.0), st.integers(0, 60), st.booleans())
def test_bisection_returns_one_end_where_the_condition_holds_and_one_where_it_fails(
    threshold, halvings, rising
):
    def holds(x):
        return x >= threshold if rising else x <= threshold

    ends = (-101.0, 101.0) if rising else (101.0, -101.0)
    failing, holding = bisected(holds, *ends, halvings=halvings)
    assert holds(holding)
    assert not holds(failing)
    assert abs(holding - failing) <= 202.0 * 0.5**halvings + 1e-12


def test_bisection_finds_a_threshold_to_the_last_digit_and_stops():
    asked = []

    def holds(x):
        asked.append(x)
        return x * x >= 2.0

    found = bisected(holds, 1.0, 2.0, relative=1e-15)
    assert math.nextafter(math.sqrt(2.0), 0.0) <= found.holding
    assert found.holding <= math.sqrt(2.0) * (1 + 2e-15)
    assert len(asked) < 60
    assert found.failing < found.middle <= found.holding


def test_bisection_does_not_evaluate_the_given_ends():
    def holds(x):
        assert x not in (0.0, 8.0)
        return False

    assert bisected(holds, 0.0, 8.0, gap=1.0) == (7.0, 8.0)
    assert bisected(holds, 3.0, 3.0) == (3.0, 3.0)


def test_joint_bisection_finds_the_same_thresholds_as_single_bisections():
    thresholds = np.array([0.1, 2.0, 7.7])
    failing, holding = bisected_each(lambda x: x >= thresholds, np.zeros(3), np.full(3, 8.0), 40)
    for i, threshold in enumerate(thresholds):
        alone = bisected(lambda x, t=threshold: x >= t, 0.0, 8.0, halvings=40)
        assert (failing[i], holding[i]) == alone


@pytest.mark.parametrize(
    ("threshold", "bracket"), [(0.5, (0.0, 1.0)), (5.0, (4.0, 8.0)), (64.0, (32.0, 64.0))]
)
def test_a_doubling_search_ends_at_the_first_value_where_the_condition_holds(threshold, bracket):
    assert grown(lambda x: x >= threshold, 1.0, 64.0) == bracket


def test_a_doubling_search_returns_none_if_the_condition_never_holds():
    assert grown(lambda x: x >= 65.0, 1.0, 64.0) is None
    assert grown(lambda x: False, 1.0, 700.0) is None
