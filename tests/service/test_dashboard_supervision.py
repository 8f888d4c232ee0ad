"""Warnings for the operator, and the band of check-in counts without a warning."""

from __future__ import annotations

import math
from dataclasses import replace

import dashboard_sample as sample
import numpy as np
import pytest
from dashboard_sample import Seen

from turnout.core.errors import ParameterError
from turnout.participation.drawing import expected_check_ins
from turnout.schemes import AvailabilityCheckIn, CheckIn, SlidingWindow
from turnout.service.dashboard import pages
from turnout.service.dashboard.charts import DEVIATIONS, band
from turnout.service.dashboard.pages import operator_facts
from turnout.service.storage.interface import LogEvent
from turnout.service.web.views import OperatorView, StepCount


def test_the_warning_band_equals_the_binomial_band_for_equal_probabilities() -> None:
    participation = CheckIn(window=10, windows=3, probability=0.8)
    mean = float(expected_check_ins(participation, 500)[0])
    deviation = math.sqrt(500 * 0.08 * 0.92)
    assert band(mean, 500).high == pytest.approx(mean + DEVIATIONS * deviation, rel=1e-12)
    assert band(mean, 500).low == pytest.approx(mean - DEVIATIONS * deviation, rel=1e-12)
    assert band(1.0, 500).low == 0.0
    assert band(500.0, 500).high == 500.0  # every client at every step


def test_the_warning_band_is_at_least_as_wide_as_that_of_each_participation() -> None:
    sliding = SlidingWindow(window=8, slots=30, clients_per_slot=3)
    mean = float(expected_check_ins(sliding, 90)[0])
    assert band(mean, 90).high - mean >= DEVIATIONS * math.sqrt(24 * (1 / 8) * (7 / 8))
    rng = np.random.default_rng(1)
    available = rng.random((40, 12)) < 0.3
    participation = AvailabilityCheckIn(window=4, probability=0.9, available=available)
    sizes = np.repeat(available.reshape(40, 3, 4).sum(axis=2), 4, axis=1)
    chances = np.where(available, 0.9 / np.maximum(sizes, 1), 0.0)
    for mean, p in zip(expected_check_ins(participation, 40), chances.T, strict=True):
        assert float(mean) == pytest.approx(p.sum())
        deviation = math.sqrt((p * (1 - p)).sum())
        assert band(float(mean), 40).high - mean >= DEVIATIONS * deviation * (1 - 1e-12)


@pytest.mark.parametrize("expected", [-1.0, math.nan, 11.0, math.inf])
def test_a_warning_band_for_an_impossible_expected_count_is_refused(expected: float) -> None:
    with pytest.raises(ParameterError, match="expected"):
        band(expected, 10)


# -- the operator's warnings ---------------------------------------------------------------------


def test_a_task_with_the_expected_numbers_of_check_ins_causes_no_warnings() -> None:
    view = sample.operator_view(enrolled=sample.POPULATION)
    assert operator_facts(view).warnings == ()
    page = Seen(pages.operator_page(view, ""))
    assert next(a for _, a in page.elements if a.get("id") == "warnings").keys() >= {"hidden"}


def counted(*last: tuple[int, int]) -> OperatorView:
    """Operator's view of a task whose last steps had these counts of check-ins and updates."""
    usual = tuple(StepCount(i, 144, 144, sample.EXPECTED) for i in range(60))
    end = tuple(StepCount(60 + i, c, s, sample.EXPECTED) for i, (c, s) in enumerate(last))
    return sample.operator_view(enrolled=sample.POPULATION, counts=usual + end)


@pytest.mark.parametrize(
    ("view", "said"),
    [
        (
            counted((144, 144), (178, 178)),
            "1 of the last 20 steps lie outside the band, most recently step 61",
        ),
        (counted((109, 109)), "109 check-ins, where 109.6 to 177.8 are expected"),
        (counted((0, 0)), "No device checked in, in 1 of the last 20 steps."),
        (sample.operator_view(enrolled=3), "3 of the plan's 1,437 clients are enrolled"),
        (
            sample.operator_view(events=(LogEvent(0.0, "error", "a commit failed"),)),
            "The log has 1 error.",
        ),
    ],
)
def test_unusual_events_of_a_task_are_reported_to_the_operator(
    view: OperatorView, said: str
) -> None:
    warnings = operator_facts(view).warnings
    assert said in " ".join(warnings)
    assert said in Seen(pages.operator_page(view, "")).text


def test_unanswered_requests_are_reported_only_under_the_one_client_rule() -> None:
    view = counted((144, 0))
    assert operator_facts(view).warnings == ()
    asks_one = replace(view, public=replace(view.public, release="one-client"))
    assert "did not send its update" in " ".join(operator_facts(asks_one).warnings)


def test_counts_within_the_warning_band_cause_no_warning() -> None:
    assert operator_facts(counted((110, 110), (177, 177))).warnings == ()


@pytest.mark.parametrize(
    ("came", "warned"), [(0, True), (100, True), (121, True), (123, False), (144, False)]
)
def test_participation_far_below_expectation_is_reported(came: int, warned: bool) -> None:
    """Expected are 144 check-ins per step in blocks of 10: σ is about 36, and 6σ are 15 %."""
    few = counted(*[(came, came)] * 10)
    mean = sample.EXPECTED
    variance = 10 * (mean - mean**2 / sample.POPULATION)
    assert 6 * math.sqrt(variance) / (10 * mean) == pytest.approx(0.15, abs=0.01)
    view = replace(few, block=10, block_variance=variance)
    said = f"{10 * came:,} of 1,437 expected check-ins in the last 10 steps"
    assert (said in " ".join(operator_facts(view).warnings)) is warned
    assert said not in pages.public_page(view.public)


def test_old_counts_outside_the_warning_band_cause_no_warning() -> None:
    assert operator_facts(counted((300, 300), *[(144, 144)] * 20)).warnings == ()


# -- files ---------------------------------------------------------------------------------------
