"""Numbers in text: rounding never understates a privacy loss."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnout.reporting.words import (
    DIRECTIONS,
    RELATIONS,
    TRUST,
    UNITS,
    certainty_in_words,
    rounded_down,
    rounded_up,
    sure,
)
from turnout.schemes import PrivacyUnit, Relation, TrustModel


@given(st.floats(1e-12, 1e6), st.integers(2, 7))
def test_an_upper_bound_is_rounded_up_and_a_lower_bound_down(value, digits):
    assert float(rounded_down(value, digits)) <= value <= float(rounded_up(value, digits))
    assert float(rounded_up(value, digits)) <= value * (1 + 10 ** (1 - digits)) * (1 + 1e-9)


@pytest.mark.parametrize(
    ("value", "up", "down"),
    [
        (0.0, "0", "0"),
        (3.0, "3", "3"),
        (2.99998, "3", "2.999"),
        (0.171730001, "0.1718", "0.1717"),
        (9.99951, "10", "9.999"),
        (math.inf, "inf", "inf"),
    ],
)
def test_printed_numbers_are_rounded_up_or_down_as_expected(value, up, down):
    assert (rounded_up(value), rounded_down(value)) == (up, down)


def test_every_relation_unit_trust_model_and_direction_has_an_explanation():
    assert set(RELATIONS) == set(Relation)
    assert set(UNITS) == set(PrivacyUnit)
    assert set(TRUST) == set(TrustModel)
    assert set(DIRECTIONS) == {"remove", "add", "replace"}


@pytest.mark.parametrize(
    ("posterior", "percent"), [(0.5, "50 %"), (0.972201, "97.23 %"), (1.0, "100 %")]
)
def test_the_certainty_of_an_adversary_is_printed_as_an_upper_bound(posterior, percent):
    assert sure(posterior) == percent
    words = certainty_in_words((posterior, 0.6), 1e-5, Relation.ZERO_OUT)
    assert f"{percent} sure that the client took part with its data" in words
    assert "60 % sure that its record was empty" in words
    assert "δ = 1e-05" in words
    assert RELATIONS[Relation.ZERO_OUT] in words
    assert "An adversary who sees every released model and knows" in words


def test_the_described_view_of_an_adversary_follows_the_trust_model():
    said = {
        trust: certainty_in_words((0.9, 0.9), 1e-5, Relation.REPLACE_ONE, trust=trust)
        for trust in TrustModel
    }
    assert "sees every message of the client's own and knows" in said[TrustModel.LOCAL]
    assert "sees all shuffled messages and knows" in said[TrustModel.SHUFFLED]
    assert "model" in said[TrustModel.CENTRAL]
    assert "model" not in said[TrustModel.LOCAL]
