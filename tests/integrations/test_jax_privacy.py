"""Bounds for JAX Privacy's batch selections, on stand-ins with the fields of its classes.

`make jax-privacy` runs the adapter on the library itself.
"""

import math
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

import pytest

from turnout.accounting import price
from turnout.core.errors import ParameterError, UnsupportedError
from turnout.integrations.jax_privacy import epsilon, participation, scheme
from turnout.schemes import (
    CheckIn,
    EveryStep,
    FixedAssignment,
    FixedSize,
    GaussianNoise,
    PoissonSampling,
    PrivacyUnit,
    Scheme,
)


class PartitionType(Enum):
    INDEPENDENT = auto()
    EQUAL_SPLIT = auto()


@dataclass
class CyclicPoissonSampling:
    sampling_prob: float
    iterations: int
    truncated_batch_size: int | None = None
    cycle_length: int = 1
    partition_type: PartitionType = PartitionType.EQUAL_SPLIT


@dataclass
class BallsInBinsSampling:
    iterations: int
    cycle_length: int


@dataclass
class FixedBatchSampling:
    batch_size: int
    iterations: int
    replace: bool = False


@dataclass
class BMinSepSampling:
    sampling_prob: float
    iterations: int
    min_sep: int
    warm_start: bool = True
    truncated_batch_size: int | None = None


@dataclass
class UserSelectionStrategy:
    base_strategy: Any


for known in (
    CyclicPoissonSampling,
    BallsInBinsSampling,
    FixedBatchSampling,
    BMinSepSampling,
    UserSelectionStrategy,
):
    known.__module__ = "jax_privacy.batch_selection"


def cyclic(rate, steps, cycle=1, kind=PartitionType.INDEPENDENT):
    return CyclicPoissonSampling(rate, steps, None, cycle, kind)


@pytest.mark.parametrize(
    ("strategy", "expected"),
    [
        (cyclic(0.25, 8), PoissonSampling(0.25, 8)),
        (cyclic(1.0, 8), EveryStep(8)),
        (cyclic(0.25, 9, 4), PoissonSampling(0.25, 3)),
        (cyclic(0.25, 9, 4, PartitionType.EQUAL_SPLIT), PoissonSampling(0.25, 3)),
        (cyclic(1.0, 9, 4, PartitionType.EQUAL_SPLIT), EveryStep(3)),
        (cyclic(1.0, 8, 4), FixedAssignment(4, 2)),
        (BallsInBinsSampling(160, 40), FixedAssignment(40, 4)),
        (BallsInBinsSampling(161, 40), FixedAssignment(40, 5)),
        (BallsInBinsSampling(7, 1), EveryStep(7)),
        (BMinSepSampling(1.0, 160, 40), FixedAssignment(40, 4)),
        (BMinSepSampling(1.0, 161, 40, warm_start=False), EveryStep(5)),
        (FixedBatchSampling(5, 8), FixedSize(5, 100, 8)),
    ],
    ids=str,
)
def test_each_batch_selection_strategy_becomes_its_participation(strategy, expected):
    assert participation(strategy, "zero-out", 100) == expected


@pytest.mark.parametrize(
    ("strategy", "chance"),
    [
        (BallsInBinsSampling(30, 40), 0.75),
        (cyclic(0.5, 30, 40), 0.375),
        (cyclic(1.0, 30, 40), 0.75),
        (BallsInBinsSampling(40, 40), 1.0),
    ],
    ids=str,
)
def test_a_strategy_with_fewer_iterations_than_bins_becomes_one_check_in(strategy, chance):
    found = participation(strategy, "add-remove")
    assert isinstance(found, CheckIn)
    assert (found.window, found.windows) == (strategy.iterations, 1)
    assert chance <= found.probability <= math.nextafter(chance, 1.0)


def test_the_epsilon_of_a_strategy_equals_that_of_its_scheme():
    strategy = BallsInBinsSampling(160, 40)
    plan = Scheme(GaussianNoise(1.5), FixedAssignment(40, 4), "zero-out", unit="example")
    assert scheme(strategy, 1.5, "zero-out") == plan
    assert epsilon(strategy, 1.5, 1e-5, "zero-out") == price(plan, 1e-5).epsilon.upper
    # a partial cycle costs at least as much as the whole ones before it
    assert (
        epsilon(BallsInBinsSampling(161, 40), 1.5, 1e-5, "zero-out")
        > price(plan, 1e-5).epsilon.upper
    )


def test_the_unit_of_a_user_selection_strategy_is_a_user():
    plan = scheme(UserSelectionStrategy(cyclic(0.1, 5)), 1.0, "add-remove")
    assert plan.unit is PrivacyUnit.CLIENT
    assert plan.participation == PoissonSampling(0.1, 5)


class Truncating(BallsInBinsSampling):
    """A subclass, whose draws are unknown."""


Namesake = type("BallsInBinsSampling", (BallsInBinsSampling,), {"__module__": "mine"})
"""One of the same name too."""


@pytest.mark.parametrize(
    ("strategy", "words"),
    [
        (CyclicPoissonSampling(0.5, 8, truncated_batch_size=4), "truncated"),
        (BMinSepSampling(1.0, 8, 2, True, 4), "truncated"),
        (BMinSepSampling(0.5, 8, 2), "only at sampling_prob = 1"),
        (FixedBatchSampling(5, 8, replace=True), "replacement"),
        (Truncating(8, 2), "Truncating"),
        (Namesake(8, 2), r"mine\.BallsInBinsSampling"),
        (UserSelectionStrategy(UserSelectionStrategy(cyclic(0.1, 5))), "UserSelectionStrategy"),
        pytest.param(object(), "object", id="object"),
    ],
    ids=str,
)
def test_batch_selection_strategies_without_a_sound_bound_are_refused(strategy, words):
    with pytest.raises(UnsupportedError, match=words):
        scheme(strategy, 1.0, "zero-out", 100)


def test_batches_of_equal_size_are_refused_under_add_remove():
    with pytest.raises(UnsupportedError, match="INDEPENDENT"):
        participation(cyclic(0.5, 8, 2, PartitionType.EQUAL_SPLIT), "add-remove")
    assert participation(cyclic(0.5, 8, 2), "add-remove") == PoissonSampling(0.5, 4)


@pytest.mark.parametrize(
    ("strategy", "name"),
    [
        (cyclic(float("nan"), 8), "sampling_prob"),
        (cyclic(0.5, 0), "iterations"),
        (BallsInBinsSampling(8, 0), "cycle_length"),
        (FixedBatchSampling(5, 8), "num_examples"),
        (BMinSepSampling(1.0, 8, -1), "min_sep"),
    ],
    ids=str,
)
def test_an_error_about_a_field_of_a_strategy_names_the_field(strategy, name):
    with pytest.raises(ParameterError, match=name):
        participation(strategy, "zero-out")


def test_unknown_relations_are_refused():
    with pytest.raises(ParameterError, match="relation"):
        participation(BallsInBinsSampling(8, 2), "replace-special")
