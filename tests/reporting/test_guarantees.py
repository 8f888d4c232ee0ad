"""Printed text for a bracket on ε that is wider than the requested tolerance."""

from __future__ import annotations

from dataclasses import replace

import pytest

from turnout.accounting import Guarantee
from turnout.cli.accounting import answered
from turnout.cli.options import show
from turnout.core.bounds import Bounds
from turnout.plans import parse_query
from turnout.reporting.words import bracket_rows, guarantee_record
from turnout.schemes import PrivacyUnit, Relation, TrustModel


def guarantee(lower: float, upper: float, *, exact: bool) -> Guarantee:
    bounds = Bounds(lower, upper)
    return Guarantee(
        bounds,
        1e-6,
        {"replace": bounds},
        Relation.REPLACE_ONE,
        PrivacyUnit.CLIENT,
        TrustModel.CENTRAL,
        "an analysis",
        tolerance=1e-3,
        exact=exact,
    )


@pytest.mark.parametrize(
    ("lower", "exact", "words", "reason"),
    [
        (0.9995, True, None, None),
        (0.864, False, "13.6 % wide (0.1 % asked): the analysis is not tight", "not tight"),
        (0.95, True, "5 % wide (0.1 % asked): the refinement stopped", "refinement stopped"),
        (0.0, False, None, "no lower bound"),
    ],
)
def test_a_wide_bracket_on_epsilon_is_printed_with_its_reason(lower, exact, words, reason):
    found = guarantee(lower, 1.0, exact=exact)
    assert bracket_rows(found).get("bracket") == words
    said = guarantee_record(found).get("bracket")
    assert (said is None) == (reason is None)
    if said is not None:
        assert said["relative_width"] == pytest.approx(1.0 - lower)
        assert said["tolerance"] == 1e-3
        assert reason in said["reason"]


def test_a_bound_limited_by_its_work_budget_is_marked():
    found = replace(guarantee(0.0, 1.0, exact=True), cut_short=True)
    words = "100 % wide (0.1 % asked): the budget of work was spent (counted, so it is the same"
    assert bracket_rows(found)["bracket"].startswith(words)
    said = guarantee_record(found)["bracket"]
    assert said["cut_short"]
    assert "budget of work" in said["reason"]
    assert not guarantee_record(guarantee(0.5, 1.0, exact=True))["bracket"]["cut_short"]
    narrow = replace(guarantee(0.9995, 1.0, exact=True), cut_short=True)
    assert "bracket" not in guarantee_record(narrow)


FLAGS = {
    "scheme": "check-in",
    "randomizer": "kary-response",
    "epsilon0": 1.0,
    "categories": 3,
    "delta": 0.1,
}


def test_the_account_table_has_a_line_for_a_wide_bracket(capsys):
    wide = {**FLAGS, "window": 5, "relation": "replace-one"}
    show(answered(parse_query(wide)), as_json=False)
    out = " ".join(capsys.readouterr().out.split())
    assert "8.05 % wide (0.1 % asked): the analysis is not tight" in out
    narrow = {"scheme": "check-in", "noise_multiplier": 1.0, "window": 5, "delta": 1e-3}
    show(answered(parse_query({**narrow, "relation": "add-remove"})), as_json=False)
    assert "bracket" not in capsys.readouterr().out
