"""Questions about shuffled messages: schemes of options, one-line errors, solved settings."""

from __future__ import annotations

import re

import pytest

from turnout.accounting import epsilon_upper, price
from turnout.cli.accounting import answered, solved
from turnout.core.errors import ParameterError, UnsupportedError
from turnout.plans import parse_query, solvable
from turnout.plans.plan import Plan
from turnout.plans.preparation import prepare
from turnout.schemes import (
    ApproximateRandomizer,
    CheckIn,
    EveryStep,
    FixedSize,
    GaussianNoise,
    HadamardResponse,
    KaryResponse,
    NonAdaptiveRandomizer,
    PureRandomizer,
    Relation,
    ReleaseRule,
    SampledBitResponse,
    Scheme,
    SelfSampling,
    SpeakingOrder,
    TrustModel,
)

N = 5000
SHUFFLE = {"scheme": "shuffle", "clients": N, "delta": 1e-6}
ALL = {**SHUFFLE, "epsilon0": 1.0}


def without(flags, *names):
    return {name: value for name, value in flags.items() if name not in names}


@pytest.mark.parametrize(
    ("flags", "participation"),
    [
        ({}, EveryStep(1)),
        ({"rounds": 7}, EveryStep(7)),
        ({"scheme": "subsampled-shuffle", "sampled": 40}, FixedSize(40, N, 1)),
        ({"scheme": "subsampled-shuffle", "sampled": N, "rounds": 3}, FixedSize(N, N, 3)),
        ({"scheme": "self-sampling-shuffle", "rate": 0.25, "rounds": 3}, SelfSampling(0.25, 3)),
        ({"relation": "replace-one"}, EveryStep(1)),
    ],
)
def test_command_line_options_become_a_scheme_of_shuffled_messages(flags, participation):
    assert parse_query({**ALL, **flags}).scheme == Scheme(
        PureRandomizer(1.0),
        participation,
        Relation.REPLACE_ONE,
        trust=TrustModel.SHUFFLED,
        population=N,
        order=SpeakingOrder.HIDDEN,
    )


@pytest.mark.parametrize(
    ("flags", "order"),
    [
        ({}, SpeakingOrder.HIDDEN),
        ({"delta0": 1e-9}, SpeakingOrder.HIDDEN),
        ({"order": "hidden"}, SpeakingOrder.HIDDEN),
        ({"order": "known"}, SpeakingOrder.KNOWN),
        ({"randomizer": "non-adaptive"}, None),
        ({"randomizer": "non-adaptive", "order": "known"}, SpeakingOrder.KNOWN),
        ({"randomizer": "kary-response"}, None),
        ({"randomizer": "gaussian", "epsilon0": None, "noise_multiplier": 2.0}, None),
    ],
)
def test_the_message_order_is_hidden_by_default_for_adaptive_randomizers(flags, order):
    assert parse_query({**ALL, **flags}).scheme.order is order


@pytest.mark.parametrize("scheme", ["shuffle", "subsampled-shuffle", "self-sampling-shuffle"])
def test_a_known_message_order_is_accepted_only_for_non_adaptive_randomizers(scheme):
    own = {"subsampled-shuffle": {"sampled": 40}, "self-sampling-shuffle": {"rate": 0.25}}
    flags = {**ALL, "scheme": scheme, "order": "known", **own.get(scheme, {})}
    with pytest.raises(UnsupportedError, match=r"is 'known'.* use NonAdaptiveRandomizer"):
        answered(parse_query(flags))
    level = parse_query({**without(flags, "epsilon0"), "epsilon": 0.5}, "epsilon0")
    with pytest.raises(UnsupportedError, match=r"is 'known'.* use NonAdaptiveRandomizer"):
        solved(level, "epsilon0")
    fixed = answered(parse_query({**flags, "randomizer": "non-adaptive"})).epsilon.upper
    assert fixed == answered(parse_query({**flags, "order": "hidden"})).epsilon.upper


@pytest.mark.parametrize(
    ("flags", "randomizer"),
    [
        ({"epsilon0": 2.0}, PureRandomizer(2.0)),
        ({"epsilon0": 2.0, "delta0": 1e-9}, ApproximateRandomizer(2.0, 1e-9)),
        ({"noise_multiplier": 2.0}, GaussianNoise(2.0)),
        ({"epsilon0": 2.0, "randomizer": "pure"}, PureRandomizer(2.0)),
        ({"epsilon0": 2.0, "randomizer": "non-adaptive"}, NonAdaptiveRandomizer(2.0)),
        ({"epsilon0": 2.0, "randomizer": "kary-response"}, KaryResponse(2.0, 2)),
        (
            {"epsilon0": 2.0, "randomizer": "kary-response", "categories": 9},
            KaryResponse(2.0, 9),
        ),
        ({"epsilon0": 2.0, "randomizer": "hadamard-response"}, HadamardResponse(2.0)),
        ({"epsilon0": 2.0, "randomizer": "sampled-bit-response"}, SampledBitResponse(2.0)),
    ],
)
def test_the_given_options_determine_the_randomizer(flags, randomizer):
    found = parse_query({**SHUFFLE, **flags}).scheme.randomizer
    assert (type(found), found) == (type(randomizer), randomizer)


@pytest.mark.parametrize(
    ("unknown", "given", "kind"),
    [
        ("noise", {}, PureRandomizer),
        ("epsilon0", {}, PureRandomizer),
        ("epsilon0", {"delta0": 1e-9}, ApproximateRandomizer),
        ("noise", {"delta0": 1e-9}, ApproximateRandomizer),
        ("noise-multiplier", {}, GaussianNoise),
        ("rounds", {"noise_multiplier": 2.0}, GaussianNoise),
        ("rounds", {"epsilon0": 2.0}, PureRandomizer),
        ("noise", {"randomizer": "kary-response"}, KaryResponse),
    ],
)
def test_the_setting_to_solve_for_determines_the_randomizer(unknown, given, kind):
    assert type(parse_query({**SHUFFLE, **given}, unknown).scheme.randomizer) is kind


@pytest.mark.parametrize(
    ("flags", "line"),
    [
        ({"clients": None}, "--clients = (missing): expected a value (number of clients"),
        ({"clients": 0}, "--clients = 0: expected a whole number of at least 1"),
        ({"order": "arrival"}, "--order = 'arrival': expected one of 'hidden', 'known'"),
        (
            {"scheme": "check-in", "window": 5, "order": "hidden", "relation": "replace-one"}
            | {"randomizer": "pure", "clients": None},
            "--order = 'hidden': expected only with --scheme shuffle, subsampled-shuffle or self-",
        ),
        ({"rounds": 0}, "--rounds = 0: expected a whole number of at least 1"),
        ({"delta": None}, "--delta = (missing): expected a value"),
        ({"delta": 0.0}, "--delta = 0.0: expected a number strictly between 0 and 1"),
        ({"delta": 1.0}, "--delta = 1.0: expected a number strictly between 0 and 1"),
        (
            {"epsilon0": None},
            "--epsilon0 = (missing): expected the ε₀ of one message, or --noise-m",
        ),
        ({"epsilon0": -1.0}, "--epsilon0 = -1.0: expected a finite number above 0"),
        (
            {"window": 5},
            "--window = 5: expected only with --scheme check-in, sliding, k-subset",
        ),
        ({"steps": 5}, "--steps = 5: expected only with --scheme none or poisson"),
        ({"sampled": 5}, "--sampled = 5: expected only with --scheme subsampled-shuffle"),
        ({"relation": "add-remove"}, "--relation = 'add-remove': expected replace-one, the defau"),
        ({"relation": "swap"}, "--relation = 'swap': expected replace-one, the default with"),
        ({"release": "aggregated"}, "--release = 'aggregated': expected no value with --scheme"),
        (
            {"randomizer": "laplace"},
            "--randomizer = 'laplace': expected one of 'pure', 'non-adaptive',",
        ),
        (
            {"randomizer": "gauss"},
            "--randomizer = 'gauss': expected one of 'pure', 'non-adaptive', 'k",
        ),
        ({"categories": 3}, "--categories = 3: expected only with --randomizer kary-response"),
        (
            {"categories": 1, "randomizer": "kary-response"},
            "--categories = 1: expected a whole number of at least 2",
        ),
        ({"noise_multiplier": 1.0}, "--noise-multiplier = 1.0: expected no value, since --epsil"),
        ({"delta0": 1.0}, "--delta0 = 1.0: expected a number strictly between 0 and 1"),
        (
            {"scheme": "subsampled-shuffle"},
            "--sampled = (missing): expected a value (number of clients that send a message in "
            "each round)",
        ),
        (
            {"scheme": "subsampled-shuffle", "sampled": N + 1},
            f"--sampled = {N + 1}: expected at most clients = {N}",
        ),
        (
            {"scheme": "self-sampling-shuffle"},
            "--rate = (missing): expected a value (probability with",
        ),
        (
            {"scheme": "self-sampling-shuffle", "rate": 1.5},
            "--rate = 1.5: expected a number from 0 to 1",
        ),
        (
            {"scheme": "check-in", "window": 5, "relation": "replace-one", "randomizer": "pure"},
            f"--clients = {N}: expected only with --release averaged",
        ),
        (
            {"scheme": "poisson", "rate": 0.1, "steps": 2, "relation": "replace-one"}
            | {"randomizer": "pure"},
            f"--clients = {N}: expected only with --scheme check-in, shuffle, subsampled-shuf",
        ),
    ],
)
def test_an_error_about_a_wrong_option_of_a_shuffle_names_the_option(flags, line):
    with pytest.raises(ParameterError, match=re.escape(line)) as error:
        parse_query({**ALL, **flags})
    assert "\n" not in str(error.value)


AVERAGED = {"scheme": "check-in", "window": 5, "release": "averaged", "relation": "replace-one"}
AVERAGED |= {"noise_multiplier": 3.0, "delta": 1e-6}


def test_averaged_check_ins_accept_a_number_of_clients():
    known = Scheme(
        GaussianNoise(3.0),
        CheckIn(5),
        Relation.REPLACE_ONE,
        ReleaseRule.AVERAGED,
        population=N,
    )
    assert parse_query({**AVERAGED, "clients": N}).scheme == known
    assert parse_query(AVERAGED).scheme.population is None


def test_a_plan_of_check_ins_has_central_trust_and_no_assumed_population(small_plan):
    prepared = prepare(Plan.from_toml(small_plan), 1437)
    assert prepared.scheme.population is None
    assert prepared.scheme.trust is TrustModel.CENTRAL
    with pytest.raises(ParameterError, match="participation"):
        Plan.from_toml(small_plan.replace("window = 10", "window = 10\nclients = 9"))
    with pytest.raises(ParameterError, match=re.escape("participation.law = 'shuffle'")):
        Plan.from_toml(small_plan.replace('"check-in"', '"shuffle"'))


@pytest.mark.parametrize(
    ("scheme", "randomizer", "names"),
    [
        ("shuffle", "pure", "epsilon0 rounds clients delta"),
        ("shuffle", "gaussian", "noise-multiplier rounds clients delta"),
        ("subsampled-shuffle", "kary-response", "epsilon0 rounds sampled clients delta"),
        ("self-sampling-shuffle", "approximate", "epsilon0 rate rounds clients delta"),
    ],
)
def test_each_shuffle_has_its_list_of_solvable_settings(scheme, randomizer, names):
    assert solvable(scheme, randomizer) == names.split()


@pytest.mark.parametrize(
    ("unknown", "flags", "line"),
    [
        ("clients", ALL, f"--clients = {N}: expected no value with --solve-for clients"),
        ("epsilon0", ALL, "--epsilon0 = 1.0: expected no value with --solve-for epsilon0"),
        ("noise", ALL, "--epsilon0 = 1.0: expected no value with --solve-for epsilon0"),
        ("sampled", ALL, "--solve-for = 'sampled': expected one of 'epsilon0', 'rounds', 'clien"),
        ("window", ALL, "--solve-for = 'window': expected one of 'epsilon0', 'rounds', "),
        ("rounds", ALL, "--epsilon = (missing): expected a finite number above 0"),
        (
            "clients",
            AVERAGED | {"release": None},
            "--solve-for = 'clients': expected only with --",
        ),
    ],
)
def test_solving_for_an_unsolvable_setting_of_a_shuffle_is_refused(unknown, flags, line):
    with pytest.raises(ParameterError, match=re.escape(line)):
        solved(parse_query(flags, unknown), unknown)


def bisected(flags, key, low, high, falling):
    """Extreme whole number that meets the target, by bisection over the flag."""

    def meets(value):
        return (
            epsilon_upper(parse_query({**flags, key: value}).scheme, flags["delta"])
            <= flags["epsilon"]
        )

    assert meets(low) != falling
    assert meets(high) == falling
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if meets(middle) == falling else (middle, high)
    return high if falling else low


SAMPLED = {**ALL, "scheme": "subsampled-shuffle", "sampled": 500, "rounds": 20}


WHOLE = [
    ("rounds", {**ALL, "epsilon": 0.5}, 16, 512),
    ("clients", {**ALL, "epsilon": 0.5}, 64, 1024),
    ("sampled", {**SAMPLED, "epsilon": 0.12}, 64, 4096),
    ("clients", {**SAMPLED, "sampled": 50, "rounds": 5, "epsilon": 0.05}, 500, 8000),
    ("rounds", {**SHUFFLE, "noise_multiplier": 5.0, "epsilon": 0.9}, 1, 64),
]


@pytest.mark.parametrize(("unknown", "flags", "low", "high"), WHOLE)
def test_a_solved_whole_number_agrees_with_bisection(unknown, flags, low, high):
    found = solved(parse_query(without(flags, unknown), unknown), unknown).calibration
    expected = bisected(flags, unknown, low, high, found.unknown.falling)
    # The answer is certified by the sharper price, so it may be a little better, never worse.
    better = expected - found.value if found.unknown.falling else found.value - expected
    assert 0 <= better <= 0.01 * expected
    assert abs(found.refused - found.value) == 1
    assert found.evaluations <= 10
    assert found.epsilon <= flags["epsilon"]
    again = parse_query({**flags, unknown: found.value}).scheme
    assert price(again, flags["delta"]).epsilon.upper <= flags["epsilon"]


SELF = {"scheme": "self-sampling-shuffle", "rate": 0.1}
LEVELS = [
    ("epsilon0", {"epsilon": 0.05}),
    ("epsilon0", {"epsilon": 1.0}),
    ("epsilon0", {"rounds": 50, "epsilon": 0.5}),
    ("epsilon0", {"delta0": 1e-13, "epsilon": 0.3}),
    ("epsilon0", {"randomizer": "non-adaptive", "epsilon": 0.3}),
    ("epsilon0", {"randomizer": "kary-response", "categories": 5, "epsilon": 0.3}),
    ("epsilon0", {"randomizer": "hadamard-response", "epsilon": 0.3}),
    ("epsilon0", {"randomizer": "sampled-bit-response", "epsilon": 0.3}),
    ("epsilon0", {"scheme": "subsampled-shuffle", "sampled": 500, "epsilon": 0.1}),
    ("epsilon0", {**SELF, "epsilon": 0.05}),
    ("rate", {**without(SELF, "rate"), "epsilon0": 2.0, "epsilon": 0.05}),
    ("noise_multiplier", {"epsilon": 0.4}),
]


@pytest.mark.parametrize(("key", "flags"), LEVELS)
def test_a_solved_real_setting_agrees_with_bisection(key, flags):
    flags, unknown, epsilon = {**SHUFFLE, **flags}, key.replace("_", "-"), flags["epsilon"]

    def meets(value):
        return epsilon_upper(parse_query({**flags, key: value}).scheme, 1e-6) <= epsilon

    answer = solved(parse_query(flags, unknown), unknown)
    found = answer.calibration
    assert found.evaluations <= 10
    assert answer.epsilon.upper <= epsilon
    # From the private to the costly side of the answer; the price may be sharper than the quick
    # bound that is bisected, never the other way round.
    good, bad = (1.2, 0.8) if found.unknown.falling else (0.8, 1.2)
    good, bad = good * found.value, bad * found.value
    assert meets(good)
    assert not meets(bad)
    while abs(bad - good) > 2e-4 * good:
        middle = 0.5 * (good + bad)
        good, bad = (middle, bad) if meets(middle) else (good, middle)
    assert found.value == pytest.approx(good, rel=3e-3)
    if key != "noise_multiplier":  # whose ε₀ is chosen anew for each value: ε falls in steps
        assert found.value >= good * (1 - 4e-4)


def test_one_client_fewer_or_one_round_more_than_solved_exceeds_the_target():
    """Negative control: one client less or one round more misses the target."""
    flags = {**ALL, "epsilon": 0.5}
    for unknown, step in (("rounds", 1), ("clients", -1)):
        found = solved(parse_query(without(flags, unknown), unknown), unknown).calibration
        following = parse_query({**flags, unknown: found.value + step})
        assert epsilon_upper(following.scheme, 1e-6) > 0.5


@pytest.mark.parametrize(
    ("clients", "rounds", "epsilon"),
    [(100, 1, 0.01), (100, 1000, 10.0), (10**6, 1, 0.01), (10**6, 1, 1.0), (10**6, 3, 10.0)],
)
def test_epsilon0_is_solved_in_at_most_ten_evaluations(clients, rounds, epsilon):
    flags = {**SHUFFLE, "clients": clients, "rounds": rounds, "epsilon": epsilon}
    found = solved(parse_query(flags, "epsilon0"), "epsilon0").calibration
    assert found.evaluations <= 10
    assert found.epsilon <= epsilon
    assert found.value >= epsilon / rounds * (1 - 1e-3)  # what needs no shuffler
    more = parse_query({**flags, "epsilon0": 1.03 * found.value}).scheme
    assert epsilon_upper(more, 1e-6) > epsilon


def test_the_solved_number_of_clients_is_one_if_no_amplification_is_needed():
    flags = {**ALL, "epsilon": 1.0}
    found = solved(parse_query(without(flags, "clients"), "clients"), "clients").calibration
    assert (found.value, found.refused) == (1, None)
