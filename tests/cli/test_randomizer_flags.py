"""`--randomizer` and its settings in `turnout account` and `calibrate`: output and errors."""

from __future__ import annotations

import json

import pytest

from turnout.cli.main import main

PROMISE = "--scheme check-in --window 50 --delta 1e-5 --relation add-remove"
GIVEN = {
    "gaussian": "--noise-multiplier 1.5",
    "laplace": "--scale 1.5",
    "pure": "--epsilon0 0.5",
    "approximate": "--epsilon0 0.5 --delta0 1e-09",
    "discrete-gaussian": "--standard-deviation 1.5 --sensitivity 1",
    "rounded-gaussian": "--standard-deviation 4 --sensitivity 2",
    "table": "--pair-file {pair}",
}


@pytest.fixture
def pair(tmp_path):
    file = tmp_path / "pair.csv"
    file.write_text("present,absent\n0.5,0.2\n0.3,0.3\n0.2,0.4\n0,0.1\n")
    return file


@pytest.fixture
def run(capsys, pair):
    """Function that runs a command and returns its exit code, stdout and stderr."""

    def run(command: str, flags: str) -> tuple[object, str, str]:
        with pytest.raises(SystemExit) as end:
            main([command, *PROMISE.split(), *flags.format(pair=pair).split()])
        printed = capsys.readouterr()
        return end.value.code, printed.out, printed.err

    return run


@pytest.mark.parametrize("name", GIVEN)
def test_account_reports_the_randomizer_and_its_settings(run, pair, name):
    flags = f"--randomizer {name} {GIVEN[name]}"
    code, out, err = run("account", f"{flags} --json")
    assert (code, err) == (0, "")
    answer = json.loads(out)
    parts = iter(GIVEN[name].format(pair=pair).split())
    given = {flag[2:].replace("-", "_"): value for flag, value in zip(parts, parts, strict=True)}
    assert {key: str(value) for key, value in answer["randomizer"].items() if key != "name"} == {
        key: value if key in ("pair_file", "sensitivity") else str(float(value))
        for key, value in given.items()
    }
    assert answer["randomizer"]["name"] == name
    assert 0 < answer["epsilon_lower"] <= answer["epsilon"]
    code, out, err = run("account", flags)
    assert (code, err) == (0, "")
    words = " ".join(out.split())
    assert f"randomizer {name}: " in words
    for key, value in given.items():
        assert value[-20:] in words.replace(" ", "") or f"{key.replace('_', ' ')} {value}" in words


def test_the_default_randomizer_is_gaussian_noise(run):
    named = json.loads(run("account", "--randomizer gaussian --noise-multiplier 1 --json")[1])
    plain = json.loads(run("account", "--noise-multiplier 1 --json")[1])
    assert {**plain, "seconds": 0} == {**named, "seconds": 0}


@pytest.mark.parametrize(
    ("flags", "parameter"),
    [
        ("--randomizer laplace", "scale"),
        ("--randomizer pure", "epsilon0"),
        ("--randomizer approximate --delta0 1e-9", "epsilon0"),
        ("--randomizer rounded-gaussian --sensitivity 3", "standard-deviation"),
    ],
)
def test_calibrate_solves_for_the_noise_of_the_randomizer_by_default(run, flags, parameter):
    for solve_for in ("", f"--solve-for {parameter}"):
        code, out, err = run("calibrate", f"{flags} {solve_for} --epsilon 1 --json")
        assert (code, err) == (0, "")
        answer = json.loads(out)
        assert answer["solved_for"] == parameter
        assert answer["randomizer"][parameter.replace("-", "_")] == answer["value"]
        assert 0.97 < answer["epsilon"] <= 1


def test_account_confirms_that_the_calibrated_scale_meets_the_target(run):
    out = run("calibrate", "--randomizer laplace --epsilon 0.4 --json")[1]
    scale = json.loads(out)["value"]
    answer = json.loads(run("account", f"--randomizer laplace --scale {scale} --json")[1])
    assert 0.39 < answer["epsilon"] <= 0.4
    words = " ".join(run("calibrate", "--randomizer laplace --epsilon 0.4")[1].split())
    assert f"randomizer laplace: scale {scale}" in words
    assert f"scale {scale}, the smallest certified to meet ε ≤ 0.4" in words


def test_account_explains_a_randomizer_given_as_a_table(run):
    code, out, err = run("account", "--randomizer table --pair-file {pair} --explain")
    assert (code, err) == (0, "")
    assert "membership inference" in out


@pytest.mark.parametrize(
    ("command", "flags", "line"),
    [
        ("account", "", "--noise-multiplier = (missing): expected a value (standard deviation"),
        ("account", "--randomizer gamma", "--randomizer = 'gamma': expected one of 'gaussian', "),
        ("account", "--randomizer laplace", "--scale = (missing): expected a value (scale of"),
        ("account", "--scale 2", "--scale = 2.0: expected only with --randomizer laplace"),
        (
            "account",
            "--randomizer laplace --scale 1 --noise-multiplier 1",
            "--noise-multiplier = 1.0: expected only with --randomizer gaussian",
        ),
        (
            "account",
            "--randomizer approximate --epsilon0 1 --delta0 1e-3",
            "delta = 1e-05: expected more than 0.001, the probability of outcomes that only one ",
        ),
        ("account", "--randomizer table --pair-file no.csv", "--pair-file = 'no.csv': expected a "),
        ("account", "--randomizer pure --epsilon0 much", "Invalid value for '--epsilon0': 'much'"),
        (
            "account",
            "--randomizer table --pair-file {pair} --release one-client",
            "TableRandomizer can only be analysed against an absent contribution; ",
        ),
        (
            "calibrate",
            "--epsilon 1 --randomizer table --pair-file {pair}",
            "--solve-for = 'noise': expected one of 'window', 'windows', 'probability'",
        ),
        (
            "calibrate",
            "--epsilon 1 --randomizer laplace --solve-for noise-multiplier",
            "--solve-for = 'noise-multiplier': expected one of 'scale', 'window', 'windows', ",
        ),
        (
            "calibrate",
            "--epsilon 1 --randomizer laplace --scale 2",
            "--scale = 2.0: expected no value with --solve-for scale",
        ),
    ],
)
def test_invalid_options_of_a_randomizer_are_refused_in_one_line(run, command, flags, line):
    code, out, err = run(command, flags)
    assert code == 2
    assert out == ""
    assert err.startswith(f"turnout: {line}")
    assert err.count("\n") == 1
