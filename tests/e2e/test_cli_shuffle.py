"""`turnout account` and `calibrate` for shuffled messages, in a separate process."""

from __future__ import annotations

import json

import pytest

PROMISE = ["--delta", "1e-6", "--json"]
ANSWERS = "--scheme shuffle --epsilon0 1 --clients 100000"
ROUNDS = "--scheme shuffle --clients 20000 --rounds 100"


def test_account_of_a_shuffle_lies_between_attained_and_published_bounds(turnout):
    done = turnout("account", *ANSWERS.split(), *PROMISE)
    assert (done.returncode, done.stderr) == (0, "")
    answer = json.loads(done.stdout)
    # No more than Theorem 3 proves, no less than binary responses really have.
    assert 0.01013 < answer["epsilon"] < 0.01244
    assert answer["scheme"]["order"] == "hidden"
    assert "neither an adversary nor the party that chooses" in answer["assumptions"][1]
    assert answer["published"]["bound"].startswith("clones 2021 (Feldman")
    assert answer["published"]["epsilon"] == pytest.approx(0.01528, rel=5e-4)
    assert answer["epsilon_lower"] <= answer["epsilon"]
    assert (answer["relation"], answer["trust_model"]) == ("replace-one", "shuffled")


def test_the_calibrated_local_epsilon_is_the_largest_that_meets_the_target(turnout):
    law = ROUNDS.split()
    done = turnout("calibrate", *law, "--epsilon", "1", "--solve-for", "epsilon0", *PROMISE)
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads(done.stdout)
    assert 0.98 < found["epsilon"] <= 1
    for value, within in ((found["value"], True), (1.02 * found["value"], False)):
        done = turnout("account", *law, "--epsilon0", repr(value), *PROMISE)
        assert (done.returncode, done.stderr) == (0, "")
        assert (json.loads(done.stdout)["epsilon"] <= 1) == within


def test_the_table_of_a_shuffle_states_trust_model_and_assumptions(turnout):
    done = turnout("account", *ANSWERS.split(), "--delta", "1e-6")
    assert (done.returncode, done.stderr) == (0, "")
    said = ("replace-one", "client", "shuffled", "no shuffler", "assumes", "ε lower bound", "δ")
    for word in said:
        assert word in done.stdout


@pytest.mark.parametrize(
    ("flags", "line"),
    [
        ("--scheme shuffle --epsilon0 1", "--clients = (missing): expected a value"),
        ("--scheme shuffle --epsilon0 1 --clients 0", "--clients = 0: expected a whole number"),
        (
            "--scheme subsampled-shuffle --epsilon0 1 --clients 9 --sampled 10",
            "--sampled = 10: expected at most clients = 9",
        ),
        (
            "--scheme shuffle --epsilon0 1 --clients 9 --relation add-remove",
            "--relation = 'add-remove': expected replace-one, the default with --scheme shuffle",
        ),
    ],
)
def test_account_refuses_invalid_options_of_a_shuffle_in_one_line(turnout, flags, line):
    done = turnout("account", *flags.split(), "--delta", "1e-6")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"turnout: {line}")
    assert done.stderr.count("\n") == 1


def test_a_known_order_of_messages_is_refused_with_two_remedies(turnout):
    done = turnout("account", *ANSWERS.split(), "--order", "known", *PROMISE)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("turnout: the order of speaking is 'known': PureRandomizer may")
    assert "declare order = 'hidden'" in done.stderr
    assert "use NonAdaptiveRandomizer (non-adaptive)" in done.stderr
    assert done.stderr.count("\n") == 1
