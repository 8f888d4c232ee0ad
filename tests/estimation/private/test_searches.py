"""Commands ``turnout estimate heavy-hitters`` and ``user-mean``."""

import json

import click
import numpy as np
import pytest
from click.testing import CliRunner

from turnout.cli.estimate import estimate
from turnout.core.errors import InputFileError, ParameterError, UnsupportedError
from turnout.estimation.private.estimates import client_means, user_mean
from turnout.estimation.private.searches import heavy_hitters, word_code, word_of
from turnout.estimation.user_level_means import UserLevelMean
from turnout.randomness import SimulationStreams
from turnout.testing import enumerate_outputs


def source(name):
    return SimulationStreams(41).source(name)


def run(*words):
    """Standard output of a command; its errors are raised."""
    result = CliRunner().invoke(
        estimate, [str(word) for word in words], standalone_mode=False, env={"COLUMNS": "200"}
    )
    if result.exception is not None:
        raise result.exception
    return result.output


@pytest.fixture
def words(tmp_path):
    rng = np.random.default_rng(3)
    held = rng.integers(0, 26, (30_000, 8)).astype(np.uint8) + ord("a")
    column = ["".join(map(chr, row)) for row in held]
    column[:14_500] = np.repeat(["Hello", "thank-you"], [10_000, 4500]).tolist()
    path = tmp_path / "words.csv"
    path.write_text("word\n" + "\n".join(column) + "\n")
    return path


def test_frequent_words_are_found_without_a_list_of_words(words):
    text = run("heavy-hitters", words, "--letters", 9, "--epsilon", 5, "--threshold", 0.02)
    named = [line.split()[0] for line in text.splitlines()[2:4]]
    assert named == ["hello", "thank*you"]
    assert "1 bits a client" in text
    assert "no party is trusted" in text
    found = json.loads(
        run("heavy-hitters", words, "--letters", 9, "--epsilon", 5, "--threshold", 0.2, "--json")
    )
    assert [row["value"] for row in found["named"]] == ["hello"]
    assert (found["trust_model"], found["relation"], found["delta"]) == ("local", "replace-one", 0)
    assert found["epsilon"] <= 5
    (row,) = found["named"]
    assert abs(row["estimate"] - 1 / 3) < 6 * row["noise_standard_error"]


@pytest.mark.parametrize("size", [10**3, 10**15])
def test_the_heavy_hitter_is_found_among_few_and_among_many_numbers(tmp_path, size):
    held = np.random.default_rng(4).integers(0, size, 20_000)
    held[:9000] = size - 5
    np.save(tmp_path / "n.npy", held)
    found = heavy_hitters(tmp_path / "n.npy", 4.0, 0.1, source(f"{size}"), size=size)
    assert found.items == [str(size - 5)]
    assert (found.candidates == size) == (size == 10**3)
    assert abs(found.values[0] - 0.45) < 6 * found.noise_errors[0]


def test_heavy_hitters_returns_only_labels_above_the_threshold(tmp_path):
    (tmp_path / "towns.txt").write_text("Bonn\nUlm\nKiel\n")
    people = np.repeat(["Bonn", "Ulm", "Kiel"], [6000, 3500, 500])
    (tmp_path / "t.csv").write_text("town\n" + "\n".join(people) + "\n")
    words = ["--labels", tmp_path / "towns.txt", "--epsilon", 3, "--threshold", 0.2, "--json"]
    found = json.loads(run("heavy-hitters", tmp_path / "t.csv", *words))
    assert [row["value"] for row in found["named"]] == ["Bonn", "Ulm"]


@pytest.mark.parametrize("word", ["", "a", "zebra", "thankyou", "o'hara", "München"])
def test_words_are_truncated_and_characters_other_than_letters_replaced(word):
    plain = "".join(letter if "a" <= letter <= "z" else "*" for letter in word.lower())
    assert word_of(word_code(word, 8), 8) == plain[:8]
    assert word_code(word, 8) < 2**40


@pytest.fixture
def trips(tmp_path):
    rng = np.random.default_rng(5)
    who = np.repeat(np.arange(3000), 4)
    minutes = 40 + rng.normal(0, 10, who.size)
    order = rng.permutation(who.size)
    rows = [f"r{who[i]},{minutes[i]:.3f},{-minutes[i]:.3f}" for i in order]
    (tmp_path / "trips.csv").write_text("rider,minutes,minus\n" + "\n".join(rows) + "\n")
    np.save(tmp_path / "wide.npy", minutes.reshape(3000, 4))
    return tmp_path


ASKED = ["--radius", 180, "--deviation", 10, "--epsilon", 4]


def test_a_user_level_mean_averages_all_rows_of_a_client(trips):
    truth = float(np.load(trips / "wide.npy").mean())
    long = run(
        "user-mean", trips / "trips.csv", "--client", "rider", "--column", "minutes", "--column",
        "minus", "--samples", 4, *ASKED, "--json",
    )  # fmt: skip
    found = json.loads(long)
    assert found["clients"] == 3000
    assert [row["coordinate"] for row in found["mean"]] == ["minutes", "minus"]
    for row, value in zip(found["mean"], (truth, -truth), strict=True):
        assert abs(row["mean"] - value) < 6 * row["noise_standard_error"]
        assert row["noise_standard_error"] < 3  # proportional to τ and not to the radius
    assert found["epsilon"] <= 4
    text = run("user-mean", trips / "wide.npy", *ASKED, "--picture", trips / "mean.svg")
    assert "one row of the file, all that it holds" in text
    assert (trips / "mean.svg").exists()


def test_nul_characters_are_kept_and_missing_values_are_replaced(tmp_path):
    rows = [f"{who},{word},{x}" for who, word, x in (("a", "ann", 1), ("a\0", "an\0n", 3)) * 400]
    (tmp_path / "t.csv").write_text("who,word,x\n" + "\n".join([*rows, "b,,", "c,bob,5"]) + "\n")
    words = ["heavy-hitters", tmp_path / "t.csv", "--column", "word", "--letters", 4, "--json"]
    with pytest.raises(ParameterError, match="a value in every row; invalid: row 800 "):
        run(*words, "--epsilon", 9)
    found = json.loads(run(*words, "--epsilon", 9, "--missing", "bob", "--threshold", 0.2))
    assert {row["value"] for row in found["named"]} == {"ann", "an*n"}
    assert word_code("a", 3) != word_code("a\0", 3)
    assert word_code("e\u0301", 3) == word_code("\xe9", 3)
    means = ["user-mean", tmp_path / "t.csv", "--client", "who", "--column", "x", "--samples", 1]
    with pytest.raises(ParameterError, match="a value in every row; invalid: row 800 "):
        run(*means, *ASKED)
    means, _ = client_means(tmp_path / "t.csv", ["x"], "who", 4.0)
    assert sorted(means.ravel().tolist()) == [1.0, 3.0, 4.0, 5.0]


def test_the_two_messages_of_a_user_level_mean_together_have_epsilon0():
    scheme = UserLevelMean(1, 1.0, 40.0, 1.0, 4, 4000, 0.01)
    assert scheme.bins > 2
    centre = np.zeros(1)

    def sent(held):
        def client(stream):
            ((_, first),) = scheme.range_messages([[held]], stream)
            return [first.tolist(), scheme.mean_messages([[held]], centre, stream).tolist()]

        return enumerate_outputs(client)

    ends = [sent(held) for held in (-40.0, -3 * scheme.radius, 3 * scheme.radius, 40.0)]
    outcomes = set().union(*ends)
    worst = max(float(a[out] / b[out]) for out in outcomes for a in ends for b in ends)
    assert worst == pytest.approx(np.exp(scheme.epsilon0), rel=1e-9)
    assert scheme.epsilon0 <= 1.0


@pytest.mark.parametrize(
    ("words", "kind", "match"),
    [
        (["heavy-hitters", "w.csv", "--epsilon", 1], click.UsageError, "--letters L"),
        (["heavy-hitters", "w.csv", "--epsilon", 1, "--letters", 13], ParameterError, "at most 12"),
        (["heavy-hitters", "w.csv", "--epsilon", 31, "--letters", 3], ParameterError, "at most 30"),
        (["heavy-hitters", "w.csv", "--epsilon", 1, "--letters", 9], ParameterError, "clients"),
        (["heavy-hitters", "w.csv", "--epsilon", 1, "--size", 2**62], ParameterError, "2.61"),
        (
            ["heavy-hitters", "w.csv", "--epsilon", 1, "--letters", 3, "--error", 0.5],
            ParameterError,
            "error",
        ),
        (["heavy-hitters", "x.csv", "--epsilon", 1, "--letters", 3], InputFileError, "No such"),
        (
            ["user-mean", "n.csv", *ASKED, "--samples", 3],
            ParameterError,
            "no samples without --client",
        ),
        (
            ["user-mean", "n.csv", *ASKED, "--client", "a", "--column", "b"],
            ParameterError,
            "with --client",
        ),
        (["user-mean", "n.csv", *ASKED], UnsupportedError, "too few"),
    ],
)
def test_invalid_combinations_of_options_are_refused(tmp_path, monkeypatch, words, kind, match):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "w.csv").write_text("w\na\n")
    (tmp_path / "n.csv").write_text("a,b\n1,2\n3,4\n")
    with pytest.raises(kind, match=match):
        run(*words)


def test_a_client_column_without_a_value_column_is_refused(trips):
    with pytest.raises(ParameterError, match="the columns to average"):
        user_mean(trips / "trips.csv", 4.0, 180.0, 10.0, source("c"), client="rider", samples=4)
