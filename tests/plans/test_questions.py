"""Questions to accounting: flags become a scheme, or one line."""

from __future__ import annotations

import re

import pytest

from turnout.core.errors import ParameterError
from turnout.plans import account, ask
from turnout.spec import (
    CheckIn,
    EveryStep,
    GaussianNoise,
    KSubset,
    PoissonSampling,
    Relation,
    Scheme,
    SlidingWindow,
)

PROMISE = {"delta": 1e-6, "relation": "add-remove", "noise_multiplier": 1.0}


@pytest.mark.parametrize(
    ("flags", "law"),
    [
        ({"scheme": "none"}, EveryStep(1)),
        ({"scheme": "none", "steps": 7}, EveryStep(7)),
        ({"scheme": "poisson", "rate": 0.01, "steps": 7}, PoissonSampling(0.01, 7)),
        ({"scheme": "check-in", "window": 9, "windows": 2}, CheckIn(9, 2)),
        ({"scheme": "check-in", "window": 9, "probability": 0.5}, CheckIn(9, 1, 0.5)),
        ({"scheme": "sliding", "window": 9}, SlidingWindow(9, 17)),
        ({"scheme": "k-subset", "window": 9, "picks": 2}, KSubset(9, 2)),
    ],
)
def test_flags_become_a_scheme(flags, law):
    question = ask({**PROMISE, **flags, "epsilon": None, "rate": flags.get("rate")})
    assert question.scheme_for(2.0) == Scheme(GaussianNoise(2.0), law, Relation.ADD_REMOVE)


@pytest.mark.parametrize(
    ("flags", "line"),
    [
        ({}, "--scheme = (missing): expected one of 'none', 'poisson', 'check-in', 'sliding'"),
        ({"scheme": "random"}, "--scheme = 'random': expected one of 'none'"),
        ({"scheme": "check-in"}, "--window = (missing): expected a value (steps a window)"),
        ({"scheme": "check-in", "window": 0}, "--window = 0: expected a whole number of at least"),
        (
            {"scheme": "check-in", "window": 5, "rate": 0.1},
            "--rate = 0.1: expected one of the keys --scheme, --window, --windows, --probability",
        ),
        (
            {"scheme": "check-in", "window": 5, "probability": 1.01},
            "--probability = 1.01: expected a number from 0 to 1",
        ),
        ({"scheme": "none", "delta": float("nan")}, "--delta = nan: expected a number strictly"),
        ({"scheme": "none", "noise_multiplier": -1.0}, "--noise-multiplier = -1.0: expected a"),
        ({"scheme": "none", "relation": None}, "--relation = (missing): expected the neighbouring"),
        ({"scheme": "none", "relation": "swap"}, "--relation = 'swap': expected 'add-remove'"),
        ({"scheme": "k-subset", "window": 5, "picks": 6}, "--picks = 6: expected at most window"),
    ],
)
def test_a_fault_gets_one_line_that_names_the_flag(flags, line):
    with pytest.raises(ParameterError, match=re.escape(line)) as error:
        ask({**PROMISE, **flags})
    assert "\n" not in str(error.value)


def test_a_sliding_window_costs_what_a_fixed_one_of_its_length_does():
    sliding = account(ask({**PROMISE, "scheme": "sliding", "window": 60}))
    fixed = account(ask({**PROMISE, "scheme": "check-in", "window": 60}))
    assert sliding.directions == fixed.directions
