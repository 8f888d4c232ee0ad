"""Updates computed by the rules of docs/device-protocol.md, compared with vectors and code."""

import json

import numpy as np
import pytest
from test_vectors import PLACE
from update_vectors import (
    cases,
    features_of,
    filled,
    lattice_of,
    loss_of,
    moved_of,
)

VECTORS = {v["name"]: v for v in json.loads(PLACE.read_text()).get("updates", [])}
LOGISTIC = [case[0] for case in cases() if case[1].architecture == "logistic-1"]
ONE_STEP = "network"


def test_the_update_vectors_cover_every_case():
    assert list(VECTORS) == [case[0] for case in cases()]


@pytest.mark.parametrize("name", [case[0] for case in cases()])
def test_features_computed_as_documented_equal_the_update_vectors(name):
    vector = VECTORS[name]
    for row, shown in zip(features_of(vector), vector["features"], strict=True):
        told = np.array(shown)
        if vector["model"]["features"]["format"] == "pixels-1":
            assert np.array_equal(row[:: vector["every"]], told)
        else:  # within one unit in the last place of binary16
            ulp = np.spacing(np.abs(told).astype(np.float16)).astype(np.float64)
            assert (np.abs(row[:: vector["every"]] - told) <= ulp).all()


@pytest.mark.parametrize("name", LOGISTIC)
def test_logistic_updates_computed_as_documented_equal_the_update_vectors(name):
    vector = VECTORS[name]
    if not vector["records"]:
        moved = np.zeros(15)
    else:
        with np.errstate(all="ignore"):
            moved = moved_of(vector, [np.array(row) for row in vector["features"]])
    if "norm" in vector:
        told = np.array(vector["moved"])
        assert np.linalg.norm(moved - told) <= 1e-5 * vector["norm"]
        assert np.linalg.norm(moved) == pytest.approx(vector["norm"], rel=1e-5)
    q, limit = lattice_of(vector, moved)
    assert limit == vector["norm_squared_limit"]
    assert sum(x * x for x in q) <= limit
    assert np.abs(np.array(q) - vector["quantised"]).max() <= 1
    assert sum(x * x for x in vector["quantised"]) <= limit
    assert any(q) == ("norm" in vector and vector["norm"] > 0)


def test_the_network_update_is_the_derivative_of_the_documented_loss():
    """Central differences in float64 at every coordinate that the vectors contain."""
    vector = VECTORS[ONE_STEP]
    at, rows = filled(vector["parameters"]).astype(np.float64), features_of(vector)
    for i in range(0, len(at), 8 * vector["every"]):
        width = np.zeros(len(at))
        width[i] = 1e-5
        slope = (loss_of(vector, rows, at + width) - loss_of(vector, rows, at - width)) / 2e-5
        told = vector["moved"][i // vector["every"]]
        assert slope == pytest.approx(told, abs=1e-5 * vector["norm"] + 1e-7), i
    step = float.fromhex(vector["update_format"]["step"]["float"])
    clip = float.fromhex(vector["update_format"]["clip_norm"]["float"])
    factor = min(1.0, clip * (1 - 2.0**-20) / vector["norm"])
    q = np.trunc(np.array(vector["moved"]) * factor / step)
    assert factor < 1
    assert np.abs(q - vector["quantised"]).max() <= 1


def test_updates_with_a_wrong_order_of_coordinates_differ_from_the_vectors():
    """Negative control: biases before weights, or columns before rows."""
    vector = VECTORS[LOGISTIC[0]]
    rows = [np.array(row) for row in vector["features"]]
    moved, told = moved_of(vector, rows), np.array(vector["moved"])
    biases_first = np.append(moved[-3:], moved[:-3])
    transposed = np.append(moved[:12].reshape(3, 4).T.reshape(-1), moved[12:])
    for wrong in (biases_first, transposed):
        assert np.linalg.norm(wrong - told) > 0.1 * vector["norm"]
