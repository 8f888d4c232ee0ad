"""Style rules of pictures: one meaning per colour, labelled axes, legends in standard terms."""

from __future__ import annotations

import numpy as np
import pytest
from looks import faults, legends

from turnout.accounting import price
from turnout.accounting.meaning.explanation import explanation_of
from turnout.accounting.published.comparison import METHODS, SHUFFLE_METHODS, Quote
from turnout.estimation.private.answers import EstimateCost, Frequencies, Mean
from turnout.plans.sweeps import ComparisonCurve, SweepComparison, sweep
from turnout.reporting.answer_pictures import (
    comparison_picture,
    frequency_picture,
    mean_picture,
    trade_off_picture,
)
from turnout.reporting.drawing import LOOKS, Picture
from turnout.reporting.pictures import count_pictures, pictures
from turnout.schemes import CheckIn, EveryStep, GaussianNoise, Relation, Scheme

CHECK_INS = {
    **{"against": "noise-multiplier", "first": 2.0, "last": 32.0, "window": 200},
    **{"clients": 20_000, "delta": 1e-6, "relation": "add-remove"},
}
SHUFFLES = {
    **{"scheme": "shuffle", "against": "rounds", "first": 1, "last": 64},
    **{"clients": 900, "delta": 1e-6, "epsilon0": 1.0},
}


def compared(flags, methods) -> Picture:
    """Comparison picture of several methods, whose values differ by constant factors."""
    asked = sweep(flags)
    values = asked.values()
    curves = [
        ComparisonCurve(method, [Quote(2.0**i / value, 1.9**i / value) for value in values])
        for i, method in enumerate(methods)
    ]
    return comparison_picture(SweepComparison(asked, values, curves, 0.0))


def explained(participation, relation) -> Picture:
    scheme = Scheme(GaussianNoise(2.0), participation, relation)
    return trade_off_picture(explanation_of(scheme, price(scheme, 1e-5)))


@pytest.mark.parametrize(
    ("flags", "methods"), [(CHECK_INS, METHODS), (SHUFFLES, SHUFFLE_METHODS)], ids=["came", "sent"]
)
def test_a_comparison_picture_has_one_legend_entry_per_method(flags, methods):
    drawn = compared(flags, methods)
    assert faults(drawn) == []
    assert len(legends(drawn)) == len(methods)


@pytest.mark.parametrize(
    ("participation", "relation"),
    [(CheckIn(20), Relation.ADD_REMOVE), (EveryStep(4), Relation.REPLACE_ONE)],
)
def test_explanation_pictures_follow_the_style_rules(participation, relation):
    assert faults(explained(participation, relation)) == []


def test_pictures_of_runs_follow_the_style_rules(summary, traced_summary):
    for each in (summary, traced_summary):
        for drawn in (*pictures(each), *count_pictures(each)):
            assert faults(drawn) == []


def estimates() -> tuple[Picture, Picture]:
    """Estimates of three values, with sampling error in addition to noise."""
    one, cost = np.ones(3), EstimateCost(1.0, 0.0, "pure", "replace-one", "local", "a", "b")
    limits = (-one, one, -2 * one, 2 * one)
    shares = Frequencies(one, one, one, 2 * one, *limits, 0.95, 10, 10.0, cost)
    about = Mean(one, one, 2 * one, "rows", 1.0, 10, 10.0, cost)
    names = ("a", "b", "c")
    return frequency_picture(shares, names, 3), mean_picture(about, names, 3)


@pytest.mark.parametrize("drawn", estimates(), ids=["frequencies", "mean"])
def test_pictures_of_estimates_follow_the_style_rules(drawn):
    assert faults(drawn) == []
    assert len(legends(drawn)) == 3


def two_lines(second: dict, label: str = "second", x_label: str = "x") -> Picture:
    def draw(axes, ink):
        axes[0].plot([1, 2], label="first", **LOOKS["Poisson"].line())
        axes[0].plot([2, 3], label=label, **second)
        axes[0].set(title="two lines", xlabel=x_label, ylabel="y")

    return Picture("two", "Two lines", "two lines", draw)


FIRST, OTHER = LOOKS["Poisson"], LOOKS["shuffling"]


@pytest.mark.parametrize(
    ("drawn", "fault"),
    [
        (two_lines(OTHER.line() | {"color": FIRST.colour}), f"{FIRST.colour} twice"),
        (two_lines(OTHER.line() | {"marker": FIRST.marker}), "twice: ['first', 'second']"),
        (two_lines(OTHER.line(), x_label=""), "no name of the x axis"),
        (two_lines(OTHER.line(), label="ε (proved)"), "old word: 'ε (proved)'"),
        (two_lines(OTHER.line(), label="what she sends"), "old word"),
        (two_lines(OTHER.line(), label="RDP 4.6"), "old word"),
    ],
)
def test_a_picture_that_violates_a_style_rule_is_detected(drawn, fault):
    (found,) = faults(drawn)
    assert fault in found
    assert faults(two_lines(OTHER.line())) == []


def test_one_curve_name_in_two_colours_is_detected_across_panels():
    def draw(axes, ink):
        for axis, colour in zip(axes, (FIRST.colour, OTHER.colour), strict=True):
            axis.plot([1, 2], label="one meaning", color=colour)
            axis.set(title="one line", xlabel="x", ylabel="y")

    assert "one meaning" in faults(Picture("a", "A", "a", draw, panels=2))[0]
