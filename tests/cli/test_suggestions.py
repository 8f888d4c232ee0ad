"""Suggestions for unknown commands, options, values, keys of plans and Python names."""

from __future__ import annotations

import subprocess
import sys

import pytest
from click.testing import CliRunner

import turnout as tn
from turnout.cli.main import turnout
from turnout.plans import Plan

ACCOUNT = ["account", "--noise-multiplier=1", "--delta=1e-6", "--relation=add-remove"]


@pytest.mark.parametrize(
    ("arguments", "meant"),
    [
        (["acount"], "account"),
        (["accounting"], "account"),
        (["price"], "account"),
        (["epsilon"], "account"),
        (["callibrate"], "calibrate"),
        (["comapre"], "compare"),
        (["budgets"], "budget"),
        (["trian"], "train"),
        (["learn"], "train"),
        (["server"], "serve"),
        (["client"], "join"),
        (["enroll"], "enrol"),
        (["survey"], "estimate"),
        (["estimat"], "estimate"),
        (["test"], "audit"),
        (["legder"], "ledger"),
        (["Account"], "account"),
        (["estimate", "frequency"], "frequencies"),
        (["estimate", "histogram"], "frequencies"),
        (["estimate", "heavy_hitters"], "heavy-hitters"),
        (["budget", "opn"], "open"),
        (["account", "--noise", "1"], "--noise-multiplier"),
        (["account", "--sigma", "1"], "--noise-multiplier"),
        (["account", "--noise_multiplier", "1"], "--noise-multiplier"),
        (["account", "--batch", "1"], "--batch-size"),
        (["account", "--sample-rate", "1"], "--rate"),
        (["account", "--windw", "1"], "--window"),
        (["account", "--relaton", "x"], "--relation"),
        (["calibrate", "--eps", "1"], "--epsilon"),
        (["account", "--scheme", "poison"], "poisson"),
        (["account", "--scheme", "checkin"], "check-in"),
        (["account", "--scheme", "random-allocation"], "check-in"),
        (["account", "--scheme", "loader"], "shuffle"),
        (["account", "--scheme=none", "--randomizer", "gausian"], "gaussian"),
        (["account", "--scheme=none", "--randomizer", "normal"], "gaussian"),
        ([*ACCOUNT[:3], "--scheme=none", "--relation", "add_remove"], "add-remove"),
        ([*ACCOUNT[:3], "--scheme=none", "--relation", "substitute"], "replace-one"),
        ([*ACCOUNT, "--records=9", "--batch-size=3", "--epochs=1", "--sampler=Poisson"], "poisson"),
        (["train", "--example", "digit", "--print-plan"], "digits"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else value,
)
def test_an_unknown_word_of_a_command_line_is_refused_with_a_suggestion(arguments, meant):
    done = CliRunner().invoke(turnout, arguments, standalone_mode=False)
    assert f"id you mean '{meant}'?" in str(getattr(done.exception, "message", done.exception))


@pytest.mark.parametrize(
    ("key", "wrong"),
    [("noise_multiplier", "noise"), ("learning_rate", "learningrate"), ("window", "windw")],
)
def test_an_unknown_key_of_a_plan_is_refused_with_a_suggestion(key, wrong):
    from turnout.plans import example_plan

    text = example_plan("digits").read_text().replace(f"{key} =", f"{wrong} =")
    if key == "noise_multiplier":
        text = text.replace("clip_norm =", "noise = 1.0\nclip_norm =")
    with pytest.raises(tn.ParameterError, match=f"did you mean [a-z.]*{key}"):
        Plan.from_toml(text, "plan.toml")


def test_an_unknown_name_of_the_package_is_refused_with_a_suggestion():
    with pytest.raises(AttributeError, match="did you mean 'PoissonSampling'"):
        tn.PoisonSampling  # noqa: B018


def test_a_word_that_is_similar_to_no_known_word_gets_no_suggestion():
    with pytest.raises(tn.ParameterError) as caught:
        tn.Scheme(tn.GaussianNoise(1.0), tn.CheckIn(5), relation="frobnicate")
    assert "did you mean" not in str(caught.value)


def test_the_package_runs_as_a_module():
    command = [sys.executable, "-m", "turnout", "--version"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("turnout ")
