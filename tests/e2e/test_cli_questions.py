"""`turnout account` and `turnout calibrate` in a separate process."""

from __future__ import annotations

import json

import pytest

import turnout as package

CHECK_IN = {
    "--scheme": "check-in",
    "--noise-multiplier": "1.0",
    "--window": "1000",
    "--windows": "1",
    "--probability": "1.0",
    "--delta": "1e-6",
    "--relation": "add-remove",
}


def flat(flags: dict[str, str]) -> list[str]:
    return [part for flag in flags.items() for part in flag]


def test_account_json_matches_the_documented_object(turnout):
    done = turnout("account", *flat(CHECK_IN), "--json")
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["epsilon"] == pytest.approx(0.17173, rel=1e-3)
    assert answer["directions"]["add"]["epsilon"] == pytest.approx(0.14943, rel=1e-3)
    for bounds in (answer, *answer["directions"].values()):
        assert bounds["epsilon_lower"] <= bounds["epsilon"] <= 1.001 * bounds["epsilon_lower"]
    assert answer["epsilon"] == answer["directions"]["remove"]["epsilon"]
    assert answer["seconds"] > 0
    assert (answer["relation"], answer["unit"]) == ("add-remove", "client")
    assert answer["trust_model"] == "central"
    assert answer["delta"] == 1e-6
    assert answer["scheme"]["name"] == "check-in"
    assert answer["method"]


@pytest.mark.parametrize(
    "flags",
    [
        "--scheme none --steps 10",
        "--scheme poisson --rate 0.01 --steps 100",
        "--scheme check-in --window 100 --windows 4 --probability 0.5",
        "--scheme sliding --window 100",
        "--scheme k-subset --window 100 --picks 4",
        "--scheme fixed-assignment --window 100 --epochs 4 --probability 0.5",
    ],
)
def test_account_prints_bounds_for_each_scheme(turnout, flags):
    promise = "--noise-multiplier 2 --delta 1e-6 --relation add-remove"
    done = turnout("account", *flags.split(), *promise.split())
    assert done.returncode == 0, done.stderr
    for word in ("add-remove", "client", "central", "direction remove", "direction add", "δ"):
        assert word in done.stdout


def test_account_confirms_that_calibrated_noise_meets_the_target(turnout):
    law = flat({"--scheme": "check-in", "--window": "50", "--windows": "4"})
    law += flat({"--delta": "1e-5", "--relation": "add-remove"})
    done = turnout("calibrate", *law, "--epsilon", "3", "--json")
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert 2.95 < answer["epsilon"] <= 3
    noise = repr(answer["randomizer"]["noise_multiplier"])
    checked = json.loads(turnout("account", *law, "--noise-multiplier", noise, "--json").stdout)
    assert checked["epsilon"] <= 3
    assert noise[:5] in turnout("calibrate", *law, "--epsilon", "3").stdout


@pytest.mark.parametrize(
    ("command", "flags", "line"),
    [
        ("account", "--scheme check-in --window 0", "--window = 0: expected a whole number"),
        (
            "account",
            "--scheme check-in",
            "--window = (missing): expected a value (number of steps of a window)",
        ),
        ("account", "--scheme check-in --window 9 --probability 1.5", "--probability = 1.5: "),
        ("account", "--scheme none --delta nan", "--delta = nan: expected a number strictly"),
        ("account", "--scheme none --noise-multiplier -1", "--noise-multiplier = -1.0: expected"),
        ("account", "--scheme none --relation near", "--relation = 'near': expected one of"),
        ("account", "--scheme none --window 9", "--window = 9: expected only with --scheme"),
        ("account", "--scheme bogus", "--scheme = 'bogus': expected one of 'none', 'poisson'"),
        ("calibrate", "--scheme none --epsilon -3", "--epsilon = -3.0: expected a finite number"),
        ("calibrate", "--scheme none", "--epsilon = (missing): expected a finite number above 0"),
    ],
)
def test_account_and_calibrate_refuse_invalid_options_in_one_line(turnout, command, flags, line):
    promise = {"--delta": "1e-6", "--relation": "add-remove"}
    if command == "account":
        promise["--noise-multiplier"] = "1"
    given = flags.split()
    missing = flat({flag: value for flag, value in promise.items() if flag not in given})
    done = turnout(command, *given, *missing)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith(f"turnout: {line}")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("left_out", ["--delta", "--relation", "--noise-multiplier"])
def test_account_requires_options_without_a_default(turnout, left_out):
    flags = {"--scheme": "none", "--delta": "1e-6", "--relation": "add-remove"}
    flags |= {"--noise-multiplier": "1"}
    del flags[left_out]
    done = turnout("account", *flat(flags))
    assert done.returncode == 2
    assert done.stderr.startswith(f"turnout: {left_out} = (missing): expected")


def test_version_and_help_are_printed_with_exit_code_0(turnout):
    assert turnout("--version").stdout == f"turnout {package.__version__}\n"
    for arguments in (["--help"], [], ["train", "--help"], ["account", "--help"]):
        done = turnout(*arguments)
        assert done.returncode == 0
        assert "Usage: turnout" in done.stdout
    done = turnout("trian")
    assert done.returncode == 2
    assert done.stderr.startswith("turnout: No such command 'trian'")
