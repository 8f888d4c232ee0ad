"""Conformance suite of participations: correct ones pass, and a faulty reader fails."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from functools import cache
from itertools import combinations

import numpy as np
import pytest

from turnout.accounting.participation import neighbours
from turnout.participation import drawing
from turnout.participation.drawing import one_of
from turnout.protocol import coordinator
from turnout.schemes import (
    AvailabilityCheckIn,
    CheckIn,
    EveryStep,
    FixedAssignment,
    FixedSize,
    KSubset,
    Participation,
    PoissonSampling,
    SelfSampling,
    SlidingWindow,
)
from turnout.schemes.normal_form import KOf, OneOf
from turnout.schemes.registry import all_participations
from turnout.testing import assert_participation, client_distribution
from turnout.verification import cost

TRACE = np.array([[1, 0, 1, 1], [0, 1, 0, 0]], dtype=np.bool_)
PARTICIPATIONS = [
    (EveryStep(2), 2),
    (PoissonSampling(0.25, 3), 2),
    (SelfSampling(0.5, 2), 2),
    (FixedSize(1, 3, 2), 3),
    (CheckIn(2, 1, 0.5), 2),
    (SlidingWindow(2, 4), 4),
    (KSubset(3, 2), 2),
    (FixedAssignment(2, 2, 0.5), 2),
    (AvailabilityCheckIn(TRACE, 2), 2),
]


@pytest.mark.parametrize(("participation", "population"), PARTICIPATIONS, ids=str)
def test_built_in_participations_pass_the_conformance_suite(participation, population):
    assert_participation(participation, population)


def test_every_built_in_participation_is_tested():
    ours = {kind for kind in all_participations() if kind.__module__.startswith("turnout.")}
    assert {type(participation) for participation, _ in PARTICIPATIONS} == ours


def test_the_distribution_of_the_steps_of_a_client_covers_all_windows():
    pairs = {(a, 2 + b): Fraction(1, 4) for a in (0, 1) for b in (0, 1)}
    assert client_distribution(CheckIn(2, 2), 1, 0) == pairs
    subsets = {tuple(each): Fraction(1, 3) for each in combinations(range(3), 2)}
    assert client_distribution(KSubset(3, 2), 2, 1) == subsets


def test_a_participation_with_a_wrong_documented_distribution_is_detected():
    kept = {(a, 2 + a): Fraction(1, 2) for a in (0, 1)}
    assert_participation(FixedAssignment(2, 2), 1, lambda client: kept)
    with pytest.raises(AssertionError, match="client 0 is drawn by"):
        assert_participation(CheckIn(2, 2), 1, lambda client: kept)


def test_a_mutated_participation_sampler_is_detected(monkeypatch):
    def short(draw, clients, block, source, first_step):
        slots = source.below(block.steps - 1, len(clients))
        return one_of(draw, clients, block, _Given(slots), first_step)

    monkeypatch.setitem(drawing.SAMPLERS.rows, OneOf, short)
    window = {(step,): Fraction(1, 3) for step in range(3)}
    with pytest.raises(AssertionError, match="client 0 is drawn by"):
        assert_participation(CheckIn(3), 2, lambda client: window)


class _Given:
    """Random source with given draws."""

    def __init__(self, slots):
        self._slots = slots

    def below(self, n, size):
        return self._slots


MUTANTS = {
    "expectations of twice as many": (
        lambda patch: patch.setitem(
            drawing._CANDIDATES.rows, OneOf, lambda draw, n: (n, 2 / draw.steps)
        ),
        CheckIn(3),
    ),
    "nobody is admitted": (
        lambda patch: patch.setitem(
            coordinator.RULES.rows,
            OneOf,
            replace(
                coordinator.RULES.rows[OneOf], eligible=lambda d, ids, t: np.zeros(len(ids), bool)
            ),
        ),
        CheckIn(3),
    ),
    "one pick too many is admitted": (
        lambda patch: patch.setitem(
            coordinator.RULES.rows,
            KOf,
            replace(coordinator.RULES.rows[KOf], quota=lambda draw: draw.picks + 1),
        ),
        KSubset(3, 1),
    ),
    "priced as a longer window": (
        lambda patch: patch.setitem(
            neighbours.NEIGHBOUR_BOUNDS.rows,
            OneOf,
            neighbours.NEIGHBOUR_BOUNDS.rows[OneOf]._replace(
                run=lambda draw, *rest: neighbours._one_of(OneOf(2 * draw.steps), *rest)
            ),
        ),
        CheckIn(3),
    ),
    "priced as a shorter window": (
        lambda patch: patch.setitem(
            neighbours.NEIGHBOUR_BOUNDS.rows,
            OneOf,
            neighbours.NEIGHBOUR_BOUNDS.rows[OneOf]._replace(
                run=lambda draw, *rest: neighbours._one_of(OneOf(1), *rest)
            ),
        ),
        CheckIn(3),
    ),
    "verified as without chance": (
        lambda patch: patch.setitem(
            cost._WINDOWS.rows,
            OneOf,
            lambda draw, noise, full, rest: cost._one_of(OneOf(1), noise, full, rest),
        ),
        CheckIn(4),
    ),
}


@cache
def assert_conforms(participation: Participation) -> None:
    """Check a participation without mutation, once for all its mutants."""
    assert_participation(participation, 2)


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutated_function_that_uses_a_participation_is_detected(name, monkeypatch):
    mutate, participation = MUTANTS[name]
    assert_conforms(participation)
    mutate(monkeypatch)
    with pytest.raises(AssertionError):
        assert_participation(participation, 2)
