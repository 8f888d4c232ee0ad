"""Optimizers agree with PyTorch's, and schedules and averages with their formulas."""

import math
from typing import get_args

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from turnout.core.errors import ParameterError
from turnout.learning.optimizers import (
    SCHEDULES,
    SGD,
    Adam,
    AveragedOptimizer,
    Constant,
    Cosine,
    ExponentialAverage,
    InverseSquareRoot,
    LastIterate,
    Linear,
    Projected,
    TailAverage,
    WarmUp,
    build_averaging,
    build_optimizer,
    build_schedule,
    optimizer_rule,
    register_optimizer,
)
from turnout.plans.sections import OptimizerSection

STEPS, DIMENSION = 40, 17


def directions(dtype=np.float64) -> np.ndarray:
    return np.random.default_rng(5).normal(size=(STEPS, DIMENSION)).astype(dtype)


def walk(optimizer, dtype=np.float64, steps=STEPS):
    parameters = np.linspace(-1, 1, DIMENSION).astype(dtype)
    state = optimizer.init(parameters)
    path = []
    for step, direction in enumerate(directions()[:steps]):
        parameters, state = optimizer.update(parameters, state, direction, step)
        path.append(parameters)
    return np.array(path), state


def torch_walk(make, schedule) -> np.ndarray:
    parameters = torch.linspace(-1, 1, DIMENSION, dtype=torch.float64, requires_grad=True)
    with torch.no_grad():
        parameters.copy_(torch.tensor(np.linspace(-1, 1, DIMENSION)))
    optimizer = make([parameters])
    path = []
    for step, direction in enumerate(directions()):
        optimizer.param_groups[0]["lr"] = schedule(step)
        parameters.grad = torch.tensor(direction)
        optimizer.step()
        path.append(parameters.detach().numpy().copy())
    return np.array(path)


RATES = [Constant(0.1), WarmUp(Cosine(0.2, STEPS), 5)]


@pytest.mark.parametrize("rate", RATES)
@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (SGD, lambda p: torch.optim.SGD(p, lr=1.0)),
        (lambda rate: SGD(rate, 0.9), lambda p: torch.optim.SGD(p, lr=1.0, momentum=0.9)),
        (
            lambda rate: SGD(rate, 0.8, nesterov=True),
            lambda p: torch.optim.SGD(p, lr=1.0, momentum=0.8, nesterov=True),
        ),
        (
            lambda rate: SGD(rate, weight_decay=0.3),
            lambda p: torch.optim.SGD(p, lr=1.0, weight_decay=0.3),
        ),
        (Adam, lambda p: torch.optim.Adam(p, lr=1.0)),
        (
            lambda rate: Adam(rate, 0.7, 0.95, 1e-3),
            lambda p: torch.optim.Adam(p, lr=1.0, betas=(0.7, 0.95), eps=1e-3),
        ),
        (
            lambda rate: Adam(rate, weight_decay=0.2),
            lambda p: torch.optim.AdamW(p, lr=1.0, weight_decay=0.2),
        ),
    ],
)
def test_optimizer_trajectories_agree_with_pytorch(rate, ours, theirs):
    assert walk(ours(rate))[0] == pytest.approx(torch_walk(theirs, rate), rel=1e-10, abs=1e-12)


@pytest.mark.parametrize("name", ["sgd", "nesterov", "adam"])
def test_optimizer_steps_do_not_change_their_inputs_and_keep_the_dtype(name):
    momentum = 0.0 if name == "adam" else 0.9
    optimizer = AveragedOptimizer(
        build_optimizer(name, Constant(0.1), momentum=momentum), ExponentialAverage(0.9)
    )
    parameters = np.ones(DIMENSION, dtype=np.float32)
    state = optimizer.init(parameters)
    before = {key: value.copy() for key, value in state.items()}
    after, later = optimizer.update(parameters, state, directions()[0], 0)
    assert after.dtype == np.float32
    assert (parameters == 1).all()
    assert all(np.array_equal(before[key], state[key]) for key in before)
    assert set(later) == set(state)
    assert all(isinstance(value, np.ndarray) for value in later.values())
    assert optimizer.released(after, later).dtype == np.float32


def test_an_optimizer_continues_from_a_stored_state():
    optimizer = AveragedOptimizer(SGD(Linear(0.3, STEPS), 0.9), TailAverage(25))
    whole, state = walk(optimizer)
    parameters = np.linspace(-1, 1, DIMENSION)
    kept = optimizer.init(parameters)
    for step, direction in enumerate(directions()):
        if step == 13:
            kept = {key: value.copy() for key, value in kept.items()}
            optimizer = AveragedOptimizer(SGD(Linear(0.3, STEPS), 0.9), TailAverage(25))
        parameters, kept = optimizer.update(parameters, kept, direction, step)
    assert np.array_equal(parameters, whole[-1])
    assert all(np.array_equal(kept[key], state[key]) for key in state)


def test_averaging_does_not_change_the_iterates():
    plain, _ = walk(SGD(Constant(0.1), 0.9))
    averaged, _ = walk(AveragedOptimizer(SGD(Constant(0.1), 0.9), ExponentialAverage(0.9)))
    assert np.array_equal(plain, averaged)


def released(averaging, steps=STEPS) -> tuple[np.ndarray, np.ndarray]:
    optimizer = AveragedOptimizer(SGD(Constant(0.1)), averaging)
    path, state = walk(optimizer, steps=steps)
    return path, optimizer.released(path[-1], state)


def test_the_exponential_average_agrees_with_its_formula():
    path, found = released(ExponentialAverage(0.9))
    weights = 0.9 ** np.arange(STEPS - 1, -1, -1)
    assert found == pytest.approx(weights @ path / weights.sum(), rel=1e-12)


def test_the_tail_average_is_the_mean_of_the_last_iterates():
    path, found = released(TailAverage(30))
    assert found == pytest.approx(path[30:].mean(0), rel=1e-12)


def test_the_current_iterate_is_released_before_the_averaged_tail_begins():
    path, found = released(TailAverage(30), steps=30)
    assert np.array_equal(found, path[-1])


@pytest.mark.parametrize(
    "optimizer",
    [
        SGD(Constant(0.1)),
        AveragedOptimizer(SGD(Constant(0.1)), ExponentialAverage(0.9)),
        AveragedOptimizer(SGD(Constant(0.1)), TailAverage(0)),
        AveragedOptimizer(SGD(Constant(0.1)), LastIterate()),
    ],
)
def test_the_initial_parameters_are_released_before_the_first_update(optimizer):
    parameters = np.ones(3, dtype=np.float32)
    assert np.array_equal(optimizer.released(parameters, optimizer.init(parameters)), parameters)


def test_averaging_settings_build_their_average_over_the_run():
    assert build_averaging("tail", 600, tail=0.5) == TailAverage(300)
    assert build_averaging("tail", 600, tail=1.0) == TailAverage(0)
    assert build_averaging("ema", 600, decay=0.7) == ExponentialAverage(0.7)
    assert build_averaging("none", 600) == LastIterate()


@given(name=st.sampled_from(sorted(SCHEDULES)), warm_up=st.integers(0, 20), step=st.integers(0, 60))
def test_learning_rates_lie_between_zero_and_the_peak(name, warm_up, step):
    rate = build_schedule(name, 0.4, 60, warm_up)(step)
    assert 0 <= rate <= 0.4


def test_learning_rate_schedules_agree_with_their_formulas():
    assert Constant(0.3)(99) == 0.3
    assert Linear(0.4, 10)(0) == 0.4
    assert Linear(0.4, 10)(5) == pytest.approx(0.2)
    assert Linear(0.4, 10, final=0.5)(10) == pytest.approx(0.2)
    assert Cosine(0.4, 10)(5) == pytest.approx(0.2)
    assert Cosine(0.4, 10, final=0.25)(10) == pytest.approx(0.1)
    assert InverseSquareRoot(0.4)(3) == pytest.approx(0.2)
    warm = WarmUp(Constant(0.6), 2)
    assert [warm(step) for step in range(4)] == pytest.approx([0.2, 0.4, 0.6, 0.6])
    assert math.isclose(build_schedule("linear", 1.0, 4, 1)(0), 0.5)


def test_invalid_settings_of_optimizers_are_refused():
    with pytest.raises(ParameterError, match="one of constant, linear"):
        build_schedule("exponential", 0.1, 10)
    with pytest.raises(ParameterError, match="sgd, nesterov, adam"):
        build_optimizer("lion", Constant(0.1))
    with pytest.raises(ParameterError, match="momentum"):
        build_optimizer("adam", Constant(0.1), momentum=0.9)
    with pytest.raises(ParameterError, match="momentum"):
        SGD(Constant(0.1), 1.0)
    with pytest.raises(ParameterError, match="above 0"):
        SGD(Constant(0.1), nesterov=True)
    with pytest.raises(ParameterError, match="none, ema, tail"):
        build_averaging("median", 10)
    with pytest.raises(ParameterError, match="direction"):
        SGD(Constant(0.1)).update(np.zeros(3), {}, np.zeros(4), 0)


def test_a_projected_iterate_is_the_nearest_point_of_the_ball():
    inside, outside = (Projected(SGD(1.0), radius) for radius in (100.0, 0.5))
    start, direction = np.zeros(DIMENSION), directions()[0]
    free, _ = SGD(1.0).update(start, {}, direction, 0)
    assert np.array_equal(inside.update(start, {}, direction, 0)[0], free)
    held, _ = outside.update(start, {}, direction, 0)
    assert np.linalg.norm(held) == pytest.approx(0.5)
    assert np.allclose(held / 0.5, free / np.linalg.norm(free))
    with pytest.raises(ParameterError, match=r"radius = 0\.0"):
        Projected(SGD(1.0), 0.0)


def test_the_optimizer_names_in_plans_are_the_registered_names():
    words = get_args(OptimizerSection.model_fields["name"].annotation)
    assert {word: optimizer_rule(word).title for word in words} == {
        "sgd": "SGD",
        "nesterov": "Nesterov's accelerated SGD",
        "adam": "Adam",
    }


def test_registering_an_optimizer_name_twice_is_refused():
    with pytest.raises(ParameterError, match="a name that no other optimizer has"):
        register_optimizer("adam", "another optimizer")(lambda rate, momentum, weight_decay: None)
