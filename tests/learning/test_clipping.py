"""No client changes a sum by more than the clip norm, whatever data the client holds."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plain_clients import CLASSES, SIDE, Case, case
from torch import Tensor

from turnout.learning import gradients as clipping
from turnout.learning import local_updates
from turnout.learning.examples import Examples
from turnout.learning.gradients import OuterProducts, squared_norms
from turnout.learning.holdings import Holdings
from turnout.learning.local_updates import LocalTraining

PATHS = ("layered", "vmapped")


def with_inputs(made: Case, inputs: np.ndarray) -> Case:
    examples = Examples(inputs, made.examples.labels)
    return Case(made.name, examples, made.holdings, made.local, made.clip_norm, made.parameters)


def contributions(made: Case, path: str) -> np.ndarray:
    task = made.task(path)
    return np.array(
        [
            np.linalg.norm(task.clipped_sum(made.parameters, np.array([client])).total)
            for client in range(task.population)
        ]
    )


@settings(max_examples=72)  # about three for each model, path, holdings and number of steps
@given(
    name=st.sampled_from(["logistic", "tanh-cnn-13k"]),
    path=st.sampled_from(PATHS),
    many=st.booleans(),
    seed=st.integers(0, 1000),
    exponents=st.lists(st.integers(-38, 38), min_size=9, max_size=9),
    strange=st.lists(st.sampled_from([None, np.nan, np.inf, -np.inf, 3e38]), max_size=4),
    clip_norm=st.sampled_from([1e-6, 0.01, 1.0, 7.3, 1e6]),
    steps=st.sampled_from([1, 2]),
)
def test_the_contribution_of_a_client_never_exceeds_the_clip_norm(
    name, path, many, seed, exponents, strange, clip_norm, steps
):
    local = LocalTraining(1 if path == "layered" else steps, 1.0)
    made = case(name, seed=seed, many=many, clip_norm=clip_norm, local=local)
    inputs = made.examples.inputs.astype(np.float64)
    with np.errstate(over="ignore"):
        scales = 10.0 ** np.resize(exponents, len(inputs))
        inputs = (inputs * scales[:, None, None]).astype(np.float32)
    for i, value in enumerate(strange):
        if value is not None:
            inputs[i, i, i] = value
    norms = contributions(with_inputs(made, inputs), path)
    assert (norms <= clip_norm).all()


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("name", ["logistic", "tanh-cnn-13k", "tanh-cnn-26k"])
@pytest.mark.parametrize("many", [False, True])
def test_a_clipped_update_is_less_than_two_millionths_shorter_than_the_clip_norm(name, path, many):
    made = case(name, clip_norm=0.02, many=many, population=40)
    held = np.diff(made.holdings.offsets) > 0
    norms = contributions(made, path)[held]
    assert (norms <= 0.02).all()
    assert (norms >= 0.02 * (1 - 2e-6)).all()


def test_clipping_without_the_rounding_margin_exceeds_the_clip_norm(monkeypatch):
    """Negative control: without the margin, rounding lifts norms above the clip norm."""
    monkeypatch.setattr(clipping, "MARGIN", 0.0)
    monkeypatch.setattr(local_updates, "CALLS_BEFORE", math.inf)  # a graph contains the margin
    made = case("logistic", clip_norm=0.02, population=200)
    local_updates._recorded.cache_clear()
    assert (contributions(made, "layered") > 0.02).any()


def without_biases(gradients: OuterProducts) -> Tensor:
    return squared_norms(gradients.inputs) * squared_norms(gradients.upstream)


def without_inputs(gradients: OuterProducts) -> Tensor:
    return squared_norms(gradients.upstream)


def of_the_first_client(gradients: OuterProducts) -> Tensor:
    norms = (squared_norms(gradients.inputs) + 1) * squared_norms(gradients.upstream)
    return norms[:1].expand(len(norms))


@pytest.mark.parametrize("mutant", [without_biases, without_inputs, of_the_first_client])
def test_updates_clipped_by_wrongly_computed_norms_exceed_the_clip_norm(mutant, monkeypatch):
    """Negative controls: norms that leave out a factor, a bias or other clients."""
    monkeypatch.setattr(OuterProducts, "squared_norms", mutant)
    made = case("logistic", clip_norm=0.02, population=40)
    task = made.task("layered")
    everyone = task.clipped_sum(made.parameters, np.arange(40)).total
    rest = (
        task.clipped_sum(made.parameters, np.delete(np.arange(40), client)).total
        for client in range(1, 40)
    )
    assert max(np.linalg.norm(everyone - some) for some in rest) > 0.02 * (1 + 1e-3)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("name", ["logistic", "tanh-cnn-13k"])
@pytest.mark.parametrize("poison", [np.nan, np.inf])
@pytest.mark.parametrize("many", [False, True])
def test_updates_that_are_not_finite_add_zero_and_are_counted(name, path, poison, many):
    made = case(name, many=many, clip_norm=0.5)
    clean = made.task(path).clipped_sum(made.parameters, np.arange(9))
    bad = 2
    record = made.holdings.records[made.holdings.offsets[bad]]
    inputs = made.examples.inputs.copy()
    inputs[record] = poison
    spoilt = with_inputs(made, inputs).task(path)
    total = spoilt.clipped_sum(made.parameters, np.arange(9))
    others = made.task(path).clipped_sum(made.parameters, np.delete(np.arange(9), bad))
    assert total.count == clean.count == 9
    assert np.isfinite(total.total).all()
    assert np.linalg.norm(total.total - others.total) <= 1e-5
    assert not spoilt.clipped_sum(made.parameters, np.array([bad])).total.any()
    assert np.linalg.norm(total.total - clean.total) > 1e-2


@pytest.mark.parametrize("path", PATHS)
def test_the_clipped_sum_is_zero_if_no_update_is_finite(path):
    made = case("tanh-cnn-13k")
    spoilt = with_inputs(made, np.full_like(made.examples.inputs, np.nan)).task(path)
    total = spoilt.clipped_sum(made.parameters, np.arange(9))
    assert total.count == 9
    assert not total.total.any()


@pytest.mark.parametrize("path", PATHS)
def test_the_clipped_sum_is_zero_if_the_parameters_are_not_finite(path):
    made = case("tanh-cnn-13k")
    total = made.task(path).clipped_sum(np.full_like(made.parameters, np.nan), np.arange(9))
    assert total.count == 9
    assert not total.total.any()


def test_updates_below_the_clip_norm_are_unchanged():
    made = case("logistic", clip_norm=1e6)
    total = made.task("layered").clipped_sum(made.parameters, np.array([4]))
    assert np.allclose(total.total, made.update(4), rtol=1e-5, atol=1e-7)


def test_removing_a_client_changes_the_sum_by_at_most_the_clip_norm():
    made = case("tanh-cnn-13k", clip_norm=0.1, population=30)
    task = made.task()
    everyone = task.clipped_sum(made.parameters, np.arange(30)).total
    for client in (0, 17, 29):
        rest = task.clipped_sum(made.parameters, np.delete(np.arange(30), client)).total
        assert np.linalg.norm(everyone - rest) <= 0.1 * (1 + 1e-4)


def test_the_norm_of_an_update_does_not_grow_with_the_number_of_examples():
    random = np.random.default_rng(3)
    size = 60
    examples = Examples(
        10 * random.uniform(0, 1, (size, SIDE, SIDE)).astype(np.float32),
        random.integers(0, CLASSES, size),
    )
    owners = np.r_[np.zeros(59, dtype=np.int64), 1]
    made = case("tanh-cnn-13k")
    made = Case(
        made.name, examples, Holdings.from_owners(owners, 2), made.local, 0.3, made.parameters
    )
    for path in PATHS:
        assert (contributions(made, path) <= 0.3).all()
