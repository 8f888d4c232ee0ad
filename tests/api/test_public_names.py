"""Public names of the package, what its import loads, and what all results have in common."""

from __future__ import annotations

import json
import math
import subprocess
import sys

import pytest

import turnout as tn
from turnout.core import optional

NAMES = """
ApproximateRandomizer Audit Bounds BudgetExceededError CheckIn Comparison DiscreteGaussianNoise
EveryStep FixedAssignment FixedSize GaussianNoise Guarantee HadamardResponse KSubset KaryResponse
LaplaceNoise NonAdaptiveRandomizer NumericalError ParameterError PoissonSampling Price PrivacyCurve
PureRandomizer Refinement RoundedGaussianNoise SampledBitResponse SamplerComparison Scheme
SelfSampling SlidingWindow TableRandomizer TrainedModel TurnoutError UnsupportedError audit bandit
calibrate client_data compare compare_samplers estimate_frequencies estimate_mean explain
limited_frequencies load price refine shuffled simulate train training_run tune
"""
SCHEME = tn.Scheme(tn.GaussianNoise(1.0), tn.CheckIn(window=50), relation="add-remove")
SHUFFLED = tn.shuffled(tn.PureRandomizer(1.0), clients=1000)


def test_public_names_of_the_package_equal_the_expected_names():
    assert dir(tn) == sorted(NAMES.split())
    for name in dir(tn):
        assert getattr(tn, name).__name__ == name
    with pytest.raises(AttributeError, match="'turnout' has no attribute 'Founding'"):
        tn.Founding  # noqa: B018


def test_import_turnout_loads_no_unused_package():
    script = "import sys; import turnout; print(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    loaded = set(run.stdout.split())
    ours = {name for name in loaded if name.partition(".")[0] == "turnout"}
    own = {"turnout", "turnout._version", "turnout.core"}
    assert ours == own | {"turnout.core.errors", "turnout.core.optional"}
    assert not loaded & {"numpy", "scipy", "click", "pydantic", "rich", "dataclasses"}
    heavy = (
        "import sys; import turnout; sys.exit(len({'numpy', 'scipy', 'click'} & {*sys.modules}))"
    )
    assert subprocess.run([sys.executable, "-c", heavy], check=False).returncode == 0


def test_arguments_with_an_enumeration_type_accept_text():
    assert SCHEME.relation.value == "add-remove"
    with pytest.raises(tn.ParameterError, match="relation = 'swap': expected"):
        tn.Scheme(tn.GaussianNoise(1.0), tn.CheckIn(5), relation="swap")


ANSWERS = {
    "price": lambda: tn.price(SCHEME, delta=1e-6),
    "explain": lambda: tn.explain(SCHEME, delta=1e-6, prior=0.2),
    "calibrate": lambda: tn.calibrate(
        tn.CheckIn(window=50), epsilon=1, delta=1e-6, relation="add-remove"
    ),
    "compare": lambda: tn.compare(SHUFFLED, against="epsilon0", values=[0.5, 1], delta=1e-6),
}


@pytest.mark.parametrize("verb", ANSWERS)
def test_every_result_has_text_json_a_table_a_picture_and_equality(verb):
    answer, again = ANSWERS[verb](), ANSWERS[verb]()
    assert len(repr(answer)) < 120
    assert repr(answer) == repr(again)
    assert json.loads(answer.to_json()) == answer.to_dict()
    assert "<table" in answer._repr_html_()
    assert answer.plot().svg().startswith("<?xml")
    assert answer == again
    assert answer != tn.price(SCHEME, delta=1e-7)
    with pytest.raises(TypeError, match="unhashable"):
        hash(answer)


@pytest.mark.parametrize("verb", ["price", "compare"])
def test_an_error_about_a_missing_extra_names_the_extra(verb, monkeypatch):
    answer = ANSWERS[verb]()
    monkeypatch.setattr(optional, "EXTRAS", {"plots": ("no_such_package",)})
    with pytest.raises(tn.TurnoutError, match=r"plot.*\[plots\]"):
        answer.plot()


def test_explain_returns_the_same_epsilon_and_sentences_as_price():
    price = tn.price(SCHEME, delta=1e-6)
    explained = tn.explain(price)
    assert (price.explanation, explained.epsilon) == (None, price.epsilon)
    assert explained.explanation is not None
    assert 0.5 < explained.explanation.success(0.5).upper < 1
    assert explained != price
    assert explained.sentences == price.sentences
    assert price.sentences["membership inference"].startswith("accuracy at most 53.")
    with pytest.raises(
        tn.ParameterError, match="delta = 1e-05: expected no value, since the price has"
    ):
        tn.explain(price, delta=1e-5)
    with pytest.raises(tn.ParameterError, match="delta = None"):
        tn.explain(SCHEME)


def test_a_calibrated_scheme_has_the_epsilon_that_price_returns():
    found = tn.calibrate(SCHEME, epsilon=1, delta=1e-6)
    assert found == tn.calibrate(SCHEME.participation, epsilon=1, delta=1e-6, relation="add-remove")
    assert found.value == found.noise_multiplier == found.scheme.randomizer.noise_multiplier
    assert found.epsilon == tn.price(found.scheme, delta=1e-6).epsilon
    assert 0.99 < found.epsilon.upper <= 1


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ({"solve_for": "rate"}, "solve_for = 'rate': expected one of 'noise-multiplier', 'window'"),
        ({"solve_for": None}, "solve_for = None: expected one of 'noise-multiplier', 'window'"),
        (
            {"relation": "zero-out"},
            "relation = 'zero-out': expected no value, since the scheme has a relation",
        ),
        ({"delta": None}, "delta = None: expected a number strictly between 0 and 1"),
        ({"solve_for": "delta"}, "delta = 1e-06: expected no value, since δ is solved for"),
        ({"epsilon": -1.0}, "epsilon = -1.0: expected"),
        ({"scheme": tn.CheckIn(5)}, "relation = None: expected one of"),
    ],
)
def test_impossible_calibrations_are_refused(given, line):
    given = {"scheme": SCHEME, "epsilon": 1.0, "delta": 1e-6, **given}
    with pytest.raises(tn.ParameterError) as refusal:
        tn.calibrate(given.pop("scheme"), **given)
    assert str(refusal.value).startswith(line)


def test_a_calibration_result_has_name_and_value_of_the_randomizer_setting():
    found = tn.calibrate(
        tn.Scheme(tn.LaplaceNoise(1.0), tn.CheckIn(50), relation="add-remove"),
        epsilon=1,
        delta=1e-6,
    )
    assert (found.solved_for, found.value) == ("scale", found.scheme.randomizer.scale)
    with pytest.raises(tn.ParameterError, match="expected GaussianNoise"):
        _ = found.noise_multiplier


@pytest.mark.parametrize(
    ("scheme", "given", "line"),
    [
        (SCHEME, {"against": "window"}, "values = (): expected at least two different values"),
        (SCHEME, {"against": "window", "values": [9, math.nan]}, "values = (9, nan): expected fin"),
        (SCHEME, {"against": "window", "values": [9, "x"]}, "values = (9, 'x'): expected fin"),
        (SCHEME, {"against": "rate", "values": [1, 2]}, "against = 'rate': expected"),
        (SCHEME, {"against": "window", "values": [2.5, 5]}, "window = 2.5: expected a whole"),
        (
            SHUFFLED,
            {"values": [1.0, 2.0]},
            "values = (1.0, 2.0): expected no values unless against is given",
        ),
        (
            SHUFFLED,
            {"against": "delta", "values": [1e-6, 1e-5]},
            "delta = 1e-06: expected no value",
        ),
        (SHUFFLED, {"delta": None}, "delta = None: expected a number strictly between"),
        (SHUFFLED, {"delta": 0.0}, "delta = 0.0: expected a number strictly between"),
    ],
)
def test_invalid_comparisons_are_refused(scheme, given, line):
    with pytest.raises(tn.ParameterError) as refusal:
        tn.compare(scheme, **{"delta": 1e-6, **given})
    assert str(refusal.value).startswith(line)


def test_schemes_without_methods_to_compare_are_refused():
    for law in (tn.EveryStep(3), tn.CheckIn(5, probability=0.5)):
        scheme = tn.Scheme(tn.GaussianNoise(1.0), law, relation="add-remove")
        with pytest.raises(tn.UnsupportedError, match="methods can be compared only for check-ins"):
            tn.compare(scheme, against="window", values=[1, 2], delta=1e-6)
    with pytest.raises(tn.UnsupportedError, match="no curve to draw"):
        tn.compare(SHUFFLED, delta=1e-6).plot()
