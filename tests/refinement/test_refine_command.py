"""The command ``turnout refine``, run as a user runs it."""

import csv
import json
import re

import click
import numpy as np
import pytest
from click.testing import CliRunner

from turnout.cli.main import EXIT_CODES
from turnout.cli.refine import refine
from turnout.core.errors import ParameterError, StorageError, TurnoutError
from turnout.estimation.private.columns import item_blocks, read_labels
from turnout.refinement import enough_randomness, least_key_bits


def run(*words):
    """Standard output of a command; errors are raised as the main function receives them."""
    result = CliRunner().invoke(refine, [str(word) for word in words], standalone_mode=False)
    if result.exception is not None:
        raise result.exception
    return result.output


@pytest.fixture
def data(tmp_path):
    shares = [0.4, 0.3, 0.2, 0.1]
    np.save(tmp_path / "values.npy", np.random.default_rng(1).choice(4, 20_000, p=shares))
    return tmp_path / "values.npy"


def document(*words):
    return json.loads(run("decode", *words, "--json"))


def test_each_key_file_decodes_the_estimates_of_its_epsilon(data, tmp_path):
    out = tmp_path / "release"
    text = run("encode", data, "--size", 4, "--epsilon", "0.5", "1", "4", "--out", out)
    assert "20,000 clients, 4 values" in text
    assert {path.name for path in out.iterdir()} == {"public", "key-1", "key-4"}
    truth = np.bincount(np.load(data), minlength=4) / 20_000
    widths = []
    for epsilon, words in ((0.5, []), (1, ["--key", out / "key-1"]), (4, ["--key", out / "key-4"])):
        found = document(out / "public", *words, "--confidence", 1 - 1e-9)
        assert found["epsilon"] == epsilon
        assert found["clients"] == 20_000
        for row in found["frequencies"]:
            assert row["low"] <= truth[int(row["value"])] <= row["high"]
        widths.append(max(row["population_standard_error"] for row in found["frequencies"]))
    assert widths == sorted(widths, reverse=True)


@pytest.mark.parametrize(
    "words",
    [
        ["--epsilon", "0.5", "1", "DATA"],
        ["DATA", "--epsilon=0.5", "1"],
        ["--epsilon", "0.5", "--epsilon", "1", "DATA"],
        ["DATA", "--epsilon", "1", "0.5"],
    ],
)
def test_refine_encode_accepts_every_form_of_the_epsilon_option(data, tmp_path, words):
    filled = [data if word == "DATA" else word for word in words]
    run("encode", *filled, "--size", 4, "--out", tmp_path / "out")
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"public", "key-1"}


def test_the_key_for_infinite_epsilon_recovers_every_value(data, tmp_path):
    out = tmp_path / "release"
    run("encode", data, "--size", 4, "--epsilon", "0.5", "inf", "--out", out)
    run("decode", out, "--key", out / "key-inf", "--values", tmp_path / "back.npy")
    assert np.array_equal(np.load(tmp_path / "back.npy"), np.load(data))
    assert document(out, "--key", out / "key-inf")["epsilon"] is None
    with pytest.raises(click.UsageError, match="needs the key for epsilon = inf"):
        run("decode", out, "--values", tmp_path / "no.npy")


def test_refine_encodes_a_labelled_column_of_a_csv_file(tmp_path):
    (tmp_path / "labels").write_text("Ulm\nKöln\nBonn\n", encoding="utf-8")
    rows = "name,town\n" + "x,Bonn\ny,Ulm\n" * 500
    (tmp_path / "survey.csv").write_text(rows, encoding="utf-8")
    out = tmp_path / "out"
    run(
        "encode", tmp_path / "survey.csv", "--column", "town", "--labels", tmp_path / "labels",
        "--epsilon", "1", "inf", "--out", out,
    )  # fmt: skip
    text = run("decode", out, "--key", out / "key-inf", "--out", tmp_path / "table.csv")
    assert "Bonn" in text
    with (tmp_path / "table.csv").open(encoding="utf-8") as file:
        table = {row["value"]: float(row["frequency"]) for row in csv.DictReader(file)}
    assert table == pytest.approx({"Bonn": 0.5, "Ulm": 0.5, "Köln": 0.0}, abs=1e-9)


def test_the_minimal_key_recovers_every_value(data, tmp_path):
    out = tmp_path / "kept"
    text = run(
        "encode", data, "--size", 4, "--epsilon", 0.5, "inf", "--mechanism", "minimal", "--out", out
    )
    held, least = re.search(r"has ([\d.]+) bits.* ([\d.]+) is the least", text).groups()
    assert held == least == f"{least_key_bits(4, 0.5):.3f}"
    run("decode", out, "--key", out / "key-inf", "--values", tmp_path / "back.npy")
    assert np.array_equal(np.load(tmp_path / "back.npy"), np.load(data))


@pytest.mark.parametrize("randomness", [0.3, 2])
def test_refine_limited_estimates_frequencies_from_few_random_bits(data, randomness):
    words = ["limited", data, "--size", 4, "--epsilon", 2, "--randomness", randomness]
    found = json.loads(run(*words, "--confidence", 1 - 1e-9, "--json"))
    assert found["randomness_bits"] <= randomness * (1 + 1e-12)
    assert found["enough_randomness_bits"] == enough_randomness(2)
    assert abs(found["clients"] - found["share_asked"] * 20_000) < 6 * 20_000**0.5
    assert (found["share_asked"] == 1) == (randomness == 2)
    truth = np.bincount(np.load(data), minlength=4) / 20_000
    for row in found["frequencies"]:
        assert row["low"] <= truth[int(row["value"])] <= row["high"]
    shown = run(*words)
    assert "replace-one, local model" in shown
    assert f"{found['share_asked']:.1%} of 20,000 clients were asked" in shown


@pytest.mark.parametrize(
    ("words", "kind", "match"),
    [
        (
            ["limited", "values.npy", "--epsilon", "1", "--randomness", "1"],
            click.UsageError,
            "--size",
        ),
        (
            ["limited", "values.npy", "--size", "4", "--epsilon", "1", "--randomness", "0"],
            ParameterError,
            "randomness_bits",
        ),
        (["decode", "A/public", "--key", "B/key-1"], StorageError, "belongs to release"),
        (["decode", "A/public", "--key", "A/public"], StorageError, "expected a key"),
        (["decode", "A/key-1"], StorageError, "expected a release"),
        (["decode", "A/public", "--key", "A/key-9"], StorageError, "No such file"),
        (["decode", "A/public", "--key", "cut"], StorageError, "damaged or cut short"),
        (["decode", "A/public", "--epsilon", "1"], click.UsageError, "needs its key"),
        (["decode", "A/public", "--epsilon", "3"], ParameterError, "a level of this release"),
        (
            ["decode", "A/public", "--key", "A/key-1", "--epsilon", "0.5"],
            ParameterError,
            "the key for epsilon = 0.5",
        ),
        (["encode", "values.npy", "--epsilon", "1", "--out", "C"], click.UsageError, "--size K"),
        (
            ["encode", "values.npy", "--epsilon", "1", "--size", "3", "--out", "C"],
            ParameterError,
            "from 0 to 2",
        ),
        (
            ["encode", "values.npy", "--epsilon", "1", "1", "--size", "4", "--out", "C"],
            ParameterError,
            "different levels",
        ),
        (
            ["encode", "values.npy", "--epsilon", "1", "0.5", "--size", "4", "--out", "A"],
            StorageError,
            "never overwritten",
        ),
    ],
)
def test_errors_of_the_refine_command_name_their_cause(
    data, tmp_path, monkeypatch, words, kind, match
):
    monkeypatch.chdir(tmp_path)
    for folder in ("A", "B"):
        run("encode", data, "--size", 4, "--epsilon", "0.5", "1", "--out", folder)
    (tmp_path / "cut").write_bytes((tmp_path / "A" / "key-1").read_bytes()[:-9])
    with pytest.raises(kind, match=match) as caught:
        run(*words)
    assert isinstance(caught.value, click.UsageError | TurnoutError)
    assert issubclass(kind, (*EXIT_CODES, click.ClickException))
    assert not (tmp_path / "C").exists()


def test_refine_decode_prints_no_estimate_for_a_refused_key(data, tmp_path):
    for name in ("A", "B"):
        run("encode", data, "--size", 4, "--epsilon", "0.5", "1", "--out", tmp_path / name)
    words = ["decode", tmp_path / "A", "--key", tmp_path / "B" / "key-1"]
    result = CliRunner().invoke(refine, [str(word) for word in words])
    assert result.exit_code != 0
    assert result.output == ""


def read_values(path, size, labels=()):
    return np.concatenate(list(item_blocks(path, size, labels)))


def test_refine_refuses_files_with_invalid_values(tmp_path):
    def file(name, text):
        (tmp_path / name).write_text(text, encoding="utf-8")
        return tmp_path / name

    assert read_values(file("a.csv", "v\n0\n2\n"), 3).tolist() == [0, 2]
    labels = read_labels(file("labels", "b\na\n"))
    assert read_labels(file("blank", "\ufeffb\na\n\n\n")) == labels
    assert read_values(file("b.csv", "v\na\nb\na\n"), 2, labels).tolist() == [1, 0, 1]
    for text, kind, match in (
        ("v\n0\n3\n", ParameterError, "from 0 to 2"),
        ("v\n0\n\n1\n", ParameterError, "a value in every row; invalid: row 1"),
        ("v\n1.0\n", ParameterError, "whole numbers"),
        ("v\n", StorageError, "no values"),
        ("", StorageError, "names no columns"),
        ("v,w\n0,1\n", StorageError, "expected one of v, w"),
        ("v,v\n0,1\n", StorageError, "expected one of v, v"),
    ):
        with pytest.raises(kind, match=match):
            read_values(file("wrong.csv", text), 3)
    with pytest.raises(ParameterError, match="2 names"):
        read_values(file("c.csv", "v\nc\n"), 2, labels)
    for text in ("a\n", "a\na\n"):
        with pytest.raises(StorageError, match="all different"):
            read_labels(file("bad", text))
    np.save(tmp_path / "two.npy", np.zeros((2, 2), dtype=int))
    np.save(tmp_path / "float.npy", np.full(2, 0.5))
    np.save(tmp_path / "objects.npy", np.array([{}], dtype=object), allow_pickle=True)
    for name, kind in (
        ("two.npy", StorageError),
        ("float.npy", ParameterError),
        ("objects.npy", StorageError),
        ("labels", StorageError),
        ("nowhere.npy", StorageError),
    ):
        with pytest.raises(kind):
            read_values(tmp_path / name, 3)
