"""Utility theorems of the check-in paper: exact dummy updates, risk bounds by their proofs."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import product

import check_ins_utility as utility
import numpy as np
import pytest
from scipy.stats import binom

from turnout.core.errors import ParameterError, UnsupportedError
from turnout.participation.drawing import expected_empty_steps
from turnout.schemes import CheckIn, SlidingWindow

PROBLEM = {"lipschitz": 2.0, "diameter": 3.0, "dimension": 5, "noise": 0.5}


def test_proposition_3_4_holds_for_all_enumerated_check_ins():
    population, window, chance = 3, 3, Fraction(1, 2)
    expected = Fraction(0)
    for slots in product([None, 0, 1, 2], repeat=population):
        weight = math.prod((1 - chance) if s is None else chance / window for s in slots)
        expected += weight * (window - len(set(slots) - {None}))
    assert utility.proposition_3_4(population, window, 0.5) == pytest.approx(float(expected))


@pytest.mark.parametrize(("population", "window", "chance"), [(10, 7, 1.0), (1000, 50, 0.3)])
def test_the_expected_dummy_updates_equal_those_of_the_participation(population, window, chance):
    law = CheckIn(window, probability=chance)
    exact = utility.proposition_3_4(population, window, chance)
    assert exact == pytest.approx(expected_empty_steps(law, population))
    bound = utility.proposition_3_4_closed_form(population, window, chance)
    assert bound == pytest.approx(window * math.exp(-population * chance / window))
    assert bound >= exact


def test_proposition_4_4_bounds_the_empty_steps_of_the_sliding_window():
    law = SlidingWindow(20, 200)
    bound = utility.proposition_4_4(200, 20)
    assert bound == pytest.approx((200 - 20 + 1) / math.e)
    exact = expected_empty_steps(law, 200)
    assert exact <= bound <= 1.1 * exact
    # The range that the proof prints, m … n − m + 1, is shorter than what is counted.
    assert exact > (200 - 2 * 20 + 2) * (1 - 1 / 20) ** 20


def test_a_window_of_one_step_is_never_empty():
    assert utility.proposition_3_4(5, 1) == 0.0
    assert utility.proposition_3_4(5, 1, 0.0) == 1.0


def test_theorem_3_5_equals_the_bound_in_its_proof_at_the_stated_learning_rate():
    size = math.sqrt(5 * 0.25 + 4)
    wasted = 2 * math.exp(-200 * 0.5 / 10)
    rate = 3.0 * (1 - wasted) / size
    by_proof = (9 / rate + rate * size**2 / (1 - wasted)) * (2 + math.log(10)) / math.sqrt(10)
    bound = utility.theorem_3_5(200, 10, probability=0.5, **PROBLEM)
    assert bound == pytest.approx(by_proof)
    with pytest.raises(UnsupportedError, match="ln 2"):
        utility.theorem_3_5(10, 100, **PROBLEM)


def test_theorem_4_2_equals_the_bound_in_its_proof_at_the_stated_learning_rate():
    size = math.sqrt(10 * 5 * 0.25 / 200 + 4)
    rate = 3.0 / size
    by_proof = (9 / rate + rate * size**2) * (2 + math.log(10)) / math.sqrt(10)
    assert utility.theorem_4_2(200, 10, **PROBLEM) == pytest.approx(by_proof)


@pytest.mark.parametrize(("population", "window"), [(10, 10), (100, 10), (50, 200)])
def test_the_mean_inverse_number_of_check_ins_is_below_its_bound(population, window):
    counts = np.arange(1, population + 1)
    inverse = float(binom.pmf(counts, population, 1 / window) @ (1 / counts))
    assert inverse <= 2 * window / (population + 1)


def test_the_mean_inverse_number_of_check_ins_exceeds_the_value_in_theorem_4_2():
    counts = np.arange(1, 101)
    assert float(binom.pmf(counts, 100, 0.1) @ (1 / counts)) > 10 / 100


def test_the_risk_bound_for_smooth_losses_falls_with_more_clients():
    few = utility.theorem_4_2_smooth(100, 10, smoothness=1.0, **PROBLEM)
    many = utility.theorem_4_2_smooth(10_000, 10, smoothness=1.0, **PROBLEM)
    assert many < few
    spread = 2 * 10 / 101 * (4 + 5 * 0.25)
    assert few == pytest.approx(3 * math.sqrt(2 * spread / 10) + 9 / 10)


def test_invalid_arguments_of_utility_theorems_are_refused():
    with pytest.raises(ParameterError, match="diameter"):
        utility.theorem_4_2(10, 10, **{**PROBLEM, "diameter": -1.0})
    with pytest.raises(ParameterError, match="window"):
        utility.proposition_4_4(5, 6)
