"""Text, missing values and numbers are treated equally in every container of clients' values."""

import datetime
import fractions
from decimal import Decimal
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from pyarrow import parquet

import turnout as tn
from turnout.randomness import SimulationStreams

SURE = {"epsilon": 50.0, "trust": "central", "relation": "replace-one"}
BALL = {"norm": "linf", "radius": 100.0}


def written_csv(folder: Path, table) -> Path:
    path = folder / "table.csv"
    path.write_text(
        "\ufeff" + ",".join(table) + "\n" + "".join(map(_line, zip(*table.values(), strict=True)))
        + "\n\n", "utf-8", newline=""
    )  # fmt: skip
    return path


def _line(cells) -> str:
    return ",".join("" if cell is None else str(cell) for cell in cells) + "\n"


def written_parquet(folder: Path, table) -> Path:
    parquet.write_table(pa.table(table), folder / "table.parquet")
    return folder / "table.parquet"


def objects(folder, table):
    return {name: np.array(values, dtype=object) for name, values in table.items()}


DOORS = {
    "lists": lambda folder, table: table,
    "arrays of objects": objects,
    "pandas": lambda folder, table: pd.DataFrame(table),
    "polars": lambda folder, table: pl.DataFrame(table),
    "pyarrow": lambda folder, table: pa.table(table),
    "views of text": lambda folder, table: pa.table(
        {
            key: pa.array(one, pa.string_view()) if key == "town" else one
            for key, one in table.items()
        }
    ),
    "categories of pandas": lambda folder, table: pd.DataFrame(table).astype({"town": "category"}),
    "csv": written_csv,
    "parquet": written_parquet,
}


@pytest.fixture(params=DOORS)
def door(request, tmp_path, monkeypatch):
    """A way to hand over a table."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return lambda table: DOORS[request.param](tmp_path, table)


def shares(values, categories, **keys):
    found = tn.estimate_frequencies(
        values, categories=categories, column="town", **SURE, **keys,
        source=SimulationStreams(1).source("doors"),
    )  # fmt: skip
    return found.values.round(2).tolist()


HELD = [0] * 92 + [1] * 8
"""The column of true and false that holds rows out."""
NUL = {"town": ["a\0", "a", "a\0\0", "a"] * 25, "x": [1.0, 2.0, 3.0, 4.0] * 25}
NORMAL = {"town": ["Ko\u0308ln", "K\xf6ln", "Ulm", "Ulm"] * 25, "x": [1.0, 2.0, 3.0, 4.0] * 25}


def test_texts_with_and_without_a_trailing_nul_character_are_different_values(door):
    assert shares(door(NUL), ["a", "a\0", "a\0\0"]) == [0.5, 0.25, 0.25]
    table = {**NUL, "y": [0, 1] * 50, "held": HELD}
    keys = {"client": "town", "inputs": "x", "label": "y", "classes": 2, "test": "held"}
    assert tn.client_data(door(table), **keys).holdings.population == 3
    table["who"] = ["p", "q"] * 50
    keys |= {"client": "who", "label": "town", "classes": ["a", "a\0", "a\0\0"]}
    assert np.bincount(tn.client_data(door(table), **keys).train.labels).tolist() == [46, 23, 23]
    keys |= {"label": "y", "classes": 2, "inputs": "town"}
    data = tn.client_data(door(table), **keys, categories={"town": ["a", "a\0", "a\0\0"]})
    assert data.train.inputs.sum(axis=0).tolist() == [46, 23, 23]


def test_names_with_equivalent_unicode_forms_are_one_name(door):
    assert shares(door(NORMAL), ["Ulm", "K\xf6ln"]) == [0.5, 0.5]
    assert shares(door(NORMAL), ["Ulm", "Ko\u0308ln"]) == [0.5, 0.5]
    with pytest.raises(tn.ParameterError, match="two different names"):
        shares(door(NORMAL), ["Ulm", "Ko\u0308ln", "K\xf6ln"])
    table = {
        "Gro\u0308\xdfe": NORMAL["x"],
        "town": NORMAL["town"],
        "y": [0, 1] * 50,
        "pru\u0308f": HELD,
    }
    keys = {"client": "town", "inputs": "Gr\xf6\xdfe", "label": "y", "classes": 2}
    for test in ("pr\xfcf", "pru\u0308f"):
        assert tn.client_data(door(table), **keys, test=test).holdings.population == 2
    mean = tn.estimate_mean(door(table), columns="Gr\xf6\xdfe", **BALL, **SURE)
    assert abs(mean.value[0] - 2.5) < 1.0


def test_every_kind_of_input_refuses_or_replaces_missing_values(door):
    table = {"town": ["a", None, "b", "b"] * 25, "x": [1.0, 2.0, None, 4.0] * 25, "y": [0, 1] * 50}
    with pytest.raises(tn.ParameterError, match=r"a value in every row; invalid: row 1, 5, 9, "):
        shares(door(table), ["a", "b"])
    assert shares(door(table), ["a", "b"], missing="a") == [0.5, 0.5]
    with pytest.raises(tn.ParameterError, match=r"a value in every row; invalid: row 2, 6, 10,"):
        tn.estimate_mean(door(table), columns="x", **BALL, **SURE)
    mean = tn.estimate_mean(door(table), columns="x", missing=13, **BALL, **SURE)
    assert abs(mean.value[0] - 5.0) < 1.0
    keys = {"inputs": ["x", "town"], "label": "y", "classes": 2, "test": 0.5}
    keys["categories"] = {"town": ["a", "b"]}
    with pytest.raises(
        tn.ParameterError, match="inputs = 'x': expected a value in every row; invalid:"
    ):
        tn.client_data(door(table), **keys)
    data = tn.client_data(door(table), **keys, missing={"x": 9, "town": "b"})
    rows = np.concatenate((data.train.inputs, data.test.inputs)).tolist()
    assert sorted(map(tuple, rows)) == sorted(
        [(1.0, 1.0, 0.0), (2.0, 0.0, 1.0), (9.0, 0.0, 1.0), (4.0, 0.0, 1.0)] * 25
    )
    assert "missing of x, town" in data.section.provenance()["public constants"]


@pytest.mark.parametrize(
    ("text", "rows"), [("town\na\n\nb\n\n", "1"), ("town,x\na,1\n\n\nb,1\r\n\r\n", "1, 2")]
)
def test_blank_lines_are_empty_rows_except_at_the_end_of_a_file(tmp_path, text, rows):
    path = tmp_path / "table.csv"
    path.write_text(text, newline="")
    line = rf"invalid: row {rows} \(counted from 0\)"
    with pytest.raises(tn.ParameterError, match=line):
        shares(path, ["a", "b"])
    with pytest.raises(tn.ParameterError, match=line):
        tn.client_data(path, inputs="town", vocabulary="ab", length=2, test=0.5)


def test_words_such_as_na_in_a_csv_file_stay_text(tmp_path):
    path = written_csv(tmp_path, {"town": ["NA", "null"] * 50, "x": [1, 2] * 50})
    assert shares(path, ["NA", "null"]) == [0.5, 0.5]
    keys = {"inputs": "x", "label": "town", "classes": ["NA", "null"], "test": 0.5}
    data = tn.client_data(path, **keys)
    assert set(data.train.labels) == {0, 1}
    path.write_text("town,x,who\n" + '"a\nb",1,p\n"c, ""d""",2,q\n' * 50)
    names = ["a\nb", 'c, "d"']
    assert shares(path, names) == [0.5, 0.5]
    data = tn.client_data(path, **{**keys, "classes": names})
    assert set(data.train.labels) == {0, 1}


@pytest.mark.parametrize("numbers", [[True, False], [Decimal("1"), Decimal("0")]])
def test_booleans_and_decimals_are_read_as_numbers(door, numbers):
    table = {"town": ["a", "b"] * 50, "x": numbers * 50, "y": numbers * 50}
    values = door(table)
    if str(values).endswith("csv") and numbers[0] is True:
        return  # the words True and False; a CSV file has no types
    assert (
        abs(tn.estimate_mean(values, columns="x", norm="linf", radius=1.0, **SURE).value[0] - 0.5)
        < 0.1
    )
    keys = {"categories": 2, "column": "x", "source": SimulationStreams(2).source("doors")}
    assert tn.estimate_frequencies(values, **keys, **SURE).values.round(2).tolist() == [0.5, 0.5]
    data = tn.client_data(values, inputs="x", label="y", classes=2, test=0.5)
    assert data.train.inputs.ravel().tolist() == data.train.labels.tolist()


@pytest.mark.parametrize("number", [2**24 + 1, 2**53 + 1])
def test_different_whole_numbers_that_are_equal_in_float32_are_refused(door, number):
    table = {"town": ["a", "b"], "x": [number, 1], "y": [0, 1]}
    keys = {"inputs": "x", "label": "y", "classes": 2, "test": 0.4}
    with pytest.raises(
        tn.ParameterError, match=r"whole numbers that float32 represents .all up to "
    ):
        tn.client_data(door(table), **keys)
    assert len(tn.client_data(door({**table, "x": [2**24, 1]}), **keys).train) == 1
    tn.client_data(door(table), **keys, scaling={"x": (0, 2**60)})
    if number > 2**53:
        with pytest.raises(tn.ParameterError, match="whole numbers between -2\\^53 and 2\\^53"):
            tn.estimate_mean(door(table), columns="x", norm="linf", radius=1.0, **SURE)


class Broken:
    """Raises whatever is done with it."""

    def __len__(self):
        return 8

    def __array__(self, *arguments, **keys):
        raise RuntimeError("two\nlines")


class BrokenFrame(Broken):
    columns = ("c", "x", "y")

    def __arrow_c_stream__(self, schema=None):
        raise RuntimeError("two\nlines")


ODD = {
    "sets": [{1}] * 8,
    "mixed": [1, "a"] * 4,
    "dictionaries": [{"a": 1}] * 8,
    "nothing": [None] * 8,
    "complex": [1j] * 8,
    "bytes": [b"a"] * 8,
    "moments": [datetime.datetime(2020, 1, 1)] * 8,
    "spans": [datetime.timedelta(1)] * 8,
    "signalling": [Decimal("sNaN")] * 8,
    "fractions": [fractions.Fraction(1, 3)] * 8,
    "objects": [object()] * 8,
    "ragged": [[1], [1, 2]] * 4,
    "deep": [[[1]], [[2]]] * 4,
    "huge": [2**70] * 8,
    "infinite": [float("inf")] * 8,
    "empty": [],
    "a number": 5,
    "a word": "abcdefgh",
    "surrogates": ["\ud800"] * 8,
    "functions": [len] * 8,
    "broken": Broken(),
    "wide": np.ones(8, np.longdouble),
    "void": np.zeros(8, dtype="V4"),
    "fixed bytes": np.array([b"a"] * 8),
    "records": np.zeros(8, dtype=[("a", "i4")]),
    "no axis": np.array(1),
    "half": np.ones(8, np.float16),
    "instants": np.array(["2020"] * 8, "M8[ns]"),
    "days": np.array(["2020-01-01"] * 8, "M8[D]"),
    "numpy's own text": np.array(["a"] * 8, dtype=np.dtypes.StringDType()),
    "masked": np.ma.masked_array(range(8), mask=[1] + [0] * 7),
    "periods": pd.period_range("2020", periods=8, freq="M"),
    "intervals": pd.interval_range(0, 8),
    "sparse": pd.arrays.SparseArray([1.0, 0.0] * 4),
    "zones": pd.date_range("2020", periods=8, tz="UTC"),
    "truth or nothing": pd.array([True, None] * 4, dtype="boolean"),
    "times": pl.Series([datetime.time(1)] * 8),
    "structures": pl.Series([{"a": 1}] * 8),
    "objects of polars": pl.Series([object()] * 8, dtype=pl.Object),
    "durations": pa.array([1] * 8, pa.duration("s")),
    "runs": pa.RunEndEncodedArray.from_arrays([8], [1]),
    "maps": pa.array([[("a", 1)]] * 8, pa.map_(pa.string(), pa.int8())),
    "tensors": pa.FixedShapeTensorArray.from_numpy_ndarray(np.ones((8, 2))),
    "wide decimals": pa.array([Decimal("1.5")] * 8, pa.decimal256(40, 2)),
}
ROWS = {"c": [f"p{i}" for i in range(8)], "y": [0, 1] * 4}


def sources(values):
    """Every way to hand over a column, and the frames that can hold it."""
    yield lambda: {**ROWS, "x": values}
    for make in (pd.DataFrame, pl.DataFrame, pa.table):
        yield lambda make=make: make({**ROWS, "x": values})


@pytest.mark.filterwarnings("ignore:.*sparse.*|.*Sparse.*")
@pytest.mark.parametrize("name", ODD)
def test_unsupported_column_types_are_refused_in_one_line(name):
    values = ODD[name]
    keys = {"client": "c", "inputs": "x", "label": "y", "classes": 2, "test": 0.5}
    shape = {"classes": 2, "test": (np.ones((2, 1)), [0, 1])}
    held = [values, {"x": values}]
    for make in sources(values):
        try:
            held.append(make())
        except BaseException:  # its own library does not make such a frame
            continue
    asks = [
        lambda: tn.client_data((values, ROWS["y"]), **shape),
        lambda: tn.client_data({"a": (values, ROWS["y"])}, **shape),
        lambda: tn.client_data([("a", (values, ROWS["y"]))], **shape),
        *(lambda one=one: tn.client_data(one, **keys) for one in held[2:]),
        *(lambda one=one: tn.client_data(one, **{**keys, "client": "x", "inputs": "y",
                                               "label": "c", "classes": ["a", "b"]})
          for one in held[2:]),
        *(lambda one=one: tn.estimate_mean(one, **BALL, **SURE) for one in held[:2]),
        *(lambda one=one: tn.estimate_mean(one, columns="x", **BALL, **SURE) for one in held[1:]),
        *(lambda one=one: tn.estimate_frequencies(one, categories=["a", "b"], column="x", **SURE)
          for one in held[1:]),
        lambda: tn.estimate_frequencies(values, categories=9, **SURE),
    ]  # fmt: skip
    for ask in asks:
        refused = ""
        try:
            ask()
        except tn.TurnoutError as error:
            refused = str(error)
        assert "\n" not in refused


def test_frames_that_cannot_be_read_are_refused_in_one_line():
    twice = pd.DataFrame([[f"p{i}", i, i % 2, 7] for i in range(8)], columns=["c", "x", "y", "x"])
    pairs = pd.DataFrame(np.ones((8, 2)), columns=pd.MultiIndex.from_tuples([("c", 1), ("x", 2)]))
    keys = {"client": "c", "inputs": "x", "label": "y", "classes": 2, "test": 0.5}
    for frame in (twice, pairs, BrokenFrame()):
        for ask in (
            lambda frame=frame: tn.client_data(frame, **keys),
            lambda frame=frame: tn.estimate_mean(frame, columns="x", **BALL, **SURE),
        ):
            with pytest.raises(tn.TurnoutError, match=r"^[^\n]*$"):
                ask()
    with pytest.raises(tn.ParameterError, match="the name of exactly one column"):
        tn.estimate_mean({1: [1.0], "1": [2.0]}, **BALL, **SURE)


def test_clients_with_different_names_stay_separate_clients():
    public = (np.ones((2, 1)), ["a", "a\0"])
    data = tn.client_data(
        {"p": (np.ones((1, 1)), ["a"]), "p\0": (np.ones((1, 1)), ["a\0"])},
        classes=["a", "a\0"],
        test=public,
    )
    assert data.holdings.population == 2
    assert (data.train.labels.tolist(), data.test.labels.tolist()) == ([0, 1], [0, 1])
    with pytest.raises(tn.ParameterError, match="a column of numbers or of text, not of both"):
        tn.client_data({"1": ([[1.0]], [0]), 1: ([[1.0]], [1])}, classes=2, test=([[1.0]], [0]))


def test_a_list_of_privacy_curves_can_be_summed():
    costs = [
        tn.estimate_mean([1.0, 2.0], **BALL, epsilon=e, trust="local").cost for e in (0.5, 0.25)
    ]
    curves = [tn.PrivacyCurve.of(cost.scheme) for cost in costs]
    assert sum(curves) == curves[0] + curves[1]
    assert 0.74 < sum(curves).epsilon(1e-6).upper < 0.76
    with pytest.raises(TypeError):
        1 + curves[0]


def test_an_estimate_warns_that_a_private_selection_of_rows_is_not_covered():
    """Counterexample of docs/estimate.md: the size of a group reveals that one person moved."""
    bonn, ulm = [("Bonn", 40.0)] * 100, [("Ulm", 50.0)] * 5
    sizes = []
    for people in (bonn + ulm, [*bonn, ("Bonn", 50.0), *ulm[1:]]):  # one row is replaced
        found = tn.estimate_mean([age for town, age in people if town == "Ulm"], **BALL, **SURE)
        sizes.append(found.clients)
        assert "5 clients (public)" in repr(found) or "4 clients (public)" in repr(found)
        said = " ".join(found.to_dict()["assumptions"])
        assert "rows is taken as public; rows that a private attribute chose" in said
        assert "taken as public" in " ".join(found._repr_html_().split())
    assert sizes == [5, 4]  # certain, at any ε
    hidden = tn.estimate_mean([50.0] * 5, **BALL, epsilon=1, trust="central", relation="add-remove")
    assert hidden.clients is None
    assert not any("taken as" in said for said in hidden.to_dict()["assumptions"])
