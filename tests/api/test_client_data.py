"""`tn.client_data`: every kind of source gives the same records, and plans train on them."""

from __future__ import annotations

import re

import numpy as np
import pyarrow as pa
import pytest
import torch

import turnout as tn

WHO = ["cy", "ann", "ben", "ann"]
AGE = [60.0, 40.0, 50.0, 41.0]
ILL = [1, 0, 1, 0]
TABLE = {"who": WHO, "age": AGE, "ill": ILL}
LATER = {"age": [30.0, 31.0], "ill": [0, 1]}
NAMED = {"client": "who", "inputs": "age", "label": "ill", "classes": 2}


def frames():
    yield "pyarrow", pa.table(TABLE), pa.table(LATER)
    yield "mapping", TABLE, LATER
    yield "mapping of arrays", {name: np.array(TABLE[name]) for name in TABLE}, LATER
    yield "record batch", pa.record_batch(TABLE), LATER


@pytest.mark.parametrize(("source", "test"), [pytest.param(s, t, id=n) for n, s, t in frames()])
def test_records_read_from_frames_equal_the_expected_records(source, test):
    expect(tn.client_data(source, test=test, **NAMED))


@pytest.mark.parametrize("package", ["pandas", "polars"])
def test_frames_of_other_packages_are_read(package):
    frame = pytest.importorskip(package, reason=f"needs {package}").DataFrame
    expect(tn.client_data(frame(TABLE), test=frame(LATER), **NAMED))
    missing = {**TABLE, "age": [60.0, None, 50.0, 41.0]}
    with pytest.raises(tn.ParameterError, match="inputs = 'age': expected a value in every row; i"):
        tn.client_data(frame(missing), test=frame(LATER), **NAMED)


class Pairs(torch.utils.data.Dataset):
    def __init__(self, ages, ills):
        self._ages, self._ills = torch.tensor(ages)[:, None], ills

    def __len__(self):
        return len(self._ills)

    def __getitem__(self, number):
        return self._ages[number], self._ills[number]


def unnamed():
    x, y = np.array(AGE)[:, None], np.array(ILL)
    later = (np.array(LATER["age"])[:, None], np.array(LATER["ill"]))
    by_client = {"cy": (x[:1], y[:1]), "ann": (x[[1, 3]], y[[1, 3]]), "ben": (x[2:3], y[2:3])}
    yield "arrays", (x, y, WHO), later, None
    yield "arrays and ids", (x, y), later, WHO
    yield "a data set of PyTorch", Pairs(AGE, ILL), Pairs(LATER["age"], LATER["ill"]), WHO
    yield "clients", by_client, later, None
    yield "clients one after another", iter(by_client.items()), later, None


@pytest.mark.parametrize(
    ("source", "test", "ids"), [pytest.param(*rest, id=name) for name, *rest in unnamed()]
)
def test_records_read_from_arrays_without_names_equal_the_expected_records(source, test, ids):
    expect(tn.client_data(source, client=ids, classes=2, test=test))


def expect(data):
    assert data.holdings.offsets.tolist() == [0, 2, 3, 4]
    assert data.train.inputs.tolist() == [[40], [41], [50], [60]]
    assert data.train.labels.tolist() == [0, 0, 1, 1]
    assert data.test.inputs.tolist() == [[30], [31]]
    assert data.train.inputs.dtype == np.float32
    assert data.outputs == 2


def test_records_without_named_clients_are_assigned_to_clients_by_the_plan():
    data = tn.client_data((np.zeros((6, 2)), [0, 1] * 3), classes=2, test=0.5)
    assert data.holdings is None
    assert len(data.train) + len(data.test) == 6


@pytest.mark.parametrize(
    ("label", "keys", "target", "shape"),
    [
        ([0.5, 1.5, 2.5, 3.5], {}, "numbers", (4, 1)),
        ([0.5, 1.5, 2.5, 3.5], {"scaling": {"y": (0, 5)}}, "numbers", (4, 1)),
        ([1, 2, 3, 4], {"target": "numbers"}, "numbers", (4, 1)),
        ([[True, False]] * 4, {}, "tags", (4, 2)),
        ([[1, 0, 1]] * 4, {"target": "tags"}, "tags", (4, 3)),
        ([1, 2, 3, 0], {"classes": 4}, "class", (4,)),
        (["yes", "no", "no", "yes"], {"classes": ["no", "yes"]}, "class", (4,)),
        ([True, False, True, True], {"classes": 2}, "class", (4,)),
    ],
)
def test_the_type_of_the_labels_determines_the_kind_of_target(label, keys, target, shape):
    held = {"x": AGE, "y": label}
    data = tn.client_data(held, inputs="x", label="y", test=held, **keys)
    assert (data.target.value, data.train.labels.shape) == (target, shape)
    if "scaling" in keys:
        np.testing.assert_allclose(data.train.labels[:, 0], np.array(label) / 5, rtol=1e-6)


@pytest.mark.parametrize("label", [[1, 2, 3, 0], [True, False, True, True], ["a", "b", "a", "b"]])
def test_labels_with_two_possible_targets_are_refused(label):
    held = {"x": AGE, "y": label}
    with pytest.raises(
        tn.ParameterError, match=r"target = None: expected 'class' \(with classes\)"
    ):
        tn.client_data(held, inputs="x", label="y", test=held)


def test_each_token_has_the_next_token_as_label():
    tokens = np.array([[1, 2, 3, -1], [3, 2, 1, 0]])
    data = tn.client_data({"t": tokens}, inputs="t", vocabulary=4, test={"t": tokens})
    assert data.train.inputs.tolist() == [[1, 2, 3], [3, 2, 1]]
    assert data.train.labels.tolist() == [[2, 3, -1], [2, 1, 0]]
    assert data.train.inputs.dtype == data.train.labels.dtype == np.int64
    with pytest.raises(
        tn.ParameterError, match="inputs = 't': expected whole numbers from -1 to 2"
    ):
        tn.client_data({"t": tokens}, inputs="t", vocabulary=3, test={"t": tokens})


def test_tokens_stay_whole_numbers_whatever_the_type_of_the_labels():
    table = {"t": [3, 0], "y": [0.5, 1.5], "next": [1, 2], "two": [[1, 2], [0, 1]]}
    table["after"] = [[2, 0], [1, 3]]
    data = tn.client_data(table, inputs="t", label="y", vocabulary=4, test=table)
    assert (data.train.inputs.dtype, data.train.inputs.tolist()) == (np.int64, [[3], [0]])
    assert data.target.value == "numbers"
    keys = {"target": "tokens", "vocabulary": 4, "test": table}
    data = tn.client_data(table, inputs="two", label="after", **keys)
    assert data.train.labels.tolist() == table["after"]
    with pytest.raises(
        tn.ParameterError, match=r"label = \(2,\): expected one token for each input"
    ):
        tn.client_data(table, inputs="t", label="two", **keys)


@pytest.mark.parametrize(
    ("source", "keys", "line"),
    [
        (5, {}, "source = 'int': expected a file's path, a frame, a mapping of columns, arrays"),
        ({}, {}, "data = {}: expected columns with at least one row"),
        ({"a": ([], [])}, {}, "client 'a' = '0 inputs and 0 labels': expected at least one record"),
        (
            {"a": ([[1.0]], [])},
            {},
            "client 'a' = '1 inputs and 0 labels': expected at least one re",
        ),
        (
            {"a": ([[1.0]], [0]), "b": ([[1.0, 2.0]], [0])},
            {},
            "client 'b' = (2,): expected inputs of shape (1,), like those of other clients",
        ),
        (([[1.0], [2.0, 3.0]], [0, 1]), {}, "data = 'inputs': expected arrays of one shape, (1,)"),
        (([[1.0], [2.0]], [0]), {}, "data = {'inputs': 2, 'labels': 1}: expected columns of one"),
        (([[1.0], [2.0]], [0, 1], ["a"]), {}, "data = {'inputs': 2, 'labels': 2, 'clients': 1}: "),
        (([[1.0], [2.0]], [0, 5]), {}, "labels = "),
        (([["a"], ["b"]], [0, 1]), {}, "data = 'inputs': expected numbers or text"),
        (TABLE, {"inputs": "sex", "label": "ill"}, "inputs = 'sex': expected a column of the data"),
        (
            TABLE,
            {"inputs": "age", "label": "ill", "client": "whom"},
            "client = 'whom': expected a c",
        ),
        (TABLE, {"inputs": "who", "label": "ill"}, "inputs = 'who': expected numbers, or a public"),
        ((AGE, ILL, WHO), {"client": WHO}, "client = ['cy', 'ann', 'ben', 'ann']: expected one id"),
        ((AGE, ILL), {"test": 2}, "test = 2: expected a share of the clients between 0 and 1"),
        (
            (AGE, ILL),
            {"test": None},
            "test = None: expected a fraction of the clients, a column or a",
        ),
    ],
)
def test_unreadable_data_is_refused_in_one_line(source, keys, line):
    keys = {"classes": 2, "test": 0.5, **keys}
    line = line.replace(
        "labels = ", "label = 'labels': expected whole numbers from 0 to 1; invalid:"
    )
    with pytest.raises(tn.ParameterError, match="^" + re.escape(line)):
        tn.client_data(source, **keys)


PLAN = {
    "model": {"name": "logistic"},
    "participation": {"law": "check-in", "window": 4},
    "privacy": {"relation": "add-remove", "delta": 1e-4, "noise_multiplier": 0.8},
    "optimizer": {"learning_rate": 2.0},
}


def signs(clients: int = 300):
    generator = np.random.default_rng(1)
    x = generator.normal(size=(3 * clients, 4))
    return x, (x[:, 0] > 0).astype(int), np.repeat(np.arange(clients), 3)


def test_a_plan_trains_on_data_given_as_an_argument(tmp_path):
    data = tn.client_data(signs(), classes=2, test=0.2)
    assert data.holdings is not None
    run = tn.train(PLAN, tmp_path / "run", data=data)
    assert run.summary.outcome.prepared.population == data.holdings.population < 300
    assert run.accuracy > 0.8
    said = run.summary.outcome.prepared.plan.data
    assert said.provenance() == {
        "test set": "20 % of the clients, by a hash of their ids; no ε covers it",
        "public constants": "classes: public, from the plan",
    }
    assert (said.title, said.client, said.inputs) == ("own data", "clients", ("inputs",))
    assert tn.train(resume=tmp_path / "run", data=data) == run
    other = tn.client_data(signs(200), classes=2, test=0.2)
    with pytest.raises(tn.TurnoutError, match="the checkpoint is of"):
        tn.train(resume=tmp_path / "run", data=other)


def test_data_given_both_in_the_plan_and_as_an_argument_are_refused():
    data = tn.client_data(signs(), classes=2, test=0.2)
    with pytest.raises(
        tn.ParameterError, match=r"data\.name = 'digits': expected no value, since data"
    ):
        tn.train({**PLAN, "data": {"name": "digits"}}, data=data)
    with pytest.raises(
        tn.ParameterError, match=r"data\.clients = 5: expected no value, since the data"
    ):
        tn.train({**PLAN, "data": {"clients": 5}}, data=data)
    with pytest.raises(
        tn.ParameterError, match=r"data\.path = .missing.: expected the path of a fil"
    ):
        tn.train(PLAN)
