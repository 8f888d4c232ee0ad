"""Table ``[tune]``: ranges, their draws, and errors."""

from __future__ import annotations

import math
import tomllib

import numpy as np
import pytest

from turnout.core.errors import ParameterError
from turnout.plans import Plan
from turnout.plans.plan import parse_ranges

PLAN = """
[data]
name = "digits"
[model]
name = "logistic"
[participation]
law = "check-in"
window = 4
[privacy]
relation = "add-remove"
epsilon = 3.0
delta = 1e-4
[optimizer]
learning_rate = 0.5
[tune.ranges]
optimizer.learning_rate = { low = 0.1, high = 10.0, log = true }
client.steps = { low = 1, high = 3 }
privacy.clip_norm = [0.5, 1.0]
"optimizer.averaging" = ["none", "tail"]
"""
TABLES = tomllib.loads(PLAN)


def drawn(key, value, times=400):
    generator = np.random.default_rng(1)
    one = parse_ranges({key: value})[key]
    return [one.draw(generator) for _ in range(times)]


def test_a_plan_without_its_tune_table_has_the_same_settings():
    plan = Plan.from_toml(PLAN)
    assert plan.tune is not None
    assert set(parse_ranges(plan.tune.ranges)) == {
        "optimizer.learning_rate",
        "optimizer.averaging",
        "client.steps",
        "privacy.clip_norm",
    }
    assert "tune" not in plan.to_toml()
    assert plan.model_dump() == Plan.from_mapping({**TABLES, "tune": None}).model_dump()


def test_draws_from_a_logarithmic_range_are_uniform_in_the_logarithm():
    values = np.log10(drawn("optimizer.learning_rate", {"low": 0.01, "high": 100.0, "log": True}))
    assert -2.0 <= values.min() < -1.8
    assert 1.8 < values.max() <= 2.0
    assert abs(values.mean()) < 0.25
    straight = np.log10(drawn("optimizer.learning_rate", {"low": 0.01, "high": 100.0}))
    assert straight.mean() > 1.0


def test_a_search_draws_whole_numbers_and_choices_from_their_ranges():
    assert set(drawn("client.steps", {"low": 1, "high": 3})) == {1, 2, 3}
    assert set(drawn("client.steps", {"low": 1, "high": 3, "log": True})) == {1, 2, 3}
    assert set(drawn("optimizer.averaging", ["none", "tail"])) == {"none", "tail"}


@pytest.mark.parametrize(
    ("ranges", "words"),
    [
        ({"participation.window": [4, 8]}, "participation.window"),
        ({"run.seed": [1, 2]}, "run.seed"),
        ({"privacy.epsilon": [1.0, 2.0]}, "privacy.epsilon"),
        ({"model.metrics": [["loss"]]}, "model.metrics"),
        ({"optimizer.rate": [1.0]}, "optimizer.rate"),
        ({"optimizer.learning_rate": 0.5}, "low = "),
        ({"optimizer.learning_rate": []}, "low = "),
        ({"optimizer.learning_rate": {"low": 2.0, "high": 1.0}}, "low < high"),
        ({"optimizer.learning_rate": {"low": 0.0, "high": 1.0, "log": True}}, "above 0"),
        ({"optimizer.learning_rate": {"low": math.nan, "high": 1.0}}, "low < high"),
        ({"optimizer.learning_rate": {"low": 0.1, "high": 1.0, "scale": "log"}}, "low = "),
        ({"optimizer.learning_rate": {"low": 0.1, "high": 1.0, "log": "yes"}}, "true or false"),
        ({"client.steps": {"low": 1, "high": 2.5}}, "whole numbers"),
        ({}, "a table in which each key"),
    ],
)
def test_invalid_search_ranges_are_refused_in_one_line(ranges, words):
    with pytest.raises(ParameterError, match="tune") as caught:
        Plan.from_mapping({**TABLES, "tune": {"ranges": ranges}})
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("setting", "key"),
    [
        ({"candidates": 0}, "tune.candidates"),
        ({"held_out": 1.0}, "tune.held_out"),
        ({"stopping": "fixed"}, "tune.stopping"),
        ({"trials": 3}, "tune.trials"),
    ],
)
def test_errors_about_settings_of_a_search_name_the_setting(setting, key):
    with pytest.raises(ParameterError, match=key):
        Plan.from_mapping({**TABLES, "tune": {**TABLES["tune"], **setting}})
