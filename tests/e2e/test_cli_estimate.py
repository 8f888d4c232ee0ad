"""``turnout estimate`` in a separate process."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
from command_line import environment
from forked import completed

from turnout.randomizers import LocalHashing


def run(*arguments):
    here, wide = Path.cwd(), environment(COLUMNS="100")
    return completed("estimate", *arguments, folder=here, environment=wide)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("estimate")
    people = np.repeat(["Bonn", "Ulm", "Kiel"], [25_000, 15_000, 10_000])
    (folder / "towns.csv").write_text("town,age\n" + "".join(f"{p},30\n" for p in people))
    (folder / "towns.txt").write_text("Bonn\nUlm\nKiel\nJena\n")
    np.save(folder / "items.npy", np.random.default_rng(1).integers(0, 300, 40_000))
    vectors = np.random.default_rng(2).normal(size=(3000, 30)) + 1
    np.save(folder / "vectors.npy", vectors / np.linalg.norm(vectors, axis=1, keepdims=True))
    return folder


def test_estimate_of_a_column_of_names_prints_a_table_and_draws_a_picture(folder):
    asked = (folder / "towns.csv", "--column", "town", "--labels", folder / "towns.txt")
    picture = folder / "towns.svg"
    shown = run(
        "frequencies", *asked, "--epsilon", 2, "--model", "local", "--picture", picture, "--top", 3
    )
    assert shown.returncode == 0, shown.stderr
    assert shown.stdout.splitlines()[0] == "frequencies among 50,000 clients"
    assert [line.split()[0] for line in shown.stdout.splitlines()[3:6]] == ["Bonn", "Ulm", "Kiel"]
    for said in (
        "ε₀",
        "pure, exact",
        "replace-one",
        "one row",
        "no party is trusted",
        "bits a client",
        "± noise and sampling",
        "of these clients: privacy noise alone",
        "simple random",
    ):
        assert said in shown.stdout
    assert "and 1 more" in shown.stdout
    assert "Bonn" in picture.read_text()


def test_json_of_an_estimate_has_the_exact_epsilon_of_the_randomizer(folder):
    result = run(
        "frequencies", folder / "items.npy", "--size", 300, "--epsilon", 1, "--model", "local",
        "--mechanism", "local-hashing", "--json",
    )  # fmt: skip
    found = json.loads(result.stdout)
    randomizer = LocalHashing(1.0, 300, public=True)
    assert found["epsilon"] == found["local_epsilon"] == randomizer.epsilon0
    assert found["message_bits"] == randomizer.message_bits
    assert len(found["frequencies"]) == 300
    noise, sampling, both = (
        found["frequencies"][0][f"{name}_standard_error"]
        for name in ("noise", "sampling", "population")
    )
    assert 0 < sampling < noise < both
    assert both == pytest.approx(math.hypot(noise, sampling))
    assert found["clients"] == 40_000


def test_two_estimates_of_the_same_data_differ(folder):
    asked = ("mean", folder / "vectors.npy", "--norm", "l2", "--radius", 1, "--epsilon", 4)
    one, other = (run(*asked, "--model", "local", "--bits", 12, "--json") for _ in range(2))
    one, other = json.loads(one.stdout), json.loads(other.stdout)
    assert one["mean"] != other["mean"]
    assert one["epsilon"] == other["epsilon"] <= 4
    assert one["message_bits"] <= 12


def test_estimate_under_add_remove_does_not_print_the_number_of_rows(folder):
    asked = ("frequencies", folder / "towns.csv", "--column", "age", "--size", 100)
    result = run(
        *asked, "--epsilon", 0.1, "--model", "central", "--relation", "add-remove", "--json"
    )
    found = json.loads(result.stdout)
    assert found["clients"] is None
    assert found["clients_estimated"] != 50_000
    assert found["trust_model"] == "central"
    assert "sees every row" in " ".join(found["assumptions"])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("frequencies items.npy --epsilon 1 --model local", "not taken from the data"),
        ("frequencies items.npy --size 9 --epsilon 1 --model local", "from 0 to 8"),
        ("frequencies items.npy --size 300 --epsilon 1 --model central", "relation"),
        ("frequencies items.npy --size 300 --epsilon 1 --model shuffled", "delta"),
        ("frequencies items.npy --size 300 --epsilon 0 --model local", "epsilon"),
        ("frequencies items.npy --size 300 --epsilon 1 --model local --picture a.txt", "--picture"),
        ("mean vectors.npy --norm l2 --epsilon 1 --model local", "--radius"),
    ],
)
def test_estimate_refuses_invalid_options_in_one_line_with_exit_code_2(folder, words, said):
    command_name, file, *rest = words.split()
    result = run(command_name, folder / file, *rest)
    assert result.returncode == 2
    assert said in result.stderr
    assert result.stderr.count("\n") == 1
    assert not result.stdout
