"""Estimates from Python equal those of the command line for every container of the values."""

import json

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from click.testing import CliRunner

from turnout.api import estimate as estimates
from turnout.api.estimate import estimate_frequencies, estimate_mean
from turnout.cli.estimate import estimate
from turnout.core.errors import ParameterError
from turnout.randomness import SimulationStreams
from turnout.schemes import Relation, TrustModel

TOWNS = ("Bonn", "Ulm", "Kiel", "Jena")
AGES = [20, 30, 40, 55] * 250
HOMES = ["Bonn", "Ulm", "Kiel", "Bonn"] * 250
CODES = [TOWNS.index(home) for home in HOMES]
LOCAL = {"epsilon": 2.0, "trust": "local"}
BALL = {"norm": "linf", "radius": 100.0}


def source():
    return SimulationStreams(3).source("values")


@pytest.fixture
def commanded(tmp_path, monkeypatch):
    """What a command prints as JSON, under the tests' source."""
    (tmp_path / "labels").write_text("\n".join(TOWNS))
    rows = zip(HOMES, AGES, CODES, strict=True)
    table = "town,age,code\n" + "".join(f"{home},{age},{code}\n" for home, age, code in rows)
    (tmp_path / "people.csv").write_text(table)
    monkeypatch.setattr(estimates, "OSRandomness", source)

    def run(words: str, *more: str):
        what, *rest = words.split()
        arguments = [what, str(tmp_path / "people.csv"), *rest, *more]
        result = CliRunner().invoke(estimate, arguments, catch_exceptions=False)
        assert result.exit_code == 0, result.stderr
        return result.stdout

    return run


HOLDERS = {
    "a list": (HOMES, None),
    "a tuple": (tuple(HOMES), None),
    "an array": (np.array(HOMES), None),
    "an array of objects": (np.array(HOMES, dtype=object), None),
    "a mapping": ({"town": HOMES, "age": AGES}, "town"),
    "a series of pandas": (pd.Series(HOMES, name="town"), None),
    "a categorical of pandas": (pd.Series(HOMES, dtype="category"), None),
    "a frame of pandas": (pd.DataFrame({"town": HOMES, "age": AGES}), "town"),
    "one column of pandas": (pd.DataFrame({"town": HOMES}), None),
    "a series of polars": (pl.Series("town", HOMES), None),
    "an enumeration of polars": (pl.Series("town", HOMES, dtype=pl.Enum(TOWNS)), None),
    "a frame of polars": (pl.DataFrame({"town": HOMES, "age": AGES}), "town"),
    "a table of pyarrow": (pa.table({"town": HOMES, "age": AGES}), "town"),
    "an array of pyarrow": (pa.array(HOMES), None),
}


@pytest.mark.parametrize("holder", HOLDERS)
def test_estimated_frequencies_equal_those_of_the_command(commanded, tmp_path, holder):
    values, column = HOLDERS[holder]
    words = "frequencies --column town --epsilon 2 --model local --json --labels"
    printed = json.loads(commanded(words, str(tmp_path / "labels")))
    found = estimate_frequencies(values, categories=TOWNS, column=column, **LOCAL, source=source())
    assert found.to_dict() == printed
    assert json.loads(found.to_json()) == printed


@pytest.mark.parametrize(
    "values",
    [
        CODES,
        np.array(CODES, dtype=np.uint8),
        pd.Series(CODES, dtype="Int64"),
        pl.Series(CODES, dtype=pl.Int8),
        pa.chunked_array([CODES[:300], CODES[300:]]),
    ],
    ids=lambda values: f"{type(values).__module__}.{type(values).__name__}",
)
@pytest.mark.parametrize("size", [4, np.int64(4)])
def test_whole_numbers_from_zero_are_accepted_as_categories(commanded, values, size):
    printed = commanded("frequencies --column code --size 4 --epsilon 2 --model local --json")
    found = estimate_frequencies(values, categories=size, **LOCAL, source=source())
    assert found.to_dict() == json.loads(printed)


NUMBERS = {
    "a path as text": lambda folder: (str(folder / "people.csv"), "age"),
    "a path": lambda folder: (folder / "people.csv", ["age"]),
    "a list": lambda folder: (AGES, ()),
    "rows": lambda folder: ([[age] for age in AGES], ()),
    "an array": lambda folder: (np.array(AGES, dtype=np.float32), ()),
    "a series of pandas": lambda folder: (pd.Series(AGES, dtype="Float64"), ()),
    "a frame of pandas": lambda folder: (pd.DataFrame({7: AGES, "town": HOMES}), "7"),
    "a frame of polars": lambda folder: (pl.DataFrame({"town": HOMES, "age": AGES}), "age"),
    "a table of pyarrow": lambda folder: (pa.table({"age": AGES, "town": HOMES}), "age"),
}


@pytest.mark.parametrize("holder", NUMBERS)
@pytest.mark.parametrize(
    ("words", "asked"),
    [
        ("--model local", {"trust": TrustModel.LOCAL}),
        (
            "--model central --relation add-remove",
            {"trust": "central", "relation": Relation.ADD_REMOVE},
        ),
    ],
)
def test_estimated_means_equal_those_of_the_command(commanded, tmp_path, holder, words, asked):
    values, columns = NUMBERS[holder](tmp_path)
    options = "mean --column age --norm linf --radius 100 --epsilon 2 --json"
    printed = json.loads(commanded(f"{options} {words}"))
    found = estimate_mean(values, columns=columns, epsilon=2, **BALL, **asked, source=source())
    (coordinate,) = printed.pop("mean")
    record = found.to_dict()
    (own,) = record.pop("mean")
    assert record == printed
    assert {**own, "coordinate": "age"} == coordinate


def test_an_estimate_has_the_names_of_all_columns_of_a_frame():
    frame = pl.DataFrame({"x": AGES, "y": [0.5] * 1000})
    found = estimate_mean(frame, epsilon=4, trust="local", **BALL)
    assert found.names == ("x", "y")
    assert estimate_mean(frame.to_numpy(), epsilon=4, trust="local", **BALL).names == ("0", "1")


def test_estimates_use_system_randomness_unless_a_source_is_given():
    # Sums of 1,000 bits are the same now and then: two in a hundred pairs, and never all of eight.
    one, *others = (estimate_mean(AGES, epsilon=1, trust="local", **BALL) for _ in range(8))
    assert any(one != other for other in others)
    assert all(one.cost == other.cost for other in others)
    one, other = (
        estimate_mean(AGES, epsilon=1, trust="local", **BALL, source=source()) for _ in range(2)
    )
    assert one == other
    assert one != estimate_frequencies(CODES, categories=4, **LOCAL, source=source())


def test_the_repr_of_an_estimate_states_its_clients_and_privacy():
    found = estimate_frequencies(HOMES, categories=TOWNS, **LOCAL, source=source())
    assert repr(found) == (
        "EstimatedFrequencies(4 values, 1,000 clients (public); local, ε₀ = 2, replace-one, client)"
    )
    page = found._repr_html_()
    assert "<table" in page
    assert "no party is trusted" in page
    assert "<svg" in found.plot()._repr_svg_()
    assert found.plot(2).figure().axes[0].get_title("left").startswith("Frequencies, local, ε = 2")
    about = estimate_mean(
        AGES, epsilon=1, delta=1e-6, trust="central", relation="add-remove", **BALL, source=source()
    )
    said = f"about {about.about:,.0f} clients; central, ε = 1, add-remove, client"
    assert repr(about) == f"EstimatedMean(dimension 1, {said})"


MISSING = {
    "list": (["Bonn", None, "Ulm", float("nan")], "1, 3"),
    "array": (np.array([0.0, 1.0, np.nan]), "2"),
    "masked": (np.ma.masked_array([0, 1, 2], mask=[True, False, False]), "0"),
    "dates": (np.array(["2020-01-01", "NaT"], dtype="datetime64[D]"), "1"),
    "pandas": (pd.DataFrame({"town": ["Bonn", None]}), "1"),
    "pandas integers": (
        pd.DataFrame({"town": pd.array([1, None, 3, None], dtype="Int64")}),
        "1, 3",
    ),
    "polars": (pl.DataFrame({"town": [1, None, 2]}), "1"),
    "pyarrow": (pa.table({"town": [None] * 7}), "0, 1, 2, 3, 4, …"),
}


@pytest.mark.parametrize("holder", MISSING)
def test_missing_values_are_refused_or_replaced_by_a_public_constant(holder):
    values, rows = MISSING[holder]
    town = "Bonn" if holder in ("list", "dates", "pandas", "pyarrow") else "0"
    items = ["Bonn", "Ulm", "2020-01-01", "0", "0.0", "1", "1.0", "2", "3"]
    with pytest.raises(ParameterError, match="a value in every row; invalid: row ") as refused:
        estimate_frequencies(values, categories=items, **LOCAL)
    assert str(refused.value).endswith(f"row {rows} (counted from 0)")
    found = estimate_frequencies(
        values, categories=items, missing=town, epsilon=30.0, trust="local", source=source()
    )
    assert found.values[items.index(town)] >= 0.25


def test_missing_numbers_are_replaced_by_a_public_number():
    frame = pl.DataFrame({"age": [20.0, None, float("nan"), 40.0] * 500})
    with pytest.raises(ParameterError, match="invalid: row 1, 2, 5, 6, 9, … "):
        estimate_mean(frame, epsilon=30, trust="local", **BALL)
    filled = pl.DataFrame({"age": [20.0, 60.0, 60.0, 40.0] * 500})
    asked = {"epsilon": 30, "trust": "local", **BALL}
    assert estimate_mean(frame, missing=60, **asked, source=source()) == estimate_mean(
        filled, **asked, source=source()
    )
    for wrong in ("60", float("nan")):
        with pytest.raises(ParameterError, match="missing = "):
            estimate_mean(filled, missing=wrong, **asked)  # pyright: ignore[reportArgumentType]
    with pytest.raises(ParameterError, match="missing = 'Rome': expected one of the possible"):
        estimate_frequencies(HOMES, categories=TOWNS, missing="Rome", **LOCAL)


@pytest.mark.parametrize(
    ("values", "categories", "said"),
    [
        (np.array([0.5, 1.0]), 2, "'float64': expected whole numbers"),
        (["Bonn", "Trier"], TOWNS, "expected the 4 names of all values"),
        ([0, 4], 4, "expected values from 0 to 3"),
        ([[0, 1], [1, 0]], 2, "shape (2, 2)': expected one value for each client"),
        ([[0], [1, 0]], 2, "expected arrays of one shape"),
        ([], 2, "at least one"),
        (np.float64(3), 2, "one entry for each row"),
        (np.zeros(3, dtype=[("a", "i8")]), 2, "expected numbers or text"),
        (iter([0, 1]), 2, "'list_iterator': expected an array, a list"),
        ({0, 1}, 2, "'set': expected an array, a list"),
        (pl.LazyFrame({"a": [0, 1]}), 2, "'LazyFrame': expected an array, a list"),
        (pd.DataFrame({"a": [0], "b": [0]}), 2, "column = None: expected one of a, b"),
        ([0, 1], 1, "items = 1"),
        (
            [0, 1],
            "Bonn",
            "categories = 'Bonn': expected a whole number, or the names of all values",
        ),
        ([0, 1], None, "categories = None: expected a whole number, or the names of all values"),
        ([0, 1], ["a", "a"], "categories = ('a', 'a'): expected at least two different names"),
    ],
    ids=lambda value: value[:30] if isinstance(value, str) else type(value).__name__,
)
def test_invalid_values_for_frequencies_are_refused(values, categories, said):
    with pytest.raises(ParameterError) as refused:
        estimate_frequencies(values, categories=categories, **LOCAL)
    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("values", "columns", "said"),
    [
        (["1", "2"], (), "values = 'text': expected numbers"),
        (np.zeros((2, 2, 2)), (), "shape (2, 2, 2)': expected numbers"),
        ([[1.0], [2.0, 3.0]], (), "expected arrays of one shape"),
        (pd.DataFrame({"town": HOMES}), (), "town = 'text': expected numbers"),
        ([1.0, np.inf], (), "finite numbers in every row"),
        ([1.0], "age", "column = 'age': expected no column"),
        (pd.DataFrame({"a": [1.0]}), "b", "column = 'b': expected a column that occurs once"),
        (pd.DataFrame({"a": [1.0]}), ["a", "a"], "expected each column named at most once"),
        ({"a": [1.0], "b": [1.0, 2.0]}, (), "expected columns of one length"),
    ],
    ids=lambda value: value[:30] if isinstance(value, str) else type(value).__name__,
)
def test_invalid_values_for_means_are_refused(values, columns, said):
    with pytest.raises(ParameterError) as refused:
        estimate_mean(values, columns=columns, epsilon=1, trust="local", **BALL)
    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"trust": "nobody"}, "trust = 'nobody': expected one of local, shuffled, central"),
        ({"trust": "central"}, "relation = None: expected add-remove or replace-one"),
        ({"trust": "shuffled"}, "delta = None"),
        ({"trust": "local", "bits": 0}, "bits = 0"),
    ],
)
def test_the_trust_model_determines_the_required_arguments(asked, said):
    with pytest.raises(ParameterError) as refused:
        estimate_frequencies([0, 1], categories=2, epsilon=1, **asked)
    assert str(refused.value).startswith(said)


MODELS = {
    "local": {"trust": "local"},
    "local, one bit": {"trust": "local", "bits": 1},
    "one shuffled message": {"trust": "shuffled", "delta": 1e-6, "mechanism": "one-message"},
    "several shuffled messages": {
        "trust": "shuffled",
        "delta": 1e-6,
        "mechanism": "several-messages",
    },
    "central, replace-one": {"trust": "central", "relation": "replace-one"},
    "central, add-remove": {"trust": "central", "relation": "add-remove"},
    "central, Gaussian": {"trust": "central", "relation": "add-remove", "delta": 1e-6},
}


@pytest.mark.parametrize("model", MODELS)
def test_the_mean_of_values_in_a_range_equals_the_mean_of_centred_values(model):
    asked = {"epsilon": 2.0, **MODELS[model]}
    ages = np.array([*AGES, -10, 95, 130])
    found = estimate_mean(ages, low=16.0, high=96.0, **asked, source=source())
    by_hand = estimate_mean(ages - 56.0, norm="linf", radius=40.0, **asked, source=source())
    np.testing.assert_array_equal(found.value, by_hand.value + 56.0)
    assert found.cost == by_hand.cost
    assert found.clients == by_hand.clients
    assert found.about == by_hand.about
    np.testing.assert_array_equal(found.noise_errors, by_hand.noise_errors)
    np.testing.assert_array_equal(found.population_errors, by_hand.population_errors)
    assert found.mse_bound == by_hand.mse_bound
    assert found.rows == "rows clipped to [16, 96]"
    assert "radius" not in found.sampling_from
    assert ("a smaller range" in found.sampling_from) == (
        "a smaller radius" in by_hand.sampling_from
    )
    bounded = asked["trust"] == "central" or asked.get("mechanism") == "several-messages"
    assert ("a smaller radius lowers this bound" in by_hand.sampling_from) == bounded


@pytest.mark.parametrize("model", MODELS)
def test_the_error_of_the_mean_of_values_in_a_range_agrees_with_the_reported_noise(model):
    asked = {"epsilon": 2.0, **MODELS[model]}
    draws = SimulationStreams(5)
    found = [
        estimate_mean(AGES, low=16.0, high=96.0, **asked, source=draws.source(f"range {run}"))
        for run in range(60)
    ]
    errors = np.array([each.value[0] - np.mean(AGES) for each in found])
    noise = np.mean([each.noise_errors[0] for each in found])
    assert np.sqrt(np.mean(errors**2)) < 1.5 * noise


@pytest.mark.parametrize("model", MODELS)
def test_the_norm_for_a_single_column_is_optional(model):
    asked = {"epsilon": 2.0, "radius": 100.0, **MODELS[model]}
    plain = estimate_mean(AGES, **asked, source=source())
    assert plain == estimate_mean(AGES, norm="linf", **asked, source=source())


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({}, "radius = None: expected a finite number above 0, or low and high for rows of one"),
        ({"low": 0}, "high = None: expected a finite number"),
        ({"high": 9}, "low = None: expected a finite number"),
        ({"low": 0, "high": 9, "radius": 9}, "radius = 9: expected no radius, since low and high"),
        ({"low": 9, "high": 9}, "high = 9: expected a number above low = 9"),
        ({"low": 9, "high": float("nan")}, "high = nan: expected a finite number"),
        ({"low": -1e101, "high": 9}, "low = -1e+101: expected from -1e+100 to 1e+100"),
        ({"norm": "l3", "radius": 1}, "norm = 'l3': expected one of l1, l2, linf"),
    ],
)
def test_impossible_ranges_and_norms_of_a_mean_are_refused(asked, said):
    with pytest.raises(ParameterError) as refused:
        estimate_mean(AGES, epsilon=1, trust="local", **asked)
    assert str(refused.value).startswith(said)


def test_vectors_require_a_norm_and_a_radius():
    rows = [[0.5, 1.0]] * 10
    asked = {"epsilon": 1, "trust": "local"}
    with pytest.raises(ParameterError, match=r"norm = None: .* since a row has 2 numbers"):
        estimate_mean(rows, radius=1, **asked)
    with pytest.raises(ParameterError, match="a radius instead of low and high, since a row has 2"):
        estimate_mean(rows, low=0, high=1, norm="linf", **asked)


def test_the_range_options_of_the_command_have_the_effect_of_the_arguments(commanded):
    words = "mean --column age --low 16 --high 96 --epsilon 2 --model local --json"
    printed = json.loads(commanded(words))
    found = estimate_mean({"age": AGES}, low=16, high=96, **LOCAL, source=source())
    assert found.to_dict() == printed


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            "mean --epsilon 1",
            "Missing options: --model (local, shuffled, central); --relation (add-remove, "
            "replace-one; with --model central); --delta (with --model shuffled); --radius, or "
            "--low and --high.",
        ),
        (
            "mean --low 0 --model central",
            "Missing options: --epsilon; --relation (add-remove, replace-one; with --model "
            "central); --high.",
        ),
        ("mean --radius 1 --model local", "Missing option '--epsilon'."),
        (
            "frequencies --model shuffled",
            "Missing options: --epsilon; --delta (with --model shuffled); --size or --labels.",
        ),
        ("heavy-hitters --size 4", "Missing option '--epsilon'."),
        ("user-mean", "Missing options: --epsilon; --radius; --deviation."),
    ],
)
def test_all_missing_options_of_an_estimate_are_reported_together(tmp_path, words, said):
    (tmp_path / "people.csv").write_text("age\n1\n")
    command, *options = words.split()
    arguments = [command, str(tmp_path / "people.csv"), *options]
    result = CliRunner().invoke(estimate, arguments)
    assert result.exit_code == 2
    assert f"Error: {said}\n" in result.stderr
