"""Sweeps of a comparison: ordered values, and one-line errors."""

from __future__ import annotations

import re

import pytest

from turnout.core.errors import ParameterError
from turnout.plans import sweep
from turnout.schemes import Relation

NOISE = {
    "against": "noise-multiplier",
    "first": 0.5,
    "last": 4.0,
    "window": 100,
    "delta": 1e-6,
    "relation": "add-remove",
}
WINDOW = {**NOISE, "against": "window", "first": 2.0, "last": 9.0, "noise_multiplier": 1.0}
del WINDOW["window"]


def test_values_of_a_sweep_are_spaced_evenly_in_their_logarithm():
    asked = sweep({**NOISE, "points": 4, "clients": None})
    assert asked.values() == [0.5, 1.0, 2.0, 4.0]
    assert asked.fixed() == {"window": 100, "windows": 1}
    assert asked.relation is Relation.ADD_REMOVE
    assert len(sweep(NOISE).values()) == 12
    ends = sweep({**NOISE, "first": 0.123456, "last": 0.987654}).values()
    assert (ends[0], ends[-1]) == (0.123456, 0.987654)


def test_whole_numbers_of_a_sweep_are_listed_once():
    assert sweep({**WINDOW, "points": 30}).values() == [2, 3, 4, 5, 6, 7, 8, 9]
    assert all(isinstance(value, int) for value in sweep(WINDOW).values())
    windows = sweep({**WINDOW, "against": "windows", "window": 50})
    assert windows.fixed() == {"noise_multiplier": 1.0, "window": 50}


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"against": None}, "--against = (missing): expected the swept parameter: one"),
        ({"against": "steps"}, "--against = 'steps': expected 'noise-multiplier', 'window' or"),
        ({"first": None}, "--from = (missing): expected a value (first value of the"),
        ({"first": -1.0}, "--from = -1.0: expected a finite number above 0"),
        ({"first": float("nan")}, "--from = nan: expected a finite number above 0"),
        ({"last": 0.5}, "--to = 0.5: expected more than --from = 0.5"),
        ({"points": 1}, "--points = 1: expected from 2 to 1000"),
        ({"points": 1001}, "--points = 1001: expected from 2 to 1000"),
        ({"points": 0}, "--points = 0: expected a whole number of at least 1"),
        ({"window": None}, "--window = (missing): expected a value (number of steps of a window)"),
        ({"window": 0}, "--window = 0: expected a whole number of at least 1"),
        ({"windows": 0}, "--windows = 0: expected a whole number of at least 1"),
        ({"clients": 0}, "--clients = 0: expected a whole number of at least 1"),
        (
            {"noise_multiplier": 1.0},
            "--noise-multiplier = 1.0: expected no value with --against noise-multiplier",
        ),
        ({"delta": None}, "--delta = (missing): expected a value (parameter δ of "),
        ({"delta": 1.0}, "--delta = 1.0: expected a number strictly between 0 and 1"),
        ({"relation": None}, "--relation = (missing): expected the neighbouring relation"),
        ({"relation": "near"}, "--relation = 'near': expected 'add-remove', 'zero-out' or"),
        ({"tolerance": 0.0}, "--tolerance = 0.0: expected a number strictly between 0 and 1"),
        ({**WINDOW, "window": None, "first": 2.5}, "--from = 2.5: expected a whole number with"),
        ({**WINDOW, "window": None, "last": 9.5}, "--to = 9.5: expected a whole number with"),
        ({**WINDOW, "window": 5}, "--window = 5: expected no value with --against window"),
        (
            {**WINDOW, "window": None, "noise_multiplier": None},
            "--noise-multiplier = (missing): expected a value (standard dev",
        ),
    ],
)
def test_an_invalid_option_of_a_sweep_is_refused_in_one_line(changes, line):
    with pytest.raises(ParameterError, match=re.escape(line)) as error:
        sweep({**NOISE, **changes})
    assert "\n" not in str(error.value)
