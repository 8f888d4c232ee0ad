"""Plans whose clients randomize their own updates: guarantees and errors."""

from __future__ import annotations

from typing import Any

import pytest

import turnout as tn
from turnout.core.errors import ParameterError, UnsupportedError
from turnout.plans import Plan, prepare
from turnout.plans.plan import RandomizerSection
from turnout.randomizers.vectors import L1Randomizer, LInfRandomizer, SeededCode
from turnout.schemes import BoundedVariation, NonAdaptiveRandomizer, RepeatedMessages, Scheme
from turnout.schemes.scheme import shuffled

CLIENTS, DELTA = 1000, 1e-4
TABLES: dict[str, dict[str, Any]] = {
    "model": {"name": "logistic"},
    "participation": {"law": "fixed-size", "size": 400, "steps": 5},
    "privacy": {"trust": "shuffled", "relation": "replace-one", "delta": DELTA, "clip_norm": 0.5},
    "randomizer": {"epsilon0": 1.0},
    "optimizer": {"learning_rate": 1.0},
}


def plan(**changes: dict[str, Any]) -> Plan:
    """The plan with changed keys; None removes a key."""
    tables = {name: dict(table) for name, table in TABLES.items()}
    for name, keys in changes.items():
        tables.setdefault(name, {}).update(keys)
        tables[name] = {key: value for key, value in tables[name].items() if value is not None}
    return Plan.from_mapping(tables)


def test_the_guarantee_of_a_plan_equals_that_of_its_message_randomizer():
    prepared = prepare(plan(), CLIENTS)
    built = prepared.messages(50)
    assert isinstance(built, SeededCode)
    assert (built.radius, built.epsilon0) == (0.5, prepared.epsilon0)
    expected = tn.price(shuffled(built.priced_as, CLIENTS, 5, sampled=400), delta=DELTA)
    assert prepared.guarantee.epsilon == expected.epsilon
    assert prepared.scheme.randomizer == built.priced_as
    assert isinstance(built.priced_as, BoundedVariation)


@pytest.mark.parametrize(
    ("norm", "kind"), [("l1", L1Randomizer), ("l2", SeededCode), ("linf", LInfRandomizer)]
)
@pytest.mark.parametrize("dimension", [16, 300, 13706])
def test_the_guarantee_of_a_message_does_not_depend_on_the_model_dimension(norm, kind, dimension):
    section = RandomizerSection.model_validate({"norm": norm})
    built = section.build(dimension, 1.3, 0.2)
    assert isinstance(built, kind)
    assert built.priced_as == section.priced_as(1.3)
    assert built.message_bits <= 64


def test_the_calibrated_epsilon0_is_the_largest_within_the_target():
    changes = {"randomizer": {"epsilon0": None}, "privacy": {"epsilon": 0.5}}
    prepared = prepare(plan(**changes), CLIENTS)
    assert prepared.guarantee.epsilon.upper <= 0.5
    assert prepared.epsilon0 is not None
    more = prepare(plan(randomizer={"epsilon0": prepared.epsilon0 * 1.002}), CLIENTS)
    assert more.guarantee.epsilon.upper > 0.5


def test_an_epsilon0_above_the_target_is_refused():
    with pytest.raises(ParameterError, match=r"epsilon = 0\.01: expected at least .*the proved ε"):
        prepare(plan(privacy={"epsilon": 0.01}), CLIENTS)


def test_a_plan_under_local_trust_has_the_epsilon_of_unshuffled_messages():
    local = prepare(plan(privacy={"trust": "local"}), CLIENTS)
    shuffled_one = prepare(plan(), CLIENTS)
    assert shuffled_one.guarantee.epsilon.upper < local.guarantee.epsilon.upper <= 5.0
    law = shuffled_one.scheme.randomizer
    expected = Scheme(law, local.scheme.participation, "replace-one", trust="local")
    assert local.guarantee.epsilon.upper == tn.price(expected, delta=DELTA).epsilon.upper


def test_several_messages_of_a_client_have_one_joint_guarantee():
    one, three = prepare(plan(), CLIENTS), prepare(plan(randomizer={"messages": 3}), CLIENTS)
    assert (one.epsilon0, three.epsilon0) == (1.0, 1.0)
    assert isinstance(one.scheme.randomizer, NonAdaptiveRandomizer)
    assert three.scheme.randomizer == RepeatedMessages.of(one.scheme.randomizer, 3)
    upper = one.guarantee.epsilon.upper
    assert 1.5 * upper < three.guarantee.epsilon.upper < 3 * upper
    everybody = {"law": "every-step", "size": None, "steps": 5}
    found = prepare(plan(participation=everybody, randomizer={"messages": 3}), CLIENTS)
    rounds = prepare(plan(participation=everybody | {"steps": 15}), CLIENTS)
    assert found.guarantee.epsilon == rounds.guarantee.epsilon


def test_the_error_about_a_shuffle_without_analysis_gives_the_local_epsilon():
    check_ins = {"law": "check-in", "window": 5, "size": None, "steps": None}
    with pytest.raises(UnsupportedError, match=r"'local' the plan has ε = 1, ε₀ = 1 a mess"):
        prepare(plan(participation=check_ins), CLIENTS)


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"randomizer": {"epsilon0": 0.0}}, "randomizer.epsilon0 = 0.0"),
        ({"randomizer": {"epsilon0": -1.0}}, "randomizer.epsilon0 = -1.0"),
        ({"randomizer": {"epsilon0": float("nan")}}, "randomizer.epsilon0 = nan"),
        ({"randomizer": {"epsilon0": 31.0}}, "epsilon0 = 31.0: expected a number from 1e-06 to 30"),
        ({"randomizer": {"messages": 0}}, "randomizer.messages = 0"),
        ({"randomizer": {"each": "image"}}, "randomizer.each = 'image'"),
        ({"randomizer": {"norm": "l3"}}, "randomizer.norm = 'l3'"),
        ({"randomizer": {"norm": "linf", "directions": 4}}, "directions = 4: expected no value"),
        ({"randomizer": {"as_printed": True}}, "as_printed = True: expected no value with no"),
        (
            {"privacy": {"noise_multiplier": 1.0}},
            "privacy.noise_multiplier = 1.0: expected no value",
        ),
        ({"privacy": {"relation": "add-remove"}}, "privacy.relation = 'add-remove': expected 'rep"),
        ({"privacy": {"trust": "central", "epsilon": 1.0}}, "expected no table with privacy.trust"),
        ({"privacy": {"trust": "everybody"}}, "privacy.trust = 'everybody'"),
        ({"protocol": {"release": "averaged"}}, "protocol.release = 'averaged': expected 'aggreg"),
        ({"randomizer": {"epsilon0": None}}, r"privacy.epsilon = \(missing\): expected a number"),
        ({"tune": {"clip_norm": [0.1, 1.0]}}, "tune"),
    ],
)
def test_invalid_message_plans_are_refused_in_one_line(changes, line):
    with pytest.raises(ParameterError, match=line) as caught:
        plan(**changes)
    assert "\n" not in str(caught.value)


def test_plans_with_too_few_message_bits_or_too_many_clients_are_refused():
    with pytest.raises(ParameterError, match=r"randomizer\.bits = 20: expected at least 37"):
        prepare(plan(randomizer={"bits": 20}), CLIENTS).messages(50)
    with pytest.raises(ParameterError, match=r"participation\.size = 400"):
        prepare(plan(), 300)
    with pytest.raises(ParameterError, match=r"randomizer\.directions = 16: expected a power"):
        prepare(plan(), CLIENTS).messages(10)
