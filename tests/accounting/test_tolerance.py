"""Tolerance: when refinement stops, and which guarantees are marked as wide."""

from __future__ import annotations

import numpy as np
import pytest

from turnout.accounting import pricing
from turnout.accounting.divergence.blocks import Decomposition, NeighbourBound
from turnout.accounting.divergence.curves import Direction
from turnout.accounting.pricing import decomposition_bounds, price
from turnout.accounting.privacy_curve import PrivacyCurve
from turnout.core.bounds import Bounds
from turnout.schemes import (
    AvailabilityCheckIn,
    CheckIn,
    FixedSize,
    GaussianNoise,
    KaryResponse,
    Relation,
    Scheme,
)

RARE = Scheme(GaussianNoise(0.2284), CheckIn(2, probability=0.000356), Relation.ADD_REMOVE)
"""She hardly ever comes, and is then seen for sure; that she stayed away shows next to nothing."""


def test_only_the_direction_with_larger_epsilon_must_meet_the_tolerance():
    guarantee = price(RARE, 1.39e-15)
    add, remove = guarantee.directions["add"], guarantee.directions["remove"]
    assert add.relative_width > 100 * guarantee.tolerance
    assert add.upper < 1e-3 < remove.lower
    assert (guarantee.epsilon, guarantee.exact) == (remove, True)
    assert guarantee.meets_tolerance
    assert guarantee.epsilon.relative_width < 1e-4
    assert PrivacyCurve.of(RARE).directions(1.39e-15) == dict(guarantee.directions)


@pytest.mark.parametrize("swapped", [False, True])
def test_a_bracket_wider_than_the_tolerance_is_returned_and_marked(mutate, swapped):
    """A guarantee needs the upper bound alone, so a wide bracket is no error."""
    wide, narrow = Bounds(0.2, 1.0), Bounds(0.85, 0.86)
    remove, add = (narrow, wide) if swapped else (wide, narrow)
    brackets = {Direction.REMOVE: remove, Direction.ADD: add}
    mutate(pricing, "_bracket", lambda _, direction, *__: brackets[direction])
    parts = Decomposition(NeighbourBound([], [], "an analysis"))
    found = decomposition_bounds(parts, Relation.ADD_REMOVE, 1e-6, 1e-3)
    assert found == {"remove": remove, "add": add}


@pytest.mark.parametrize(
    ("scheme", "delta"),
    [
        (Scheme(KaryResponse(1.0, 3), CheckIn(5), Relation.REPLACE_ONE), 0.1),
        (Scheme(GaussianNoise(2.0), FixedSize(20, 100, 50), Relation.REPLACE_ONE), 1e-4),
    ],
)
def test_loose_analyses_are_marked_as_not_tight(scheme, delta):
    guarantee = price(scheme, delta)
    assert guarantee.epsilon.relative_width > 0.05
    assert (guarantee.tolerance, guarantee.meets_tolerance, guarantee.exact) == (1e-3, False, False)
    assert price(scheme, delta, tolerance=0.9).meets_tolerance


def test_a_tolerance_below_the_width_of_the_bracket_is_not_met():
    scheme = Scheme(GaussianNoise(1.0), CheckIn(10, 3), Relation.ADD_REMOVE)
    coarse = price(scheme, 1e-5, tolerance=0.05)
    assert coarse.meets_tolerance
    assert coarse.exact
    assert coarse.epsilon.relative_width > 1e-5
    assert price(scheme, 1e-5, tolerance=1e-3).epsilon.relative_width <= 1e-3


def test_the_tolerance_applies_to_clients_with_their_own_windows_too(mutate):
    law = AvailabilityCheckIn(np.ones((2, 2), bool), 2, probability=0.000356)
    scheme = Scheme(GaussianNoise(0.2284), law, Relation.ADD_REMOVE)
    guarantee = price(scheme, 1.39e-15)
    assert guarantee.meets_tolerance
    assert guarantee.directions["add"].relative_width > 0.1
    mutate(pricing, "_bracket", lambda *_: Bounds(1e-9, 40.0))
    wide = price(scheme, 1.39e-15)
    assert not wide.meets_tolerance
    assert wide.epsilon.upper == guarantee.epsilon.upper
