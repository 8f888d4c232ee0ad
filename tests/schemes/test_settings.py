"""Settings of schemes: declared once by each class, and named in errors as users wrote them."""

from __future__ import annotations

import re

import pytest

from turnout.core.errors import ParameterError
from turnout.schemes import (
    CheckIn,
    FixedSize,
    GaussianNoise,
    KSubset,
    PoissonSampling,
    PureRandomizer,
    Relation,
    ReleaseRule,
    Scheme,
    SlidingWindow,
    SpeakingOrder,
)
from turnout.schemes.registry import all_participations, question_randomizers
from turnout.schemes.scheme import (
    SHUFFLES,
    SelfSamplingShuffle,
    Shuffle,
    SubsampledShuffle,
    shuffle_of,
    shuffled,
)
from turnout.schemes.settings import (
    PrivacyTarget,
    noise_setting,
    participation_of,
    scheme_kinds,
    scheme_of,
    scheme_settings,
    settings,
    values_of,
)

CHECK_IN = {"scheme": "check-in", "window": 5, "relation": "add-remove", "noise_multiplier": 2}


def keys(own):
    return [each.key for each in own]


def test_the_settings_of_a_class_are_its_public_parameters():
    assert keys(settings(CheckIn)) == ["window", "windows", "probability"]
    assert keys(settings(FixedSize)) == ["size", "steps"]  # the population follows from the plan
    assert keys(settings(GaussianNoise)) == ["noise_multiplier"]
    assert keys(settings(SubsampledShuffle)) == ["sampled", "clients", "rounds", "order"]
    assert keys(settings(PrivacyTarget)) == ["delta", "epsilon", "tolerance"]


def test_every_setting_has_an_explanation():
    kinds = [*all_participations(), *question_randomizers().values(), *SHUFFLES.values()]
    assert all(each.words for kind in kinds for each in settings(kind))
    assert all(scheme_settings(word) for word in scheme_kinds())


def test_each_randomizer_class_has_its_noise_setting():
    for kind, key in ((GaussianNoise, "noise_multiplier"), (PureRandomizer, "epsilon0")):
        noise = noise_setting(kind)
        assert noise is not None
        assert noise.key == key
    assert noise_setting(CheckIn) is None


def test_missing_settings_have_defaults_and_numbers_become_python_numbers():
    values = values_of(settings(CheckIn), {"window": 5, "probability": 1})
    assert values == {"window": 5, "windows": 1, "probability": 1.0}
    assert type(values["probability"]) is float


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ({}, "window = (missing): expected a value (number of steps of a window)"),
        (
            {"window": 4},
            "picks = (missing): expected a value (number of steps in which a client participates",
        ),
        ({"window": 4.0, "picks": 2}, "window = 4.0: expected a whole number of at least 1"),
        ({"window": 4, "picks": 5}, "picks = 5: expected at most window = 4"),
    ],
)
def test_an_error_about_an_invalid_setting_names_its_key(given, line):
    with pytest.raises(ParameterError, match=re.escape(line)):
        values_of(settings(KSubset), given)


@pytest.mark.parametrize(
    ("changes", "scheme"),
    [
        ({}, Scheme(GaussianNoise(2.0), CheckIn(5), "add-remove")),
        (
            {"release": "averaged", "clients": 9},
            Scheme(
                GaussianNoise(2.0),
                CheckIn(5),
                Relation.ADD_REMOVE,
                ReleaseRule.AVERAGED,
                population=9,
            ),
        ),
        (
            {"randomizer": "pure", "noise_multiplier": None, "epsilon0": 1},
            Scheme(PureRandomizer(1.0), CheckIn(5), "add-remove"),
        ),
    ],
)
def test_scheme_of_returns_the_scheme_with_the_given_settings(changes, scheme):
    given = {**CHECK_IN, **changes}
    assert scheme_of({key: value for key, value in given.items() if value is not None}) == scheme


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"rate": 0.1}, "the rate = 0.1: expected only with the scheme poisson or self-sampling"),
        ({"scale": 1.0}, "the scale = 1.0: expected only with the randomizer laplace"),
        ({"window": 0}, "the window = 0: expected a whole number of at least 1"),
        ({"widow": 3}, "the widow = 3: expected one of the clients, the noise_multiplier, the "),
        ({"clients": 9}, "the clients = 9: expected only with the release averaged"),
        ({"scheme": "lottery"}, "the scheme = 'lottery': expected one of 'none', 'poisson', "),
    ],
)
def test_errors_name_settings_as_the_user_wrote_them(changes, line):
    with pytest.raises(ParameterError, match=re.escape(line)):
        scheme_of({**CHECK_IN, **changes}, "the {}".format)


def test_missing_sizes_of_a_participation_are_filled_in():
    assert participation_of(SlidingWindow, {"window": 5, "clients_per_slot": 1}, None) == (
        SlidingWindow(5, 9)
    )
    assert participation_of(FixedSize, {"size": 3, "steps": 2}, 7) == FixedSize(3, 7, 2)


SHUFFLED = [
    Shuffle(9, 2, SpeakingOrder.KNOWN),
    SubsampledShuffle(4, 9, 2, SpeakingOrder.KNOWN),
    SelfSamplingShuffle(0.5, 9, 2, SpeakingOrder.KNOWN),
]


@pytest.mark.parametrize("shuffle", SHUFFLED)
def test_shuffle_of_returns_the_settings_of_a_shuffled_scheme(shuffle):
    assert shuffle_of(shuffle.scheme(PureRandomizer(1.0))) == shuffle
    assert shuffle_of(Scheme(GaussianNoise(1.0), CheckIn(5), "add-remove")) is None


def test_shuffled_refuses_both_sampled_and_rate():
    with pytest.raises(ParameterError, match=r"rate = 0\.5: expected no value, since sampled"):
        shuffled(PureRandomizer(1.0), 9, sampled=3, rate=0.5)
    assert shuffled(PureRandomizer(1.0), 9, rate=0.5).participation != PoissonSampling(0.5, 1)


def test_the_default_order_is_hidden_for_adaptive_randomizers_only():
    assert Shuffle(9).scheme(PureRandomizer(1.0)).order is SpeakingOrder.HIDDEN
    assert Shuffle(9).scheme(GaussianNoise(1.0)).order is None
    assert Shuffle(9, order="known").order is SpeakingOrder.KNOWN
