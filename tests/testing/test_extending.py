"""The participation and the randomizer of docs/extending.md work as documented.

Each example is one file. tests/meta/test_transcripts.py runs the page's own tests, which show that
the examples conform.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from extending_page import PLAN, example

from turnout.accounting import shuffled_price
from turnout.cli.main import turnout
from turnout.schemes import NonAdaptiveRandomizer
from turnout.testing import assert_randomizer

LAW = example("participation: rested_check_in.py")
SUITE = "from rested_check_in import RestedCheckIn\n" + example("test of the participation")


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "rested_check_in.py").write_text(LAW)
    return tmp_path


def run(folder: Path, script: str, *arguments: str) -> str:
    """Output of a program that imports the example from a folder."""
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")]),
        },
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def command(begin: str) -> str:
    return f"import sys\n{begin}\nfrom turnout.cli.main import main\nmain(sys.argv[1:])"


IMPORTED = "import rested_check_in"
IN_PLACE = (
    "import turnout.schemes.participation\nturnout.schemes.participation.__path__.append('.')"
)
"""Import of the example as a file of `turnout.schemes.participation`."""
QUESTION = "account --scheme rested --window 4 --pairs 2 --probability 0.5 --noise-multiplier 2"
PROMISE = "--delta 1e-5 --relation add-remove --json"


def test_the_documented_participation_example_is_short():
    assert len(LAW.splitlines()) < 40


def test_the_participation_example_with_a_wrong_guarantee_fails_its_suite(folder):
    wrong = SUITE.replace("4 + third", "2 + third")
    assert wrong != SUITE
    with pytest.raises(AssertionError, match="is drawn by"):
        run(folder, wrong)


@pytest.mark.parametrize("begin", [IMPORTED, IN_PLACE])
def test_the_account_command_computes_epsilon_of_a_custom_participation(folder, begin):
    found = json.loads(run(folder, command(begin), *f"{QUESTION} {PROMISE}".split()))
    known = QUESTION.replace("rested", "check-in").replace("--pairs", "--windows")
    asked = CliRunner().invoke(turnout, f"{known} {PROMISE}".split(), catch_exceptions=False)
    other = json.loads(asked.stdout)
    assert found["scheme"]["name"] == "rested"
    assert found["epsilon"] == other["epsilon"]
    assert "--pairs" in run(folder, command(begin), "account", "--help")


def test_a_plan_with_a_custom_participation_is_trained(folder):
    (folder / "plan.toml").write_text(PLAN)
    run(folder, command(IN_PLACE), "train", "plan.toml", "--out", "out")
    assert json.loads((folder / "out" / "report.json").read_text())


SERVED = """
import numpy as np
import turnout as tn
from turnout.randomness import OSRandomness
from turnout.schemes.codec import participation_from_dict
from turnout.schemes import GaussianNoise, Scheme
from turnout.participation.schedule import blocks
from turnout.participation.drawing import draw
from turnout.protocol.coordinator import Admissions
from turnout.verification.document import rebuilt
law = participation_from_dict({"is": "RestedCheckIn", "window": 3, "pairs": 2, "probability": 1.0})
slots = [s for block in blocks(law)
         for s in draw(law, 5, block, OSRandomness(), client=2).slots().tolist()]
record = Admissions(law, 5)
assert len(slots) == 2 and all(record.admit(np.array([2]), s)[0] == 0 for s in slots)
assert all(step % 6 < 3 for step in slots)
assert tn.RestedCheckIn is type(law)
"""


def test_a_device_draws_a_custom_participation_and_is_admitted(folder):
    run(folder, f"{IN_PLACE}\n{SERVED}")


RANDOMIZER = example("randomizer: square_response.py")
RANDOMIZER_IMPORTED = "import square_response"
RANDOMIZER_IN_PLACE = "import turnout.randomizers\nturnout.randomizers.__path__.append('.')"
"""Import of the example as a file of `turnout.randomizers`."""


@pytest.fixture
def randomizer_folder(tmp_path):
    (tmp_path / "square_response.py").write_text(RANDOMIZER)
    return tmp_path


def test_the_documented_randomizer_example_is_short():
    assert len(RANDOMIZER.splitlines()) < 40


@pytest.mark.parametrize(
    ("right", "wrong", "match"),
    [
        ("-self.gain / self.reply_count)", "0 * self.gain)", "the estimate of"),
        ("self.offset) / 2)", "self.offset) / 4)", "one message at"),
        ("Fraction(self.reply_count, 2)", "self.reply_count", "has ε₀"),
    ],
)
def test_the_randomizer_example_with_a_wrong_privacy_claim_fails_its_suite(right, wrong, match):
    unnamed = RANDOMIZER.replace('@mechanism("square", question="square-response")\n', "")
    assert right in unnamed
    made: dict[str, Any] = {"__name__": "square_response"}
    exec(unnamed.replace(right, wrong), made)
    with pytest.raises(AssertionError, match=match):
        assert_randomizer(made["SquareResponse"](1.0, 4))


def test_shuffled_epsilon_of_a_custom_randomizer_is_below_the_generic_bound(randomizer_folder):
    asked = "account --scheme shuffle --clients 1e4 --delta 1e-6 --json --epsilon0 2 --items 10"
    kind = ["--randomizer", "square-response"]
    own = json.loads(run(randomizer_folder, command(RANDOMIZER_IMPORTED), *asked.split(), *kind))
    assert own["randomizer"].pop("plugin").startswith("square_response of the file square_response")
    assert own["randomizer"] == {"name": "square-response", "epsilon0": 2.0, "items": 10}
    assert own["epsilon"] < 0.9 * shuffled_price([(NonAdaptiveRandomizer(2.0), 1)], 10_000, 1e-6)


def test_frequencies_are_estimated_with_a_custom_randomizer(randomizer_folder):
    (randomizer_folder / "items.csv").write_text("item\n" + "0\n1\n2\n3\n3\n" * 600)
    asked = "estimate frequencies items.csv --size 4 --epsilon 2 --delta 1e-6 --model shuffled"
    kind = ["--mechanism", "square", "--json"]
    found = json.loads(run(randomizer_folder, command(RANDOMIZER_IN_PLACE), *asked.split(), *kind))
    assert "SquareResponse" in json.dumps(found)
