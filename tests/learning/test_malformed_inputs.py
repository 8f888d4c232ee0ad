"""Inputs of an unusual form are converted, or refused with a one-line error."""

import numpy as np
import pytest
import torch

from turnout.core.errors import ParameterError
from turnout.learning.examples import Examples
from turnout.learning.models import build_model
from turnout.learning.optimizers import SGD, Adam, Constant, WarmUp, build_optimizer
from turnout.learning.tasks import SupervisedTask


@pytest.mark.parametrize(
    "make", [SGD, Adam, lambda rate: build_optimizer("nesterov", rate, momentum=0.5)]
)
@pytest.mark.parametrize("rate", [0.25, 1, np.float32(0.25)])
def test_a_number_is_accepted_as_a_constant_learning_rate(make, rate):
    start, direction = np.ones(3), np.array([1.0, -2.0, 0.5])
    results = []
    for optimizer in (make(rate), make(Constant(float(rate)))):
        parameters, state = start, optimizer.init(start)
        for step in range(3):
            parameters, state = optimizer.update(parameters, state, direction, step)
        results.append(parameters)
    assert np.array_equal(*results)
    assert WarmUp(0.5, 1)(0) == 0.25


@pytest.mark.parametrize("rate", ["0.1", None, 0.0, -1.0, float("nan"), True])
def test_an_invalid_learning_rate_is_refused(rate):
    for make in (SGD, Adam, lambda rate: WarmUp(rate, 3)):
        with pytest.raises(ParameterError, match="rate"):
            make(rate)


def test_lists_and_float64_arrays_become_float32():
    exact = Examples(np.array([[0.5, 1.0], [2.0, 3.0]], dtype=np.float32), np.array([0, 1]))
    for inputs in ([[0.5, 1.0], [2.0, 3.0]], exact.inputs.astype(np.float64)):
        found = Examples(inputs, [0, 1])
        assert found.inputs.dtype == np.float32
        assert found.labels.dtype == np.int64
        assert np.array_equal(found.inputs, exact.inputs)
        assert found.input_shape == (2,)


@pytest.mark.parametrize(
    ("inputs", "labels", "name"),
    [
        ([[1.0, 2.0], [3.0]], [0, 1], "inputs"),
        (np.ones((2, 3), np.int32), [0, 1], "inputs"),  # Tokens are int64.
        ([["a", "b"]], [0], "inputs"),
        (np.array([[1e300]]), [0], "inputs"),
        (np.zeros((2, 0)), [0, 1], "inputs"),
        (np.zeros((2, 3)), [0, [1]], "labels"),
        (np.zeros((2, 3)), [0.0, 1.0], "labels"),
        (np.zeros((2, 3)), ["0", "1"], "labels"),
        (np.zeros((2, 3)), [0, -1], "labels"),
    ],
)
def test_invalid_examples_are_refused(inputs, labels, name):
    with pytest.raises(ParameterError) as caught:
        Examples(inputs, labels)
    assert caught.value.name == name
    assert "\n" not in str(caught.value)


def test_labels_beyond_the_classes_of_the_model_are_refused():
    model = build_model("logistic", (4,), 3)
    fits, beyond = (Examples(torch.ones(2, 4).numpy(), [0, top]) for top in (2, 3))
    SupervisedTask(model, fits, fits)
    for train, test in ((beyond, fits), (fits, beyond)):
        with pytest.raises(ParameterError, match="labels = 3: expected classes from 0 to 2"):
            SupervisedTask(model, train, test)
    other = Examples(np.ones((2, 5)), [0, 1])
    tokens = Examples(np.ones((2, 4), np.int64), [0, 1])
    with pytest.raises(ParameterError, match="tokens need a custom module"):
        SupervisedTask(model, tokens, tokens)
    with pytest.raises(ParameterError, match="inputs"):
        SupervisedTask(model, other, other)
