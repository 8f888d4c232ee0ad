"""Estimators, randomizers and releases refuse arguments of a wrong type or shape."""

import math

import numpy as np
import pytest

from turnout.core.errors import ParameterError
from turnout.estimation import FrequencyTally
from turnout.estimation.frequencies import holm
from turnout.estimation.means import MeanTally
from turnout.estimation.user_level_means import wrong_bin_chance
from turnout.randomizers import HadamardRandomizer, KaryRandomizedResponse, OneBitHadamard
from turnout.randomizers.vectors import L1Randomizer, LInfRandomizer, contained_radius
from turnout.refinement import LimitedAnswers, key_entropy, multi_level

ITEMS = HadamardRandomizer(1.0, 4)
NO_COUNT = [-1, 2.5, "3", True, None, math.nan]


@pytest.mark.parametrize("wrong", NO_COUNT)
def test_numbers_of_clients_that_are_not_whole_are_refused(wrong):
    for build in (
        lambda: FrequencyTally(ITEMS, np.zeros(4, np.int64), wrong),
        lambda: MeanTally(L1Randomizer(8, 1.0), np.zeros(8), wrong, np.zeros((2, 8))),
        lambda: wrong_bin_chance(1.0, 4, wrong),
    ):
        with pytest.raises(ParameterError, match="clients"):
            build()


@pytest.mark.parametrize("wrong", ["False", "no", None, 0, 1, np.True_, math.nan])
def test_flags_other_than_true_or_false_are_refused(wrong):
    """The text "False" must not count as true."""
    for kind in (HadamardRandomizer, KaryRandomizedResponse, OneBitHadamard):
        with pytest.raises(ParameterError, match="public"):
            kind(1.0, 4, public=wrong)
    with pytest.raises(ParameterError, match="shared"):
        LInfRandomizer(8, 1.0, shared=wrong)


@pytest.mark.parametrize("epsilons", ["12", ("1", "2"), (True, 2.0), (math.nan,), (1.0, -2.0)])
def test_privacy_levels_that_are_not_numbers_are_refused(epsilons):
    """The text "12" must not count as two levels, 1 and 2."""
    with pytest.raises(ParameterError, match="epsilons"):
        multi_level(8, epsilons, "k-ary")


def test_sizes_seeds_and_bounds_outside_their_domain_are_refused():
    for size in (*NO_COUNT, math.inf):
        with pytest.raises(ParameterError, match="size"):
            key_entropy(size, 1.0, 1)
        with pytest.raises(ParameterError, match="size"):
            LimitedAnswers(size, 1.0, 0.5, bytes(32))
    for seed in ("s" * 32, b"short", None, 7):
        with pytest.raises(ParameterError, match="seed"):
            LimitedAnswers(8, 1.0, 0.5, seed)
    for dimension, radius in ((-1, 1.0), (2.5, 1.0), (True, 1.0), (8, math.nan), (8, -1.0)):
        with pytest.raises(ParameterError, match=r"dimension|radius"):
            contained_radius(2.0, 1.0, dimension, radius)
    for epsilon, bins in ((-1.0, 4), (math.nan, 4), (True, 4), (1.0, True), (1.0, 0)):
        with pytest.raises(ParameterError, match=r"epsilon|bins"):
            wrong_bin_chance(epsilon, bins, 10)
    for error in (0.0, 2.5, math.nan, True, "0.05"):
        with pytest.raises(ParameterError, match="error"):
            holm(np.array([0.01, 0.5]), error)
