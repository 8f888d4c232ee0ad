"""Questions about ε: command-line options become a scheme, or a one-line error."""

from __future__ import annotations

import re

import pytest

from turnout.accounting import epsilon_upper, price
from turnout.cli.accounting import answered, solved
from turnout.core.errors import ParameterError, StorageError, UnsupportedError
from turnout.plans import parse_query, solvable
from turnout.plans.questions import read_pair
from turnout.schemes import (
    ApproximateRandomizer,
    CheckIn,
    DiscreteGaussianNoise,
    EveryStep,
    FixedAssignment,
    GaussianNoise,
    KSubset,
    LaplaceNoise,
    PoissonSampling,
    PureRandomizer,
    Relation,
    RoundedGaussianNoise,
    Scheme,
    SlidingWindow,
    TableRandomizer,
)


def without(flags, *names):
    return {name: value for name, value in flags.items() if name not in names}


PROMISE = {"delta": 1e-6, "relation": "add-remove", "noise_multiplier": 1.0}


@pytest.mark.parametrize(
    ("flags", "participation"),
    [
        ({"scheme": "none"}, EveryStep(1)),
        ({"scheme": "none", "steps": 7}, EveryStep(7)),
        ({"scheme": "poisson", "rate": 0.01, "steps": 7}, PoissonSampling(0.01, 7)),
        ({"scheme": "check-in", "window": 9, "windows": 2}, CheckIn(9, 2)),
        ({"scheme": "check-in", "window": 9, "probability": 0.5}, CheckIn(9, 1, 0.5)),
        ({"scheme": "sliding", "window": 9}, SlidingWindow(9, 17)),
        ({"scheme": "k-subset", "window": 9, "picks": 2}, KSubset(9, 2)),
        ({"scheme": "fixed-assignment", "window": 9, "epochs": 4}, FixedAssignment(9, 4)),
        (
            {"scheme": "fixed-assignment", "window": 9, "epochs": 4, "probability": 0.5},
            FixedAssignment(9, 4, 0.5),
        ),
    ],
)
def test_command_line_options_become_a_scheme(flags, participation):
    question = parse_query({**PROMISE, **flags, "epsilon": None, "rate": flags.get("rate")})
    assert question.scheme == Scheme(GaussianNoise(1.0), participation, Relation.ADD_REMOVE)


DEVIATION = {"standard_deviation": 3.0}


@pytest.mark.parametrize(
    ("flags", "randomizer"),
    [
        ({"noise_multiplier": 2.0}, GaussianNoise(2.0)),
        ({"randomizer": "gaussian", "noise_multiplier": 2.0}, GaussianNoise(2.0)),
        ({"randomizer": "laplace", "scale": 2.0}, LaplaceNoise(2.0)),
        ({"randomizer": "pure", "epsilon0": 2.0}, PureRandomizer(2.0)),
        (
            {"randomizer": "approximate", "epsilon0": 2.0, "delta0": 1e-9},
            ApproximateRandomizer(2.0, 1e-9),
        ),
        ({"randomizer": "discrete-gaussian", **DEVIATION}, DiscreteGaussianNoise(3.0, 1)),
        (
            {"randomizer": "discrete-gaussian", **DEVIATION, "sensitivity": 2},
            DiscreteGaussianNoise(3.0, 2),
        ),
        (
            {"randomizer": "rounded-gaussian", **DEVIATION, "sensitivity": 2},
            RoundedGaussianNoise(3.0, 2),
        ),
    ],
)
def test_command_line_options_become_a_randomizer(flags, randomizer):
    question = parse_query({**without(PROMISE, "noise_multiplier"), "scheme": "none", **flags})
    assert question.scheme.randomizer == randomizer


def test_a_file_with_two_distributions_becomes_a_randomizer(tmp_path):
    pair = tmp_path / "pair.csv"
    pair.write_text("outcome, absent, present\r\nyes, 0.2, 0.75\r\nno, 0.8, 0.25\r\n")
    assert read_pair(pair) == TableRandomizer([0.75, 0.25], [0.2, 0.8])
    flags = {"scheme": "none", "randomizer": "table", "pair_file": str(pair)}
    question = parse_query({**without(PROMISE, "noise_multiplier"), **flags})
    assert question.scheme.randomizer == TableRandomizer([0.75, 0.25], [0.2, 0.8])


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", "a first line that names present and absent"),
        ("present;absent\n1;1\n", "a first line that names present and absent"),
        (
            "present,absent,present\n1,1,0\n",
            "a first line that names present and absent, each once",
        ),
        ("present,absent\n0,5,1\n1,1\n", "2 cells in line 2, as in the first line"),
        ("present,absent\n", "column present: probabilities that sum to 1"),
        ("present,absent\n0.5,0.5\n0.5,half\n", "a number in line 3, column absent, not 'half'"),
        ("present,absent\n0.5\n0.5,0.5\n", "a number in line 2, column absent, not ''"),
        ("present,absent\n0.5,0.5\n0.4,0.5\n", "column present: probabilities that sum to 1"),
        ("present,absent\n0.5,nan\n0.5,0.5\n", "column absent: probabilities that sum to 1"),
        ("present,absent\n1,0\n0,1\n", "column present: distributions that overlap"),
    ],
)
def test_a_randomizer_file_without_two_distributions_is_refused(tmp_path, text, fault):
    pair = tmp_path / "pair.csv"
    pair.write_text(text)
    flags = {"scheme": "none", "randomizer": "table", "pair_file": str(pair)}
    with pytest.raises(ParameterError, match=re.escape(f"expected {fault}")) as error:
        parse_query({**without(PROMISE, "noise_multiplier"), **flags})
    assert str(error.value).startswith("--pair-file = ")


def test_a_missing_or_binary_randomizer_file_is_refused(tmp_path):
    with pytest.raises(ParameterError, match="a CSV file that exists"):
        read_pair(tmp_path / "none.csv")
    (tmp_path / "binary.csv").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(StorageError, match="cannot be read"):
        read_pair(tmp_path / "binary.csv")


NOISELESS = {"scheme": "none", "delta": 1e-6, "relation": "add-remove"}


@pytest.mark.parametrize(
    ("flags", "line"),
    [
        ({}, "--noise-multiplier = (missing): expected a value (standard deviation"),
        ({"randomizer": "gauss"}, "--randomizer = 'gauss': expected one of 'gaussian', 'laplace'"),
        ({"randomizer": "laplace"}, "--scale = (missing): expected a value (scale of the noise"),
        ({"randomizer": "laplace", "scale": 0.0}, "--scale = 0.0: expected a finite number"),
        ({"scale": 1.0}, "--scale = 1.0: expected only with --randomizer laplace"),
        (
            {"randomizer": "pure", "epsilon0": 1.0, "sensitivity": 2},
            "--sensitivity = 2: expected only with --randomizer discrete-gaussian or rounded",
        ),
        (
            {"randomizer": "laplace", "scale": 1.0, "epsilon0": 2.0},
            "--epsilon0 = 2.0: expected only with --randomizer pure, approximate, non-adap",
        ),
        (
            {"randomizer": "approximate", "epsilon0": 1.0},
            "--delta0 = (missing): expected a value (parameter δ₀",
        ),
        (
            {"randomizer": "approximate", "epsilon0": 1.0, "delta0": 1.0},
            "--delta0 = 1.0: expected a number strictly between 0 and 1",
        ),
        (
            {"randomizer": "rounded-gaussian", **DEVIATION, "sensitivity": 0},
            "--sensitivity = 0: expected a whole number of at least 1",
        ),
        ({"randomizer": "table"}, "--pair-file = (missing): expected a value (CSV file"),
    ],
)
def test_a_missing_or_unknown_setting_of_a_randomizer_is_refused(flags, line):
    with pytest.raises(ParameterError, match=re.escape(line)) as error:
        parse_query({**NOISELESS, **flags})
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("flags", "line"),
    [
        ({"epsilon0": 400.0, "randomizer": "pure"}, "--epsilon0 = 400.0: expected at most 300"),
        (
            {"randomizer": "discrete-gaussian", "standard_deviation": 1e5},
            "--standard-deviation = 100000.0: expected at most 1680",
        ),
        (
            {"randomizer": "rounded-gaussian", **DEVIATION, "sensitivity": 10**6},
            "--sensitivity = 1000000: expected at most 32768",
        ),
    ],
)
def test_errors_raised_by_the_accounting_name_the_option(flags, line):
    with pytest.raises(ParameterError, match=re.escape(line)):
        answered(parse_query({**NOISELESS, **flags}))


@pytest.mark.parametrize(
    ("flags", "line"),
    [
        ({}, "--scheme = (missing): expected one of 'none', 'poisson', 'check-in', 'sliding'"),
        ({"scheme": "random"}, "--scheme = 'random': expected one of 'none'"),
        (
            {"scheme": "check-in"},
            "--window = (missing): expected a value (number of steps of a window)",
        ),
        ({"scheme": "check-in", "window": 0}, "--window = 0: expected a whole number of at least"),
        (
            {"scheme": "check-in", "window": 5, "rate": 0.1},
            "--rate = 0.1: expected only with --scheme poisson or self-sampling-shuffle",
        ),
        (
            {"scheme": "check-in", "window": 5, "probability": 1.01},
            "--probability = 1.01: expected a number from 0 to 1",
        ),
        ({"scheme": "none", "delta": float("nan")}, "--delta = nan: expected a number strictly"),
        ({"scheme": "none", "noise_multiplier": -1.0}, "--noise-multiplier = -1.0: expected a"),
        ({"scheme": "none", "relation": None}, "--relation = (missing): expected the neighbouring"),
        (
            {"scheme": "none", "relation": "swap"},
            "--relation = 'swap': expected one of 'add-remove'",
        ),
        ({"scheme": "k-subset", "window": 5, "picks": 6}, "--picks = 6: expected at most window"),
        (
            {"scheme": "fixed-assignment", "window": 5},
            "--epochs = (missing): expected a value (number of epochs",
        ),
        (
            {"scheme": "fixed-assignment", "window": 5, "epochs": 0},
            "--epochs = 0: expected a whole number of at least 1",
        ),
        (
            {"scheme": "fixed-assignment", "window": 5, "picks": 4},
            "--picks = 4: expected only with --scheme k-subset",
        ),
    ],
)
def test_an_error_about_a_wrong_option_names_the_option(flags, line):
    with pytest.raises(ParameterError, match=re.escape(line)) as error:
        parse_query({**PROMISE, **flags})
    assert "\n" not in str(error.value)


def test_a_sliding_window_has_the_guarantee_of_one_fixed_window():
    sliding = answered(parse_query({**PROMISE, "scheme": "sliding", "window": 60}))
    fixed = answered(parse_query({**PROMISE, "scheme": "check-in", "window": 60}))
    assert sliding.directions == fixed.directions


CHECK_IN = {"scheme": "check-in", "window": 100, "windows": 3, "epsilon": 1.0, **PROMISE}


KEPT = {**PROMISE, "scheme": "fixed-assignment", "window": 50, "epochs": 4, "epsilon": 1.0}
WINDOW = {**NOISELESS, "scheme": "check-in", "window": 100, "epsilon": 1.0}


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
        ("picks", {**PROMISE, "scheme": "k-subset", "window": 12, "epsilon": 4.0}),
        ("window", {**PROMISE, "scheme": "k-subset", "picks": 2, "epsilon": 4.0}),
        ("noise-multiplier", KEPT),
        ("window", {**KEPT, "noise_multiplier": 4.0}),
        ("epochs", {**KEPT, "noise_multiplier": 4.0}),
        ("scale", {**WINDOW, "randomizer": "laplace"}),
        ("epsilon0", {**WINDOW, "randomizer": "pure"}),
        ("epsilon0", {**WINDOW, "randomizer": "approximate", "delta0": 1e-9}),
        ("standard-deviation", {**WINDOW, "randomizer": "discrete-gaussian"}),
        (
            "standard-deviation",
            {**WINDOW, "randomizer": "rounded-gaussian", "sensitivity": 30, "scheme": "none"}
            | {"window": None, "release": "one-client"},
        ),
        ("window", {**WINDOW, "randomizer": "laplace", "scale": 0.8}),
        ("windows", {**WINDOW, "randomizer": "approximate", "epsilon0": 1.0, "delta0": 1e-8}),
    ],
)
def test_a_solved_setting_meets_the_target_epsilon(unknown, flags):
    key = unknown.replace("-", "_")
    answer = solved(parse_query(without(flags, key), unknown), unknown)
    found = answer.calibration
    assert found is not None
    assert isinstance(found.value, int) == found.unknown.whole
    again = parse_query({**flags, key: found.value})
    scheme = again.scheme
    assert (answer.scheme, answer.delta) == (scheme, again.target.delta)
    assert found.epsilon <= flags["epsilon"]
    assert price(scheme, again.target.delta).epsilon.upper <= flags["epsilon"]
    assert found.epsilon >= 0.8 * epsilon_upper(scheme, again.target.delta)


def test_solved_picks_are_at_most_the_window():
    flags = {**PROMISE, "scheme": "k-subset", "window": 4, "epsilon": 100.0}
    assert solved(parse_query(flags, "picks"), "picks").value == 4
    flags = {**PROMISE, "scheme": "k-subset", "picks": 4, "epsilon": 100.0}
    assert solved(parse_query(flags, "window"), "window").value == 4


@pytest.mark.parametrize(
    ("scheme", "names"),
    [
        ("none", "noise-multiplier steps delta"),
        ("poisson", "noise-multiplier rate steps delta"),
        ("check-in", "noise-multiplier window windows probability clients delta"),
        ("sliding", "noise-multiplier window delta"),
        ("k-subset", "noise-multiplier window windows picks delta"),
        ("fixed-assignment", "noise-multiplier window probability epochs delta"),
    ],
)
def test_each_participation_has_its_list_of_solvable_settings(scheme, names):
    assert solvable(scheme) == names.split()


@pytest.mark.parametrize(
    ("randomizer", "names"),
    [
        ("gaussian", "noise-multiplier rate steps delta"),
        ("laplace", "scale rate steps delta"),
        ("pure", "epsilon0 rate steps delta"),
        ("approximate", "epsilon0 rate steps delta"),
        ("discrete-gaussian", "standard-deviation rate steps delta"),
        ("rounded-gaussian", "standard-deviation rate steps delta"),
        ("table", "rate steps delta"),
    ],
)
def test_each_randomizer_has_its_list_of_solvable_settings(randomizer, names):
    assert solvable("poisson", randomizer) == names.split()


def test_solve_for_noise_selects_the_noise_setting_of_any_randomizer():
    flags = {**WINDOW, "randomizer": "laplace"}
    answer = solved(parse_query(flags, "noise"))
    assert answer.solved_for == "scale"
    assert answer.scheme.randomizer == LaplaceNoise(answer.value)
    with pytest.raises(ParameterError, match="'noise': expected one of 'window', 'windows'"):
        parse_query({**WINDOW, "randomizer": "table", "pair_file": "none.csv"}, "noise")


def test_solving_with_a_delta_below_delta0_is_refused():
    flags = {**WINDOW, "randomizer": "approximate", "delta0": 1e-3}
    with pytest.raises(UnsupportedError, match=r"delta = 1e-06: expected more than 0\.001"):
        solved(parse_query(flags, "epsilon0"), "epsilon0")


@pytest.mark.parametrize(
    ("unknown", "flags", "line"),
    [
        ("window", CHECK_IN, "--window = 100: expected no value with --solve-for window"),
        ("delta", CHECK_IN, "--delta = 1e-06: expected no value with --solve-for delta"),
        ("rate", CHECK_IN, "--solve-for = 'rate': expected one of 'noise-multiplier', 'window'"),
        ("slots", CHECK_IN, "--solve-for = 'slots': expected one of 'noise-multiplier', "),
        (
            "noise-multiplier",
            CHECK_IN,
            "--noise-multiplier = 1.0: expected no value with --solve-for noise-multiplier",
        ),
        ("window", without(CHECK_IN, "window", "epsilon"), "--epsilon = (missing): expected a"),
        (
            "window",
            without(CHECK_IN, "window", "noise_multiplier"),
            "--noise-multiplier = (missing): expected a value (standard deviation",
        ),
        ("windows", without(CHECK_IN, "window", "windows"), "--window = (missing): expected a"),
    ],
)
def test_solving_for_a_given_or_unsolvable_setting_is_refused(unknown, flags, line):
    with pytest.raises(ParameterError, match=re.escape(line)) as error:
        solved(parse_query(flags, unknown), unknown)
    assert "\n" not in str(error.value)
