"""Questions to accounting: flags become a scheme, or one line."""

from __future__ import annotations

import re

import pytest

from turnout.accounting import epsilon_upper, price
from turnout.core.errors import ParameterError
from turnout.plans import account, ask, calibrate, solvable
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


CHECK_IN = {"scheme": "check-in", "window": 100, "windows": 3, "epsilon": 1.0, **PROMISE}


def without(flags, *names):
    return {name: value for name, value in flags.items() if name not in names}


@pytest.mark.parametrize(
    ("unknown", "flags"),
    [
        ("noise-multiplier", CHECK_IN),
        ("window", CHECK_IN),
        ("windows", CHECK_IN),
        ("probability", CHECK_IN),
        ("delta", CHECK_IN),
        ("rate", {**PROMISE, "scheme": "poisson", "steps": 20, "epsilon": 1.0}),
        ("steps", {**PROMISE, "scheme": "poisson", "rate": 0.01, "epsilon": 1.0}),
        ("steps", {**PROMISE, "scheme": "none", "noise_multiplier": 30.0, "epsilon": 1.0}),
        ("window", {**PROMISE, "scheme": "sliding", "epsilon": 1.0}),
        ("picks", {**PROMISE, "scheme": "k-subset", "window": 500, "epsilon": 1.0}),
        ("window", {**PROMISE, "scheme": "k-subset", "picks": 3, "epsilon": 1.0}),
    ],
)
def test_any_one_unknown_is_answered_with_a_question_that_costs_no_more(unknown, flags):
    key = unknown.replace("-", "_")
    asked, found = calibrate(ask(without(flags, key), unknown), unknown)
    part = asked.promise if key in ("delta", "noise_multiplier") else asked.participation
    assert getattr(part, key) == found.value
    assert isinstance(found.value, int) == found.unknown.whole
    again = ask({**flags, key: found.value})
    scheme = again.scheme_for(again.promise.noise_multiplier)
    assert found.epsilon <= 1.0
    assert price(scheme, again.promise.delta).epsilon.upper <= 1.0
    assert found.epsilon >= 0.8 * epsilon_upper(scheme, again.promise.delta)


def test_picks_stay_within_the_window():
    flags = {**PROMISE, "scheme": "k-subset", "window": 4, "epsilon": 100.0}
    assert calibrate(ask(flags, "picks"), "picks")[1].value == 4
    flags = {**PROMISE, "scheme": "k-subset", "picks": 4, "epsilon": 100.0}
    assert calibrate(ask(flags, "window"), "window")[1].value == 4


@pytest.mark.parametrize(
    ("scheme", "names"),
    [
        ("none", "noise-multiplier steps delta"),
        ("poisson", "noise-multiplier rate steps delta"),
        ("check-in", "noise-multiplier window windows probability delta"),
        ("sliding", "noise-multiplier window delta"),
        ("k-subset", "noise-multiplier window windows picks delta"),
    ],
)
def test_what_can_be_solved_for(scheme, names):
    assert solvable(scheme) == names.split()


@pytest.mark.parametrize(
    ("unknown", "flags", "line"),
    [
        ("window", CHECK_IN, "--window = 100: expected nothing beside --solve-for window"),
        ("delta", CHECK_IN, "--delta = 1e-06: expected nothing beside --solve-for delta"),
        ("rate", CHECK_IN, "--solve-for = 'rate': expected one of 'noise-multiplier', 'window'"),
        ("slots", CHECK_IN, "--solve-for = 'slots': expected one of 'noise-multiplier', "),
        (
            "noise-multiplier",
            CHECK_IN,
            "--noise-multiplier = 1.0: expected nothing beside --solve-for noise-multiplier",
        ),
        ("window", without(CHECK_IN, "window", "epsilon"), "--epsilon = (missing): expected a"),
        (
            "window",
            without(CHECK_IN, "window", "noise_multiplier"),
            "--noise-multiplier = (missing): expected a finite number above 0",
        ),
        ("windows", without(CHECK_IN, "window", "windows"), "--window = (missing): expected a"),
    ],
)
def test_an_unknown_that_is_given_or_lacks_something_gets_one_line(unknown, flags, line):
    with pytest.raises(ParameterError, match=re.escape(line)) as error:
        calibrate(ask(flags, unknown), unknown)
    assert "\n" not in str(error.value)
