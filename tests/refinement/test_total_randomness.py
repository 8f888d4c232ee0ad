"""Optimality of (7.42): by a linear program the cascade is the only joint distribution."""

import itertools
import math

import numpy as np
import pytest
from scipy.optimize import linprog

from turnout.refinement import Cascade

CELLS = list(itertools.product((0, 1), repeat=3))  # value in B, Y¹, Y²


def program(first, second, slack=0.0):
    """Equalities and inequalities for every joint distribution of two optimal privacy levels."""
    growth = math.exp(first)
    equal, right = [], []
    for value in (0, 1):
        for level, epsilon in ((1, first), (2, second)):
            right.append(1 / (1 + math.exp(-epsilon)))
            equal.append([float(c[0] == value == c[level]) for c in CELLS])
        right.append(1.0)
        equal.append([float(c[0] == value) for c in CELLS])
    below = []
    for y in itertools.product((0, 1), repeat=2):
        for value in (0, 1):
            row = [0.0] * len(CELLS)
            row[CELLS.index((value, *y))] = 1.0
            row[CELLS.index((1 - value, *y))] = -growth * math.exp(slack)
            below.append(row)
    return {"A_eq": equal, "b_eq": right, "A_ub": below, "b_ub": [0.0] * len(below)}


@pytest.mark.parametrize(("first", "second"), [(1.0, 0.5), (3.0, 0.2), (0.4, 0.3)])
def test_the_cascade_is_the_only_joint_distribution_for_two_privacy_levels(first, second):
    cascade = Cascade((first, second))
    one, two = (step.light / step.total for step in cascade.steps)
    expected = [
        (one if value != y1 else 1 - one) * (two if y1 != y2 else 1 - two)
        for value, y1, y2 in CELLS
    ]
    limits = program(first, second)
    for place in range(len(CELLS)):
        for sign in (1, -1):
            cost = np.zeros(len(CELLS))
            cost[place] = sign
            solved = linprog(cost, **limits, bounds=(0, 1))
            assert solved.status == 0
            assert sign * solved.fun == pytest.approx(expected[place], abs=1e-7)
    given = [-p * math.log2(p) for cell, p in zip(CELLS, expected, strict=True) if cell[0]]
    assert sum(given) == pytest.approx(cascade.randomness_bits, rel=1e-12)


def test_several_joint_distributions_exist_if_the_first_epsilon_is_larger():
    # Negative control: with a tenth more ε the same program has several solutions.
    cost = np.zeros(len(CELLS))
    cost[CELLS.index((1, 0, 1))] = 1
    limits = program(1.0, 0.5, slack=0.1)
    least, most = (linprog(sign * cost, **limits, bounds=(0, 1)).fun for sign in (1, -1))
    assert -most - least > 1e-3
