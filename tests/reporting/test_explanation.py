"""Explanations of ε: numbers from the right curves, rounded conservatively."""

from __future__ import annotations

import json
import math
import re

import pytest

from turnout.accounting import price
from turnout.accounting.meaning.explanation import explanation_of
from turnout.core.errors import ParameterError, StorageError
from turnout.reporting.answer_pictures import trade_off_picture
from turnout.reporting.drawing import check_format
from turnout.reporting.explanation import (
    CLAIMS,
    FALSE_POSITIVE_RATES,
    explanation_record,
    explanation_rows,
)
from turnout.schemes import (
    CheckIn,
    EveryStep,
    FixedAssignment,
    GaussianNoise,
    PoissonSampling,
    Relation,
    ReleaseRule,
    Scheme,
)


def explained(
    participation, sigma=1.0, relation=Relation.ADD_REMOVE, delta=1e-5, prior=None, **rest
):
    scheme = Scheme(GaussianNoise(sigma), participation, relation, **rest)
    return explanation_of(scheme, price(scheme, delta), prior)


def phi(z: float) -> float:
    return 0.5 * math.erfc(-z / math.sqrt(2))


@pytest.fixture(scope="module")
def gaussian():
    """Explanation for μ = 1, where every number has a closed form."""
    return explained(EveryStep(4), 2.0, prior=0.1)


@pytest.fixture(scope="module")
def checked_in():
    return explained(CheckIn(100), prior=0.3)


def test_explanation_numbers_enclose_the_exact_values_for_gaussian_noise(gaussian):
    record = explanation_record(gaussian)
    assert record["advantage_lower"] <= 2 * phi(0.5) - 1 <= record["advantage"]
    threshold = math.log(9) + 0.5
    for guess, truth in zip(
        record["guesses"], (phi(0.5), 0.1 * phi(1 - threshold) + 0.9 * phi(threshold)), strict=True
    ):
        assert guess["success_lower"] <= truth <= guess["success"] <= truth * (1 + 1e-5)
        assert guess["most_certain_of_presence"] < 0.9999
    assert record["guesses"][1]["success_without_looking"] == 0.9
    quantiles = (-3.090232306, -2.326347874, -1.281551566)
    assert len(quantiles) == len(FALSE_POSITIVE_RATES)
    for rates, z in zip(record["true_positive_rates"], quantiles, strict=True):
        for name in ("remove", "add"):
            assert rates[name]["rate_lower"] <= phi(1 + z) * (1 + 1e-8)
            assert phi(1 + z) * (1 - 1e-8) <= rates[name]["rate"]
    assert record["gaussian"]["mu_lower"] <= 1 <= record["gaussian"]["mu"] <= 1 + 1e-4
    assert record["gaussian"]["delta"] <= 1e-5


def test_the_record_of_an_explanation_is_valid_json(checked_in):
    record = explanation_record(checked_in)
    assert json.loads(json.dumps(record, allow_nan=False)) == record
    assert [guess["prior"] for guess in record["guesses"]] == [0.5, 0.3]


def test_explanations_report_remove_and_add_directions_separately(checked_in):
    """At small false-positive rates the direction "remove" has the larger true-positive rate."""
    rate = explanation_record(checked_in)["true_positive_rates"][0]
    assert rate["remove"]["rate_lower"] > rate["add"]["rate"]
    guess = explanation_record(checked_in)["guesses"][0]
    assert guess["most_certain_of_presence"] > guess["most_certain_of_absence"]


def test_explanations_contain_full_sentences(checked_in):
    rows = explanation_rows(checked_in)
    assert list(rows) == [
        "membership inference",
        "advantage",
        "prior 50 %",
        "prior 30 %",
        "true positives",
        "Gaussian",
    ]
    assert "this client took part, or was never there" in rows["membership inference"]
    assert "chance level 50 %" in rows["membership inference"]
    for claim in CLAIMS[Relation.ADD_REMOVE]:
        assert claim in rows["prior 30 %"]
    assert "0.0" not in rows["Gaussian"].split("-GDP")[1].split("δ")[0]


def test_percentages_of_upper_and_lower_bounds_are_rounded_outwards(checked_in):
    shown = re.search(
        r"at most ([\d.]+) % \(at least ([\d.]+) %\)", explanation_rows(checked_in)["advantage"]
    )
    assert shown
    advantage = checked_in.advantage
    assert float(shown[1]) >= 100 * advantage.upper
    assert float(shown[2]) <= 100 * advantage.lower


def test_a_tiny_gain_of_the_adversary_is_not_printed_as_zero():
    tiny = explained(CheckIn(1000), prior=0.01)
    assert "99 % of the time; looking adds at most" in explanation_rows(tiny)["prior 1 %"]


def test_an_explanation_under_replace_one_has_one_direction():
    replaced = explained(EveryStep(3), relation=Relation.REPLACE_ONE, sigma=2.0)
    record = explanation_record(replaced)
    assert list(record["true_positive_rates"][0]) == ["false_positive_rate", "replace"]
    single = explained(EveryStep(3), sigma=2.0)
    assert record["advantage"] > single.advantage.upper
    assert "the client's data are these" in explanation_rows(replaced)["prior 50 %"]


def test_an_explanation_reports_a_missing_gaussian_bound():
    """For two hops at small σ, no bound below δ = 1 at ε = 0 is proved."""
    one_client = {"relation": Relation.ZERO_OUT, "release": ReleaseRule.ONE_CLIENT}
    loose = explained(FixedAssignment(10, 2), sigma=0.45, **one_client)
    assert loose.fit is None
    assert explanation_record(loose)["gaussian"] is None
    assert "no Gaussian" in explanation_rows(loose)["Gaussian"]


@pytest.mark.parametrize(
    ("participation", "relation", "rest"),
    [
        (PoissonSampling(0.0, 10), Relation.ADD_REMOVE, {}),
        (PoissonSampling(0.02, 10), Relation.ZERO_OUT, {}),
        (FixedAssignment(5, 2), Relation.ZERO_OUT, {"release": ReleaseRule.ONE_CLIENT}),
        (CheckIn(10, 2), Relation.REPLACE_ONE, {"release": ReleaseRule.AVERAGED}),
    ],
)
def test_every_kind_of_scheme_is_explained(participation, relation, rest):
    found = explained(participation, sigma=3.0, relation=relation, **rest)
    assert 0 <= found.advantage.lower <= found.advantage.upper < 1
    assert found.success(0.5).upper >= 0.5
    assert len(explanation_rows(found)) == 5


@pytest.mark.parametrize("prior", [0.0, 1.0, math.nan])
def test_a_prior_outside_its_domain_is_refused(prior):
    with pytest.raises(ParameterError, match="prior"):
        explained(EveryStep(1), prior=prior)


def test_a_prior_of_one_half_is_printed_once():
    assert explained(EveryStep(1), prior=0.5).priors == (0.5,)


@pytest.mark.parametrize(
    ("ending", "start"), [(".svg", b"<?xml"), (".PNG", b"\x89PNG"), (".pdf", b"%PDF")]
)
def test_the_trade_off_picture_is_written_in_every_format(checked_in, tmp_path, ending, start):
    path = check_format(str(tmp_path / f"picture{ending}"))
    trade_off_picture(checked_in).write(path)
    assert path.read_bytes().startswith(start)
    assert len(path.read_bytes()) > 10_000


def test_the_trade_off_picture_has_a_title_and_labels(checked_in):
    picture = trade_off_picture(checked_in)
    svg = picture.svg()
    assert svg == picture.svg()
    for word in (
        "chance level",
        "no privacy",
        "Gaussian",
        "remove",
        "add",
        "quoted",
        "this scheme",
    ):
        assert word in svg
    assert "minus its false positive rate is at most" in picture.text


def test_a_picture_in_an_unknown_format_or_unwritable_place_is_refused(checked_in, tmp_path):
    for name in ("picture.jpg", "picture", ""):
        with pytest.raises(ParameterError, match="--picture"):
            check_format(name)
    (tmp_path / "folder.png").mkdir()
    with pytest.raises(StorageError):
        trade_off_picture(checked_in).write(tmp_path / "folder.png")
