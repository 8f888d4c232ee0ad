"""Bad data is refused in one line that names the column and the row, and leaves nothing behind."""

from __future__ import annotations

import json
import random
import re

import numpy as np
import pytest
from own_tables import KEYS, VISITS, WRITERS, section, write_csv, write_npy, write_parquet

from turnout.core.errors import InputFileError, ParameterError, TurnoutError
from turnout.data import own_data
from turnout.plans import Plan
from turnout.plans.data_sections import DataSection

FILES = ("visits.parquet", "visits.csv")
UNIT = {"inputs": ["unit"], "scaling": None}
AGE = {"inputs": ["age"], "categories": None}


def refusal(name, folder, expected: type[Exception] = ParameterError, **keys) -> str:
    """The line that refuses a file."""
    with pytest.raises(expected) as caught:
        own_data(section(name, **keys), folder)
    line = str(caught.value)
    assert "\n" not in line
    return line


def changed(column, row, value):
    values = [*VISITS[column]]
    values[row] = value
    return {**VISITS, column: values}


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize(
    ("column", "key"), [("who", "client"), ("age", "inputs"), ("unit", "inputs"), ("ill", "label")]
)
def test_an_error_about_a_missing_value_names_column_and_row(name, column, key, tmp_path, cache):
    WRITERS[name](tmp_path / name, changed(column, 4, None))
    line = refusal(name, tmp_path)
    assert line.startswith(f"{key} = '{column}': expected ")
    assert line.endswith("invalid: row 4 (counted from 0)")


@pytest.mark.parametrize(
    ("column", "value", "line"),
    [
        ("age", float("nan"), "inputs = 'age': expected a value in every row; invalid: row 4"),
        (
            "age",
            float("inf"),
            "inputs = 'age': expected numbers from -3.403e+38 to 3.403e+38; invalid:",
        ),
        ("age", 1e300, "inputs = 'age': expected numbers from -3.403e+38 to 3.403e+38; invalid:"),
        (
            "unit",
            "c",
            "inputs = 'unit': expected one of the 2 texts in the list of this column; invalid:",
        ),
        ("unit", "", "inputs = 'unit': expected a value in every row; invalid: row 4"),
        ("ill", 2, "label = 'ill': expected whole numbers from 0 to 1; invalid: row 4"),
        ("ill", -1, "label = 'ill': expected whole numbers from 0 to 1; invalid: row 4"),
    ],
)
@pytest.mark.parametrize("name", [*FILES, "visits.npz"])
def test_an_error_about_a_value_out_of_range_names_column_and_row(
    name, column, value, line, tmp_path, cache
):
    WRITERS[name](tmp_path / name, changed(column, 4, value))
    assert refusal(name, tmp_path).startswith(line)


@pytest.mark.parametrize(
    ("keys", "line"),
    [
        ({"client": "whom"}, "client = 'whom': expected a column of the data: who, age, unit, ill"),
        ({"inputs": ["sex"], "categories": None, "scaling": None}, "inputs = 'sex': expected a c"),
        ({"label": "cured"}, "label = 'cured': expected a column of the data"),
        (
            {"test": "later"},
            "test = 'later': expected a share of the clients, a file that exists, ",
        ),
        ({**UNIT, "test": "age"}, "test = 'age': expected a column of true and false"),
        ({"test": 1e-9}, "test = 1e-09: expected a split with training and test records, but"),
        ({**UNIT, "client": "age"}, "client = 'age': expected a column of text or of whole numb"),
        ({**UNIT, "label": "age"}, "label = 'age': expected whole numbers from 0 to 1; invalid:"),
        ({**AGE, "label": "unit"}, "label = 'unit': expected whole numbers, or classes = [public"),
        (
            {"categories": None},
            "inputs = 'unit': expected numbers, or a public list of its texts: categories = { unit",
        ),
        (
            {"categories": {"age": ["a", "b"]}, "scaling": None},
            "inputs = 'age': expected a column of text, since a list of texts",
        ),
        (
            {"classes": None},
            "target = None: expected 'class' (with classes), 'tags', 'numbers' or 'tokens'",
        ),
        ({"path": "none.parquet"}, "data = '"),
        ({"path": "."}, "data = '"),
    ],
)
def test_plan_keys_that_do_not_fit_the_data_file_are_refused(keys, line, tmp_path, cache):
    write_parquet(tmp_path / "visits.parquet", VISITS)
    refused = refusal(**{"name": "visits.parquet", "folder": tmp_path, **_named(keys)})
    assert refused.startswith(line)


def _named(keys):
    return {("name" if key == "path" else key): value for key, value in keys.items()}


def test_an_error_about_an_invalid_csv_cell_names_the_cell(tmp_path, cache):
    write_csv(tmp_path / "visits.csv", VISITS)
    line = refusal("visits.csv", tmp_path, categories=None)
    assert line.startswith("data = 'unit': expected numbers in column 'unit', not 'b' in row 0 (")
    assert line.endswith(
        "a column of text needs its public list (categories, or classes of a label)"
    )
    assert "a CSV file has no types" in refusal("visits.csv", tmp_path, classes=None)


def test_an_error_about_arrays_of_different_shapes_names_the_row(tmp_path, cache):
    keys = {"inputs": ["x"], "label": "y", "test": 0.5, "client": None}
    keys |= {"categories": None, "scaling": None}
    table = {"x": [[1.0, 2.0]] * 6 + [[1.0]] + [[1.0, 2.0]], "y": [0] * 8}
    write_parquet(tmp_path / "scans.parquet", table)
    line = "data = 'x': expected arrays of one shape: row 6 (counted from 0) has 1 entries, "
    line += "the rows before it 2"
    assert refusal("scans.parquet", tmp_path, **keys).startswith(line)
    table["x"][6] = [1.0, None]
    write_parquet(tmp_path / "scans.parquet", table)
    line = "inputs = 'x': expected a value in every row; invalid: row 6"
    assert refusal("scans.parquet", tmp_path, **keys).startswith(line)
    table["x"][6] = None
    write_parquet(tmp_path / "scans.parquet", table)
    assert refusal("scans.parquet", tmp_path, **keys).startswith(line)


@pytest.mark.parametrize("name", ["visits.parquet", "visits.npz"])
def test_a_truncated_file_is_refused_in_one_line(name, tmp_path, cache):
    path = tmp_path / name
    WRITERS[name](path, VISITS)
    whole = path.read_bytes()
    for size in (0, 3, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:size])
        assert str(path) in refusal(name, tmp_path, InputFileError)


def test_truncated_files_of_a_folder_are_refused_in_one_line(tmp_path, cache):
    WRITERS["visits-hf"](tmp_path / "visits-hf", VISITS)
    shard = tmp_path / "visits-hf" / "data-00001-of-00002.arrow"
    shard.write_bytes(shard.read_bytes()[:100])
    assert str(shard.parent) in refusal("visits-hf", tmp_path, InputFileError)
    shard.unlink()
    assert str(shard.parent) in refusal("visits-hf", tmp_path, InputFileError)
    write_npy(tmp_path / "visits-npy", VISITS)
    part = tmp_path / "visits-npy" / "age.npy"
    part.write_bytes(part.read_bytes()[:-3])
    assert str(part) in refusal("visits-npy", tmp_path, InputFileError)


def test_an_unknown_split_is_refused_and_the_error_lists_the_valid_splits(tmp_path, cache):
    (tmp_path / "both").mkdir()
    (tmp_path / "both" / "dataset_dict.json").write_text(json.dumps({"splits": ["train", "test"]}))
    line = refusal("both", tmp_path)
    assert line.endswith(f"one of its splits: {tmp_path}/both/train, {tmp_path}/both/test")


@pytest.mark.parametrize(
    ("keys", "line"),
    [
        ({"name": "digits"}, "path = 'visits.parquet': expected no value with name = 'digits'"),
        ({"test": None}, "test = (missing): expected a share of the clients such as 0.2, a column"),
        ({"inputs": None}, "inputs = (missing): expected the columns that a model sees"),
        ({"label": None}, "label = (missing): expected the column to predict"),
        ({"test": 1.0}, "test = 1.0: expected a share of the clients between 0 and 1, a column"),
        ({"test": True}, "test = True: expected a share"),
        ({"classes": 1}, "classes = 1: expected the number of classes, at least 2, or the list"),
        ({"classes": ["a", "a"]}, "classes = ['a', 'a']: expected the number of"),
        ({"scaling": "from data"}, "scaling = 'from data': expected {column = [low, high]} with"),
        ({"scaling": {"age": [1, 1]}}, "scaling = {'age': [1, 1]}: expected {column = [low, high]"),
        ({"scaling": {"sex": [0, 1]}}, "scaling.sex = 'sex': expected one of age, unit, ill"),
        ({"categories": "from data"}, "categories = 'from data': expected a public list of texts"),
        ({"categories": {"ill": ["a"]}}, "categories.ill = 'ill': expected one of age, unit"),
        ({"clients": 5}, "clients = 5: expected no value with client = 'who'"),
        ({"dealing": "by-label"}, "dealing = 'by-label': expected no value with client = 'who'"),
        ({"target": "numbers"}, "classes = 2: expected no value with target = 'numb"),
        ({"label": ["ill", "x"]}, "label = ['ill', 'x']: expected one column with target = 'c"),
        (
            {"label": "age"},
            "inputs = ['age', 'unit']: expected columns without another role, but 'a",
        ),
        (
            {"client": "age"},
            "inputs = ['age', 'unit']: expected columns without another role, but 'a",
        ),
        (
            {"test": "age"},
            "inputs = ['age', 'unit']: expected columns without another role, but 'a",
        ),
        (
            {"client": "ill"},
            "label = ['ill']: expected columns without another role, but 'ill' is t",
        ),
        ({"client": "held"}, "test = 'held': expected a column other than the column of clients"),
        ({"inputs": ["Zo\u00eb", "Zoe\u0308"]}, "inputs = ['Zo"),
        ({"classes": None, "target": "class"}, "classes = (missing): expected the number of cl"),
        ({"inputs": ["age", "age"]}, "inputs = ['age', 'age']: expected the name of a column, or"),
        ({"vocabulary": 1}, "vocabulary = 1: expected the number of tokens, or a text of all"),
        ({"vocabulary": 9}, "inputs = ['age', 'unit']: expected one column with a vocabulary"),
        ({"length": 9}, "length = 9: expected no value without a text of all ch"),
    ],
)
def test_an_invalid_plan_is_refused_before_its_data_file_is_opened(keys, line):
    tables = {**KEYS, "path": "visits.parquet", **keys}
    chosen = {key: one for key, one in tables.items() if one is not None}
    with pytest.raises(ParameterError, match="^" + re.escape(f"data.{line}")):
        Plan.from_mapping({"data": chosen, **OTHERS})


OTHERS = {
    "model": {"name": "logistic"},
    "participation": {"law": "check-in", "window": 5},
    "privacy": {"relation": "add-remove", "delta": 1e-4, "noise_multiplier": 2.0},
    "optimizer": {"learning_rate": 1.0},
}


def test_a_plan_with_own_data_is_equal_after_writing_and_reading():
    plan = Plan.from_mapping({"data": {**KEYS, "path": "visits.parquet"}, **OTHERS})
    assert Plan.from_toml(plan.to_toml()) == plan
    assert plan.data.categories == {"unit": ("a", "b")}
    rows = plan.data.provenance()
    assert rows["test set"] == "'held', as the plan says; no ε covers it"
    assert rows["public constants"] == (
        "classes; categories of unit; scaling of age: public, from the plan"
    )
    assert DataSection.model_validate({"name": "digits"}).provenance() == {}


@pytest.mark.parametrize("name", WRITERS)
def test_a_data_file_with_altered_bytes_is_read_or_refused_in_one_line(name, tmp_path, cache):
    WRITERS[name](tmp_path / name, VISITS)
    place = tmp_path / name
    files = [place] if place.is_file() else sorted(place.iterdir())
    generator = random.Random(1)
    lines = []
    for _ in range(40):
        file = generator.choice(files)
        whole = file.read_bytes()
        altered = bytearray(whole)
        for _ in range(3):
            altered[generator.randrange(len(whole))] = generator.randrange(256)
        file.write_bytes(altered)
        try:
            own_data(section(name), tmp_path)
        except TurnoutError as error:
            lines.append(str(error))
        file.write_bytes(whole)
    assert len(lines) > 10
    assert not [line for line in lines if "\n" in line]
    assert own_data(section(name), tmp_path).outputs == 2


def test_a_column_name_that_occurs_twice_is_refused(tmp_path, cache):
    (tmp_path / "visits.csv").write_text("who,age,unit,ill,held,age\na,1,a,1,true,2\n")
    line = "inputs = 'age': expected the name of exactly one column"
    assert refusal("visits.csv", tmp_path) == line


@pytest.mark.parametrize("suffix", ["parquet", "csv", "npz", "arrow"])
def test_a_data_file_of_random_bytes_is_refused_in_one_line(suffix, tmp_path, cache):
    generator = np.random.default_rng(1)
    for size in (0, 10, 1000):
        (tmp_path / f"noise.{suffix}").write_bytes(generator.bytes(size))
        assert refusal(f"noise.{suffix}", tmp_path, TurnoutError)
