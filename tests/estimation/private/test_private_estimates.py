"""Private estimates from files: unbiased, with the declared ε, in each trust model."""

import math
import re
from fractions import Fraction
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest

from turnout.cli.estimate import estimate
from turnout.core.errors import ParameterError, StorageError, UnsupportedError
from turnout.core.installation import install_line
from turnout.estimation.private import columns
from turnout.estimation.private.answers import PrivacyRequest, frequency_randomizer, mean_randomizer
from turnout.estimation.private.central import (
    UNITS,
    clip_rows,
    discrete_laplace,
    gaussian_noise,
    laplace_noise,
    mean_noise,
    whole_units,
)
from turnout.estimation.private.columns import item_blocks, vector_blocks
from turnout.estimation.private.estimates import frequencies, mean
from turnout.randomizers.interface import all_mechanisms
from turnout.randomizers.vectors import PrivUnit, SphericalCode
from turnout.randomness import OSRandomness, SimulationStreams
from turnout.testing import assert_frequencies, assert_rejects

LOCAL = PrivacyRequest(1.0, "local")
SHUFFLED = PrivacyRequest(1.0, "shuffled", delta=1e-6)
CENTRAL = PrivacyRequest(1.0, "central", relation="add-remove")
REPLACED = PrivacyRequest(1.0, "central", relation="replace-one", delta=1e-6)
HELD = np.repeat(np.arange(4), [8000, 6000, 4000, 2000])
SIX_SIGMA = 6.5  # a false alarm of 1e-10 a normal number


def source(name: Any = "clients"):
    return SimulationStreams(11).source(name)


@pytest.fixture
def items(tmp_path):
    np.save(tmp_path / "items.npy", HELD)
    return tmp_path / "items.npy"


@pytest.fixture
def vectors(tmp_path):
    drawn = np.random.default_rng(5).normal(size=(4000, 5)) + 1.0
    np.save(tmp_path / "vectors.npy", drawn / np.linalg.norm(drawn, axis=1, keepdims=True))
    return tmp_path / "vectors.npy"


@pytest.mark.parametrize("name", all_mechanisms())
def test_epsilon_of_a_local_estimate_equals_the_enumerated_epsilon(items, name):
    found = frequencies(items, 4, LOCAL, source(), mechanism=name)
    randomizer, _ = frequency_randomizer(1.0, 4, name)
    distributions = [randomizer.probabilities(item) for item in range(4)]
    ratio = max(
        one[m] / other[m]
        for one in distributions
        for other in distributions
        for m in range(len(one))
        if other[m]
    )
    assert isinstance(ratio, Fraction)
    assert found.cost.local_epsilon is not None
    assert found.cost.epsilon == found.cost.local_epsilon <= 1.0
    assert found.cost.epsilon == pytest.approx(math.log(ratio), rel=1e-15)
    assert found.cost.message_bits == randomizer.message_bits
    assert (found.cost.trust, found.cost.relation, found.cost.delta) == ("local", "replace-one", 0)


@pytest.mark.parametrize("privacy", [LOCAL, SHUFFLED, CENTRAL, REPLACED], ids=str)
def test_estimated_frequencies_are_unbiased(items, privacy):
    truth, wrong = np.array([0.4, 0.3, 0.2, 0.1]), np.array([0.3, 0.4, 0.2, 0.1])
    runs = [frequencies(items, 4, privacy, source(i)) for i in range(12)]
    raw = np.mean([found.raw for found in runs], axis=0)
    error = runs[0].noise_errors / math.sqrt(len(runs))
    assert np.all(abs(raw - truth) < SIX_SIGMA * error)
    assert np.any(abs(raw - wrong) > SIX_SIGMA * error)
    for found in runs:
        assert found.values.sum() == pytest.approx(1)
        assert np.all((found.low <= np.clip(found.raw, 0, 1)) & (found.raw <= found.high + 1e-12))


@pytest.mark.parametrize("norm", ["l1", "l2", "linf"])
@pytest.mark.parametrize("privacy", [LOCAL, SHUFFLED, CENTRAL, REPLACED], ids=str)
def test_estimated_means_of_clipped_rows_are_unbiased(vectors, norm, privacy):
    radius = 0.7  # Below many rows' norm.
    rows = np.load(vectors)
    truth, unclipped = clip_rows(rows, norm, radius).mean(axis=0), rows.mean(axis=0)
    runs = [mean(vectors, norm, radius, privacy, source(i)) for i in range(3)]
    value = np.mean([found.value for found in runs], axis=0)
    # The root of the bound over all coordinates bounds each coordinate's error.
    error = math.sqrt(max(found.mse_bound for found in runs) / len(runs))
    assert np.all(abs(value - truth) < SIX_SIGMA * error)
    if norm == "l1":  # the norm whose clipping changes most
        assert np.linalg.norm(unclipped - truth) > 0.1
    if privacy.trust == "central":
        assert np.all(abs(value - truth) < SIX_SIGMA * runs[0].noise_errors / 3**0.5 * 1.2)
        assert norm == "linf" or np.any(abs(value - unclipped) > SIX_SIGMA * error)


def test_messages_for_a_mean_have_at_most_the_requested_number_of_bits(vectors):
    found = mean(vectors, "l2", 1.0, PrivacyRequest(4.0, "local", bits=6), source())
    randomizer, _ = mean_randomizer("l2", 5, 4.0, 1.0, 6)
    assert found.cost.message_bits == randomizer.message_bits <= 6
    assert found.cost.epsilon == randomizer.epsilon0 <= 4.0
    assert found.mse_bound == randomizer.worst_squared_error / 4000
    free = mean_randomizer("l2", 5, 4.0, 1.0)[0]
    assert free.worst_squared_error <= 1.15 * PrivUnit(5, 4.0, 1.0).worst_squared_error
    tight = mean_randomizer("l2", 5, 4.0, 1.0, 1)[0]
    assert tight.message_bits == 1
    # Public directions of a client would identify the sender of its message.
    assert not isinstance(mean_randomizer("l2", 5, 4.0, 1.0, public=False)[0], SphericalCode)


def test_the_chosen_mechanism_has_about_the_least_error_and_few_bits():
    for epsilon, size in [(0.5, 4), (1.0, 1000), (4.0, 50), (8.0, 50)]:
        chosen, _ = frequency_randomizer(epsilon, size)
        others = [frequency_randomizer(epsilon, size, name)[0] for name in all_mechanisms()]
        least = min(each.mse_bound(1) for each in others)
        assert chosen.mse_bound(1) <= 1.05 * least
        near = [each for each in others if each.mse_bound(1) <= 1.05 * least]
        assert chosen.message_bits <= min(each.message_bits for each in near)
    assert frequency_randomizer(1.0, 1000, bits=1)[0].message_bits == 1
    with pytest.raises(ParameterError, match="bits = 1: expected at least"):
        frequency_randomizer(1.0, 1000, "k-ary", 1)
    with pytest.raises(ParameterError, match="bits = 1: expected at least"):
        frequency_randomizer(1.0, 1000, bits=1, public=False)


def laplace_distribution(t, s, top):
    weights = np.exp(-np.abs(np.arange(-top, top + 1)) * s / t)
    return weights / weights.sum()


def folded(distribution, top=9):
    """The distribution with each tail beyond ±``top`` collected in one place."""
    middle = len(distribution) // 2
    kept = distribution[middle - top : middle + top + 1].copy()
    kept[[0, -1]] += (1 - kept.sum()) / 2
    return kept


def counted(drawn, top=9):
    return np.bincount(np.clip(drawn, -top, top) + top, minlength=2 * top + 1)


def test_discrete_laplace_samples_follow_the_stated_distribution():
    distribution = folded(laplace_distribution(3, 2, 200))

    def agrees(counts):
        assert_frequencies(counts, distribution)

    agrees(counted(discrete_laplace(3, 2, 200_000, OSRandomness())))
    wrong = {
        "a tenth more": counted(discrete_laplace(33, 20, 200_000, OSRandomness())),
        "zero counted twice": counted(
            np.concatenate([discrete_laplace(3, 2, 200_000, OSRandomness()), np.zeros(4000, int)])
        ),
    }
    assert_rejects(agrees, wrong)


@pytest.mark.parametrize("epsilon", [0.01, 0.3, 1.0, 7.0])
@pytest.mark.parametrize("reach", [1, 2, 12345, 2**30])
def test_epsilon_of_laplace_noise_equals_the_largest_log_ratio_of_probabilities(epsilon, reach):
    noise = laplace_noise(epsilon, reach)
    t, s = noise.scale
    exact = Fraction(reach * s, t)
    assert exact <= Fraction(noise.epsilon) <= Fraction(epsilon)
    assert float(exact) > epsilon * (1 - 1e-4)
    if reach == 12345:
        drawn = noise.draw(20_000, source())
        assert drawn.std() == pytest.approx(noise.deviation, rel=0.12)


def test_epsilon_of_gaussian_noise_agrees_with_dp_accounting():
    from dp_accounting.pld import privacy_loss_distribution as pld

    noise = gaussian_noise(1.0, 1e-6, 3.0)
    theirs = pld.from_gaussian_mechanism(noise.deviation / 3, value_discretization_interval=1e-4)
    assert noise.epsilon <= 1.0
    assert theirs.get_epsilon_for_delta(1e-6) == pytest.approx(noise.epsilon, rel=1e-3)
    less = pld.from_gaussian_mechanism(0.97 * noise.deviation / 3)
    assert less.get_epsilon_for_delta(1e-6) > 1.0


@pytest.mark.parametrize("relation", ["add-remove", "replace-one"])
@pytest.mark.parametrize("norm", ["l1", "l2", "linf"])
@pytest.mark.parametrize("delta", [None, 1e-6])
def test_no_row_changes_a_sum_by_more_than_the_sensitivity(relation, norm, delta):
    dimension = 6
    privacy = PrivacyRequest(1.0, "central", delta=delta, relation=relation)
    noise, weight = mean_noise(norm, dimension, privacy)
    corners = [np.eye(1, dimension)[0], np.ones(dimension), np.arange(dimension) - 2.5]
    rows = whole_units(np.array([1e6 * corner for corner in corners]), norm, 1.0)
    moves = [np.append(row, weight) for row in rows]
    largest = Fraction(0)
    if relation == "replace-one":
        moves = [2 * row for row in rows]
    if noise.law == "laplace":
        reach = max(np.abs(move).sum() for move in moves)
        largest = Fraction(noise.epsilon) * noise.scale[0] / noise.scale[1]
        assert reach <= largest
    else:
        reach = max(math.sqrt((move.astype(float) ** 2).sum()) for move in moves)
        assert gaussian_noise(1.0, 1e-6, reach).deviation <= noise.deviation
    # Some row reaches the sensitivity: less noise would cost more than ε.
    if noise.law == "laplace":
        assert reach > (1 - 1e-6) * largest
    else:
        assert gaussian_noise(1.0, 1e-6, 1.001 * reach).deviation > noise.deviation
    assert np.all(np.abs(rows).max(axis=1) <= UNITS)


def test_the_noise_of_counts_has_the_sensitivity_of_the_relation(items):
    found = {
        name: frequencies(items, 4, PrivacyRequest(1.0, "central", relation=name), source())
        for name in ("add-remove", "replace-one")
    }
    # Replacing a row changes two counts: twice the noise.
    ratio = found["replace-one"].noise_errors[3] / found["add-remove"].noise_errors[3]
    assert 2.0 < ratio < 2.5
    assert found["add-remove"].clients is None
    assert found["add-remove"].about != HELD.size
    assert found["replace-one"].clients == HELD.size


def test_invalid_privacy_requests_are_refused():
    for wrong, name in [
        (lambda: PrivacyRequest(1.0, "central"), "relation"),
        (lambda: PrivacyRequest(1.0, "central", relation="zero-out"), "relation"),
        (lambda: PrivacyRequest(1.0, "shuffled"), "delta"),
        (lambda: PrivacyRequest(1.0, "local", delta=1e-6), "delta"),
        (lambda: PrivacyRequest(1.0, "local", relation="add-remove"), "relation"),
        (lambda: PrivacyRequest(1.0, "central", relation="add-remove", bits=3), "bits"),
        (lambda: PrivacyRequest(math.nan, "local"), "epsilon"),
        (lambda: PrivacyRequest(1.0, "moon"), "trust"),
    ]:
        with pytest.raises(ParameterError) as caught:
            wrong()
        assert caught.value.name == name


def written(path, text):
    path.write_text(text, encoding="utf-8")
    return path


def test_items_are_read_from_each_file_format(tmp_path, monkeypatch):
    monkeypatch.setattr(columns, "BLOCK_ROWS", 2)
    text = "town,age\nBonn,3\nUlm,0\nBonn,1\nUlm,2\nBonn,3\n"
    file = written(tmp_path / "a.csv", text)
    by_name = [block.tolist() for block in item_blocks(file, 2, ("Ulm", "Bonn"), "town")]
    assert by_name == [[1, 0], [1, 0], [1]]
    by_number = np.concatenate(list(item_blocks(file, 4, (), "age")))
    assert by_number.tolist() == [3, 0, 1, 2, 3]
    np.save(tmp_path / "a.npy", np.array(["Ulm", "Bonn", "Bonn"]))
    assert [b.tolist() for b in item_blocks(tmp_path / "a.npy", 2, ("Ulm", "Bonn"))] == [
        [0, 1],
        [1],
    ]
    assert [b.shape for b in vector_blocks(written(tmp_path / "b.csv", "x,y\n1,2\n3,4\n"))] == [
        (1, 2),
        (1, 2),
    ]


@pytest.mark.parametrize(
    ("name", "text", "error", "match"),
    [
        ("a.csv", "age\n3\n7\n", ParameterError, "values from 0 to 3"),
        ("a.csv", "age\n1.0\n", ParameterError, "whole numbers"),
        ("a.csv", "age\n\n1\n", ParameterError, "a value in every row; invalid: row 0"),
        ("a.csv", "age\n\n", StorageError, "the file holds no values"),
        ("a.csv", "age,town\n3,Bonn\n", StorageError, "expected one of age, town"),
        ("a.csv", "age\n", StorageError, "the file holds no values"),
        ("a.npy", "no array", StorageError, "no array of numbers"),
        ("a.txt", "3\n", StorageError, "expected a .npy, .csv or .parquet file"),
    ],
)
def test_invalid_files_of_items_are_refused(tmp_path, name, text, error, match):
    with pytest.raises(error, match=match):
        list(item_blocks(written(tmp_path / name, text), 4))


def test_invalid_files_of_vectors_are_refused(tmp_path):
    with pytest.raises(ParameterError, match="a number in each cell"):
        list(vector_blocks(written(tmp_path / "a.csv", "x,y\n1,Bonn\n")))
    with pytest.raises(ParameterError, match="finite numbers"):
        list(vector_blocks(written(tmp_path / "a.csv", "x,y\n1,inf\n")))
    with pytest.raises(StorageError, match=r"missing\.npy: No such file"):
        list(vector_blocks(tmp_path / "missing.npy"))
    with pytest.raises(ParameterError, match="radius"):
        mean(tmp_path / "a.csv", "l2", math.nan, LOCAL, source())


def test_an_error_about_missing_pyarrow_names_the_package(tmp_path, monkeypatch):
    def absent(name):
        raise ImportError(name)

    monkeypatch.setattr(columns, "import_module", absent)
    file = written(tmp_path / "a.parquet", "")
    with pytest.raises(UnsupportedError, match=re.escape(install_line("data"))):
        list(item_blocks(file, 4))


def test_a_folder_of_parquet_files_is_read_as_one_column(tmp_path):
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    (tmp_path / "b").mkdir()
    for name, held in (("a.parquet", [3, 1]), ("b/c.parquet", [2])):
        parquet.write_table(arrow.table({"age": held}), tmp_path / name)
    (tmp_path / "note.txt").write_text("no values")
    assert np.concatenate(list(item_blocks(tmp_path, 4))).tolist() == [3, 1, 2]
    assert np.concatenate(list(vector_blocks(tmp_path))).tolist() == [[3.0], [1.0], [2.0]]
    (tmp_path / "empty").mkdir()
    with pytest.raises(StorageError, match="expected \\.parquet files in this folder"):
        list(item_blocks(tmp_path / "empty", 4))
    parquet.write_table(arrow.table({"height": [1]}), tmp_path / "d.parquet")
    with pytest.raises(StorageError, match=r"d\.parquet: column = 'age'"):
        list(item_blocks(tmp_path, 4, column="age"))


def test_parquet_columns_are_selected_by_name(tmp_path):
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    held = {"age": [3, 0, 1], "town": ["Ulm", "Bonn", "Ulm"], "x": [0.5, 1.5, 2.5]}
    file = tmp_path / "a.parquet"
    parquet.write_table(arrow.table(held), file)
    assert [b.tolist() for b in item_blocks(file, 4, (), "age")] == [[3, 0, 1]]
    assert [b.tolist() for b in item_blocks(file, 2, ("Bonn", "Ulm"), "town")] == [[1, 0, 1]]
    rows = [b.tolist() for b in vector_blocks(file, ("x", "age"))]
    assert rows == [[[0.5, 3.0], [1.5, 0.0], [2.5, 1.0]]]
    with pytest.raises(ParameterError, match="whole numbers"):
        list(item_blocks(file, 4, (), "x"))
    with pytest.raises(ParameterError, match="a number in each cell"):
        list(vector_blocks(file, ("town",)))
    parquet.write_table(arrow.table({"age": [3, None]}), file)
    with pytest.raises(ParameterError, match="a value in every row"):
        list(item_blocks(file, 4))


def test_the_estimate_page_documents_every_option_of_every_estimate():
    text = (Path(__file__).parents[3] / "docs" / "estimate.md").read_text()
    for name, command in estimate.commands.items():
        row = next(line for line in text.splitlines() if f"`turnout estimate {name} FILE`" in line)
        for parameter in command.params:
            assert isinstance(parameter, click.Argument) or parameter.opts[0] in row
