"""Fields of schemes: wrong words, types and numbers are errors."""

import math
from dataclasses import fields
from fractions import Fraction

import numpy as np
import pytest

from turnout import schemes
from turnout.accounting import price
from turnout.accounting.budgets.plan import BudgetTerms
from turnout.core import checks
from turnout.core.errors import ParameterError, UnsupportedError
from turnout.schemes import (
    ApproximateRandomizer,
    AttainedVariation,
    AvailabilityCheckIn,
    BoundedVariation,
    CheckIn,
    DiscreteGaussianNoise,
    EveryStep,
    FixedAssignment,
    FixedSize,
    GaussianNoise,
    KaryResponse,
    KSubset,
    LaplaceNoise,
    PairRandomizer,
    PoissonSampling,
    PrivacyUnit,
    PureRandomizer,
    Relation,
    ReleaseRule,
    RepeatedMessages,
    Scheme,
    SelfSampling,
    SlidingWindow,
    TableRandomizer,
    TrustModel,
)
from turnout.schemes.codec import scheme_from_dict, scheme_to_dict

NOISE, PARTICIPATION = GaussianNoise(1.0), CheckIn(5)
CHOICES = {"relation": Relation, "release": ReleaseRule, "unit": PrivacyUnit, "trust": TrustModel}
NO_CHOICE = ["", "Add-Remove", "add_remove", "add-remove ", None, 0, True, 1.5, [], ("central",)]


def scheme(**changes):
    return Scheme(
        **({"randomizer": NOISE, "participation": PARTICIPATION, "relation": "zero-out"} | changes)
    )


@pytest.mark.parametrize(("field", "choices"), CHOICES.items())
def test_the_text_of_an_enumeration_member_becomes_the_member(field, choices):
    for member in choices:
        for word in (member, member.value, np.str_(member.value)):
            assert getattr(scheme(**{field: word}), field) is member
            assert scheme(**{field: word}) == scheme(**{field: member})
            assert hash(scheme(**{field: word})) == hash(scheme(**{field: member}))


@pytest.mark.parametrize(("field", "choices"), CHOICES.items())
@pytest.mark.parametrize("wrong", [*NO_CHOICE, "record", "average", TrustModel, Relation])
def test_an_error_about_an_unknown_text_lists_the_possible_values(field, choices, wrong):
    with pytest.raises(ParameterError) as refused:
        scheme(**{field: wrong})
    assert refused.value.name == field
    assert all(repr(member.value) in refused.value.expected for member in choices)


def test_a_member_of_another_enumeration_is_refused():
    class Other(schemes.scheme.StrEnum):
        CLIENT = "client"

    with pytest.raises(ParameterError, match="unit"):
        scheme(unit=Other.CLIENT)
    with pytest.raises(ParameterError, match="relation"):
        scheme(relation=TrustModel.CENTRAL)
    assert checks.choice(PrivacyUnit, unit="client") is PrivacyUnit.CLIENT


@pytest.mark.parametrize(
    ("relation", "release", "expected"),
    [
        ("add-remove", "aggregated", 0.17175),
        ("zero-out", "aggregated", 0.17175),
        ("replace-one", "aggregated", 0.26748),
        ("zero-out", "averaged", 4.8861),
    ],
)
def test_texts_and_enumeration_members_give_the_same_guarantee(relation, release, expected):
    words = Scheme(NOISE, CheckIn(1000), relation, release=release)
    members = Scheme(NOISE, CheckIn(1000), Relation(relation), ReleaseRule(release))
    guarantee = price(words, 1e-6, tolerance=1e-2)
    assert guarantee.epsilon == price(members, 1e-6, tolerance=1e-2).epsilon
    assert guarantee.epsilon.upper == pytest.approx(expected, rel=1e-4)
    assert guarantee.relation is Relation(relation)


def test_budget_terms_accept_the_texts_of_enumeration_members():
    assert (
        BudgetTerms("zero-out")
        == BudgetTerms.of(scheme())
        == BudgetTerms.from_dict(BudgetTerms("zero-out").to_dict())
    )
    for wrong in ({"relation": "zero_out"}, {"unit": "record"}, {"trust": None}):
        with pytest.raises(ParameterError, match=next(iter(wrong))):
            BudgetTerms(**({"relation": "zero-out"} | wrong))


OPEN = (
    "Participation",
    "Randomizer",
    "SpeakingOrder",
    *(kind.__name__ for kind in CHOICES.values()),
)
"""Names of `turnout.schemes` that are unions or enumerations, which cannot have subclasses."""


class _Mine:
    """Class that is not registered, with the attributes of participations and randomizers."""

    steps, window, windows, rate, probability, epsilon0 = 5, 5, 1, 0.1, 1.0, 1.0


@pytest.mark.parametrize("field", ["randomizer", "participation"])
@pytest.mark.parametrize(
    "wrong", [None, "check-in", 1.0, 5, True, CheckIn, GaussianNoise, Relation.ZERO_OUT]
)
def test_other_types_are_refused_as_randomizer_or_participation(field, wrong):
    with pytest.raises(ParameterError) as refused:
        scheme(**{field: wrong})
    assert refused.value.name == field


def test_objects_of_unknown_classes_are_refused():
    for field, wrong in (
        ("randomizer", _Mine()),
        ("participation", _Mine()),
        ("randomizer", PARTICIPATION),
        ("participation", NOISE),
        ("participation", [PARTICIPATION]),
    ):
        with pytest.raises(ParameterError, match="an object of one of") as refused:
            scheme(**{field: wrong})
        assert refused.value.name == field


@pytest.mark.parametrize(
    "known", [getattr(schemes, name) for name in schemes.__all__ if name not in (*OPEN, "Scheme")]
)
def test_classes_of_scheme_parts_cannot_be_subclassed(known):
    with pytest.raises(UnsupportedError, match=f"Mine cannot be a subclass of {known.__name__}"):
        type("Mine", (known,), {})


@pytest.mark.parametrize("population", [0, -3, 2.0, "7", True, math.nan])
def test_a_population_that_is_not_a_whole_number_is_refused(population):
    with pytest.raises(ParameterError, match="population"):
        scheme(population=population)


@pytest.mark.parametrize(
    "participation",
    [
        FixedSize(2, 6, 3),
        SlidingWindow(2, 3, 2),
        AvailabilityCheckIn(np.ones((6, 4), dtype=bool), 2),
    ],
)
def test_a_population_that_contradicts_the_participation_is_refused(participation):
    assert scheme(participation=participation, population=6).population == 6
    with pytest.raises(ParameterError, match="expected 6, the number of clients of"):
        scheme(participation=participation, population=7)


# Every field of every participation and randomizer: name, a valid value, and invalid ones.
COUNT = [0, -1, 2.0, 2.5, "3", True, None, math.nan, np.float64(2.0), Fraction(5, 2), np.array([2])]
CHANCE = [-0.1, 1.1, math.nan, math.inf, "0.5", True, None, np.bool_(True), 0.5j, np.array([0.5])]
ABOVE_ZERO = [0.0, -1.0, math.nan, math.inf, "1.0", True, None, 10**400, np.array([1.0]), [1.0]]
NUMBERS = [
    (EveryStep, {"steps": 2}, "steps", COUNT),
    *[
        (kind, {"rate": 0.5, "steps": 2}, name, wrong)
        for kind in (PoissonSampling, SelfSampling)
        for name, wrong in (("rate", CHANCE), ("steps", COUNT))
    ],
    *[
        (FixedSize, {"size": 2, "population": 5, "steps": 2}, name, COUNT)
        for name in ("size", "steps")
    ],
    (FixedSize, {"size": 2, "population": 5, "steps": 2}, "population", [*COUNT, 1]),
    *[
        (CheckIn, {"window": 2, "windows": 2, "probability": 0.5}, name, wrong)
        for name, wrong in (("window", COUNT), ("windows", COUNT), ("probability", CHANCE))
    ],
    *[
        (SlidingWindow, {"window": 2, "slots": 4, "clients_per_slot": 1}, name, COUNT)
        for name in ("window", "slots", "clients_per_slot")
    ],
    *[
        (KSubset, {"window": 5, "picks": 2, "windows": 2}, name, COUNT)
        for name in ("window", "picks", "windows")
    ],
    *[
        (FixedAssignment, {"window": 5, "epochs": 2, "probability": 0.5}, name, wrong)
        for name, wrong in (("window", COUNT), ("epochs", COUNT), ("probability", CHANCE))
    ],
    *[
        (AvailabilityCheckIn, {"available": np.ones((2, 4), bool), "window": 2}, name, wrong)
        for name, wrong in (
            ("window", COUNT),
            ("probability", CHANCE),
            ("available", [None, "yes", [[True]], np.ones((2, 4)), np.ones(4, bool), True]),
        )
    ],
    (GaussianNoise, {"noise_multiplier": 1.0}, "noise_multiplier", ABOVE_ZERO),
    (LaplaceNoise, {"scale": 1.0}, "scale", ABOVE_ZERO),
    *[
        (kind, {"epsilon0": 1.0}, "epsilon0", ABOVE_ZERO)
        for kind in (PureRandomizer, *schemes.randomizers.FIXED_RANDOMIZERS)
    ],
    (KaryResponse, {"epsilon0": 1.0}, "categories", [*COUNT, 1]),
    (RepeatedMessages, {"epsilon0": 1.0}, "messages", [*COUNT, 2]),
    (RepeatedMessages, {"epsilon0": 1.0}, "each", [None, 1.0, PureRandomizer(1.0), NOISE]),
    (BoundedVariation, {"epsilon0": 1.0}, "total_variation", [*CHANCE, 0.0]),
    (AttainedVariation, {"epsilon0": 1.0}, "total_variation", [*CHANCE, 0.0]),
    *[
        (ApproximateRandomizer, {"epsilon0": 1.0, "delta0": 0.1}, name, wrong)
        for name, wrong in (("epsilon0", ABOVE_ZERO), ("delta0", [*CHANCE, 0.0, 1.0]))
    ],
    *[
        (kind, {"standard_deviation": 1.0, "sensitivity": 1}, name, wrong)
        for kind in (DiscreteGaussianNoise, schemes.RoundedGaussianNoise)
        for name, wrong in (("standard_deviation", ABOVE_ZERO), ("sensitivity", COUNT))
    ],
]


@pytest.mark.parametrize(("kind", "fitting", "name", "wrong"), NUMBERS)
def test_numbers_of_a_scheme_outside_their_domain_are_refused(kind, fitting, name, wrong):
    kind(**fitting)
    for value in wrong:
        with pytest.raises(ParameterError) as refused:
            kind(**(fitting | {name: value}))
        assert refused.value.name in fitting | {name: None}


def test_every_number_of_a_scheme_has_a_test_with_values_outside_its_domain():
    tabled = {(kind.__name__, name) for kind, _, name, _ in NUMBERS}
    special = {"TableRandomizer", "PairRandomizer", "Scheme"}  # they have their own tests
    for name in set(schemes.__all__) - special - set(OPEN):
        assert {(name, field.name) for field in fields(getattr(schemes, name))} <= tabled


@pytest.mark.parametrize(
    "present",
    [
        (0.5, 0.6),
        (0.5, 0.25),
        (1.5, -0.5),
        (math.nan, 0.5),
        (True, False),
        ("0.5", "0.5"),
        "11",
        {0.5: 1, 0.25: 2},
        0.5,
        None,
        (),
        (0.5, 0.25, 0.25),
        np.array([[0.5, 0.5]]),
    ],
)
def test_a_table_randomizer_needs_two_distributions_over_the_same_outcomes(present):
    for table in ({"present": present, "absent": (0.25, 0.75)}, {"present": (0.25, 0.75)}):
        with pytest.raises(ParameterError, match=r"present|absent"):
            TableRandomizer(**({"absent": present} | table))


def test_a_table_randomizer_accepts_any_sequence_of_numbers():
    plain = TableRandomizer((0.5, 0.5), (0.25, 0.75))
    for kind in (list, np.array, lambda v: np.array(v, np.float32), lambda v: map(Fraction, v)):
        assert TableRandomizer(kind([0.5, 0.5]), kind([0.25, 0.75])) == plain


@pytest.mark.parametrize("pair", [None, "gaussian", 1.0, _Mine(), _Mine, NOISE])
def test_a_custom_pair_without_its_tail_functions_is_refused(pair):
    with pytest.raises(ParameterError, match="q_below"):
        PairRandomizer(pair)


def test_numpy_numbers_in_a_scheme_become_python_numbers():
    """In int8, 100 windows of 100 steps are 16 steps; float16 rounds at every operation."""
    assert CheckIn(np.int8(100), np.int8(100)).steps == 10_000
    held = [
        (CheckIn(np.uint8(200), np.int16(3), np.float32(0.5)), CheckIn(200, 3, 0.5)),
        (SlidingWindow(np.int8(100), np.int8(120), np.int8(100)), SlidingWindow(100, 120, 100)),
        (GaussianNoise(np.float16(1.5)), GaussianNoise(1.5)),
        (KaryResponse(np.float32(1.5), np.int8(3)), KaryResponse(1.5, 3)),
        (ApproximateRandomizer(Fraction(1, 2), 0.25), ApproximateRandomizer(0.5, 0.25)),
    ]
    for ours, plain in held:
        assert ours == plain
        assert repr(ours) == repr(plain)
    assert type(scheme(population=np.int8(100)).population) is int


def test_a_scheme_does_not_change_if_the_given_trace_array_changes():
    trace = np.ones((3, 4), dtype=bool)
    participation = AvailabilityCheckIn(trace, 2)
    trace[:] = False
    assert participation.available.all()
    with pytest.raises(ValueError, match="read-only"):
        participation.available[0, 0] = False


def _changed(path, value):
    plain = scheme_to_dict(scheme(population=9))
    *parents, last = path
    inner = plain
    for part in parents:
        inner = inner[part]
    inner[last] = value
    return plain


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("relation",), "zero_out"),
        (("relation", "value"), "zero_out"),
        (("relation", "value"), None),
        (("relation", "is"), "TrustModel"),
        (("relation",), {"is": "TrustModel", "value": "central"}),
        (("release",), None),
        (("unit", "value"), "record"),
        (("trust",), 0),
        (("participation",), "check-in"),
        (("participation", "is"), "checkin"),
        (("participation", "window"), "5"),
        (("participation", "window"), 5.0),
        (("participation", "window"), True),
        (("participation", "Window"), 5),
        (("participation", "probability"), math.nan),
        (("participation",), {"is": "GaussianNoise", "noise_multiplier": 1.0}),
        (("randomizer",), {"is": "CheckIn", "window": 5}),
        (("randomizer", "noise_multiplier"), math.inf),
        (("randomizer", "noise_multiplier"), "1.0"),
        (("randomizer", "infinity_mass"), 0.0),
        (("population",), "9"),
        (("population",), 9.5),
        (("sequence",), "anything"),
    ],
)
def test_an_invalid_dictionary_of_a_scheme_is_refused(path, value):
    assert scheme_from_dict(scheme_to_dict(scheme(population=9))) == scheme(population=9)
    with pytest.raises(ParameterError):
        scheme_from_dict(_changed(path, value))


def test_the_text_of_an_enumeration_member_in_a_scheme_dictionary_becomes_the_member():
    assert scheme_from_dict(_changed(("relation",), "zero-out")).relation is Relation.ZERO_OUT


@pytest.mark.parametrize(
    "array",
    [
        {"is": "array", "type": "bool", "values": [[2, 0], [0, 1]]},
        {"is": "array", "type": "bool", "values": [["no", ""], ["", "yes"]]},
        {"is": "array", "type": "int64", "values": [[1, 0], [0, 1]]},
        {"is": "array", "type": "bool", "values": [True, False]},
        {"is": "array", "type": "bool", "values": [[True], [True, False]]},
        {"is": "array", "values": [[True]]},
        {"is": "tuple", "values": [[True]]},
        [[True, False], [False, True]],
    ],
)
def test_a_trace_with_non_boolean_values_in_a_scheme_dictionary_is_refused(array):
    plain = scheme_to_dict(scheme(participation=AvailabilityCheckIn(np.eye(2, dtype=bool), 1)))
    assert scheme_from_dict(plain).participation.available.tolist() == [
        [True, False],
        [False, True],
    ]
    plain["participation"]["available"] = array
    with pytest.raises(ParameterError, match=r"array|available"):
        scheme_from_dict(plain)
