"""Saved model of a run: saving, loading, prediction and errors."""

from __future__ import annotations

import numpy as np
import pytest
from click.testing import CliRunner

import turnout as tn
from turnout import data as datasets
from turnout.api.train import scaled_as_learned
from turnout.cli.training import predict
from turnout.core.errors import ParameterError, StorageError
from turnout.runs.training import AVERAGED, CARD, LAST, MODEL

TABLES = {
    "data": {"name": "digits"},
    "model": {"name": "logistic"},
    "participation": {"law": "check-in", "window": 5, "windows": 2},
    "privacy": {"relation": "add-remove", "delta": 1e-4, "noise_multiplier": 2.0},
    "optimizer": {"learning_rate": 1.0, "averaging": "tail"},
}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return tn.train(TABLES, tmp_path_factory.mktemp("runs") / "run")


def test_a_loaded_model_equals_the_trained_model(run):
    model = tn.load(run.folder)
    test = datasets.load_images("digits").test
    assert np.array_equal(model.parameters, run.parameters)
    assert np.mean(model.predict(test.inputs) == test.labels) == pytest.approx(run.accuracy)
    assert not np.array_equal(model.saved.parameters[LAST], model.saved.parameters[AVERAGED])


def test_a_loaded_model_and_its_card_state_the_guarantee(run):
    model = tn.load(run.folder)
    assert model.guarantee["epsilon"] == run.guarantee.epsilon.upper
    assert model.guarantee["epsilon_lower"] == run.guarantee.epsilon.lower
    assert (run.folder / CARD).read_text() == model.card
    for said in ("add-remove", "client", "central", "1e-04", "clip norm", "does not record how"):
        assert said.replace("1e-04", "0.0001") in model.card


def test_a_model_without_averaging_stores_only_the_last_iterate(tmp_path):
    plan = TABLES | {"optimizer": {"learning_rate": 1.0}}
    run = tn.train(plan, tmp_path / "run")
    model = tn.load(tmp_path / "run")
    assert set(model.saved.parameters) == {LAST}
    assert np.array_equal(model.parameters, run.parameters)


def _flipped(data: bytes) -> bytes:
    return data[:-1] + bytes([data[-1] ^ 1])


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (_flipped, "digest"),
        (lambda data: data[:-40], "damaged"),
        (lambda data: b"\x80\x04" + data, "damaged"),
        (lambda data: data.replace(b"turnout model 1", b"turnout model 9"), "format"),
        (lambda data: data.replace(b'"turnout":', b'"another":'), "not a model"),
    ],
)
def test_a_damaged_file_or_a_file_of_another_kind_is_refused_as_model(run, tmp_path, change, said):
    (tmp_path / MODEL).write_bytes(change((run.folder / MODEL).read_bytes()))
    with pytest.raises(StorageError, match=said):
        tn.load(tmp_path)


def test_a_folder_without_a_model_is_refused_with_the_remedy(tmp_path):
    with pytest.raises(StorageError, match="no run"):
        tn.load(tmp_path)
    (tmp_path / "plan.toml").write_text("")
    with pytest.raises(StorageError, match="turnout train --resume"):
        tn.load(tmp_path)


def test_inputs_with_nan_or_of_a_wrong_shape_or_type_are_refused_by_a_model(run):
    model = tn.load(run.folder)
    inputs = datasets.load_images("digits").test.inputs[:3].astype(float)
    inputs[1].flat[0] = np.nan
    with pytest.raises(ParameterError, match="row 1"):
        model.scores(inputs)
    with pytest.raises(ParameterError, match="a shape"):
        model.scores(np.zeros((2, 3)))
    with pytest.raises(ParameterError, match="array of numbers"):
        model.scores(inputs.astype(str))
    with pytest.raises(ParameterError, match="array of numbers"):
        model.scores(inputs.astype(object))
    assert np.array_equal(model.scores(inputs > 0.5), model.scores(np.where(inputs > 0.5, 1, 0)))


def test_inputs_that_are_whole_numbers_beyond_float32_precision_are_refused():
    with pytest.raises(ParameterError, match="numbers that float32 can represent"):
        scaled_as_learned(np.array([[2**24 + 1]]), learned_from_bytes=False)
    assert scaled_as_learned(np.array([[2**24]]), learned_from_bytes=False).dtype == np.float32


def test_the_predict_command_prints_or_writes_classes_and_scores(run, tmp_path):
    inputs = datasets.load_images("digits").test.inputs[:4]
    np.save(tmp_path / "inputs.npy", inputs)
    answer = CliRunner().invoke(predict, [str(run.folder), str(tmp_path / "inputs.npy")])
    rows = [line.split(",") for line in answer.stdout.splitlines()]
    assert len(rows) == 5
    model = tn.load(run.folder)
    assert [int(row[0]) for row in rows[1:]] == model.predict(inputs).tolist()
    out = tmp_path / "scores.npy"
    CliRunner().invoke(predict, [str(run.folder), str(tmp_path / "inputs.npy"), "--out", str(out)])
    assert np.array_equal(np.load(out), model.scores(inputs))


def test_resuming_a_finished_run_writes_its_missing_model(run):
    before = (run.folder / MODEL).read_bytes()
    (run.folder / MODEL).unlink()
    tn.train(resume=run.folder)
    assert (run.folder / MODEL).read_bytes() == before


@pytest.mark.parametrize(
    ("inputs", "refused"),
    [
        (np.array([[0.0, 255.0]]), True),
        (np.array([[0, 256]]), True),
        (np.array([[-1, 3]]), True),
        (np.array([[0.0, 1.0]]), False),
        (np.array([[0, 255]]), False),
    ],
)
def test_inputs_outside_0_to_255_are_refused_by_a_model_trained_on_bytes(inputs, refused):
    if refused:
        with pytest.raises(ParameterError, match="from 0 to 255"):
            scaled_as_learned(inputs, learned_from_bytes=True)
    else:
        kept = scaled_as_learned(inputs, learned_from_bytes=True)
        assert kept.dtype == (np.uint8 if inputs.dtype.kind == "i" else np.float32)
