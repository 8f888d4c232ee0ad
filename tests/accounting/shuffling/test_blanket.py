"""Blanket pairs bound every small shuffle in both directions; wrong pairs are detected."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from shuffle_truths import hockey_stick, pair_delta, response, shuffled, worst
from trinomial_cells import trinomial_cell

from turnout.accounting.divergence.curves import Side
from turnout.accounting.shuffling.blanket import BlanketCurve
from turnout.accounting.shuffling.blanket_pairs import (
    BlanketPair,
    clones_pair,
    hadamard_pair,
    kary_pair,
    stronger_clones_pair,
    third_value_pair,
    trinomial_pair,
)
from turnout.core.errors import ParameterError

ROUNDING = 1e-9


def delta(pair: BlanketPair, clients: int, k: float, side: Side = Side.UPPER) -> float:
    return float(BlanketCurve(pair, clients, side).delta(np.array(k)))


def hadamard(local_epsilon: float, order: int = 4) -> list[list[float]]:
    """Hadamard response: half of the values are likely, by the rows but the first."""
    e = math.exp(local_epsilon)
    signs = np.array([[1]])
    while signs.shape[0] < order:
        signs = np.block([[signs, signs], [signs, -signs]])
    return [[(e if sign > 0 else 1.0) / (e + 1) * 2 / order for sign in row] for row in signs[1:]]


def bounds_of_response(local_epsilon: float, values: int) -> list[BlanketPair]:
    """Every pair that is proved for randomized response over some values."""
    alpha = 1.0 / (math.exp(local_epsilon) + values - 1)
    largest = 1.0 / (math.exp(local_epsilon) + 1)
    return [
        clones_pair(local_epsilon),
        stronger_clones_pair(local_epsilon),
        kary_pair(local_epsilon, values),
        trinomial_pair(local_epsilon, alpha),
        trinomial_cell(local_epsilon, 0.8 * alpha, min(1.1 * alpha, largest)),
        trinomial_cell(local_epsilon, alpha, largest),
    ]


@settings(max_examples=40, deadline=None)
@given(
    local_epsilon=st.floats(0.01, 4.0),
    values=st.integers(2, 4),
    clients=st.integers(1, 4),
    part=st.floats(0.0, 1.0),
)
def test_every_blanket_pair_bounds_every_shuffle_of_kary_response(
    local_epsilon, values, clients, part
):
    """For all records of the other clients, in both directions."""
    k = math.exp(part * local_epsilon)
    truth = worst(response(local_epsilon, values), clients, k)
    for pair in bounds_of_response(local_epsilon, values):
        assert delta(pair, clients, k) >= truth * (1 - ROUNDING) - 1e-15


@settings(max_examples=20, deadline=None)
@given(local_epsilon=st.floats(0.01, 4.0), clients=st.integers(1, 4), part=st.floats(0.0, 1.0))
def test_the_hadamard_pair_bounds_every_shuffle_of_hadamard_response(local_epsilon, clients, part):
    k = math.exp(part * local_epsilon)
    truth = worst(hadamard(local_epsilon), clients, k)
    alpha = 0.5 / (math.exp(local_epsilon) + 1)
    for pair in (hadamard_pair(local_epsilon), trinomial_pair(local_epsilon, alpha)):
        assert delta(pair, clients, k) >= truth * (1 - ROUNDING) - 1e-15


@settings(max_examples=20, deadline=None)
@given(local_epsilon=st.floats(0.01, 4.0), clients=st.integers(1, 6), part=st.floats(0.0, 1.0))
def test_the_third_value_pair_is_attained_by_ternary_response(local_epsilon, clients, part):
    k = math.exp(part * local_epsilon)
    distributions = response(local_epsilon, 3)
    first, second = (
        shuffled([distribution, *[distributions[2]] * (clients - 1)])
        for distribution in distributions[:2]
    )
    truth = hockey_stick(first, second, k)
    assert truth == pytest.approx(hockey_stick(second, first, k), rel=1e-9, abs=1e-15)
    assert truth == pytest.approx(
        pair_delta(third_value_pair(local_epsilon), clients, k), abs=1e-14
    )
    lower = delta(third_value_pair(local_epsilon), clients, k, Side.LOWER)
    assert truth * (1 - 1e-6) - 1e-14 <= lower <= truth * (1 + ROUNDING) + 1e-15


MUTANTS = {
    "one client too many": lambda n: (clones_pair(3.0), n + 1),
    "twice as many clones": lambda n: (BlanketPair(*_masses(3.0), math.exp(-3.0)), n),
    "stronger clones of more": lambda n: (BlanketPair(*_masses(3.0), 1.5 * _masses(3.0)[1]), n),
}


def _masses(local_epsilon: float) -> tuple[float, float]:
    low = 1.0 / (1.0 + math.exp(local_epsilon))
    return 1.0 - low, low


@pytest.mark.parametrize("name", MUTANTS)
def test_mutants_of_blanket_pairs_fall_below_the_exact_delta(name):
    """The exact δ is computed from the distributions of the correct pair."""
    found = []
    for clients in (2, 3, 5):
        for k in (1.0, 1.5, 5.0, 12.0):
            right = clones_pair(3.0) if "stronger" not in name else stronger_clones_pair(3.0)
            truth = pair_delta(right, clients, k)
            found.append(delta(*MUTANTS[name](clients), k) < truth * (1 - 1e-6))
    assert any(found)


def test_an_overestimated_blanket_falls_below_enumerated_shuffles():
    """Mutants compared with randomized response itself."""
    local_epsilon, k = 3.0, 4.0
    _, low = _masses(local_epsilon)
    for clients in (2, 3):
        truth = worst(response(local_epsilon, 2), clients, k)
        assert delta(stronger_clones_pair(local_epsilon), clients, k) >= truth * (1 - ROUNDING)
        assert delta(BlanketPair(1 - low, low, 1.2 * low), clients, k) < truth
        assert delta(stronger_clones_pair(local_epsilon), clients + 1, k) < truth


def test_the_bound_of_an_interval_of_trinomial_pairs_is_above_each_pair():
    local_epsilon = 1.5
    largest = 1.0 / (math.exp(local_epsilon) + 1)
    cell = trinomial_cell(local_epsilon, 0.3 * largest, 0.6 * largest)
    for share in np.linspace(0.3, 0.6, 7):
        member = trinomial_pair(local_epsilon, float(share) * largest)
        for clients in (1, 2, 5):
            for k in (1.0, 1.3, 2.5):
                truth = pair_delta(member, clients, k)
                assert delta(cell, clients, k) >= truth * (1 - ROUNDING)
    # A member outside of the cell, with fewer blanket messages, is not covered.
    outside = trinomial_pair(local_epsilon, largest)
    assert pair_delta(outside, 2, 1.3) > delta(cell, 2, 1.3)


def test_blanket_pairs_of_different_randomizers_coincide_in_special_cases():
    for local_epsilon in (0.2, 1.0, 5.0):
        stronger = stronger_clones_pair(local_epsilon)
        largest = trinomial_pair(local_epsilon, stronger.low)
        assert trinomial_cell(local_epsilon, stronger.low, stronger.low) == largest
        assert (largest.high, largest.low, largest.share) == pytest.approx(
            (stronger.high, stronger.low, stronger.share)
        )
        assert largest.neutral == largest.neutral_share == 0.0
        two, three = kary_pair(local_epsilon, 2), kary_pair(local_epsilon, 3)
        assert (two.high, two.low, two.neutral) == pytest.approx(
            (stronger.high, stronger.low, 0.0), abs=1e-15
        )
        assert three.neutral == pytest.approx(three.low)
        assert three.neutral_ratio == pytest.approx(1.0)
        for pair in (stronger, three, hadamard_pair(local_epsilon)):
            assert pair.local_epsilon == pytest.approx(local_epsilon)


def test_local_epsilons_above_600_are_treated_as_600():
    for make in (clones_pair, stronger_clones_pair, hadamard_pair, third_value_pair):
        assert make(700.0) == make(600.0)
        assert make(600.0).local_epsilon == pytest.approx(600.0)


@pytest.mark.parametrize(
    ("wrong", "name"),
    [
        (lambda: BlanketPair(0.2, 0.2, 0.1), "low"),
        (lambda: BlanketPair(0.8, 0.3, 0.1), "high"),
        (lambda: BlanketPair(0.6, 0.4, 0.6), "share"),
        (lambda: BlanketPair(0.5, 0.2, 0.3, 0.5), "share"),
        (lambda: BlanketPair(0.5, 0.2, 0.1), "neutral_share"),
        (lambda: BlanketPair(0.5, 0.0, 0.1, 0.1), "low"),
        (lambda: BlanketPair(math.nan, 0.2, 0.1), "high"),
        (lambda: clones_pair(0.0), "local_epsilon"),
        (lambda: clones_pair(math.inf), "local_epsilon"),
        (lambda: trinomial_pair(1.0, 0.3), "alpha"),
        (lambda: kary_pair(1.0, 1), "values"),
        (lambda: BlanketCurve(clones_pair(1.0), 0, Side.UPPER), "clients"),
    ],
)
def test_invalid_blanket_pairs_are_refused(wrong, name):
    with pytest.raises(ParameterError) as caught:
        wrong()
    assert caught.value.name == name
