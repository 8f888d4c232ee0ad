"""Each computation of a sum of clipped updates agrees with a loop over clients."""

import numpy as np
import pytest
from plain_clients import Case, case

from turnout.core.errors import ParameterError
from turnout.learning.algorithm import FedSGD
from turnout.learning.examples import Examples
from turnout.learning.holdings import Holdings
from turnout.learning.local_updates import (
    LayeredUpdates,
    LocalTraining,
    VmappedUpdates,
    local_updates,
)
from turnout.learning.models import MODELS, build_model
from turnout.learning.optimizers import SGD
from turnout.learning.tasks import SupervisedTask

PATHS = ("layered", "vmapped")


def assert_close(found: np.ndarray, expected: np.ndarray) -> None:
    scale = np.linalg.norm(expected)
    assert np.linalg.norm(found - expected) <= 2e-5 * scale


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("many", [False, True])
@pytest.mark.parametrize("clip_norm", [0.05, 1.0, 1e6])
def test_clipped_sums_by_layers_and_by_vmap_agree_with_a_loop_over_clients(
    name, path, many, clip_norm
):
    made = case(name, many=many, clip_norm=clip_norm)
    clients = np.array([3, 0, 8, 5, 1, 7])
    found = made.task(path).clipped_sum(made.parameters, clients)
    assert found.count == 6
    assert_close(found.total, made.clipped_sum(clients))


@pytest.mark.parametrize("path", PATHS)
def test_uint8_inputs_are_read_as_fractions_of_255(path):
    made = case("tanh-cnn-13k", bytes_=True)
    clients = np.arange(9)
    found = made.task(path).clipped_sum(made.parameters, clients)
    assert_close(found.total, made.clipped_sum(clients))


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("many", [False, True])
def test_clipped_sums_of_several_local_steps_agree_with_a_loop_over_clients(name, many):
    made = case(name, many=many, local=LocalTraining(3, 0.5), clip_norm=0.4)
    clients = np.arange(9)
    found = made.task().clipped_sum(made.parameters, clients)
    assert_close(found.total, made.clipped_sum(clients))


@pytest.mark.parametrize("path", PATHS)
def test_the_local_learning_rate_scales_updates_before_clipping(path):
    made = case("tanh-cnn-13k", local=LocalTraining(1, 0.1), clip_norm=0.2)
    clients = np.arange(9)
    found = made.task(path).clipped_sum(made.parameters, clients)
    assert_close(found.total, made.clipped_sum(clients))


@pytest.mark.parametrize("name", ["tanh-cnn-13k", "tanh-cnn-26k"])
def test_gradients_of_tied_maxima_agree_with_pytorch(name):
    # Constant images, so that nearly all pooling windows of a map have equal values.
    made = case(name, population=4)
    flat = np.zeros_like(made.examples.inputs)
    flat[1], flat[2, 8:] = 0.7, 0.4
    made = Case(
        name,
        Examples(flat, made.examples.labels),
        made.holdings,
        made.local,
        1e6,
        made.parameters,
    )
    clients = np.arange(4)
    found = made.task("layered").clipped_sum(made.parameters, clients)
    assert_close(found.total, made.clipped_sum(clients))


@pytest.mark.parametrize("path", PATHS)
def test_clipped_sums_over_several_batches_agree_with_a_loop_over_clients(path):
    made = case("logistic", population=700, clip_norm=0.3)
    task = made.task(path)
    clients = np.random.default_rng(1).permutation(700)[:650]
    assert_close(task.clipped_sum(made.parameters, clients).total, made.clipped_sum(clients))


@pytest.mark.parametrize("path", PATHS)
def test_clipped_sums_over_disjoint_clients_add_up(path):
    made = case("tanh-cnn-13k", many=True, clip_norm=0.3)
    task, clients = made.task(path), np.arange(9)
    whole = task.clipped_sum(made.parameters, clients)
    parts = task.clipped_sum(made.parameters, clients[:4]) + task.clipped_sum(
        made.parameters, clients[4:]
    )
    assert parts.count == whole.count == 9
    assert_close(parts.total, whole.total)


def test_all_examples_of_a_client_are_clipped_together_instead_of_one_by_one():
    made = case("tanh-cnn-13k", many=True, clip_norm=0.3)
    one_by_one = case("tanh-cnn-13k", many=True, clip_norm=0.3)
    one_by_one = Case(
        "tanh-cnn-13k",
        one_by_one.examples,
        Holdings.one_each(len(one_by_one.examples)),
        one_by_one.local,
        0.3,
        one_by_one.parameters,
    )
    right = made.task().clipped_sum(made.parameters, np.arange(9)).total
    wrong = one_by_one.task().clipped_sum(made.parameters, np.arange(27)).total
    assert np.linalg.norm(right - wrong) > 0.1 * np.linalg.norm(right)


def test_the_clipped_sum_over_no_clients_is_zero():
    task = case("logistic").task()
    total = task.clipped_sum(np.zeros(task.dimension), np.array([], dtype=np.int64))
    assert total.count == 0
    assert not total.total.any()


def test_clients_without_examples_are_counted_and_add_zero():
    made = case("tanh-cnn-13k", many=True)
    total = made.task().clipped_sum(made.parameters, np.array([8]))
    assert total.count == 1
    assert not total.total.any()


def test_models_with_closed_form_layers_and_one_local_step_use_layered_updates():
    model = build_model("tanh-cnn-13k", (28, 28), 10)
    assert isinstance(local_updates(model, LocalTraining()), LayeredUpdates)
    assert isinstance(local_updates(model, LocalTraining(2)), VmappedUpdates)


@pytest.mark.parametrize(
    ("name", "parameters"), [("logistic", 7850), ("tanh-cnn-13k", 13706), ("tanh-cnn-26k", 26010)]
)
def test_models_have_the_documented_parameter_counts(name, parameters):
    assert build_model(name, (28, 28), 10).dimension == parameters


@pytest.mark.parametrize("name", MODELS)
def test_initial_parameters_are_reproducible_and_have_the_right_scale(name):
    model = build_model(name, (28, 28), 10)
    first = model.initial_parameters(np.random.default_rng(1))
    assert first.shape == (model.dimension,)
    assert first.dtype == np.float32
    assert np.array_equal(first, model.initial_parameters(np.random.default_rng(1)))
    if name == "logistic":
        assert not first.any()
    else:
        assert np.abs(first[:1024]).max() <= 1 / 8
        assert not np.array_equal(first, model.initial_parameters(np.random.default_rng(2)))


@pytest.mark.parametrize("path", PATHS)
def test_updates_longer_than_the_clip_norm_are_counted(path):
    made = case("logistic")
    task, everybody = made.task(path).task, np.arange(9)
    alone = [task.clipped_sum(made.parameters, np.array([i]), 1e6).total for i in everybody]
    norms = np.sort(np.linalg.norm(alone, axis=1))
    for longer in (0, 4, 9):
        bound = np.mean([[0, *norms, 2 * norms[-1]][9 - longer + k] for k in (0, 1)])
        assert task.clipped_sum(made.parameters, everybody, float(bound)).clipped == longer


def test_evaluation_returns_accuracy_and_mean_cross_entropy():
    examples = Examples(
        np.eye(3, dtype=np.float32)[[0, 1, 2, 0]], np.array([0, 1, 2, 1], dtype=np.int64)
    )
    model = build_model("logistic", (3,), 3)
    task = SupervisedTask(model, examples, examples)
    weights = np.concatenate([4 * np.eye(3).reshape(-1), np.zeros(3)])
    found = task.evaluate(weights)
    log_of_sum = np.log(np.exp(4.0) + 2)
    assert found["accuracy"] == 0.75
    assert found["loss"] == pytest.approx((3 * (log_of_sum - 4) + log_of_sum) / 4, rel=1e-6)


@pytest.mark.parametrize("name", ["tanh-cnn-13k", "tanh-cnn-26k"])
def test_evaluations_by_layers_and_by_vmap_agree(name):
    made = case(name, population=90)
    layered, vmapped = (made.task(path).task.evaluate(made.parameters) for path in PATHS)
    assert layered["loss"] == pytest.approx(vmapped["loss"], rel=1e-5)
    assert layered["accuracy"] == pytest.approx(vmapped["accuracy"], abs=0.02)


def test_errors_about_learning_options_name_the_allowed_values():
    made = case("logistic")
    task = made.task()
    with pytest.raises(ParameterError, match="below the population, 9"):
        task.clipped_sum(made.parameters, np.array([9]))
    with pytest.raises(ParameterError, match="below the population"):
        task.clipped_sum(made.parameters, np.array([-1]))
    with pytest.raises(ParameterError, match="shape"):
        task.clipped_sum(made.parameters[:-1], np.array([0]))
    with pytest.raises(ParameterError, match="one of logistic, tanh-cnn-13k"):
        build_model("resnet", (28, 28), 10)
    with pytest.raises(ParameterError, match="kernel fits"):
        build_model("tanh-cnn-13k", (8, 8), 10)
    with pytest.raises(ParameterError, match="an image"):
        build_model("tanh-cnn-13k", (64,), 10)
    with pytest.raises(ParameterError, match="labels"):
        Examples(np.zeros((2, 3), dtype=np.float32), np.zeros(3, dtype=np.int64))
    with pytest.raises(ParameterError, match="clip_norm"):
        FedSGD(task.task, SGD(1.0), 1e-9)
    with pytest.raises(ParameterError, match="clients from 0 to 3"):
        Holdings.from_owners(np.array([0, 4]), 4)


def test_padding_repeats_examples_of_the_same_client_with_weight_zero():
    holdings = Holdings.from_owners(np.array([1, 0, 1, 1]), 2)
    records, weights = holdings.padded(np.array([0, 1]))
    assert records.tolist() == [[1, 1, 1], [0, 2, 3]]
    assert weights == pytest.approx(np.array([[1, 0, 0], [1 / 3, 1 / 3, 1 / 3]]))
